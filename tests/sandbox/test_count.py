"""What is asked of a worker that counts, and that nothing which it could forge is believed."""

from typing import Any

import pytest

from tests.sandbox.fake_timed import FakeProcess
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.outcome import Kind
from tritonforge.sandbox.profilers import count
from tritonforge.sandbox.workers import KernelWorker

pytestmark = pytest.mark.anyio
LAUNCH: dict[str, Any] = {
    "kernel": "k", "grid": [64, 1, 1], "block": [128, 1, 1], "registers": 32, "static_shared_bytes": 0,
    "dynamic_shared_bytes": 4096, "metrics": {"a.sum": 5.0}, "absent": {"b.avg": "not on this chip"},
}  # fmt: skip
METRICS = ["a.sum", "b.avg"]
FORGED: list[dict[str, Any]] = [
    {"unavailable": {"code": "ok", "message": "all is well"}},
    {"unavailable": None},
    {},
    {"launches": [LAUNCH], "passes": 1},
    {"launches": [LAUNCH], "passes": -1, "left_out": 0},
    {"launches": [LAUNCH], "passes": 1, "left_out": 0, "verdict": "fast"},
    {"launches": [LAUNCH] * 3, "passes": 1, "left_out": 0},
    {"launches": [{**LAUNCH, "metrics": {"a.sum": float("nan")}}], "passes": 1, "left_out": 0},
    {"launches": [{**LAUNCH, "metrics": {"a.sum": "many"}}], "passes": 1, "left_out": 0},
    {"launches": [{**LAUNCH, "metrics": {}}], "passes": 1, "left_out": 0},
    {"launches": [{**LAUNCH, "metrics": {"a.sum": 1.0, "c.pct": 1.0}}], "passes": 1, "left_out": 0},
    {"launches": [{**LAUNCH, "metrics": {"a.sum": 1.0, "b.avg": 1.0}}], "passes": 1, "left_out": 0},
    {"launches": [{**LAUNCH, "grid": [64, 1]}], "passes": 1, "left_out": 0},
    {"launches": [{**LAUNCH, "grid": [0, 1, 1]}], "passes": 1, "left_out": 0},
    {"launches": [{**LAUNCH, "registers": 1 << 20}], "passes": 1, "left_out": 0},
]


class Counting(FakeProcess):
    """Answers as it is told."""

    def __init__(self) -> None:
        super().__init__("kernel")
        self.answer: dict[str, Any] = {"launches": [LAUNCH], "passes": 1, "left_out": 0}

    def do_count(self, **_: Any) -> dict[str, Any]:
        return dict(self.answer)


@pytest.fixture
def process() -> Counting:
    return Counting()


@pytest.fixture
def worker(process: Counting) -> KernelWorker:
    return KernelWorker(process)


async def stopped(worker: KernelWorker) -> Stopped:
    with pytest.raises(Stopped) as raised:
        await count(worker, METRICS, 2)
    return raised.value


async def test_metrics_are_asked_for_once_and_come_by_launch(worker: KernelWorker, process: Counting) -> None:
    found = await count(worker, [*METRICS, "a.sum"], 2)
    assert process.asked == [("count", {"metrics": METRICS, "launches_limit": 2})]
    (launch,) = found.launches
    assert (launch.kernel, launch.grid, launch.metrics["a.sum"]) == ("k", (64, 1, 1), 5.0)
    assert (launch.absent, found.passes, found.left_out) == ({"b.avg": "not on this chip"}, 1, 0)


@pytest.mark.parametrize(
    ("code", "fix"),
    [
        ("counters_forbidden", "NVreg_RestrictProfilingToAdminUsers=0"),
        ("counters_busy", "dcgmi profile --pause"),
        ("cupti_too_old", "CUDA 12.6"),
        ("no_cupti", "CUDA 12.6"),
        ("unsupported_gpu", "virtual devices"),
        ("other", "error name"),
    ],
)
async def test_a_machine_that_cannot_count_is_unavailable_with_a_remedy(
    worker: KernelWorker, process: Counting, code: str, fix: str
) -> None:
    process.answer = {"unavailable": {"code": code, "message": "so it is\n\x1b[1m" + "x" * 900}}
    error = await stopped(worker)
    assert (error.kind, error.problem.stage) == (Kind.UNAVAILABLE, "profile")
    assert error.problem.message.startswith("so it is??[1mxxx")
    assert len(error.problem.message) <= 400
    assert fix in (error.problem.likely_fix or "")


@pytest.mark.parametrize("answer", FORGED)
async def test_what_is_not_an_answer_to_what_was_asked_is_cheating(
    worker: KernelWorker, process: Counting, answer: dict[str, Any]
) -> None:
    process.answer = answer
    error = await stopped(worker)
    assert error.kind is Kind.CHEATING
    assert "malformed" in error.problem.message


async def test_text_of_a_worker_is_one_printable_line(worker: KernelWorker, process: Counting) -> None:
    launch = {**LAUNCH, "kernel": "k\nignore all" + "x" * 900, "absent": {"b.avg": "a\x00b"}}
    process.answer["launches"] = [launch]
    (found,) = (await count(worker, METRICS, 2)).launches
    assert found.kernel.startswith("k?ignore all")
    assert len(found.kernel) <= 400
    assert found.absent == {"b.avg": "a?b"}
