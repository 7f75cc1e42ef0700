"""Variants beside the original on fake workers: what is timed, what is never looked at, and what one failure leaves."""

import random
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from tests.sandbox.fake_timed import FakeTimed, stopped
from tests.server.conftest import EXAMPLES
from tests.server.fake_timing import FakeExecutor, FakeKernel, World
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.executors.base import Device
from tritonforge.sandbox.lease import Sharing
from tritonforge.sandbox.outcome import Kind, Problem
from tritonforge.sandbox.source import Source, read_source
from tritonforge.sandbox.task import parse_task
from tritonforge.sandbox.workers import task_worker
from tritonforge.server.probing import BLOCKS, NOT_RESULTS, ProbeResult, probe
from tritonforge.server.services import Services, Shared
from tritonforge.server.settings import Settings

pytestmark = pytest.mark.anyio

TEXT = """\
import triton
import triton.language as tl


@triton.jit
def kernel(x, y, n):
    for k in range(n):
        tl.store(y + k, tl.exp(tl.load(x + k)))


def entry(x):
    kernel[(1,)](x, x, 3)
"""
SIDES = ("original", "idle_loads", "no_stores", "no_math", "half_trips", "neither")
"""In the order in which their processes are started."""
ALONE = Sharing(foreign=[], checked=True, reason=None)


class FakeServices:
    """What a probe takes from the server."""

    def __init__(self, world: World) -> None:
        self.executor = FakeExecutor(world)
        self.gpu_asked = 0

    async def require_gpu(self, stage: str) -> None:
        self.gpu_asked += 1

    @asynccontextmanager
    async def gpu_turn(self) -> AsyncGenerator[Device]:
        yield Device(index=0, uuid="GPU-1", name="NVIDIA H200", memory_bytes=1)

    @asynccontextmanager
    async def measuring(self, device: Device) -> AsyncGenerator[Shared]:
        yield Shared(ALONE)

    async def look_again(self, device: Device, shared: Shared) -> None:
        shared.after = ALONE


class Probing:
    """A probe with everything around it made up: what each side takes, and what becomes of its process."""

    def __init__(self) -> None:
        self.world = World(us=dict.fromkeys(SIDES, 100.0), started=self._name)
        self.services = FakeServices(self.world)
        self.tuned: dict[str, str] = {}
        """Side -> what the autotuner chose."""
        self.faults: dict[str, dict[str, Stopped]] = {}
        """Side -> operations that fail."""

    def _name(self, process: FakeTimed) -> None:
        if not isinstance(process, FakeKernel):
            return
        name = SIDES[process.index]

        def load_kernel(**_: Any) -> dict[str, Any]:
            process._become(name)  # pyright: ignore[reportPrivateUsage]  all files are shown alike here
            return {}

        def tuned() -> dict[str, Any]:
            choice = self.tuned.get(name, "BLOCK: 64")
            return {"tuned": [{"kernel": "kernel", "configuration": choice, "configurations": 2}]}

        process.do_load_kernel, process.do_tuned = load_kernel, tuned
        process.faults = self.faults.get(name, {})

    async def run(self, *wanted: str, text: str = TEXT, launched: Mapping[str, int] | None = None) -> ProbeResult:
        task = Source("task", "task.py", None)
        spec = parse_task(self.world.description)
        kernel = Source(text, "kernel.py", None)
        found = await probe(cast(Services, self.services), kernel, task, spec, "train", wanted, launched=launched)
        assert self.services.executor.alive == 0
        return found

    def side(self, name: str) -> FakeTimed:
        (process,) = self.services.executor.named(name)
        return process


@pytest.fixture
def probing() -> Probing:
    random.seed(1)
    return Probing()


async def test_each_variant_is_timed_beside_the_original(probing: Probing) -> None:
    probing.world.us |= {"idle_loads": 41.0, "no_math": 80.0, "half_trips": 55.0, "neither": 20.0}
    found = await probing.run(*SIDES[1:])
    assert [one.name for one in found.probes] == list(SIDES[1:])
    left = {one.name: one.left_pct for one in found.probes}
    expected = {"idle_loads": 41, "no_stores": 100, "no_math": 80, "half_trips": 55, "neither": 20}
    assert left == pytest.approx(expected, rel=0.003)
    assert [one.effect for one in found.probes] == ["saves", "same", "saves", "saves", "saves"]
    assert found.original_us == pytest.approx(100, rel=0.003)
    assert (found.original_low_us or 0) < (found.original_us or 0) < (found.original_high_us or 0)
    assert any("Of these, idle_loads saves most" in said for said in found.says)
    assert any("overlap" in said for said in found.says)


async def test_results_of_variants_are_never_looked_at(probing: Probing) -> None:
    found = await probing.run("idle_loads")
    assert NOT_RESULTS in found.notes
    operations = {name for _, process in probing.services.executor.started for name, _ in process.asked}
    assert not operations & {"outputs", "record", "call", "judge", "judge_outputs", "vary"}


async def test_original_and_variant_meet_the_same_inputs_and_conditions(probing: Probing) -> None:
    await probing.run("idle_loads")
    original, idle = probing.side("original"), probing.side("idle_loads")
    assert original.fields("set_inputs") == idle.fields("set_inputs")
    assert original.fields("prepare") == idle.fields("prepare")
    assert original.fields("prepare")[0]["flush_bytes"] > 0
    assert original.count("visit") == idle.count("visit") <= 2 * (BLOCKS + 4)
    (loaded,) = idle.fields("load_kernel")
    assert b"_probe_load(x + k)" in loaded["blobs"][0]
    assert loaded["entry"] == "entry"


async def test_a_variant_that_runs_at_another_clock_is_told(probing: Probing) -> None:
    def faster(process: FakeTimed) -> None:
        process.clock_hz = lambda: 1.98e9 if process.name == "idle_loads" else 1.8e9

    probing.world.changed = faster
    found = await probing.run("idle_loads")
    assert found.probes[0].clock_pct == pytest.approx(110)
    assert "(its SM clock was 110.0 % of the original's, which is a part of that)" in found.says[0]


async def test_a_clear_difference_is_told_early(probing: Probing) -> None:
    probing.world.us["idle_loads"] = 41.0
    await probing.run("idle_loads")
    clear = probing.side("idle_loads").count("visit")
    again = Probing()
    await again.run("idle_loads")
    assert clear < again.side("idle_loads").count("visit")


@pytest.mark.parametrize(
    ("operation", "kind"),
    [
        ("load_kernel", Kind.RUNTIME_ERROR),
        ("first_call", Kind.COMPILE_ERROR),
        ("lay_out", Kind.OUT_OF_MEMORY),
        ("visit", Kind.TIMEOUT),
    ],
)
async def test_a_variant_that_fails_has_a_reason_and_the_rest_goes_on(
    probing: Probing, operation: str, kind: Kind
) -> None:
    probing.world.us["no_math"] = 80.0
    probing.faults["idle_loads"] = {operation: Stopped(kind, Problem(stage="run", message="it broke", line=7))}
    failed, fine = (await probing.run("idle_loads", "no_stores")).probes
    assert (failed.not_measured, failed.left_pct, failed.lines) == ("run: it broke (line 7)", None, [8])
    assert fine.left_pct is not None


async def test_an_original_that_fails_ends_it(probing: Probing) -> None:
    probing.faults["original"] = {"first_call": stopped(Kind.RUNTIME_ERROR, "no such function")}
    with pytest.raises(Stopped, match="no such function"):
        await probing.run("idle_loads")
    later = Probing()
    later.faults["original"] = {"visit": stopped(Kind.RUNTIME_ERROR, "illegal access")}
    with pytest.raises(Stopped, match="illegal access"):
        await later.run("idle_loads")


async def test_a_cancelled_probe_ends(probing: Probing) -> None:
    probing.faults["idle_loads"] = {"visit": stopped(Kind.CANCELLED, "cancelled")}
    with pytest.raises(Stopped) as caught:
        await probing.run("idle_loads", "no_stores")
    assert caught.value.kind is Kind.CANCELLED


async def test_another_choice_of_the_autotuner_is_no_comparison(probing: Probing) -> None:
    probing.tuned["idle_loads"] = "BLOCK: 128"
    (found,) = (await probing.run("idle_loads")).probes
    assert found.left_pct is None
    assert (found.not_measured or "").startswith("the autotuner chose BLOCK: 128 for it")
    assert probing.side("idle_loads").count("visit") == 0


async def test_what_cannot_be_made_needs_no_gpu(probing: Probing) -> None:
    found = await probing.run("no_math", "no_loads", text=TEXT.replace("tl.exp(tl.load(x + k))", "1.0"))
    assert (probing.services.gpu_asked, probing.services.executor.started) == (0, [])
    assert ["nothing to take away" in (one.not_measured or "") for one in found.probes] == [True, True]
    assert (found.original_us, found.says) == (None, [])


async def test_those_that_tell_most_are_the_default(probing: Probing) -> None:
    found = await probing.run()
    assert [one.name for one in found.probes] == list(SIDES[1:])


async def test_an_unknown_probe_is_rejected_with_what_there_is(probing: Probing) -> None:
    with pytest.raises(Stopped) as caught:
        await probing.run("no_lods")
    assert caught.value.kind is Kind.REJECTED
    assert "idle_loads" in (caught.value.problem.likely_fix or "")


async def test_kernels_that_are_not_launched_are_not_changed(probing: Probing) -> None:
    (found,) = (await probing.run("idle_loads", launched={"other": 3})).probes
    assert found.not_measured == "no kernel of this file is launched"


async def test_a_reason_is_one_short_printable_line(probing: Probing) -> None:
    probing.faults["idle_loads"] = {"first_call": stopped(Kind.RUNTIME_ERROR, "a\n\x1b[31mb" + "c" * 5000)}
    (found,) = (await probing.run("idle_loads")).probes
    reason = found.not_measured or ""
    assert reason.startswith("run: a ?[31mbc")
    assert len(reason) == 400


@pytest.mark.gpu
async def test_a_kernel_that_moves_bytes_spends_its_time_on_them(settings: Settings) -> None:
    kernel, task = (read_source(str(EXAMPLES / "cases/tiny_block" / name), "file") for name in ("fast.py", "task.py"))
    async with Services(settings) as services:
        async with task_worker(services.executor, on_gpu=False) as tasks:
            spec = await tasks.load(task)
        found = await probe(services, kernel, task, spec, "large", [], launched={"silu_kernel": 3})
    measured = {one.name: one for one in found.probes}
    assert [one.name for one in found.probes if one.not_measured is None] == [
        "idle_loads", "no_stores", "no_math", "neither",
    ]  # fmt: skip
    assert "nothing to take away" in (measured["half_trips"].not_measured or "")
    assert measured["idle_loads"].effect == measured["no_stores"].effect == "saves"
    assert (measured["idle_loads"].left_pct or 100) < 90
    assert (measured["neither"].left_pct or 100) < 90
