# pyright: basic
# The worker's modules are loaded from their folder, so their types are unknown here.
"""Margins: filled with the key, and each byte that changed is noticed, counted and placed."""

import pytest
import torch

KEY = bytes([7, 201, 33, 94, 150, 61, 240, 18])


@pytest.fixture
def margins(canary):
    """Three tensors' margins, unbroken."""
    flat = torch.empty(3 * 2 * canary.MARGIN, dtype=torch.uint8)
    canary.fill(flat, KEY)
    return flat.reshape(3, 2, canary.MARGIN)


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 100])
def test_the_key_is_repeated_from_the_first_byte_on(canary, length):
    flat = torch.zeros(length + 2, dtype=torch.uint8)
    canary.fill(flat[1 : length + 1], KEY)
    assert flat.tolist() == [0, *(KEY * 20)[:length], 0]


@pytest.mark.parametrize("key", [b"", b"1234567", b"123456789"])
def test_a_key_of_another_length_is_an_error(canary, margins, key):
    with pytest.raises(ValueError, match="a key is 8 bytes"):
        canary.fill(margins.flatten(), key)
    with pytest.raises(ValueError, match="a key is 8 bytes"):
        canary.broken(margins, key)


def test_margins_that_hold_are_not_reported(canary, margins):
    assert canary.broken(margins, KEY) == []
    assert canary.broken(margins[:0], KEY) == []


def test_margins_filled_with_another_key_are_broken(canary, margins):
    other = bytes(reversed(KEY))
    assert [found["bytes"] for found in canary.broken(margins, other)] == [canary.MARGIN] * 6


@pytest.mark.parametrize("at", [0, 1, 7, 8, 4095, 16382, 16383])
def test_one_changed_byte_is_placed_from_the_edge_of_the_tensor(canary, margins, at):
    margins[1, 1, at] ^= 1
    assert canary.broken(margins, KEY) == [{"index": 1, "side": "after", "bytes": 1, "distance": at}]
    margins[1, 1, at] ^= 1
    margins[2, 0, at] ^= 128
    assert canary.broken(margins, KEY) == [{"index": 2, "side": "before", "bytes": 1, "distance": 16383 - at}]


def test_the_nearest_of_several_changed_bytes_counts(canary, margins):
    margins[0, 0, 100:200] ^= 255
    margins[0, 0, 300] ^= 255
    margins[0, 1, 300:400] ^= 255
    margins[0, 1, 16000] ^= 255
    margins[2] = 0
    assert canary.broken(margins, KEY) == [
        {"index": 0, "side": "before", "bytes": 101, "distance": 16383 - 300},
        {"index": 0, "side": "after", "bytes": 101, "distance": 300},
        {"index": 2, "side": "before", "bytes": 16384, "distance": 0},
        {"index": 2, "side": "after", "bytes": 16384, "distance": 0},
    ]


def test_margins_of_more_tensors_than_there_can_be_are_an_error_not_a_terabyte(canary):
    forged = torch.zeros((), dtype=torch.uint8).expand(1 << 40, 2, 16384)
    with pytest.raises(ValueError, match="margins of 1099511627776 tensors"):
        canary.broken(forged, KEY)


@pytest.mark.parametrize(
    "forged",
    [
        torch.zeros(3, 2, 16383, dtype=torch.uint8),
        torch.zeros(3, 1, 16384, dtype=torch.uint8),
        torch.zeros(2, 16384, dtype=torch.uint8),
        torch.zeros(1, 2, 16384, dtype=torch.int8),
        torch.zeros(()),
    ],
    ids=["short", "one side", "flat", "int8", "scalar"],
)
def test_what_are_no_margins_is_an_error(canary, forged):
    with pytest.raises(ValueError, match=r"margins are uint8 of shape \(n, 2, 16384\), not torch"):
        canary.broken(forged, KEY)
