"""What tools answer on a machine with a GPU: measurements that were made up or recorded, through what reports them."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.diagnosis import made_up as diagnosis
from tests.profiling.made_up import spec
from tests.profiling.ncu.recorded import recorded
from tests.server import test_tune_kernel
from tests.server.conftest import EXAMPLES, SIN
from tests.server.fake_timing import CASE, World
from tests.server.made_up_times import against, timed_case, times
from tests.server.runs.in_store import lesson
from tests.server.runs.kept import store_in
from tests.server.test_benchmark_report import light_of, reported
from tests.server.test_benchmark_tool import FakeServices
from tests.server.test_hardware_spec import FACTS, Machine
from tests.server.test_profile_report import RULE, lines, spot
from tritonforge.profiling.hardware.ceilings import Ceilings
from tritonforge.profiling.ncu.hotspots import Excess
from tritonforge.profiling.ncu.report import summarize
from tritonforge.sandbox.profile_facts import ReportedMetric
from tritonforge.sandbox.source import Source
from tritonforge.sandbox.task import Task
from tritonforge.sandbox.timing_facts import Tuned
from tritonforge.server.memo import Memo
from tritonforge.server.nsight_compute import Profiler
from tritonforge.server.results import Result
from tritonforge.server.runs.machine import Machine as LessonsMachine
from tritonforge.server.services import Services
from tritonforge.server.settings import Settings
from tritonforge.server.timed_result import Against
from tritonforge.server.tools import diagnose_kernel, profile_ncu, recall_lessons
from tritonforge.server.tools.profile_case import CaseProfile, Profiled
from tritonforge.server.tools.profile_ncu import ProfileResult

Answer = Callable[[Path, pytest.MonkeyPatch], Awaitable[Result]]
"""Takes an empty folder, and what it may patch until it has answered."""
CEILINGS = Ceilings(**FACTS.model_dump(), uuid="GPU-1", torch="2.9.0", measured_at=datetime(2026, 11, 30, tzinfo=UTC))
BYTES = 2 * (1 << 24) * 4
"""That the large case of `sin` moves."""


async def ceilings(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Result:
    """`hardware_spec` that measures."""
    return await Machine(monkeypatch, folder).call(measure=True, target="h200")


async def ceilings_beside_another(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Result:
    """`hardware_spec` for another target than the GPU that is there, with details."""
    return await Machine(monkeypatch, folder).call(measure=True, target="h100", detail=True)


async def diagnosed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Result:
    """`diagnose_kernel` with a profile of a kernel near its floor."""
    fast = diagnosis.profile(
        kernel="sin_kernel", grid=((1 << 24) // 4, 1, 1), duration_us=BYTES / 4.8e6 * 1.05, dram_pct=95.0
    )

    async def measure() -> CaseProfile:
        return CaseProfile("large", [Profiled(fast, None, [], {})], 0, None, compulsory_bytes=float(BYTES))

    async def found(*_: object, **__: object) -> tuple[Callable[[], Awaitable[CaseProfile]], None]:
        return measure, None

    async def gpu(_: object) -> str:
        return "NVIDIA H200"

    monkeypatch.setattr(diagnose_kernel, "how_profiled", found)
    monkeypatch.setattr(diagnose_kernel, "_gpu", gpu)
    async with Services(Settings(state_dir=folder)) as services:
        return await diagnose_kernel.diagnose_kernel(
            services, progress, kernel=str(EXAMPLES / "sin" / "baseline.py"), task=SIN["task"], target="h200"
        )


async def compared_times(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Result:
    """`benchmark` of a kernel that is faster in one case and slower in another."""
    tuned = [Tuned(kernel="softmax_kernel", configuration="BLOCK_M: 128, num_warps: 8", configurations=4)]
    beside = [against("eager", 150.0), Against("torch.compile", reason="there is no C compiler")]
    return reported(
        timed_case("train", 70.0, tuned=tuned, against=beside),
        timed_case("decode", times(3.0, call_us=60.0), 3.0),
        timed_case("long", 104.0, repeated=2, varies=False),
        light=light_of(100.0, 240),
    )


async def times_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Result:
    """`benchmark` without a baseline."""
    return reported(timed_case(baseline=None))


async def profile(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Result:
    """`profile_ncu` of two launches, beside a kernel file that has one, as Nsight Compute recorded them."""
    asked = {"smsp__cycles.sum": ReportedMetric(value=12.5, unit="cycle")}
    spots = [spot(line).model_copy(update={"l2_excess": Excess(count=1e6, pct=87.5)}) for line in (61, 47)]
    told = lines(0).model_copy(update={"hotspots": spots, "doubt": "13 samples were dropped"})
    softmax, matmul = (
        Profiled(summarize(recorded(name)), told if name[0] == "s" else lines(3), [RULE] * 2, asked)
        for name in ("softmax_sections", "matmul_sections")
    )
    before = softmax.profile.model_copy(update={"duration_us": 62.5, "dram_bytes": 812e6})

    async def counted(_: object, __: object, ___: object, kernel: Source, *____: object) -> CaseProfile:
        launches = [replace(softmax, profile=before)] if "other" in kernel.text else [softmax, matmul]
        notes = ["another process used this GPU"]
        return CaseProfile("train", launches, 0, b"report", compulsory_bytes=268e6, ceilings=CEILINGS, notes=notes)

    return await _profiled(folder, monkeypatch, counted, compare="# other\n")


async def profile_cut_short(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Result:
    """`profile_ncu` of an entry with more launches than are shown."""
    launch = Profiled(summarize(recorded("softmax_sections")), lines(5), [RULE] * 2, {})

    async def counted(*_: object) -> CaseProfile:
        return CaseProfile("train", [launch] * 10, 1, b"report")

    return await _profiled(folder, monkeypatch, counted)


async def _profiled(
    folder: Path, monkeypatch: pytest.MonkeyPatch, counted: Callable[..., Awaitable[CaseProfile]], **more: Any
) -> ProfileResult:
    async def profiler() -> Profiler:
        return Profiler(folder, "2025.3.1", folder)

    async def chosen(*_: object) -> tuple[Task, list[str]]:
        return spec(cases={"train": CASE}), ["train"]

    monkeypatch.setattr(profile_ncu, "find_profiler", profiler)
    monkeypatch.setattr(profile_ncu, "_chosen", chosen)
    monkeypatch.setattr(profile_ncu, "profile_case", counted)
    made_up = FakeServices(folder, World())
    services = SimpleNamespace(
        require_gpu=made_up.require_gpu, artifacts=made_up.artifacts, profiles=Memo[CaseProfile]()
    )
    return await profile_ncu.profile_ncu(cast(Services, services), progress, kernel="#\n", task="#\n", **more)


async def search(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Result:
    """`tune_kernel` over two cases, of a file whose fastest variant is wrong."""
    whole = test_tune_kernel.made_up(folder, monkeypatch)
    whole.final.wrong = {"2048-8"}
    text = (EXAMPLES / "sin" / "candidate.py").read_text()
    text = text.replace("BLOCK: tl.constexpr", "BLOCK: tl.constexpr, EXACT: tl.constexpr")
    text = text.replace("BLOCK=block", "BLOCK=block, EXACT=1")
    return await whole.run(cases=None, kernel=text)


async def search_in_vain(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Result:
    """`tune_kernel` of a file that is as fast as any of its variants."""
    text = (EXAMPLES / "sin" / "candidate.py").read_text()
    text = text.replace("block = 1024", "block = 2048").replace("num_warps=4", "num_warps=8")
    return await test_tune_kernel.made_up(folder, monkeypatch).run(kernel=text)


async def stale_lessons(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Result:
    """`recall_lessons` on another machine than the one where they were learnt."""
    store = store_in(folder)
    gain: dict[str, Any] = {"helped": 1, "gain_pct": 8.0, "gain_low_pct": 7.5, "gain_high_pct": 8.5}
    store.put_lessons([lesson(device="NVIDIA H100", triton="2.1.0", **gain)])
    here = recall_lessons.Here("NVIDIA H200", "3.6.0")
    machine = cast(LessonsMachine, SimpleNamespace(store=store))
    return await recall_lessons.recall_lessons(machine, here, finding=None, kernel=None, limit=5)


async def progress(done: float, total: float, message: str) -> None:
    """Nobody looks."""


ANSWERS: dict[str, tuple[str, Answer]] = {
    "what the GPU reaches": ("hardware_spec", ceilings),
    "what another GPU reaches": ("hardware_spec", ceilings_beside_another),
    "a diagnosis with a profile": ("diagnose_kernel", diagnosed),
    "times of both": ("benchmark", compared_times),
    "times of one": ("benchmark", times_alone),
    "a profile of two": ("profile_ncu", profile),
    "a profile of a few of many": ("profile_ncu", profile_cut_short),
    "a search": ("tune_kernel", search),
    "a search in vain": ("tune_kernel", search_in_vain),
    "what was learnt elsewhere": ("recall_lessons", stale_lessons),
}
"""Name -> tool and how it comes to the answer; each ends as `ok`."""
