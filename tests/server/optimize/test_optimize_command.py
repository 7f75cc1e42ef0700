"""The command `optimize`: exit codes, plain lines, and JSON alone."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.server.optimize.workshop import FAST, SLOW, Workshop
from tests.server.runs.fake_evaluator import task
from tritonforge.server.cli import FAILED, MISUSE, OK, run
from tritonforge.server.optimize import command, headless
from tritonforge.server.optimize.model import Ablation, OptimizeResult, Plan


@pytest.fixture(autouse=True)
def made_up(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command measures with the made-up evaluator."""

    async def optimize(plan: Plan, settings: Any, **more: Any) -> OptimizeResult:
        return await headless.optimize(plan, settings, **more, evaluator=lambda _: workshop.fake)

    monkeypatch.setattr(command, "optimize", optimize)
    monkeypatch.setattr("tritonforge.server.cli._own_signals", lambda: None)


def answering(workshop: Workshop, kernel: tuple[str, str]) -> str:
    return workshop.program(f"print(json.dumps({{'kernel': {kernel[0]!r}, 'strategy': {kernel[1]!r}}}))")


def words(workshop: Workshop, agent: str, *more: str) -> list[str]:
    state = ["--state-dir", str(workshop.settings.state_dir)]
    return [
        "optimize",
        str(workshop.kernel),
        "--task",
        str(workshop.task),
        "--agent",
        agent,
        "--rounds",
        "1",
        *state,
        *more,
    ]


def test_a_gain_is_code_0_and_told_in_plain_lines(workshop: Workshop, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words(workshop, answering(workshop, FAST), "--to", "won")) == OK
    out, err = capsys.readouterr()
    assert "attempt 1, made from the baseline: wider loads: V1" in out
    assert "The winner is attempt 1 at 1.5x" in out.splitlines()[-1]
    assert err == ""
    assert Path("won/entry.py").read_text() == FAST[0]


def test_by_default_the_winner_goes_into_a_folder_called_as_the_run(workshop: Workshop) -> None:
    assert run(words(workshop, answering(workshop, FAST))) == OK
    (folder,) = workshop.folder.glob("made-up-*")
    assert (folder / "verification.json").is_file()


def test_no_gain_is_code_1(workshop: Workshop, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words(workshop, answering(workshop, SLOW))) == FAILED
    assert "The baseline stays" in capsys.readouterr().out.splitlines()[-1]


def test_as_json_only_the_result_is_on_standard_output(workshop: Workshop, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words(workshop, answering(workshop, FAST), "--json")) == OK
    out, err = capsys.readouterr()
    result = OptimizeResult.model_validate_json(out)
    assert (result.gained, result.attempt, result.attempts) == (True, 1, 1)
    assert "measuring the baseline" in err


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"--agent": "no-such-program"}, "there is no program 'no-such-program'"),
        ({"--task": "no_such_task.py"}, "there is no task file no_such_task.py"),
        ({"--agent-args": "'open"}, "--agent-args can't be split"),
        ({"--rounds": "0"}, "argument --rounds: '0' is not a whole number from 1 to 1000"),
        ({"--target-pct": "101"}, "percentage above 0 and up to 100"),
        ({"--wall-s": "nan"}, "'nan' is not a number of seconds above 0"),
        ({"--parallel": "x"}, "'x' is not a whole number from 1 to 16"),
        ({"--spares": "-1"}, "'-1' is not a whole number from 0 to 64"),
        ({"--agent": "none"}, "--agent none optimizes nothing"),
        ({"--search-s": "10"}, "--search-s is for --agent tune"),
        ({"--agent": "tune", "--agent-args": "--model m"}, "--agent-args are for claude, codex and gemini"),
    ],
)
def test_misuse_is_code_2_and_says_what_is_allowed(
    workshop: Workshop, capsys: pytest.CaptureFixture[str], change: dict[str, str], told: str
) -> None:
    given = words(workshop, answering(workshop, FAST))
    for name, value in change.items():
        given += [name, value]
    try:
        code: int | str | None = run(given)
    except SystemExit as end:
        code = end.code
    out, err = capsys.readouterr()
    assert (code, out) == (MISUSE, "")
    assert told in err


def test_a_failed_baseline_is_code_1_and_json_all_the_same(
    workshop: Workshop, capsys: pytest.CaptureFixture[str]
) -> None:
    workshop.kernel.write_text('# FAKE: {"kind": "wrong"}\ndef entry(x):\n    return x\n')
    assert run(words(workshop, answering(workshop, FAST), "--json")) == FAILED
    result = json.loads(capsys.readouterr().out)
    assert (result["gained"], result["why_not"]) == (False, "as its script says")
    store = workshop.store()
    assert result["run_id"] == store.runs()[0].frozen.run_id
    store.close()
    assert result["stage"] == "compile"
    assert 0 < result["seconds_by_stage"]["baseline"] <= result["seconds"]


def test_what_fails_before_there_is_a_run_invents_none(workshop: Workshop, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*words(workshop, answering(workshop, FAST), "--json"), "--task", "nowhere.py"]) == MISUSE
    result = json.loads(capsys.readouterr().out)
    assert (result["run_id"], result["stage"], result["seconds_by_stage"]) == (None, "source", {})
    assert result["seconds"] > 0


@pytest.mark.parametrize("to", ["kernel.py", "kernel.py/winner", "/proc/winner"])
def test_a_folder_that_can_not_be_written_is_refused_before_anything_is_measured(
    workshop: Workshop, capsys: pytest.CaptureFixture[str], to: str
) -> None:
    assert run(words(workshop, answering(workshop, FAST), "--to", to)) == MISUSE
    assert "Name another" in capsys.readouterr().err
    assert not (workshop.settings.state_dir / "runs").exists()


def test_a_signal_tells_the_run_and_how_to_go_on(workshop: Workshop, capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        agent = workshop.program(f"os.kill({os.getpid()}, {int(signal.SIGTERM)})\ntime.sleep(60)")
        with pytest.raises(SystemExit, match="143"):
            run(words(workshop, agent))
    finally:
        signal.signal(signal.SIGTERM, before)
    store = workshop.store()
    run_id = store.runs()[0].frozen.run_id
    store.close()
    told = capsys.readouterr().err
    assert f"run {run_id} is kept: `tritonforge-mcp runs show {run_id}`" in told
    assert f"`tritonforge-mcp runs resume {run_id}`" in told


def test_without_a_gpu_it_is_told_what_ended_the_run_too(
    workshop: Workshop, capsys: pytest.CaptureFixture[str]
) -> None:
    workshop.task.write_text(task("made up", timed=False))
    assert run(words(workshop, answering(workshop, FAST), "--json")) == FAILED
    result = json.loads(capsys.readouterr().out)
    assert f"ended by {result['ended_by']}: this machine has no GPU" in result["summary"]


def test_a_run_says_itself_what_its_result_says_of_its_end(
    workshop: Workshop, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*words(workshop, answering(workshop, SLOW), "--json"), "--rounds", "2", "--one-shot"]) == FAILED
    result = json.loads(capsys.readouterr().out)
    assert run([*words(workshop, workshop.program("print(1)"), "--json")]) == FAILED
    second = json.loads(capsys.readouterr().out)
    store = workshop.store()
    assert [each.ended_by for each in store.runs()] == [second["ended_by"], result["ended_by"]] == ["agent", "budget"]
    store.close()


def test_tune_without_a_gpu_is_code_1_and_says_that_nothing_can_be_timed(
    workshop: Workshop, capsys: pytest.CaptureFixture[str]
) -> None:
    workshop.task.write_text(task("made up", timed=False))
    assert run(words(workshop, "tune", "--search-s", "5")) == FAILED
    out, err = capsys.readouterr()
    assert "no GPU, so nothing can be timed" in out.splitlines()[-1]
    assert err == ""


@pytest.mark.parametrize("ablation", Ablation)
def test_each_ablation_is_an_option(workshop: Workshop, monkeypatch: pytest.MonkeyPatch, ablation: Ablation) -> None:
    plans: list[Plan] = []

    async def optimize(plan: Plan, settings: Any, **more: Any) -> OptimizeResult:
        plans.append(plan)
        return OptimizeResult(gained=True, summary="")

    monkeypatch.setattr(command, "optimize", optimize)
    assert run(words(workshop, "tune", f"--{ablation}", "--search-s", "5")) == OK
    assert run(words(workshop, "claude")) == OK
    assert [plan.ablations for plan in plans] == [frozenset({ablation}), frozenset()]
    assert [plan.search_s for plan in plans] == [5.0, 30.0]


SIGNALLED = """
import os, signal, sys
import anyio
from tritonforge.server.optimize.process import ending_with_us, started
from pathlib import Path

async def main():
    async with started([sys.executable, "-c", "import time; time.sleep(600)"], folder=Path(".")) as process:
        print(process.pid, flush=True)
        os.kill(os.getpid(), signal.SIGTERM)
        await anyio.sleep(600)

signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
with ending_with_us():
    anyio.run(main)
"""


@pytest.mark.anyio
async def test_a_signal_that_ends_us_ends_the_agent_too(workshop: Workshop) -> None:
    ended = await anyio.run_process([sys.executable, "-c", SIGNALLED], check=False)
    assert ended.returncode == 143
    pid = int(ended.stdout)
    # Nobody is left to reap it but init, or nobody at all: it is gone, or a zombie.
    status = anyio.Path(f"/proc/{pid}/stat")
    assert not await status.exists() or (await status.read_text()).rpartition(")")[2].split()[0] == "Z"
