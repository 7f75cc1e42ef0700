# pyright: basic
# The worker's modules have no name that a type checker could resolve: they are loaded from their folder.
"""One call of an entry counted kernel by kernel, on a device and a libcupti that only pretend."""

import importlib
import json
import math

import pytest
import torch

from tests.sandbox.worker.fake_cupti import KNOWN, FakeCupti
from tritonforge.sandbox.profile_facts import COUNTED_LIMIT, Counted, Uncounted


@pytest.fixture(scope="module")
def counted(worker):
    return importlib.import_module("tritonforge_worker.counted")


class Device:
    """Runs kernels by name; records them while the recorder is on, counts them while the profiler is."""

    def __init__(self, module, library):
        self.activity, self.form = module.Activity, module.Launch
        self.library = library
        self.recording = False
        self.records = []

    def launch(self, name, blocks=4):
        self.library.log.append(name)
        self.library.launch()
        self.put(name, self.form((blocks, 1, 1), (128, 1, 1), 40, 16, 1024))

    def copy(self):
        self.put("Memcpy DtoD", None)

    def put(self, name, launch):
        if self.recording:
            at = len(self.records)
            self.records.append(self.activity(name, 10 * at, 10 * at + 5, at, None if launch else 64, launch))

    def start(self):
        self.library.log.append("record")
        self.recording = True

    def stop(self):
        self.recording = False

    def read(self):
        found, self.records = self.records, []
        return found


@pytest.fixture
def cupti():
    return FakeCupti()


@pytest.fixture
def device(counted, cupti, monkeypatch):
    device = Device(counted.cupti, cupti)

    class Flush:
        def __init__(self, size_bytes):
            assert size_bytes == counted.FLUSH_BYTES

        def __call__(self):
            cupti.log.append("flush")

    monkeypatch.setattr(counted.cupti, "recorder", lambda: device)
    monkeypatch.setattr(counted.cupti, "library", lambda: cupti)
    monkeypatch.setattr(counted, "L2Flush", Flush)
    monkeypatch.setattr(counted, "_context", lambda: 0xC0)
    monkeypatch.setattr(counted.torch.cuda, "current_device", lambda: 0)
    for name in ("synchronize", "reset_persisting_lines"):
        monkeypatch.setattr(counted.cuda_context, name, lambda name=name: cupti.log.append(name))
    return device


@pytest.fixture
def count(counted, device):
    """Counts this entry, as `do_count` does."""

    def counting(entry, metrics=KNOWN, limit=10):
        return counted.count(entry, (torch.zeros(4),), list(metrics), limit)

    return counting


@pytest.fixture
def two(device):
    """An entry of two kernels with a copy between them."""

    def entry(x):
        device.launch("first_kernel", blocks=8)
        device.copy()
        device.launch("second_kernel")
        return x

    return entry


def test_launches_are_told_in_order_with_their_names_and_values(count, two):
    found = Counted.model_validate(json.loads(json.dumps(count(two))))
    assert [launch.kernel for launch in found.launches] == ["first_kernel", "second_kernel"]
    assert [launch.metrics["a.sum"] for launch in found.launches] == [0, 100]
    first = found.launches[0]
    assert (first.grid, first.block, first.registers) == ((8, 1, 1), (128, 1, 1), 40)
    assert (first.static_shared_bytes, first.dynamic_shared_bytes) == (16, 1024)
    assert (found.passes, found.left_out) == (1, 0)
    assert found.answers(set(KNOWN), 10)


def test_before_each_pass_l2_is_emptied_of_fresh_inputs_and_the_device_idle(cupti, count, device):
    cupti.passes = 2
    seen = []

    def entry(x):
        seen.append(x.tolist())
        x += 1
        device.launch("kernel")

    assert count(entry)["passes"] == 2
    assert seen == [[0.0] * 4] * len(seen)
    starts = [at for at, what in enumerate(cupti.log) if what == "RangeProfilerStart"]
    for at in starts:
        assert cupti.log[at - 3 : at] == ["reset_persisting_lines", "flush", "synchronize"]
        assert cupti.log[at + 1 : at + 5] == ["kernel", "launch", "synchronize", "RangeProfilerStop"]
    assert len(starts) == 2


def test_the_first_call_is_neither_recorded_nor_counted(cupti, count, device):
    calls = []

    def entry(x):
        calls.append("tuning" if not calls else "call")
        device.launch("warm_up" if calls == ["tuning"] else "kernel")

    assert [launch["kernel"] for launch in count(entry)["launches"]] == ["kernel"]
    assert cupti.log.index("warm_up") < cupti.log.index("record")


def test_recording_and_counting_take_turns(cupti, count, device, two):
    def entry(x):
        assert not (device.recording and cupti.running)
        return two(x)

    count(entry)
    assert "RangeProfilerStart" in cupti.log
    assert not device.recording


def test_what_is_no_number_is_absent_with_the_reason(cupti, count, two):
    cupti.values = lambda metric, at: math.nan if (metric, at) == ("b.avg", 1) else math.inf if metric == "c.pct" else 7
    found = Counted.model_validate(count(two, [*KNOWN, "launch__odd"]))
    first, second = found.launches
    assert first.metrics == {"a.sum": 7, "b.avg": 7}
    assert second.metrics == {"a.sum": 7}
    assert first.absent.keys() == {"c.pct", "launch__odd"}
    assert second.absent.keys() == {"b.avg", "c.pct", "launch__odd"}
    assert "gives no" not in first.absent["launch__odd"]
    assert "no number" in second.absent["b.avg"]


def test_a_chip_without_any_of_the_metrics_still_tells_the_launches(count, two):
    found = Counted.model_validate(count(two, ["launch__odd"]))
    assert (found.passes, len(found.launches)) == (0, 2)
    assert found.answers({"launch__odd"}, 10)


def test_further_launches_are_only_counted(count, two):
    found = Counted.model_validate(count(two, limit=1))
    assert ([launch.kernel for launch in found.launches], found.left_out) == (["first_kernel"], 1)


def test_an_entry_without_a_kernel_is_refused(cupti, count, device, failures):
    with pytest.raises(failures.Refused, match="launches no kernel") as raised:
        count(lambda x: device.copy())
    assert (raised.value.kind, raised.value.stage) == ("rejected", "profile")
    assert "ProfilerInitialize" not in cupti.log


def test_an_entry_of_very_many_kernels_is_refused(counted, count, device, failures):
    assert counted.LAUNCHES_LIMIT == COUNTED_LIMIT
    assert len(count(lambda x: [device.launch("k") for _ in range(200)], limit=200)["launches"]) == 200
    with pytest.raises(failures.Refused, match="201 kernels; at most 200") as raised:
        count(lambda x: [device.launch("k") for _ in range(201)])
    assert raised.value.kind == "unsupported"


@pytest.mark.parametrize(
    "kernels",
    [
        lambda call: ["k"] * (1 + call % 2),
        lambda call: ["k"] * (2 if call == 3 else 1),
        lambda call: ["a", "b"][call % 2 : call % 2 + 1],
        lambda call: ["k"] * max(4 - call, 1),
    ],
)
def test_an_entry_that_launches_other_kernels_each_time_is_refused(cupti, count, device, failures, kernels):
    cupti.passes = 2
    calls = iter(range(100))
    with pytest.raises(failures.Refused, match="launches different kernels in different calls") as raised:
        count(lambda x: [device.launch(name) for name in kernels(next(calls))])
    assert (raised.value.kind, raised.value.stage) == ("unsupported", "profile")
    assert not cupti.alive


def test_an_entry_whose_grid_changes_is_refused(count, device, failures):
    calls = iter(range(100))
    with pytest.raises(failures.Refused, match="grids changed"):
        count(lambda x: device.launch("k", blocks=1 + next(calls)))


def test_an_entry_that_fails_fails_as_in_any_call(cupti, count, device):
    calls = iter(range(100))

    def entry(x):
        if next(calls) == 2:
            raise ValueError("the entry's own")
        device.launch("kernel")

    with pytest.raises(ValueError, match="the entry's own"):
        count(entry)
    assert not cupti.alive


def test_a_recorder_is_stopped_where_the_recorded_call_fails(count, device):
    def entry(x):
        assert not device.recording
        device.launch("kernel")

    with pytest.raises(AssertionError):
        count(entry)
    assert not device.recording


def test_a_machine_that_cannot_count_is_told_as_data(cupti, count, two):
    cupti.fails["RangeProfilerEnable"] = 35
    found = count(two)
    why = Uncounted.model_validate(found["unavailable"])
    assert (list(found), why.code) == (["unavailable"], "counters_forbidden")
    assert why.message.startswith("the driver restricts GPU performance counters to administrators")


def test_a_machine_without_cupti_is_told_as_data(counted, count, two, failures, monkeypatch):
    def missing():
        raise failures.Refused("unsupported", "benchmark", "libcupti was found nowhere")

    monkeypatch.setattr(counted.cupti, "library", missing)
    assert count(two) == {"unavailable": {"code": "no_cupti", "message": "libcupti was found nowhere"}}


def test_a_worker_counts_its_entry_on_its_inputs(count, two, failures):
    kernel_side = importlib.import_module("tritonforge_worker.kernel_side")
    side = kernel_side.KernelSide("cuda", "cuda:0", None, failures.Sources())
    side._entry, side._inputs = two, (torch.zeros(4),)
    fields, blobs = side.do_count([], metrics=["a.sum"], launches_limit=1)
    assert (fields["launches"][0]["metrics"], fields["left_out"], blobs) == ({"a.sum": 0}, 1, [])
    assert side.stage == "run"
