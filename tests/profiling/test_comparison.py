"""Paired comparison: what is told, what isn't, and what could have been. All data is synthetic and seeded."""

import math
import random
from collections import Counter
from collections.abc import Sequence
from typing import TypedDict, Unpack

import pytest

from tritonforge.profiling.comparison import (
    Comparison,
    PairBlock,
    WeightedCase,
    combine,
    compare,
    log_ratios,
    resolution,
)

SAMPLES = 10


class Settings(TypedDict, total=False):
    speedup: float
    duration_us: float
    noise: float
    """Of a sample, relative."""
    drift: float
    """Of a block, shared by its sides."""
    block_noise: float
    """Of a block's ratio."""
    blocks: int


def measured(seed: int, **settings: Unpack[Settings]) -> list[PairBlock]:
    """Synthetic times of both sides."""
    generator = random.Random(seed)

    def factor(sigma: float) -> float:
        return math.exp(generator.gauss(0, sigma))

    def times(center_us: float) -> list[float]:
        return [center_us * factor(settings.get("noise", 0.005)) for _ in range(SAMPLES)]

    result: list[PairBlock] = []
    for _ in range(settings.get("blocks", 12)):
        baseline_us = settings.get("duration_us", 100.0) * factor(settings.get("drift", 0.05))
        candidate_us = baseline_us * factor(settings.get("block_noise", 0.0)) / settings.get("speedup", 1.0)
        result.append(PairBlock(times(baseline_us), times(candidate_us)))
    return result


def outcomes(trials: int, **settings: Unpack[Settings]) -> Counter[str]:
    return Counter(compare(measured(seed, **settings), seed=seed).comparison for seed in range(trials))


def swapped(blocks: Sequence[PairBlock]) -> list[PairBlock]:
    return [PairBlock(block.candidate_us, block.baseline_us) for block in blocks]


def weighted(weight: float, blocks: Sequence[PairBlock]) -> WeightedCase:
    return WeightedCase(weight, compare(blocks), log_ratios(blocks))


def test_identical_kernels_are_the_same_through_drift_that_dwarfs_the_noise():
    assert outcomes(100, noise=0.005, drift=0.05) == {"same": 100}


@pytest.mark.parametrize("settings", [Settings(noise=0.05), Settings(noise=0.05, block_noise=0.03)])
def test_identical_kernels_are_called_different_in_at_most_5_percent_of_noisy_trials(settings: Settings):
    seen = outcomes(200, **settings)
    assert seen["faster"] + seen["slower"] <= 10
    assert seen["ambiguous"] >= 150


def test_a_planted_two_percent_is_found_in_both_directions():
    assert outcomes(50, speedup=1.02) == {"faster": 50}
    assert outcomes(50, speedup=1 / 1.02) == {"slower": 50}


def test_half_a_percent_of_a_100_us_kernel_is_seen_when_measured_sharply():
    assert outcomes(50, speedup=0.995, noise=0.002)["slower"] >= 49


def test_the_constant_bias_of_a_short_kernel_is_not_taken_for_progress():
    seen = outcomes(50, speedup=1.007, duration_us=13.0, noise=0.002)
    assert seen == {"same": 50}


def test_identical_very_short_kernels_are_the_same_within_what_can_be_told_of_them():
    result = compare(measured(1, speedup=1.02, duration_us=5.0, noise=0.002))
    assert result.comparison == "same"
    assert result.margin_pct == result.resolution_pct == pytest.approx(4, rel=0.1)


@pytest.mark.parametrize("far", [0.96, 1.04])
def test_an_interval_that_reaches_beyond_the_margin_on_either_side_is_ambiguous(far: float):
    blocks = [PairBlock([100 * ratio], [100.0]) for ratio in [1.0] * 6 + [far] * 6]
    assert compare(blocks).comparison == "ambiguous"


def test_an_outlier_in_every_block_changes_nothing():
    blocks = measured(3, speedup=1.05)
    disturbed = [PairBlock([*b.baseline_us[:-1], 1e5], [*b.candidate_us[:-1], 1e5]) for b in blocks]
    assert compare(disturbed).comparison == "faster"
    assert compare(disturbed).ratio == pytest.approx(compare(blocks).ratio, rel=0.005)


def test_the_ratio_is_baseline_over_candidate_and_lies_in_its_interval():
    result = compare(measured(1, speedup=1.5))
    assert result.ratio == pytest.approx(1.5, rel=0.01)
    assert result.ratio_low <= result.ratio <= result.ratio_high
    assert (result.blocks, result.samples) == (12, 240)


def test_swapping_the_sides_gives_the_reciprocal():
    blocks = measured(2, speedup=1.1)
    there, back = compare(blocks), compare(swapped(blocks))
    assert back.ratio == pytest.approx(1 / there.ratio)
    assert back.ratio_low == pytest.approx(1 / there.ratio_high, rel=1e-3)
    assert (there.comparison, back.comparison) == ("faster", "slower")


def test_the_interval_covers_the_true_ratio_in_about_95_percent_of_trials():
    results = [compare(measured(seed, speedup=1.3, noise=0.02), seed=seed) for seed in range(200)]
    hits = sum(result.ratio_low <= 1.3 <= result.ratio_high for result in results)
    assert 0.92 <= hits / 200 <= 0.99


def test_an_effect_of_the_detectable_size_is_found_about_as_often_as_promised():
    promised = [compare(measured(seed, noise=0.03), seed=seed).min_detectable_pct for seed in range(50)]
    typical = sorted(pct for pct in promised if pct is not None)[25]
    found = outcomes(100, speedup=1 + typical / 100, noise=0.03)["faster"]
    assert 70 <= found <= 99


def test_more_blocks_and_less_noise_make_smaller_effects_detectable():
    def detectable(**settings: Unpack[Settings]) -> float:
        pct = compare(measured(4, **settings)).min_detectable_pct
        assert pct is not None
        return pct

    assert detectable(blocks=40) < detectable() < detectable(noise=0.02)
    assert detectable(noise=1e-6) == pytest.approx(100 * resolution(100), rel=0.01)


def test_the_detectable_effect_is_the_resolution_plus_2_8_standard_errors():
    result = compare(measured(5, noise=0.02))
    half_width = math.log(result.ratio_high / result.ratio_low) / 2
    expected = math.expm1(math.log1p(result.resolution_pct / 100) + 2.80 * half_width / 1.96)
    assert result.min_detectable_pct == pytest.approx(100 * expected)


@pytest.mark.parametrize("count", [1, 5])
def test_too_few_blocks_claim_nothing(count: int):
    result = compare(measured(6, speedup=2.0, blocks=count))
    assert result.comparison == "ambiguous"
    assert result.min_detectable_pct is None
    assert result.ratio_low <= result.ratio <= result.ratio_high


def test_six_blocks_are_enough_for_a_large_effect():
    assert compare(measured(6, speedup=2.0, blocks=6)).comparison == "faster"


def test_a_wider_margin_turns_ambiguous_into_same_but_never_hides_a_clear_change():
    blocks = measured(7, noise=0.03)
    assert compare(blocks).comparison == "ambiguous"
    assert compare(blocks, margin=0.2).comparison == "same"
    assert compare(measured(7, speedup=1.1), margin=0.2).comparison == "faster"


def test_the_same_samples_and_seed_give_the_same_result():
    assert compare(measured(8), seed=3) == compare(measured(8), seed=3)


def test_resolution_grows_for_short_kernels_and_never_vanishes():
    assert resolution(10) == pytest.approx(0.02)
    assert resolution(1e6) == 0.002


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_a_time_that_cannot_be_is_refused_on_either_side(bad: float):
    with pytest.raises(ValueError, match="block 1 has a candidate time"):
        compare([PairBlock([1.0], [1.0]), PairBlock([1.0], [1.0, bad])])
    with pytest.raises(ValueError, match="block 0 has a baseline time"):
        compare([PairBlock([bad], [1.0])])


def test_missing_samples_are_refused():
    with pytest.raises(ValueError, match="no blocks"):
        compare([])
    with pytest.raises(ValueError, match="no baseline samples"):
        compare([PairBlock([], [1.0])])
    with pytest.raises(ValueError, match="no candidate samples"):
        compare([PairBlock([1.0], [])])
    with pytest.raises(ValueError, match="margin"):
        compare(measured(1), margin=-0.1)


def test_the_score_is_the_weighted_geometric_mean():
    cases = [weighted(1, measured(1, speedup=2.0, noise=1e-9)), weighted(3, measured(2, speedup=1.0, noise=1e-9))]
    score = combine(cases)
    assert score.ratio == pytest.approx(2 ** (1 / 4), rel=1e-6)
    assert score.comparison == "faster"
    assert (score.blocks, score.samples) == (24, 480)


def test_the_score_of_one_case_is_that_case():
    case = weighted(2.5, measured(3, speedup=1.04))
    score = combine([case])
    for field in Comparison.model_fields:
        expected = getattr(case.comparison, field)
        assert getattr(score, field) == (expected if isinstance(expected, str) else pytest.approx(expected))


def test_gain_and_equal_loss_cancel_in_the_score():
    score = combine([weighted(1, measured(1, speedup=1.25)), weighted(1, measured(2, speedup=0.8))])
    assert score.ratio == pytest.approx(1, abs=0.005)
    assert score.comparison == "same"


def test_many_cases_narrow_the_interval_of_the_score():
    one = weighted(1, measured(1, noise=0.05))
    many = combine([weighted(1, measured(seed, noise=0.05)) for seed in range(1, 10)])
    assert many.ratio_high - many.ratio_low < 0.6 * (one.comparison.ratio_high - one.comparison.ratio_low)


def test_identical_cases_are_called_different_in_at_most_5_percent_of_scores():
    seen = Counter(
        combine([weighted(1 + k, measured(10 * seed + k, noise=0.05)) for k in range(3)], seed=seed).comparison
        for seed in range(40)
    )
    assert seen["faster"] + seen["slower"] <= 2


def test_a_case_with_too_few_blocks_leaves_the_score_ambiguous():
    score = combine([weighted(1, measured(1, speedup=2.0)), weighted(1, measured(2, speedup=2.0, blocks=3))])
    assert score.comparison == "ambiguous"
    assert score.min_detectable_pct is None
    assert score.ratio_low <= score.ratio <= score.ratio_high


def test_cases_that_cannot_be_combined_are_refused():
    blocks = measured(1)
    with pytest.raises(ValueError, match="no cases"):
        combine([])
    for weight in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="weight"):
            combine([weighted(weight, blocks)])
    with pytest.raises(ValueError, match="one log ratio a block"):
        combine([WeightedCase(1.0, compare(blocks), [0.1])])
