"""The command `adapt`: a kernel file and a task file out of an existing artefact."""

import argparse
from pathlib import Path
from typing import Final

import anyio

from ..sandbox.errors import Stopped
from ..sandbox.outcome import Kind
from .adapters.find import choices
from .adapters.model import Adapted, Form
from .adapters.settle import Settled, settle
from .optimize.model import Says
from .services import Services
from .settings import Settings

OK: Final = 0
FAILED: Final = 1
MISUSE: Final = 2


def run_adapt(settings: Settings, given: argparse.Namespace, *, say: Says, tell: Says) -> int:
    """Run the command; returns the exit code: 0 written, 1 the task can't be used, 2 misuse.

    Args:
        settings: of this process.
        given: the arguments.
        say: takes the result.
        tell: takes errors.
    """
    try:
        tasks = choices(given.artefact, Form(given.kind) if given.kind else None, performance=given.performance)
    except Stopped as stopped:
        tell(_words(stopped))
        return MISUSE
    folder = Path(given.out or tasks[0].name).expanduser()
    files = [folder / "kernel.py", folder / "task.py"]
    if not given.force and any(file.exists() for file in files):
        tell(f"{folder} has a kernel.py or a task.py already; name another folder with --out, or add --force")
        return MISUSE
    try:
        settled = None if given.no_check else anyio.run(_settle, settings, tasks, given.target)
    except Stopped as stopped:
        tell(_words(stopped))
        return MISUSE if stopped.kind is Kind.REJECTED and stopped.problem.stage == "target" else FAILED
    adapted = tasks[0] if settled is None else settled.adapted
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in zip(files, (adapted.kernel, adapted.task_text), strict=True):
            file.write_text(text, encoding="utf-8")
    except OSError as error:
        tell(f"{folder} can't be written to: {error.strerror}")
        return MISUSE
    say(_report(adapted, settled, folder))
    return OK


async def _settle(settings: Settings, tasks: list[Adapted], target: str) -> Settled:
    async with Services(settings) as services:
        return await settle(services, tasks, target=target)


def _report(adapted: Adapted, settled: Settled | None, folder: Path) -> str:
    lines = [f"{folder / 'kernel.py'} and {folder / 'task.py'}: entry {adapted.entry}, from {adapted.form}."]
    if settled is None:
        lines.append("Not tried: the task has not been loaded yet.")
    else:
        kept = [name for name in settled.task.cases if name not in settled.dropped]
        did = "inputs made and the baseline compiled" if settled.compiled else "inputs made"
        lines.append(f"Cases: {', '.join(kept)} ({did}).")
    lines += ["Assumed:", *(f"- {assumption}" for assumption in adapted.assumptions)]
    return "\n".join(lines)


def _words(stopped: Stopped) -> str:
    problem = stopped.problem
    return problem.message if problem.likely_fix is None else f"{problem.message}. {problem.likely_fix}"
