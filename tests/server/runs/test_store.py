"""What is kept of runs comes back as it was, and what can't be is refused with what to do."""

import os
import time
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from pydantic import ValidationError

from tests.server.runs.in_store import (
    AT,
    BASELINE_TEXT,
    RUN_ID,
    begun,
    claimed,
    files_in,
    finished,
    lesson,
    made_up_run,
    opened,
)
from tritonforge.profiling.optimization.model import BASELINE, Attempt
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.outcome import Kind
from tritonforge.server.runs.admission import Claim
from tritonforge.server.runs.record import Run
from tritonforge.server.runs.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Generator[Store]:
    store = Store(tmp_path)
    yield store
    store.close()


def done(store: Store, attempt: Attempt, **changed: object) -> Attempt:
    over = finished(attempt, **changed)  # pyright: ignore[reportArgumentType] - fields of an attempt
    assert store.finish(RUN_ID, over, expected_incumbent=None)
    return over


def refusal(call: Callable[[], object], kind: Kind = Kind.REJECTED) -> str:
    """What a call that is refused says."""
    with pytest.raises(Stopped) as stopped:
        call()
    assert stopped.value.kind is kind
    assert stopped.value.problem.likely_fix
    return f"{stopped.value.problem.message} {stopped.value.problem.likely_fix}"


def test_a_store_is_nothing_before_it_is_asked(tmp_path: Path) -> None:
    store = Store(tmp_path / "state" / "runs")
    store.close()
    assert not (tmp_path / "state").exists()
    assert store.runs() == []
    store.close()


def test_everything_is_there_after_reopening(store: Store, tmp_path: Path) -> None:
    begun(store)
    attempt = done(store, claimed(store, text="a = 1\n"), identity="abc", accepted=True)
    store.put_lessons([lesson()])
    before = (store.run(RUN_ID), store.attempts(RUN_ID), store.lessons())
    store.close()
    again = Store(tmp_path)
    assert (again.run(RUN_ID), again.attempts(RUN_ID), again.lessons()) == before
    assert again.attempt(RUN_ID, 1) == attempt
    assert again.file(attempt.kernel_sha256) == "a = 1\n"
    assert again.check() == []
    again.close()


def test_runs_come_newest_first_whatever_the_clock_said(store: Store) -> None:
    for run_id, day in (("b", 2), ("c", 3), ("a", 1), ("d", 3)):
        store.create(made_up_run(store, run_id, created_at=f"2026-11-0{day}T00:00:00+00:00"))
    assert [run.frozen.run_id for run in store.runs()] == ["d", "a", "c", "b"]
    with pytest.raises(Stopped) as stopped:
        store.run("zzz")
    assert "The newest runs are: d, a, c." in str(stopped.value.problem.likely_fix)


def test_a_run_id_is_given_once(store: Store) -> None:
    store.create(made_up_run(store))
    assert RUN_ID in refusal(lambda: store.create(made_up_run(store, state="open")))
    assert store.run(RUN_ID).state == "measuring"


@pytest.mark.parametrize("text", ["", "a\r\nb\n", "größer ≥ 1\n", "\udc80 alone\n", "x" * 1_000_000])
def test_a_text_comes_back_as_it_was_put(store: Store, text: str) -> None:
    sha256 = store.put_file(text)
    assert store.file(sha256) == text
    assert store.put_file(text) == sha256
    assert len(files_in(store.folder)) == 1


@pytest.mark.parametrize(
    ("known", "asked", "told"),
    [
        ([], "sin-1", "There are no runs here"),
        (["sin-1a2b3c", "softmax-000000"], "sin-1a2b3d", "Did you mean 'sin-1a2b3c'?"),
        (["sin-1a2b3c", "softmax-000000"], "zzz", "The newest runs are: softmax-000000, sin-1a2b3c."),
    ],
)
def test_an_unknown_run_is_told_with_the_nearest(store: Store, known: list[str], asked: str, told: str) -> None:
    for run_id in known:
        store.create(made_up_run(store, run_id))
    for call in (
        lambda: store.run(asked),
        lambda: store.attempt(asked, 0),
        lambda: store.attempts(asked),
        lambda: store.change(asked, opened),
        lambda: claimed(store, asked),
        lambda: store.find(asked, identity="abc"),
        lambda: store.abandon(asked, 0, "cancelled"),
        lambda: store.orphans(asked),
        lambda: store.adopt(asked, 0),
        lambda: store.delete(asked),
    ):
        assert told in refusal(call)


def test_an_unknown_attempt_is_told_with_those_there_are(store: Store) -> None:
    store.create(made_up_run(store, "empty"))
    assert "It has none so far." in refusal(lambda: store.attempt("empty", 0))
    begun(store)
    assert "Its attempts are 0 to 0; 0 is the baseline." in refusal(lambda: store.attempt(RUN_ID, 1))


def test_a_run_that_is_changed_is_the_same_run(store: Store) -> None:
    run = made_up_run(store)
    store.create(run)
    assert store.change(RUN_ID, opened) == store.run(RUN_ID) == opened(run)

    def another(run: Run) -> Run:
        return run.model_copy(update={"frozen": run.frozen.model_copy(update={"run_id": "another"})})

    with pytest.raises(ValueError, match="can't become run another"):
        store.change(RUN_ID, another)
    assert store.run(RUN_ID) == opened(run)


def test_what_could_not_be_read_again_is_not_written(store: Store) -> None:
    begun(store)
    attempt = claimed(store)
    with pytest.warns(UserWarning, match="serializer"), pytest.raises(ValidationError):
        store.finish(RUN_ID, finished(attempt, hints="none"), expected_incumbent=None)
    with pytest.raises(ValidationError):
        store.change(RUN_ID, lambda run: run.model_copy(update={"updated_at": None}))
    assert store.attempt(RUN_ID, attempt.number) == attempt
    assert store.check() == []


@pytest.mark.parametrize("state", ["finished", "failed"])
def test_a_run_that_is_over_takes_no_candidate(store: Store, state: str) -> None:
    begun(store)
    store.change(RUN_ID, lambda run: run.model_copy(update={"state": state}))
    assert f"it is {state}" in refusal(lambda: claimed(store))


def test_a_run_that_is_being_measured_takes_its_baseline_only(store: Store) -> None:
    store.create(made_up_run(store))
    assert claimed(store, parent=None, counts=False).number == 0
    assert "its baseline is being measured" in refusal(lambda: claimed(store, parent=None))


def test_a_parent_is_a_finished_attempt(store: Store) -> None:
    begun(store)
    running = claimed(store).number
    assert "it is running" in refusal(lambda: claimed(store, parent=running))
    assert "has no attempt 7" in refusal(lambda: claimed(store, parent=7))
    done(store, store.attempt(RUN_ID, running))
    assert claimed(store, parent=running).parent == running


def test_what_is_claimed_is_told_as_it_was_given(store: Store) -> None:
    begun(store)
    attempt = store.claim(
        RUN_ID,
        Claim(0, "wider", store.put_file("b\n"), "t", True, "b.py", "/somewhere", ["like attempt 3"]),
    )
    assert attempt == store.attempt(RUN_ID, 1)
    assert (attempt.state, attempt.counted, attempt.strategy, attempt.parent) == ("running", True, "wider", 0)
    assert (attempt.kernel_shown_as, attempt.kernel_origin, attempt.remarks) == (
        "b.py", "/somewhere", ["like attempt 3"],
    )  # fmt: skip


def test_the_budget_is_of_attempts_that_count_or_still_may(store: Store) -> None:
    begun(store, budget=2)
    first, second = claimed(store), claimed(store)
    assert "2 of 2 attempts" in refusal(lambda: claimed(store))
    # A duplicate costs nothing, whether it is known as one before or after its evaluation.
    done(store, claimed(store, counts=False))
    done(store, first, counted=False, duplicate_of=0)
    done(store, claimed(store), counted=True)
    refusal(lambda: claimed(store))
    store.abandon(RUN_ID, second.number, "cancelled")
    claimed(store)
    refusal(lambda: claimed(store))


def test_the_earliest_finished_attempt_of_an_identity_is_found(store: Store) -> None:
    begun(store)
    assert store.find(RUN_ID, text_identity="t") is None
    running = claimed(store, text_identity="t")
    assert store.find(RUN_ID, text_identity="t") is None
    later = claimed(store, text_identity="t")
    done(store, later, identity="code")
    assert store.find(RUN_ID, text_identity="t") == store.find(RUN_ID, identity="code") == store.attempt(RUN_ID, 2)
    done(store, running, identity="code")
    for found in (store.find(RUN_ID, text_identity="t"), store.find(RUN_ID, identity="code")):
        assert found is not None
        assert found.number == 1
    assert store.find(RUN_ID) is store.find(RUN_ID, identity="other") is None


def test_identities_are_those_of_their_run(store: Store) -> None:
    begun(store)
    begun(store, "another")
    done(store, claimed(store, text_identity="t"), identity="code")
    assert store.find("another", text_identity="t", identity="code") is None


def test_an_attempt_that_was_compared_with_another_incumbent_is_not_kept(store: Store) -> None:
    begun(store)
    first, second = claimed(store), claimed(store)

    def accepted(attempt: Attempt, expected: int) -> bool:
        return store.finish(
            RUN_ID, finished(attempt, accepted=True), expected_incumbent=expected,
            run=lambda run: run.model_copy(update={"incumbent": attempt.number}),
            taught=lambda before, after, attempts: [lesson()],
        )  # fmt: skip

    assert accepted(second, 0)
    assert not accepted(first, 0)
    assert store.attempt(RUN_ID, first.number) == first
    assert (store.run(RUN_ID).incumbent, store.lessons()[0].tried) == (second.number, 1)
    assert accepted(first, second.number)
    assert (store.run(RUN_ID).incumbent, store.lessons()[0].tried) == (first.number, 2)
    assert store.check() == []


def test_an_attempt_is_finished_once_and_whole(store: Store) -> None:
    begun(store)
    attempt = claimed(store)
    with pytest.raises(ValueError, match="is running, not finished"):
        store.finish(RUN_ID, attempt, expected_incumbent=None)

    def failing(run: Run) -> Run:
        raise KeyError(run.state)

    with pytest.raises(KeyError):
        store.finish(RUN_ID, finished(attempt), expected_incumbent=None, run=failing)
    assert store.attempt(RUN_ID, 1) == attempt
    over = done(store, attempt)
    told = refusal(lambda: store.finish(RUN_ID, finished(attempt, accepted=True), expected_incumbent=None))
    assert "it is finished already" in told
    store.abandon(RUN_ID, 1, "cancelled")
    assert store.attempt(RUN_ID, 1) == over


@pytest.mark.parametrize("shared", [True, False])
def test_deleting_a_run_removes_what_nothing_else_names(store: Store, shared: bool) -> None:
    begun(store, "kept", hidden_sha256=store.put_file("{}"))
    attempt = claimed(store, "kept", "own\n")
    store.finish("kept", finished(attempt), expected_incumbent=None)
    kept = files_in(store.folder)
    begun(store, hidden_sha256=store.put_file("{}" if shared else '{"a": {}}'))
    for text in ("own\n", "else\n"):
        done(store, claimed(store, text=text))
    # What a run has named once goes with it, too.
    other = store.put_file("{} ")
    frozen = store.run(RUN_ID).frozen.model_copy(update={"hidden_sha256": other})
    store.change(RUN_ID, lambda run: run.model_copy(update={"frozen": frozen}))
    assert len(files_in(store.folder) - kept) == (2 if shared else 3)
    store.delete(RUN_ID)
    assert files_in(store.folder) == kept
    assert [run.frozen.run_id for run in store.runs()] == ["kept"]
    assert store.attempts("kept")[1].kernel_sha256 in kept
    assert store.check() == []


def test_a_run_is_not_deleted_while_it_is_worked_on(store: Store) -> None:
    begun(store)
    attempt = claimed(store)
    assert "attempt 1 of run sin-1a2b3c is still being evaluated" in refusal(lambda: store.delete(RUN_ID))
    store.abandon(RUN_ID, attempt.number, "interrupted")
    store.delete(RUN_ID)
    assert store.runs() == []


def test_no_row_names_a_file_that_is_not_there(store: Store) -> None:
    begun(store)
    (store.folder / "files").rename(store.folder / "elsewhere")
    for call in (
        lambda: store.claim(RUN_ID, Claim(0, "s", "0" * 64, "t", True)),
        lambda: store.change(RUN_ID, opened),
    ):
        assert "Make the same call again." in refusal(call, Kind.UNAVAILABLE)
    assert len(store.attempts(RUN_ID)) == 1
    store.put_file(BASELINE_TEXT)


def test_lessons_of_one_key_are_one(store: Store) -> None:
    store.put_lessons([lesson("b"), lesson("a", tried=2)])
    store.put_lessons([lesson("a", tried=3, runs=["another"], updated_at="2026-12-01T00:00:00+00:00")])
    first, second = store.lessons()
    assert (first.key, first.tried, first.runs) == ("a", 5, ["another", RUN_ID])
    assert (second.key, second.updated_at) == ("b", AT)
    assert store.forget(["a", "a", "c"]) == 1
    assert [each.key for each in store.lessons()] == ["b"]


def test_a_run_and_its_baseline_come_at_once_or_not_at_all(store: Store) -> None:
    run = made_up_run(store)
    missing = Claim(None, "the baseline", "0" * 64, "t", False)
    assert "is gone" in refusal(lambda: store.create(run, missing), Kind.UNAVAILABLE)
    assert store.runs() == []
    store.create(run, missing._replace(kernel_sha256=run.frozen.kernel_sha256))
    (baseline,) = store.attempts(RUN_ID)
    assert (baseline.number, baseline.state, baseline.counted) == (BASELINE, "running", False)
    assert store.orphans() == []
    other = Store(store.folder)
    assert other.adopt(RUN_ID, BASELINE) is None
    other.close()


def test_an_attempt_that_an_earlier_one_answers_for_is_never_running(store: Store) -> None:
    begun(store, budget=1)
    claim = Claim(0, "the same", store.put_file("b\n"), "t", False)
    told = store.claim(RUN_ID, claim, answered=lambda attempt: finished(attempt, duplicate_of=0, identity="i"))
    assert told == store.attempt(RUN_ID, 1)
    assert (told.state, told.duplicate_of) == ("finished", 0)
    found = store.find(RUN_ID, identity="i")
    assert found == told
    with pytest.raises(ZeroDivisionError):
        store.claim(RUN_ID, claim, answered=lambda attempt: finished(attempt, duplicate_of=1 // 0))
    assert [attempt.number for attempt in store.attempts(RUN_ID)] == [0, 1]
    assert store.check() == []


def test_a_file_that_a_killed_process_left_half_written_is_swept_when_it_is_old(tmp_path: Path) -> None:
    folder = tmp_path / "files" / "ab"
    folder.mkdir(parents=True)
    for name, age_s in (("old.partial", 4000), ("new.partial", 60), ("ab" * 32, 4000)):
        (folder / name).write_text("half")
        at = time.time() - age_s
        os.utime(folder / name, (at, at))
    store = Store(tmp_path)
    store.put_file("b\n")
    store.close()
    assert {path.name for path in folder.iterdir()} == {"new.partial", "ab" * 32}
