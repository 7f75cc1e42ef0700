"""Kernels of which only the source is looked at, and a look at what is told of them."""

from tritonforge.profiling.diagnosis.engine import diagnose
from tritonforge.profiling.diagnosis.facts import Facts
from tritonforge.profiling.diagnosis.model import Diagnosis, Finding

CAUSAL = """
import triton
import triton.language as tl

@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    hi = (pid + 1) * BLOCK
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, hi, BLOCK):
        total += tl.load(x_ptr + start + i)
    tl.store(y_ptr + pid * BLOCK + i, total)
"""
PRODUCT = """
import triton
import triton.language as tl

@triton.jit
def kernel(a_ptr, b_ptr, c_ptr, K, stride, S: tl.constexpr):
    row, column = tl.program_id(0), tl.program_id(1)
    i = tl.arange(0, S)
    total = tl.zeros((S, S), tl.float32)
    for k in range(0, K, S):
        a = tl.load(a_ptr + (row * S + i)[:, None] * stride + k + i[None, :])
        b = tl.load(b_ptr + (k + i)[:, None] * stride + column * S + i[None, :])
        total = tl.dot(a, b, total)
    tl.store(c_ptr + (row * S + i)[:, None] * stride + column * S + i[None, :], total)
"""


def told_of(told: Diagnosis, id: str) -> Finding | None:
    return next((each for each in told.findings + told.hypotheses if each.id == id), None)


def found(facts: Facts, id: str) -> Finding:
    finding = told_of(diagnose(facts), id)
    assert finding is not None
    return finding
