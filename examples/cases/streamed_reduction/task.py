"""Matrix times vector."""

import torch

ENTRY = "matvec"

CASES = {
    "large": {"rows": 10240, "cols": 16384},
    "small": {"rows": 70, "cols": 520, "small": True},
}
HIDDEN_CASES = {
    "ragged": {"rows": 1823, "cols": 5003},
}
TOLERANCE = {"float32": {"rtol": 1e-3, "atol": 1e-2}}


def make_inputs(rows, cols, device):
    matrix = torch.randn(rows, cols, dtype=torch.float16, device=device)
    return matrix, torch.randn(cols, dtype=torch.float16, device=device)


def reference(matrix, vector):
    return (matrix.double() @ vector.double()).float()


def reduction(rows, cols):
    return cols


def work(rows, cols):
    """The matrix and the vector are read once; a product and a sum for each element of the matrix."""
    return {"bytes": 2 * rows * cols + 2 * cols + 4 * rows, "flops": 2 * rows * cols}
