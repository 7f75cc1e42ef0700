"""Paired comparison: what is told, what isn't, and what could have been. All data is synthetic and seeded."""

import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, islice
from statistics import fmean

import pytest

from tritonforge.profiling import comparison
from tritonforge.profiling.comparison import (
    EARLY_BLOCKS,
    FALSE_POSITIVES,
    LOOKS,
    Comparison,
    LogRatio,
    Outcome,
    PairBlock,
    WeightedCase,
    combine,
    compare,
    decide,
    log_ratios,
    margin,
    resolution,
)
from tritonforge.profiling.statistics import Interval, bootstrap_interval, student_quantile

Noise = Callable[[random.Random], float]
"""Of a block's log ratio, with standard deviation 1."""


def normal(generator: random.Random) -> float:
    return generator.gauss(0, 1)


def heavy_tailed(generator: random.Random) -> float:
    """Student's t of three degrees of freedom."""
    return generator.gauss(0, 1) / math.sqrt(generator.gammavariate(1.5, 2))


def shaken(generator: random.Random) -> float:
    """One block in twenty is eight times as noisy."""
    return generator.gauss(0, 8 if generator.random() < 0.05 else 1) / math.sqrt(0.95 + 0.05 * 64)


def two_states(generator: random.Random) -> float:
    return math.copysign(0.95, generator.random() - 0.5) + generator.gauss(0, 0.31)


@dataclass(frozen=True, slots=True)
class Kernels:
    """Two kernels to be compared, as their blocks show them."""

    speedup: float = 1.0
    noise: float = 0.007
    kind: Noise = normal
    duration_us: float = 100.0
    pairs: int = 1
    pair_noise: float = 0.0
    """Standard deviation of what a pair of processes is biased by, in log ratios."""
    layouts: int | None = None
    """So many sets of buffers, of each pair, take turns; None: each block has its own."""
    layout_share: float = 0.5
    """Of the noise's variance, what comes from the layout."""

    def endless(self, seed: int) -> Iterator[PairBlock]:
        """Blocks of the pairs of processes, which take turns."""
        generator = random.Random(seed)
        biases = [generator.gauss(0, self.pair_noise) for _ in range(self.pairs)]
        noise, of_layout, layouts = self.noise, 0.0, 0
        if self.layouts is not None:
            noise, of_layout, layouts = noise * math.sqrt(1 - self.layout_share), noise, self.layouts
        of_layout *= math.sqrt(self.layout_share)
        shifts = [[generator.gauss(0, of_layout) for _ in range(layouts)] for _ in range(self.pairs)]
        for number in count():
            turn, pair = divmod(number, self.pairs)
            layout = turn % layouts if layouts else None
            shift = biases[pair] + (shifts[pair][layout] if layout is not None else 0.0)
            log_ratio = math.log(self.speedup) + shift + noise * self.kind(generator)
            candidate_us = self.duration_us * generator.uniform(0.9, 1.1)
            yield PairBlock((candidate_us * math.exp(log_ratio),), (candidate_us,), layout)

    def blocks(self, seed: int, number: int) -> list[list[PairBlock]]:
        """One sequence a pair of processes."""
        return self._grouped([*islice(self.endless(seed), number)])

    def _grouped(self, blocks: Sequence[PairBlock]) -> list[list[PairBlock]]:
        return [[*blocks[pair :: self.pairs]] for pair in range(self.pairs)]

    def measured(self, seed: int, *, most: int = LOOKS[-1]) -> tuple[Outcome, list[list[PairBlock]]]:
        """The outcome at the first look that tells one, and the blocks until then."""
        endless = self.endless(seed)
        blocks: list[PairBlock] = []
        for look in LOOKS:
            blocks += islice(endless, look - len(blocks))
            groups = self._grouped(blocks)
            outcome = decide(groups)
            if outcome != "ambiguous" or look >= most:
                return outcome, groups
        raise AssertionError("more blocks than at the last look")

    def outcomes(self, trials: int, *, most: int = LOOKS[-1]) -> Counter[str]:
        return Counter(self.measured(seed, most=most)[0] for seed in range(trials))


def differences(seen: Counter[str]) -> int:
    return seen["faster"] + seen["slower"]


def swapped(groups: Sequence[Sequence[PairBlock]]) -> list[list[PairBlock]]:
    return [[PairBlock(block.candidate_us, block.baseline_us, block.layout) for block in blocks] for blocks in groups]


def weighted(groups: Sequence[Sequence[PairBlock]], weight: float = 1.0, name: str = "case") -> WeightedCase:
    return WeightedCase(name, weight, compare(groups), [log_ratios(blocks) for blocks in groups])


def width(result: Comparison) -> float:
    return result.ratio_high - result.ratio_low


@pytest.fixture
def without_bootstrap(monkeypatch: pytest.MonkeyPatch) -> None:
    """For many comparisons of which only the outcome or the detectable change matters."""

    def no_interval(*_: object, **__: object) -> Interval:
        return Interval(-1.0, 1.0)

    monkeypatch.setattr(comparison, "bootstrap_interval", no_interval)


@pytest.fixture
def quick_bootstrap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "bootstrap_interval", partial(bootstrap_interval, resamples=400))


# What a block tells.


def test_a_block_is_the_ratio_of_the_interquartile_means():
    block = PairBlock([1.0, 4.0, 6.0, 1e6], [2.0, 2.0, 3.0, 3.0])
    assert (block.baseline_mean_us, block.candidate_mean_us) == (5, 2.5)
    assert log_ratios([block, block]) == [math.log(2)] * 2


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_a_time_that_cannot_be_is_refused_on_either_side(bad: float):
    with pytest.raises(ValueError, match="candidate time"):
        PairBlock([1.0], [1.0, bad])
    with pytest.raises(ValueError, match="baseline time"):
        PairBlock([bad, 1.0], [1.0])


def test_a_side_without_samples_is_refused():
    with pytest.raises(ValueError, match="no baseline samples"):
        PairBlock([], [1.0])
    with pytest.raises(ValueError, match="no candidate samples"):
        PairBlock([1.0], [])


# How often the outcome is wrong, and how often it is right.


@pytest.mark.parametrize("noise", [0.0015, 0.007, 0.012])
@pytest.mark.parametrize("kind", [normal, heavy_tailed, shaken, two_states])
def test_identical_kernels_are_called_different_in_at_most_1_percent_of_runs(kind: Noise, noise: float):
    trials = 700
    assert differences(Kernels(kind=kind, noise=noise).outcomes(trials)) <= FALSE_POSITIVES * trials


@pytest.mark.parametrize("pairs", [2, 3])
def test_so_they_are_by_several_pairs_each_with_a_bias_of_its_own(pairs: int):
    trials = 500
    seen = Kernels(noise=0.0015, pairs=pairs, pair_noise=0.001).outcomes(trials)
    assert differences(seen) <= FALSE_POSITIVES * trials


@pytest.mark.parametrize(("noise", "share"), [(0.0015, 0.9), (0.007, 0.5), (0.007, 0.9), (0.012, 0.5)])
def test_so_they_are_by_two_pairs_whose_buffers_make_the_noise_and_come_back(noise: float, share: float):
    trials = 300
    kernels = Kernels(noise=noise, pairs=2, layouts=8, layout_share=share)
    assert differences(kernels.outcomes(trials)) <= FALSE_POSITIVES * trials


@pytest.mark.parametrize(("speedup", "wrong"), [(1.001, "faster"), (1 / 1.001, "slower")])
def test_so_they_are_where_they_are_biased_by_as_much_as_the_resolution(speedup: float, wrong: str):
    assert Kernels(speedup=speedup, noise=0.003).outcomes(1000)[wrong] <= 5


def test_kernels_that_differ_by_the_margin_are_called_the_same_in_at_most_1_percent_of_runs():
    assert Kernels(speedup=1.005, noise=0.007).outcomes(500)["same"] <= 5


def test_identical_sharply_measured_kernels_are_the_same_within_15_blocks():
    assert Kernels(noise=0.0015).outcomes(200, most=15) == {"same": 200}


@pytest.mark.parametrize("pairs", [1, 2, 3])
@pytest.mark.parametrize(("speedup", "right"), [(1.005, "faster"), (1 / 1.005, "slower")])
def test_half_a_percent_is_found_within_15_blocks_where_they_are_sharp(speedup: float, right: str, pairs: int):
    assert Kernels(speedup=speedup, noise=0.0015, pairs=pairs).outcomes(300, most=15)[right] > 0.95 * 300


@pytest.mark.parametrize("pairs", [1, 2, 3])
def test_half_a_percent_is_found_within_80_blocks_at_twice_that_noise(pairs: int):
    assert Kernels(speedup=1.005, noise=0.003, pairs=pairs).outcomes(300)["faster"] > 0.95 * 300


@pytest.mark.parametrize("pairs", [1, 2, 3])
@pytest.mark.parametrize("layouts", [None, 8])
def test_half_a_percent_is_found_mostly_at_the_noise_of_short_kernels(pairs: int, layouts: int | None):
    kernels = Kernels(speedup=1.005, noise=0.007, pairs=pairs, layouts=layouts, layout_share=0.0)
    assert kernels.outcomes(200)["faster"] > 0.85 * 200


def test_a_few_wild_blocks_hide_nothing():
    kernels = Kernels(speedup=1.005, noise=0.003, kind=lambda g: g.gauss(0, 50 if g.random() < 0.05 else 1))
    assert kernels.outcomes(200)["faster"] > 0.9 * 200


@pytest.mark.usefixtures("without_bootstrap")
@pytest.mark.parametrize(
    ("pairs", "blocks", "noise"), [(1, 15, 0.0015), (1, 20, 0.007), (1, 80, 0.012), (2, 20, 0.007), (3, 40, 0.007)]
)
def test_a_change_of_the_detectable_size_is_found_as_often_as_promised(pairs: int, blocks: int, noise: float):
    same = Kernels(noise=noise, pairs=pairs)
    promised = [compare(same.blocks(seed, blocks)).min_detectable_pct for seed in range(1000, 1100)]
    changed = Kernels(speedup=1 + fmean(pct for pct in promised if pct is not None) / 100, noise=noise, pairs=pairs)
    found = fmean(decide(changed.blocks(seed, blocks)) == "faster" for seed in range(400))
    assert 0.74 <= found <= 0.9


# The rule.


def exact(log_ratios: Sequence[float]) -> list[list[PairBlock]]:
    return [[PairBlock([100 * math.exp(log_ratio)], [100.0]) for log_ratio in log_ratios]]


def around(center: float, errors: float, count: int = 16) -> list[list[PairBlock]]:
    """Blocks of 100 us whose decision interval reaches `errors` to either side of `center`; both are log ratios."""
    # One is trimmed at each end, so that 14 are left, and all 16 deviate by the same.
    deviation = errors / student_quantile(FALSE_POSITIVES / len(LOOKS) / 2, 13) * math.sqrt(14 * 13 / 16)
    return exact([center + deviation, center - deviation] * (count // 2))


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [
        (0.0011, 0.02, "faster"),
        (0.0009, 0.02, "ambiguous"),
        (-0.02, -0.0011, "slower"),
        (-0.02, -0.0009, "ambiguous"),
        (-0.0048, 0.0048, "same"),
        (-0.0048, 0.0052, "ambiguous"),
        (-0.0052, 0.0048, "ambiguous"),
        (0.0011, 0.0048, "faster"),
        (-0.0048, -0.0011, "slower"),
    ],
)
def test_the_outcome_is_where_the_whole_interval_lies(low: float, high: float, outcome: str):
    assert decide(around((low + high) / 2, (high - low) / 2)) == outcome


def test_short_kernels_have_to_differ_by_more_and_may_differ_by_more():
    assert (resolution(100), resolution(10), resolution(1e6)) == pytest.approx((0.001, 0.002, 0.001))
    assert (margin(100), margin(5), margin(1e6)) == pytest.approx((0.005, 0.01, 0.005))
    blocks = around(0.003, 0.0005)
    assert [decide(blocks, duration_us) for duration_us in (100, 5, 2)] == ["faster", "same", "same"]
    assert [compare(blocks, us).comparison for us in (100, 5, 2)] == ["faster", "same", "same"]
    wide = around(0.0, 0.008)
    assert [decide(wide, duration_us) for duration_us in (100, 5)] == ["ambiguous", "same"]


@pytest.mark.parametrize("candidate_us", [4.0, 20.0])
def test_the_duration_is_the_shorter_sides_unless_given(candidate_us: float):
    blocks = [[PairBlock([10.0], [candidate_us])] * 15]
    assert compare(blocks).resolution_pct == pytest.approx(100 * 0.02 / min(10, candidate_us))
    assert compare(blocks, 2.0).resolution_pct == pytest.approx(1)


@pytest.mark.parametrize("count", [1, 5])
def test_fewer_than_six_blocks_claim_nothing(count: int):
    groups = Kernels(speedup=2.0).blocks(1, count)
    result = compare(groups)
    assert decide(groups) == result.comparison == "ambiguous"
    assert result.min_detectable_pct is None
    assert result.ratio_low <= result.ratio <= result.ratio_high


def test_before_15_blocks_only_large_effects_are_told():
    def outcomes(log_ratio: float) -> list[str]:
        return [decide(exact([log_ratio] * count)) for count in (6, EARLY_BLOCKS - 1, EARLY_BLOCKS)]

    assert outcomes(0.03) == ["faster"] * 3
    assert outcomes(-0.03) == ["slower"] * 3
    assert outcomes(0.015) == ["ambiguous", "ambiguous", "faster"]
    assert outcomes(0.0) == ["ambiguous", "ambiguous", "same"]
    assert compare(exact([0.0] * 6)).resolution_pct == 2
    assert compare(exact([0.0] * 15)).resolution_pct == pytest.approx(0.1)


def test_the_decision_is_at_99_9_percent_with_the_degrees_of_freedom_of_the_blocks():
    # Student's t of 5 is 6.71 there, of 2.57 at 95 %: six blocks that would do for 95 % don't.
    def six(errors: float) -> list[list[PairBlock]]:
        deviation = 0.05 / errors * math.sqrt(5)
        return exact([0.0201 + 0.05 + sign * deviation for sign in (1, -1)] * 3)

    assert [decide(six(errors)) for errors in (3, 6.6, 6.8)] == ["ambiguous", "ambiguous", "faster"]


# Pairs of processes, and layouts of buffers.


def test_layouts_that_differ_widen_both_intervals_where_they_are_known():
    known = Kernels(noise=0.007, layouts=8, layout_share=0.9).blocks(2, 40)
    unknown = [[replace(block, layout=None) for block in blocks] for blocks in known]
    assert decide(known) == "ambiguous"
    assert width(compare(known)) > 1.5 * width(compare(unknown))


def test_layouts_that_are_alike_hide_no_difference_between_pairs():
    known = [
        Kernels(speedup=speedup, noise=0.0015, layouts=8, layout_share=0.0).blocks(seed, 20)[0]
        for seed, speedup in enumerate((1.01, 1.0))
    ]
    unknown = [[replace(block, layout=None) for block in blocks] for blocks in known]
    assert compare(known) == compare(unknown)
    assert width(compare(known)) > 2 * width(compare([[*known[0], *known[1]]]))


def test_layouts_of_different_pairs_are_not_the_same():
    def of_layouts(*centers: float) -> list[PairBlock]:
        errors = (-0.001, 0.001) * 4
        return [
            PairBlock([100 * math.exp(center + error)], [100.0], layout)
            for layout, center in enumerate(centers)
            for error in errors
        ]

    # Each layout's mean over the pairs is 0, and so is each pair's over its layouts.
    apart = [of_layouts(-0.01, 0.01), of_layouts(0.01, -0.01)]
    unknown = [[replace(block, layout=None) for block in blocks] for blocks in apart]
    assert width(compare(apart)) > 1.5 * width(compare(unknown))


@pytest.mark.parametrize("pairs", [2, 3])
def test_pairs_that_lie_a_little_apart_widen_both_intervals(pairs: int):
    blocks = [block for group in Kernels(noise=0.0015).blocks(1, 60) for block in group]
    agreeing = [blocks[number::pairs] for number in range(pairs)]
    apart = [
        [PairBlock([block.baseline_us[0] * (1 + 0.0015 * number)], block.candidate_us) for block in group]
        for number, group in enumerate(agreeing)
    ]
    alone, together = compare(agreeing), compare(apart)
    pooled = compare([[block for group in apart for block in group]])
    assert width(together) > 2 * width(pooled) > 1.9 * width(alone)
    assert alone.min_detectable_pct is not None
    assert together.min_detectable_pct is not None
    assert together.min_detectable_pct > 1.5 * alone.min_detectable_pct


def test_pairs_that_agree_are_as_sharp_as_one():
    blocks = Kernels(noise=0.007).blocks(1, 20)[0]
    assert compare([blocks, blocks, blocks]) == compare([blocks * 3])


def test_two_pairs_far_apart_tell_nothing_where_one_alone_would():
    first, second = around(0.002, 0.0005)[0], around(0.008, 0.0005)[0]
    assert decide([first]) == decide([second]) == "faster"
    assert decide([first + second]) == "faster"
    assert decide([first, second]) == compare([first, second]).comparison == "ambiguous"


def test_more_pairs_that_lie_as_far_apart_tell_more():
    first, second = around(0.006, 0.0005)[0], around(0.012, 0.0005)[0]
    assert decide([first, second]) == "ambiguous"
    assert decide([first, second] * 3) == "faster"


def test_a_pair_without_blocks_does_not_count():
    groups = Kernels().blocks(1, 20)
    assert compare([[], *groups, []]) == compare(groups)
    assert decide([[], *groups]) == decide(groups)
    case = weighted(groups)
    assert combine([replace(case, log_ratios=[[], *case.log_ratios])]) == combine([case])


# What is reported.


def test_the_ratio_is_baseline_over_candidate_and_lies_in_its_interval():
    groups = [[PairBlock([150.0, 151.0, 149.0], [100.0 + 0.1 * number]) for number in range(15)]]
    result = compare(groups)
    assert result.ratio == pytest.approx(1.5, rel=0.01)
    assert result.ratio_low < result.ratio < result.ratio_high
    assert (result.blocks, result.samples, result.false_positive_pct) == (15, 60, 1)


def test_swapping_the_sides_gives_the_reciprocal():
    groups = Kernels(speedup=1.1).blocks(2, 20)
    there, back = compare(groups), compare(swapped(groups))
    assert back.ratio == pytest.approx(1 / there.ratio)
    assert back.ratio_low == pytest.approx(1 / there.ratio_high, rel=1e-3)
    assert (there.comparison, back.comparison) == ("faster", "slower")


@pytest.mark.usefixtures("without_bootstrap")
def test_what_is_reported_is_what_was_decided():
    seen: Counter[str] = Counter()
    for seed in range(40):
        outcome, groups = Kernels(speedup=1 + seed / 5000, noise=0.004, pairs=1 + seed % 3).measured(seed, most=28)
        assert compare(groups).comparison == outcome
        seen[outcome] += 1
    assert min(seen[outcome] for outcome in ("faster", "same", "ambiguous")) > 0


@pytest.mark.usefixtures("quick_bootstrap")
@pytest.mark.parametrize(("count", "kind"), [(8, normal), (15, normal), (15, heavy_tailed)])
def test_the_interval_covers_the_true_ratio_in_about_95_percent_of_trials(count: int, kind: Noise):
    kernels = Kernels(speedup=1.3, noise=0.02, kind=kind)
    results = [compare(kernels.blocks(seed, count), seed=seed) for seed in range(200)]
    assert 0.91 <= fmean(result.ratio_low <= 1.3 <= result.ratio_high for result in results) <= 0.995


def test_the_detectable_change_is_beyond_the_resolution_by_the_interval_and_its_scatter():
    result = compare(around(0.0, 0.002))
    error = 0.002 / student_quantile(FALSE_POSITIVES / len(LOOKS) / 2, 13)
    scatter = math.hypot(error, 0.002 / math.sqrt(2 * 13))
    expected = math.expm1(math.log1p(0.001) + 0.002 + 0.8416 * scatter)
    assert result.min_detectable_pct == pytest.approx(100 * expected, rel=1e-4)


def test_more_blocks_and_less_noise_make_smaller_changes_detectable():
    def detectable(noise: float, count: int) -> float:
        pct = compare(Kernels(noise=noise).blocks(4, count)).min_detectable_pct
        assert pct is not None
        return pct

    assert detectable(0.005, 40) < detectable(0.005, 20) < detectable(0.02, 20)
    assert detectable(1e-7, 20) == pytest.approx(0.1, rel=0.01)


def test_the_same_blocks_and_seed_give_the_same_result():
    groups = Kernels().blocks(8, 20)
    assert compare(groups, seed=3) == compare(groups, seed=3) != compare(groups, seed=4)


def test_nothing_to_compare_is_refused():
    nothing: list[list[list[PairBlock]]] = [[], [[]]]
    for groups in nothing:
        for judge in (decide, compare):
            with pytest.raises(ValueError, match="no blocks"):
                judge(groups)
    for duration_us in (0.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="duration"):
            decide(Kernels().blocks(1, 2), duration_us)


def test_a_look_and_a_report_are_quick():
    groups = Kernels(pairs=3).blocks(1, 80)
    assert quickest_s(lambda: decide(groups)) < 0.003
    assert quickest_s(lambda: compare(groups)) < 0.25


def quickest_s(work: Callable[[], object]) -> float:
    """Of the processor alone, so that what else runs beside the tests doesn't count."""
    taken: list[float] = []
    for _ in range(5):
        started = time.process_time()
        work()
        taken.append(time.process_time() - started)
    return min(taken)


# The score.


def test_the_score_is_the_weighted_geometric_mean():
    cases = [
        weighted(Kernels(speedup=2.0, noise=1e-9).blocks(1, 20), 1),
        weighted(Kernels(noise=1e-9).blocks(2, 15), 3),
    ]
    score = combine(cases)
    assert score.ratio == pytest.approx(2 ** (1 / 4), rel=1e-6)
    assert score.comparison == "faster"
    assert (score.blocks, score.samples, score.false_positive_pct) == (35, 70, 1)


@pytest.mark.parametrize(
    "kernels", [Kernels(speedup=1.04), Kernels(pairs=3, pair_noise=0.003), Kernels(layouts=4, layout_share=0.95)]
)
def test_the_score_of_one_case_is_that_case(kernels: Kernels):
    case = weighted(kernels.blocks(3, 20), 2.5)
    score = combine([case])
    for name in Comparison.model_fields:
        expected = getattr(case.comparison, name)
        assert getattr(score, name) == (expected if isinstance(expected, str) else pytest.approx(expected))


def test_a_slower_case_is_named_whatever_the_score_says():
    fast, slow = Kernels(speedup=2.0, noise=0.002), Kernels(speedup=0.98, noise=0.002)
    score = combine([
        weighted(fast.blocks(1, 20), 1, "fast"),
        weighted(slow.blocks(2, 20), 1, "slow"),
        weighted(Kernels(noise=0.002).blocks(3, 20), 1, "same"),
        weighted(Kernels(noise=0.1).blocks(4, 20), 1, "noisy"),
    ])  # fmt: skip
    assert score.comparison == "faster"
    assert (score.faster_cases, score.slower_cases, score.ambiguous_cases) == (["fast"], ["slow"], ["noisy"])


def test_gain_and_equal_loss_cancel_in_the_score():
    kernels = [Kernels(speedup=speedup, noise=0.001) for speedup in (1.25, 0.8)]
    score = combine([weighted(each.blocks(seed, 20)) for seed, each in enumerate(kernels)])
    assert score.ratio == pytest.approx(1, abs=0.002)
    assert score.comparison == "same"


def test_many_cases_narrow_the_intervals_of_the_score():
    one = weighted(Kernels(noise=0.02).blocks(1, 20))
    many = combine([weighted(Kernels(noise=0.02).blocks(seed, 20)) for seed in range(1, 10)])
    assert width(many) < 0.5 * width(one.comparison)
    assert many.min_detectable_pct is not None
    assert one.comparison.min_detectable_pct is not None
    assert many.min_detectable_pct < 0.4 * one.comparison.min_detectable_pct


@pytest.mark.usefixtures("without_bootstrap")
def test_the_score_of_identical_kernels_is_called_different_in_at_most_1_percent_of_runs():
    kernels = [Kernels(noise=0.0015), Kernels(noise=0.003, kind=heavy_tailed), Kernels(noise=0.005, kind=two_states)]
    seen: Counter[str] = Counter()
    for seed in range(300):
        cases = [weighted(each.measured(3 * seed + n)[1], 1 + n) for n, each in enumerate(kernels)]
        seen[combine(cases).comparison] += 1
    assert differences(seen) <= 3


@pytest.mark.usefixtures("quick_bootstrap")
def test_scores_cover_the_true_ratio_in_at_least_95_percent_of_trials():
    speedups = (1.01, 1.02, 1.06)
    true = math.exp(fmean(map(math.log, speedups)))
    hits = 0
    for seed in range(100):
        cases = [weighted(Kernels(speedup=s).blocks(10 * seed + n, 10)) for n, s in enumerate(speedups)]
        hits += combine(cases).ratio_low <= true <= combine(cases).ratio_high
    assert hits >= 93


def test_a_case_with_too_few_blocks_leaves_the_score_ambiguous():
    fast = Kernels(speedup=2.0)
    score = combine([weighted(fast.blocks(1, 20)), weighted(fast.blocks(2, 3))])
    assert score.comparison == "ambiguous"
    assert score.min_detectable_pct is None
    assert score.ratio_low <= score.ratio <= score.ratio_high


def test_a_case_with_few_blocks_keeps_the_score_from_being_the_same():
    score = combine([weighted(exact([0.0] * 20)), weighted(exact([0.0] * 6))])
    assert score.comparison == "ambiguous"
    assert score.resolution_pct == pytest.approx(100 * (math.sqrt(1.001 * 1.02) - 1))


def test_cases_that_cannot_be_combined_are_refused():
    groups = Kernels().blocks(1, 20)
    with pytest.raises(ValueError, match="no cases"):
        combine([])
    for weight in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="weight"):
            combine([weighted(groups, weight)])
    with pytest.raises(ValueError, match="one log ratio a block"):
        combine([WeightedCase("case", 1.0, compare(groups), [[LogRatio(0.1, None)]])])
