"""One worker that does not come to be: whatever stands in its way is told with a remedy."""

import sys
from pathlib import Path

import anyio
import pytest

from tests.sandbox.conftest import serving
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.executors.base import Job
from tritonforge.sandbox.executors.cold import cold_worker
from tritonforge.sandbox.executors.host import Host
from tritonforge.sandbox.executors.local import LocalExecutor
from tritonforge.sandbox.isolation import Interpreter, Seal
from tritonforge.sandbox.limits import Limits
from tritonforge.sandbox.outcome import Kind
from tritonforge.sandbox.spares import start_preloader
from tritonforge.sandbox.workers import probe

pytestmark = pytest.mark.anyio


async def test_a_first_frame_that_is_no_hello_is_cheating(monkeypatch: pytest.MonkeyPatch) -> None:
    odd = (
        "import json, os, sys\n"
        'os.write(json.loads(sys.argv[1])["socket"], b"TFW1\\0\\0\\0\\x0d" + b\'{"blobs": []}\')\n'
    )
    serving(monkeypatch, odd)
    with pytest.raises(Stopped) as caught:
        async with cold_worker(Host(sys.executable, Limits()), Job("capture"), None):
            pass
    assert caught.value.kind is Kind.CHEATING


@pytest.mark.parametrize(
    ("python", "words"),
    [
        ("/no/such/python", "can't be started: No such file or directory"),
        ("/", "can't be started: Permission denied"),
        ("/etc/passwd", "can't be started: Permission denied"),
        ("/bin/true", "is no Python 3.11 or newer"),
        ("/bin/cat", "is no Python 3.11 or newer"),
    ],
)
async def test_what_is_no_interpreter_is_unavailable_with_a_remedy(python: str, words: str) -> None:
    async with LocalExecutor(Host(python, Limits())) as executor:
        environment = await probe(executor)
    assert environment.problem is not None
    assert environment.problem.stage == "environment"
    assert words in environment.problem.message
    assert python in environment.problem.message
    assert "--python" in (environment.problem.likely_fix or "")


@pytest.fixture
def endless(tmp_path: Path) -> str:
    """A program that never says anything."""
    path = tmp_path / "endless"
    path.write_text("#!/bin/sh\nexec sleep 1000\n")
    path.chmod(0o755)
    return str(path)


async def test_an_interpreter_that_never_answers_is_unavailable(endless: str) -> None:
    async with LocalExecutor(Host(endless, Limits(start_s=0.2))) as executor:
        environment = await probe(executor)
    assert environment.problem is not None
    assert "did not answer within 0.2 s" in environment.problem.message
    assert "--python" in (environment.problem.likely_fix or "")


async def test_a_preloader_that_is_never_ready_is_unavailable(endless: str) -> None:
    async with anyio.create_task_group() as tasks:
        with pytest.raises(Stopped) as caught:
            await start_preloader(Interpreter(endless, ()), "cpu", Seal(None), Limits(start_s=0.2), tasks)
        assert caught.value.kind is Kind.UNAVAILABLE
        assert caught.value.problem.message == "starting the worker took longer than 0.2 s"
        assert "doctor" in (caught.value.problem.likely_fix or "")


async def test_a_worker_from_nothing_that_is_never_ready_is_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    serving(monkeypatch, "import signal\nsignal.pause()\n")
    host = Host(sys.executable, Limits())
    # Looking at the interpreter takes longer.
    await host.ground()
    host.limits = Limits(start_s=0.2)
    with pytest.raises(Stopped) as caught:
        async with cold_worker(host, Job("capture"), None):
            pass
    assert caught.value.kind is Kind.TIMEOUT
    assert "doctor" in (caught.value.problem.likely_fix or "")
