"""What a timed worker is asked, and that nothing which it could forge is believed."""

from typing import Any

import pytest

from tests.sandbox.fake_timed import INPUTS, FakeTimed, stopped
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.outcome import Kind
from tritonforge.sandbox.replies import Values
from tritonforge.sandbox.timed import TimedWorker
from tritonforge.sandbox.timing_facts import CALLS_LIMIT, KERNELS_LIMIT

pytestmark = pytest.mark.anyio
SAMPLE: dict[str, Any] = {"kernel_us": 9.0, "device_us": 10.0, "activities": 1, "event_us": 10.5}
VISIT: dict[str, Any] = {"samples": [SAMPLE], "kernels": {"k": 9.0}, "sm_clock_hz": 1.9e9, "strays": []}
FIRST: dict[str, Any] = {"first_call_s": 1.0, "second_call_us": 50.0, "results_bytes": 64, "varies": True}


@pytest.fixture
def process() -> FakeTimed:
    return FakeTimed("kernel")


@pytest.fixture
def worker(process: FakeTimed) -> TimedWorker:
    return TimedWorker(process)


async def test_each_request_carries_what_it_is_about(worker: TimedWorker, process: FakeTimed) -> None:
    await worker.set_inputs(Values(INPUTS, [b"bytes"]), offset=3, reuse=True)
    await worker.set_alternatives(Values({"list": []}, []))
    await worker.prepare(1 << 20, 7)
    assert (await worker.first_call()).second_call_us == 120.0
    assert (await worker.lay_out(10)).calls == 10
    visit = await worker.visit(5, (11, 12))
    assert len(visit.samples) == 2
    assert (await worker.outputs(1)).tree == {"dict": [["outputs", {"value": 12}]]}
    assert await worker.call_times(3) == [120.0] * 3
    assert (await worker.graph_floor(20)).graph_call_us == 9.0
    assert process.asked == [
        ("set_inputs", {"tree": INPUTS, "offset": 3, "reuse": True, "blobs": [b"bytes"]}),
        ("set_alternatives", {"tree": {"list": []}}),
        ("prepare", {"flush_bytes": 1 << 20, "seed": 7}),
        ("first_call", {}),
        ("lay_out", {"calls": 10}),
        ("visit", {"number": 5, "contents": [11, 12]}),
        ("outputs", {"index": 1}),
        ("call_times", {"calls": 3}),
        ("graph_floor", {"calls": 20}),
    ]


async def test_a_failure_of_the_worker_is_passed_on(worker: TimedWorker, process: FakeTimed) -> None:
    process.faults["visit"] = stopped(Kind.TIMEOUT, "too long")
    with pytest.raises(Stopped, match="too long"):
        await worker.visit(0, [1])


def malformed(stopped: Stopped, what: str) -> None:
    assert (stopped.kind, stopped.problem.stage) == (Kind.CHEATING, "worker")
    assert f"the worker's {what} is malformed" in stopped.problem.message
    assert len(stopped.problem.message) <= 500


NAN, INFINITY = float("nan"), float("inf")


@pytest.mark.parametrize(
    "forged",
    [
        {},
        {**VISIT, "samples": None},
        {**VISIT, "samples": [SAMPLE] * (CALLS_LIMIT + 1)},
        {**VISIT, "samples": [{**SAMPLE, "device_us": -1.0}]},
        {**VISIT, "samples": [{**SAMPLE, "kernel_us": -0.001}]},
        {**VISIT, "samples": [{**SAMPLE, "event_us": -1.0}]},
        {**VISIT, "samples": [{**SAMPLE, "device_us": NAN}]},
        {**VISIT, "samples": [{**SAMPLE, "device_us": INFINITY}]},
        {**VISIT, "samples": [{**SAMPLE, "device_us": 1e13}]},
        {**VISIT, "samples": [{**SAMPLE, "device_us": None}]},
        {**VISIT, "samples": [{**SAMPLE, "device_us": "fast"}]},
        {**VISIT, "samples": [{**SAMPLE, "device_us": [1.0]}]},
        {**VISIT, "samples": [{**SAMPLE, "activities": -1}]},
        {**VISIT, "samples": [{**SAMPLE, "activities": 1.5}]},
        {**VISIT, "samples": [{**SAMPLE, "extra": 1}]},
        {**VISIT, "samples": [{name: SAMPLE[name] for name in SAMPLE if name != "device_us"}]},
        {**VISIT, "kernels": {f"k{number}": 1.0 for number in range(KERNELS_LIMIT + 1)}},
        {**VISIT, "kernels": {"k": -1.0}},
        {**VISIT, "kernels": {"k": NAN}},
        {**VISIT, "sm_clock_hz": 0.0},
        {**VISIT, "sm_clock_hz": -1.9e9},
        {**VISIT, "sm_clock_hz": 1e12},
        {**VISIT, "sm_clock_hz": NAN},
        {**VISIT, "strays": ["k"] * (KERNELS_LIMIT + 1)},
        {**VISIT, "strays": [7]},
        {**VISIT, "faster": True},
    ],
)
async def test_forged_samples_are_cheating(worker: TimedWorker, process: FakeTimed, forged: dict[str, Any]) -> None:
    process.forged["visit"] = forged
    with pytest.raises(Stopped) as caught:
        await worker.visit(0, [1])
    malformed(caught.value, "samples")


async def test_names_become_single_printable_lines_of_bounded_length(worker: TimedWorker, process: FakeTimed) -> None:
    process.forged["visit"] = {**VISIT, "kernels": {"a\nb\x1b[2J" + "x" * 10_000: 1.0}, "strays": ["c\rd"]}
    visit = await worker.visit(0, [1])
    (name,) = visit.kernels
    assert name.startswith("a?b?[2J")
    assert len(name) <= 400
    assert visit.strays == ["c?d"]


@pytest.mark.parametrize(
    "changed",
    [
        {"first_call_s": -1.0}, {"first_call_s": NAN}, {"first_call_s": 1e9}, {"second_call_us": -1.0},
        {"second_call_us": "short"}, {"results_bytes": -1}, {"results_bytes": 1 << 63}, {"results_bytes": 1.5},
        {"varies": "perhaps"}, {"varies": None}, {"more": 1},
    ],
)  # fmt: skip
async def test_forged_first_calls_are_cheating(
    worker: TimedWorker, process: FakeTimed, changed: dict[str, Any]
) -> None:
    process.forged["first_call"] = {**FIRST, **changed}
    with pytest.raises(Stopped) as caught:
        await worker.first_call()
    malformed(caught.value, "first call")


@pytest.mark.parametrize("forged", [{"layouts": 0, "calls": 1}, {"layouts": 1, "calls": 0}, {"layouts": 1}, {}])
async def test_forged_layouts_are_cheating(worker: TimedWorker, process: FakeTimed, forged: dict[str, Any]) -> None:
    process.forged["lay_out"] = forged
    with pytest.raises(Stopped) as caught:
        await worker.lay_out(10)
    malformed(caught.value, "layouts")


@pytest.mark.parametrize("forged", [None, 7, {}, [NAN], [INFINITY], ["x"], [None], [[1.0]]])
async def test_forged_call_times_are_cheating(worker: TimedWorker, process: FakeTimed, forged: Any) -> None:
    process.forged["call_times"] = {"call_us": forged}
    with pytest.raises(Stopped) as caught:
        await worker.call_times(1)
    malformed(caught.value, "call times")


@pytest.mark.parametrize("forged", [[-5.0], [0.0], [1e13], [20.0, 20.0], []])
async def test_call_times_that_cannot_be_are_cheating(worker: TimedWorker, process: FakeTimed, forged: Any) -> None:
    process.forged["call_times"] = {"call_us": forged}
    with pytest.raises(Stopped) as caught:
        await worker.call_times(1)
    malformed(caught.value, "call times")


@pytest.mark.parametrize(
    "forged", [{"graph_call_us": -1.0}, {"graph_call_us": NAN}, {"graph_call_us": "x"}, {"reason": 7}, {"other": 1}]
)
async def test_a_forged_graph_is_cheating(worker: TimedWorker, process: FakeTimed, forged: dict[str, Any]) -> None:
    process.forged["graph_floor"] = forged
    with pytest.raises(Stopped) as caught:
        await worker.graph_floor(20)
    malformed(caught.value, "graph")


@pytest.mark.parametrize(
    "tree", [None, 7, {}, {"dict": 7}, {"value": [1]}, {"blob": 0}, {"tensor": {}, "blob": 0}, {"pickle": "x"}]
)
async def test_forged_results_are_cheating(worker: TimedWorker, process: FakeTimed, tree: Any) -> None:
    await worker.visit(0, [1])
    process.forged["outputs"] = {"tree": tree}
    with pytest.raises(Stopped) as caught:
        await worker.outputs(0)
    assert (caught.value.kind, caught.value.problem.stage) == (Kind.CHEATING, "worker")
