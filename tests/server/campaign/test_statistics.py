"""Shares and geometric means with their intervals, groups by length, buckets."""

import itertools
import math
import random

import pytest

from tests.server.campaign.made_up_records import made
from tritonforge.server.campaign.statistics import (
    BUCKETS,
    bucket_of,
    by_length,
    center,
    geometric_mean,
    paired,
    share,
)


def ends(ratios: list[float]) -> tuple[float, float]:
    found = geometric_mean(ratios)
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    return found.low, found.high


def ratio_of_ends(ratios: list[float]) -> float:
    low, high = ends(ratios)
    return high / low


def test_wilsons_interval_is_that_of_his_formula() -> None:
    # By hand: p = 0.4, z = 1.959964, n = 10: center 0.4 + 0.19207 = 0.59207, over 1.38415; reach 0.36056 over the same.
    found = share(4, 10)
    assert found is not None
    assert found.pct == 40
    assert found.low_pct == pytest.approx(16.818, abs=0.001)
    assert found.high_pct == pytest.approx(68.733, abs=0.001)


def test_none_and_all_of_some_have_intervals_that_end_there() -> None:
    none, every = share(0, 10), share(10, 10)
    assert none is not None
    assert every is not None
    assert (none.low_pct, every.high_pct) == (0, 100)
    assert none.high_pct == pytest.approx(27.753, abs=0.001)
    assert every.low_pct == pytest.approx(100 - none.high_pct)
    assert share(0, 0) is None


def test_a_geometric_mean_is_that_of_the_logarithms() -> None:
    found = geometric_mean([1.0, 2.0, 4.0] * 2)
    assert found is not None
    assert found.value == pytest.approx(2)
    assert found.n == 6
    low, high = ends([1.0, 2.0, 4.0] * 2)
    assert 1 <= low < 2 < high <= 4


def test_an_interval_needs_six_and_a_mean_needs_one() -> None:
    assert geometric_mean([]) is None
    assert center([]) is None
    for few in ([3.0], [1.0, 9.0], [3.0] * 5):
        found = geometric_mean(few)
        assert found is not None
        assert found.value == pytest.approx(3)
        assert (found.low, found.high) == (None, None)


def test_the_same_ratios_give_the_same_interval_and_more_of_them_a_narrower_one() -> None:
    few = [1.0, 1.1, 1.3, 2.0, 1.0, 1.6]
    assert geometric_mean(few) == geometric_mean(few)
    assert ratio_of_ends(few * 10) < ratio_of_ends(few)


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    draws, covered = random.Random(1), 0
    for _ in range(60):
        low, high = ends([math.exp(draws.gauss(0.3, 0.4)) for _ in range(20)])
        covered += low <= math.exp(0.3) <= high
    assert 52 <= covered <= 60


def test_paired_ratios_are_taken_kernel_by_kernel() -> None:
    # Twice as much for each, however different the kernels are: no spread is left.
    found = paired([2.0, 8.0, 3.0] * 2, [1.0, 4.0, 1.5] * 2)
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    assert (found.low, found.value, found.high) == pytest.approx((2, 2, 2))
    with pytest.raises(ValueError, match="longer"):
        paired([1.0], [1.0, 2.0])


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([7], [[7], [], [], []]),
        ([1, 2, 3, 4], [[1], [2], [3], [4]]),
        ([8, 7, 6, 5, 4, 3, 2, 1], [[2, 1], [4, 3], [6, 5], [8, 7]]),
        # The tie at the first quartile goes down as a whole, and leaves less for the second group.
        ([1, 2, 2, 2, 3, 4, 5, 6], [[1, 2, 2, 2], [], [3, 4], [5, 6]]),
        ([5, 5, 5, 5, 5], [[5, 5, 5, 5, 5], [], [], []]),
        ([1, 9, 9, 9], [[1], [9, 9, 9], [], []]),
    ],
)
def test_groups_end_at_quartiles_and_ties_stay_together(lines: list[int], expected: list[list[int]]) -> None:
    groups = by_length([made(f"k{place}", "no_gain", lines=each) for place, each in enumerate(lines)])
    assert [[record.lines for record in group] for group in groups] == expected


def test_nothing_is_in_groups_of_nothing() -> None:
    assert by_length([]) == [[], [], [], []]


def test_groups_hold_each_kernel_once_in_order_of_length() -> None:
    draws = random.Random(2)
    for _ in range(50):
        most = draws.choice([3, 20, 500])
        records = [made(f"k{place}", "no_gain", lines=draws.randint(1, most)) for place in range(draws.randint(1, 60))]
        groups = by_length(records)
        assert sorted(record.name for group in groups for record in group) == sorted(each.name for each in records)
        spans = [(min(each), max(each)) for group in groups if (each := [record.lines for record in group])]
        assert all(before[1] < after[0] for before, after in itertools.pairwise(spans))
        # Each group reaches its quartile.
        through = 0
        for k, group in enumerate(groups, 1):
            through += len(group)
            assert 4 * through >= k * len(records)


@pytest.mark.parametrize(
    ("ratio", "low", "high"),
    [
        (0.5, None, 1.0),
        (1.0, 1.0, 1.02),
        (1.0199, 1.0, 1.02),
        (1.02, 1.02, 1.05),
        (1.05, 1.05, 1.1),
        (4.99, 2.0, 5.0),
        (5.0, 5.0, None),
        (900.0, 5.0, None),
    ],
)
def test_a_bucket_holds_its_lower_edge(ratio: float, low: float | None, high: float | None) -> None:
    assert bucket_of(ratio) == (low, high)


def test_each_ratio_is_in_one_bucket() -> None:
    draws = random.Random(3)
    for _ in range(500):
        ratio = math.exp(draws.uniform(-3, 3))
        assert sum(bucket.holds(ratio) for bucket in BUCKETS) == 1
