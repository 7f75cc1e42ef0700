"""What a worker's process tree uses, as its parent sees it in /proc: processes, threads and memory.

A worker is forked from a process that has imported torch, so its resident set is mostly pages that it shares: files,
and memory of its parent not written to since. Two measures, both of anonymous and shared memory only, never of files:

* ``/proc/<pid>/status`` (RssAnon, RssShmem, VmSwap, VmPTE): 0.03 ms, readable for every process, and an upper bound
  over a tree, because a page that n processes share is counted n times.
* ``/proc/<pid>/smaps_rollup`` (Pss_Anon, Pss_Shmem, SwapPss): each page divided by how many processes map it, so that
  shares add up to what there is. It walks the page tables: 12 ms for a process that has imported torch, 20 ms more for
  each GB. A process that is not dumpable can't be read that way by an ordinary user.

So the first is summed, and the second is read only where that sum is suspicious: largest process first, as long as the
sum stays suspicious, and no more than `PAGE_TABLE_BYTES` of page tables. Sources: proc_pid_status(5),
proc_pid_task(5), and for the shares Documentation/ABI/testing/procfs-smaps_rollup of the kernel.

What is held by a memfd that nobody maps is in neither measure, and is found through the descriptors. Not found at all:
shared memory with neither pages mapped nor a memfd's descriptor (unmapped by MADV_DONTNEED, System V segments, files in
a tmpfs, a memfd in flight over a socket), descriptors of a process that made itself undumpable, memory that a device
driver pins. Against those only a memory cgroup helps.
"""

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

PAGE_TABLE_BYTES = 32 << 20
"""Page tables that one call walks for exact shares: those of 16 GB in pages of 4 KB, 0.4 to 0.6 s."""
THREADS_READ = 16384
"""Threads of a tree that are asked for their children, at 0.02 ms each."""
DESCRIPTORS_PER_PROCESS = 4096
"""Descriptors of a process that are looked at, at 0.007 ms each, or 0.015 ms for a memfd."""
DESCRIPTORS_READ = 8192
"""Descriptors of a tree that are looked at."""

PID_MAX = 1 << 22
"""The most processes that a Linux kernel has, proc_sys_kernel(5)."""

_KB = 1024
_FIGURE = re.compile(rb"^(Threads|RssAnon|RssShmem|VmPTE|VmSwap|Pss_Anon|Pss_Shmem|SwapPss):[ \t]+(\d+)", re.MULTILINE)


class Usage(NamedTuple):
    """What a process tree uses at one moment."""

    processes: int
    """Zombies included: each takes a process id."""
    threads: int
    memory_bytes: int
    """Anonymous and shared memory, swapped or not, with its page tables."""


class _Memory(NamedTuple):
    anonymous_bytes: int
    shared_bytes: int


class _Process(NamedTuple):
    folder: str
    """Where its memory and descriptors are read."""
    threads: int
    page_table_bytes: int
    resident: _Memory


def usage(
    root_pid: int,
    proc: Path = Path("/proc"),
    *,
    suspicious_bytes: int = 1 << 30,
    limit_processes: int = 4096,
) -> Usage:
    """What a process and all its descendants use; nothing where there is no such process.

    A snapshot of a moving target: a process that is forked or handed to another parent meanwhile may be missed, and a
    child of vfork(2) counts its parent's memory again until it has called execve. Act on two readings in a row.

    Args:
        root_pid: the top of the tree. Orphans are found as long as a subreaper or the init process is in the tree.
        proc: where proc is mounted.
        suspicious_bytes: memory above which the exact, slow measure is taken; below it the figure is an upper bound.
            The limit to be kept is the best choice.
        limit_processes: no more processes than this are looked at, at about 0.2 ms each. One more than may be there is
            the best choice.
    """
    walk = (_look(f"{proc}/{pid}") for pid in _tree(root_pid, proc))
    processes = list(islice((process for process in walk if process is not None), limit_processes))
    memfd_bytes = _memfd_bytes(process.folder for process in processes)
    return Usage(
        processes=len(processes),
        threads=sum(process.threads for process in processes),
        memory_bytes=_memory_bytes(processes, memfd_bytes, suspicious_bytes),
    )


def _tree(root_pid: int, proc: Path) -> Iterator[int]:
    """The process and its descendants, each once, nearest first."""
    # A kernel without CONFIG_PROC_CHILDREN lacks the file; then all processes of the machine are read once.
    has_children = os.path.exists(f"{proc}/{root_pid}/task/{root_pid}/children")
    by_parent = {} if has_children else _by_parent(proc)
    pids = [root_pid]
    # A process that gets another parent during the walk may be listed under both.
    known = {root_pid}
    threads_left = THREADS_READ
    for pid in pids:
        yield pid
        children = by_parent.get(pid, [])
        if has_children:
            # A child is listed with the thread that forked it.
            threads = _names(f"{proc}/{pid}/task", threads_left)
            threads_left -= len(threads)
            children = [
                int(child) for thread in threads for child in _read(f"{proc}/{pid}/task/{thread}/children").split()
            ]
        pids += [child for child in children if child not in known]
        known.update(children)


def _by_parent(proc: Path) -> dict[int, list[int]]:
    children: dict[int, list[int]] = defaultdict(list)
    for name in filter(str.isdecimal, _names(str(proc), PID_MAX)):
        # A process chooses its own name, brackets and spaces included: the kernel's fields follow the last bracket.
        fields = _read(f"{proc}/{name}/stat").rpartition(b")")[2].split()
        if len(fields) > 1:
            children[int(fields[1])].append(int(name))
    return children


def _look(folder: str) -> _Process | None:
    """One process by the cheap measure; None where it has vanished."""
    figures = _figures(f"{folder}/status")
    threads = figures.get(b"Threads")
    if threads is None:
        return None
    if b"RssAnon" not in figures and threads > 1:
        # Its main thread has ended and shows nothing, but memory and descriptors live on with the other threads.
        for thread in _names(f"{folder}/task", THREADS_READ):
            alive = _figures(f"{folder}/task/{thread}/status")
            if b"RssAnon" in alive:
                folder, figures = f"{folder}/task/{thread}", alive
                break
    anonymous_kb = figures.get(b"RssAnon", 0) + figures.get(b"VmSwap", 0)
    return _Process(
        folder,
        threads,
        page_table_bytes=figures.get(b"VmPTE", 0) * _KB,
        resident=_Memory(anonymous_kb * _KB, figures.get(b"RssShmem", 0) * _KB),
    )


def _memory_bytes(processes: list[_Process], memfd_bytes: int, suspicious_bytes: int) -> int:
    """The memory of all: the sum of what is resident, or of the exact shares where that sum is suspicious."""
    tables = sum(process.page_table_bytes for process in processes)
    anonymous = sum(process.resident.anonymous_bytes for process in processes)
    shared = sum(process.resident.shared_bytes for process in processes)
    tables_left = PAGE_TABLE_BYTES
    for process in sorted(processes, key=lambda process: sum(process.resident), reverse=True):
        # Which part of the shared memory is a memfd's is not cheap to tell, so the greater of the two stands for both:
        # a tree that has much of each gets away with half of its shared memory at most.
        if tables + anonymous + max(shared, memfd_bytes) <= suspicious_bytes:
            break
        if process.page_table_bytes > tables_left:
            continue
        tables_left -= process.page_table_bytes
        share = _share(process)
        anonymous += share.anonymous_bytes - process.resident.anonymous_bytes
        shared += share.shared_bytes - process.resident.shared_bytes
    return tables + anonymous + max(shared, memfd_bytes)


def _share(process: _Process) -> _Memory:
    """Its share of the memory that it maps; all that is resident where that can't be read."""
    figures = _figures(f"{process.folder}/smaps_rollup")
    if b"Pss_Anon" not in figures:
        return process.resident
    anonymous_kb = figures[b"Pss_Anon"] + figures.get(b"SwapPss", 0)
    return _Memory(anonymous_kb * _KB, figures.get(b"Pss_Shmem", 0) * _KB)


def _memfd_bytes(folders: Iterable[str]) -> int:
    """What the memfds hold that these processes have open, each counted once."""
    held_bytes: dict[tuple[int, int], int] = {}
    descriptors_left = DESCRIPTORS_READ
    for folder in folders:
        names = _names(f"{folder}/fd", min(DESCRIPTORS_PER_PROCESS, descriptors_left))
        descriptors_left -= len(names)
        for name in names:
            link = f"{folder}/fd/{name}"
            try:
                if os.readlink(link).startswith("/memfd:"):
                    facts = os.stat(link)
                    held_bytes[facts.st_dev, facts.st_ino] = facts.st_blocks * 512
            except OSError:
                continue
    return sum(held_bytes.values())


def _names(folder: str, limit: int) -> list[str]:
    """The first names in a folder; none where it has vanished or may not be read."""
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in islice(entries, limit)]
    except OSError:
        return []


def _figures(path: str) -> dict[bytes, int]:
    return {name: int(number) for name, number in _FIGURE.findall(_read(path))}


def _read(path: str) -> bytes:
    """A file of proc; nothing where its process has vanished or it may not be read."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def tree(root_pid: int, proc: Path = Path("/proc")) -> set[int]:
    """The process and all its descendants."""
    return set(_tree(root_pid, proc))
