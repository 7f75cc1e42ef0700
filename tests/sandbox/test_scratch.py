"""Scratch folders: gone with their user, or with the next server where theirs was killed; no others are touched."""

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tritonforge.sandbox.scratch import LOCK, PREFIX, make_folder, remove_all, remove_folder, scratch_folder, sweep

NOBODY = 65534
SERVER = """
import sys
from tritonforge.sandbox.scratch import make_folder
print(make_folder(), flush=True)
sys.stdin.read()
"""
"""A server that has a scratch folder and waits."""


@pytest.fixture(autouse=True)
def temporary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where scratch folders are made."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def server(temporary: Path) -> Iterator["subprocess.Popen[str]"]:
    environment = {**os.environ, "TMPDIR": str(temporary)}
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", SERVER], stdin=pipe, stdout=pipe, text=True, env=environment) as other:
        yield other
        other.kill()


def folder_of(server: "subprocess.Popen[str]") -> Path:
    assert server.stdout is not None
    return Path(server.stdout.readline().strip())


@pytest.mark.anyio
async def test_a_folder_is_its_owners_alone_and_gone_with_all_in_it_on_leaving(temporary: Path) -> None:
    async with scratch_folder() as folder:
        assert folder.parent == temporary
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "deep").mkdir()
        (folder / "deep" / "file").touch()
    assert os.listdir(temporary) == []


def test_all_folders_in_use_are_removed_for_a_server_that_must_end(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Those of this process' other tests stay.
    monkeypatch.setattr("tritonforge.sandbox.scratch._folders", {})
    folders = [make_folder(), make_folder()]
    remove_all()
    assert os.listdir(temporary) == []
    for folder in folders:
        remove_folder(folder)


def test_a_folder_in_use_is_not_swept() -> None:
    folder = make_folder()
    (folder / "file").touch()
    sweep()
    assert (folder / "file").exists()
    remove_folder(folder)


def test_the_folder_of_a_server_that_runs_is_left_alone_until_it_is_killed(server: "subprocess.Popen[str]") -> None:
    folder = folder_of(server)
    (folder / "file").touch()
    sweep()
    assert (folder / "file").exists()
    server.kill()
    server.wait()
    assert folder.exists()
    sweep()
    assert not folder.exists()


def test_folders_that_are_made_while_others_sweep_all_stay(temporary: Path) -> None:
    made: list[Path] = []
    done = threading.Event()

    def sweep_on() -> None:
        while not done.is_set():
            sweep()

    def make() -> None:
        for _ in range(200):
            made.append(make_folder())

    sweepers = [threading.Thread(target=sweep_on) for _ in range(2)]
    makers = [threading.Thread(target=make) for _ in range(2)]
    for thread in (*sweepers, *makers):
        thread.start()
    for thread in makers:
        thread.join()
    done.set()
    for thread in sweepers:
        thread.join()
    assert len(made) == 400
    assert all((folder / LOCK).exists() for folder in made)
    for folder in made:
        remove_folder(folder)
    assert os.listdir(temporary) == []


def test_what_is_no_scratch_of_ours_is_not_swept(temporary: Path) -> None:
    (temporary / f"{PREFIX}mcp").mkdir()
    (temporary / f"{PREFIX}mcp" / "README.md").touch()
    (temporary / f"{PREFIX}gpu-7.lock").touch()
    elsewhere = temporary / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / LOCK).touch()
    (temporary / f"{PREFIX}link").symlink_to(elsewhere)
    before = sorted(temporary.rglob("*"))
    sweep()
    assert sorted(temporary.rglob("*")) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's folder")
def test_the_folder_of_another_user_is_not_swept(temporary: Path) -> None:
    folder = temporary / f"{PREFIX}theirs"
    folder.mkdir()
    (folder / LOCK).touch()
    for path in (folder, folder / LOCK):
        os.chown(path, NOBODY, NOBODY)
    sweep()
    assert (folder / LOCK).exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_that_its_worker_was_given_is_swept(server: "subprocess.Popen[str]") -> None:
    folder = folder_of(server)
    os.chown(folder, NOBODY, NOBODY)
    server.kill()
    server.wait()
    sweep()
    assert not folder.exists()


def test_what_a_kernel_put_in_the_place_of_a_lock_is_neither_followed_nor_waited_for(temporary: Path) -> None:
    outside = temporary / "outside"
    outside.touch()
    linked, piped = temporary / f"{PREFIX}linked", temporary / f"{PREFIX}piped"
    linked.mkdir()
    (linked / LOCK).symlink_to(outside)
    piped.mkdir()
    os.mkfifo(piped / LOCK)
    sweep()
    assert linked.exists()
    assert outside.exists()
    assert not piped.exists()


def test_a_folder_that_is_swept_twice_at_once_is_no_fault(server: "subprocess.Popen[str]") -> None:
    folder = folder_of(server)
    server.kill()
    server.wait()
    sweepers = [threading.Thread(target=sweep) for _ in range(8)]
    for thread in sweepers:
        thread.start()
    for thread in sweepers:
        thread.join()
    assert not folder.exists()
