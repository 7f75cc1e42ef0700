"""What changed between two profiles. They are recordings from an H200, see `recorded`, some with made-up changes."""

from typing import Any

import pytest

from tests.profiling.ncu.recorded import recorded, without
from tritonforge.profiling.ncu import delta, metrics
from tritonforge.profiling.ncu.delta import Change, compare, compare_reports
from tritonforge.profiling.ncu.model import LaunchProfile, Stall
from tritonforge.profiling.ncu.report import summarize

MATMUL = summarize(recorded("matmul_sections"))
SOFTMAX = summarize(recorded("softmax_sections"))
SAMPLED = summarize(
    without(recorded("softmax_sections"), *(metrics.stall_metric(reason) for reason in metrics.STALL_REASONS))
)


def but(profile: LaunchProfile, **fields: Any) -> LaunchProfile:
    return profile.model_copy(update=fields)


def scaled(profile: LaunchProfile, field: str, factor: float) -> LaunchProfile:
    return but(profile, **{field: getattr(profile, field) * factor})


def stall(reason: str, pct: float, cycles: float | None) -> Stall:
    return Stall(reason=reason, pct=pct, cycles=cycles, meaning="")


def test_a_profile_does_not_differ_from_itself():
    assert compare(MATMUL, MATMUL) == []


def test_two_profiles_of_the_same_code_differ_in_no_cause():
    again = summarize(recorded("softmax_sampled"))
    changes = {change.field: change.relative for change in compare(SOFTMAX, again)}
    assert set(changes) <= {"l2_hit_pct", "eligible_warps", "cycles", "duration_us", "sm_clock_hz"}
    assert all(abs(relative or 0) < 0.05 for relative in changes.values())


def test_the_duration_comes_first_however_much_else_changed():
    after = but(scaled(SOFTMAX, "duration_us", 0.95), dram_bytes=(SOFTMAX.dram_bytes or 0) * 9, local_requests=1e9)
    first, second, third = compare(SOFTMAX, after)
    assert (first.field, first.good) == ("duration_us", True)
    assert first.relative == pytest.approx(-0.05)
    assert {second.field, third.field} == {"dram_bytes", "local_requests"}


@pytest.mark.parametrize(
    ("field", "factor", "good"),
    [
        ("duration_us", 2, False),
        ("dram_bytes", 0.5, True),
        ("dram_bytes", 2, False),
        ("l2_hit_pct", 0.5, False),
        ("load_bytes_per_sector", 0.5, False),
        ("sm_imbalance", 1.5, False),
        ("registers", 2, None),
        ("achieved_occupancy_pct", 0.5, None),
        ("compute_pct", 0.5, None),
    ],
)
def test_a_change_is_good_or_bad_or_neither(field: str, factor: float, good: bool | None):
    (change,) = compare(SOFTMAX, scaled(SOFTMAX, field, factor))
    assert (change.field, change.good) == (field, good)
    assert change.relative == pytest.approx(factor - 1)


def test_costs_rank_before_states_that_moved_as_much_and_more_before_less():
    after = scaled(scaled(scaled(SOFTMAX, "registers", 2), "dram_bytes", 2), "waves_per_sm", 1.5)
    assert [change.field for change in compare(SOFTMAX, after)] == ["dram_bytes", "registers", "waves_per_sm"]


def test_what_repeats_as_badly_is_no_change():
    assert compare(SOFTMAX, scaled(SOFTMAX, "dram_bytes", 1.019)) == []
    assert len(compare(SOFTMAX, scaled(SOFTMAX, "dram_bytes", 1.021))) == 1


def test_a_share_that_doubles_from_next_to_nothing_is_no_change():
    small = but(SOFTMAX, bank_conflict_pct=0.02)
    assert compare(small, but(small, bank_conflict_pct=0.9)) == []
    (change,) = compare(small, but(small, bank_conflict_pct=30.0))
    assert (change.field, change.good) == ("bank_conflict_pct", False)


def test_growth_from_zero_has_no_relative_size():
    assert SOFTMAX.local_requests == 0
    (change,) = compare(SOFTMAX, but(SOFTMAX, local_requests=4096.0))
    assert change == Change(field="local_requests", before=0, after=4096, relative=None, good=False)


def test_what_one_of_them_lacks_is_left_out():
    assert compare(SOFTMAX, but(SOFTMAX, dram_bytes=None, mma=None, l2_hit_pct=None)) == []


def test_words_that_changed_are_told():
    after = but(MATMUL, grid=(256, 2, 1), occupancy_limiter="registers")
    found = {change.field: (change.before, change.after, change.good) for change in compare(MATMUL, after)}
    assert found == {
        "grid": ("512 x 1 x 1", "256 x 2 x 1", None),
        "occupancy_limiter": ("registers and shared_mem", "registers", None),
    }


def test_counted_stalls_are_compared_by_reason_in_cycles_an_instruction():
    before = but(SOFTMAX, stalls=(stall("barrier", 40, 8.0), stall("wait", 5, 1.0), stall("not_selected", 10, 2.0)))
    after = but(SOFTMAX, stalls=(stall("barrier", 20, 2.0), stall("wait", 10, 1.1), stall("not_selected", 40, 4.0)))
    barrier, selected = compare(before, after)
    assert barrier == Change(field="stalls.barrier_cycles", before=8, after=2, relative=-0.75, good=True)
    assert (selected.field, selected.good) == ("stalls.not_selected_cycles", None)


def test_sampled_stalls_are_compared_in_percentage_points_and_never_with_counted_ones():
    assert SAMPLED.stalls_from == "sampled"
    before = but(SAMPLED, stalls=(stall("barrier", 40, None),))
    (gone, new) = compare(before, but(SAMPLED, stalls=(stall("wait", 10, None),)))
    assert gone == Change(field="stalls.barrier_pct", before=40, after=None, relative=None, good=True)
    assert new == Change(field="stalls.wait_pct", before=None, after=10, relative=None, good=False)
    assert compare(SOFTMAX, SAMPLED) == []


def test_no_more_changes_are_told_than_a_reader_takes_in():
    assert len(compare(MATMUL, SOFTMAX)) == delta.CHANGES_LIMIT


def test_every_field_that_is_compared_is_one_of_a_profile_and_every_number_of_it_is_compared():
    compared = {*delta.FIELDS, *delta.WORDS}
    assert compared <= set(LaunchProfile.model_fields)
    left = set(LaunchProfile.model_fields) - compared
    assert left == {"kernel", "pipes", "stalls", "stalls_from", "occupancy_limits", "absent"}


def test_launches_are_matched_by_kernel_and_then_by_order():
    slow, fast = scaled(SOFTMAX, "duration_us", 2), scaled(MATMUL, "duration_us", 0.5)
    gone, new = but(MATMUL, kernel="gone"), but(MATMUL, kernel="new")
    found = compare_reports([SOFTMAX, MATMUL, SOFTMAX, gone, SOFTMAX], [new, fast, SOFTMAX, slow])
    assert [(launch.kernel, launch.before, launch.after) for launch in found.launches] == [
        ("softmax_kernel", 0, 2),
        ("matmul_kernel", 1, 1),
        ("softmax_kernel", 2, 3),
    ]
    assert [[(change.field, change.good) for change in launch.changes] for launch in found.launches] == [
        [],
        [("duration_us", True)],
        [("duration_us", False)],
    ]
    assert (found.only_before, found.only_after) == (["gone", "softmax_kernel"], ["new"])
