# pyright: basic
# The worker's modules have no name that a type checker could resolve: they are loaded from their folder.
"""Which device activities belong to a timed call, which to none, and what clock the device ran at."""

import ctypes
import importlib
import struct

import pytest


@pytest.fixture(scope="module")
def measure(worker):
    return importlib.import_module("tritonforge_worker.measure")


@pytest.fixture(scope="module")
def cupti(worker):
    return importlib.import_module("tritonforge_worker.cupti")


@pytest.fixture(scope="module")
def records(measure, cupti):
    """Two timed calls of two kernels each; a flush before each, what is not timed between them, two spins last."""
    activity = cupti.Activity

    def mark(start_ns, correlation):
        return activity("Memset", start_ns, start_ns + 5, correlation, measure.MARK_BYTES)

    return [
        activity("flush", 20, 520, 1, None), mark(525, 2),
        activity("first", 540, 640, 3, None), activity("second", 660, 720, 4, None), mark(725, 5),
        activity("late", 730, 740, 6, None),
        activity("flush", 750, 1190, 7, None), mark(1192, 8),
        activity("first", 1200, 1310, 9, None), activity("second", 1310, 1380, 10, None), mark(1385, 11),
        activity("spin_kernel(long)", 1400, 1500, 12, None), activity("spin_kernel(long)", 1600, 1900, 13, None),
    ]  # fmt: skip


def test_a_call_has_the_activities_between_its_marks(measure, records):
    calls, _, _ = measure._between_marks(records)
    assert [[activity.name for activity in call] for call in calls] == [["first", "second"]] * 2


def test_what_runs_between_one_call_and_the_next_is_kept_apart(measure, records):
    _, between, _ = measure._between_marks(records)
    assert [[activity.name for activity in gap] for gap in between] == [["late", "flush"]]


def test_what_comes_after_the_last_mark_is_kept_apart(measure, records):
    _, _, after = measure._between_marks(records)
    assert [activity.name for activity in after] == ["spin_kernel(long)"] * 2


def test_times_are_summed_and_spanned_in_microseconds(measure, records):
    first, second = (measure._sample(call) for call in measure._between_marks(records)[0])
    assert first == {"kernel_us": 0.16, "device_us": 0.18, "activities": 2}
    assert second == {"kernel_us": 0.18, "device_us": 0.18, "activities": 2}


def test_kernels_are_averaged_over_the_calls(measure, records):
    means = measure._means_us(measure._between_marks(records)[0])
    assert means == pytest.approx({"first": 0.105, "second": 0.065})


def test_a_fill_of_another_size_is_part_of_the_call(measure, cupti):
    mark = cupti.Activity("Memset", 0, 1, 1, measure.MARK_BYTES)
    fill = cupti.Activity("Memset", 2, 4, 2, 4096)
    calls, _, _ = measure._between_marks([mark, fill, mark._replace(correlation=3)])
    assert [measure._sample(call)["activities"] for call in calls] == [1]


def test_a_call_that_puts_nothing_on_the_device_has_no_activity(measure, cupti):
    mark = cupti.Activity("Memset", 0, 1, 1, measure.MARK_BYTES)
    (call,) = measure._between_marks([mark, mark])[0]
    assert measure._sample(call) == {"kernel_us": 0.0, "device_us": 0.0, "activities": 0}


def test_without_marks_there_are_no_samples(measure):
    assert measure._between_marks([]) == ([], [], [])


def test_a_call_whose_second_mark_was_lost_is_no_sample(measure, records):
    lost = [activity for activity in records if activity.correlation != 11]
    assert len(measure._between_marks(lost)[0]) == 1


@pytest.fixture(scope="module")
def spins(measure, cupti):
    """The two waits at 1.5 GHz, each longer by what starting and ending a kernel takes."""
    short, long = measure.SPIN_CYCLES
    return [
        cupti.Activity("spin_kernel(long)", 100, 100 + short / 1.5 + 1500, 1, None),
        cupti.Activity("spin_kernel(long)", 90_000, 90_000 + long / 1.5 + 1500, 2, None),
    ]


def test_the_clock_is_told_by_the_difference_of_two_waits(measure, spins):
    assert measure._clock_hz(spins) == pytest.approx(1.5e9)


def test_what_else_runs_behind_the_calls_changes_no_clock(measure, cupti, spins):
    other = cupti.Activity("late", 95_000, 99_000, 3, None)
    assert measure._clock_hz([other, *spins, other]) == pytest.approx(1.5e9)


def test_a_clock_that_was_not_recorded_is_unknown(measure, spins):
    assert measure._clock_hz([]) is None
    assert measure._clock_hz(spins[:1]) is None
    assert measure._clock_hz([*spins, spins[0]]) is None


def test_waits_of_the_same_length_tell_no_clock(measure, spins):
    assert measure._clock_hz([spins[0], spins[0]]) is None


def test_of_very_many_kernels_the_rest_is_told_together(measure, cupti):
    limit = measure.NAMES_LIMIT
    call = [cupti.Activity(f"k{number}", 0, 1000, number, None) for number in range(limit + 5)]
    means = measure._means_us([call])
    assert len(means) == limit
    assert means["others"] == pytest.approx(6.0)


@pytest.fixture
def reader(cupti):
    """A recorder without the library: only its reading of records."""
    found = cupti.Recorder.__new__(cupti.Recorder)
    found._names = {}
    return found


def test_a_kernel_record_is_read_where_cupti_puts_it(cupti, reader):
    name = ctypes.create_string_buffer(b"_Z3addPf")
    record = bytearray(160)
    struct.pack_into("I", record, 0, cupti.CONCURRENT_KERNEL)
    struct.pack_into("H", record, 6, 168)
    struct.pack_into("QQ", record, 16, 1000, 3500)
    struct.pack_into("8i", record, 52, 8192, 2, 1, 128, 4, 2, 1024, 49152)
    struct.pack_into("I", record, 92, 77)
    struct.pack_into("Q", record, 104, ctypes.addressof(name))
    held = ctypes.create_string_buffer(bytes(record))
    launch = cupti.Launch((8192, 2, 1), (128, 4, 2), 168, 1024, 49152)
    assert reader._parse(ctypes.addressof(held)) == cupti.Activity("add(float*)", 1000, 3500, 77, None, launch)


@pytest.mark.parametrize("plain", ["f", "b", "softmax_kernel"])
def test_a_kernel_named_like_a_mangled_type_keeps_its_name(reader, plain):
    name = ctypes.create_string_buffer(plain.encode())
    assert reader._name(ctypes.addressof(name)) == plain


@pytest.mark.parametrize(("kind", "byte", "name"), [(1, 8, "Memcpy DtoD"), (1, 99, "Memcpy"), (2, 0, "Memset")])
def test_a_copy_or_fill_record_is_read_with_its_size(cupti, reader, kind, byte, name):
    record = bytearray(96)
    struct.pack_into("IB", record, 0, kind, byte)
    struct.pack_into("QQQ", record, 8, 4099, 10, 30)
    struct.pack_into("I", record, 44, 5)
    held = ctypes.create_string_buffer(bytes(record))
    assert reader._parse(ctypes.addressof(held)) == cupti.Activity(name, 10, 30, 5, 4099)


def test_a_copy_as_long_as_a_mark_is_none(measure, records, cupti):
    copied = cupti.Activity("Memcpy DtoD", 733, 735, 6, measure.MARK_BYTES)
    assert len(measure._between_marks([*records, copied])[0]) == 2
