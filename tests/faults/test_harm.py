"""Kernels that do harm: each has a worker of its own to ruin, and the server evaluates the next one."""

import os
import select
from pathlib import Path

import pytest

from tests.faults.evaluations import KERNEL, PLACE, TASK, Tools, entry, failed, left_behind, replaced
from tritonforge.sandbox.outcome import Kind
from tritonforge.sandbox.process import oom_kills

pytestmark = pytest.mark.anyio

FORK = """\
import os, signal
reader, writer = os.pipe()
if os.fork() == 0:
    if {detached}:
        os.setsid()
        if os.fork() != 0:
            os._exit(0)
    with open("/proc/self/comm", "w") as name:
        name.write({name!r})
    os.write(writer, b"here")
    signal.pause()
assert os.read(reader, 4) == b"here"
"""
"""Starts a process with a name that is seen from outside, whatever it sees of itself, and waits until it has it."""
KILLED = Kind.OUT_OF_MEMORY if oom_kills() is None else Kind.RUNTIME_ERROR
"""Of a process that killed itself: this machine counts those that ran out of memory, or leaves one to guess."""
FORGE = """\
import json, os, stat, struct
FD = next(fd for fd in range(3, 256) if os.path.exists(f"/proc/self/fd/{fd}") and stat.S_ISSOCK(os.fstat(fd).st_mode))
def forge(fields, *blobs):
    header = json.dumps({**fields, "blobs": [len(blob) for blob in blobs]}).encode()
    os.write(FD, struct.pack(">4sI", b"TFW1", len(header)) + header + b"".join(blobs))
"""


@pytest.mark.parametrize(
    ("kernel", "stage", "doing"),
    [
        (KERNEL + "while True:\n    pass\n", "load", "loading the kernel file"),
        (entry("    while True:\n        pass\n"), "capture", "running and compiling the entry"),
    ],
    ids=["import", "entry"],
)
async def test_a_kernel_file_that_hangs_is_a_timeout(hasty: Tools, kernel: str, stage: str, doing: str) -> None:
    problem = failed(await hasty.compile(kernel), Kind.TIMEOUT, stage)
    assert problem.message == f"{doing} took longer than 3 s and was killed"
    assert problem.likely_cause
    assert problem.likely_fix


async def test_a_kernel_that_hangs_in_the_interpreter_is_a_timeout(hasty: Tools) -> None:
    kernel = replaced(KERNEL, "    x = tl.load(x_ptr", "    while n > 0:\n        n += 1\n    x = tl.load(x_ptr")
    problem = failed(await hasty.check(PLACE + kernel), Kind.TIMEOUT, "run")
    assert "small=True" in (problem.likely_fix or "")
    assert not left_behind(problem)


async def test_a_wrong_case_stays_wrong_whatever_the_next_one_does(hasty: Tools) -> None:
    task = replaced(
        TASK, '{"n": 1000, "small": True}', '{"n": 1000, "small": True}, "other": {"n": 500, "small": True}'
    )
    kernel = replaced(KERNEL, "    return out", "    while len(x) == 500:\n        pass\n    return out + 1")
    result = await hasty.check(kernel, task)
    assert result.kind is Kind.WRONG, result.summary
    assert [case.case for case in result.cases] == ["train"]
    assert list(result.not_checked) == ["other"]
    assert "took longer than" in result.not_checked["other"]
    assert "other: not checked" in result.summary


@pytest.mark.parametrize(
    ("kernel", "kind", "stage", "words"),
    [
        (entry("    import ctypes\n    ctypes.string_at(0)\n"), Kind.RUNTIME_ERROR, "capture", "killed by SIGSEGV"),
        (entry("    import os\n    os._exit(0)\n"), Kind.RUNTIME_ERROR, "capture", "(exit code 0)"),
        (entry("    import os\n    os.closerange(0, 4096)\n"), Kind.RUNTIME_ERROR, "capture", "(exit code 1"),
        (entry("    import os\n    os.killpg(0, 9)\n"), KILLED, "capture", "SIGKILL"),
    ],
    ids=["segfault", "_exit", "descriptors", "SIGKILL"],
)
async def test_an_entry_that_ends_its_process_is_one_outcome(
    tools: Tools, kernel: str, kind: Kind, stage: str, words: str
) -> None:
    problem = failed(await tools.compile(PLACE + kernel), kind, stage)
    assert words in problem.message
    assert not left_behind(problem)


async def test_a_candidate_that_deletes_its_folder_is_one_outcome(tools: Tools) -> None:
    kernel = entry("    import os, shutil\n    shutil.rmtree(os.getcwd())\n")
    result = await tools.compile(kernel)
    assert result.kind in {Kind.OK, Kind.RUNTIME_ERROR}


async def test_an_access_out_of_bounds_in_the_interpreter_is_explained(tools: Tools) -> None:
    kernel = replaced(KERNEL, "tl.load(x_ptr + offsets, mask=mask)", "tl.load(x_ptr + offsets + (1 << 40))")
    problem = failed(await tools.check(kernel), Kind.RUNTIME_ERROR, "run")
    assert "illegal memory access: tl.load reaches 64 addresses outside of every tensor" in problem.message
    assert problem.line is not None


async def test_threads_that_never_end_hold_nothing_up(tools: Tools) -> None:
    kernel = entry("    import threading\n    threading.Thread(target=threading.Event().wait).start()\n")
    assert (await tools.compile(kernel)).kind is Kind.OK


@pytest.mark.parametrize("detached", [False, True], ids=["child", "detached"])
async def test_a_forked_process_does_not_outlive_its_evaluation(tools: Tools, detached: bool) -> None:
    name = f"left {os.getpid()}"
    assert (await tools.compile(FORK.format(name=name, detached=detached) + KERNEL)).kind is Kind.OK
    assert running(name) == []


def running(name: str) -> list[int]:
    """Processes of this name that have not ended (a zombie has), after each has had its time to die."""
    left: list[int] = []
    for pid in [int(found.name) for found in Path("/proc").iterdir() if found.name.isdigit()]:
        try:
            facts = Path(f"/proc/{pid}/stat").read_text()
            its_name, state = facts[facts.index("(") + 1 : facts.rindex(")")], facts[facts.rindex(")") + 2]
            if its_name != name or state in {"Z", "X"}:
                continue
            descriptor = os.pidfd_open(pid)
        except (FileNotFoundError, ProcessLookupError):
            continue
        with open(descriptor, "rb") as ended:
            if not select.select([ended], [], [], 20)[0]:
                left.append(pid)
    return left


FORGED_LAUNCH = {
    "kernel": "k", "symbol": "k", "grid": [2**31 - 1] * 3, "count": 1, "tuning": False, "num_warps": 4, "num_stages": 3,
    "num_ctas": 1, "shared_bytes": 0, "constexprs": {}, "signature": {}, "divisible_by_16": [], "line": 1,
    "ptxas_log": "ptxas info : Used 9999999999 registers", "assembly": {"ttgir": 0, "ptx": 0},
}  # fmt: skip


@pytest.mark.parametrize(
    ("statement", "kinds"),
    [
        ("os.write(FD, b'\\x00' * 64)", {Kind.CHEATING}),
        (f"forge({{'ok': True, 'launches': [{FORGED_LAUNCH}]}}, bytes(range(256)))", {Kind.OK, Kind.CHEATING}),
    ],
    ids=["garbage", "a launch"],
)
async def test_a_forged_capture_is_one_outcome(tools: Tools, statement: str, kinds: set[Kind]) -> None:
    result = await tools.compile(FORGE + entry(f"    {statement}\n"))
    assert result.kind in kinds


DEEP = "t = {'value': 1}\n    for _ in range(450): t = {'list': [t]}\n    "


@pytest.mark.parametrize(
    ("statement", "kinds"),
    [
        ("forge({'ok': True, 'tree': {'value': float('nan')}})", {Kind.CHEATING}),
        ("forge({'ok': True, 'tree': {'tensor': {}, 'blob': 9}})", {Kind.CHEATING}),
        (DEEP + "forge({'ok': True, 'tree': t})", {Kind.CHEATING}),
    ],
    ids=["nan", "no tensor", "deep"],
)
async def test_forged_outputs_are_one_outcome_and_never_ok(tools: Tools, statement: str, kinds: set[Kind]) -> None:
    result = await tools.check(FORGE + entry(f"    {statement}\n"))
    assert result.kind in kinds
    assert result.problem is not None


async def test_the_same_servers_evaluate_a_good_kernel_after_all_of_these(tools: Tools, hasty: Tools) -> None:
    for survivor in (tools, hasty):
        assert (await survivor.compile()).kind is Kind.OK
        assert (await survivor.check()).kind is Kind.OK
