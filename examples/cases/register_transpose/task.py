"""Transposing a matrix."""

import torch

ENTRY = "transpose"

CASES = {
    "large": {"rows": 8192, "cols": 4096},
    "small": {"rows": 70, "cols": 150, "small": True},
}
HIDDEN_CASES = {
    "ragged": {"rows": 1823, "cols": 781},
}


def make_inputs(rows, cols, device):
    return (torch.randn(rows, cols, dtype=torch.float32, device=device),)


def reference(x):
    return x.t().contiguous()


def work(rows, cols):
    """Each element is read once and written once."""
    return {"bytes": 2 * rows * cols * 4, "flops": 0}
