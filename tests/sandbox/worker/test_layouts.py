# pyright: basic
# The worker's modules have no name that a type checker could resolve: they are loaded from their folder.
"""How many places timed calls rotate over, and how many calls' results fit into one."""

import importlib

import pytest

MIB = 1 << 20


@pytest.fixture(scope="module")
def layouts(worker):
    return importlib.import_module("tritonforge_worker.layouts")


@pytest.mark.parametrize(
    ("size_bytes", "expected"),
    [
        # More than so many change no ratio any further.
        (4096, 8),
        (0, 8),
        (1024 * MIB, 4),
        # One more byte than a fifth of 4 GiB, and there are only four.
        ((4096 * MIB) // 5, 5),
        ((4096 * MIB) // 5 + 1, 4),
        # However large, one there must be.
        (9000 * MIB, 1),
    ],
)
def test_as_many_layouts_are_made_as_there_is_room_for(layouts, size_bytes, expected):
    assert layouts.count(size_bytes) == expected


@pytest.mark.parametrize(
    ("wanted", "results_bytes", "expected"),
    [
        (10, 4096, 10),
        (10, 0, 10),
        # 2 GiB hold eight of 256 MiB.
        (10, 256 * MIB, 8),
        (8, 256 * MIB, 8),
        (7, 256 * MIB, 7),
        # One at least, however large.
        (10, 1500 * MIB, 1),
        (10, 9000 * MIB, 1),
        # Never more than are wanted.
        (2, 4096, 2),
        (1, 4096, 1),
    ],
)
def test_a_visit_has_as_many_calls_as_can_hold_their_results(layouts, wanted, results_bytes, expected):
    assert layouts.calls_that_fit(wanted, results_bytes) == expected


def test_the_results_of_a_visit_stay_within_half_of_the_limit(layouts):
    for results_bytes in (1, 3 * MIB, 300 * MIB, 600 * MIB):
        calls = layouts.calls_that_fit(1000, results_bytes)
        assert calls * results_bytes <= layouts.LIMIT_BYTES // 2
        assert layouts.count(calls * results_bytes) >= 2
