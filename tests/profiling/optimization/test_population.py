import random

import pytest

from tritonforge.profiling.optimization.model import Attempt, Evidence, Memory
from tritonforge.profiling.optimization.population import front, lineage, suggest_parent
from tritonforge.sandbox.outcome import Kind

from .made_up import attempt, baseline, case_time, case_timing, confirmation, evidence, failed, memory, timing


def in_cases(a: float, b: float, *, width: float = 0.01, against: int = 0) -> Evidence:
    """A candidate with these ratios in two cases, beside the baseline and, if that is another, the incumbent."""
    cases = [case_timing("a", a, width), case_timing("b", b, width)]
    score = (a * b) ** 0.5
    both = [timing(score, 0, width, cases), *([timing(0.9, against)] if against else [])]
    own = [case_time("a", 100 / a, headroom=1.5), case_time("b", 100 / b, headroom=3.0)]
    return evidence(score, timings=both, own=own)


def two_cases(*attempts: Attempt, incumbent: int = 0) -> Memory:
    return memory(baseline(case_time("a"), case_time("b")), *attempts, incumbent=incumbent)


def test_the_front_holds_what_none_beats_in_every_case() -> None:
    run = two_cases(
        attempt(1, in_cases(2.0, 1.0)),
        attempt(2, in_cases(1.5, 1.5)),
        attempt(3, in_cases(1.4, 1.5)),
        attempt(4, in_cases(0.5, 4.0)),
        attempt(5, failed()),
    )
    found = front(run)
    assert [member.number for member in found.members] == [2, 1, 4]
    assert {member.number: member.best_in for member in found.members} == {1: ["a"], 2: [], 4: ["b"]}
    assert found.cases == ["a", "b"]


def test_of_equals_the_first_is_kept_and_the_baseline_may_be_on_the_front() -> None:
    run = two_cases(attempt(1, in_cases(0.9, 1.1)), attempt(2, in_cases(0.9, 1.1)))
    assert {member.number for member in front(run).members} == {0, 1}


@pytest.mark.parametrize(
    "out",
    [
        attempt(1, in_cases(3.0, 3.0).model_copy(update={"confirmation": confirmation(kind=Kind.WRONG)})),
        attempt(1, in_cases(3.0, 3.0), duplicate_of=0),
        attempt(1, evidence()),
        attempt(1, evidence(3.0)),
        attempt(1, in_cases(3.0, 3.0), state="interrupted"),
    ],
    ids=["wrong at the second look", "duplicate", "not timed", "not timed in every case", "interrupted"],
)
def test_only_what_is_right_and_timed_is_on_the_front(out: Attempt) -> None:
    assert [member.number for member in front(two_cases(out)).members] == [0]


def test_hidden_cases_are_not_on_the_front() -> None:
    hidden = [*in_cases(2.0, 2.0).timings[0].cases, case_timing("secret", 9.0, hidden=True)]
    run = two_cases(attempt(1, evidence(2.0, timings=[timing(2.0, cases=hidden)])))
    assert "secret" not in front(run).model_dump_json()


def test_without_a_gpu_the_front_is_empty() -> None:
    assert front(memory(baseline(untimed="there is no GPU", own=[]), attempt(1, evidence()))).members == []


def test_no_member_of_a_front_beats_another_and_what_is_left_out_is_beaten() -> None:
    drawn = random.Random(3)
    for _ in range(50):
        ratios = [(drawn.choice([0.5, 1.0, 1.5, 2.0]), drawn.choice([0.5, 1.0, 1.5, 2.0])) for _ in range(8)]
        run = two_cases(*(attempt(number, in_cases(*each)) for number, each in enumerate(ratios, 1)))
        values = dict(enumerate([(1.0, 1.0), *ratios]))
        kept = {member.number for member in front(run).members}
        for number, (a, b) in values.items():
            beaten = any(c >= a and d >= b and (c, d) != (a, b) for c, d in values.values())
            first = min(other for other, each in values.items() if each == (a, b))
            assert (number in kept) == (not beaten and number == first)


def test_lineage_goes_back_to_the_baseline() -> None:
    attempts = [baseline(), attempt(1, evidence(1.1)), attempt(2, evidence(1.2), parent=1), attempt(3, evidence(1.0))]
    assert lineage(attempts, 2) == [0, 1, 2]
    assert lineage(attempts, 3) == [0, 3]
    assert lineage(attempts, 9) == []


def test_lineage_ends_even_where_parents_go_round() -> None:
    assert lineage([attempt(1, None, parent=2), attempt(2, None, parent=1)], 2) == [1, 2]


def branches(*later: Attempt) -> Memory:
    """Attempt 2 is the incumbent, attempt 1 a branch of its own that comes near, attempt 3 one that is best in `b`."""
    return two_cases(
        attempt(1, in_cases(1.9, 1.8)),
        attempt(3, in_cases(0.6, 2.5)),
        attempt(2, in_cases(2.0, 2.0), accepted=True),
        *later,
        incumbent=2,
    )


def test_the_incumbent_is_suggested_at_first() -> None:
    suggested = suggest_parent(branches())
    assert suggested.number == 2
    assert "2.000x" in suggested.why
    assert suggest_parent(branches(attempt(4, in_cases(1.9, 1.9, against=2), parent=2))).number == 2


def test_after_two_misses_from_the_incumbent_another_branch_is_suggested() -> None:
    misses = [attempt(number, in_cases(1.4, 1.4, against=2), parent=2) for number in (4, 5)]
    suggested = suggest_parent(branches(*misses))
    assert suggested.number == 1
    assert "2 attempts from attempt 2" in suggested.why
    assert "idea 1" in suggested.why


def test_then_the_incumbent_again_and_then_the_best_where_most_is_left() -> None:
    misses = [attempt(number, in_cases(1.4, 1.4, against=2), parent=2) for number in (4, 5)]
    followed = attempt(6, in_cases(1.3, 1.3, against=2), parent=1)
    assert suggest_parent(branches(*misses, followed)).number == 2
    more = [attempt(number, in_cases(1.4, 1.4, against=2), parent=2) for number in (7, 8)]
    suggested = suggest_parent(branches(*misses, followed, *more))
    assert suggested.number == 3
    assert "case b" in suggested.why


def test_a_branch_is_another_one_only_if_it_is_strong_and_was_hardly_followed() -> None:
    misses = [attempt(number, in_cases(1.4, 1.4, against=2), parent=2) for number in (4, 5)]
    weak = two_cases(attempt(1, in_cases(1.0, 1.0)), attempt(2, in_cases(2.0, 2.0)), *misses, incumbent=2)
    assert suggest_parent(weak).number == 2
    followed = [attempt(number, in_cases(1.2, 1.2), parent=1) for number in (7, 8)]
    run = branches(*misses)
    assert suggest_parent(run.model_copy(update={"attempts": [*followed, *run.attempts]})).number == 3


def test_a_case_in_which_another_is_faster_is_one_beyond_noise_that_is_not_hidden() -> None:
    misses = [attempt(number, in_cases(1.4, 1.4, against=2), parent=2) for number in (4, 5)]

    def suggested(other: Evidence) -> int:
        return suggest_parent(
            two_cases(attempt(1, other), attempt(2, in_cases(2.0, 2.0), accepted=True), *misses, incumbent=2)
        ).number

    assert suggested(in_cases(0.1, 2.2)) == 1
    assert suggested(in_cases(0.1, 2.2, width=0.3)) == 2
    secret = case_timing("b", 9.0, hidden=True)
    assert suggested(evidence(0.5, timings=[timing(0.5, cases=[case_timing("a", 0.1), secret])])) == 2


def test_what_failed_is_no_reason_to_leave_a_parent() -> None:
    failures = [attempt(number, failed(), parent=2) for number in (4, 5, 6, 7)]
    assert suggest_parent(branches(*failures)).number == 2


def test_a_suggestion_is_always_a_right_attempt_of_the_run_and_the_same_for_the_same_history() -> None:
    drawn = random.Random(5)
    for _ in range(200):
        attempts = [baseline(case_time("a"), case_time("b"))]
        for number in range(1, drawn.randint(1, 10)):
            its = failed() if drawn.random() < 0.3 else in_cases(drawn.uniform(0.5, 3), drawn.uniform(0.5, 3))
            attempts.append(attempt(number, its, parent=drawn.randrange(number)))
        right = [each.number for each in attempts if each.evidence is not None and each.evidence.kind is Kind.OK]
        run = memory(*attempts, incumbent=drawn.choice(right))
        suggested = suggest_parent(run)
        assert suggested.number in right
        assert 0 < len(suggested.why) < 200
        assert suggest_parent(run) == suggested


def test_in_a_run_that_is_not_timed_the_newest_right_attempt_is_suggested() -> None:
    untimed = baseline(untimed="there is no GPU", own=[])
    right = [attempt(1, evidence()), attempt(2, evidence())]
    assert suggest_parent(memory(untimed)).number == 0
    assert suggest_parent(memory(untimed, attempt(1, failed()))).number == 0
    for others in ([attempt(3, failed())], [attempt(3, duplicate_of=1)], [attempt(3, evidence(), state="interrupted")]):
        assert suggest_parent(memory(untimed, *right, *others)).number == 2
