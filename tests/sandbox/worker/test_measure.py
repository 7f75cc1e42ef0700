# pyright: basic
# The worker's modules have no name that a type checker could resolve: they are loaded from their folder.
"""Which device activities belong to a timed call, from the profiler's records: no GPU is needed to tell."""

import importlib
from dataclasses import dataclass

import pytest
from torch.autograd import DeviceType  # pyright: ignore[reportPrivateImportUsage]


@pytest.fixture(scope="module")
def measure(worker):
    return importlib.import_module("tritonforge_worker.measure")


@dataclass
class Event:
    """One record, with the accessors of the profiler's own."""

    its_name: str
    its_start_ns: int
    its_duration_ns: int
    its_correlation: int = 0
    on_device: bool = False

    def name(self):
        return self.its_name

    def start_ns(self):
        return self.its_start_ns

    def duration_ns(self):
        return self.its_duration_ns

    def correlation_id(self):
        return self.its_correlation

    def device_type(self):
        return DeviceType.CUDA if self.on_device else DeviceType.CPU


def launch(start_ns, correlation, name="cuLaunchKernelEx"):
    return Event(name, start_ns, 5, correlation)


def kernel(name, start_ns, duration_ns, correlation):
    return Event(name, start_ns, duration_ns, correlation, on_device=True)


# Two timed calls of two kernels each; a flush before each; the device runs behind the host.
RECORDS = [
    launch(10, 1, "cudaLaunchKernel"), kernel("flush", 20, 500, 1),
    Event("BIG_OP", 100, 50),
    launch(110, 2), kernel("first", 520, 100, 2),
    launch(120, 3), kernel("second", 640, 60, 3),
    launch(160, 4, "cudaLaunchKernel"), kernel("flush", 700, 500, 4),
    Event("BIG_OP", 200, 50),
    launch(210, 5), kernel("first", 1200, 110, 5),
    launch(249, 6), kernel("second", 1310, 70, 6),
    # What does not count: the marker's shadow on the device, an operator with a launch's number, a later launch.
    Event("BIG_OP", 520, 180, 2, on_device=True), Event("aten::empty", 215, 3, 1), launch(260, 7),
    kernel("later", 2000, 9, 7),
]  # fmt: skip


@pytest.mark.parametrize("order", [1, -1])
def test_a_call_has_the_activities_that_its_own_launches_started(measure, order):
    calls = measure._activities(RECORDS[::order], "BIG_OP")
    assert [[activity.name for activity in call] for call in calls] == [["first", "second"]] * 2


def test_times_are_summed_and_spanned_in_microseconds(measure):
    first, second = (measure._sample(call) for call in measure._activities(RECORDS, "BIG_OP"))
    assert first == {"kernel_us": 0.16, "device_us": 0.18, "activities": 2}
    assert second == {"kernel_us": 0.18, "device_us": 0.18, "activities": 2}


def test_kernels_are_averaged_over_the_calls(measure):
    means = measure._means_us(measure._activities(RECORDS, "BIG_OP"))
    assert means == pytest.approx({"first": 0.105, "second": 0.065})


def test_one_launch_can_start_many_activities_as_a_graph_does(measure):
    records = [Event("BIG_OP", 0, 50), launch(10, 1, "cudaGraphLaunch"), kernel("a", 20, 5, 1), kernel("b", 30, 5, 1)]
    (call,) = measure._activities(records, "BIG_OP")
    assert measure._sample(call) == {"kernel_us": 0.01, "device_us": 0.015, "activities": 2}


def test_a_call_that_puts_nothing_on_the_device_has_no_activity(measure):
    (call,) = measure._activities([Event("BIG_OP", 0, 50)], "BIG_OP")
    assert measure._sample(call) == {"kernel_us": 0.0, "device_us": 0.0, "activities": 0}


def test_the_clock_is_told_by_the_difference_of_two_waits(measure):
    short, long = measure.SPIN_CYCLES
    overhead_ns = 1500
    records = [
        Event("SM_CLOCK", 0, 50),
        launch(10, 1),
        kernel("spin", 100, short / 1.5 + overhead_ns, 1),
        launch(20, 2),
        kernel("spin", 90_000, long / 1.5 + overhead_ns, 2),
    ]
    assert measure._clock_hz(records) == pytest.approx(1.5e9)


@pytest.mark.parametrize("records", [[], [Event("SM_CLOCK", 0, 50)], [Event("SM_CLOCK", 0, 50), launch(10, 1)]])
def test_a_clock_that_was_not_recorded_is_unknown(measure, records):
    assert measure._clock_hz(records) is None
