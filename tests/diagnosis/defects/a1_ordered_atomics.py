# pyright: basic, reportArgumentType=false, reportOptionalMemberAccess=false, reportCallIssue=false, reportIndexIssue=false
# (Triton's own types don't pass the strict mode.)
"""A histogram whose atomics order all of memory, although nothing depends on it."""

import torch
import triton
import triton.language as tl


@triton.jit
def histogram_kernel(x_ptr, counts_ptr, BLOCK: tl.constexpr):
    """`x`: a multiple of BLOCK of int32; `counts`: one a value."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    tl.atomic_add(counts_ptr + x, tl.full((BLOCK,), 1, tl.int32))


def histogram(x, bins):
    """`x`: (n,) int32 below `bins`. Returns how often each value occurs, int32."""
    counts = torch.zeros(bins, dtype=torch.int32, device=x.device)
    histogram_kernel[(x.numel() // 1024,)](x, counts, 1024, num_warps=4)
    return counts


ENTRY = "histogram"
CASES = {
    "large": {"n": 1 << 23, "bins": 1 << 16},
    "small": {"n": 4096, "bins": 256, "small": True},
}
TOLERANCE = {}


def make_inputs(n, bins, device):
    return torch.randint(0, bins, (n,), dtype=torch.int32, device=device), bins


def reference(*given):
    x, bins = given
    return torch.bincount(x, minlength=bins).to(torch.int32)


def work(n, bins):
    return {"bytes": 4 * (n + bins)}


DEFECT = {"id": "A1", "mark": "tl.atomic_add("}
EDITS = [
    [
        "1, tl.int32))",
        '1, tl.int32), sem="relaxed")',
    ],
]
