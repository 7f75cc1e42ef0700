"""What a process tree uses, with made-up trees for what this kernel never shows."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.sandbox.test_usage import CHEAP, EXACT, MB
from tritonforge.sandbox import usage as module
from tritonforge.sandbox.usage import Usage, tree, usage


def add(
    proc: Path,
    pid: int,
    parent: int,
    *,
    status: str = "Threads:\t1\nRssAnon:\t1024 kB\n",
    rollup: str | None = None,
    children: Sequence[int] | None = None,
) -> None:
    """A made-up process; without children, as a kernel shows it that was built without CONFIG_PROC_CHILDREN."""
    task = proc / str(pid) / "task" / str(pid)
    task.mkdir(parents=True)
    (proc / str(pid) / "stat").write_text(f"{pid} () S 1 (x) S {parent} 7 7 0 -1")
    (proc / str(pid) / "status").write_text(f"Name:\tx\nPPid:\t{parent}\n{status}")
    if rollup is not None:
        (proc / str(pid) / "smaps_rollup").write_text(rollup)
    if children is not None:
        (task / "children").write_text("".join(f"{child} " for child in children))


def test_without_children_files_the_parents_of_all_processes_make_the_tree(tmp_path: Path) -> None:
    for pid, parent in [(1, 0), (10, 1), (11, 10), (12, 11), (13, 1)]:
        add(tmp_path, pid, parent)
    (tmp_path / "self").mkdir()
    (tmp_path / "14").mkdir()
    assert usage(10, tmp_path) == Usage(processes=3, threads=3, memory_bytes=3 * MB)
    assert tree(10, tmp_path) == {10, 11, 12}


def test_a_child_that_vanishes_meanwhile_is_left_out(tmp_path: Path) -> None:
    add(tmp_path, 10, 1, children=[11, 12])
    add(tmp_path, 12, 10, children=[])
    assert usage(10, tmp_path, limit_processes=2) == Usage(processes=2, threads=2, memory_bytes=2 * MB)


def test_a_descriptor_that_is_closed_meanwhile_is_left_out(tmp_path: Path) -> None:
    add(tmp_path, 10, 1, children=[])
    descriptors = tmp_path / "10" / "fd"
    descriptors.mkdir()
    (descriptors / "3").touch()
    (descriptors / "4").symlink_to("/memfd:hidden (deleted)")
    assert usage(10, tmp_path).memory_bytes == MB


def test_a_process_that_is_listed_under_two_parents_counts_once(tmp_path: Path) -> None:
    add(tmp_path, 10, 1, children=[11, 12])
    add(tmp_path, 11, 10, children=[12])
    add(tmp_path, 12, 10, children=[10])
    assert usage(10, tmp_path).processes == 3


def test_only_the_first_threads_are_asked_for_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "THREADS_READ", 2)
    for pid in range(10, 19):
        add(tmp_path, pid, pid - 1, children=[pid + 1])
    assert usage(10, tmp_path).processes == 3
    assert tree(10, tmp_path) == {10, 11, 12}


def test_memory_that_is_swapped_out_counts(tmp_path: Path) -> None:
    status = "Threads:\t1\nRssAnon:\t1024 kB\nRssFile:\t9 kB\nRssShmem:\t2048 kB\nVmPTE:\t4096 kB\nVmSwap:\t8192 kB\n"
    rollup = "Rss: 9 kB\nPss_Anon: 512 kB\nPss_File: 9 kB\nPss_Shmem: 1024 kB\nSwap: 9 kB\nSwapPss: 2048 kB\n"
    add(tmp_path, 10, 1, status=status, rollup=rollup, children=[])
    assert usage(10, tmp_path, suspicious_bytes=CHEAP).memory_bytes == 15 * MB
    assert usage(10, tmp_path, suspicious_bytes=EXACT).memory_bytes == (512 + 1024 + 2048 + 4096) << 10


@pytest.mark.parametrize("rollup", [None, "", "Rss: 9 kB\nPss: 9 kB\nSwapPss: 9 kB\n"])
def test_where_no_exact_share_can_be_read_all_that_is_resident_counts(tmp_path: Path, rollup: str | None) -> None:
    add(tmp_path, 10, 1, rollup=rollup, children=[11])
    add(tmp_path, 11, 1, rollup="Pss_Anon: 512 kB\n", children=[])
    assert usage(10, tmp_path, suspicious_bytes=EXACT).memory_bytes == MB + MB // 2


def test_the_largest_processes_are_read_exactly_first(tmp_path: Path) -> None:
    add(tmp_path, 10, 1, rollup="Pss_Anon: 0 kB\n", children=[11])
    add(tmp_path, 11, 10, status="Threads:\t1\nRssAnon:\t4096 kB\n", rollup="Pss_Anon: 1024 kB\n", children=[])
    assert usage(10, tmp_path, suspicious_bytes=2 * MB).memory_bytes == 2 * MB


def test_no_more_page_tables_are_walked_than_is_quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest process has too many; of the others, one uses up what is left."""
    monkeypatch.setattr(module, "PAGE_TABLE_BYTES", 3 * MB)
    status = "Threads:\t1\nRssAnon:\t8192 kB\nVmPTE:\t4096 kB\n"
    add(tmp_path, 10, 1, status=status, rollup="Pss_Anon: 0 kB\n", children=[11])
    for pid in (11, 12):
        status = "Threads:\t1\nRssAnon:\t1024 kB\nVmPTE:\t2048 kB\n"
        add(tmp_path, pid, 10, status=status, rollup="Pss_Anon: 0 kB\n", children=[12])
    assert usage(10, tmp_path, suspicious_bytes=EXACT).memory_bytes == (8 + 1) * MB + (4 + 2 + 2) * MB
