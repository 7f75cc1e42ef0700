# pyright: basic, reportArgumentType=false, reportOptionalMemberAccess=false, reportCallIssue=false, reportIndexIssue=false
# (Triton's own types don't pass the strict mode.)
"""A product of complex numbers whose parts alternate: each access uses half of what it fetches."""

import torch
import triton
import triton.language as tl


@triton.jit
def rotate_kernel(x_ptr, w_ptr, y_ptr, BLOCK: tl.constexpr):
    """`x`, `w`, `y`: pairs of a real and an imaginary part, fp16; a multiple of BLOCK of them."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b = tl.load(x_ptr + 2 * at), tl.load(x_ptr + 2 * at + 1)
    c, d = tl.load(w_ptr + 2 * at), tl.load(w_ptr + 2 * at + 1)
    a, b, c, d = a.to(tl.float32), b.to(tl.float32), c.to(tl.float32), d.to(tl.float32)
    real, imaginary = (a * c - b * d).to(tl.float16), (a * d + b * c).to(tl.float16)
    tl.store(y_ptr + 2 * at, real)
    tl.store(y_ptr + 2 * at + 1, imaginary)


def rotate(x, w):
    """`x`, `w`: (n, 2) fp16. Returns their products as complex numbers."""
    y = torch.empty_like(x)
    rotate_kernel[(x.shape[0] // 1024,)](x, w, y, 1024, num_warps=4)
    return y


ENTRY = "rotate"
CASES = {
    "large": {"n": 1 << 25},
    "small": {"n": 4096, "small": True},
}
TOLERANCE = {"float16": {"rtol": 2e-3, "atol": 1e-3}}


def make_inputs(n, device):
    return tuple(torch.randn(n, 2, dtype=torch.float16, device=device) for _ in range(2))


def reference(*given):
    (a, b), (c, d) = (each.float().unbind(1) for each in given)
    return torch.stack((a * c - b * d, a * d + b * c), 1).to(given[0].dtype)


def work(n):
    return {"bytes": 12 * n, "flops": 6 * n}


DEFECT = {"id": "V9", "mark": "a, b = tl.load("}
EDITS = [
    [
        "    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    a, b = tl.load(x_ptr + 2 * at), tl.load(x_ptr + 2 * at + 1)\n"
        "    c, d = tl.load(w_ptr + 2 * at), tl.load(w_ptr + 2 * at + 1)\n",
        "    at = 2 * tl.program_id(0) * BLOCK + tl.arange(0, 2 * BLOCK)\n"
        "    a, b = tl.split(tl.reshape(tl.load(x_ptr + at), (BLOCK, 2)))\n"
        "    c, d = tl.split(tl.reshape(tl.load(w_ptr + at), (BLOCK, 2)))\n",
    ],
    [
        "    tl.store(y_ptr + 2 * at, real)\n    tl.store(y_ptr + 2 * at + 1, imaginary)\n",
        "    tl.store(y_ptr + at, tl.interleave(real, imaginary))\n",
    ],
]
