"""What an edit is expected to save."""

from dataclasses import replace
from typing import Any

import pytest

from tritonforge.profiling.diagnosis.engine import diagnose
from tritonforge.profiling.diagnosis.floor import Floor
from tritonforge.profiling.diagnosis.gains import (
    MODELS,
    Model,
    by_one_block,
    fewer_instructions,
    in_turns,
    less_on_line,
    or_spills,
    to_the_floor,
    without_spills,
    without_stall,
)
from tritonforge.profiling.diagnosis.measured import MEASURED, NOTES, WAITING, Measured
from tritonforge.profiling.diagnosis.rules import RULES
from tritonforge.profiling.ncu.cause import Cause
from tritonforge.profiling.ncu.model import LaunchProfile, Pipe, Stall

from .defect import names
from .made_up import hotspot, profile, recorded, rule

FACTS = recorded("softmax_candidate")
BYTES = Floor(45.0, 45.0, "100 MB", "memory")
FLOPS = Floor(45.0, 45.0, "1 TFLOP", "compute")


def left(model: Model, floor: Floor | None, seen: LaunchProfile | None = None, **more: Any) -> float | None:
    found = model.left(replace(FACTS, profile=seen or profile(), floor=floor, **more), 7)
    return None if found is None else round(found.share, 3)


def launched(**changed: Any) -> dict[str, Any]:
    return {"launch": recorded("softmax_candidate", **changed).launch}


def test_the_floor_is_reached_as_far_as_good_kernels_reach_it() -> None:
    model = to_the_floor("alu")
    assert (left(model, BYTES), left(model, FLOPS)) == (0.5, 0.6)
    assert left(model, Floor(95.0, 95.0, "100 MB", "memory")) == 1.0
    assert (left(model, None), left(model, Floor(2.0, 50.0, "nothing", "launch"))) == (None, None)


def test_what_an_edit_does_not_change_takes_as_long_as_before() -> None:
    busy = profile(pipes=(Pipe(name="lsu", pct=80.0), Pipe(name="alu", pct=68.0)))
    assert left(to_the_floor("alu"), BYTES, busy) == 0.8
    assert left(to_the_floor("xu"), BYTES, busy) == 0.5


def test_an_edit_that_multiplies_the_work_moves_the_floor_with_it() -> None:
    assert left(to_the_floor(times=3), Floor(10.0, 10.0, "1 TFLOP", "compute")) == 0.4
    assert left(to_the_floor(times=3), FLOPS) == 1.0


def test_a_longer_pipeline_promises_something_where_one_block_has_an_sm_only() -> None:
    model = by_one_block(to_the_floor())
    assert left(model, BYTES, **launched(blocks_per_sm=1)) == 0.5
    assert left(model, BYTES, **launched(blocks_per_sm=2)) is None


def test_what_converts_and_what_multiplies_take_turns() -> None:
    model = in_turns("xu", "alu")
    pipes = (Pipe(name="xu", pct=34.0), Pipe(name="alu", pct=17.0), Pipe(name="tensor", pct=42.5))
    assert left(model, FLOPS, profile(pipes=pipes)) == 0.9
    assert left(model, FLOPS, profile(pipes=pipes[:2])) == 0.6
    assert left(model, FLOPS, profile(pipes=(Pipe(name="xu", pct=1.0), Pipe(name="tensor", pct=2.0)))) == 0.6


def test_spilled_bytes_go_and_device_memory_gets_no_faster() -> None:
    roof = Cause(id="dram_bound", text="", suggestion="", evidence={"achieved_share_pct": 60.0})
    assert left(without_spills(), BYTES, causes=(roof,)) == 0.75
    assert left(without_spills(), BYTES) is None
    # A product gets its registers back.
    assert left(without_spills(), FLOPS, causes=(roof,)) == 0.6


def test_an_unrolled_loop_costs_its_fetches_unless_it_spills() -> None:
    model = or_spills(without_stall("no_instruction"))
    fetched = profile(stalls=(Stall(reason="no_instruction", pct=20.0, cycles=None, meaning=""),))
    assert left(model, BYTES, fetched, **launched(spill_bytes=0)) == 0.8
    assert left(model, BYTES, fetched, **launched(spill_bytes=64)) == 0.5


def test_a_line_saves_no_more_than_warps_spend_on_it_and_waiting_for_it() -> None:
    model, floor = less_on_line(0.5), Floor(10.0, 10.0, "", "memory")
    here, waits = hotspot(7, 40.0), hotspot(9, 20.0).model_copy(update={"waits_for_line": 7})
    full, half = profile(issue_slot_pct=85.0), profile(issue_slot_pct=42.5)
    assert left(model, floor, full, hotspots=(here,)) == 0.8
    assert left(model, floor, full, hotspots=(here, waits)) == 0.75  # half of the other line's samples wait for it
    assert left(model, floor, half, hotspots=(here,)) == 0.9
    assert left(model, Floor(81.0, 81.0, "", "memory"), full, hotspots=(here,)) == 0.9
    assert left(model, floor, full) is None


def test_a_stall_goes_and_others_stay() -> None:
    waiting = profile(stalls=(Stall(reason="membar", pct=40.0, cycles=None, meaning=""),))
    assert left(without_stall("membar"), None, waiting) == 0.6
    assert left(without_stall("barrier"), None, waiting) is None


def test_instructions_count_as_far_as_the_sm_is_busy() -> None:
    model = fewer_instructions(0.5)
    assert left(model, Floor(10.0, 10.0, "", "memory"), profile(issue_slot_pct=85.0)) == 0.5
    assert left(model, Floor(10.0, 10.0, "", "memory"), profile(issue_slot_pct=42.5)) == 0.75
    assert left(model, Floor(63.0, 63.0, "", "memory"), profile(issue_slot_pct=85.0)) == 0.7
    assert left(model, BYTES, profile()) is None


def test_causes_of_one_roof_share_what_they_cost() -> None:
    facts = replace(FACTS, profile=profile(), floor=BYTES)
    (alone,) = diagnose(facts, [rule("V1", 1)]).findings
    assert (alone.gain.expected_pct, alone.gain.at_most_pct) == (50.0, 55.0)
    both = diagnose(facts, [rule("V1", 1), rule("V9", 2)]).findings
    assert [finding.gain.expected_pct for finding in both] == [29.3, 29.3]
    assert "2 causes share that" in both[0].gain.why


def test_what_is_expected_orders_findings() -> None:
    waiting = profile(stalls=(Stall(reason="membar", pct=5.0, cycles=None, meaning=""),))
    told = diagnose(
        replace(FACTS, profile=waiting, floor=BYTES), [rule("A1", 1, weight=90), rule("V1", 2, weight=60)]
    ).findings
    assert [(finding.id, finding.gain.expected_pct) for finding in told] == [("V1", 50.0), ("A1", 5.0)]


def test_models_and_measurements_are_of_rules_that_there_are() -> None:
    ids = {each.id for each in RULES}
    assert MODELS.keys() <= ids
    assert {one.id for one in MEASURED} <= ids
    assert NOTES.keys() <= {one.name for one in MEASURED}
    assert {name for _, name in WAITING} <= set(names())


def test_every_planted_kernel_was_measured_or_waits() -> None:
    assert set(names()) <= {one.name for one in MEASURED} | {name for _, name in WAITING}


@pytest.mark.parametrize("one", MEASURED, ids=lambda one: one.name)
def test_measurements_are_consistent(one: Measured) -> None:
    # Ratios come from interleaved pairs, times from medians.
    assert one.saved_pct == pytest.approx(100 * (1 - one.fixed_us / one.slow_us), abs=3.0)
