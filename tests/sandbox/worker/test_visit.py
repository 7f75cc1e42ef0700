# pyright: basic
# The worker's modules have no name that a type checker could resolve: they are loaded from their folder.
"""Timed calls on a device that only keeps a time line: samples, results that are held, and work of no call."""

import contextlib
import importlib
from types import SimpleNamespace

import pytest
import torch

SEED = 3
CLOCK_HZ = 1.5e9


@pytest.fixture(scope="module")
def measure(worker):
    return importlib.import_module("tritonforge_worker.measure")


class Device:
    """Does one thing after the other; each takes as long as it is told."""

    def __init__(self, activity):
        self.activity = activity
        self.now_ns = 0
        self.line = []
        self.put_off = []
        """Names of what runs as soon as the next flush is done."""

    def put(self, name, ns, size_bytes=None):
        start = self.now_ns + 10
        self.now_ns = start + ns
        self.line.append(self.activity(name, start, self.now_ns, len(self.line), size_bytes))

    def flush(self):
        self.put("flush", 500)
        for name in self.put_off:
            self.put(name, 50)
        self.put_off.clear()

    def spin(self, cycles):
        self.put("spin_kernel(long)", 1000 + cycles / CLOCK_HZ * 1e9)

    def read(self):
        line, self.line = self.line, []
        return line


@pytest.fixture
def device(measure, monkeypatch):
    """The only one, in place of CUDA's, CUPTI's and torch's."""
    device = Device(importlib.import_module("tritonforge_worker.cupti").Activity)

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            self.at_ns = device.now_ns

        def elapsed_time(self, other):
            return (other.at_ns - self.at_ns) / 1e6

    class FakeLayout:
        made = 0

        def __init__(self, inputs):
            FakeLayout.made += 1
            self.number, self.used_times = FakeLayout.made - 1, 0
            self.held = []
            self.inputs = measure.values.copy(inputs)

        @contextlib.contextmanager
        def used(self):
            self.used_times += 1
            yield

    class RecordedContents(measure.Contents):
        def write(self, target, number, *, restore=False):
            device.put("mul", 20)
            super().write(target, number, restore=restore)

    def spin():
        for cycles in measure.SPIN_CYCLES:
            device.spin(cycles)

    cuda = SimpleNamespace(
        Event=Event,
        synchronize=lambda: None,
        empty_cache=lambda: None,
        reset_peak_memory_stats=lambda: None,
        memory_allocated=lambda: 0,
        max_memory_allocated=lambda: 0,
        current_stream=lambda: SimpleNamespace(cuda_stream=0),
        _sleep=lambda cycles: device.put("spin_kernel(ahead)", 150),
    )
    fakes = {
        "torch": SimpleNamespace(cuda=cuda, uint8=torch.uint8, empty=lambda *shape, dtype, device: torch.empty(*shape)),
        "recorder": lambda: SimpleNamespace(start=lambda: None, stop=lambda: None, read=device.read),
        "fill": lambda pointer, size, stream: device.put("Memset", 5, size),
        "L2Flush": lambda size: device.flush,
        "reset_persisting_lines": lambda: None,
        "spin": spin,
        "synchronize": lambda: None,
        "Layout": FakeLayout,
        "Contents": RecordedContents,
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(measure, name, fake)
    return device


@pytest.fixture
def prepare(measure, device):
    """An entry that has been laid out."""

    def prepare(entry, inputs, *, in_place=(), calls=4, seed=SEED, flush_bytes=1 << 20):
        found = measure.Measurement(entry, inputs, list(in_place), flush_bytes=flush_bytes, seed=seed)
        found.first_call()
        found.lay_out(calls)
        return found

    return prepare


def inputs():
    return (torch.linspace(1, 2, 100), torch.arange(5))


@pytest.fixture
def doubling(device):
    def entry(x, index):
        device.put("double", 1000)
        device.put("add", 500)
        return x * 2 + index.sum()

    return entry


def test_each_call_is_a_sample_of_what_it_put_on_the_device(prepare, doubling):
    visit = prepare(doubling, inputs()).visit(0, [1, 2, 3])
    sample = {"kernel_us": 1.5, "device_us": 1.51, "activities": 2}
    assert [{name: one[name] for name in sample} for one in visit["samples"]] == [pytest.approx(sample)] * 3
    assert [one["event_us"] for one in visit["samples"]] == [pytest.approx(1.52)] * 3
    assert visit["kernels"] == pytest.approx({"double": 1.0, "add": 0.5})
    assert visit["sm_clock_hz"] == pytest.approx(CLOCK_HZ)
    assert visit["strays"] == []


def test_with_a_warm_cache_no_stray_is_seen_either(prepare, doubling):
    visit = prepare(doubling, inputs(), flush_bytes=0).visit(0, [1, 2, 3])
    assert visit["strays"] == []
    assert len(visit["samples"]) == 3
    assert visit["sm_clock_hz"] == pytest.approx(CLOCK_HZ)


def test_every_calls_results_are_those_of_its_own_contents(measure, prepare, doubling):
    found = prepare(doubling, inputs())
    found.visit(5, [7, 8, 7])
    contents = measure.Contents(inputs(), SEED)
    for index, number in enumerate([7, 8, 7]):
        x, integers = contents.make(number)
        assert torch.equal(found.outputs(index), x * 2 + integers.sum())
    assert not torch.equal(found.outputs(0), found.outputs(1))


def test_there_are_no_results_of_calls_that_were_not_made(measure, prepare, doubling):
    with pytest.raises(measure.Refused, match="no such timed call"):
        measure.Measurement(doubling, inputs(), [], flush_bytes=0, seed=None).outputs(0)
    found = prepare(doubling, inputs())
    found.visit(0, [1, 2])
    with pytest.raises(measure.Refused, match="no such timed call"):
        found.outputs(2)


def test_results_that_lie_in_an_input_are_copied_before_the_next_contents(measure, prepare):
    found = prepare(lambda x, index: x[10:20], inputs())
    found.visit(0, [1, 2, 3])
    contents = measure.Contents(inputs(), SEED)
    for index, number in enumerate([1, 2, 3]):
        assert torch.equal(found.outputs(index), contents.make(number)[0][10:20])


def test_what_an_entry_writes_in_place_is_held_and_restored_for_the_next_call(measure, prepare, device):
    def entry(x, index):
        device.put("bump", 100)
        x += 1
        index += 1

    found = prepare(entry, inputs(), in_place=["x", "index"])
    found.visit(0, [4, 5, 4])
    contents = measure.Contents(inputs(), SEED)
    for index, number in enumerate([4, 5, 4]):
        held = found.outputs(index)
        assert torch.equal(held["x"], contents.make(number)[0] + 1)
        assert torch.equal(held["index"], torch.arange(5) + 1)


def test_the_inputs_that_were_given_stay_as_they_are(prepare):
    given = inputs()

    def entry(x, index):
        x.zero_()

    prepare(entry, given, in_place=["x"]).visit(0, [1, 2])
    assert torch.equal(given[0], inputs()[0])


def test_visits_rotate_over_the_layouts_by_their_number(prepare, doubling, measure):
    found = prepare(doubling, inputs())
    made = len(found._layouts)
    assert made == measure.layouts.MOST
    before = [layout.used_times for layout in found._layouts]
    for number in range(made, 2 * made):
        found.visit(number, [1])
    assert [layout.used_times - used for layout, used in zip(found._layouts, before, strict=True)] == [1] * made
    found.visit(3, [1])
    assert found._last is found._layouts[3]


def test_results_of_earlier_visits_are_let_go_of(prepare, doubling, measure):
    found = prepare(doubling, inputs())
    for number in range(3):
        found.visit(number * measure.layouts.MOST, [1, 2])
    assert len(found._layouts[0].held) == 2


def test_the_first_calls_are_told_with_the_bytes_of_their_results(measure, device, doubling):
    found = measure.Measurement(doubling, inputs(), [], flush_bytes=0, seed=SEED)
    facts = found.first_call()
    assert (facts["results_bytes"], facts["varies"], facts["constant"]) == (400, True, 1)
    assert facts["first_call_s"] > 0
    assert facts["second_call_us"] > 0
    fixed = measure.Measurement(doubling, inputs(), [], flush_bytes=0, seed=None)
    assert not fixed.first_call()["varies"]


def test_whole_calls_are_timed_one_by_one(prepare, doubling):
    times = prepare(doubling, inputs()).call_times(3)
    assert len(times) == 3
    assert min(times) > 0


def test_memory_is_given_back(prepare, doubling):
    found = prepare(doubling, inputs())
    found.visit(0, [1])
    found.free()
    assert found._layouts == []
    assert found._last is None


# Work that belongs to no call


def test_work_that_is_put_off_until_the_next_flush_is_a_stray(prepare, device):
    def entry(x, index):
        device.put("small", 10)
        device.put_off.append("put_off_kernel")
        return x

    visit = prepare(entry, inputs()).visit(0, [1, 2, 3])
    assert visit["strays"] == ["put_off_kernel"]
    assert [sample["activities"] for sample in visit["samples"]] == [1, 1, 1]


def test_work_that_looks_like_ours_is_a_stray_where_there_is_more_of_it(prepare, device):
    def entry(x, index):
        device.put("small", 10)
        device.put_off.append("mul")
        return x

    assert prepare(entry, inputs()).visit(0, [1, 2, 3])["strays"] == ["mul"]


def test_work_behind_the_last_call_is_a_stray(prepare, device, measure, monkeypatch):
    plain = measure.spin

    def spin():
        device.put("late_kernel", 50)
        plain()

    found = prepare(lambda x, index: x, inputs())
    monkeypatch.setattr(measure, "spin", spin)
    visit = found.visit(0, [1, 2])
    assert visit["strays"] == ["late_kernel"]
    assert visit["sm_clock_hz"] == pytest.approx(CLOCK_HZ)


def test_names_of_strays_are_cut_and_few(prepare, device, measure):
    def entry(x, index):
        device.put_off += [f"{number}" + "x" * 1000 for number in range(100)]
        return x

    strays = prepare(entry, inputs()).visit(0, [1, 2])["strays"]
    assert len(strays) == measure.NAMES_LIMIT
    assert max(map(len, strays)) == measure.NAME_CHARACTERS
