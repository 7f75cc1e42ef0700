# pyright: basic, reportArgumentType=false, reportOptionalMemberAccess=false, reportCallIssue=false, reportIndexIssue=false
# (Triton's own types don't pass the strict mode.)
"""Rows of a table, with a place for each element although those of a row follow one another."""

import torch
import triton
import triton.language as tl


@triton.jit
def gather_kernel(index_ptr, table_ptr, y_ptr, D: tl.constexpr):
    """`index`: (tokens, D) int32, places in `table`: (words, D) fp16; `y`: (tokens, D)."""
    column = tl.arange(0, D)
    first = tl.program_id(0) * D
    place = tl.load(index_ptr + first + column)
    x = tl.load(table_ptr + place)
    tl.store(y_ptr + first + column, x)


def gather(index, table):
    """`index`: (tokens, D) int32, places of whole rows of `table`: (words, D) fp16. Returns (tokens, D) fp16."""
    tokens, D = index.shape
    y = torch.empty((tokens, D), dtype=table.dtype, device=table.device)
    gather_kernel[(tokens,)](index, table, y, D, num_warps=8)
    return y


ENTRY = "gather"
CASES = {
    "large": {"tokens": 16384, "words": 16384, "D": 2048},
    "small": {"tokens": 16, "words": 64, "D": 2048, "small": True},
}
TOLERANCE = {"float16": {"rtol": 2e-3, "atol": 1e-3}}


def make_inputs(tokens, words, D, device):
    word = torch.randint(0, words, (tokens, 1), dtype=torch.int32, device=device)
    index = word * D + torch.arange(D, dtype=torch.int32, device=device)
    return index, torch.randn(words, D, dtype=torch.float16, device=device)


def reference(*given):
    index, table = given
    return table.flatten()[index.long()]


def work(tokens, words, D):
    return {"bytes": 2 * D * (tokens + min(tokens, words)) + 4 * tokens}


DEFECT = {"id": "V8", "mark": "x = tl.load(table_ptr"}
EDITS = [
    [
        "tl.load(index_ptr + first + column)",
        "tl.load(index_ptr + first) // D * D + column",
    ],
]
