from collections.abc import Sequence
from typing import Any

import pytest

from tritonforge.profiling.optimization.arbiter import decide, ends
from tritonforge.profiling.optimization.model import Attempt, Budget, Memory
from tritonforge.sandbox.outcome import Kind

from .made_up import attempt, baseline, case_time, confirmation, evidence, failed, memory, timing


def accepted(number: int, ratio: float, **changed: Any) -> Attempt:
    return attempt(number, evidence(ratio, **changed), accepted=True)


def run_of(*ratios: float | None, width: float = 0.004, attempts: int = 12, **its: Any) -> Memory:
    """A run whose incumbent is the baseline, all along; None stands for a failure."""
    made = [
        attempt(number, failed() if ratio is None else evidence(timings=[timing(ratio, width=width)], untimed=None))
        for number, ratio in enumerate(ratios, 1)
    ]
    return memory(baseline(**its), *made, budget=Budget(attempts=attempts))


NEAR: dict[str, Any] = {"own": [case_time(speed_of_light_pct=88.0)]}
FAR: dict[str, Any] = {"own": [case_time(speed_of_light_pct=20.0)]}


@pytest.mark.parametrize(
    ("ratios", "width", "attempts", "its", "over"),
    [
        ([1.0] * 3, 0.004, 12, NEAR, True),
        ([1.0] * 2, 0.004, 12, NEAR, False),
        ([1.0, 0.8, 1.003], 0.004, 12, NEAR, True),
        ([1.0] * 3, 0.02, 12, NEAR, False),
        ([1.0, 1.0, 1.02], 0.004, 12, NEAR, False),
        ([1.02, 1.0, 1.0], 0.004, 12, NEAR, False),
        ([1.02, 1.0, 1.0, 1.0], 0.004, 12, NEAR, True),
        ([1.0, None, 1.0, None, 1.0], 0.004, 12, NEAR, True),
        ([1.0, None, None, 1.0], 0.004, 12, NEAR, False),
        ([1.0] * 5, 0.004, 12, {}, False),
        ([1.0] * 6, 0.02, 12, {}, True),
        ([1.0] * 4, 0.004, 6, {}, True),
        ([1.0] * 3, 0.004, 6, {}, False),
        ([None] * 8, 0.004, 12, {}, False),
        ([1.0] * 8, 0.004, 12, FAR, False),
        ([1.0] * 9, 0.004, 12, FAR, True),
        ([1.0] * 5, 0.004, 8, FAR, False),
        ([1.0] * 6, 0.004, 8, FAR, True),
        ([1.0] * 14, 0.004, 20, FAR, False),
        ([1.0] * 15, 0.004, 20, FAR, True),
    ],
)  # fmt: skip
def test_returns_diminish_by_the_runs_own_history(
    ratios: Sequence[float | None], width: float, attempts: int, its: dict[str, Any], over: bool
) -> None:
    run = run_of(*ratios, width=width, attempts=attempts, **its)
    assert ends(run) == ("diminishing_returns" if over else None)


def test_small_gains_that_are_accepted_end_a_run_too() -> None:
    near = [case_time(speed_of_light_pct=90.0)]

    def step(number: int) -> Attempt:
        timings = [timing(1.5 + number / 300), timing(1.003, number - 1, width=0.001)]
        return attempt(number, evidence(timings=timings, untimed=None, own=near), accepted=True)

    steps = [step(number) for number in (2, 3, 4)]
    run = memory(baseline(), accepted(1, 1.5), *steps, incumbent=4)
    assert ends(run) == "diminishing_returns"
    assert ends(run.model_copy(update={"attempts": run.attempts[:-1], "incumbent": 3})) is None


def test_fast_and_wrong_says_nothing_of_what_is_left() -> None:
    cheat = attempt(3, evidence(2.0, confirmation=confirmation(kind=Kind.CHEATING, timing=None)))
    run = run_of(1.0, 1.0, **NEAR)
    assert ends(run.model_copy(update={"attempts": [*run.attempts, cheat]})) is None
    last = attempt(4, evidence(1.0))
    assert ends(run.model_copy(update={"attempts": [*run.attempts, cheat, last]})) == "diminishing_returns"


def test_duplicates_bring_no_end_nearer() -> None:
    run = run_of(1.0, **NEAR)
    echoes = [attempt(number, evidence(1.0), duplicate_of=1, counted=False) for number in range(2, 20)]
    assert ends(run.model_copy(update={"attempts": [*run.attempts, *echoes]})) is None


def test_without_a_gpu_only_the_budget_ends_a_run() -> None:
    untimed = [attempt(number, evidence()) for number in range(1, 12)]
    run = memory(baseline(untimed="there is no GPU", own=[]), *untimed, budget=Budget(attempts=12))
    assert ends(run) is None
    assert decide(evidence(), run).ended_by == "budget"


def test_failures_cost_an_attempt_unless_the_budget_says_otherwise() -> None:
    for failed_count, ended_by in ((True, "budget"), (False, None)):
        run = memory(budget=Budget(attempts=1, failed_count=failed_count))
        assert decide(failed(), run).ended_by == ended_by


def test_a_target_is_reached_by_the_lower_end_of_the_interval() -> None:
    its = evidence(1.2, confirmation=confirmation(1.2))
    assert decide(its, memory(budget=Budget(target_ratio=1.196))).ended_by == "target"
    assert decide(its, memory(budget=Budget(target_ratio=1.2))).ended_by is None
    unknown = attempt(1, evidence(1.2, timings=[timing(1.2, 5)]), accepted=True)
    assert ends(memory(baseline(), unknown, incumbent=1, budget=Budget(target_ratio=1.1))) is None


def test_a_failed_candidate_ends_a_run_that_is_at_its_target() -> None:
    run = memory(baseline(), accepted(1, 3.0), incumbent=1, budget=Budget(target_ratio=2.0))
    assert ends(run) == "target"
    assert decide(failed(), run).ended_by == "target"
