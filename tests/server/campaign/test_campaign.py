"""A sitting of a campaign, with made-up worker processes: their deaths, their words, and signals."""

import os
import signal
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.server.conftest import wait_for_end
from tritonforge.sandbox import nvml
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.nvml import GpuDevice, NvmlUnavailable
from tritonforge.server.campaign.campaign import FAILURES_LIMIT, Campaign, devices
from tritonforge.server.campaign.folder import Begun, CampaignFolder, Frozen
from tritonforge.server.campaign.model import Entry, KernelRecord, Plan
from tritonforge.server.settings import Settings

pytestmark = pytest.mark.anyio

PRELUDE = """\
import json, os, signal, sys, time
from pathlib import Path
folder = Path(sys.argv[1])
gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "cpu")
with (folder / f"starts-{gpu}").open("a") as file:
    file.write("x")
start = len((folder / f"starts-{gpu}").read_text())
def tell(event, **more):
    print(json.dumps({"event": event, **more}), flush=True)
def through(name, tells=True):
    record = {"name": name, "path": f"{name}.py", "lines": 3, "outcome": "no_gain"}
    place = folder / "kernels" / name
    place.mkdir(parents=True, exist_ok=True)
    (place / "record.json").write_text(json.dumps(record))
    if tells:
        tell("finished", record=record)
def is_open(name):
    return not (folder / "kernels" / name / "record.json").exists()
def die():
    os.kill(os.getpid(), signal.SIGKILL)
left = [name for name in ("a", "b", "c") if is_open(name)]
"""


class Watch:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.said: list[tuple[Any, ...]] = []
        self.begun = anyio.Event()

    def preparing(self, name: str, where: str | None) -> None:
        self.said.append(("preparing", name, where))

    def prepared(self, name: str, cases: int) -> None:
        self.said.append(("prepared", name, cases))

    def started(self, name: str, where: str | None) -> None:
        self.said.append(("started", name, where))
        self.begun.set()

    def staged(self, name: str, stage: str) -> None:
        self.said.append(("staged", name, stage))

    def finished(self, record: KernelRecord) -> None:
        self.said.append(("finished", record.name, record.outcome))

    def halted(self, where: str | None, why: str, kernels: Collection[str]) -> None:
        self.said.append(("halted", where, why, sorted(kernels)))

    def of(self, kind: str) -> list[tuple[Any, ...]]:
        return [each[1:] for each in self.said if each[0] == kind]


class Sitting:
    """A campaign over a, b and c, whose workers do what a program says."""

    def __init__(self, path: Path) -> None:
        self.folder, self.watch = CampaignFolder(path / "campaign"), Watch()
        entries = [Entry(name=name, path=Path(f"/home/me/kernels/{name}.py"), lines=3) for name in "abc"]
        plan = Plan(folder=Path("/home/me/kernels"), agent="tune")
        self.frozen: Frozen = self.folder.freeze(plan, entries, resume=False)
        self._program = path / "worker.py"

    def campaign(self, body: str, **more: Any) -> Campaign:
        self._program.write_text(PRELUDE + body)
        words = (sys.executable, "-S", "-E", str(self._program))
        return Campaign(self.folder, self.frozen, Settings(), self.watch, worker=words, **more)

    async def run(self, body: str, *gpus: GpuDevice, **more: Any) -> Campaign:
        campaign = self.campaign(body, **more)
        with anyio.fail_after(60):
            await campaign.run(gpus)
        return campaign

    def outcomes(self) -> dict[str, str]:
        return {record.name: record.outcome for record in self.folder.records(self.frozen)}


@pytest.fixture
def sitting(tmp_path: Path) -> Sitting:
    return Sitting(tmp_path)


def gpu(index: int) -> GpuDevice:
    return GpuDevice(index=index, uuid=f"GPU-{index}{index}{index}", name="NVIDIA H200", memory_total_bytes=1)


async def test_what_a_worker_tells_is_shown(sitting: Sitting) -> None:
    campaign = await sitting.run(
        "tell('preparing', name='a'); tell('prepared', name='a', cases=2)\n"
        "tell('started', name='a'); tell('staged', name='a', stage='timing')\n"
        "for name in left: through(name)",
        gpu(3),
    )
    assert sitting.watch.said[:4] == [
        ("preparing", "a", "GPU 3"),
        ("prepared", "a", 2),
        ("started", "a", "GPU 3"),
        ("staged", "a", "timing"),
    ]
    assert sitting.outcomes() == dict.fromkeys("abc", "no_gain")
    assert (campaign.halted, campaign.interrupted) == ([], None)


async def test_each_gpu_has_a_worker_of_its_own(sitting: Sitting) -> None:
    await sitting.run("for name in left: through(name)", gpu(0), gpu(1))
    assert {path.name for path in sitting.folder.path.glob("starts-*")} == {"starts-GPU-000", "starts-GPU-111"}


async def test_garbage_costs_nothing(sitting: Sitting) -> None:
    await sitting.run(
        'print(\'Segmentation fault?\'); print(\'{"event": "started"}\'); print(\'{"event": "dances"}\')\n'
        "sys.stdout.buffer.write(b'\\xff\\xfe\\n'); tell('started', name='of another campaign')\n"
        "for name in left: through(name)\nprint('no end of line', end='')"
    )
    assert sitting.outcomes() == dict.fromkeys("abc", "no_gain")
    assert sitting.watch.of("started") == []


async def test_a_kernel_that_kills_its_process_twice_is_given_up_and_the_rest_goes_on(sitting: Sitting) -> None:
    campaign = await sitting.run(
        "for name in left:\n"
        "    tell('started', name=name)\n"
        "    if name == 'b':\n"
        "        print('it broke in /home/me/secret/file.py', file=sys.stderr, flush=True); die()\n"
        "    through(name)",
        gpu(0),
    )
    assert sitting.outcomes() == {"a": "no_gain", "b": "failed", "c": "no_gain"}
    record = sitting.folder.record("b")
    assert record is not None
    assert record.failure_kind == "process_died"
    assert record.why is not None
    assert record.why.startswith("2 times the process ended that worked on it")
    assert "SIGKILL (it broke in file.py)" in record.why
    assert "/home/me" not in record.why
    assert [each[2] for each in sitting.watch.of("halted")] == [["b"], ["b"]]
    assert campaign.halted == []


async def test_one_death_is_remembered_and_the_run_too(sitting: Sitting) -> None:
    sitting.folder.begin("a", Begun(run_id="sin-1"))
    await sitting.run(
        "if start == 1:\n    tell('started', name='a'); die()\n"
        "assert json.loads((folder / 'kernels/a/begun.json').read_text()) == {'deaths': 1, 'run_id': 'sin-1'}\n"
        "for name in left: through(name)"
    )
    assert sitting.outcomes() == dict.fromkeys("abc", "no_gain")


async def test_who_only_had_its_task_made_is_not_to_blame(sitting: Sitting) -> None:
    await sitting.run(
        "if start == 1:\n    tell('started', name='a'); tell('preparing', name='b'); die()\n"
        "for name in left: through(name)"
    )
    assert (sitting.folder.begun("a").deaths, sitting.folder.begun("b").deaths) == (1, 0)


async def test_an_artefact_that_kills_whoever_makes_its_task_is_given_up(sitting: Sitting) -> None:
    await sitting.run(
        "for name in left:\n    tell('preparing', name=name)\n    if name == 'a': die()\n    through(name)"
    )
    assert sitting.outcomes() == {"a": "failed", "b": "no_gain", "c": "no_gain"}


async def test_a_record_that_was_written_before_the_end_counts(sitting: Sitting) -> None:
    await sitting.run(
        "tell('started', name=left[0])\nif start == 1:\n    through(left[0], tells=False); die()\n"
        "for name in left: through(name)"
    )
    assert sitting.outcomes() == dict.fromkeys("abc", "no_gain")
    assert sitting.folder.begun("a").deaths == 0
    assert [name for name, _ in sitting.watch.of("finished")] == ["a", "b", "c"]


async def test_a_gpu_on_which_nothing_gets_through_is_given_up(sitting: Sitting) -> None:
    campaign = await sitting.run(
        "tell('started', name='a'); tell('halted', why='unavailable: the GPU is lost'); sys.exit(3)", gpu(0)
    )
    assert campaign.halted == ["GPU 0: unavailable: the GPU is lost"]
    assert sitting.watch.of("halted") == [("GPU 0", "unavailable: the GPU is lost", ["a"])] * FAILURES_LIMIT
    # That was no kernel's doing.
    assert sitting.outcomes() == {}
    assert sitting.folder.begun("a").deaths == 0


async def test_what_gets_through_gives_a_gpu_further_tries(sitting: Sitting) -> None:
    campaign = await sitting.run("if start % 3 == 0 and left: through(left[0])\nif is_open('c'): sys.exit(1)", gpu(0))
    assert sitting.outcomes() == dict.fromkeys("abc", "no_gain")
    assert campaign.halted == []


async def test_what_a_gpu_leaves_that_is_given_up_goes_to_another(sitting: Sitting) -> None:
    # The healthy one is through with the others, and gone, before the other one is given up.
    campaign = await sitting.run(
        "if gpu == 'GPU-000':\n"
        "    while is_open('b') or is_open('c'): time.sleep(0.01)\n"
        "    sys.exit(1)\n"
        "for name in left if start > 1 else ['b', 'c']: through(name)",
        gpu(0),
        gpu(1),
    )
    assert sitting.outcomes() == dict.fromkeys("abc", "no_gain")
    assert len(campaign.halted) == 1


async def test_a_process_that_says_nothing_is_told_by_its_last_words_alone(sitting: Sitting) -> None:
    campaign = await sitting.run("if start == 1: print('first', file=sys.stderr)\nsys.exit(7)")
    assert [each[1] for each in sitting.watch.of("halted")] == [
        "its process ended with code 7 (first)",
        "its process ended with code 7",
        "its process ended with code 7",
    ]
    assert campaign.halted == ["the worker: its process ended with code 7"]


async def test_a_child_that_holds_its_output_does_not_hold_the_campaign(sitting: Sitting) -> None:
    await sitting.run(
        "child = os.fork()\nif not child:\n    time.sleep(600)\n"
        "(folder / 'child').write_text(str(child))\nfor name in left: through(name)"
    )
    assert sitting.outcomes() == dict.fromkeys("abc", "no_gain")
    wait_for_end([int((sitting.folder.path / "child").read_text())])


async def test_a_signal_ends_the_workers_and_keeps_what_is_through(sitting: Sitting) -> None:
    campaign = sitting.campaign(
        "through('a'); (folder / 'pid').write_text(str(os.getpid())); tell('started', name='b'); time.sleep(600)"
    )
    async with anyio.create_task_group() as group:
        group.start_soon(campaign.run, [gpu(0)])
        with anyio.fail_after(60):
            await sitting.watch.begun.wait()
        os.kill(os.getpid(), signal.SIGINT)
    assert campaign.interrupted is signal.SIGINT
    assert sitting.outcomes() == {"a": "no_gain"}
    # That was nobody's fault.
    assert sitting.folder.begun("b").deaths == 0
    wait_for_end([int((sitting.folder.path / "pid").read_text())])


async def test_workers_are_told_where_and_how(sitting: Sitting) -> None:
    await sitting.run("(folder / 'words').write_text(json.dumps(sys.argv[1:]))", only_tasks=True)
    words = (sitting.folder.path / "words").read_text()
    assert f'["{sitting.folder.path}", ' in words
    assert words.endswith('"prepare"]')


# GPUs


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "devices", lambda: [gpu(number) for number in range(3)])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.parametrize(
    ("wanted", "visible", "found"),
    [
        (None, None, [0]),
        ("all", None, [0, 1, 2]),
        ("2,0", None, [2, 0]),
        ("GPU-111", None, [1]),
        (None, "2,1", [2]),
        ("all", "2,1", [2, 1]),
        ("0", "2", [0]),
        (None, "", []),
    ],
)
def test_gpus_are_chosen_as_cuda_does(
    three: None, monkeypatch: pytest.MonkeyPatch, wanted: str | None, visible: str | None, found: list[int]
) -> None:
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert [device.index for device in devices(wanted)] == found


@pytest.mark.parametrize("wanted", ["3", "0,3", "0,0", "GPU-9"])
def test_a_gpu_that_is_not_there_is_refused(three: None, wanted: str) -> None:
    with pytest.raises(Stopped, match="names a GPU that is not here") as caught:
        devices(wanted)
    assert "2 (NVIDIA H200, GPU-222)" in (caught.value.problem.likely_fix or "")


def test_gpus_that_are_asked_for_are_not_silently_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> list[GpuDevice]:
        raise NvmlUnavailable("there is no driver", "Install one.")

    monkeypatch.setattr(nvml, "devices", none)
    assert devices(None) == []
    for wanted in ("all", "0"):
        with pytest.raises(Stopped, match="there is none here: there is no driver"):
            devices(wanted)
