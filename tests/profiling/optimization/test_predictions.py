"""What a finding promised is held against what was measured of an attempt that followed it, and of no other."""

from typing import Any

import pytest

from tritonforge.profiling.ncu.model import LaunchProfile
from tritonforge.profiling.optimization.model import Attempt, CaseTiming, Evidence, Hint, Prediction
from tritonforge.profiling.optimization.predictions import prediction

from .made_up import attempt, baseline, case_timing, diagnosed, evidence, failed, finding, launch, timing

NARROW = finding("V1", "narrow loads", recipe="give each thread four elements in a row")
SPILLS = finding("R1", "registers spill", recipe="halve the tile", expected_pct=10.0, at_most_pct=12.0)
DIAGNOSED = baseline(diagnosed=diagnosed(NARROW, SPILLS))


def foretold(strategy: str, its: Evidence, parent: Attempt = DIAGNOSED, *others: Attempt) -> Prediction | None:
    one = attempt(9, its, parent.number, strategy=strategy)
    return prediction(one, [parent, *others, one])


def beside(*cases: CaseTiming) -> Evidence:
    return evidence(1.0, timings=[timing(1.0, cases=cases)])


@pytest.mark.parametrize(
    ("strategy", "followed"),
    [
        ("V1: four elements a thread", "V1"),
        ("against R1, a smaller tile", "R1"),
        ("no narrow loads any more", "V1"),
        ("give each thread 8 elements in a row", "V1"),
        ("halve the registers' tile: they spill", "R1"),
        ("a persistent grid with fewer programs", "V1"),  # as a hint has it
        ("V1 and R1 at once", None),
        ("narrow loads, and registers that spill", None),
        ("T4: tf32", None),
        ("another algorithm", None),
    ],
)
def test_a_candidate_follows_the_one_finding_that_its_strategy_names(strategy: str, followed: str | None) -> None:
    hint = Hint(text="Make the grid persistent, with fewer programs", because=[], finding="V1")
    found = foretold(strategy, evidence(1.25), DIAGNOSED.model_copy(update={"hints": [hint]}))
    assert (None if found is None else found.finding) == followed


@pytest.mark.parametrize(
    ("ratio", "came"),
    [
        (1 / 0.8, "as_expected"),  # saves 20 %
        (1 / 0.89, "as_expected"),  # 11 %: more than half of what was expected
        (1 / 0.92, "less"),  # 8 %
        (0.9, "less"),
        (1 / 0.55, "more"),  # 45 %: at most 40 were to be had
    ],
)
def test_what_was_seen_is_held_against_what_was_promised(ratio: float, came: str) -> None:
    found = foretold("V1", evidence(ratio))
    assert found is not None
    assert (found.kernel, found.parent, found.case) == ("kernel", 0, "a")
    assert (found.expected_pct, found.at_most_pct, found.came) == (20.0, 40.0, came)
    assert found.seen_pct == pytest.approx(100 * (1 - 1 / ratio), abs=0.01)
    assert found.seen_low_pct < found.seen_pct < found.seen_high_pct


def test_within_the_noise_no_promise_is_broken() -> None:
    wide = beside(case_timing("a", 1.05, width=0.1))
    found = foretold("V1", wide)
    assert found is not None
    assert found.came == "as_expected"


def test_the_diagnosed_case_counts_and_no_other_nor_a_hidden_one() -> None:
    found = foretold("V1", beside(case_timing("a", 1.25), case_timing("b", 0.5)))
    assert found is not None
    assert found.seen_pct == pytest.approx(20.0)
    assert foretold("V1", beside(case_timing("b", 1.25), case_timing("a", 1.25, hidden=True))) is None


def test_a_parent_that_it_was_not_measured_beside_is_compared_by_the_baseline() -> None:
    parent = attempt(1, evidence(1.5, diagnosed=diagnosed(NARROW)))
    found = foretold("V1", evidence(1.875), parent, DIAGNOSED)
    assert found is not None
    assert (found.parent, found.came) == (1, "as_expected")
    assert found.seen_pct == pytest.approx(20.0)
    direct = evidence(1.0, timings=[timing(9.0), timing(1.25, 1)])
    beside_it = foretold("V1", direct, parent, DIAGNOSED)
    assert beside_it is not None
    assert beside_it.seen_pct == pytest.approx(20.0)


def profiled(kernel: str, us: float | None) -> dict[str, Any]:
    fields: dict[str, Any] = dict.fromkeys(LaunchProfile.model_fields)
    known: dict[str, Any] = {"kernel": kernel, "duration_us": us, "pipes": (), "occupancy_limits": {}}
    known |= {"stalls": (), "absent": {}}
    return {**fields, **known}


def test_a_promise_counts_by_its_kernels_share_of_the_time() -> None:
    launches = [launch(), launch(kernel="other", code_hash="1" * 16)]
    both = [profiled("kernel", 25.0), profiled("other", 75.0)]
    found = foretold("V1", evidence(1.25), baseline(launches=launches, diagnosed=diagnosed(NARROW, profiles=both)))
    assert found is not None
    assert (found.expected_pct, found.at_most_pct, found.came) == (5.0, 10.0, "more")
    for unknown in ([], [profiled("kernel", 25.0), profiled("other", None)], [profiled("other", 75.0)]):
        parent = baseline(launches=launches, diagnosed=diagnosed(NARROW, profiles=unknown))
        assert foretold("V1", evidence(1.25), parent) is None


@pytest.mark.parametrize(
    ("its", "parent"),
    [
        (failed(), DIAGNOSED),
        (evidence(), DIAGNOSED),  # not timed
        (evidence(1.25), baseline()),  # not diagnosed
        (evidence(1.25), baseline(diagnosed=diagnosed(finding("V1", expected_pct=None, at_most_pct=None)))),
        (evidence(1.25), attempt(1, None)),
    ],
    ids=["failed", "not timed", "not diagnosed", "nothing promised", "no evidence"],
)
def test_without_a_promise_or_a_measurement_nothing_is_told(its: Evidence, parent: Attempt) -> None:
    assert foretold("V1", its, parent) is None


def test_where_only_a_bound_is_known_no_gain_was_promised() -> None:
    parent = baseline(diagnosed=diagnosed(finding("V1", expected_pct=None)))
    slower, faster = (foretold("V1", evidence(ratio), parent) for ratio in (0.9, 2.0))
    assert slower is not None
    assert faster is not None
    assert (slower.came, faster.came) == ("as_expected", "more")
