"""What run tools say is said once, and cut by what it takes."""

import json

from tests.server.runs.test_run_report import LESSON, answer, attempt, large
from tritonforge.profiling.optimization.lessons import Recalled
from tritonforge.profiling.optimization.model import Evidence, Verdict
from tritonforge.sandbox.outcome import Kind
from tritonforge.server.results import text
from tritonforge.server.tools.lesson_report import lesson_line, lesson_shown
from tritonforge.server.tools.run_report import submission, tell
from tritonforge.server.tools.run_shown import words


def test_a_text_is_cut_by_what_it_takes_and_left_whole_where_it_fits() -> None:
    assert words("大きい" * 3, 54) == "大きい" * 3
    assert words("大きい" * 30, 60) == "大きい" * 3 + " ..."
    assert words("x" * 60, 60) == "x" * 60


def test_that_nothing_could_be_timed_is_said_once() -> None:
    why = "the run was begun where there is no GPU"
    evidence = Evidence(kind=Kind.OK, stage="done", untimed=why)
    verdict = Verdict(verdict="continue", accepted=False, reasons=[f"neither timed nor run on hidden ones: {why}"])
    one = attempt(3, evidence, verdict=verdict, hints=[], remarks=[])
    told = submission(tell(answer(one)))
    assert told.summary == "Attempt 3: continue. Right, and not timed."
    assert json.dumps(told.model_dump(mode="json")).count(why) == 1
    assert text(told).count(why) == 1
    assert "Change one thing of attempt 3 (of the baseline, if" in (told.next_step or "")
    assert "parent=3" in (told.next_step or "")


def test_the_first_reason_is_not_told_twice() -> None:
    reasons = ["slower than the baseline", "case a lost"]
    one = attempt(
        3, large(), verdict=Verdict(verdict="continue", accepted=False, reasons=reasons), hints=[], remarks=[]
    )
    told = text(submission(tell(answer(one))))
    assert told.lower().count(reasons[0]) == 1
    assert f"- {reasons[1]}" in told


def test_a_lesson_that_was_never_timed_is_no_failure() -> None:
    untimed = LESSON.model_copy(
        update={"tried": 2, "helped": 0, "failed": {}, "gain_pct": None, "gain_low_pct": None, "gain_high_pct": None}
    )
    shown = lesson_shown(Recalled(untimed, None))
    assert "right 2 of 2 time(s), not timed" in lesson_line(shown)
    assert "helped" not in lesson_line(shown).split(". ")[0]
    wrong = lesson_shown(Recalled(untimed.model_copy(update={"failed": {"wrong": 2}}), None))
    assert "right 0 of 2" in lesson_line(wrong)
    slower = lesson_shown(Recalled(LESSON.model_copy(update={"helped": 0}), None))
    assert [each.missed for each in (shown, wrong, slower)] == [False, True, True]


def test_rare_kinds_of_failure_are_counted_too() -> None:
    failed = {"compile_error": 1, "timeout": 2, "wrong": 3}
    untimed = {"tried": 9, "helped": 0, "failed": failed, "gain_pct": None, "gain_low_pct": None, "gain_high_pct": None}
    shown = lesson_shown(Recalled(LESSON.model_copy(update=untimed), None))
    assert shown.failed == {"compile_error": 1, "timeout": 2, "others": 3}
    assert "right 3 of 9" in lesson_line(shown)
