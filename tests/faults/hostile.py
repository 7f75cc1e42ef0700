"""What hostile kernels are made of, and sealed workers for them to be tried in."""

import json
import sys
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.faults.evaluations import KERNEL, Tools, failed
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.executors.host import Host
from tritonforge.sandbox.executors.local import LocalExecutor
from tritonforge.sandbox.limits import Limits
from tritonforge.sandbox.outcome import Kind
from tritonforge.sandbox.source import Source
from tritonforge.sandbox.task import Task
from tritonforge.sandbox.workers import KernelWorker, capture_worker
from tritonforge.server.services import Services, target_facts
from tritonforge.server.settings import Settings

PROJECT = Path(__file__).resolve().parents[2]
USUAL = Limits(request_s=30.0, scratch_bytes=64 << 20)
PRELUDE = f"""\
import builtins, ctypes, json, os, signal, socket, subprocess, sys, threading
if os.getpid() != 2 or os.path.exists({str(PROJECT / "pyproject.toml")!r}):
    raise SystemExit("this worker is not sealed: nothing is tried here")
libc = ctypes.CDLL(None, use_errno=True)
tried, got = 0, {{}}


def attempt(name, action, *arguments):
    global tried
    tried += 1
    try:
        got[name] = repr(action(*arguments))[:100]
    except OSError:
        pass


def call(function, *arguments):
    result = getattr(libc, function)(*arguments)
    if result == -1:
        raise OSError(ctypes.get_errno(), function)
    return result


def look(path):
    return os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(16)


def connect(family, kind, address):
    with socket.socket(family, kind) as client:
        client.settimeout(5)
        client.connect(address)
        client.send(b"escaped")


def tell():
    raise RuntimeError(json.dumps({{"tried": tried, "got": got}}))


"""
"""Nothing is tried where it could succeed by there being no sandbox. Whatever is not refused is told."""
CLEAN = """
import torch, triton
spaces = (sys.modules, os.environ, vars(builtins), vars(torch), vars(triton))
marks = [name for space in spaces for name in space if "escaped" in name.lower()]
files = {name for folder in ("/tmp", "/tmp/work", "/dev/shm") for name in os.listdir(folder)}
marks += files - {"work", "kernel.py", "triton-cache", *OPENED}
marks += {name for name in os.listdir("/proc") if name.isdigit()} - {"1", "2"}
if marks:
    got["marks"] = marks
"""


class Findings(NamedTuple):
    """What a hostile kernel tells of itself."""

    tried: int
    got: dict[str, Any]
    """What it was not refused."""


class Sealed(Tools):
    """The tools, with workers whose limits each test can choose: they are made when they are wanted."""

    def __init__(self, services: Services, host: Host, opened: Iterable[str]) -> None:
        super().__init__(services)
        self.host = host
        self._opened = [Path(path).parts[2] for path in opened]
        """What is there from the start in a worker's own `/tmp`."""
        self._code_hash: str | None = None

    async def findings(self, attempts: str) -> Findings:
        """What a kernel file finds that tries all this."""
        problem = failed(await self.compile(telling(attempts)), Kind.RUNTIME_ERROR, "load")
        return found(problem.message)

    async def go_on(self) -> None:
        """The next evaluations are right, on workers that nobody has touched."""
        self.host.limits = USUAL
        look = await self.findings(f"OPENED = {self._opened}\n{CLEAN}")
        assert look.got == {}, look
        compiled = await self.compile()
        assert compiled.kind is Kind.OK, compiled.summary
        self._code_hash = self._code_hash or compiled.launches[0].code_hash
        assert compiled.launches[0].code_hash == self._code_hash

    @asynccontextmanager
    async def neighbour(self, source: str) -> AsyncGenerator[KernelWorker]:
        """A worker that has loaded this kernel file, and is there while others run."""
        facts = target_facts(await self.services.target("h100"))
        async with capture_worker(self.services.executor, target=facts) as worker:
            await worker.load(Source(PRELUDE + source + KERNEL, "<source>", None), TASK)
            yield worker


TASK = Task.model_validate(
    {
        "entry": "double", "title": None, "cases": {}, "hidden_cases": {}, "has_reference": True, "has_work": False,
        "in_place": [], "tolerances": {},
    }
)  # fmt: skip


@asynccontextmanager
async def sealed_tools(state_dir: Path, *, allowed: Sequence[Path] = ()) -> AsyncGenerator[Sealed]:
    """The tools with sealed workers; the test is skipped where this machine allows none."""
    services = Services(Settings(state_dir=state_dir))
    host = Host(sys.executable, USUAL, allowed=allowed, hidden=(Path.home(),), masked=(state_dir,))
    services.executor = LocalExecutor(host, spares=0)
    async with services:
        interpreter, seal = await host.ground()
        if not seal.sealed:
            pytest.skip(f"this machine allows no sandbox: {seal.reason}")
        yield Sealed(services, host, seal.layout(interpreter, {}).reopened)


def telling(attempts: str) -> str:
    """A kernel file that tries this and tells what it got."""
    return f"{PRELUDE}{attempts}\ntell()\n"


def found(message: str) -> Findings:
    """What such a file told."""
    assert message.startswith("RuntimeError: {"), message
    return Findings(**json.loads(message.removeprefix("RuntimeError: ")))


async def told_by(worker: KernelWorker, attempts: str) -> Findings:
    """What a worker finds that goes on to try this."""
    with pytest.raises(Stopped) as caught:
        await worker.load(Source(telling(attempts), "<source>", None), TASK)
    assert caught.value.kind is Kind.RUNTIME_ERROR
    return found(caught.value.problem.message)
