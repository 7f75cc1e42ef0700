# pyright: basic
# The worker's modules are loaded from their folder, so their types are unknown here.
"""Tensors as memory files: sealed before they leave, copied when they arrive, and never left open."""

import fcntl
import mmap
import os
from pathlib import Path

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


def test_a_tensor_that_has_arrived_keeps_nothing_open(share, shared, data):
    before = descriptors()
    got = share.from_memory(shared, "cpu")
    assert descriptors() == before
    assert torch.equal(got, data)


def mappings():
    return Path("/proc/self/maps").read_text().count("tritonforge-values")


def test_a_sealed_memory_file_is_mapped_as_long_as_a_tensor_of_it_lives(share, shared, data):
    got = share.from_memory(shared, "cpu")
    part = got[SIZE // 2 :].view(torch.int32)
    del got
    assert mappings() == 1
    assert torch.equal(part.view(torch.uint8), data[SIZE // 2 :])
    del part
    assert mappings() == 0


@pytest.mark.parametrize("seals", [0, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW])
def test_of_a_memory_file_that_its_sender_can_change_a_copy_is_taken(share, data, seals):
    descriptor = os.memfd_create("tritonforge-values", os.MFD_ALLOW_SEALING)
    try:
        os.write(descriptor, bytes(data.tolist()))
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
        got = share.from_memory(share.Shared(descriptor, SIZE, "memory"), "cpu")
        os.pwrite(descriptor, b"x" * SIZE, 0)
        assert torch.equal(got, data)
    finally:
        os.close(descriptor)


def test_of_a_file_that_is_no_memory_file_a_copy_is_taken(share, data, tmp_path):
    (tmp_path / "file").write_bytes(bytes(data.tolist()))
    with (tmp_path / "file").open("r+b") as file:
        got = share.from_memory(share.Shared(file.fileno(), SIZE, "memory"), "cpu")
        file.write(b"x" * SIZE)
        file.flush()
    assert torch.equal(got, data)


def test_a_memory_file_shorter_than_was_said_is_an_error_and_no_crash(share, shared):
    longer = shared._replace(size_bytes=SIZE + mmap.PAGESIZE)
    with pytest.raises(ValueError, match="greater than file size"):
        share.from_memory(longer, "cpu")
