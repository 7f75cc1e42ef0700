"""install and uninstall: writes an MCP client's own configuration, or says why it can't."""

import argparse
import difflib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from ..settings import Settings
from .clients import CLIENTS, MODULE, SCRIPT, Client, Environment, Server
from .editing import NameTaken, holds_ours, installed, snippet, uninstalled
from .files import PRIVATE, SHARED, read_text, replace_text

OK: Final = 0
FAILED: Final = 1
MISUSE: Final = 2

Says = Callable[[str], None]

NUMBERS: Final = ("spares", "gpu_spares", "idle_s", "memory_gb", "gpu_memory_gb")
"""Options with a number that are handed on where they are given."""
MISSING: Final = """
from importlib.util import find_spec
print("missing:", *(name for name in ("torch", "triton") if find_spec(name) is None))
"""
MISSING_MARK: Final = "missing:"
"""What nothing but Python prints for it."""
MISSING_LIMIT_S: Final = 20.0
NO_PYTHON: Final = "does not run Python"


def run_command(settings: Settings, given: argparse.Namespace, *, say: Says, tell: Says) -> int:
    """Run `install` or `uninstall`; returns the exit code. `say` takes results, `tell` errors."""
    client, name = CLIENTS[given.client], str(given.name)
    path = config_file(client, project=given.project)
    if given.command == "uninstall":
        return _change(path, given, say, tell, lambda text: uninstalled(text, client, name), hint=_no_hint)
    python = shutil.which(settings.python)
    if python is None:
        tell(f"there is no program {settings.python}: --python names the interpreter that your kernels run in")
        return MISUSE
    unfit = why_unfit(python)
    if unfit == NO_PYTHON:
        tell(f"{python} {unfit}: --python names the interpreter that your kernels run in. Nothing was changed.")
        return MISUSE
    server = this_server(settings, given, os.environ, python=python)

    def by_hand(error: ValueError) -> str:
        free = error.free if isinstance(error, NameTaken) else name
        return f"\nTo add it by hand:\n{snippet(client, free, server)}"

    code = _change(path, given, say, tell, lambda text: installed(text, client, name, server), hint=by_hand)
    if code == OK and not given.dry_run:
        _say_next(client, given, f"{python}, which {unfit}" if unfit else None, server, say)
    return code


def config_file(client: Client, *, project: bool) -> Path:
    """The client's configuration of this folder's project, or of this user."""
    return Path.cwd() / client.project_file if project else client.user_file(Path.home(), os.environ)


def this_server(settings: Settings, given: argparse.Namespace, environment: Environment, *, python: str) -> Server:
    """How to start what runs here, from any folder and any environment: clients hand few variables on.

    `python` is the interpreter of the workers, written down only where it was chosen.
    """
    options: list[str] = []
    if _chosen(given, environment, "python"):
        options += ["--python", python]
    if _chosen(given, environment, "state_dir"):
        options += ["--state-dir", str(settings.state_dir)]
    if settings.require_sandbox:
        options.append("--require-sandbox")
    for folder in settings.allow_read:
        options += ["--allow-read", str(folder)]
    for number in NUMBERS:
        if (value := getattr(given, number, None)) is not None:
            options += [f"--{number.replace('_', '-')}", f"{value:g}"]
    command, *first = running_command(sys.argv[0], sys.executable)
    return Server(command, (*first, *options))


def running_command(started: str, python: str) -> list[str]:
    """The installed script by its full path: clients often have another PATH."""
    script = Path(started)
    if script.name != SCRIPT:
        script = Path(python).with_name(SCRIPT)
    return [str(script.absolute())] if script.exists() else [python, "-m", MODULE]


def _chosen(given: argparse.Namespace, environment: Mapping[str, str], option: str) -> bool:
    return bool(getattr(given, option, None) or environment.get(f"TRITONFORGE_{option.upper()}"))


def _change(
    path: Path,
    given: argparse.Namespace,
    say: Says,
    tell: Says,
    change: Callable[[str], str],
    *,
    hint: Callable[[ValueError], str],
) -> int:
    """Change a file and tell what changed; where it can't be, `hint` says what to do instead."""
    try:
        before = read_text(path)
        after = change(before)
        if given.dry_run:
            _say_difference(path, before, after, say)
            return OK
        if after == before:
            there = "is up to date in" if given.command == "install" else "is not in"
            say(f"Nothing to do: {given.name} {there} {path}")
            return OK
        # What was there before this server was; never what an earlier install has written.
        keep = not holds_ours(before, CLIENTS[given.client])
        kept = replace_text(path, before, after, mode=SHARED if given.project else PRIVATE, keep=keep)
    except ValueError as error:
        tell(f"{path} {error}. Nothing was changed.{hint(error)}")
        return FAILED
    done = f"Wrote {given.name} into" if given.command == "install" else f"Removed {given.name} from"
    say(f"{done} {path}" + (f" (as it was before: {kept.name})" if kept else ""))
    return OK


def _no_hint(error: ValueError) -> str:
    return ""


def _say_difference(path: Path, before: str, after: str, say: Says) -> None:
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), str(path) if before else os.devnull, str(path), lineterm=""
    )
    say("\n".join(lines) or f"Nothing would change in {path}")


def _say_next(client: Client, given: argparse.Namespace, unfit: str | None, server: Server, say: Says) -> None:
    steps = f"{client.project_steps} {client.next_steps}" if given.project else client.next_steps
    say(f"{client.title}: {steps.strip().format(name=given.name)}")
    if unfit is not None:
        say(f"Kernels would run in {unfit}: install again with --python PATH.")
    if "archive-v0" in Path(server.command).parts:
        say("This program runs from uv's cache, which may be emptied: better `uv tool install`, then install again.")
    start = running_command(server.command, sys.executable)
    say(f"`{shlex.join([*start, 'doctor'])}` tells what works on this machine.")


def why_unfit(python: str) -> str:
    """Why kernels can't run in an interpreter, as far as it tells without importing anything; empty where they can."""
    try:
        done = subprocess.run(
            [python, "-c", MISSING], capture_output=True, text=True, timeout=MISSING_LIMIT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return NO_PYTHON
    for line in done.stdout.splitlines():
        if line.startswith(MISSING_MARK):
            missing = line.removeprefix(MISSING_MARK).split()
            return f"has no {' and '.join(missing)}" if missing else ""
    return NO_PYTHON
