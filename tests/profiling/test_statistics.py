"""Robust summaries, Student's t and bootstrap intervals."""

import math
import random
import statistics
from collections.abc import Sequence

import pytest

from tritonforge.profiling.statistics import (
    Interval,
    Variance,
    between_groups,
    bootstrap_interval,
    interquartile_mean,
    interval_of_sum,
    median,
    median_absolute_deviation,
    spread,
    student_quantile,
    total_variance,
    trimmed_estimate,
    trimmed_mean,
)


def normal_samples(seed: int, count: int, center: float = 100.0) -> list[float]:
    generator = random.Random(seed)
    return [generator.gauss(center, 1) for _ in range(count)]


def test_one_outlier_moves_neither_median_nor_deviation():
    calm, shaken = [9.0, 10.0, 10.0, 11.0, 12.0], [9.0, 10.0, 10.0, 11.0, 1e6]
    assert median(shaken) == median(calm) == 10
    assert median_absolute_deviation(shaken) == median_absolute_deviation(calm) == 1


@pytest.mark.parametrize("samples", [[], [1.0, math.nan], [math.inf]])
def test_samples_that_have_no_median_are_refused(samples: list[float]):
    for summary in (median, median_absolute_deviation, spread, trimmed_mean, interquartile_mean, trimmed_estimate):
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
        summary = spread(normal_samples(seed, 15))
        hits += summary.low <= 100 <= summary.high
    assert 0.93 <= hits / 400 <= 0.995


def test_a_trimmed_mean_leaves_out_the_same_number_at_each_end():
    assert trimmed_mean([1e6, 1.0, 2.0, 3.0, -1e6], 0.2) == 2
    assert trimmed_mean([1.0, 2.0, 9.0]) == 4, "a tenth of three is none"
    assert trimmed_mean([*range(1, 11)]) == 5.5
    assert trimmed_mean([0.0, *[5.0] * 17, 9.0, 1e9]) == pytest.approx((5 * 16) / 16)


def test_the_interquartile_mean_is_that_of_the_middle_half():
    assert interquartile_mean([4.0, 1e6, 2.0, 0.0]) == 3
    assert interquartile_mean([7.0]) == 7
    assert interquartile_mean([1.0, 2.0, 6.0]) == 3


def test_the_variance_of_an_untrimmed_mean_is_the_usual_one():
    samples = normal_samples(1, 9)
    found = trimmed_estimate(samples)
    assert found.value == pytest.approx(statistics.fmean(samples))
    assert found.variance == pytest.approx((statistics.variance(samples) / 9, 8))


def test_the_variance_of_a_trimmed_mean_is_that_of_the_samples_pulled_in():
    samples = [0.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 99.0]
    found = trimmed_estimate(samples)
    # Eight are left; 0 counts as 3 and 99 as 10: their mean is 6.5 and their squared deviations sum to 66.5.
    assert found.value == 6.5
    assert found.variance == pytest.approx((66.5 / (8 * 7), 7))


@pytest.mark.parametrize("count", [12, 40])
def test_the_variance_of_a_trimmed_mean_is_how_much_it_varies(count: int):
    found = [trimmed_estimate(normal_samples(seed, count)) for seed in range(1500)]
    told = statistics.fmean(estimate.variance.value for estimate in found)
    assert told == pytest.approx(statistics.variance(estimate.value for estimate in found), rel=0.12)


def test_one_sample_has_no_variance():
    with pytest.raises(ValueError, match="no variance"):
        trimmed_estimate([1.0])
    with pytest.raises(ValueError, match="no variance"):
        between_groups([[1.0], [2.0, 3.0]], share=0.4)


@pytest.mark.parametrize(
    ("tail", "freedom", "expected"),
    # From scipy.stats.t.isf 1.17.1.
    [
        (0.025, 1, 12.706204736),
        (0.025, 2, 4.3026527297),
        (0.025, 5, 2.5705818356),
        (0.025, 40, 2.0210753903),
        (0.2, 7, 0.8960296443),
        (0.01 / 18, 1, 572.95721335),
        (0.01 / 18, 2, 29.974994211),
        (0.01 / 18, 3, 12.471456529),
        (0.01 / 18, 4, 8.3763311329),
        (0.01 / 18, 5, 6.7125930929),
        (0.01 / 18, 8, 4.9569729325),
        (0.01 / 18, 63, 3.4178130216),
        (1e-6, 5, 24.771029721),
        (1e-6, 64, 5.2290092286),
        (0.01 / 18, 1000, 3.2702754237),
    ],
)
def test_students_t_is_exact_far_out_and_with_few_degrees_of_freedom(tail: float, freedom: int, expected: float):
    assert student_quantile(tail, freedom) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("tail", "freedom"), [(0.0, 5), (0.5, 5), (0.1, 0)])
def test_what_students_t_has_no_value_for_is_refused(tail: float, freedom: int):
    with pytest.raises(ValueError, match="degree of freedom"):
        student_quantile(tail, freedom)


def test_errors_are_students_t_times_the_standard_error():
    assert Variance(4.0, 5.9).errors(0.025) == pytest.approx(2 * 2.5705818356)
    assert Variance(0.0, 1).errors(1e-4) == 0


def test_variances_add_up_and_equal_ones_add_up_their_degrees_of_freedom():
    assert total_variance([Variance(2.0, 5), Variance(2.0, 5)]) == pytest.approx((4, 10))
    assert total_variance([Variance(3.0, 7), Variance(1e-12, 1)]) == pytest.approx((3, 7))
    assert total_variance([Variance(3.0, 49), Variance(0.0, 1)]) == (3, 49)
    assert total_variance([]).value == 0


def test_one_group_or_groups_that_agree_or_of_one_sample_each_add_no_variance():
    samples = normal_samples(1, 40)
    assert between_groups([samples]).value == 0
    assert between_groups([samples[::2], samples[1::2]]).value == 0
    assert between_groups([[sample] for sample in samples]).value == 0
    assert between_groups([[4.0] * 3, [4.0] * 3]).value == 0


def test_groups_that_differ_add_the_variance_of_their_mean_beyond_what_samples_explain():
    # 16 samples, of variance 16 * (4 + 1) / 15 about 2; two groups' means, 0 and 4, tell 8 * (4 + 4) / 1 instead.
    groups = [[-1.0, 1.0] * 4, [3.0, 5.0] * 4]
    of_samples = 16 * 5 / 15
    # One is trimmed at each end, and none pulled in.
    assert between_groups(groups) == pytest.approx(((64 - 3 * of_samples) * 15 / (14 * 13), 4))
    # Untrimmed; three groups, of which samples explain 1 + 2 / sqrt(2) times.
    groups = [[-9.0] * 3, [0.0] * 3, [9.0] * 3]
    of_samples, of_groups = 6 * 81 / 8, 6 * 81 / 2
    assert between_groups(groups) == pytest.approx(((of_groups - (1 + math.sqrt(2)) * of_samples) / 9, 5))


def test_what_groups_differ_by_is_told_in_full_where_samples_hardly_do():
    found = statistics.fmean(
        between_groups([[mean] * 50 for mean in normal_samples(seed, 6)], share=0).value for seed in range(300)
    )
    # One sixth of the groups' variance of 1; of 300 samples' variance, samples explain 1.9 / 300.
    assert found == pytest.approx(1 / 6 - 1.9 / 300, rel=0.1)


def test_an_outlier_neither_sets_its_group_apart_nor_hides_that_groups_differ():
    alike = [normal_samples(seed, 5) for seed in range(4)]
    assert between_groups([[1e6, *alike[0][1:]], *alike[1:]]).value == 0
    apart = [normal_samples(seed, 5, center) for seed, center in enumerate([90, 100, 100, 110])]
    disturbed = between_groups([apart[0], [1e6, *apart[1][1:]], *apart[2:]])
    assert disturbed.value == pytest.approx(between_groups(apart).value, rel=0.2)


def test_a_mean_that_rests_mostly_on_one_group_is_the_more_uncertain():
    even = between_groups([[0.0] * 50, [4.0] * 50], share=0).value
    uneven = between_groups([[0.0] * 90, [4.0] * 10], share=0).value
    # The groups' variance is 8, of which the mean has the sum of squared shares; samples explain three times theirs.
    assert even == pytest.approx(8 * (0.5**2 + 0.5**2) * (1 - 3 / 99), rel=1e-6)
    assert uneven == pytest.approx(8 * (0.9**2 + 0.1**2) * (1 - 3 / 99), rel=1e-6)


def test_distances_to_the_ends_add_up_as_squares_on_each_side():
    parts = [(1.0, Interval(-2.0, 5.0)), (2.0, Interval(-2.0, 5.0))]
    assert interval_of_sum(parts) == pytest.approx((3 - 5, 3 + 5))
    assert interval_of_sum(parts[:1]) == pytest.approx((-2, 5))


def test_the_same_seed_gives_the_same_interval_and_another_seed_another():
    samples = normal_samples(1, 12)
    first = bootstrap_interval(samples, trimmed_mean, seed=7)
    assert bootstrap_interval(samples, trimmed_mean, seed=7) == first
    assert bootstrap_interval(samples, trimmed_mean, seed=8) != first


@pytest.mark.parametrize(("count", "student"), [(6, 2.571), (12, 2.201), (40, 2.023)])
def test_the_bootstrap_of_a_mean_is_as_wide_as_students_interval(count: int, student: float):
    ratios: list[float] = []
    for seed in range(20):
        samples = normal_samples(seed, count)
        low, high = bootstrap_interval(samples, statistics.fmean, seed=seed)
        ratios.append((high - low) / (2 * student * statistics.stdev(samples) / math.sqrt(count)))
    assert statistics.fmean(ratios) == pytest.approx(1, abs=0.07)


def test_percentiles_between_two_estimates_are_interpolated():
    estimates = iter([1.0, 0.0])
    low, high = bootstrap_interval([1.0], lambda _: next(estimates), resamples=2, seed=1)
    assert (low, high) == pytest.approx((0.025, 0.975))


@pytest.mark.parametrize("count", [6, 12, 25])
def test_the_bootstrap_covers_the_true_value_in_about_95_percent_of_trials(count: int):
    hits = 0
    for seed in range(200):
        low, high = bootstrap_interval(normal_samples(seed, count), trimmed_mean, resamples=400, seed=seed)
        hits += low <= 100 <= high
    assert 0.92 <= hits / 200 <= 0.995


def test_as_many_samples_are_drawn_as_there_are_with_replacement():
    samples = [1.0, 3.0, 5.0]
    seen: list[list[float]] = []

    def record(drawn: Sequence[float]) -> float:
        seen.append([*drawn])
        return 0.0

    bootstrap_interval(samples, record, resamples=50, seed=1)
    assert [len(drawn) for drawn in seen] == [3] * 50
    assert {sample for drawn in seen for sample in drawn} == {1, 3, 5}
    assert any(len({*drawn}) < 3 for drawn in seen)


def test_more_confidence_gives_a_wider_interval():
    samples = normal_samples(5, 12)
    narrow = bootstrap_interval(samples, median, confidence=0.5, seed=1)
    wide = bootstrap_interval(samples, median, confidence=0.95, seed=1)
    assert wide.low < narrow.low < narrow.high < wide.high


def test_identical_samples_and_a_single_one_give_a_point():
    assert bootstrap_interval([4.0] * 8, median, seed=1) == (4, 4)
    assert bootstrap_interval([4.0], median, seed=1) == (4, 4)


def test_nothing_to_resample_is_refused():
    with pytest.raises(ValueError, match="nothing to resample"):
        bootstrap_interval([], median, seed=1)


@pytest.mark.parametrize(("resamples", "confidence"), [(0, 0.95), (10, 0.0), (10, 1.0)])
def test_impossible_settings_are_refused(resamples: int, confidence: float):
    with pytest.raises(ValueError, match="resamples must be"):
        bootstrap_interval([1.0], median, resamples=resamples, confidence=confidence, seed=1)
