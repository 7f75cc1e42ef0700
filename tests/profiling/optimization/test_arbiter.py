from typing import Any

import pytest

from tritonforge.profiling.optimization.arbiter import decide, promising, refusal, score_of, share_of_light
from tritonforge.profiling.optimization.model import Attempt, Budget, CaseTiming, Evidence, Limits, Memory, Timing
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
    finding,
    launch,
    memory,
    problem,
    timing,
)

NEW = Memory(attempts=[], incumbent=0, budget=Budget(), limits=Limits(), elapsed_s=1.0)
"""A run whose baseline is about to be judged."""


def of_baseline(**changed: Any) -> Evidence:
    its = baseline(**changed).evidence
    assert its is not None
    return its


def accepted(number: int, ratio: float, **changed: Any) -> Attempt:
    return attempt(number, evidence(ratio, **changed), accepted=True)


# The baseline


def test_the_baseline_is_no_candidate_and_is_told_how_far_it_is() -> None:
    its = of_baseline(own=[case_time(speed_of_light_pct=12.3)], diagnosed=diagnosed(finding("V1", "narrow loads")))
    verdict = decide(its, NEW)
    assert (verdict.verdict, verdict.accepted) == ("continue", False)
    assert "12.3 % of the speed of light" in verdict.reasons[0]
    assert verdict.lever == "V1 narrow loads (line 12): mend narrow loads"


def test_a_baseline_at_the_target_ends_its_run() -> None:
    verdict = decide(of_baseline(own=[case_time(speed_of_light_pct=97.0)]), NEW)
    assert (verdict.verdict, verdict.ended_by, verdict.accepted) == ("finish", "speed_of_light", False)


@pytest.mark.parametrize(
    ("its", "said"),
    [
        (of_baseline(untimed="there is no GPU", own=[]), "there is no GPU"),
        (of_baseline(), "not known"),
        (failed(Kind.WRONG), "ended as wrong: it is wrong"),
    ],
    ids=["untimed", "no work() in the task", "failed"],
)
def test_of_a_baseline_that_tells_nothing_it_is_said_why(its: Evidence, said: str) -> None:
    verdict = decide(its, NEW)
    assert verdict.verdict == "continue"
    assert said in verdict.reasons[0]


# Acceptance


def test_an_accepted_candidate_is_told_with_all_its_numbers() -> None:
    cases = [
        case_timing("a", 1.3, launch_bound=True),
        case_timing("b", 1.2),
        case_timing("c", 0.995, width=0.002),
    ]
    its = evidence(
        1.2,
        against=1,
        own=[case_time("a", speed_of_light_pct=40.0), case_time("b", speed_of_light_pct=90.0)],
        timings=[timing(1.8), timing(1.2, 1, cases=cases)],
        confirmation=confirmation(1.19, against=1),
    )
    verdict = decide(its, memory(baseline(), accepted(1, 1.5), incumbent=1))
    assert verdict.verdict == "accept"
    assert verdict.reasons == [
        "faster than attempt 1: 1.200x (1.196 to 1.204), and 1.190x (1.186 to 1.194) at a second look "
        "with fresh seeds, right in 2 hidden cases",
        "beside the baseline: 1.800x (1.796 to 1.804)",
        "at 60.0 % of the speed of light",
        "slower within the limit: c 0.995x (0.993 to 0.997)",
        "callers wait for the host in a: whole calls 1.300x (1.296 to 1.304)",
    ]


def test_a_candidate_can_be_accepted_and_end_the_run() -> None:
    its = evidence(1.2, confirmation=confirmation(1.2))
    verdict = decide(its, memory(budget=Budget(attempts=1)))
    assert (verdict.verdict, verdict.accepted, verdict.ended_by, verdict.lever) == ("finish", True, "budget", None)
    assert len(verdict.reasons) == 2


@pytest.mark.parametrize(
    ("bound", "calls", "why"),
    [
        ([True, True], (1.05, 1.02), None),
        ([True, True], (1.01, 0.99), "did not gain"),
        ([True, True], None, "could not be timed"),
        ([True, False], (1.0, 0.99), None),
        ([False, False], (1.0, 0.99), None),
    ],
    ids=["callers gain", "only the device gains", "calls not timed", "another case gains for callers", "not bound"],
)
def test_a_gain_that_no_caller_sees_is_none(
    bound: list[bool], calls: tuple[float, float] | None, why: str | None
) -> None:
    ratio, low = calls or (None, None)
    high = None if ratio is None or low is None else 2 * ratio - low
    cases = [
        case_timing(name, 1.2, launch_bound=each, call_ratio=ratio, call_ratio_low=low, call_ratio_high=high)
        for name, each in zip("ab", bound, strict=True)
    ]
    refused = promising(evidence(1.2, timings=[timing(1.2, cases=cases)]), memory())
    assert (None if refused is None else list(refused.objections)) == (None if why is None else ["host_bound"])
    assert refused is None or (why is not None and why in refused.reasons[0])


def refused_case(*cases: CaseTiming, **limits: float) -> list[str]:
    """Rules that refuse a candidate that is 1.2 times as fast altogether."""
    its = evidence(1.2, timings=[timing(1.2, cases=[case_timing("a", 1.5), *cases])])
    refused = promising(its, memory(limits=Limits.model_validate(limits)))
    return [] if refused is None else list(refused.objections)


def test_a_case_may_lose_what_its_limit_allows_or_its_noise_hides() -> None:
    assert refused_case(case_timing("b", 0.97)) == ["case_slower"]
    assert refused_case(case_timing("b", 0.97), case_regression_pct=5, total_regression_pct=5) == []
    assert refused_case(case_timing("b", 0.985, width=0.01)) == ["case_slower"]
    assert refused_case(case_timing("b", 0.985, width=0.02)) == []
    assert refused_case(case_timing("b", 0.995, width=0.001)) == []
    assert refused_case(case_timing("b", 0.995, width=0.001), case_regression_pct=0) == ["case_slower"]


def test_a_whole_call_may_lose_what_its_limit_allows_or_its_noise_hides() -> None:
    def calls(ratio: float, width: float) -> CaseTiming:
        return case_timing("b", 1.1, call_ratio=ratio, call_ratio_low=ratio - width, call_ratio_high=ratio + width)

    assert refused_case(calls(0.95, 0.01)) == ["call_slower"]
    assert refused_case(calls(0.95, 0.01), total_regression_pct=10) == []
    assert refused_case(calls(0.95, 0.05)) == []
    assert refused_case(case_timing("b", 1.1, call_ratio=None, call_ratio_low=None, call_ratio_high=None)) == []


def test_a_contradiction_needs_more_than_the_intervals_and_the_limit() -> None:
    run = memory(baseline(), accepted(1, 1.5), incumbent=1)

    def refused(to_baseline: float) -> bool:
        its = evidence(1.02, against=1, to_baseline=to_baseline, confirmation=confirmation(1.02, against=1))
        return refusal(its, run) is not None

    assert not refused(1.53)
    assert not refused(1.485)
    assert not refused(1.479)
    assert refused(1.47)


def test_a_faster_score_whose_interval_reaches_1_is_not_accepted() -> None:
    verdict = decide(evidence(1.2, timings=[timing(1.2, ratio_low=0.999)], confirmation=confirmation(1.2)), memory())
    assert not verdict.accepted
    assert "the interval reaches 1" in verdict.reasons[0]


def test_all_that_speaks_against_a_candidate_is_told_most_important_first() -> None:
    cases = [case_timing("a", 1.01), case_timing("b", 0.9)]
    its = evidence(1.0, timings=[timing(1.0, cases=cases)], own=[case_time(first_call_s=500)])
    refused = promising(its, memory())
    assert refused is not None
    assert list(refused.objections) == ["not_faster", "case_slower", "first_call"]
    assert decide(its, memory()).lever == refused.lever == refused.objections["case_slower"].lever


def test_of_much_that_speaks_against_a_candidate_five_reasons_are_told() -> None:
    cases = [
        case_timing("a", 1.0, call_ratio_high=0.5),
        case_timing("b", 0.9),
    ]
    its = evidence(
        timings=[timing(1.1), timing(1.0, 1, cases=cases)],
        untimed=None,
        own=[case_time(first_call_s=500)],
        launches=[launch(registers=255, shared_bytes=4096)],
    )
    limits = Limits(registers=128, shared_bytes=1024)
    run = memory(baseline(), accepted(1, 1.5), incumbent=1, limits=limits)
    refused = refusal(its, run)
    assert refused is not None
    assert len(refused.reasons) == 6
    assert decide(its, run).reasons == refused.reasons[:5]


def test_limits_may_be_reached() -> None:
    its = evidence(1.2, launches=[launch(registers=128, shared_bytes=1024)], own=[case_time(first_call_s=120)])
    assert promising(its, memory(limits=Limits(registers=128, shared_bytes=1024))) is None


@pytest.mark.parametrize("timings", [[], [timing(1.2)], [timing(1.2, 1)], [timing(1.5), timing(1.2, 2)]])
def test_a_candidate_is_timed_beside_the_incumbent_and_the_baseline(timings: list[Timing]) -> None:
    refused = promising(evidence(1.2, timings=timings), memory(baseline(), accepted(1, 1.1), incumbent=1))
    assert refused is not None
    assert list(refused.objections) == ["not_measured"]


def test_a_comparison_without_cases_tells_nothing() -> None:
    its = evidence(1.2, timings=[timing(1.2).model_copy(update={"cases": []})])
    refused = promising(its, memory(baseline(own=[])))
    assert refused is not None
    assert list(refused.objections) == ["incomplete"]


def test_what_a_hidden_case_is_called_is_told_nobody() -> None:
    slow = case_timing(
        "secret", 0.5, hidden=True, call_ratio=0.5, call_ratio_low=0.49, call_ratio_high=0.51, launch_bound=True
    )
    fast = [case_timing("a", 1.5), slow]
    its = evidence(1.2, confirmation=confirmation(1.2, timing=timing(1.2, cases=fast)))
    for case_pct, total_pct in ((1, 2), (200, 2), (200, 200)):
        limits = Limits(case_regression_pct=case_pct, total_regression_pct=total_pct)
        verdict = decide(its, memory(limits=limits))
        assert "secret" not in verdict.model_dump_json()
        assert ("a hidden case" in verdict.reasons[0]) == (not verdict.accepted)
    first = decide(its.model_copy(update={"timings": [timing(1.2, cases=fast)]}), memory())
    assert "secret" not in first.model_dump_json()


def test_what_a_kernel_says_is_cut_and_put_on_one_line() -> None:
    its = failed(problem=problem("line\n" * 10_000, likely_fix="x" * 10_000))
    verdict = decide(its, memory())
    assert len(verdict.reasons[0]) < 200
    assert "\n" not in verdict.reasons[0]
    assert verdict.lever is not None
    assert len(verdict.lever) < 200


# What to try next


def test_a_failure_is_mended_first() -> None:
    its = failed(problem=problem(likely_fix="mask the last tile"))
    assert decide(its, memory(baseline(diagnosed=diagnosed(finding())))).lever == "mask the last tile"


def test_else_it_is_a_finding_of_the_incumbent_that_nothing_was_tried_for() -> None:
    found = diagnosed(finding("V1", "narrow loads"), finding("P1", "loads without a pipeline"))
    run = memory(baseline(diagnosed=found), attempt(1, evidence(1.0), strategy="V1: wider loads"))
    lever = decide(evidence(1.0), run).lever
    assert lever is not None
    assert lever.startswith("P1 loads without a pipeline (line 12 of the baseline)")
    better = evidence(1.2, diagnosed=diagnosed(finding("G1", "an uneven last wave")), confirmation=confirmation(1.2))
    lever = decide(better, run).lever
    assert lever is not None
    assert lever.startswith("G1")


def test_what_is_being_tried_is_not_what_to_try_next() -> None:
    run = memory(baseline(diagnosed=diagnosed(finding("V1", "narrow loads"), finding("P1", "no pipeline"))))
    assert (decide(evidence(1.0), run).lever or "").startswith("V1")
    assert (decide(evidence(1.0), run, "V1: wider loads").lever or "").startswith("P1")


def test_where_nothing_can_be_timed_the_next_finding_is_the_candidates_own() -> None:
    run = memory(baseline(diagnosed=diagnosed(finding("L7", "two passes", line=22))))
    its = evidence(diagnosed=diagnosed(finding("R1", "registers spill", line=9)))
    assert decide(its, run).lever == "R1 registers spill (line 9): mend registers spill"
    assert decide(evidence(), run).lever == "L7 two passes (line 22 of the baseline): mend two passes"


def test_else_the_case_with_most_left_counted_by_weight() -> None:
    own = [case_time("a", headroom=4.0), case_time("b", headroom=3.0, weight=5.0), case_time("c", headroom=1.0)]
    cases = [case_timing(each.case, 1.0) for each in own]
    verdict = decide(evidence(1.0, timings=[timing(1.0, cases=cases)]), memory(baseline(*own)))
    assert verdict.lever == "most is left in case b: at most 3.00x"


# Scores


def test_the_share_of_light_is_a_weighted_geometric_mean_of_the_visible_cases() -> None:
    cases = [case_time("a", speed_of_light_pct=20.0), case_time("b", speed_of_light_pct=80.0, weight=3.0)]
    assert share_of_light(cases) == pytest.approx((20.0 * 80.0**3) ** 0.25)
    assert share_of_light([*cases, case_time("c")]) is None
    assert share_of_light([]) is None
    hidden = [case_timing("a", speed_of_light_pct=50.0), case_timing("b", hidden=True)]
    assert share_of_light(hidden) == pytest.approx(50.0)


@pytest.mark.parametrize(
    ("of", "score"),
    [
        (baseline(), (1.0, 1.0, 1.0)),
        (attempt(1, evidence(1.2)), (1.2, 1.196, 1.204)),
        (attempt(2, evidence(1.1, against=1, to_baseline=1.5)), (1.5, 1.496, 1.504)),
        (attempt(1, evidence()), None),
        (attempt(1, failed()), None),
        (attempt(1, evidence(1.2).model_copy(update={"kind": Kind.CHEATING})), None),
        (attempt(1, evidence(1.2, confirmation=confirmation(kind=Kind.WRONG))), None),
        (attempt(1, None), None),
    ],
)
def test_the_score_is_beside_the_baseline_and_only_of_what_is_right(
    of: Attempt, score: tuple[float, float, float] | None
) -> None:
    found = score_of(of)
    assert (None if found is None else tuple(found)) == (None if score is None else pytest.approx(score))
