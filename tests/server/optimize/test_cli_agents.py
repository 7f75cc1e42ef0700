"""Each agent's CLI, played by a stub that reads its configuration and speaks MCP, drives a run to its end."""

import os
from typing import Any

import anyio
import pytest

from tests.server.optimize.workshop import FAST, FASTEST, SLOW, WRONG, Workshop
from tests.server.runs.fake_evaluator import candidate, task
from tritonforge.profiling.optimization.model import Confirmation
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.outcome import Kind
from tritonforge.server.optimize import cli_agent, process
from tritonforge.server.optimize.agents import AGENTS

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("agent", AGENTS)
async def test_an_agents_cli_drives_a_run_and_the_winner_is_exported(workshop: Workshop, agent: str) -> None:
    workshop.stub_clis(submit=[WRONG, FAST, SLOW], report="The best is attempt 2.")
    result = await workshop.optimize(agent, rounds=3)
    assert (result.gained, result.attempt, result.attempts, result.ended_by) == (True, 2, 3, "budget")
    assert result.ratio == pytest.approx(1.5)
    assert result.verified is not None
    assert result.verified.kind is Kind.OK
    assert (workshop.folder / "won" / "entry.py").read_text() == FAST[0]
    assert {"entry.py", "baseline.py", "task.py", "entry.patch", "verification.json"} == {
        file.rpartition("/")[2] for file in result.files
    }
    (end,) = result.agents
    assert (end.ended, end.exit_code) == ("exited", 0)
    assert end.last_words is not None
    assert end.last_words.endswith("The best is attempt 2.")


async def test_progress_is_told_while_the_agents_server_evaluates(workshop: Workshop) -> None:
    workshop.stub_clis(submit=[WRONG, FAST])
    await workshop.optimize("claude", rounds=2)
    told = "\n".join(workshop.said)
    assert "attempt 1, made from the baseline: cheaper arithmetic" in told
    assert "attempt 1: wrong, continue" in told
    assert "attempt 2, made from the baseline: wider loads: V1" in told
    assert "attempt 2: ok, finish, accepted" in told
    assert workshop.said[-1].startswith("The winner is attempt 2 at 1.5x")


async def test_the_agent_is_given_the_playbook_with_what_the_run_knows(workshop: Workshop) -> None:
    workshop.stub_clis()
    result = await workshop.optimize("gemini", rounds=5)
    (start,) = workshop.starts
    for part in (f"Run: `{result.run_id}`", "5 of 5 attempts left", "made-up finding V1", "task.py", "Nobody is here"):
        assert part in start["prompt"]
    assert "agent 1 of" not in start["prompt"]


async def test_further_arguments_reach_the_agents_cli(workshop: Workshop) -> None:
    workshop.stub_clis()
    await workshop.optimize("codex", agent_words=("--model", "large one"))
    words = workshop.starts[0]["words"]
    assert words[words.index("--model") + 1] == "large one"


@pytest.mark.parametrize("agent", AGENTS)
async def test_in_a_workspace_nothing_is_touched_but_a_new_folder(workshop: Workshop, agent: str) -> None:
    workshop.stub_clis(task=[task("written by an agent")])
    place = workshop.folder / "mine"
    kept = ["baseline.py", "task.py", ".gemini/settings.json", "mcp.json", "agent.log", "candidate_0.py"]
    for name in kept:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("mine")
    for count in (1, 2):
        await workshop.optimize(agent, workspace=place, task=None, rounds=1)
        assert len(list(place.glob("tritonforge-*"))) == count
    assert [(place / name).read_text() for name in kept] == ["mine"] * len(kept)
    assert len(list(place.iterdir())) == len(kept) + 2


async def test_no_agent_finds_hidden_cases_in_its_folder(workshop: Workshop) -> None:
    secret = task("made up", hidden={"secret": {"n": 12345}})
    workshop.task.write_text(secret)
    workshop.stub_clis(task=[secret])
    place = workshop.folder / "mine"
    given = await workshop.optimize("claude", workspace=place)
    written = await workshop.optimize("claude", workspace=place, task=None)
    for file in place.rglob("*"):
        assert not file.is_file() or "secret" not in file.read_text()
    assert len(list(place.rglob("task.py"))) == 2
    assert given.task is None
    # Whoever has no other copy of it finds the whole task.
    assert written.task is not None
    assert await anyio.Path(written.task).read_text() == secret


async def test_the_log_of_an_agent_stays_within_bounds(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_agent, "LOG_BYTES", 1000)
    workshop.stub_clis(report="x" * 5000 + " these are the last words")
    (end,) = (await workshop.optimize("claude")).agents
    assert end.log is not None
    log = await anyio.Path(end.log).read_text()
    assert log == "x" * 1000 + cli_agent.FULL
    assert (end.last_words or "").endswith("these are the last words")


async def test_an_agent_that_leaves_a_child_with_its_output_ends_all_the_same(workshop: Workshop) -> None:
    workshop.stub_clis(leave=True, report="the last words")
    (end,) = (await workshop.optimize("codex")).agents
    assert (end.ended, end.exit_code, end.last_words) == ("exited", 0, "the last words")


async def test_several_agents_share_one_run_each_in_a_folder_of_its_own(workshop: Workshop) -> None:
    own = '# FAKE: {"ratio": 1.NUMBER}\ndef entry(x):\n    return x * NUMBER.5\n'
    workshop.stub_clis(submit=[(own, "an idea of its own")])
    result = await workshop.optimize("claude", rounds=4, parallel=2)
    assert [end.ended for end in result.agents] == ["exited", "exited"]
    assert len({end.log for end in result.agents}) == 2
    assert (result.attempts, result.gained) == (2, True)
    assert result.ratio == pytest.approx(1.2)
    assert sorted(start["prompt"].partition("You are agent ")[2][:6] for start in workshop.starts) == [
        "1 of 2",
        "2 of 2",
    ]


async def test_an_agent_that_tries_nothing_has_gained_nothing(workshop: Workshop) -> None:
    workshop.stub_clis(report="I have no idea.", code=3)
    result = await workshop.optimize("codex")
    assert (result.gained, result.attempts, result.ended_by, result.files) == (False, 0, "agent", [])
    assert result.why_not == "no candidate was submitted; an agent exited with code 3: I have no idea."
    assert result.agents[0].exit_code == 3
    assert not (workshop.folder / "won").exists()
    assert any("codex exited with code 3" in line for line in workshop.said)


async def test_a_run_that_its_agent_leaves_open_is_ended(workshop: Workshop) -> None:
    workshop.stub_clis(submit=[FAST])
    result = await workshop.optimize("claude", rounds=8)
    assert result.run_id is not None
    store = workshop.store()
    run = store.run(result.run_id)
    store.close()
    assert (run.state, run.incumbent) == ("finished", 1)
    assert (result.gained, result.ended_by) == (True, "agent")


async def test_what_an_agents_server_leaves_half_done_is_evaluated_to_the_end(workshop: Workshop) -> None:
    # Behind the attached server nobody releases it.
    workshop.stub_clis(submit=[(candidate(2, ratio=1.5, hold="half"), "wider loads")], wait_s=0)
    workshop.fake.release("half")
    result = await workshop.optimize("claude", rounds=8)
    assert (result.gained, result.attempt) == (True, 1)
    assert any("attempt 1 was left behind" in line for line in workshop.said)


@pytest.mark.parametrize(
    ("update", "why"),
    [
        ({"kind": Kind.WRONG, "timing": None}, "the last look at it ended as wrong"),
        ({"comparison": "same", "ratio": 1.001}, "when it was measured once more, it was same: 1x"),
    ],
)
async def test_a_winner_that_fails_the_last_look_is_no_gain(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, update: dict[str, Any], why: str
) -> None:
    # Behind the attached server it was confirmed; the last look is ours.
    workshop.stub_clis(submit=[FAST])
    confirm = workshop.fake.confirm

    async def differently(*given: Any) -> Confirmation:
        found = await confirm(*given)
        assert found.timing is not None
        if "kind" in update:
            return found.model_copy(update=update)
        return found.model_copy(update={"timing": found.timing.model_copy(update=update)})

    monkeypatch.setattr(workshop.fake, "confirm", differently)
    result = await workshop.optimize("claude", rounds=8)
    assert (result.gained, result.attempt, result.files, result.why_not) == (False, 1, [], why)


# Budget and time


async def test_the_budget_of_attempts_is_the_runs_own(workshop: Workshop) -> None:
    workshop.stub_clis(submit=[SLOW, FAST, FASTEST])
    result = await workshop.optimize("claude", rounds=2)
    assert (result.attempts, result.attempt, result.ended_by) == (2, 2, "budget")


async def test_an_agent_that_hangs_is_ended_when_the_time_is_up(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "TERM_S", 0.1)
    workshop.stub_clis(hang=True)
    # It does not end by itself, so any limit that lets it start will do.
    result = await workshop.optimize("claude", wall_s=6.0)
    assert (result.gained, result.ended_by) == (False, "wall_time")
    assert [end.ended for end in result.agents] == ["wall_time"]
    with pytest.raises(ProcessLookupError):
        os.kill(workshop.starts[0]["pid"], 0)


async def test_an_agent_that_goes_on_when_its_run_is_over_is_ended(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli_agent, "LAST_WORD_S", 0.1)
    monkeypatch.setattr(process, "TERM_S", 0.1)
    workshop.stub_clis(submit=[FAST], hang=True)
    result = await workshop.optimize("gemini", rounds=1, wall_s=600.0)
    assert (result.gained, result.ended_by) == (True, "budget")
    assert [(end.ended, end.exit_code) for end in result.agents] == [("run_over", -9)]


# The task


async def test_without_a_task_the_agent_writes_one_first(workshop: Workshop) -> None:
    workshop.stub_clis(task=[task("written by an agent")], submit=[FAST])
    result = await workshop.optimize("claude", task=None, rounds=1)
    assert result.gained
    assert result.task is not None
    assert (workshop.folder / "won" / "task.py").read_text() == task("written by an agent")
    first, second = workshop.starts
    assert "Write the task file for this kernel" in first["prompt"]
    assert "Run: `" in second["prompt"]


async def test_a_task_that_is_refused_is_written_again_and_its_writer_is_told_why(workshop: Workshop) -> None:
    workshop.stub_clis(task=[None, "def broken(:\n", task("mended")], submit=[FAST])
    result = await workshop.optimize("codex", task=None, rounds=1)
    assert result.gained
    first, second, third, _ = (start["prompt"] for start in workshop.starts)
    assert "was refused" not in first
    assert "there is no file" in second
    assert "the task can't be read" in third


async def test_an_agent_that_can_write_no_task_is_given_up(workshop: Workshop) -> None:
    workshop.stub_clis(task=["def broken(:\n"])
    with pytest.raises(Stopped, match="no usable task in 3 tries") as stopped:
        await workshop.optimize("claude", task=None)
    assert stopped.value.kind is Kind.REJECTED
    assert len(workshop.starts) == 3


# Misuse


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"agent": "claude"}, "there is no program claude on PATH"),
        ({"agent": "no-such-program --fast"}, "there is no program 'no-such-program'"),
        ({"agent": "sh 'open"}, "is no command line"),
        ({"agent": "sh agent.sh", "agent_words": ("--model", "m")}, "are for claude, codex and gemini"),
    ],
)
async def test_an_agent_that_is_not_there_is_rejected_before_anything_is_done(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, fields: dict[str, object], message: str
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    with pytest.raises(Stopped, match=message) as stopped:
        await workshop.optimize(**fields)  # pyright: ignore[reportArgumentType]
    assert stopped.value.kind is Kind.REJECTED
    assert not workshop.settings.state_dir.exists()


async def test_a_folder_that_holds_something_is_not_taken_for_the_winner(workshop: Workshop) -> None:
    workshop.stub_clis(submit=[FAST])
    (workshop.folder / "won").mkdir()
    (workshop.folder / "won" / "mine.py").write_text("mine")
    with pytest.raises(Stopped, match="is not an empty folder"):
        await workshop.optimize("claude")
    assert workshop.starts == []


async def test_a_baseline_that_fails_starts_no_agent(workshop: Workshop) -> None:
    workshop.stub_clis(submit=[FAST])
    workshop.kernel.write_text('# FAKE: {"kind": "wrong"}\ndef entry(x):\n    return x\n')
    with pytest.raises(Stopped) as stopped:
        await workshop.optimize("claude")
    assert stopped.value.kind is Kind.WRONG
    assert workshop.starts == []
