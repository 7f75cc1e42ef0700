"""The command `campaign`: its arguments, its sittings, and what it prints."""

import argparse
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.server.campaign.made_up_records import gained, made
from tests.server.campaign.test_campaign import PRELUDE, gpu
from tritonforge.server.campaign import command as module
from tritonforge.server.campaign.arguments import add_commands
from tritonforge.server.campaign.campaign import Campaign
from tritonforge.server.campaign.command import run_campaign
from tritonforge.server.campaign.folder import Adaptation, CampaignFolder, write
from tritonforge.server.campaign.model import KernelRecord
from tritonforge.server.optimize.model import Ablation
from tritonforge.server.settings import Settings

WORKS = "for name in left: through(name)"
ADAPTATION = Adaptation(form="pytest", entry="f", cases=1, assumptions=[], seconds=1.0)


class Shell:
    """Runs the command in a folder, with made-up workers."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        self.said: list[str] = []
        self.told: list[str] = []
        self._program = path / "worker.py"
        self.worker(WORKS)
        monkeypatch.chdir(path)
        monkeypatch.setattr(
            module, "Campaign", partial(Campaign, worker=(sys.executable, "-S", "-E", str(self._program)))
        )
        self.gpus: list[Any] = [gpu(0)]
        monkeypatch.setattr(module, "devices", lambda wanted: self.gpus)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
        for name in "abc":
            (path / "kernels").mkdir(exist_ok=True)
            (path / "kernels" / f"{name}.py").write_text("x = 1\n")

    def worker(self, body: str) -> None:
        self._program.write_text(PRELUDE + body)

    def run(self, *words: str) -> int:
        self.said.clear()
        self.told.clear()
        parser = argparse.ArgumentParser()
        add_commands(parser.add_subparsers(), argparse.ArgumentParser(add_help=False))
        given = parser.parse_args(["campaign", *words])
        return run_campaign(Settings(), given, say=self.said.append, tell=self.told.append)

    def refused(self, *words: str) -> str:
        assert self.run(*words) == 2
        assert self.said == []
        (told,) = self.told
        return told

    def campaign(self, name: str, *records: KernelRecord, agent: str = "tune") -> CampaignFolder:
        """One that is there, with these records."""
        assert self.run("kernels", "--agent", agent, "--out", name, "--only", *"abc") in (0, 1)
        folder = CampaignFolder(self.path / name)
        for record in records:
            folder.put(record)
        return folder


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    return Shell(tmp_path, monkeypatch)


# Sittings


def test_a_campaign_runs_reports_and_is_through(shell: Shell) -> None:
    assert shell.run("kernels") == 0
    folder = shell.path / "campaign-kernels"
    assert shell.said[:3] == [f"[{number}/3] {name}: no gain" for number, name in enumerate("abc", 1)]
    assert shell.said[-1].startswith("3 artefacts, 3 loaded, 0 runnable")
    assert shell.said[-1].endswith(f"Report: {folder / 'report.md'}")
    assert json.loads((folder / "report.json").read_text())["all"]["artefacts"] == 3
    assert shell.told == []


def test_a_report_names_no_path_of_this_machine(shell: Shell) -> None:
    shell.worker("sys.stderr.write(f'{folder}/x.py'); tell('started', name=left[0]); die()")
    shell.run("kernels", "--agent", f"{sys.executable} agent.py")
    text = (shell.path / "campaign-kernels" / "report.md").read_text()
    assert str(shell.path) not in text
    assert sys.executable not in text
    assert "process_died" in text


def test_a_sitting_that_leaves_something_says_so_and_the_next_goes_on(shell: Shell) -> None:
    shell.worker("through('a')")
    assert shell.run("kernels") == 1
    assert shell.said[-1].startswith("1 artefacts")
    shell.worker("tell('halted', why='unavailable: no GPU'); sys.exit(3)")
    assert shell.run("kernels", "--resume") == 1
    assert "given up: GPU 0: unavailable: no GPU" in shell.told
    assert "2 are left: --resume." in shell.said[-1]
    shell.worker(WORKS)
    assert shell.run("kernels", "--resume") == 0
    assert [line[:5] for line in shell.said[:2]] == ["[2/3]", "[3/3]"]


def test_kernels_are_worked_on_in_an_order_that_the_seed_decides(shell: Shell) -> None:
    for number in range(20):
        (shell.path / "kernels" / f"k{number:02}.py").write_text("x = 1\n")
    orders = list[list[str]]()
    for place, seed in enumerate("112"):
        shell.run("kernels", "--seed", seed, "--out", str(place))
        frozen = CampaignFolder(shell.path / str(place)).frozen()
        assert frozen is not None
        orders.append([entry.name for entry in frozen.entries])
    first, same, other = orders
    assert first == same != other
    assert first != sorted(first) == sorted(other)


def test_one_that_is_there_is_not_begun_again(shell: Shell) -> None:
    shell.run("kernels")
    assert "Go on with it by --resume" in shell.refused("kernels")
    assert shell.refused("kernels", "--resume", "--rounds", "3").startswith(
        f"{shell.path / 'campaign-kernels'} was begun with another number of rounds"
    )


def test_kernels_are_worked_on_again_by_their_outcome(shell: Shell) -> None:
    folder = shell.campaign("out", made("a", "failed"), made("b", "baseline_failed"), gained("c", 2.0))
    assert shell.run("kernels", "--out", "out", "--only", *"abc", "--resume", "--again", "failed") == 0
    outcomes = {name: record.outcome for name in "abc" if (record := folder.record(name)) is not None}
    assert outcomes == {"a": "no_gain", "b": "baseline_failed", "c": "gained"}
    told = shell.refused("kernels", "--out", "out", "--only", *"abc", "--resume", "--again", "broken")
    assert told.startswith("--again broken is no outcome. Outcomes are not_loaded, ")


def test_what_was_only_measured_is_left_for_an_agent(shell: Shell) -> None:
    shell.campaign("out", *[made(name, "measured") for name in "abc"], agent="none")
    again = ("kernels", "--out", "out", "--only", *"abc", "--resume")
    assert shell.run(*again, "--agent", "none") == 0
    shell.worker("sys.exit(1)")
    assert shell.run(*again) == 1
    assert "3 are left" in shell.said[-1]
    assert "0/3 through" in shell.said[-2]
    text = (shell.path / "out" / "report.md").read_text()
    assert "**Not finished: 3 of 3 artefacts are left" in text


def test_without_a_gpu_it_says_that_nothing_is_timed(shell: Shell) -> None:
    shell.gpus = []
    assert shell.run("kernels") == 0
    assert shell.told == ["there is no GPU here: results are compared in the interpreter, and nothing is timed"]


def test_python_files_that_are_passed_over_are_told(shell: Shell) -> None:
    write(shell.path / "kernels" / "sort" / "task.yml", "")
    assert shell.run("kernels", "--only", "sort") in (0, 1)
    (note,) = [line for line in shell.told if "passed over" in line]
    assert "3 Python files of kernels" in note


def test_tasks_alone(shell: Shell) -> None:
    folder = CampaignFolder(shell.path / "out")
    for name in "ab":
        for file in ("kernel.py", "task.py"):
            write(folder.kernel(name) / file, "")
        write(folder.adapted_file(name), ADAPTATION.model_dump_json())
    shell.worker("assert 'prepare' in sys.argv\nfor name in 'ab': tell('prepared', name=name, cases=1)")
    assert shell.run("kernels", "--out", "out", "--tasks-only") == 1
    assert shell.said[:2] == ["[1/3] a: a task with 1 case", "[2/3] b: a task with 1 case"]
    assert shell.said[-1] == f"2 of 3 artefacts have a task in {folder.path}, 1 are left; go on with --resume"
    assert not (folder.path / "report.md").exists()
    folder.put(made("c", "not_loaded"))
    assert shell.run("kernels", "--out", "out", "--tasks-only", "--resume") == 0
    assert "of 1 none could be made" in shell.said[-1]


# What it prints


def test_json_is_all_that_is_on_standard_output(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = list[Any]()
    live = module.Live

    def watched(*given: Any, **more: Any) -> Any:
        drawn.append(more["terminal"])
        return live(*given, **more)

    monkeypatch.setattr(module, "Live", watched)
    assert shell.run("kernels", "--json") == 0
    (text,) = shell.said
    assert json.loads(text)["all"]["artefacts"] == 3
    assert "[1/3] a: no gain" in shell.told
    assert drawn == [sys.stderr]


def test_a_report_is_written_of_what_is_there(shell: Shell) -> None:
    shell.campaign("out", gained("a", 2.0, hidden_checked=1))
    (shell.path / "out" / "report.md").unlink()
    shell.worker("raise SystemExit('nothing is to be worked on')")
    assert shell.run("--report-only", "--out", "out") == 0
    assert "| `a` |" in (shell.path / "out" / "report.md").read_text()
    assert "holds no campaign" in shell.refused("--report-only", "--out", "nowhere")
    assert "neither --out nor FOLDER" in shell.refused("--report-only")


def test_campaigns_are_set_side_by_side(shell: Shell) -> None:
    shell.campaign("x/tb", gained("a", 2.0))
    shell.campaign("y/tb", gained("a", 1.5))
    assert shell.run("--compare", "x/tb", "y/tb") == 0
    (text,) = shell.said
    assert "| `x/tb` |" in text
    assert "| `y/tb` |" in text
    assert str(shell.path) not in text


def test_comparing_tells_what_is_left_which_records_are_damaged_and_which_folders_differ(shell: Shell) -> None:
    whole = shell.campaign("whole", gained("a", 2.0))
    shell.campaign("again", gained("a", 2.0))
    shell.run("--compare", "whole", "again")
    assert "not through" not in shell.said[0]
    assert "same folder" not in shell.said[0]
    (whole.kernel("b") / "record.json").write_text("{")
    (whole.kernel("c") / "record.json").unlink()
    (shell.path / "kernels").rename(shell.path / "others")
    shell.run("others", "--out", "elsewhere")
    assert shell.run("--compare", "whole", "elsewhere") == 0
    text = shell.said[0]
    assert "- `whole` is not through with 2 of its artefacts" in text
    assert "of 1 the record is there and can't be read: `b`" in text
    assert "`elsewhere` is not through" not in text
    assert "**Not of the same folder**" in text
    assert "(`whole`: kernels; `elsewhere`: others)" in text
    assert str(shell.path) not in text


def test_comparing_names_folders_as_shortly_as_it_can(shell: Shell) -> None:
    shell.campaign("x/one", gained("a", 2.0))
    shell.campaign("x/two", gained("a", 1.5))
    shell.run("--compare", "x/one", "x/two")
    assert "| `one` |" in shell.said[0]


# Misuse


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "no FOLDER is named"),
        (("nowhere",), "there is no folder"),
        (("kernels", "--only", "z"), "has no z. It has a, b, c."),
        (("kernels", "--agent", "no-such-program x"), "there is no program 'no-such-program'"),
        (("kernels", "--agent", "'"), "can't be split"),
        (("kernels", "--agent", "  "), "there is no program"),
        (("kernels", "--agent-args", "'"), "can't be split"),
        (("--compare", "one"), "--compare takes two or more campaigns"),
        (("kernels", "--compare", "one", "two"), "--compare takes two or more campaigns"),
        (("--compare", "one", "two", "--json"), "no --json"),
        (("--compare", "one", "one"), "names a campaign twice"),
        (("--compare", "one", "two"), "holds no campaign"),
    ],
)
def test_misuse_is_told_in_a_line(shell: Shell, words: tuple[str, ...], told: str) -> None:
    assert told in shell.refused(*words)
    assert not (shell.path / "campaign-kernels").exists()


def test_arguments_become_a_plan(shell: Shell) -> None:
    words = "kernels --agent none --subset 2 --seed 5 --one-shot --no-profile --no-unseen --at-once 3 --wall-s 60"
    assert shell.run(*words.split(), "--performance", "perf", "--out", "out") == 0
    frozen = CampaignFolder(shell.path / "out").frozen()
    assert frozen is not None
    plan = frozen.plan
    assert (plan.folder, plan.performance) == (shell.path / "kernels", shell.path / "perf")
    assert (plan.subset, plan.seed, plan.rounds, plan.at_once, plan.wall_s) == (2, 5, 1, 3, 60.0)
    assert plan.ablations == {Ablation.ONE_SHOT, Ablation.NO_PROFILE}
    assert not plan.unseen
    assert len(frozen.entries) == 2
