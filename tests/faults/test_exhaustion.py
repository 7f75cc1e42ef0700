"""Kernels that take all there is, or never end: each is stopped at its limits, and the next one is served."""

from typing import Any

import pytest

from tests.faults.evaluations import KERNEL, entry, failed
from tests.faults.hostile import PRELUDE, Sealed
from tritonforge.sandbox.limits import Limits
from tritonforge.sandbox.outcome import Kind

pytestmark = pytest.mark.anyio

HANG_S = 3.0
"""For what never ends; loading a kernel file takes a tenth of it."""
MIB = 1 << 20


def limit(sealed: Sealed, **limits: Any) -> None:
    """Limits of the workers that are made from now on."""
    sealed.host.limits = Limits.model_validate({"request_s": 30.0, **limits})


# Files

FILL = """
for folder in ("/tmp", "/dev/shm"):
    written = 0
    with open(folder + "/full", "wb", buffering=0) as file:
        try:
            while written < 1 << 30:
                written += file.write(bytes(1 << 20))
        except OSError as error:
            got[folder] = [written, error.strerror]
    os.remove(folder + "/full")
"""
MANY_FILES = """
try:
    for number in range(1 << 20):
        os.close(os.open(f"/tmp/{number}", os.O_CREAT))
except OSError as error:
    got["files"] = [number, error.strerror]
    for other in range(number):
        os.remove(f"/tmp/{other}")
"""
LARGE_FILES = """
for folder in ("/tmp", "/dev/shm"):
    with open(folder + "/large", "wb", buffering=0) as file:
        attempt(folder + " written", os.pwrite, file.fileno(), b"x", 1 << 30)
        attempt(folder + " sparse", os.truncate, file.fileno(), 1 << 40)
        attempt(folder + " reserved", os.posix_fallocate, file.fileno(), 0, 1 << 30)
attempt("in memory", os.truncate, os.memfd_create("large"), 1 << 40)
"""


async def test_its_folders_hold_what_they_may_and_no_more(sealed: Sealed) -> None:
    limit(sealed, scratch_bytes=32 * MIB)
    got = (await sealed.findings(FILL)).got
    assert got.keys() == {"/tmp", "/dev/shm"}
    for written, reason in got.values():
        assert reason == "No space left on device"
        assert 16 * MIB < written <= 32 * MIB


async def test_empty_files_are_no_way_around_that(sealed: Sealed) -> None:
    limit(sealed, scratch_bytes=32 * MIB)
    number, reason = (await sealed.findings(MANY_FILES)).got["files"]
    assert reason == "No space left on device"
    assert 500 < number < 5000


async def test_a_file_that_is_larger_than_allowed_is_not_made(sealed: Sealed) -> None:
    limit(sealed, file_bytes=8 * MIB)
    findings = await sealed.findings(LARGE_FILES)
    assert (findings.tried, findings.got) == (7, {})


# Memory

HOARDING = """
import mmap, torch
from multiprocessing.shared_memory import SharedMemory
hoard = []
"""


@pytest.mark.parametrize(
    "hoard",
    [
        "hoard.append(bytearray(b'x') * (1 << 24))",
        "hoard.append(mmap.mmap(-1, 1 << 24)); hoard[-1].write(b'x' * (1 << 24))",
        "hoard.append(mmap.mmap(-1, 1 << 24, mmap.MAP_PRIVATE)); hoard[-1].write(b'x' * (1 << 24))",
        "hoard.append(os.memfd_create('hoard')); os.write(hoard[-1], b'x' * (1 << 24))",
        "hoard.append(SharedMemory(create=True, size=1 << 24)); hoard[-1].buf[:] = b'x' * (1 << 24)",
        "os.fork() or (hoard.append(bytearray(b'x') * (1 << 25)), signal.pause())",
        "hoard.append(torch.ones(1 << 22))",
    ],
    ids=["objects", "shared pages", "private pages", "memory files", "shared memory", "children", "tensors"],
)
async def test_memory_beyond_the_limit_ends_the_worker(sealed: Sealed, hoard: str) -> None:
    limit(sealed, memory_bytes=512 * MIB, processes=64)
    source = f"{PRELUDE}{HOARDING}while True:\n    {hoard}\n"
    problem = failed(await sealed.compile(source), Kind.OUT_OF_MEMORY, "load")
    assert "bytes of host memory, of 536,870,912 that are allowed" in problem.message


# Processes and descriptors

FORK = """
children = []
try:
    while len(children) < 1000:
        child = os.fork()
        if child == 0:
            signal.pause()
        children.append(child)
except OSError as error:
    got["children"] = len(children)
"""
THREAD = """
threads = 0
try:
    while threads < {wanted}:
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        threads += 1
except RuntimeError:
    pass
got["threads"] = threads
"""
OPEN = """
opened = []
try:
    while len(opened) < 100_000:
        opened.append(os.open("/dev/null", os.O_RDONLY))
except OSError as error:
    got["opened"] = [len(opened), error.strerror]
"""


async def test_processes_and_threads_are_limited(sealed: Sealed) -> None:
    limit(sealed, processes=100)
    assert 90 < (await sealed.findings(FORK)).got["children"] < 100
    assert 90 < (await sealed.findings(THREAD.format(wanted=1000))).got["threads"] < 100


async def test_a_worker_that_has_used_up_its_processes_takes_none_from_others(sealed: Sealed) -> None:
    limit(sealed, processes=100)
    async with sealed.neighbour(FORK):
        assert (await sealed.findings(THREAD.format(wanted=80))).got == {"threads": 80}


async def test_descriptors_are_limited(sealed: Sealed) -> None:
    limit(sealed, descriptors=300)
    number, reason = (await sealed.findings(OPEN)).got["opened"]
    assert reason == "Too many open files"
    assert 250 < number < 300


# Harmless in the end


@pytest.mark.parametrize(
    "statement",
    [
        "for _ in range(50): os.fork() or os._exit(0)",
        "for _ in range(1100): os.write(1, b'y' * (1 << 20)), os.write(2, b'z' * (1 << 10))",
        "threading.Thread(target=lambda: [None for _ in iter(int, 1)], daemon=True).start()",
        "for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(number, signal.SIG_IGN)",
        "sys.stdout.close(), sys.stderr.close(), os.close(0), os.close(1), os.close(2)",
    ],
    ids=["zombies", "gigabytes of output", "busy thread", "signals ignored", "closed streams"],
)
async def test_what_does_no_harm_is_no_fault(sealed: Sealed, statement: str) -> None:
    result = await sealed.compile(f"{PRELUDE}{statement}\n{KERNEL}")
    assert result.kind is Kind.OK, result.summary
    assert len(result.model_dump_json()) < 20_000


# Time

IGNORE = "for number in set(signal.valid_signals()) - {9, 19}: signal.signal(number, signal.SIG_IGN)\n"
BOMB = "while True:\n    try:\n        os.fork()\n    except OSError:\n        pass\n"


@pytest.mark.parametrize(
    "source",
    [
        IGNORE + "while True: pass",
        "lock = threading.Lock()\nlock.acquire()\nlock.acquire()",
        "thread = threading.Thread(target=threading.Event().wait)\nthread.start()\nthread.join()",
        "os.kill(os.getpid(), signal.SIGSTOP)",
        "os.waitpid(os.fork() or signal.pause(), 0)",
        "os.read(os.pipe()[0], 1)",
        BOMB,
    ],
    ids=["ignored signals", "deadlock", "thread", "stopped", "child", "pipe", "fork bomb"],
)
async def test_what_never_ends_is_killed_when_its_time_is_over(sealed: Sealed, source: str) -> None:
    limit(sealed, request_s=HANG_S, processes=32)
    problem = failed(await sealed.compile(f"{PRELUDE}{source}\n{KERNEL}"), Kind.TIMEOUT, "load")
    assert problem.message == "loading the kernel file took longer than 3 s and was killed"


async def test_cpu_time_beyond_the_limit_is_a_timeout(sealed: Sealed) -> None:
    limit(sealed, cpu_s=1)
    problem = failed(await sealed.compile(entry("    while True:\n        pass\n")), Kind.TIMEOUT, "capture")
    assert "took more CPU time than one process may have" in problem.message


async def test_who_ignores_the_end_of_its_cpu_time_is_killed(sealed: Sealed) -> None:
    limit(sealed, cpu_s=1)
    result = await sealed.compile(PRELUDE + IGNORE + "while True: pass\n")
    assert result.kind in {Kind.RUNTIME_ERROR, Kind.OUT_OF_MEMORY}
    assert "SIGKILL" in result.summary
