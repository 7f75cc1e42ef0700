"""The defects that are planted for a real GPU: each is on top on its line, and gone after its rewrite."""

import ast
from collections.abc import Callable

import pytest

from tests.profiling.compiler.signatures.shown import TRITON
from tritonforge.profiling.diagnosis.engine import diagnose
from tritonforge.profiling.diagnosis.facts import Facts

from .compiled import compile_defects
from .conftest import read
from .defect import Defect, names, read_defect
from .planted import first

needs_triton = pytest.mark.skipif(TRITON != (3, 7), reason="defects were chosen for the compiler of Triton 3.7")
HEAVY = ("p4_unrolled", "r7_unrolled_steps", "t1_two_warps")
"""Take a dozen times as long to compile as others; their rules have small kernels of their own."""
COMPILED = [name for name in names() if name not in HEAVY]
FIXED = (
    "a3_half_atomics",
    "i1_exp",
    "l7_sum_in_loop",
    "p5_prefetched",
    "r1_four_pieces",
    "t4_ieee",
    "v9_pairs",
)
"""Whose rewrite is compiled here, one a family (G's is of two kernels): each of all 50 takes half a second of a core,
and small twins show the same of every rule."""


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Defect, str], Facts]:
    """All facts of a side's launch."""
    out = tmp_path_factory.mktemp("defects")
    compile_defects([read_defect(name) for name in COMPILED], FIXED, out)

    def facts(defect: Defect, side: str) -> Facts:
        return read(defect.text if side == "slow" else defect.fixed, out / f"{defect.name}_{side}.json")

    return facts


def test_there_are_enough_defects_of_many_kinds() -> None:
    found = [read_defect(name) for name in names()]
    assert len(found) >= 32
    assert len({defect.id for defect in found}) >= 30


@pytest.mark.parametrize("name", names())
def test_a_rewrite_applies_and_both_texts_are_python(name: str) -> None:
    defect = read_defect(name)
    assert defect.fixed != defect.text
    ast.parse(defect.text)
    ast.parse(defect.fixed)
    assert name.startswith(defect.id.lower() + "_")


@needs_triton
@pytest.mark.xdist_group("defects")
@pytest.mark.parametrize("name", COMPILED)
def test_a_defect_is_on_top_on_its_line(launched: Callable[[Defect, str], Facts], name: str) -> None:
    defect = read_defect(name)
    top = first(diagnose(launched(defect, "slow")))
    assert top.id == defect.id
    assert top.line is None or abs(top.line - defect.line) <= 1


@needs_triton
@pytest.mark.xdist_group("defects")
@pytest.mark.parametrize("name", FIXED)
def test_a_rewrite_takes_its_defect_away(launched: Callable[[Defect, str], Facts], name: str) -> None:
    defect = read_defect(name)
    told = diagnose(launched(defect, "fixed"))
    assert defect.id not in [finding.id for finding in told.findings + told.hypotheses]
