# pyright: basic
# The worker's modules have no name that a type checker could resolve: they are loaded from their folder.
"""An entry as a CUDA graph, on a made-up device that keeps time: what is timed, and what can't be captured."""

import contextlib
import importlib
from types import SimpleNamespace

import pytest


class Device:
    """Runs what a stream is given one after the other, keeps time, and records; a captured stream keeps what it is
    given."""

    def __init__(self, cupti):
        self._activity = cupti.Activity
        self.now_ns = 0
        """The host's time."""
        self.busy_until_ns = 0
        self.recorded = []
        self.recording = False
        self.capturing = None
        self.launches = 0
        self.delays_us = iter(())
        """What each replay's kernels take longer."""
        self.lost = set()
        """Names that the recorder misses."""

    def put(self, name, us=10.0, size_bytes=None, captured=True):
        """Put a kernel or a fill on the current stream, or on one that a capture knows nothing of."""
        if self.capturing is not None and captured:
            self.capturing.append((name, us, size_bytes))
            return
        self.launches += 1
        start_ns = max(self.now_ns, self.busy_until_ns)
        self.busy_until_ns = start_ns + int(us * 1e3)
        if self.recording and name not in self.lost:
            self.recorded.append(self._activity(name, start_ns, self.busy_until_ns, self.launches, size_bytes))

    def mark(self, pointer, size_bytes, stream):
        self.put("Memset", 1.0, size_bytes)

    def read_value(self):
        if self.capturing is not None:
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing\nCompile with")

    # The recorder.

    def start(self):
        self.recording = True

    def stop(self):
        self.recording = False

    def read(self):
        found, self.recorded = self.recorded, []
        return found

    # What stands in for torch.

    def synchronize(self):
        self.now_ns = max(self.now_ns, self.busy_until_ns)

    @contextlib.contextmanager
    def graph(self, graph, stream):
        self.capturing = graph.nodes
        try:
            yield
        except RuntimeError:
            # Ending a capture that has failed fails too, in the middle of the first failure.
            raise RuntimeError("CUDA error: operation failed due to a previous error during capture")  # noqa: B904
        finally:
            self.capturing = None

    def torch(self):
        device = self

        class Graph:
            def __init__(self):
                self.nodes = []

            def replay(self):
                late_us = next(device.delays_us, 0.0)
                # Taking a graph to the device takes the host a while.
                device.now_ns += 3_000
                for name, us, size_bytes in self.nodes:
                    device.put(name, us + late_us, size_bytes)

        stream = SimpleNamespace(wait_stream=lambda other: None, cuda_stream=7)
        cuda = SimpleNamespace(
            Stream=lambda: stream, current_stream=lambda: stream, stream=contextlib.nullcontext, CUDAGraph=Graph,
            graph=self.graph,
        )  # fmt: skip
        marked = SimpleNamespace(data_ptr=lambda: 4096)
        return SimpleNamespace(cuda=cuda, uint8=None, empty=lambda size, dtype, device: marked)


@pytest.fixture
def graphs(worker):
    return importlib.import_module("tritonforge_worker.graphs")


@pytest.fixture
def device(graphs, monkeypatch):
    device = Device(importlib.import_module("tritonforge_worker.cupti"))
    monkeypatch.setattr(graphs, "torch", device.torch())
    monkeypatch.setattr(graphs, "recorder", lambda: device)
    monkeypatch.setattr(graphs.cuda_context, "fill", device.mark)
    monkeypatch.setattr(graphs.cuda_context, "synchronize", device.synchronize)
    monkeypatch.setattr(graphs, "time", SimpleNamespace(perf_counter_ns=lambda: device.now_ns))
    return device


def test_replays_are_timed_from_the_host_and_on_the_device(graphs, device):
    def entry(x):
        # The host's work is in no replay.
        device.now_ns += 500_000
        device.put("first", 10.0)
        device.put("second", 20.0)

    found = graphs.floor(entry, (1,), 5)
    assert found == {"graph_call_us": 33.0, "graph_device_us": 30.0}
    assert not device.recording


def test_inputs_go_by_name_too(graphs, device):
    assert "reason" not in graphs.floor(lambda x, us: device.put(x, us), {"x": "double", "us": 4.0}, 3)


def test_the_median_of_the_replays_counts(graphs, device):
    device.delays_us = iter([0.0] * graphs.WARM_UPS + [1.0, 500.0, 2.0, 4.0, 3.0, 600.0])
    found = graphs.floor(lambda x: device.put("double", 8.0), (1,), 3)
    assert found == {"graph_call_us": 11.0 + 4.0, "graph_device_us": 8.0 + 2.0}


def test_what_runs_before_a_replay_is_not_timed(graphs, device):
    flushed = []

    def flush():
        flushed.append(None)
        device.put("flush", 100.0)

    found = graphs.floor(lambda x: device.put("double", 8.0), (1,), 3, flush)
    assert found == {"graph_call_us": 11.0, "graph_device_us": 8.0}
    # Once for the recorded call, then before each replay of the two series.
    assert len(flushed) == 1 + 3 + 3


def test_an_entry_that_waits_for_the_device_is_refused_with_what_was_first_in_the_way(graphs, device):
    def entry(x):
        device.put("double")
        device.read_value()

    assert graphs.floor(entry, (1,), 3) == {
        "reason": "the entry can't be captured into a CUDA graph: RuntimeError: "
        "CUDA error: operation not permitted when stream is capturing"
    }


def test_work_on_a_stream_that_is_not_captured_is_missed(graphs, device):
    def entry(x):
        device.put("double")
        device.put("beside", captured=False)

    assert graphs.floor(entry, (1,), 3) == {
        "reason": "its graph does 1 of the 2 things that a call does on the device; missing: beside"
    }


def test_an_entry_that_remembers_being_captured_is_missed(graphs, device):
    def entry(x):
        if device.capturing is None:
            device.put("double")

    reason = graphs.floor(entry, (1,), 3)["reason"]
    assert reason == "its graph does 0 of the 1 things that a call does on the device; missing: double"


def test_an_entry_that_puts_nothing_on_the_device_has_no_graph(graphs, device):
    assert graphs.floor(lambda x: x, (1,), 3) == {"reason": "a call puts nothing on the device"}


def test_an_error_without_a_capture_is_the_entrys_own(graphs, device):
    def entry(x):
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        graphs.floor(entry, (1,), 3)
    assert not device.recording


def test_a_recording_ends_also_where_the_entry_fails_in_it(graphs, device):
    def entry(x):
        if device.recording:
            raise ValueError("broken")
        device.put("double")

    with pytest.raises(ValueError, match="broken"):
        graphs.floor(entry, (1,), 3)
    assert not device.recording


def test_only_fills_of_the_marks_size_are_marks(graphs, device):
    def entry(x):
        device.put("Memset", 2.0, 4096)
        device.put("double")

    assert graphs.floor(entry, (1,), 3)["graph_device_us"] == 12.0


def test_one_replay_that_does_less_is_enough(graphs, device):
    def before():
        before.calls += 1
        # The call, the first replay, and then the second.
        device.lost = {"second"} if before.calls == 3 else set()

    def entry(x):
        device.put("first")
        device.put("second")

    before.calls = 0
    reason = graphs.floor(entry, (1,), 3, before)["reason"]
    assert reason == "its graph does 1 of the 2 things that a call does on the device; missing: second"


def test_replays_of_which_nothing_was_recorded_tell_nothing(graphs, device):
    def before():
        device.lost = {"Memset"} if before.called else set()
        before.called = True

    before.called = False
    assert graphs.floor(lambda x: device.put("double"), (1,), 3, before) == {"reason": "no replay was recorded"}
