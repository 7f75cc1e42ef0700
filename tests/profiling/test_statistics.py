"""Robust summaries and bootstrap intervals."""

import math
import random
import statistics
from collections.abc import Sequence

import pytest

from tritonforge.profiling.statistics import (
    bootstrap_interval,
    median,
    median_absolute_deviation,
    spread,
    stratified_interval,
)


def median_of_blocks(blocks: Sequence[Sequence[float]]) -> float:
    return median([median(block) for block in blocks])


def mean_of_blocks(blocks: Sequence[Sequence[float]]) -> float:
    return statistics.fmean(block[0] for block in blocks)


def normal_blocks(seed: int, *, blocks: int, center: float = 100.0, sigma: float = 1.0) -> list[list[float]]:
    generator = random.Random(seed)
    return [[generator.gauss(center, sigma)] for _ in range(blocks)]


def test_one_outlier_moves_neither_median_nor_deviation():
    calm, shaken = [9.0, 10.0, 10.0, 11.0, 12.0], [9.0, 10.0, 10.0, 11.0, 1e6]
    assert median(shaken) == median(calm) == 10
    assert median_absolute_deviation(shaken) == median_absolute_deviation(calm) == 1


@pytest.mark.parametrize("samples", [[], [1.0, math.nan], [math.inf]])
def test_samples_that_have_no_median_are_refused(samples: list[float]):
    for summary in (median, median_absolute_deviation, spread):
        with pytest.raises(ValueError, match=r"no samples|not a finite number"):
            summary(samples)


def test_a_spread_says_how_many_samples_and_how_its_interval_was_made():
    summary = spread([float(x) for x in range(20, 0, -1)])
    assert (summary.n, summary.median, summary.mad) == (20, 10.5, 5)
    # Binomial(20, 1/2): P(< 6) = 2.07 % and P(< 7) = 5.8 %, so the 6th smallest and the 6th largest.
    assert (summary.low, summary.high) == (6, 15)
    assert "95 %" in summary.method


def test_six_samples_are_the_fewest_with_an_interval_and_it_is_their_range():
    samples = [3.0, 1.0, 2.0, 6.0, 5.0, 4.0]
    assert (spread(samples).low, spread(samples).high) == (1, 6)
    assert "order statistics" in spread(samples).method
    assert "too few" in spread(samples[:5]).method
    assert (spread([7.0]).low, spread([7.0]).high) == (7, 7)


def test_the_interval_of_a_median_covers_it_as_often_as_it_says():
    hits = 0
    for seed in range(400):
        summary = spread([block[0] for block in normal_blocks(seed, blocks=15)])
        hits += summary.low <= 100 <= summary.high
    assert 0.93 <= hits / 400 <= 0.995


def test_the_same_seed_gives_the_same_interval_and_another_seed_another():
    blocks = normal_blocks(1, blocks=12)
    first = bootstrap_interval(blocks, mean_of_blocks, seed=7)
    assert bootstrap_interval(blocks, mean_of_blocks, seed=7) == first
    assert bootstrap_interval(blocks, mean_of_blocks, seed=8) != first


@pytest.mark.parametrize(("count", "student"), [(6, 2.571), (12, 2.201), (40, 2.023)])
def test_the_bootstrap_of_a_mean_is_as_wide_as_students_interval(count: int, student: float):
    ratios: list[float] = []
    for seed in range(20):
        blocks = normal_blocks(seed, blocks=count)
        low, high = bootstrap_interval(blocks, mean_of_blocks, seed=seed)
        error = statistics.stdev(block[0] for block in blocks) / math.sqrt(count)
        ratios.append((high - low) / (2 * student * error))
    assert statistics.fmean(ratios) == pytest.approx(1, abs=0.06)


def test_percentiles_between_two_estimates_are_interpolated():
    estimates = iter([1.0, 0.0])
    low, high = bootstrap_interval([[1.0]], lambda _: next(estimates), resamples=2, seed=1)
    assert (low, high) == pytest.approx((0.025, 0.975))


@pytest.mark.parametrize("count", [6, 12, 25])
def test_the_bootstrap_covers_the_true_value_in_about_95_percent_of_trials(count: int):
    hits = 0
    for seed in range(200):
        blocks = normal_blocks(seed, blocks=count)
        low, high = bootstrap_interval(blocks, lambda drawn: median([b[0] for b in drawn]), resamples=400, seed=seed)
        hits += low <= 100 <= high
    assert 0.92 <= hits / 200 <= 0.995


def test_whole_blocks_are_drawn_so_that_shared_noise_is_not_averaged_away():
    generator = random.Random(3)
    shifts = [generator.gauss(0, 5) for _ in range(12)]
    blocks = [[100 + shift + generator.gauss(0, 0.1) for _ in range(50)] for shift in shifts]
    whole = bootstrap_interval(blocks, median_of_blocks, resamples=500, seed=1)
    single = bootstrap_interval([[x] for block in blocks for x in block], median_of_blocks, resamples=200, seed=1)
    assert whole.high - whole.low > 2 * (single.high - single.low)


def test_blocks_arrive_whole_at_the_statistic():
    blocks = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    seen: list[Sequence[float]] = []

    def record(drawn: Sequence[Sequence[float]]) -> float:
        assert len(drawn) == len(blocks)
        seen.extend(drawn)
        return 0.0

    bootstrap_interval(blocks, record, resamples=50, seed=1)
    assert {tuple(block) for block in seen} == {(1, 2), (3, 4), (5, 6)}


def test_more_confidence_gives_a_wider_interval():
    blocks = normal_blocks(5, blocks=12)
    narrow = bootstrap_interval(blocks, median_of_blocks, confidence=0.5, seed=1)
    wide = bootstrap_interval(blocks, median_of_blocks, confidence=0.95, seed=1)
    assert wide.low < narrow.low < narrow.high < wide.high


def test_identical_blocks_and_a_single_block_give_a_point():
    assert bootstrap_interval([[4.0]] * 8, median_of_blocks, seed=1) == (4, 4)
    assert bootstrap_interval([[4.0]], median_of_blocks, seed=1) == (4, 4)


def test_strata_are_resampled_within_themselves():
    def difference(strata: Sequence[Sequence[Sequence[float]]]) -> float:
        low, high = strata
        assert all(block[0] < 50 for block in low)
        assert all(block[0] > 50 for block in high)
        return median_of_blocks(high) - median_of_blocks(low)

    strata = [normal_blocks(1, blocks=6, center=10), normal_blocks(2, blocks=9, center=90)]
    low, high = stratified_interval(strata, difference, resamples=300, seed=1)
    assert 77 < low < 80 < high < 83


@pytest.mark.parametrize("blocks", [[], [[]], [[1.0], []]])
def test_nothing_to_resample_is_refused(blocks: list[list[float]]):
    with pytest.raises(ValueError, match="nothing to resample"):
        bootstrap_interval(blocks, median_of_blocks, seed=1)


@pytest.mark.parametrize(("resamples", "confidence"), [(0, 0.95), (10, 0.0), (10, 1.0)])
def test_impossible_settings_are_refused(resamples: int, confidence: float):
    with pytest.raises(ValueError, match="resamples must be"):
        bootstrap_interval([[1.0]], median_of_blocks, resamples=resamples, confidence=confidence, seed=1)
