"""Row-wise softmax."""

import torch

ENTRY = "softmax"

CASES = {
    "decode": {"rows": 64, "cols": 8192, "dtype": "float16"},
    "train": {"rows": 16384, "cols": 4096, "dtype": "float16", "weight": 3.0},
    "small": {"rows": 48, "cols": 781, "dtype": "float16", "small": True},
}
HIDDEN_CASES = {
    "ragged": {"rows": 1823, "cols": 781, "dtype": "float32"},
}
TOLERANCE = {"float16": {"rtol": 2e-3, "atol": 1e-5}}


def make_inputs(rows, cols, dtype, device):
    return (torch.randn(rows, cols, dtype=getattr(torch, dtype), device=device),)


def reference(x):
    return torch.softmax(x.float(), dim=-1).to(x.dtype)


def work(rows, cols, dtype):
    """Each element is read once and written once; about five operations an element."""
    size = getattr(torch, dtype).itemsize
    return {"bytes": 2 * rows * cols * size, "flops": 5 * rows * cols}
