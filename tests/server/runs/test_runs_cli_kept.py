"""The commands that look after what is kept: check, and resume where nothing is left to be done."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.profiling.optimization.made_up import case_timing, confirmation, timing
from tests.server.runs.in_store import RUN_ID, begun, claimed, finished, lesson, made_up_run
from tests.server.runs.kept import RUN_ID as KEPT_ID
from tests.server.runs.kept import SECRET, Kept, store_in
from tests.server.runs.shell import Shell
from tests.server.runs.test_store_broken import in_database
from tritonforge.server.cli import FAILED, MISUSE, OK
from tritonforge.server.runs.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    kept = store_in(tmp_path)
    yield kept
    kept.close()


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(tmp_path, capsys)


@pytest.mark.parametrize(
    ("budget", "change", "why"),
    [
        (1, {}, "it is finished"),  # its budget is spent
        (8, {"state": "finished", "ended_by": "user"}, "it is finished"),
        (8, {"state": "failed", "problem": "made up"}, "it is failed"),
    ],
)
def test_a_run_that_takes_no_more_says_so_when_it_is_resumed(
    store: Store, shell: Shell, budget: int, change: dict[str, str], why: str
) -> None:
    begun(store, budget=budget)
    store.abandon(RUN_ID, claimed(store).number, "interrupted")
    if budget == 1:
        store.finish(RUN_ID, finished(claimed(store), counted=True), expected_incumbent=None)
    store.change(RUN_ID, lambda run: run.model_copy(update=change))
    told = shell("runs", "resume", RUN_ID)
    assert told.out == f"Run {RUN_ID} takes no more: {why}. What was interrupted stays so: attempt 1.\n"
    assert told.code == OK
    assert store.attempt(RUN_ID, 1).state == "interrupted"


def test_a_store_is_checked(store: Store, shell: Shell) -> None:
    begun(store)
    good = shell("runs", "check")
    assert (good.code, good.out) == (OK, "")
    assert "1 runs, 0 faults" in good.err
    sha256 = store.attempt(RUN_ID, 0).kernel_sha256
    (store.folder / "files" / sha256[:2] / sha256).write_text("something else")
    bad = shell("runs", "check")
    assert bad.code == FAILED
    assert bad.out.endswith(f"{sha256} is damaged\n")
    assert "1 runs, 1 faults" in bad.err


@pytest.mark.parametrize("table", ["runs", "attempts"])
def test_a_damaged_run_is_named_beside_the_others_and_deleted(store: Store, shell: Shell, table: str) -> None:
    begun(store)
    store.create(made_up_run(store, "another"))
    in_database(store, f"UPDATE {table} SET record = '{{}}' WHERE run_id = '{RUN_ID}'")
    listed = shell("runs", "list", "--json")
    assert (listed.code, [line["run_id"] for line in json.loads(listed.out)]) == (OK, ["another"])
    assert "not listed: the record of " in listed.err
    assert RUN_ID in listed.err
    assert shell("runs", "check").code == FAILED
    assert shell("runs", "delete", RUN_ID, "--yes").code == OK
    assert shell("runs", "list").err == ""
    assert shell("runs", "delete", RUN_ID, "--yes").code == MISUSE


def test_lessons_of_runs_that_were_not_timed_say_so(store: Store, shell: Shell) -> None:
    timed = {"gain_pct": -3.0, "gain_low_pct": -4.0, "gain_high_pct": -2.0}
    store.put_lessons(
        [
            lesson("untimed", tried=3, failed={"wrong": 1}),
            lesson("failed", tried=2, failed={"wrong": 2}),
            lesson("timed", tried=2, **timed),
        ]
    )
    told = {line.split()[0]: line for line in shell("lessons", "list").out.splitlines()}
    assert "right 2 of 3, not timed" in told["untimed"]
    assert "helped" not in told["untimed"]
    assert "0 of 2" in told["failed"]
    assert "0 of 2" in told["timed"]
    assert "not timed" not in told["timed"]


def test_of_hidden_cases_counts_and_reasons_are_shown_and_more_only_where_a_flag_asks_for_it(
    store: Store, shell: Shell
) -> None:
    why = "the baseline itself ends in wrong there"
    kept = Kept(store, hidden_dropped={"derived-rows-1823": why, "derived-rows-77": why})
    secret = timing(1.3, cases=[case_timing("a", 1.3), case_timing(SECRET, 1.3, hidden=True)])
    verified = confirmation(1.3, timing=secret)
    store.change(kept.run_id, lambda run: run.model_copy(update={"verified": verified}))
    plain, told = shell("runs", "show", KEPT_ID), shell("runs", "show", KEPT_ID, "--json")
    for shown in (plain.out, told.out, shell("runs", "list", "--json").out):
        assert SECRET not in shown
        assert "derived-rows" not in shown
    assert f"1 hidden (derived); 2 dropped: {why}" in plain.out
    run = json.loads(told.out)["run"]
    assert run["frozen"]["hidden_dropped"] == {why: 2}
    assert [case["case"] for case in run["verified"]["timing"]["cases"]] == ["a"]
    assert run["verified"]["timing"]["ratio"] == 1.3
    asked = shell("runs", "show", KEPT_ID, "--json", "--hidden")
    assert "derived-rows-1823" in asked.out
    assert SECRET in asked.out
    refused = shell("runs", "show", KEPT_ID, "--hidden")
    assert (refused.code, refused.out) == (MISUSE, "")
    assert "--json" in refused.err


def test_lessons_are_listed_by_when_they_were_added_to_whatever_the_clock_said(store: Store, shell: Shell) -> None:
    for key, year in (("0a", 2026), ("0b", 2025), ("0c", 2024), ("0a", 2020)):
        store.put_lessons([lesson(key, updated_at=f"{year}-01-01T00:00:00.000+00:00")])
    assert [line.split()[0] for line in shell("lessons", "list").out.splitlines()[1:]] == ["0a", "0c", "0b"]
