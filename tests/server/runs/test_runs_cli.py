"""The commands for runs, lessons and exports: readable, exact as JSON, careful with what they delete."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp_types import CallToolResult

from tests.profiling.optimization.made_up import failed
from tests.server.runs.fake_evaluator import FakeEvaluator, candidate, task
from tests.server.runs.kept import RUN_ID, SECRET, Kept, measured, store_in
from tests.server.runs.shell import Shell
from tritonforge.profiling.optimization.lesson import Lesson
from tritonforge.server.cli import FAILED, MISUSE, OK, finished, parse_arguments
from tritonforge.server.runs.store import Store
from tritonforge.server.services import Services

FASTER = "# one pass\ndef entry(x):\n    return +x\n"
KEYS = ["a1b2c3d4e5f6a7b8c9d0e1f2", "a1b2c3d4ffffffffffffffff", "0123456789abcdef01234567"]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def store(state: Path) -> Iterator[Store]:
    kept = store_in(state)
    yield kept
    kept.close()


@pytest.fixture
def shell(state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    monkeypatch.setattr("tritonforge.server.cli._own_signals", lambda: None)
    return Shell(state, capsys)


class Terminal:
    """A standard input at which somebody sits, or nobody."""

    def __init__(self, answer: str | None) -> None:
        self._answer = answer

    def isatty(self) -> bool:
        return self._answer is not None

    def readline(self) -> str:
        assert self._answer is not None
        return self._answer


def answering(monkeypatch: pytest.MonkeyPatch, answer: str | None) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(answer))


def lesson(key: str, **fields: Any) -> Lesson:
    known: dict[str, Any] = {
        "key": key, "finding": "V1", "strategy": "vectorization", "device": "NVIDIA H200", "triton": "3.6.0",
        "torch": "2.11.0", "tried": 3, "helped": 2, "gain_pct": 12.5, "gain_low_pct": 11.0, "gain_high_pct": 14.0,
        "why": "softmax: wider loads saved 12 %", "updated_at": "2026-11-30T12:00:00+00:00",
    }  # fmt: skip
    return Lesson.model_validate({**known, **fields})


def two_runs(store: Store) -> None:
    kept = Kept(store)
    kept.attempt("def entry(x):\n    return -x\n", failed(), strategy="dead \x1b[31mend")
    kept.attempt(FASTER, measured(1.31), accepted=True)
    Kept(store, "sin-000000", title="Sine.", gpu=None)


def test_runs_are_listed_with_their_best_attempt(store: Store, shell: Shell) -> None:
    two_runs(store)
    done = shell("runs", "list")
    lines = {line.split()[0]: line for line in done.out.splitlines()}
    assert {"RUN", RUN_ID, "sin-000000"} == set(lines)
    assert "1.31x (1.306 to 1.314)" in lines[RUN_ID]
    assert "2 of 8" in lines[RUN_ID]
    assert "baseline" in lines["sin-000000"]
    assert (done.code, done.err) == (OK, "")


def test_runs_are_listed_as_json_too(store: Store, shell: Shell) -> None:
    two_runs(store)
    found = {line["run_id"]: line for line in json.loads(shell("runs", "list", "--json").out)}
    assert (found[RUN_ID]["incumbent"], found[RUN_ID]["ratio"], found[RUN_ID]["attempts"]) == (2, 1.31, 2)
    assert (found["sin-000000"]["incumbent"], found["sin-000000"]["ratio"], found["sin-000000"]["gpu"]) == (
        0,
        None,
        None,
    )


def test_a_run_is_shown_with_its_attempts_in_printable_characters(store: Store, shell: Shell) -> None:
    two_runs(store)
    done = shell("runs", "show", RUN_ID)
    assert done.code == OK
    assert f"Run {RUN_ID}: Row-wise softmax., open" in done.out
    assert "best      attempt 2, 1.31x (1.306 to 1.314) the speed of the baseline" in done.out
    rows = [line.split() for line in done.out.splitlines()]
    assert ["1", "0", "wrong", "continue", "-", "dead", "?[31mend"] in rows
    assert ["*", "2", "0", "ok", "accept", "1.31x", "(1.306", "to", "1.314)", "one", "pass"] in rows
    assert "\x1b" not in done.out


def test_nothing_that_is_shown_tells_of_hidden_cases(store: Store, shell: Shell) -> None:
    two_runs(store)
    done = shell("runs", "show", RUN_ID, "--json")
    whole = json.loads(done.out)
    assert whole["run"]["frozen"]["run_id"] == RUN_ID
    assert [attempt["number"] for attempt in whole["attempts"]] == [0, 1, 2]
    assert whole["attempts"][2]["evidence"]["timings"][0]["ratio"] == 1.31
    assert SECRET not in done.out + shell("runs", "show", RUN_ID).out


@pytest.mark.parametrize("words", [["show"], ["export"], ["resume"], ["delete", "--yes"]])
def test_a_run_that_is_not_there_is_misuse(store: Store, shell: Shell, words: list[str]) -> None:
    two_runs(store)
    done = shell("runs", words[0], "softmax-000000", *words[1:])
    assert (done.code, done.out) == (MISUSE, "")
    assert "softmax-000000" in done.err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["runs", "list"], OK, "No runs are kept in"),
        (["runs", "list", "--json"], OK, "[]"),
        (["lessons", "list"], OK, "No lessons are kept in"),
        (["lessons", "export", "-"], OK, '"lessons": []'),
        (["runs", "show", RUN_ID], MISUSE, "--state-dir"),
        (["runs", "resume", RUN_ID], MISUSE, "--state-dir"),
        (["lessons", "delete", "--all", "--yes"], MISUSE, "--state-dir"),
        (["runs"], MISUSE, "required"),
        (["runs", "burn"], MISUSE, "invalid choice"),
        (["runs", "export", RUN_ID, "--attempt", "best"], MISUSE, "invalid int"),
        (["verify"], MISUSE, "required"),
        (["verify", "/no/such/folder"], MISUSE, "can't be read"),
    ],
)
def test_looking_makes_no_state_folder_and_misuse_is_told(
    state: Path, shell: Shell, words: list[str], code: int, said: str
) -> None:
    done = shell(*words)
    assert done.code == code
    assert said in (done.out if code == OK else done.err)
    assert not (state / "runs").exists()


def test_a_run_is_exported_and_what_is_in_the_way_is_named(store: Store, shell: Shell, tmp_path: Path) -> None:
    two_runs(store)
    done = shell("runs", "export", RUN_ID, "--to", str(tmp_path / "out"))
    assert done.code == OK
    assert "entry.py" in done.out
    assert "1.31x the speed of the baseline" in done.out
    assert f"tritonforge-mcp verify {tmp_path / 'out'}" in done.out
    assert (tmp_path / "out" / "entry.py").read_text() == FASTER
    (tmp_path / "out" / "task.py").write_text("changed\n")
    done = shell("runs", "export", RUN_ID, "--to", str(tmp_path / "out"))
    assert (done.code, done.out) == (MISUSE, "")
    assert "--force" in done.err
    assert shell("runs", "export", RUN_ID, "--to", str(tmp_path / "out"), "--force", "--attempt", "1").code == OK
    assert (tmp_path / "out" / "entry.py").read_text() == "def entry(x):\n    return -x\n"


def test_the_default_folder_of_an_export_is_called_like_the_run(
    store: Store, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_runs(store)
    monkeypatch.chdir(tmp_path)
    assert shell("runs", "export", RUN_ID).code == OK
    assert (tmp_path / RUN_ID / "entry.py").exists()


def test_a_run_that_accepted_nothing_is_not_exported(store: Store, shell: Shell) -> None:
    Kept(store).attempt(FASTER)
    done = shell("runs", "export", RUN_ID)
    assert (done.code, done.out) == (MISUSE, "")
    assert "Name one of them, such as --attempt 1." in done.err


@pytest.mark.parametrize(
    ("answer", "words", "code", "left"),
    [
        (None, [], MISUSE, True),
        (None, ["--yes"], OK, False),
        ("y\n", [], OK, False),
        ("\n", [], FAILED, True),
        ("", [], FAILED, True),
    ],
)
def test_a_run_is_deleted_only_where_somebody_says_so(
    store: Store,
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
    answer: str | None,
    words: list[str],
    code: int,
    left: bool,
) -> None:
    two_runs(store)
    answering(monkeypatch, answer)
    done = shell("runs", "delete", RUN_ID, *words)
    assert done.code == code
    assert (RUN_ID in {run.frozen.run_id for run in store.runs()}) == left
    assert "sin-000000" in {run.frozen.run_id for run in store.runs()}
    if answer is None and code == MISUSE:
        assert "Add --yes" in done.err


def test_lessons_are_listed_and_exported(store: Store, shell: Shell, tmp_path: Path) -> None:
    store.put_lessons([lesson(KEYS[0]), lesson(KEYS[2], gain_pct=None, gain_low_pct=None, gain_high_pct=None)])
    rows = [line.split() for line in shell("lessons", "list").out.splitlines()]
    assert rows[0][:3] == ["ID", "FINDING", "STRATEGY"]
    told = {row[0]: " ".join(row) for row in rows[1:]}
    assert "V1 vectorization NVIDIA H200 2 of 3 12.5 % (11.0 to 14.0)" in told[KEYS[0][:12]]
    assert "not timed" in told[KEYS[2][:12]]
    assert {one["key"] for one in json.loads(shell("lessons", "list", "--json").out)} == {KEYS[0], KEYS[2]}
    file = tmp_path / "lessons.json"
    assert shell("lessons", "export", str(file)).code == OK
    whole = json.loads(file.read_text())
    assert (whole["format"], whole["version"]) == ("tritonforge-lessons", 1)
    assert {Lesson.model_validate(one).key for one in whole["lessons"]} == {KEYS[0], KEYS[2]}
    file.write_text("mine")
    done = shell("lessons", "export", str(file))
    assert (done.code, file.read_text()) == (MISUSE, "mine")
    assert shell("lessons", "export", str(file), "--force").code == OK
    assert json.loads(file.read_text()) == whole


@pytest.mark.parametrize(
    ("words", "code", "left"),
    [
        ([KEYS[0], "--yes"], OK, KEYS[1:]),
        ([KEYS[0][:12], KEYS[2][:6], "--yes"], OK, [KEYS[1]]),
        (["--all", "--yes"], OK, []),
        # Two begin so.
        ([KEYS[0][:8], "--yes"], MISUSE, KEYS),
        ([KEYS[2][:5], "--yes"], MISUSE, KEYS),
        ([KEYS[0], "ffffffffffff", "--yes"], MISUSE, KEYS),
        ([KEYS[0], "--all", "--yes"], MISUSE, KEYS),
        (["--yes"], MISUSE, KEYS),
        ([KEYS[0]], MISUSE, KEYS),
    ],
)
def test_lessons_are_forgotten_by_id_and_only_where_somebody_says_so(
    store: Store, shell: Shell, monkeypatch: pytest.MonkeyPatch, words: list[str], code: int, left: list[str]
) -> None:
    store.put_lessons([lesson(key) for key in KEYS])
    answering(monkeypatch, None)
    done = shell("lessons", "delete", *words)
    assert done.code == code, done.err
    assert {one.key for one in store.lessons()} == set(left)


LEAVE_BEHIND = """
import os, sys
from pathlib import Path
from tests.server.runs.kept import Kept
from tritonforge.server.runs.store import Store
baseline, kernel, task = (Path(name).read_text() for name in sys.argv[2:])
kept = Kept(Store(Path(sys.argv[1])), baseline=baseline, task=task, cases=["large", "ragged"])
kept.left_behind(kernel)
os._exit(9)
"""


def test_what_a_dead_server_left_behind_is_evaluated(
    state: Path, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"baseline": candidate(1), "kernel": candidate(2, ratio=1.5), "task": task()}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    left = subprocess.run(
        [sys.executable, "-c", LEAVE_BEHIND, str(state / "runs"), *(str(tmp_path / name) for name in files)],
        cwd=Path(__file__).parents[3], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert left.returncode == 9, left.stderr

    def evaluator(services: Services) -> FakeEvaluator:
        return FakeEvaluator()

    monkeypatch.setattr("tritonforge.server.runs_cli.ToolEvaluator", evaluator)
    assert "0 of 8, 1 left behind" in shell("runs", "list").out
    before = shell("runs", "show", RUN_ID).out
    assert ["1", "0", "left", "behind", "-", "half", "done"] in [line.split() for line in before.splitlines()]
    assert f"tritonforge-mcp runs resume {RUN_ID}" in before
    done = shell("runs", "resume", RUN_ID)
    assert done.code == OK, done.err
    assert done.out.startswith("attempt 1: ok, ")
    assert "attempt 1: " in done.err
    assert f"Run {RUN_ID} is " in done.out
    again = shell("runs", "resume", RUN_ID)
    assert again.out.startswith(f"Nothing of run {RUN_ID} was left behind")
    assert again.code == OK
    assert "left behind" not in shell("runs", "list").out + shell("runs", "show", RUN_ID).out


def test_an_attempt_that_is_being_evaluated_is_neither_left_behind_nor_begun_again(store: Store, shell: Shell) -> None:
    Kept(store).left_behind(FASTER)
    assert "0 of 8, 1 at work" in shell("runs", "list").out
    assert shell("runs", "resume", RUN_ID).out.startswith("Nothing of run")
    assert store.attempt(RUN_ID, 1).state == "running"


class FakeClient:
    """A client whose server takes three looks for a job."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []

    async def call_tool(self, name: str, arguments: dict[str, Any], *, progress_callback: Any) -> CallToolResult:
        self.asked.append((name, arguments))
        await progress_callback(1, 2, "timing")
        content = {"kind": "ok" if len(self.asked) == 3 else "running", "run_id": RUN_ID, "attempt": 4}
        return CallToolResult(content=[], structured_content=content)


@pytest.mark.parametrize(("given", "asked"), [({"wait_s": 1}, 1), ({}, 600)])
@pytest.mark.anyio
async def test_a_call_that_begins_a_job_waits_until_it_is_over(
    capsys: pytest.CaptureFixture[str], given: dict[str, Any], asked: float
) -> None:
    client: Any = FakeClient()
    result = await finished(client, "submit_candidate", {"kernel": "k.py", **given})
    assert result.structured_content is not None
    assert result.structured_content["kind"] == "ok"
    again = ("get_run", {"run_id": RUN_ID, "attempt": 4, "wait_s": 30})
    assert client.asked == [("submit_candidate", {"kernel": "k.py", "wait_s": asked}), again, again]
    assert capsys.readouterr() == ("", "tritonforge-mcp: timing\n")


@pytest.mark.parametrize(("word", "value"), [("1.5", 1.5), ("20", 20.0)])
def test_numbers_of_a_run_are_read_as_numbers(word: str, value: float) -> None:
    schema: dict[str, Any] = {"properties": {"wall_s": {"anyOf": [{"type": "number"}, {"type": "null"}]}}}
    assert parse_arguments(["--wall-s", word], schema) == {"wall_s": value}
    with pytest.raises(ValueError, match="--wall-s must be a number, not 'soon'"):
        parse_arguments(["--wall-s", "soon"], schema)
