"""SiLU, element by element."""

import torch

ENTRY = "silu"

CASES = {
    "large": {"n": 1 << 25},
    "small": {"n": 2000, "small": True},
}
HIDDEN_CASES = {
    "ragged": {"n": 1_000_003},
}
TOLERANCE = {"float16": {"rtol": 2e-3, "atol": 1e-4}}


def make_inputs(n, device):
    return (torch.randn(n, dtype=torch.float16, device=device),)


def reference(x):
    return torch.nn.functional.silu(x.float()).to(x.dtype)


def work(n):
    """Each element is read once and written once; about four operations an element."""
    return {"bytes": 2 * n * 2, "flops": 4 * n}
