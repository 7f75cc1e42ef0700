"""Element-wise sine."""

import torch

ENTRY = "sin"

CASES = {
    "large": {"n": 1 << 24},
    "small": {"n": 4096, "small": True},
}


def make_inputs(n, device):
    return (torch.randn(n, dtype=torch.float32, device=device),)


def reference(x):
    return torch.sin(x)


def work(n):
    """Each element is read once and written once; sine itself is counted as one operation."""
    return {"bytes": 2 * n * 4, "flops": n}
