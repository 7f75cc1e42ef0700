"""What follows from the times of variants, and what doesn't."""

from typing import Any

import pytest

from tritonforge.profiling.comparison import PairBlock, compare
from tritonforge.profiling.diagnosis.placed import Effect, PlacedProbe, placed, told, unplaced
from tritonforge.profiling.diagnosis.probes import ProbeName, ProbeVariant, Unmade

VARIANT = ProbeVariant("idle_loads", "text", "loads", "nothing", (3, 4), ("integers",))


def blocks(original_us: float, us: float, count: int = 15) -> list[PairBlock]:
    """Blocks whose times scatter by 0.1 %."""
    return [
        PairBlock(baseline_us=[original_us * (1 + 0.001 * (n % 2))], candidate_us=[us * (1 + 0.001 * (n % 3))])
        for n in range(count)
    ]


def probe(name: ProbeName, left_pct: float, effect: Effect = "saves", width_pct: float = 1.0) -> PlacedProbe:
    fields: dict[str, Any] = {"left_low_pct": left_pct - width_pct, "left_high_pct": left_pct + width_pct}
    return PlacedProbe(name=name, left_pct=left_pct, effect=effect, device_us=1.0, visible_pct=0.5, **fields)


@pytest.mark.parametrize(("us", "effect"), [(41.0, "saves"), (130.0, "adds"), (100.05, "same")])
def test_what_is_left_is_the_variants_time_over_the_originals(us: float, effect: Effect) -> None:
    found = placed(VARIANT, compare([blocks(100.0, us)]), us)
    assert found.effect == effect
    assert found.left_pct == pytest.approx(us, rel=0.002)
    assert (found.left_low_pct or 0) <= (found.left_pct or 0) <= (found.left_high_pct or 0)
    assert (found.lines, found.stays, found.device_us, found.not_measured) == ([3, 4], ["integers"], us, None)


def test_too_few_blocks_tell_nothing() -> None:
    found = placed(VARIANT, compare([blocks(100.0, 99.0, count=4)]), 99.0)
    assert found.effect == "unclear"
    (said, all_of_it) = told([found])
    assert "no difference that could be told" in said
    assert all_of_it.startswith("No kind of work alone is shown to cost time")


def test_what_has_no_time_is_told_by_its_reason_alone() -> None:
    assert unplaced(Unmade("no_math", "no math")).not_measured == "no math"
    failed = unplaced(VARIANT, "launch: it crashed")
    assert (failed.lines, failed.not_measured, failed.effect) == ([3, 4], "launch: it crashed", None)
    assert told([failed]) == []


def test_a_saving_comes_with_its_interval() -> None:
    said = told([probe("idle_loads", 41.0, width_pct=2.0)])
    assert said[0] == (
        "idle_loads: without what loads fetch 41.0 % of the time is left [39.0, 43.0]: fetching from memory, and what "
        "waits for it, takes 59.0 % [57.0, 61.0] that nothing else hides."
    )


def test_the_largest_saving_comes_first_whatever_the_order() -> None:
    found = [probe("no_stores", 90.0), probe("no_math", 60.0), probe("idle_loads", 80.0), probe("neither", 30.0)]
    assert "Of these, no_math saves most: cheaper math first." in told(found)
    assert "Of these, no_math saves most: cheaper math first." in told(found[::-1])


def test_a_slower_variant_tells_nothing() -> None:
    said = told([probe("no_math", 120.0, "adds"), probe("idle_loads", 60.0), probe("neither", 30.0)])
    assert "tells nothing of what was removed" in said[0]
    assert not any("overlap" in each for each in said)


@pytest.mark.parametrize(
    ("loads_pct", "math_pct", "rest_pct", "words"),
    [
        (80.0, 60.0, 20.0, "overlap for 20.0 % of the time [18.3, 21.7]"),
        (70.0, 50.0, 20.0, "are not shown to overlap (0.0 % of the time [-1.7, 1.7])"),
        (50.0, 50.0, 20.0, "take 20.0 % of the time [18.3, 21.7] more together than one after the other"),
    ],
)
def test_overlap_is_what_loads_and_math_take_apart_beyond_the_whole(
    loads_pct: float, math_pct: float, rest_pct: float, words: str
) -> None:
    found = [probe("no_math", loads_pct), probe("idle_loads", math_pct), probe("neither", rest_pct)]
    assert words in told(found)[-1]


def test_overlap_needs_what_is_left_without_both() -> None:
    assert not any("overlap" in each for each in told([probe("no_math", 80.0), probe("idle_loads", 60.0)]))


def test_neither_limits_where_most_is_left_without_both() -> None:
    said = told([probe("neither", 95.0)])
    assert said[-1].startswith("With neither loads nor math at least 94 % of the time is left: neither limits")
    assert not any("neither limits" in each for each in told([probe("neither", 90.0)]))


def test_half_of_the_iterations_bound_what_the_loops_take_from_below() -> None:
    assert "so these loops take at least 94 %" in told([probe("half_trips", 52.0)])[0]
    assert "so these loops take at least 100 %" in told([probe("half_trips", 40.0)])[0]
    assert "each loop has one iteration, or" in told([probe("half_trips", 100.0, "same")])[0]


@pytest.mark.parametrize(("clock", "is_told"), [(1.1, True), (0.9, True), (1.01, False), (None, False)])
def test_another_clock_is_a_part_of_what_is_saved(clock: float | None, is_told: bool) -> None:
    (said, *_) = told([placed(VARIANT, compare([blocks(100.0, 41.0)]), 41.0, clock)])
    assert ("its SM clock was" in said) == is_told
