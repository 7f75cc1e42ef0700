"""What holds of the arbiter whatever it is given: hundreds of made-up histories, the same ones every time."""

import random
from dataclasses import dataclass
from typing import Any, Final

import pytest

from tritonforge.profiling.optimization.arbiter import decide, ends, promising, refusal, score_of
from tritonforge.profiling.optimization.model import (
    Attempt,
    Budget,
    CaseTiming,
    Confirmation,
    Evidence,
    Limits,
    Memory,
    Timing,
    Verdict,
)
from tritonforge.profiling.optimization.population import front, suggest_parent
from tritonforge.sandbox.outcome import Kind

from .made_up import attempt, baseline, case_time, case_timing, diagnosed, evidence, failed, finding, launch, outcome

ENDED: Final = [Kind.COMPILE_ERROR, Kind.WRONG, Kind.TIMEOUT, Kind.LAUNCH_ERROR, Kind.CHEATING, Kind.OUT_OF_MEMORY]


@dataclass(frozen=True, slots=True)
class Chance:
    """Makes up what an evaluation might find, sense or nonsense."""

    drawn: random.Random

    def maybe(self, value: Any, absent: Any = None, often: float = 0.8) -> Any:
        return value if self.drawn.random() < often else absent

    def ratio(self, around: float = 1.0) -> tuple[float, float, float]:
        ratio = (
            around
            * self.drawn.choice([1.0, 1.0, 1.0, 0.4, 0.98, 1.003, 1.02, 1.3, 25.0])
            * self.drawn.uniform(0.99, 1.01)
        )
        width = ratio * self.drawn.choice([0.0, 0.0005, 0.005, 0.03, 0.4])
        return max(1e-9, ratio - width), ratio, ratio + width

    def case(self, name: str, ratio: float) -> CaseTiming:
        low, here, high = self.ratio(ratio)
        call_low, call, call_high = self.ratio(here)
        light = self.maybe(self.drawn.uniform(0.5, 101.0))
        return case_timing(
            name,
            here,
            ratio_low=low,
            ratio_high=high,
            comparison=self.maybe(outcome(here, here - low), "ambiguous", 0.9),
            weight=self.drawn.choice([1.0, 3.0, 1e-6, 1e6]),
            min_detectable_pct=self.maybe(self.drawn.uniform(0.1, 5.0)),
            call_ratio=self.maybe(call),
            call_ratio_low=self.maybe(call_low),
            call_ratio_high=self.maybe(call_high, often=0.95),
            launch_bound=self.drawn.random() < 0.1,
            first_call_s=self.maybe(5.0, 500.0, 0.98),
            hidden=self.drawn.random() < 0.1,
            speed_of_light_pct=light,
            headroom=None if light is None else 100 / light,
        )

    def timing(self, against: int, around: float = 1.0) -> Timing:
        low, ratio, high = self.ratio(around)
        cases = [self.case(name, ratio) for name in "abc" if self.drawn.random() < 0.98]
        said = self.maybe(outcome(ratio, ratio - low), self.drawn.choice(["faster", "slower", "same", "ambiguous"]))
        return Timing(against=against, ratio=ratio, ratio_low=low, ratio_high=high, comparison=said, cases=cases)

    def confirmation(self, against: int) -> Confirmation:
        other = self.maybe(against, against + 1, 0.95)
        return Confirmation(
            kind=self.maybe(Kind.OK, self.drawn.choice(ENDED), 0.9),
            hidden_checked=self.drawn.randrange(3),
            timing=self.maybe(self.timing(other, 1.1), often=0.9),
        )

    def evidence(self, incumbent: int) -> Evidence:
        if self.drawn.random() < 0.2:
            return failed(self.drawn.choice(ENDED), problem=None)
        against = [number for number in dict.fromkeys([0, incumbent]) if self.drawn.random() < 0.95]
        shares = [self.maybe(self.drawn.uniform(1.0, 101.0)) for _ in "abc"]
        own = [case_time(name, speed_of_light_pct=share) for name, share in zip("abc", shares, strict=True)]
        found = diagnosed(*self.maybe([finding("V1"), finding("P1")], []), done=self.maybe("at its floor", often=0.1))
        return Evidence(
            kind=Kind.OK,
            stage="done",
            launches=self.maybe([launch(registers=self.drawn.choice([None, 64, 255]))], []),
            own=self.maybe(own, []),
            timings=[self.timing(number, 1.1) for number in against],
            untimed=self.maybe(None, "there is no GPU", 0.95),
            confirmation=self.maybe(self.confirmation(incumbent), often=0.9),
            diagnosed=self.maybe(found),
        )

    def run(self) -> Memory:
        budget = Budget(
            attempts=self.drawn.randint(1, 12),
            wall_s=self.maybe(None, 100.0, 0.9),
            target_pct=self.drawn.choice([50.0, 95.0, 100.0]),
            target_ratio=self.maybe(None, 20.0),
            failed_count=self.drawn.random() < 0.7,
        )
        limits = Limits(
            case_regression_pct=self.drawn.choice([0.0, 1.0, 400.0]),
            total_regression_pct=self.drawn.choice([0.0, 2.0, 400.0]),
            first_call_s=self.maybe(120.0),
            registers=self.maybe(None, 128),
            shared_bytes=self.maybe(None, 512),
        )
        own = [case_time(name, speed_of_light_pct=self.maybe(self.drawn.uniform(1.0, 90.0))) for name in "ab"]
        first = self.maybe(baseline(*own), baseline(untimed="there is no GPU", own=[]), 0.95)
        return Memory(attempts=[first], incumbent=0, budget=budget, limits=limits, elapsed_s=self.drawn.uniform(0, 120))


def after(run: Memory, its: Evidence, verdict: Verdict, parent: int) -> Memory:
    """The run with its next attempt, as the server keeps it."""
    number = len(run.attempts)
    counted = its.kind is Kind.OK or run.budget.failed_count
    made = attempt(number, its, parent=parent, counted=counted, accepted=verdict.accepted, verdict=verdict)
    incumbent = number if verdict.accepted else run.incumbent
    return run.model_copy(update={"attempts": [*run.attempts, made], "incumbent": incumbent})


def check_words(verdict: Verdict) -> None:
    assert 1 <= len(verdict.reasons) <= 5
    assert all(0 < len(reason) < 200 for reason in verdict.reasons)
    assert (verdict.verdict == "finish") == (verdict.ended_by is not None) == (verdict.lever is None)
    assert verdict.accepted or verdict.verdict != "accept"
    assert not (verdict.accepted and verdict.verdict == "continue")


def check_accepted(its: Evidence, run: Memory) -> None:
    """What any accepted candidate has shown, said a second time."""
    assert its.kind is Kind.OK
    assert its.untimed is None
    assert its.confirmation is not None
    assert its.confirmation.kind is Kind.OK
    first, second = its.timing(run.incumbent), its.confirmation.timing
    for measured in (first, second):
        assert measured is not None
        assert measured.against == run.incumbent
        assert measured.comparison == "faster"
        assert measured.ratio_low > 1
        allowed = 1 / (1 + run.limits.case_regression_pct / 100)
        assert all(case.ratio_high >= allowed for case in measured.cases)
        allowed = 1 / (1 + run.limits.total_regression_pct / 100)
        assert all((case.call_ratio_high or allowed) >= allowed for case in measured.cases)
    for launched in its.launches:
        assert (launched.facts.registers or 0) <= (run.limits.registers or 1000)
        assert launched.facts.shared_bytes <= (run.limits.shared_bytes or 10**6)


def best_kept(run: Memory, before: Memory) -> bool:
    """Whether a new incumbent is as fast as the old one, as far as intervals and limit tell."""
    new, old = score_of(run.attempts[run.incumbent]), score_of(before.attempts[before.incumbent])
    if old is None or before.incumbent == 0:
        return new is not None
    return new is not None and new.high >= old.low / (1 + run.limits.case_regression_pct / 100)


@pytest.mark.parametrize("seed", range(40))
def test_whatever_is_measured_a_run_accepts_only_gains_keeps_its_best_and_ends(seed: int) -> None:
    chance = Chance(random.Random(seed))
    for _ in range(12):
        run = chance.run()
        # Failures that don't count may go on for ever.
        for _ in range(60):
            its = chance.evidence(run.incumbent)
            verdict = decide(its, run)
            assert decide(its, run) == verdict
            check_words(verdict)
            assert verdict.accepted == (refusal(its, run) is None)
            if promising(its, run) is not None:
                assert not verdict.accepted
            if verdict.accepted:
                check_accepted(its, run)
            before, run = run, after(run, its, verdict, suggest_parent(run).number)
            if verdict.accepted:
                assert best_kept(run, before)
            assert run.incumbent == 0 or run.attempts[run.incumbent].accepted
            assert ends(run) == verdict.ended_by
            assert front(run).cases is not None
            used = sum(each.counted for each in run.attempts)
            assert used <= run.budget.attempts
            if verdict.verdict == "finish":
                break
            assert used < run.budget.attempts


@pytest.mark.parametrize("seed", range(20))
def test_a_run_takes_no_more_attempts_than_its_budget_has(seed: int) -> None:
    chance = Chance(random.Random(seed))
    for _ in range(20):
        run = chance.run()
        run = run.model_copy(update={"budget": run.budget.model_copy(update={"failed_count": True})})
        taken = 0
        while ends(run) is None:
            its = chance.evidence(run.incumbent)
            run = after(run, its, decide(its, run), 0)
            taken += 1
        assert taken <= run.budget.attempts


def test_nothing_is_accepted_whose_interval_includes_1_in_either_measurement() -> None:
    drawn = random.Random(11)
    for _ in range(500):
        low, high = sorted([drawn.uniform(0.9, 1.0), drawn.uniform(1.0, 1.2)])
        vague = {"ratio": (low + high) / 2, "ratio_low": low, "ratio_high": high, "comparison": "faster"}
        its = evidence(1.2, confirmation=Chance(drawn).confirmation(0).model_copy(update={"kind": Kind.OK}))
        good = its.timings[0]
        for first, second in ((good.model_copy(update=vague), good), (good, good.model_copy(update=vague))):
            said = {"timings": [first], "confirmation": Confirmation(kind=Kind.OK, hidden_checked=1, timing=second)}
            assert not decide(its.model_copy(update=said), Memory(
                attempts=[baseline()], incumbent=0, budget=Budget(), limits=Limits(), elapsed_s=1.0
            )).accepted  # fmt: skip


def test_whatever_is_missing_a_verdict_comes() -> None:
    bare = Evidence(kind=Kind.OK, stage="done")
    lost = Memory(attempts=[], incumbent=7, budget=Budget(), limits=Limits(), elapsed_s=-1.0)
    strays = [attempt(3, None), attempt(9, bare, parent=9), attempt(9, evidence(1.2), parent=4)]
    for run in (lost, lost.model_copy(update={"attempts": strays}), lost.model_copy(update={"incumbent": 9})):
        for its in (bare, evidence(1.2), evidence(1.2, against=7), failed(problem=None)):
            check_words(decide(its, run))
            assert decide(its, run).verdict != "accept"


def simulated(drawn: random.Random, true: float, noise: float, against: int) -> Timing:
    """A comparison as it is measured: an interval of 95 %, `faster` at 99.9 %."""
    ratio = true * (1 + drawn.gauss(0, noise))
    said = "faster" if ratio - 3.3 * noise > 1.001 else "slower" if ratio + 3.3 * noise < 0.999 else "ambiguous"
    cases = [case_timing("a", ratio, 1.96 * noise, comparison=said)]
    return Timing(
        against=against, ratio=ratio, ratio_low=ratio - 1.96 * noise, ratio_high=ratio + 1.96 * noise,
        comparison=said, cases=cases,
    )  # fmt: skip


def test_identical_kernels_are_not_accepted_and_real_gains_are() -> None:
    drawn = random.Random(17)

    def accepts(true: float) -> int:
        count = 0
        for _ in range(400):
            noise = drawn.choice([0.0005, 0.002])
            second = Confirmation(kind=Kind.OK, hidden_checked=0, timing=simulated(drawn, true, noise, 0))
            its = evidence(1.0, timings=[simulated(drawn, true, noise, 0)], confirmation=second)
            run = Memory(attempts=[baseline()], incumbent=0, budget=Budget(), limits=Limits(), elapsed_s=1.0)
            count += decide(its, run).accepted
        return count

    assert accepts(1.0) == 0
    assert accepts(1.02) > 390


def test_over_a_whole_run_the_true_speed_of_the_incumbent_never_falls() -> None:
    drawn = random.Random(23)
    for _ in range(60):
        true, incumbent, best = {0: 1.0}, 0, [1.0]
        run = Memory(attempts=[baseline()], incumbent=0, budget=Budget(attempts=10), limits=Limits(), elapsed_s=1.0)
        for number in range(1, 11):
            true[number] = true[incumbent] * drawn.choice([0.9, 0.999, 1.0, 1.004, 1.05])
            against = dict.fromkeys([0, incumbent])
            timings = [simulated(drawn, true[number] / true[other], 0.001, other) for other in against]
            again = simulated(drawn, true[number] / true[incumbent], 0.001, incumbent)
            its = evidence(
                1.0, timings=timings, confirmation=Confirmation(kind=Kind.OK, hidden_checked=0, timing=again)
            )
            verdict = decide(its, run)
            run = after(run, its, verdict, incumbent)
            incumbent = run.incumbent
            best.append(true[incumbent])
            if verdict.verdict == "finish":
                break
        assert best == sorted(best)


def histories() -> list[Attempt]:
    chance = Chance(random.Random(1))
    return [attempt(number, chance.evidence(0)) for number in range(1, 4)]


def test_the_same_histories_are_made_up_every_time() -> None:
    assert histories() == histories()
