"""Who else computes on a GPU, as far as the driver can tell."""

import pytest

from tritonforge.sandbox import nvml
from tritonforge.sandbox.lease import sharing
from tritonforge.sandbox.nvml import GpuProcess, NvmlUnavailable

GPU = "GPU-0001"


def running(monkeypatch: pytest.MonkeyPatch, *pids: int) -> list[GpuProcess]:
    """Let the driver list these compute processes."""
    found = [GpuProcess(pid=pid, name=None, memory_bytes=None) for pid in pids]

    def processes(uuid: str) -> list[GpuProcess]:
        assert uuid == GPU
        return found

    monkeypatch.setattr(nvml, "processes", processes)
    return found


def test_a_process_that_is_not_ours_shares_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    _, theirs = running(monkeypatch, 10, 11)
    found = sharing(GPU, own={10, 12})
    assert (found.foreign, found.checked, found.reason) == ([theirs], True, None)


def test_nobody_shares_the_gpu_where_all_processes_are_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    running(monkeypatch, 10)
    found = sharing(GPU, own=[10])
    assert (found.foreign, found.checked) == ([], True)


def test_every_process_is_foreign_where_we_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = running(monkeypatch, 10, 11)
    found = sharing(GPU, own=())
    assert (found.foreign, found.checked) == (theirs, True)


@pytest.mark.parametrize("own", [(), (10,)])
def test_nobody_shares_a_gpu_without_processes(own: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    running(monkeypatch)
    found = sharing(GPU, own)
    assert (found.foreign, found.checked) == ([], True)


def test_pids_of_another_namespace_can_not_be_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    running(monkeypatch, 70_010, 70_011)
    found = sharing(GPU, own=[10])
    assert (found.foreign, found.checked) == ([], False)
    assert found.reason is not None
    assert "--pid=host" in found.reason


def test_sharing_says_why_the_driver_could_not_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def processes(uuid: str) -> list[GpuProcess]:
        raise NvmlUnavailable("no driver", "Install it.")

    monkeypatch.setattr(nvml, "processes", processes)
    found = sharing(GPU, own=[10])
    assert (found.foreign, found.checked, found.reason) == ([], False, "no driver. Install it.")
