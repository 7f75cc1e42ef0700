# pyright: basic
# The worker's modules are loaded from their folder, so their types are unknown here.
"""Tensors as memory files: sealed before they leave, copied when they arrive, and never left open."""

import mmap
import os

import pytest
import torch

SIZE = 1 << 20


def descriptors():
    return set(os.listdir("/proc/self/fd"))


@pytest.fixture
def data():
    return torch.randint(0, 256, (SIZE,), dtype=torch.uint8)


@pytest.fixture
def shared(share, data):
    made = share.to_memory(data)
    yield made
    os.close(made.descriptor)


def test_a_memory_file_holds_the_tensors_bytes(share, shared, data):
    assert (shared.size_bytes, shared.kind) == (SIZE, "memory")
    assert os.pread(shared.descriptor, SIZE, 0) == bytes(data.tolist())
    assert torch.equal(share.from_memory(shared, "cpu"), data)


def test_nobody_can_change_a_memory_file_any_more(shared):
    with pytest.raises(PermissionError):
        os.pwrite(shared.descriptor, b"x", 0)
    for size in (0, SIZE - 1, SIZE + 1):
        with pytest.raises(PermissionError):
            os.ftruncate(shared.descriptor, size)
    with pytest.raises(PermissionError):
        mmap.mmap(shared.descriptor, SIZE)
    # Nor through another way to open it.
    again = os.open(f"/proc/self/fd/{shared.descriptor}", os.O_RDWR)
    try:
        with pytest.raises(PermissionError):
            os.pwrite(again, b"x", 0)
    finally:
        os.close(again)


def test_programs_that_a_candidate_starts_do_not_get_a_memory_file(shared):
    assert not os.get_inheritable(shared.descriptor)


def test_a_tensor_that_has_arrived_is_ones_own(share, shared, data):
    got = share.from_memory(shared, "cpu")
    got.fill_(7)
    assert torch.equal(share.from_memory(shared, "cpu"), data)


def test_a_tensor_that_has_arrived_keeps_nothing_open(share, shared):
    before = descriptors()
    share.from_memory(shared, "cpu")
    assert descriptors() == before


def test_a_memory_file_shorter_than_was_said_is_an_error_and_no_crash(share, shared):
    longer = shared._replace(size_bytes=SIZE + mmap.PAGESIZE)
    with pytest.raises(ValueError, match="greater than file size"):
        share.from_memory(longer, "cpu")
