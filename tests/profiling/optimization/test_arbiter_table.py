"""Each row of the decision table has a made-up case here, and stands in the documentation as the code has it."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tritonforge.profiling.optimization.arbiter import decide, promising, refusal
from tritonforge.profiling.optimization.ending import ENDINGS
from tritonforge.profiling.optimization.model import Budget, Confirmation, Evidence, Limits, Memory
from tritonforge.profiling.optimization.objections import AGAIN, BEFORE, CONFIRMED, HOST, LIMITS, MEASURED
from tritonforge.sandbox.outcome import Kind

from .made_up import (
    attempt,
    baseline,
    case_time,
    case_timing,
    confirmation,
    diagnosed,
    evidence,
    failed,
    launch,
    memory,
    problem,
    timing,
)

PAGE = Path(__file__).parents[3] / "docs" / "optimization-runs.md"
RULES = {**BEFORE, **MEASURED, **HOST, **LIMITS, **CONFIRMED}
GOOD = evidence(1.2, confirmation=confirmation(1.2))
"""What is accepted as it is."""
LOSING = [case_timing("a", 1.5), case_timing("b", 0.97)]
HOST_LOSING = [case_timing("a", 1.2, call_ratio=0.9, call_ratio_low=0.89, call_ratio_high=0.91)]
BOUND = [case_timing("a", 1.2, launch_bound=True, call_ratio=1.0, call_ratio_low=0.99, call_ratio_high=1.01)]
BEST = attempt(1, evidence(1.5), accepted=True)


def again(**changed: object) -> Evidence:
    """What only the second measurement speaks against."""
    return GOOD.model_copy(update={"confirmation": Confirmation(kind=Kind.OK, hidden_checked=1, **changed)})  # pyright: ignore[reportArgumentType] - fields of it


def changed(**fields: object) -> Evidence:
    return GOOD.model_copy(update=fields)


CASES: dict[str, tuple[Evidence, Memory]] = {
    "failed": (failed(Kind.WRONG, problem=problem("row 3 is off by 0.5")), memory()),
    "untimed": (evidence(), memory()),
    "not_measured": (GOOD, memory(baseline(), BEST, incumbent=1)),
    "incomplete": (GOOD, memory(baseline(case_time("a"), case_time("b")))),
    "slower": (evidence(0.9), memory()),
    "not_faster": (evidence(1.002), memory()),
    "case_slower": (changed(timings=[timing(1.2, cases=LOSING)]), memory()),
    "call_slower": (changed(timings=[timing(1.2, cases=HOST_LOSING)]), memory()),
    "host_bound": (changed(timings=[timing(1.2, cases=BOUND)]), memory()),
    "below_best": (
        evidence(1.2, against=1, to_baseline=1.3, confirmation=confirmation(1.2, against=1)),
        memory(baseline(), BEST, incumbent=1),
    ),
    "registers": (changed(launches=[launch(registers=200)]), memory(limits=Limits(registers=168))),
    "shared_memory": (changed(launches=[launch(shared_bytes=4096)]), memory(limits=Limits(shared_bytes=2048))),
    "first_call": (changed(own=[case_time(first_call_s=130.0)]), memory()),
    "unconfirmed": (evidence(1.2), memory()),
    "confirmation_failed": (
        changed(confirmation=confirmation(kind=Kind.WRONG, timing=None, problem=problem("a hidden case is wrong"))),
        memory(),
    ),
    "confirmed_elsewhere": (changed(confirmation=confirmation(1.2, against=7)), memory()),
    "again_slower": (again(timing=timing(0.9)), memory()),
    "again_not_faster": (again(timing=timing(1.002)), memory()),
    "again_case_slower": (again(timing=timing(1.2, cases=LOSING)), memory()),
    "again_call_slower": (again(timing=timing(1.2, cases=HOST_LOSING)), memory()),
}
SAYS = {
    "failed": r"^wrong at correctness: row 3 is off by 0\.5$",
    "untimed": "there is no GPU",
    "not_measured": "not timed beside attempt 1$",
    "incomplete": "not timed: case b$",
    "slower": r"^slower than the baseline: 0\.900x \(0\.896 to 0\.904\)$",
    "not_faster": r"^not faster than the baseline beyond noise: 1\.002x .* 0\.4 % on can be seen$",
    "case_slower": r"^case b is slower than with the baseline: 0\.970x .*, 1 % may be lost$",
    "call_slower": r"^whole calls of case a are slower than with the baseline: 0\.910x at most, 2 % may be lost$",
    "host_bound": r"only the device gained .* whole calls did not gain: 1\.000x",
    "below_best": r"beside the baseline 1\.300x .* where attempt 1 had 1\.500x",
    "registers": "^200 registers a thread, 168 are allowed$",
    "shared_memory": "^4096 bytes of shared memory a block, 2048 are allowed$",
    "first_call": "took 130 s, 120 s are allowed$",
    "unconfirmed": "not confirmed",
    "confirmation_failed": "ended as wrong: a hidden case is wrong$",
    "confirmed_elsewhere": "not timed a second time beside the baseline$",
    "again_slower": "^measured a second time: slower than the baseline",
    "again_not_faster": "^measured a second time: not faster than the baseline",
    "again_case_slower": "^measured a second time: case b is slower",
    "again_call_slower": "^measured a second time: whole calls of case a are slower",
}


@pytest.mark.parametrize("rule", list(CASES))
def test_a_rule_refuses_its_case_alone_and_says_why_with_numbers(rule: str) -> None:
    its, known = CASES[rule]
    refused = refusal(its, known)
    assert refused is not None
    assert list(refused.objections) == [rule]
    verdict = decide(its, known)
    assert (verdict.verdict, verdict.accepted, verdict.ended_by) == ("continue", False, None)
    assert re.search(SAYS[rule], verdict.reasons[0]), verdict.reasons
    assert verdict.lever


@pytest.mark.parametrize("rule", [rule for rule in CASES if rule in {**BEFORE, **MEASURED, **HOST, **LIMITS}])
def test_what_the_first_look_refuses_gets_no_second_one(rule: str) -> None:
    its, known = CASES[rule]
    assert promising(its.model_copy(update={"confirmation": None}), known) is not None


@pytest.mark.parametrize("rule", [rule for rule in CASES if rule not in {**BEFORE, **MEASURED, **HOST, **LIMITS}])
def test_what_only_the_second_look_refuses_was_promising(rule: str) -> None:
    its, known = CASES[rule]
    assert promising(its, known) is None


def done(number: int, ratio: float) -> Callable[[], Memory]:
    misses = [attempt(each, evidence(1.0), counted=False) for each in range(2, number + 2)]
    share = case_time(device_us=100 / ratio, speed_of_light_pct=90.0)
    best = attempt(1, evidence(ratio, own=[share]), accepted=True)
    return lambda: memory(baseline(), best, *misses, incumbent=1)


def missed(count: int, **its: object) -> Memory:
    """The baseline is the incumbent, and nothing was faster."""
    return memory(
        baseline(**its), *(attempt(each, evidence(1.0)) for each in range(1, count + 1)), budget=Budget(attempts=12)
    )


ENDED: dict[str, tuple[Evidence, Memory]] = {
    "target": (GOOD, memory(budget=Budget(target_ratio=1.19))),
    "speed_of_light": (changed(own=[case_time(speed_of_light_pct=96.0)]), memory()),
    "budget": (failed(), memory(budget=Budget(attempts=1))),
    "wall_time": (failed(), memory(budget=Budget(wall_s=60.0))),
    "diminishing_returns": (evidence(1.0), missed(5)),
}


@pytest.mark.parametrize("by", list(ENDED))
def test_an_ending_ends_its_case(by: str) -> None:
    its, known = ENDED[by]
    verdict = decide(its, known)
    assert (verdict.verdict, verdict.ended_by, verdict.lever) == ("finish", by, None)
    assert verdict.accepted == (by in ("target", "speed_of_light"))
    assert re.search(r"\d", verdict.reasons[0])


def test_what_is_faster_twice_is_accepted() -> None:
    verdict = decide(GOOD, memory())
    assert (verdict.verdict, verdict.accepted) == ("accept", True)
    assert verdict.reasons[0].count("1.200x (1.196 to 1.204)") == 2


def test_every_rule_of_the_code_has_a_case() -> None:
    assert list(CASES) == [*RULES, *(f"{AGAIN}{rule}" for rule in MEASURED)]
    assert list(ENDED) == list(ENDINGS)


def in_words(rule: object) -> str:
    return " ".join((rule.__doc__ or "").split()).removesuffix(".")


def rows(heading: str) -> list[tuple[str, str]]:
    """Name and condition of each row of the table under a heading."""
    section = PAGE.read_text().partition(f"\n### {heading}\n")[2].partition("\n#")[0]
    return re.findall(r"^\| `(\w+)` \| (.+?) \|", section, re.MULTILINE)


def test_the_documented_table_is_that_of_the_code() -> None:
    expected = [(name, in_words(rule)) for name, rule in RULES.items()]
    expected += [(f"{AGAIN}{name}", f"As `{name}`, of the second measurement") for name in MEASURED]
    assert rows("What speaks against a candidate") == expected
    assert rows("What ends a run") == [(name, in_words(rule)) for name, rule in ENDINGS.items()]


def test_a_diagnosis_that_knows_nothing_more_makes_three_sharp_misses_enough() -> None:
    run = missed(2, diagnosed=diagnosed(done="at its floor"))
    assert decide(evidence(1.0), run).ended_by == "diminishing_returns"
    assert decide(evidence(1.0, timings=[timing(1.0, width=0.02)]), run).ended_by is None
