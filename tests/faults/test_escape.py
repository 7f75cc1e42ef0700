"""Kernels that look around, reach out and leave things behind: none gets what it wants, and the next one is served."""

import os
import site
import socket
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.faults.attempts import (
    ACCEPTED,
    CALL_KERNEL,
    CHANGE_NAMESPACES,
    CHANGE_USER,
    LISTENING,
    OUTLIVE,
    REACH_NEIGHBOUR,
    REACH_OUT,
    REACH_PROCESSES,
    RUN_SETUID,
    SIGNAL_ALL,
    SPOIL,
    WRITE_FILES,
    WRITE_MACHINE,
)
from tests.faults.evaluations import KERNEL, failed
from tests.faults.hostile import PRELUDE, PROJECT, Sealed, found, sealed_tools, telling, told_by
from tritonforge.sandbox.executors.base import Job
from tritonforge.sandbox.executors.cold import cold_worker
from tritonforge.sandbox.isolation import WORKER_FOLDER
from tritonforge.sandbox.outcome import Kind
from tritonforge.sandbox.workers import KernelWorker
from tritonforge.server.services import target_facts

pytestmark = pytest.mark.anyio

SECRETS = ("TRITONFORGE_SECRET", "NVIDIA_API_KEY", "AWS_SESSION_TOKEN")


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that kernels may import from; the state folder lies in it."""
    folder = tmp_path_factory.mktemp("opened")
    folder.chmod(0o755)
    (folder / "library.py").write_text("ANSWER = 42\n")
    artifacts = folder / "state" / "artifacts" / "0123456789abcdef"
    artifacts.mkdir(parents=True)
    (artifacts / "kernel.ptx").write_text("another run's")
    return folder


@pytest.fixture(scope="module")
async def shared_sealed(opened: Path) -> AsyncGenerator[Sealed]:
    with pytest.MonkeyPatch.context() as patch:
        for name in SECRETS:
            patch.setenv(name, "hunter2")
        async with sealed_tools(opened / "state", allowed=[opened]) as tools:
            yield tools


# Reading


def hidden_paths(opened: Path) -> list[str]:
    """What lies in the home, project and state folders, but for what leads to the interpreter and the worker's code."""
    needed = [*map(Path, (sys.prefix, sys.base_prefix, site.getusersitepackages())), WORKER_FOLDER]
    inside = [path for folder in (Path.home(), PROJECT) for path in folder.iterdir()]
    inside = [path for path in inside if not any(other.is_relative_to(path) for other in needed)]
    others = ["/etc/shadow", "/etc/gshadow", "/etc/ssh", "/var", "/boot", "/home", "/mnt", "/srv", "/root/.ssh"]
    return [*map(str, inside), *others, *map(str, (opened / "state").glob("**/*"))]


def looking(paths: list[str]) -> str:
    return f"for path in {paths}:\n    attempt(path, look, path)\n"


async def test_files_of_the_user_the_project_and_other_runs_cannot_be_read(sealed: Sealed, opened: Path) -> None:
    paths = hidden_paths(opened)
    library = str(opened / "library.py")
    findings = await sealed.findings(looking([library, *paths]))
    assert findings.got == {library: "b'ANSWER = 42\\n'"}
    assert findings.tried == 1 + len(paths)
    assert any(path.endswith("kernel.ptx") for path in paths)


@pytest.mark.parametrize("role", ["task", "interpreter", "from nothing"])
async def test_workers_of_every_role_are_sealed(sealed: Sealed, opened: Path, role: str) -> None:
    attempts = looking(hidden_paths(opened)) + REACH_PROCESSES.format(guesses=[os.getpid()])
    attempts += WRITE_MACHINE + CHANGE_NAMESPACES + CALL_KERNEL
    match role:
        case "task":
            problem = failed(await sealed.compile(task=telling(attempts)), Kind.REJECTED, "task")
            findings = found(problem.message)
        case "interpreter":
            problem = failed(await sealed.check(telling(attempts)), Kind.RUNTIME_ERROR, "load")
            findings = found(problem.message)
        case _:
            facts = target_facts(await sealed.services.target("h100"))
            async with cold_worker(sealed.host, Job("capture", target=facts.model_dump()), None) as process:
                findings = await told_by(KernelWorker(process), attempts)
    assert findings.got == {}


async def test_the_environment_of_the_server_is_not_the_workers(sealed: Sealed) -> None:
    findings = await sealed.findings(
        "import subprocess\n"
        "inherited = subprocess.run(['env'], capture_output=True, check=True).stdout\n"
        "own = open('/proc/self/environ', 'rb').read()\n"
        f"for name in {SECRETS}:\n"
        "    if name in os.environ or name.encode() in own + inherited or b'hunter2' in own + inherited:\n"
        "        got[name] = 'seen'\n"
        "attempt('first process', look, '/proc/1/environ')\n"
    )
    assert findings.got == {}


# Other processes


async def test_no_other_process_can_be_looked_into(sealed: Sealed) -> None:
    guesses = [os.getpid(), os.getppid(), *sealed.services.executor.own_processes()]
    findings = await sealed.findings(REACH_PROCESSES.format(guesses=guesses))
    assert findings.got == {}
    assert findings.tried > 50


async def test_no_other_process_can_be_ended_or_stopped(sealed: Sealed) -> None:
    async with sealed.neighbour(LISTENING) as neighbour:
        guesses = [os.getpid(), os.getppid(), neighbour.process.handle.pid, *sealed.services.executor.own_processes()]
        assert (await sealed.findings(SIGNAL_ALL.format(guesses=guesses))).got == {}
        assert (await told_by(neighbour, ACCEPTED)).got == {}


async def test_a_neighbour_cannot_be_reached(sealed: Sealed) -> None:
    async with sealed.neighbour(LISTENING) as neighbour:
        findings = await sealed.findings(REACH_NEIGHBOUR)
        accepted = await told_by(neighbour, ACCEPTED)
    assert (findings.tried, findings.got) == (7, {})
    assert (accepted.tried, accepted.got) == (4, {})


async def test_nothing_outlives_its_evaluation(sealed: Sealed) -> None:
    name = f"escapee{os.getpid()}"
    assert (await sealed.compile(PRELUDE + OUTLIVE.format(name=name) + KERNEL)).kind is Kind.OK
    assert name not in running_commands()


def running_commands() -> list[str]:
    """The names of all processes of this machine."""
    names: list[str] = []
    for path in Path("/proc").glob("[0-9]*/comm"):
        with suppress(OSError):
            names.append(path.read_text().strip())
    return names


# The network


@pytest.fixture
def listeners() -> Generator[dict[str, socket.socket]]:
    """What this machine listens on."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        folder.chmod(0o777)
        kinds = {
            "tcp": (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
            "udp": (socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
            "abstract": (socket.AF_UNIX, socket.SOCK_STREAM, f"\0tritonforge-{os.getpid()}"),
            "named": (socket.AF_UNIX, socket.SOCK_STREAM, str(folder / "socket")),
        }
        found: dict[str, socket.socket] = {}
        for name, (family, kind, address) in kinds.items():
            found[name] = stack.enter_context(socket.socket(family, kind))
            found[name].bind(address)
            found[name].setblocking(False)
            if kind == socket.SOCK_STREAM:
                found[name].listen()
        os.chmod(found["named"].getsockname(), 0o777)
        yield found


async def test_nothing_is_reached_over_a_network(sealed: Sealed, listeners: dict[str, socket.socket]) -> None:
    attempts = "".join(
        f"attempt({name!r}, connect, {int(one.family)}, {int(one.type)}, {one.getsockname()!r})\n"
        for name, one in listeners.items()
    )
    findings = await sealed.findings(attempts + REACH_OUT)
    assert findings.got == {}
    for one in listeners.values():
        with pytest.raises(BlockingIOError):
            one.recv(1) if one.type == socket.SOCK_DGRAM else one.accept()


# Writing


async def test_nothing_outside_its_scratch_can_be_written(sealed: Sealed) -> None:
    findings = await sealed.findings(WRITE_FILES.format(folders=[str(PROJECT), str(WORKER_FOLDER)]) + WRITE_MACHINE)
    assert findings.got == {}
    assert findings.tried > 40


async def test_what_a_kernel_spoils_is_its_own(sealed: Sealed) -> None:
    assert (await sealed.findings(SPOIL)).got == {}
    # The fixture looks for traces of it.


@pytest.mark.skipif(os.geteuid() != 0, reason="only where root starts them can workers stay root")
async def test_workers_that_must_stay_root_cannot_change_the_machine_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As where the interpreter's files are readable for root alone.
    monkeypatch.setattr("tritonforge.sandbox.rehearsal._ways", lambda: [(False, False)])
    async with sealed_tools(tmp_path / "state") as tools:
        # A project below /tmp leads through folders in the worker's own /tmp.
        folders = [str(folder) for folder in (PROJECT, WORKER_FOLDER) if not folder.is_relative_to("/tmp")]
        attempts = WRITE_FILES.format(folders=folders) + WRITE_MACHINE
        attempts += REACH_PROCESSES.format(guesses=[os.getpid()]) + CHANGE_NAMESPACES
        assert (await tools.findings(attempts)).got == {}
        await tools.go_on()


# Privileges


async def test_no_privilege_is_left(sealed: Sealed) -> None:
    findings = await sealed.findings(CHANGE_NAMESPACES + CHANGE_USER)
    assert findings.got == {}
    assert findings.tried > 30


async def test_system_calls_that_namespaces_do_not_hold_are_refused(sealed: Sealed) -> None:
    assert (await sealed.findings(CALL_KERNEL)).got == {}


async def test_programs_of_root_run_without_its_rights(sealed: Sealed) -> None:
    findings = await sealed.findings(RUN_SETUID)
    assert findings.got == {}
