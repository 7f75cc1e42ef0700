"""Small mistakes in the three examples' candidates, each of which must be found wrong, and tasks that show them.

The tasks' cases have ragged sizes: where a tile fits exactly, a mask that is off by one changes nothing.
"""

from pathlib import Path
from typing import Final, NamedTuple

EXAMPLES: Final = Path(__file__).resolve().parents[1] / "examples"


class Mutant(NamedTuple):
    """One edit of a candidate."""

    name: str
    old: str
    new: str


SIN_TASK: Final = """\
import torch

ENTRY = "sin"
CASES = {"ragged": {"n": 3003, "small": True}}


def make_inputs(n, device):
    return (torch.randn(n, dtype=torch.float32, device=device),)


def reference(x):
    return torch.sin(x)
"""
SOFTMAX_TASK: Final = """\
import torch

ENTRY = "softmax"
CASES = {"ragged": {"rows": 21, "cols": 781, "small": True}}
TOLERANCE = {"float16": {"rtol": 2e-3, "atol": 1e-5}}


def make_inputs(rows, cols, device):
    return (torch.randn(rows, cols, dtype=torch.float16, device=device),)


def reference(x):
    return torch.softmax(x.float(), dim=-1).to(x.dtype)
"""
MATMUL_TASK: Final = """\
import torch

ENTRY = "matmul"
CASES = {"ragged": {"M": 130, "N": 300, "K": 96, "small": True}}
TOLERANCE = {"float16": {"rtol": 2e-3, "atol": 2e-2}}


def make_inputs(M, N, K, device):
    a = torch.randn(M, K, dtype=torch.float16, device=device)
    b = torch.randn(K, N, dtype=torch.float16, device=device)
    return a, b


def reference(a, b):
    return (a.float() @ b.float()).to(a.dtype)


def reduction(M, N, K):
    return K
"""
TASKS: Final = {"sin": SIN_TASK, "softmax": SOFTMAX_TASK, "matmul": MATMUL_TASK}

SIN: Final = (
    Mutant("mask one short", "offsets < n", "offsets < n - 1"),
    Mutant("mask one long", "offsets < n", "offsets <= n"),
    Mutant("tail left out", "offsets < n", "offsets < n - n % BLOCK"),
    Mutant("store without a mask", "tl.sin(x), mask=mask)", "tl.sin(x))"),
    Mutant("wrong stride of programs", "tl.program_id(0) * BLOCK", "tl.program_id(0) * (BLOCK + 1)"),
    Mutant("another function", "tl.sin(x)", "tl.cos(x)"),
    Mutant("three terms of the series", "tl.sin(x)", "(x - x * x * x / 6)"),
    Mutant("input in fp16", "tl.sin(x)", "tl.sin(x.to(tl.float16).to(tl.float32))"),
    Mutant("input in bf16", "tl.sin(x)", "tl.sin(x.to(tl.bfloat16).to(tl.float32))"),
    Mutant("result in fp16", "tl.sin(x)", "tl.sin(x).to(tl.float16).to(tl.float32)"),
    Mutant("sign lost", "tl.sin(x)", "tl.abs(tl.sin(x))"),
    Mutant("sign of the argument lost", "tl.sin(x)", "tl.sin(tl.abs(x))"),
    Mutant("grid rounded down", "triton.cdiv(n, block),", "n // block,"),
    Mutant("grid one short", "triton.cdiv(n, block),", "triton.cdiv(n, block) - 1,"),
    Mutant("load one further", "x_ptr + offsets, mask", "x_ptr + offsets + 1, mask"),
    Mutant("store one further", "out_ptr + offsets,", "out_ptr + offsets + 1,"),
    Mutant("store to the input", "out_ptr + offsets,", "x_ptr + offsets,"),
    Mutant("in place", "out = torch.empty_like(x)", "out = x"),
    Mutant("half of it", "n = x.numel()", "n = x.numel() // 2"),
    Mutant("rare values", "tl.sin(x)", "tl.where(x > 3.0, 0.0, tl.sin(x))"),
)
SOFTMAX: Final = (
    Mutant("mask one short", "offsets < cols", "offsets < cols - 1"),
    Mutant("mask one long", "offsets < cols", "offsets <= cols"),
    Mutant("wrong filling", 'other=-float("inf")', "other=0.0"),
    Mutant("no maximum", "tl.exp(x - tl.max(x, axis=0))", "tl.exp(x)"),
    Mutant("minimum for maximum", "tl.max(x, axis=0)", "tl.min(x, axis=0)"),
    Mutant("one too many in the sum", "tl.sum(numerator, axis=0)", "(tl.sum(numerator, axis=0) + 1.0)"),
    Mutant("wrong stride of loads", "x_ptr + row * row_stride", "x_ptr + row * (row_stride - 1)"),
    Mutant("store one row further", "out_ptr + row * row_stride", "out_ptr + (row + 1) * row_stride"),
    Mutant("input in bf16", ".to(tl.float32)", ".to(tl.bfloat16).to(tl.float32)"),
    Mutant("result in bf16", "y.to(", "y.to(tl.bfloat16).to("),
    Mutant("not normalized", "numerator * (1.0 / tl.sum(numerator, axis=0))", "numerator"),
    Mutant("half", "(1.0 / tl", "(0.5 / tl"),
    Mutant(
        "last column not in the sum",
        "tl.sum(numerator, axis=0)",
        "tl.sum(tl.where(offsets < cols - 1, numerator, 0.0), axis=0)",
    ),
    Mutant("grid one short", "[(rows,)]", "[(rows - 1,)]"),
    Mutant("store without a mask", "element_ty), mask=mask)", "element_ty))"),
    Mutant("every second row", "row = tl.program_id(0)", "row = (tl.program_id(0) // 2 * 2)"),
    Mutant("in place", "out = torch.empty_like(x)", "out = x"),
    Mutant("half of the columns", "block = triton.next_power_of_2(cols)", "block = triton.next_power_of_2(cols) // 2"),
    Mutant("another base", "tl.exp(", "tl.exp2("),
    Mutant("wrong sign", "tl.exp(x - ", "tl.exp(-x + "),
)
MATMUL: Final = (
    Mutant("mask of the sum one long", "< K - k", "<= K - k"),
    Mutant(
        "no masks in the sum",
        "mask=inner[None, :] < K - k, other=0.0)\n        b = tl.load(b_tile, mask=inner[:, None] < K - k, other=0.0)",
        ")\n        b = tl.load(b_tile)",
    ),
    Mutant("last step left out", "range(0, K, BLOCK_K)", "range(0, K - BLOCK_K, BLOCK_K)"),
    Mutant("first step left out", "range(0, K, BLOCK_K)", "range(BLOCK_K, K, BLOCK_K)"),
    Mutant("dropped accumulation", "acc = tl.dot(a, b, acc)", "acc = tl.dot(a, b)"),
    Mutant("wrong stride of A", "[:, None] * stride_am", "[:, None] * stride_cm"),
    Mutant("wrong stride of B", "inner[:, None] * stride_bk", "inner[:, None] * stride_am"),
    Mutant("wrong stride of C", "rows[:, None] * stride_cm", "rows[:, None] * stride_am"),
    Mutant("A moves too far", "a_tile += BLOCK_K", "a_tile += BLOCK_K + 1"),
    Mutant("B moves along its rows", "b_tile += BLOCK_K * stride_bk", "b_tile += BLOCK_K"),
    Mutant("one row too many", "(rows[:, None] < M)", "(rows[:, None] <= M)"),
    Mutant("one column too many", "(cols[None, :] < N)", "(cols[None, :] <= N)"),
    Mutant("tiles swapped", "rows = tile_m * BLOCK_M", "rows = tile_n * BLOCK_M"),
    Mutant("rows that do not wrap at M", "(rows % M)", "(rows % (M - 1))"),
    Mutant("result in bf16", "acc.to(c_ptr", "acc.to(tl.bfloat16).to(c_ptr"),
    Mutant("A in fp8", "tl.dot(a, b", "tl.dot(a.to(tl.float8e5).to(tl.float16), b"),
    Mutant("grid one short", "triton.cdiv(N, block_n),", "triton.cdiv(N, block_n) - 1,"),
    Mutant("groups that go past the edge", "min(tiles_m - first_m, GROUP_M)", "GROUP_M"),
    Mutant("wrong filling", "other=0.0", "other=1.0"),
    Mutant(
        "transposed",
        "c_ptr + rows[:, None] * stride_cm + cols[None, :]",
        "c_ptr + cols[None, :] * stride_cm + rows[:, None]",
    ),
)
MUTANTS: Final = {"sin": SIN, "softmax": SOFTMAX, "matmul": MATMUL}


def candidate(example: str) -> str:
    """Source of an example's candidate."""
    return (EXAMPLES / example / "candidate.py").read_text()


def mutated(example: str, mutant: Mutant) -> str:
    """Source of an example's candidate with one mistake.

    Raises:
        ValueError: the candidate has no such place.
    """
    source = candidate(example)
    if mutant.old not in source:
        raise ValueError(f"{example}: {mutant.name}: {mutant.old!r} is not in the candidate")
    return source.replace(mutant.old, mutant.new)


HONEST_EDITS: Final = {
    ("sin", "float32"): (),
    ("sin", "float16"): (("tl.sin(x)", "tl.sin(x.to(tl.float32)).to(out_ptr.dtype.element_ty)"),),
    ("sin", "bfloat16"): (("tl.sin(x)", "tl.sin(x.to(tl.float32)).to(out_ptr.dtype.element_ty)"),),
    ("softmax", "float32"): (),
    ("softmax", "float16"): (),
    ("softmax", "bfloat16"): (),
    ("matmul", "float32"): (
        ("tl.dot(a, b, acc)", 'tl.dot(a, b, acc, input_precision="ieee")'),
        ("block_m, block_n, block_k = 128, 256, 64", "block_m, block_n, block_k = 64, 64, 32"),
    ),
    ("matmul", "float16"): (),
    ("matmul", "bfloat16"): (),
}
"""What an honest kernel needs for another type than its example's."""


def honest(example: str, dtype: str) -> tuple[str, str]:
    """Kernel and task of an example for a type: default tolerances but for fp16."""
    kernel, task = candidate(example), TASKS[example]
    for old, new in HONEST_EDITS[example, dtype]:
        if old not in kernel:
            raise ValueError(f"{example}: {old!r} is not in the candidate")
        kernel = kernel.replace(old, new)
    for name in ("float16", "float32"):
        task = task.replace(f"dtype=torch.{name}", f"dtype=torch.{dtype}")
    return kernel, task
