"""The files of leases: any user's, opened with care, and told of where they can't be used."""

import os
import stat
from collections.abc import Generator
from pathlib import Path

import anyio
import pytest
from anyio import wait_all_tasks_blocked

from tests.sandbox.holders import GPU, Caller, descriptors, lock_files, locked, taken
from tritonforge.sandbox import lease
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.lease import Leases
from tritonforge.sandbox.outcome import Kind

pytestmark = pytest.mark.anyio


@pytest.fixture
def strict_umask() -> Generator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.mark.usefixtures("strict_umask")
async def test_every_user_can_open_the_files_whatever_the_umask(tmp_path: Path) -> None:
    async with taken(Leases(tmp_path)):
        modes = [stat.S_IMODE(path.stat().st_mode) for path in lock_files(tmp_path)]
    assert modes == [0o666, 0o666]


async def test_a_file_that_exists_is_opened_to_read_and_without_creating(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with taken(Leases(tmp_path)):
        pass
    plain, flags = os.open, list[int]()

    def record(path: Path, flag: int, mode: int = 0o777) -> int:
        flags.append(flag)
        return plain(path, flag, mode)

    monkeypatch.setattr(lease.os, "open", record)
    async with taken(Leases(tmp_path)):
        pass
    assert len(flags) == 2
    assert not any(flag & (os.O_CREAT | os.O_WRONLY | os.O_RDWR) for flag in flags)


async def test_a_file_that_another_server_creates_meanwhile_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = os.open

    def be_second(path: Path, flag: int, mode: int = 0o777) -> int:
        if flag & os.O_CREAT:
            os.close(plain(path, os.O_CREAT, 0o666))
        return plain(path, flag, mode)

    monkeypatch.setattr(lease.os, "open", be_second)
    async with taken(Leases(tmp_path)):
        assert locked(lock_files(tmp_path)[0])


async def test_a_file_removed_during_the_wait_is_made_anew(tmp_path: Path) -> None:
    caller = Caller(Leases(tmp_path), "ours", [])
    async with taken(Leases(tmp_path)), anyio.create_task_group() as tasks:
        tasks.start_soon(caller.run)
        await wait_all_tasks_blocked()
        lock_files(tmp_path)[0].unlink()
        await caller.holds.wait()
        caller.let_go.set()


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("dangling", [True, False])
async def test_a_symbolic_link_in_place_of_a_file_is_refused(which: int, dangling: bool, tmp_path: Path) -> None:
    target, path = tmp_path / "target", lock_files(tmp_path)[which]
    if not dangling:
        target.touch()
    path.symlink_to(target)
    leases = Leases(tmp_path)
    with pytest.raises(Stopped) as caught:
        async with taken(leases):
            pytest.fail("the lease was given")
    assert caught.value.kind is Kind.UNAVAILABLE
    assert str(path) in caught.value.problem.message
    assert target.exists() is not dangling
    assert leases.waiting(GPU) == 0
    assert not any(locked(file) for file in lock_files(tmp_path) if file.exists())


async def test_a_pipe_in_place_of_a_file_does_not_hang_the_server(tmp_path: Path) -> None:
    for path in lock_files(tmp_path):
        os.mkfifo(path)
    async with taken(Leases(tmp_path)):
        pass


async def test_a_missing_folder_makes_the_gpu_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Stopped) as caught:
        async with taken(Leases(tmp_path / "missing")):
            pytest.fail("the lease was given")
    kind, problem = caught.value.kind, caught.value.problem
    assert (kind, problem.stage) == (Kind.UNAVAILABLE, "benchmark")
    assert "No such file or directory" in problem.message
    assert problem.likely_fix is not None
    assert str(tmp_path / "missing") in problem.likely_fix


async def test_a_file_of_another_user_that_can_not_be_opened_makes_the_gpu_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Made up, because nothing is forbidden to the root user that tests may run as.
    def refuse(path: Path, flags: int, mode: int = 0o777) -> int:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(lease.os, "open", refuse)
    with pytest.raises(Stopped, match="Permission denied") as caught:
        async with taken(Leases(tmp_path)):
            pytest.fail("the lease was given")
    assert caught.value.kind is Kind.UNAVAILABLE


async def test_a_file_system_without_locks_makes_the_gpu_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(37, "No locks available")

    with monkeypatch.context() as patch:
        patch.setattr(lease.fcntl, "flock", refuse)
        with pytest.raises(Stopped, match="No locks available"):
            async with taken(Leases(tmp_path)):
                pytest.fail("the lease was given")
    assert [descriptors(path) for path in lock_files(tmp_path)] == [[], []]
