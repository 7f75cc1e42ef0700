# pyright: basic, reportArgumentType=false, reportOptionalMemberAccess=false, reportCallIssue=false, reportIndexIssue=false
# (Triton's own types don't pass the strict mode.)
"""The logarithm of sums of exponentials of rows of 32,768 elements, each held by four warps."""

import torch
import triton
import triton.language as tl


@triton.jit
def log_sum_kernel(x_ptr, y_ptr, COLUMNS: tl.constexpr):
    """One row of `x`: (rows, COLUMNS) fp16, and its element of `y`: (rows,) fp32."""
    row = tl.program_id(0)
    x = tl.load(x_ptr + row * COLUMNS + tl.arange(0, COLUMNS)).to(tl.float32) * 1.4426950408889634
    top = tl.max(x, 0)
    tl.store(y_ptr + row, (top + tl.log2(tl.sum(tl.exp2(x - top), 0))) * 0.6931471805599453)


def log_sum(x):
    """`x`: (rows, columns) fp16, contiguous; columns a power of two. Returns log(sum(exp(x))) of its rows, fp32."""
    rows, columns = x.shape
    y = torch.empty(rows, dtype=torch.float32, device=x.device)
    log_sum_kernel[(rows,)](x, y, columns, num_warps=4)
    return y


ENTRY = "log_sum"
CASES = {
    "large": {"rows": 4096, "columns": 32768},
    "small": {"rows": 2, "columns": 32768, "small": True},
}
TOLERANCE = {"float32": {"rtol": 1e-4, "atol": 1e-4}}
ERROR_FACTOR = 1000.0


def make_inputs(rows, columns, device):
    return (torch.randn(rows, columns, dtype=torch.float16, device=device),)


def reference(*given):
    (x,) = given
    return torch.logsumexp(x.float(), 1)


def work(rows, columns):
    return {"bytes": 2 * rows * columns + 4 * rows, "flops": 4 * rows * columns}


DEFECT = {"id": "R2", "mark": "x = tl.load("}
EDITS = [
    [
        "num_warps=4",
        "num_warps=16",
    ],
]
