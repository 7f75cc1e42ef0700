"""Expressions so deep that Python can't write them: rules quote them from the file, and offer no edit of them."""

from dataclasses import replace

import pytest

from tritonforge.profiling.compiler.remarks import Remark
from tritonforge.profiling.diagnosis.facts import Facts
from tritonforge.profiling.diagnosis.rules import RULES
from tritonforge.profiling.diagnosis.tail_path import full_blocks_apart

from .made_up import recorded, written

DEEP = " + ".join(["x"] * 2_800)
"""Nearly as deep as `ast.parse` takes: its limit is 3,000, three times Python's own."""
WAITS = Remark(id="dot-waits-for-operands", line=7, category="remark", message="waits", meaning=None)
IN_LOOP = ("acc = tl.zeros((64, 64), tl.float32)", "for k in range(n):")
LANES = ("i = tl.program_id(0) * B + tl.arange(0, B)", "m = i < n", "v = tl.load(x + i, mask=m)")


def deep(*body: str) -> Facts:
    """A kernel with an expression that Python can't write."""
    lines = "".join(f"    {line}\n" for line in body)
    text = f"import triton\nimport triton.language as tl\n@triton.jit\ndef kernel(x, y, n, B: tl.constexpr):\n{lines}"
    facts = written(text, signature={"x": "*fp8e4nv", "y": "*fp8e4nv", "n": "i32"}, constexprs={"B": 64})
    assert facts.source is not None
    return facts


def test_deep_expressions_are_quoted_from_the_file() -> None:
    record = recorded("matmul_candidate")
    assert record.launch is not None
    parts = {
        "T10": f"    acc = tl.dot(tl.load(x), tl.load(y) * ({DEEP}), acc)",
        "T6": f"    acc = tl.dot(tl.load(x), tl.load(y), acc, max_num_imprecise_acc={DEEP})",
        "P15": f"    a = tl.load(x + ({DEEP} + k) % n)",
    }
    for id, line in parts.items():
        facts = replace(deep(*IN_LOOP, line), lines=record.lines, remarks=[WAITS])
        single = record.launch.model_copy(update={"mma": "mma"}) if id == "T6" else record.launch
        waiting = {"load_widths_bytes": [2], "sync_loads_beside_dots": 1} if id == "P15" else {}
        facts = replace(facts, launch=single.model_copy(update=waiting))
        if id == "P15" and facts.lines is not None:
            sites = [each.model_copy(update={"line": 7, "waits_beside_dot": True}) for each in facts.lines.ttgir]
            facts = replace(facts, lines=facts.lines.model_copy(update={"ttgir": sites}))
        rule = next(each for each in RULES if each.id == id)
        (hit,) = rule.detect(facts)
        assert "x + x" in hit.evidence[0].text
        assert len(hit.evidence[0].text) < 200


@pytest.mark.parametrize(
    "body",
    [
        (*LANES, f"tl.store(y + i, {DEEP}, mask=m)"),
        (*LANES, f"v = {DEEP}"),
        (LANES[0], f"m = i < {DEEP}", LANES[2]),
        (LANES[0], f"v = tl.load(x + i, mask=i < {DEEP})"),
        (f"i = {DEEP} + tl.arange(0, B)", *LANES[1:]),
    ],
)
def test_blocks_are_not_divided_around_an_expression_too_deep_to_write(body: tuple[str, ...]) -> None:
    facts = deep(*body)
    assert facts.file is not None
    assert facts.source is not None
    assert full_blocks_apart(facts.file, facts.source, facts.source.accesses[0]) is None
