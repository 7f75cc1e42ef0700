"""One process's share of a campaign: whichever kernels nobody else has, a task ahead of the measurements."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.server.campaign.made_up_records import made
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.outcome import Kind, Problem
from tritonforge.server.campaign import work as module
from tritonforge.server.campaign.events import Event, Finished
from tritonforge.server.campaign.folder import Adaptation, Begun, CampaignFolder, Frozen
from tritonforge.server.campaign.model import Entry, KernelRecord, Plan
from tritonforge.server.campaign.work import PREPARING, Work

pytestmark = pytest.mark.anyio

NAMES = "abcdef"
ADAPTATION = Adaptation(form="pytest", entry="f", cases=2, assumptions=[], seconds=1.0)


class Share:
    """A campaign of six kernels, whose tasks and measurements are made up."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = CampaignFolder(path)
        self._entries = [Entry(name=name, path=Path(f"/k/{name}.py"), lines=1) for name in NAMES]
        self.told: list[Event] = []
        self.adapted: list[str] = []
        self.worked: list[str] = []
        self.at_once = 0
        self.most = 0
        self.ends: dict[str, Any] = {}
        """What becomes of a kernel: a record, or what is raised."""
        self.without_task: set[str] = set()
        monkeypatch.setattr(module, "worked", self._work)

    def frozen(self, **plan: Any) -> Frozen:
        given = Plan.model_validate({"folder": Path("/k"), "agent": "tune", **plan})
        return Frozen(plan=given, entries=self._entries, version="1", begun_at="now")

    async def _work(self, bench: Any, folder: Any, plan: Plan, entry: Entry, task: Any, stage: Any) -> KernelRecord:
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        stage("timing")
        await anyio.lowlevel.checkpoint()
        self.at_once -= 1
        self.worked.append(entry.name)
        end = self.ends.get(entry.name, made(entry.name, "no_gain"))
        if isinstance(end, BaseException):
            raise end
        return end

    async def adapt(self, entry: Entry) -> Adaptation | KernelRecord:
        self.adapted.append(entry.name)
        if entry.name in self.without_task:
            return made(entry.name, "not_loaded")
        return ADAPTATION

    async def run(self, *, only_tasks: bool = False, **plan: Any) -> None:
        bench: Any = None if only_tasks else object()
        await Work(self.folder, self.frozen(**plan), bench, self.adapt, self.told.append).run()

    def outcomes(self) -> dict[str, str]:
        return {record.name: record.outcome for record in self.folder.records(self.frozen())}

    def events(self, name: str) -> list[str]:
        return [
            event.event
            for event in self.told
            if (event.record.name if isinstance(event, Finished) else getattr(event, "name", None)) == name
        ]


@pytest.fixture
def share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Share:
    return Share(tmp_path / "campaign", monkeypatch)


async def test_every_kernel_is_worked_on_and_what_is_done_is_told(share: Share) -> None:
    share.without_task = {"b"}
    await share.run()
    assert share.outcomes() == {name: "not_loaded" if name == "b" else "no_gain" for name in NAMES}
    assert sorted(share.worked) == list("acdef")
    assert share.events("a") == ["preparing", "prepared", "started", "staged", "finished"]
    assert share.events("b") == ["preparing", "finished"]


@pytest.mark.parametrize("at_once", [1, 3])
async def test_no_more_are_worked_on_at_a_time_than_the_plan_says(share: Share, at_once: int) -> None:
    await share.run(at_once=at_once)
    assert share.most == at_once


def counting(share: Share) -> list[int]:
    """How many tasks are made at a time, whenever one more is; none while a kernel is worked on."""
    seen, now, waits = list[int](), 0, share.adapt

    async def adapt(entry: Entry) -> Adaptation | KernelRecord:
        nonlocal now
        now += 1
        if len(share.adapted) < len(NAMES):
            assert share.worked == []
            seen.append(now)
        await anyio.lowlevel.checkpoint()
        now -= 1
        return await waits(entry)

    share.adapt = adapt  # pyright: ignore[reportAttributeAccessIssue]
    return seen


async def test_all_tasks_are_made_before_anything_is_worked_on(share: Share) -> None:
    seen = counting(share)
    await share.run()
    assert len(seen) >= len(NAMES)
    assert max(seen) == min(PREPARING, len(NAMES))
    assert sorted(share.worked) == list(NAMES)


async def test_after_a_death_there_is_one_suspect_at_a_time(share: Share) -> None:
    share.folder.begin("c", Begun(deaths=1))
    seen = counting(share)
    await share.run(at_once=3)
    assert max(seen) == 1
    assert share.most == 1
    assert sorted(share.worked) == list(NAMES)


async def test_tasks_alone_are_made_without_a_bench(share: Share) -> None:
    share.without_task = {"b"}
    await share.run(only_tasks=True)
    assert share.worked == []
    assert share.outcomes() == {"b": "not_loaded"}
    assert share.events("a") == ["preparing", "prepared"]


async def test_what_is_through_is_not_worked_on_again(share: Share) -> None:
    share.folder.put(made("a", "failed"))
    share.folder.put(made("b", "measured"))
    share.folder.put(made("c", "no_gain"))
    (share.folder.kernel("c") / "record.json").write_text('{"name": "c"')
    await share.run()
    # An agent goes on with what was measured; a damaged record is none.
    assert sorted(share.worked) == list("bcdef")


async def test_measured_baselines_are_through_without_an_agent(share: Share) -> None:
    share.folder.put(made("b", "measured"))
    await share.run(agent="none")
    assert sorted(share.worked) == list("acdef")


async def test_what_another_process_has_is_left_to_it(share: Share) -> None:
    with share.folder.claimed("c") as ours:
        assert ours
        await share.run()
    assert sorted(share.worked) == list("abdef")


async def test_two_shares_of_one_folder_never_work_on_one_kernel_twice(share: Share) -> None:
    async with anyio.create_task_group() as group:
        for _ in range(2):
            group.start_soon(share.run)
    assert sorted(share.worked) == list(NAMES)


@pytest.mark.parametrize("kind", [Kind.UNAVAILABLE, Kind.CANCELLED])
async def test_what_the_next_kernel_would_not_fare_better_with_ends_the_work(share: Share, kind: Kind) -> None:
    share.ends["b"] = Stopped(kind, Problem(stage="environment", message="the GPU is lost"))
    with pytest.raises(Stopped, match="the GPU is lost"):
        await share.run()
    assert share.outcomes() == {"a": "no_gain"}
    # Nothing is left claimed.
    for name in NAMES:
        with share.folder.claimed(name) as ours:
            assert ours
