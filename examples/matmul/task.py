"""Matrix product of two row-major fp16 matrices with fp32 accumulation."""

import torch

ENTRY = "matmul"

CASES = {
    "square": {"M": 4096, "N": 4096, "K": 4096, "weight": 2.0},
    "tall": {"M": 8192, "N": 1024, "K": 2048},
    "small": {"M": 130, "N": 72, "K": 96, "small": True},
}
HIDDEN_CASES = {
    "ragged": {"M": 1000, "N": 1016, "K": 520},
}
TOLERANCE = {"float16": {"rtol": 2e-3, "atol": 2e-2}}


def make_inputs(M, N, K, device):
    a = torch.randn(M, K, dtype=torch.float16, device=device)
    b = torch.randn(K, N, dtype=torch.float16, device=device)
    return a, b


def reference(a, b):
    return (a.float() @ b.float()).to(a.dtype)


def work(M, N, K):
    """A and B are read once, C is written once; a multiply and an add for every term."""
    return {"bytes": 2 * (M * K + K * N + M * N), "flops": 2 * M * N * K}


def reduction(M, N, K):
    """Length of the sum behind each output element."""
    return K
