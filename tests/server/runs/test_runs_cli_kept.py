"""The commands that look after what is kept: check, and resume where nothing is left to be done."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.runs.in_store import RUN_ID, begun, claimed, finished
from tests.server.runs.kept import store_in
from tests.server.runs.shell import Shell
from tritonforge.server.cli import FAILED, OK
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
