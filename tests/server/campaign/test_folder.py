"""A campaign's folder: what is written is whole or not there, and sittings go on with what they were begun with."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.server.campaign.made_up_records import gained, made
from tritonforge.sandbox.errors import Stopped
from tritonforge.server.campaign.folder import Adaptation, Begun, CampaignFolder, is_through, write
from tritonforge.server.campaign.model import Entry, Plan
from tritonforge.server.optimize.model import Ablation

FILES = ("record.json", "begun.json")


def plan(**more: Any) -> Plan:
    return Plan.model_validate({"folder": Path("/kernels"), "agent": "tune", **more})


ENTRIES = [Entry(name=name, path=Path(f"/kernels/{name}.py"), lines=3) for name in ("b", "a")]


@pytest.fixture
def folder(tmp_path: Path) -> CampaignFolder:
    return CampaignFolder(tmp_path / "campaign")


def refused(folder: CampaignFolder, given: Plan, *, resume: bool = True) -> str:
    with pytest.raises(Stopped) as caught:
        folder.freeze(given, ENTRIES, resume=resume)
    return caught.value.problem.message


# Its plan


def test_what_it_was_begun_with_is_gone_on_with(folder: CampaignFolder) -> None:
    first = folder.freeze(plan(), ENTRIES, resume=False)
    assert [entry.name for entry in first.entries] == ["b", "a"]
    # Whatever the folder of artefacts has by now.
    assert folder.freeze(plan(), [], resume=True) == first
    assert CampaignFolder(folder.path).frozen() == first


def test_one_that_is_there_is_not_begun_anew(folder: CampaignFolder) -> None:
    folder.freeze(plan(), ENTRIES, resume=False)
    assert "holds a campaign that was begun" in refused(folder, plan(), resume=False)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"folder": Path("/others")}, "another folder"),
        ({"agent": "claude"}, "another agent"),
        ({"agent": "none"}, "another agent"),
        ({"agent_words": ("--model", "x")}, "another list of agent arguments"),
        ({"subset": 3}, "another subset"),
        ({"only": ("a",)}, "another choice of names"),
        ({"ablations": frozenset({Ablation.NO_PROFILE})}, "another set of ablations"),
        ({"rounds": 2}, "another number of rounds"),
        ({"search_s": 1.0}, "another search time"),
        ({"wall_s": 60.0}, "another time for a kernel"),
        ({"performance": Path("/perf")}, "another folder of performance files"),
        ({"rounds": 2, "agent": "x"}, "another agent and another number of rounds"),
    ],
)
def test_what_decides_the_results_can_not_be_changed(
    folder: CampaignFolder, changed: dict[str, Any], told: str
) -> None:
    folder.freeze(plan(), ENTRIES, resume=False)
    assert refused(folder, plan(**changed)).endswith(f"was begun with {told}")
    before = folder.frozen()
    assert before is not None
    assert before.plan == plan()


@pytest.mark.parametrize(("subset", "refuses"), [(None, False), (5, True)])
def test_the_seed_matters_where_it_chose(folder: CampaignFolder, subset: int | None, refuses: bool) -> None:
    folder.freeze(plan(subset=subset), ENTRIES, resume=False)
    if refuses:
        assert "another seed" in refused(folder, plan(subset=subset, seed=1))
    else:
        folder.freeze(plan(seed=1), ENTRIES, resume=True)


@pytest.mark.parametrize("changed", [{"at_once": 4}, {"unseen": False}])
def test_how_it_is_worked_on_may_change(folder: CampaignFolder, changed: dict[str, Any]) -> None:
    first = folder.freeze(plan(), ENTRIES, resume=False)
    assert folder.freeze(plan(**changed), [], resume=True) == first.model_copy(update={"plan": plan(**changed)})
    frozen = folder.frozen()
    assert frozen is not None
    assert frozen.plan == plan(**changed)


def test_baselines_alone_may_be_followed_by_one_agent(folder: CampaignFolder) -> None:
    folder.freeze(plan(agent="none"), ENTRIES, resume=False)
    folder.freeze(plan(agent="claude", rounds=3, wall_s=9.0), [], resume=True)
    assert "another agent" in refused(folder, plan(agent="codex", rounds=3, wall_s=9.0))


def test_a_damaged_plan_is_told(folder: CampaignFolder) -> None:
    folder.freeze(plan(), ENTRIES, resume=False)
    (folder.path / "campaign.json").write_text('{"plan":')
    with pytest.raises(Stopped, match="can't be read"):
        folder.frozen()


def test_a_place_that_can_not_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    told = refused(CampaignFolder(tmp_path / "file" / "campaign"), plan())
    assert told.startswith("nothing can be written into")


# Its records


def test_records_are_those_of_kernels_that_it_is_through_with(folder: CampaignFolder) -> None:
    frozen = folder.freeze(plan(), ENTRIES, resume=False)
    folder.put(gained("a", 2.0))
    folder.put(made("b", "measured"))
    folder.put(made("of another campaign", "no_gain"))
    assert [record.name for record in folder.records(frozen)] == ["a"]
    alone = frozen.model_copy(update={"plan": plan(agent="none")})
    assert [record.name for record in folder.records(alone)] == ["b", "a"]


@pytest.mark.parametrize(
    ("outcome", "agent", "through"),
    [("measured", "tune", False), ("measured", "none", True), ("no_gain", "tune", True), ("failed", "none", True)],
)
def test_a_measured_baseline_is_the_end_only_without_an_agent(outcome: str, agent: str, through: bool) -> None:
    assert is_through(made("a", outcome), plan(agent=agent)) is through


def test_a_record_ends_what_was_begun(folder: CampaignFolder) -> None:
    folder.begin("a", Begun(deaths=1, run_id="sin-1"))
    assert folder.begun("a") == Begun(deaths=1, run_id="sin-1")
    folder.put(gained("a", 2.0))
    assert folder.begun("a") == Begun()
    assert folder.record("a") == gained("a", 2.0)


@pytest.mark.parametrize("text", ["", "{}", '{"name": "a"', "null"])
def test_damaged_files_are_as_if_they_were_not_there(folder: CampaignFolder, text: str) -> None:
    for file in (*FILES, "adapted.json", "kernel.py", "task.py"):
        write(folder.kernel("a") / file, "x")
        (folder.kernel("a") / file).write_text(text)
    assert (folder.record("a"), folder.begun("a"), folder.adaptation("a")) == (None, Begun(), None)


def test_records_that_are_there_and_cannot_be_read_are_named(folder: CampaignFolder) -> None:
    frozen = folder.freeze(plan(), ENTRIES, resume=False)
    folder.put(gained("a", 2.0))
    folder.put(gained("b", 2.0))
    (folder.kernel("b") / "record.json").write_text("{")
    assert folder.damaged(frozen) == ["b"]


def test_a_kernel_that_is_forgotten_keeps_its_task(folder: CampaignFolder) -> None:
    adaptation = Adaptation(form="pytest", entry="f", cases=1, assumptions=[], seconds=1.0)
    for file in ("kernel.py", "task.py"):
        write(folder.kernel("a") / file, "")
    write(folder.adapted_file("a"), adaptation.model_dump_json())
    folder.put(gained("a", 2.0))
    folder.begin("a", Begun(run_id="sin-1"))
    folder.forget("a")
    assert (folder.record("a"), folder.begun("a"), folder.adaptation("a")) == (None, Begun(), adaptation)


@pytest.mark.parametrize("gone", ["kernel.py", "task.py"])
def test_a_task_of_which_a_file_is_gone_is_none(folder: CampaignFolder, gone: str) -> None:
    adaptation = Adaptation(form="pytest", entry="f", cases=1, assumptions=[], seconds=1.0)
    write(folder.adapted_file("a"), adaptation.model_dump_json())
    for file in {"kernel.py", "task.py"} - {gone}:
        write(folder.kernel("a") / file, "")
    assert folder.adaptation("a") is None


def test_what_was_found_is_cleared_and_the_task_stays(folder: CampaignFolder) -> None:
    kept = {"kernel.py", "task.py", "adapted.json"}
    for file in (*kept, "baseline.json", "error.txt", "winner/kernel.py"):
        write(folder.kernel("a") / file, "x")
    folder.clear("a")
    assert {path.name for path in folder.kernel("a").iterdir()} == kept
    folder.clear("of which nothing is there")


# Several processes, and those that end in the middle


def test_a_kernel_is_claimed_by_one_and_free_again_when_that_one_is_gone(folder: CampaignFolder) -> None:
    claim = (
        "import sys; from pathlib import Path; from tritonforge.server.campaign.folder import CampaignFolder\n"
        "with CampaignFolder(Path(sys.argv[1])).claimed('a') as ours:\n"
        "    print(ours, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", claim, str(folder.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"True\n"
        with folder.claimed("a") as ours, folder.claimed("b") as second:
            assert (ours, second) == (False, True)
        other.kill()
        other.wait()
    with folder.claimed("a") as ours, folder.claimed("a") as twice:
        assert (ours, twice) == (True, False)


def test_a_file_that_is_half_written_is_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "record.json"
    write(file, "before")

    def fails(self: Path, text: str, **more: Any) -> int:
        with self.open("w") as half:
            half.write(text[:2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", fails)
    with pytest.raises(OSError, match="No space"):
        write(file, "after")
    monkeypatch.undo()
    assert file.read_text() == "before\n"
    assert [path.name for path in tmp_path.iterdir()] == ["record.json"]


def test_a_process_that_is_killed_while_it_writes_leaves_no_half_record(folder: CampaignFolder) -> None:
    folder.put(gained("a", 2.0))
    # It ends between the new file's bytes and its name.
    code = (
        "import os, signal, sys; from pathlib import Path\n"
        "from tritonforge.server.campaign.folder import write\n"
        "Path.replace = lambda *given: os.kill(os.getpid(), signal.SIGKILL)\n"
        "write(Path(sys.argv[1]), '{')"
    )
    file = folder.kernel("a") / "record.json"
    assert subprocess.run([sys.executable, "-c", code, str(file)], check=False).returncode == -9
    assert folder.record("a") == gained("a", 2.0)
