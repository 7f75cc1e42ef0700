"""What a worker's process tree uses: real trees that wait on a pipe.

A bound above a figure leaves room for the interpreter itself, about 8 MB.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from tritonforge.sandbox import usage as module
from tritonforge.sandbox.usage import Usage, usage

MB = 1 << 20
EXACT = 0
"""Any memory at all is suspicious."""
CHEAP = 1 << 50
"""No memory is suspicious."""

PRELUDE = """\
import ctypes, mmap, os, signal, threading
MB = 1 << 20
libc = ctypes.CDLL(None)
PR_SET_DUMPABLE, PR_SET_NAME, PR_SET_CHILD_SUBREAPER = 4, 15, 36
def filled(megabytes):
    return bytearray(b"x") * (megabytes * MB)
def memfd(megabytes):
    descriptor = os.memfd_create("hidden")
    for _ in range(megabytes):
        os.write(descriptor, bytes(MB))
    return descriptor
def ready():
    os.write(1, b"ready\\n")
    os.read(0, 1)
"""


@contextmanager
def running(program: str) -> Generator[tuple[int, IO[bytes]]]:
    """A process that runs this until it is ready, and its output; then it is killed with all that it started."""
    with subprocess.Popen(
        [sys.executable, "-IS", "-c", PRELUDE + program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"ready\n"
            yield process.pid, process.stdout
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def used(program: str, suspicious_bytes: int = EXACT) -> Usage:
    with running(program) as (pid, _):
        return usage(pid, suspicious_bytes=suspicious_bytes)


@pytest.mark.parametrize("suspicious_bytes", [EXACT, CHEAP])
def test_memory_that_is_touched_counts(suspicious_bytes: int) -> None:
    seen = used("kept = filled(64)\nready()", suspicious_bytes)
    assert (seen.processes, seen.threads) == (1, 1)
    assert 64 * MB <= seen.memory_bytes < 80 * MB


@pytest.mark.parametrize("suspicious_bytes", [EXACT, CHEAP])
def test_memory_that_is_only_reserved_does_not_count(suspicious_bytes: int) -> None:
    assert used("kept = mmap.mmap(-1, 1024 * MB)\nready()", suspicious_bytes).memory_bytes < 16 * MB


@pytest.mark.parametrize("suspicious_bytes", [EXACT, CHEAP])
def test_pages_of_files_do_not_count(suspicious_bytes: int, tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(bytes(64 * MB))
    program = f"""
with open({str(path)!r}, "rb") as file:
    kept = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
sum(kept[::4096])
ready()
"""
    assert used(program, suspicious_bytes).memory_bytes < 16 * MB


@pytest.mark.parametrize("suspicious_bytes", [EXACT, CHEAP])
def test_page_tables_count(suspicious_bytes: int) -> None:
    """Reading memory that was never written maps one page of zeros many times: no memory but that of the tables."""
    # One page in every 2 MB takes a table of 4 KB each.
    program = """
kept = mmap.mmap(-1, 8192 * MB, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ)
kept.madvise(mmap.MADV_NOHUGEPAGE)
sum(kept[:: 2 * MB])
ready()
"""
    assert used(program, suspicious_bytes).memory_bytes >= 16 * MB


FORKS = """
gathered, gather = os.pipe()
kept = filled(64)
for _ in range(4):
    if os.fork() == 0:
        break
else:
    for _ in range(4):
        os.read(gathered, 1)
    ready()
os.write(gather, b"x")
os.read(0, 1)
"""


def test_memory_that_forked_processes_share_counts_once() -> None:
    seen = used(FORKS)
    assert (seen.processes, seen.threads) == (5, 5)
    assert 64 * MB <= seen.memory_bytes < 100 * MB


def test_memory_that_is_not_suspicious_is_an_upper_bound() -> None:
    assert used(FORKS, CHEAP).memory_bytes >= 5 * 64 * MB


def test_exact_shares_are_read_only_until_the_memory_is_no_longer_suspicious() -> None:
    """Each of five shares takes 51 of 320 MB away: after three of them the rest is left as it is."""
    assert 150 * MB < used(FORKS, 200 * MB).memory_bytes <= 200 * MB


def test_memory_shared_with_a_process_outside_the_tree_counts_by_its_share() -> None:
    program = FORKS.replace("    ready()", "    os.write(1, b'ready\\n%d\\n' % child); os.read(0, 1)")
    program = program.replace("if os.fork() == 0", "if (child := os.fork()) == 0")
    with running(program) as (_, output):
        child = int(output.readline())
        assert usage(child, suspicious_bytes=EXACT).memory_bytes < 24 * MB
        assert usage(child, suspicious_bytes=CHEAP).memory_bytes >= 64 * MB


def test_no_more_processes_are_looked_at_than_asked_for() -> None:
    with running(FORKS) as (pid, _):
        assert usage(pid, limit_processes=3).processes == 3
        assert usage(pid, limit_processes=5).processes == 5


def test_threads_count_and_so_do_processes_that_a_thread_started() -> None:
    program = """
started = threading.Event()
def fork():
    if os.fork() == 0:
        os.read(0, 1)
    started.set()
    os.read(0, 1)
threading.Thread(target=fork).start()
started.wait()
ready()
"""
    assert used(program)[:2] == (2, 3)


def test_a_zombie_takes_a_process_id_and_no_memory() -> None:
    program = "kept = filled(32)\nif (child := os.fork()) == 0: os._exit(0)\n"
    program += "os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)\nready()"
    seen = used(program)
    assert seen.processes == 2
    assert 32 * MB <= seen.memory_bytes < 48 * MB


ORPHAN = """
if os.fork() == 0:
    if os.fork() == 0:
        kept = filled(32)
        while os.getppid() != top:
            pass
        ready()
    os._exit(0)
os.wait()
os.read(0, 1)
"""


def test_an_orphan_is_found_below_the_subreaper_that_inherits_it() -> None:
    seen = used("libc.prctl(PR_SET_CHILD_SUBREAPER, 1)\ntop = os.getpid()" + ORPHAN)
    assert seen.processes == 2
    assert seen.memory_bytes >= 32 * MB


@pytest.mark.parametrize("suspicious_bytes", [EXACT, CHEAP])
@pytest.mark.parametrize("program", ["hidden = memfd(32)\nready()", FORKS.replace("filled(64)", "memfd(32)")])
def test_a_memfd_that_nobody_maps_counts_once(program: str, suspicious_bytes: int) -> None:
    # Six interpreters by the cheap measure.
    assert 32 * MB <= used(program, suspicious_bytes).memory_bytes < 32 * MB + 6 * 8 * MB


@pytest.mark.parametrize("suspicious_bytes", [EXACT, CHEAP])
def test_a_memfd_that_is_mapped_counts_once(suspicious_bytes: int) -> None:
    program = "kept = mmap.mmap(memfd(64), 64 * MB)\nsum(kept[::4096])\nready()"
    assert 64 * MB <= used(program, suspicious_bytes).memory_bytes < 80 * MB


@pytest.mark.parametrize("suspicious_bytes", [EXACT, CHEAP])
def test_shared_memory_without_a_file_counts(suspicious_bytes: int) -> None:
    program = "kept = mmap.mmap(-1, 64 * MB)\nkept[::4096] = bytes(64 * MB // 4096)\nready()"
    assert 64 * MB <= used(program, suspicious_bytes).memory_bytes < 80 * MB


def test_only_the_first_descriptors_of_a_process_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    with running("hidden = memfd(32)\nready()") as (pid, _):
        monkeypatch.setattr(module, "DESCRIPTORS_PER_PROCESS", 4)
        assert usage(pid).memory_bytes >= 32 * MB
        monkeypatch.setattr(module, "DESCRIPTORS_PER_PROCESS", 3)
        assert usage(pid).memory_bytes < 16 * MB


def test_the_descriptors_that_are_looked_at_are_limited_over_the_whole_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parent has four descriptors: its pipe is closed once the child, which has a memfd as well, got it."""
    program = """
gathered, gather = os.pipe()
if os.fork() == 0:
    hidden = memfd(32)
    os.write(gather, b"x")
    os.read(0, 1)
os.read(gathered, 1)
os.close(gather)
ready()
"""
    with running(program) as (pid, _):
        monkeypatch.setattr(module, "DESCRIPTORS_READ", 4 + 6)
        assert usage(pid).memory_bytes >= 32 * MB
        monkeypatch.setattr(module, "DESCRIPTORS_READ", 4 + 5)
        assert usage(pid).memory_bytes < 32 * MB


@pytest.mark.parametrize("suspicious_bytes", [EXACT, CHEAP])
def test_a_process_whose_main_thread_has_ended_hides_nothing(suspicious_bytes: int) -> None:
    program = """
main = threading.get_native_id()
def hide():
    kept, hidden = filled(64), memfd(32)
    while b"State:\\tZ" not in open(f"/proc/self/task/{main}/status", "rb").read():
        pass
    ready()
threading.Thread(target=hide).start()
libc.pthread_exit(None)
"""
    seen = used(program, suspicious_bytes)
    assert seen.processes == 1
    assert 96 * MB <= seen.memory_bytes < 112 * MB


def test_a_process_can_not_forge_its_figures_by_its_name() -> None:
    seen = used("libc.prctl(PR_SET_NAME, b'\\nThreads:\\t999')\nready()")
    assert seen.threads == 1


OBSERVER = """
import os, sys
from tritonforge.sandbox.usage import usage
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
gathered, gather = os.pipe()
if (child := os.fork()) == 0:
    # Where the observer fails its output ends with it.
    os.close(1)
    kept, hidden = filled(64), memfd(32)
    libc.prctl(PR_SET_DUMPABLE, 0)
    os.write(gather, b"x")
    os.read(0, 1)
    os._exit(0)
os.read(gathered, 1)
assert not os.access(f"/proc/{child}/fd", os.R_OK)
seen = usage(child, suspicious_bytes=0)
os.write(1, b"ready\\n%d %d\\n" % (seen.processes, seen.memory_bytes))
os.read(0, 1)
"""


def test_a_process_that_may_not_be_inspected_counts_with_all_that_is_resident() -> None:
    """Seen by an ordinary user: the superuser may inspect any process. Its memfd is out of sight."""
    with subprocess.Popen(
        [sys.executable, "-c", PRELUDE + OBSERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"ready\n"
            processes, memory_bytes = map(int, process.stdout.readline().split())
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    assert processes == 1
    assert 64 * MB <= memory_bytes < 80 * MB


def test_a_process_that_has_ended_uses_nothing() -> None:
    with running("ready()") as (pid, _):
        pass
    assert usage(pid) == Usage(processes=0, threads=0, memory_bytes=0)


def test_the_real_tree_is_also_found_without_children_files(tmp_path: Path) -> None:
    """The real /proc, less those files."""
    with running(FORKS) as (pid, _):
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                folder = tmp_path / entry.name
                folder.mkdir()
                for name in ("stat", "status", "smaps_rollup"):
                    (folder / name).symlink_to(entry / name)
        without = usage(pid, tmp_path, suspicious_bytes=EXACT)
        assert without[:2] == (5, 5)
        assert 64 * MB <= without.memory_bytes < 100 * MB
