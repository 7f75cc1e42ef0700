"""What an edit is expected to save."""

from dataclasses import replace

import pytest

from tritonforge.profiling.diagnosis.engine import diagnose
from tritonforge.profiling.diagnosis.floor import Floor
from tritonforge.profiling.diagnosis.gains import MODELS, Model, fewer_instructions, to_the_floor, without_stall
from tritonforge.profiling.diagnosis.measured import MEASURED, Measured
from tritonforge.profiling.diagnosis.rules import RULES
from tritonforge.profiling.ncu.model import LaunchProfile, Pipe, Stall

from .made_up import profile, recorded, rule

FACTS = recorded("softmax_candidate")
BYTES = Floor(45.0, 45.0, "100 MB", "memory")
FLOPS = Floor(45.0, 45.0, "1 TFLOP", "compute")


def left(model: Model, floor: Floor | None, seen: LaunchProfile | None = None) -> float | None:
    found = model.left(replace(FACTS, profile=seen or profile(), floor=floor))
    return None if found is None else round(found.share, 3)


def test_the_floor_is_reached_as_far_as_good_kernels_reach_it() -> None:
    model = to_the_floor("alu")
    assert (left(model, BYTES), left(model, FLOPS)) == (0.5, 0.6)
    assert left(model, Floor(95.0, 95.0, "100 MB", "memory")) == 1.0
    assert (left(model, None), left(model, Floor(2.0, 50.0, "nothing", "launch"))) == (None, None)


def test_what_an_edit_does_not_change_takes_as_long_as_before() -> None:
    busy = profile(pipes=(Pipe(name="lsu", pct=80.0), Pipe(name="alu", pct=68.0)))
    assert left(to_the_floor("alu"), BYTES, busy) == 0.8
    assert left(to_the_floor("xu"), BYTES, busy) == 0.5


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


@pytest.mark.parametrize("one", MEASURED, ids=lambda one: one.name)
def test_measurements_are_consistent(one: Measured) -> None:
    # Ratios come from interleaved pairs, times from medians.
    assert one.saved_pct == pytest.approx(100 * (1 - one.fixed_us / one.slow_us), abs=3.0)
