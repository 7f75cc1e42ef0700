"""Rules of grids and traffic that rest on a profile."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from textwrap import indent
from typing import Any

import pytest

from tests.profiling.compiler.signatures.shown import TRITON
from tritonforge.profiling.compiler.details import LaunchDetails
from tritonforge.profiling.diagnosis.engine import diagnose
from tritonforge.profiling.diagnosis.facts import Facts
from tritonforge.profiling.diagnosis.floor import Floor
from tritonforge.profiling.diagnosis.model import Level
from tritonforge.profiling.ncu.cause import Cause
from tritonforge.profiling.ncu.causes import causes
from tritonforge.profiling.ncu.hotspots import Hotspot
from tritonforge.profiling.ncu.model import Stall
from tritonforge.profiling.roofline import Work

from .made_up import hotspot, profile, recorded, written
from .sources import CAUSAL, PRODUCT, found, told_of

WAITING = (Stall(reason="long_scoreboard", pct=70.0, cycles=9.0, meaning="waits for memory"),)
LATE: dict[str, Any] = {
    "memory_pct": 30.0,
    "dram_pct": 30.0,
    "compute_pct": 10.0,
    "issue_slot_pct": 10.0,
    "stalls": WAITING,
}


def profiled(facts: Facts, spots: Sequence[Hotspot] = (), work: Work | None = None, **fields: Any) -> Facts:
    """The facts with a profile and what follows from it."""
    seen = profile(**fields)
    return replace(facts, profile=seen, causes=causes(seen, spots, None, work), hotspots=spots)


def test_uneven_work_is_told_with_its_bound_and_the_loop_that_causes_it() -> None:
    finding = found(profiled(written(CAUSAL), sm_imbalance=1.25), "G3")
    assert (finding.level, finding.line, finding.gain.at_most_pct) == (Level.PROFILE, 11, 20.0)
    assert "the program's number" in " ".join(each.text for each in finding.evidence)
    spots = [hotspot(12, 60.0), hotspot(13, 9.0)]
    assert found(profiled(written(CAUSAL), spots, sm_imbalance=1.25), "G3").line == 12


@pytest.mark.parametrize(
    ("bounds", "told"),
    [("0, hi, BLOCK", True), ("pid * BLOCK, n, BLOCK", True), ("pid, n, BLOCK", False), ("0, n, BLOCK", False)],
)
def test_a_loop_over_tiles_is_not_called_uneven(bounds: str, told: bool) -> None:
    facts = profiled(written(CAUSAL.replace("0, hi, BLOCK", bounds)), sm_imbalance=1.25)
    assert (found(facts, "G3").line is not None) == told


def test_loops_as_long_as_loaded_values_say_are_uneven() -> None:
    text = CAUSAL.replace("hi = (pid + 1) * BLOCK", "hi = tl.load(y_ptr + pid)")
    finding = found(profiled(written(text), sm_imbalance=1.25), "G3")
    assert "loaded values" in " ".join(each.text for each in finding.evidence)


def test_even_work_is_not_told() -> None:
    assert told_of(diagnose(profiled(written(CAUSAL), sm_imbalance=1.04)), "G3") is None


def test_a_launch_of_a_few_microseconds_is_told_or_taken_in_by_the_loop_around_it() -> None:
    text = CAUSAL + "\ndef entry(x, y):\n    for each in x:\n        kernel[(4,)](each, y, 64, BLOCK=64)\n"
    finding = found(profiled(written(text, count=8), duration_us=3.2), "H3")
    assert (finding.line, [folded.id for folded in finding.explains]) == (16, ["G4"])
    assert "8 times in a call" in finding.evidence[1].text
    alone = found(profiled(written(CAUSAL, count=8), duration_us=3.2), "G4")
    assert "8 such launches" in alone.evidence[0].text + alone.evidence[1].text
    assert told_of(diagnose(profiled(written(text), duration_us=5.0)), "G4") is None
    assert told_of(diagnose(profiled(written(text))), "G4") is None


def grouped(text: str) -> str:
    return text.replace("row, column = tl.program_id(0), tl.program_id(1)", "row, column = tl.swizzle2d(0, 1, 2, 3, 8)")


def test_a_product_without_groups_that_misses_l2_is_told() -> None:
    facts = profiled(written(PRODUCT, grid=(64, 64, 1)), l2_hit_pct=40.0, dram_pct=70.0)
    assert found(facts, "G5").evidence[-1].value == 40.0


@pytest.mark.parametrize(
    ("text", "grid", "fields"),
    [
        (PRODUCT, (64, 64, 1), {"l2_hit_pct": 60.0, "dram_pct": 70.0}),
        (PRODUCT, (64, 64, 1), {"l2_hit_pct": 40.0, "dram_pct": 30.0}),
        (PRODUCT, (64, 64, 1), {"l2_hit_pct": 40.0}),
        (PRODUCT, (64, 1, 1), {"l2_hit_pct": 40.0, "dram_pct": 70.0}),
        (grouped(PRODUCT), (64, 64, 1), {"l2_hit_pct": 40.0, "dram_pct": 70.0}),
        (PRODUCT.replace("stride,", "stride, GROUP_M,"), (64, 64, 1), {"l2_hit_pct": 40.0, "dram_pct": 70.0}),
        (CAUSAL, (64, 64, 1), {"l2_hit_pct": 40.0, "dram_pct": 70.0}),
    ],
)
def test_programs_in_groups_or_a_full_l2_are_not_told(
    text: str, grid: tuple[int, int, int], fields: dict[str, Any]
) -> None:
    assert told_of(diagnose(profiled(written(text, grid=grid), **fields)), "G5") is None


TINY: dict[str, Any] = {
    "grid": (400_000, 1, 1), "block": (128, 1, 1), "waves_per_sm": 200.0, "cycles": 800_000.0,
    "achieved_occupancy_pct": 20.0, "theoretical_occupancy_pct": 100.0,
}  # fmt: skip


def test_programs_that_end_at_once_are_told_unless_their_block_is_too_small_for_its_threads() -> None:
    facts = profiled(recorded("softmax_candidate"), **TINY)
    finding = found(facts, "G6")
    assert finding.predicted[0].fact == "launch.waves"
    assert told_of(diagnose(replace(facts, launch=None)), "G6") is None
    small = profiled(recorded("softmax_baseline"), **TINY)
    assert told_of(diagnose(small), "V6") is not None
    assert told_of(diagnose(small), "G6") is None


def test_loads_that_all_wait_for_are_told_on_their_line() -> None:
    facts = profiled(recorded("softmax_candidate"), [hotspot(7, 60.0)], **LATE)
    assert found(facts, "M3").level == Level.PROFILE
    spot = hotspot(7, 60.0).model_copy(update={"stall": "long_scoreboard"})
    assert found(profiled(recorded("softmax_candidate"), [spot], **LATE), "M3").line == 7


@pytest.mark.parametrize("more", [{"dram_pct": 70.0, "memory_pct": 70.0}, {"stalls": ()}, {"sm_imbalance": 1.5}])
def test_waiting_is_not_told_where_memory_is_busy_or_something_else_explains_it(more: dict[str, Any]) -> None:
    assert told_of(diagnose(profiled(recorded("softmax_candidate"), **LATE | more)), "M3") is None


def test_a_products_loads_are_left_to_what_the_code_shows() -> None:
    assert told_of(diagnose(profiled(recorded("matmul_candidate"), **LATE)), "M3") is None


@pytest.mark.parametrize(("id", "kind"), [("M4", "load"), ("M5", "store")])
def test_sectors_that_are_used_in_part_are_told_on_the_line_with_most(id: str, kind: str) -> None:
    fields: dict[str, Any] = {
        f"{kind}_bytes_per_sector": 4.0,
        f"{kind}_sectors_per_request": 32.0,
        "needed_sectors_pct": 12.0,
    }
    excess = {"l2_excess": {"count": 900.0, "pct": 87.0}}
    spot = Hotspot.model_validate(hotspot(12, 60.0).model_dump() | excess)
    finding = found(profiled(written(CAUSAL), [spot], **fields), id)
    assert (finding.line, finding.evidence[0].value) == (12, 4.0)
    other = {"M4": "M5", "M5": "M4"}[id]
    assert told_of(diagnose(profiled(written(CAUSAL), [spot], **fields)), other) is None
    fields[f"{kind}_bytes_per_sector"] = 32.0
    whole = profiled(written(CAUSAL), [spot], **fields)
    assert told_of(diagnose(whole), id) is None


@pytest.mark.xdist_group("diagnosis")
@pytest.mark.skipif(TRITON != (3, 7), reason="what is planted was chosen for the compiler of Triton 3.7")
def test_loads_that_wait_behind_a_change_of_layout_are_folded_into_it(launches: Callable[[str, str], Facts]) -> None:
    facts = profiled(launches("accesses", "converted_in_loop"), **LATE)
    told = {finding.id: finding for finding in diagnose(facts).findings}
    assert "P7" in {folded.id for folded in told["L1"].explains}
    assert "P7" not in told


def test_partly_used_sectors_cost_nothing_at_a_floor_that_no_byte_is_moved_beyond() -> None:
    fields: dict[str, Any] = {
        "load_bytes_per_sector": 4.0,
        "load_sectors_per_request": 32.0,
        "needed_sectors_pct": 12.0,
    }
    facts = replace(profiled(written(CAUSAL), **fields), floor=Floor(90.0, 90.0, "100 MB", "memory"))
    assert told_of(diagnose(facts), "M4") is None
    extra = Cause(id="extra_traffic", text="", suggestion="", evidence={"dram_bytes": 9.0})
    assert told_of(diagnose(replace(facts, causes=[*facts.causes, extra])), "M4") is not None


@pytest.mark.parametrize("said", ["spills", "uncoalesced_loads"])
def test_bytes_that_another_finding_explains_are_left_to_it(said: str) -> None:
    facts = replace(written(CAUSAL), lines=recorded("softmax_candidate").lines)
    facts = profiled(facts, work=Work(flops=1.0, bytes=20e6), dram_bytes=60e6)
    better = Cause(id=said, text="", suggestion="", evidence={})
    assert told_of(diagnose(replace(facts, causes=[*facts.causes, better])), "M1") is None


def test_more_bytes_than_the_work_needs_are_told_of_what_is_no_product() -> None:
    work = Work(flops=1.0, bytes=20e6)
    lines = recorded("softmax_candidate").lines
    finding = found(profiled(replace(written(CAUSAL), lines=lines), work=work, dram_bytes=60e6), "M1")
    assert (finding.level, finding.line, finding.predicted) == (Level.PROFILE, None, [])
    product = profiled(replace(written(PRODUCT), lines=lines), work=work, dram_bytes=60e6)
    assert told_of(diagnose(product), "M1") is None
    assert told_of(diagnose(profiled(replace(written(CAUSAL), lines=lines), work=work, dram_bytes=22e6)), "M1") is None


TWICE = """
import triton
import triton.language as tl

@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    first = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        first += tl.load(x_ptr + tl.program_id(0) * n + start + i)
    second = tl.zeros((BLOCK,), tl.float32)
    for at in range(0, n, BLOCK):
        second += tl.exp(tl.load(x_ptr + tl.program_id(0) * n + at + i))
    tl.store(y_ptr + tl.program_id(0) * BLOCK + i, first + second)
"""


def twice(old: str = "", new: str = "", *lines: int) -> Facts:
    """The kernel above, changed, as if the compiler had loads in loops on some lines."""
    site = next(site for site in recorded("softmax_baseline").lines.ttgir if site.kind == "load")  # pyright: ignore[reportOptionalMemberAccess]  a recorded launch has them
    loads = [site.model_copy(update={"line": line, "in_loop": True}) for line in lines or (10, 13)]
    signature = {"x_ptr": "*fp32", "y_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    facts = written(TWICE.replace(old, new), signature=signature, constexprs={"BLOCK": 64})
    return replace(facts, lines=LaunchDetails(places=[], ptx=[], ttgir=loads))


def test_two_passes_that_both_sum_are_one_too_many() -> None:
    finding = found(twice(), "M1")
    assert (finding.line, finding.level) == (13, Level.CODE)


def test_two_passes_of_which_the_last_has_a_result_for_each_element_are_a_hypothesis() -> None:
    store = "tl.store(y_ptr + at + i, tl.load(x_ptr + tl.program_id(0) * n + at + i))"
    finding = found(twice("second += tl.exp(tl.load(x_ptr + tl.program_id(0) * n + at + i))", store), "M1")
    assert (finding.line, finding.level) == (13, Level.SOURCE)


@pytest.mark.parametrize(
    ("passes", "told", "example"),
    [
        (("", ""), "compute what is reduced in one pass", "new = tl.maximum"),
        (("first + second)", "tl.sum(first) + tl.sum(second))"), "take all sums in one pass", "means += off / steps"),
        (("first + second)", "second / tl.sum(second) * tl.max(first))"), "correcting the sum", "new = tl.maximum"),
    ],
)
def test_how_a_row_is_read_once_depends_on_what_is_reduced(passes: tuple[str, str], told: str, example: str) -> None:
    finding = found(twice(*passes), "M1")
    assert told in finding.rewrite.recipe
    assert ("maximum" in finding.rewrite.recipe) == ("correcting" in told)
    assert example in finding.rewrite.example


@pytest.mark.parametrize(
    "facts",
    [
        twice("for at in range(0, n", "for at in range(64, n"),
        twice("for at in range(0, n", "for at in range(0, n // 4"),
        twice("n + at + i)", "n + at + i + 1)"),
        twice("x_ptr + tl.program_id(0) * n + at", "y_ptr + tl.program_id(0) * n + at"),
        twice("first + second)", "first + second)\n    tl.store(x_ptr + i, first)"),
        twice("* n + at + i))", "* n + at + i)); first = tl.dot(first, first)"),
        twice("", "", 10),
        replace(twice(), lines=None),
    ],
)
def test_what_is_not_read_again_for_sure_is_not_told(facts: Facts) -> None:
    assert told_of(diagnose(facts), "M1") is None


def test_passes_on_two_sides_of_a_branch_are_one() -> None:
    loop = (
        "    for at in range(0, n, BLOCK):\n        second += tl.exp(tl.load(x_ptr + tl.program_id(0) * n + at + i))\n"
    )
    apart = f"    if n > 9:\n{indent(loop, '    ')}    else:\n{indent(loop.replace('at', 'to'), '    ')}"
    first = TWICE[TWICE.index("    for start") : TWICE.index("    second =")]
    facts = twice(first, "")
    assert told_of(diagnose(facts), "M1") is None
    both = written(TWICE.replace(first, "").replace(loop, apart), signature=facts.captured.signature)
    lines = twice("", "", 12, 15).lines
    assert told_of(diagnose(replace(both, lines=lines)), "M1") is None
    assert both.source is not None
    assert [access.line for access in both.source.accesses if access.kind == "load"] == [12, 15]
