"""runs, lessons and verify: what is kept of optimization runs, from a shell or a script."""

import argparse
import json
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

import anyio

from ..profiling.optimization.lesson import Lesson
from ..sandbox.errors import Stopped, rejected
from ..sandbox.outcome import Kind
from .runs.claims import text
from .runs.evaluation import ToolEvaluator
from .runs.export import export
from .runs.machine import Machine
from .runs.store import Store
from .runs.verify import verify
from .runs_shown import RunLine, attempt_line, lesson_table, nothing_resumed, run_json, run_line, run_table, run_text
from .services import Services
from .settings import Settings
from .tools.parameters import Progress
from .tools.run_shown import words

OK: Final = 0
FAILED: Final = 1
MISUSE: Final = 2

WAIT_S: Final = 600.0
"""Of one look at an evaluation; it is looked at again until it is over."""
PREFIX_LENGTH: Final = 6
"""Characters of a lesson's id that are enough where no other id begins with them."""
NOTE_CHARACTERS: Final = 400
LESSONS_FORMAT: Final = "tritonforge-lessons"

Says = Callable[[str], None]


class _Command(NamedTuple):
    """A command with all that it needs."""

    settings: Settings
    given: argparse.Namespace
    say: Says
    """Takes results."""
    tell: Says
    """Takes progress and errors."""

    @property
    def folder(self) -> Path:
        return self.settings.state_dir / "runs"

    def store(self) -> Store:
        """
        Raises:
            Stopped: ``rejected``: nothing is kept there.
        """
        if not self.folder.is_dir():
            raise rejected(
                "run",
                f"no runs are kept in {self.folder}",
                fix="Name the state folder of the server that made them: --state-dir DIR (default: .tritonforge).",
            )
        return Store(self.folder)

    def confirmed(self, what: str) -> bool:
        """Whether its user wants it deleted.

        Raises:
            Stopped: ``rejected``: there is nobody to be asked.
        """
        if self.given.yes:
            return True
        if not sys.stdin.isatty():
            raise rejected(
                "run", f"{what} would be deleted for good, and nobody can be asked here", fix="Add --yes to delete."
            )
        sys.stderr.write(f"Delete {what} for good? [y/N] ")
        sys.stderr.flush()
        return sys.stdin.readline().strip().lower() in ("y", "yes")


def run_command(settings: Settings, given: argparse.Namespace, *, say: Says, tell: Says) -> int:
    """Run one of the commands; returns the exit code: 0 ok, 1 an outcome other than ok, 2 misuse.

    Args:
        settings: of the server whose state folder it is about.
        given: the arguments.
        say: takes results.
        tell: takes progress and errors.
    """
    command = _Command(settings, given, say, tell)
    try:
        return _COMMANDS[given.command, getattr(given, "action", None)](command)
    except Stopped as stopped:
        problem = stopped.problem
        tell(problem.message if problem.likely_fix is None else f"{problem.message}. {problem.likely_fix}")
        return MISUSE if stopped.kind is Kind.REJECTED else FAILED


def _list(command: _Command) -> int:
    lines: list[RunLine] = []
    if command.folder.is_dir():
        with closing(command.store()) as store:
            kept = store.kept()
            damaged = list(kept.damaged.values())
            for run in kept.runs:
                run_id = run.frozen.run_id
                try:
                    lines.append(run_line(run, store.attempts(run_id), _left(store, run_id)))
                except Stopped as stopped:
                    damaged.append(stopped.problem.message)
            for message in damaged:
                command.tell(f"not listed: {message}; `runs delete` with its id takes it away")
    if command.given.json:
        command.say(json.dumps([line.model_dump(mode="json") for line in lines], indent=2))
    else:
        command.say(run_table(lines) if lines else f"No runs are kept in {command.folder}.")
    return OK


def _show(command: _Command) -> int:
    """
    Raises:
        Stopped: ``rejected``: there is no such run, or --hidden without --json.
    """
    if command.given.hidden and not command.given.json:
        raise rejected("run", "--hidden is about what --json prints", fix="Give --json too, or leave --hidden out.")
    with closing(command.store()) as store:
        run, attempts = store.run(command.given.run), store.attempts(command.given.run)
        left = _left(store, command.given.run)
    if command.given.json:
        command.say(json.dumps(run_json(run, attempts, hidden=command.given.hidden), indent=2))
    else:
        command.say(run_text(run, attempts, left))
    return OK


def _left(store: Store, run_id: str) -> set[int]:
    """Numbers of the attempts that a server has left behind."""
    return {attempt.number for _, attempt in store.orphans(run_id)}


def _check(command: _Command) -> int:
    with closing(command.store()) as store:
        kept, faults = store.kept(), store.check()
    count = len(kept.runs) + len(kept.damaged)
    for fault in faults:
        command.say(fault)
    command.tell(f"{command.folder}: {count} runs, {len(faults)} faults")
    return FAILED if faults else OK


def _export(command: _Command) -> int:
    given = command.given
    with closing(command.store()) as store:
        exported = export(store, given.run, Path(given.to or given.run), given.attempt, force=given.force)
    record = exported.record
    notes = [words(note, NOTE_CHARACTERS) for note in (*record.checked, *(f"! {each}" for each in record.not_checked))]
    command.say(
        "\n".join(
            [
                f"Attempt {record.attempt} of run {record.run_id}, in {exported.folder}:",
                *(f"  {path.name}" for path in exported.paths),
                *notes,
                f"Check it on any machine: tritonforge-mcp verify {exported.folder}",
            ]
        )
    )
    return OK


def _resume(command: _Command) -> int:
    with closing(command.store()) as store:
        store.run(command.given.run)
    return anyio.run(_resumed, command)


async def _resumed(command: _Command) -> int:
    run_id = command.given.run
    async with (
        Services(command.settings) as services,
        Machine(
            Store(command.folder),
            ToolEvaluator(services),
            lambda: services.evaluations,
            state_dir=command.settings.state_dir,
        ) as machine,
    ):
        begun = await machine.resume(run_id)
        if not begun:
            run = await anyio.to_thread.run_sync(machine.store.run, run_id)
            attempts = await anyio.to_thread.run_sync(machine.store.attempts, run_id)
            command.say(nothing_resumed(run, attempts))
            return OK
        command.tell(f"run {run_id}: evaluating attempt {', '.join(map(str, begun))} again")
        failed = False
        for number in begun:
            try:
                while not await machine.wait(run_id, number, WAIT_S, _progress(command, f"attempt {number}: ")):
                    pass
            except Stopped as stopped:
                failed = True
                command.tell(f"attempt {number} could not be evaluated: {stopped.problem.message}")
                continue
            answer = await machine.answer(run_id, number)
            command.say(attempt_line(answer.attempt))
        run = await anyio.to_thread.run_sync(machine.store.run, run_id)
        command.say(f"Run {run_id} is {run.state}; its best attempt is {run.incumbent}.")
        return FAILED if failed else OK


def _delete(command: _Command) -> int:
    with closing(command.store()) as store:
        run_id = command.given.run
        # Also one whose records can't be read.
        count = max(0, store.size(run_id) - 1)
        if not command.confirmed(f"run {run_id} with {count} attempts"):
            command.tell("nothing was deleted")
            return FAILED
        store.delete(run_id)
    command.say(f"Run {run_id} is deleted.")
    return OK


def _lessons(command: _Command) -> list[Lesson]:
    if not command.folder.is_dir():
        return []
    with closing(command.store()) as store:
        return store.lessons(newest_first=True)


def _lessons_list(command: _Command) -> int:
    lessons = _lessons(command)
    if command.given.json:
        command.say(json.dumps([lesson.model_dump(mode="json") for lesson in lessons], indent=2))
    else:
        command.say(lesson_table(lessons) if lessons else f"No lessons are kept in {command.folder}.")
    return OK


def _lessons_export(command: _Command) -> int:
    lessons = _lessons(command)
    whole = {
        "format": LESSONS_FORMAT, "version": 1, "lessons": [lesson.model_dump(mode="json") for lesson in lessons],
    }  # fmt: skip
    written = json.dumps(whole, indent=2)
    if command.given.file == "-":
        command.say(written)
        return OK
    path = Path(command.given.file)
    try:
        with path.open("w" if command.given.force else "x", encoding="utf-8") as file:
            file.write(f"{written}\n")
    except FileExistsError:
        raise rejected("run", f"{path} is there already", fix="Name another file, or add --force.") from None
    except OSError as error:
        raise rejected("run", f"{path} can't be written: {error.strerror}", fix="Name another file.") from None
    command.say(f"{len(lessons)} lessons are in {path}.")
    return OK


def _lessons_delete(command: _Command) -> int:
    given = command.given
    if bool(given.ids) == given.all:
        raise rejected("run", "lessons delete takes ids, or --all", fix="`lessons list` tells the ids.")
    with closing(command.store()) as store:
        keys = [lesson.key for lesson in store.lessons()]
        chosen = keys if given.all else [_lesson(keys, name) for name in given.ids]
        if not command.confirmed(f"{len(chosen)} lessons"):
            command.tell("nothing was deleted")
            return FAILED
        command.say(f"{store.forget(chosen)} lessons are forgotten.")
    return OK


def _lesson(keys: list[str], name: str) -> str:
    """The lesson's whole id.

    Raises:
        Stopped: ``rejected``: there is none, or more than one.
    """
    found = [key for key in keys if key == name or (len(name) >= PREFIX_LENGTH and key.startswith(name))]
    if len(found) == 1:
        return found[0]
    why = "no lesson has" if not found else f"{len(found)} lessons have"
    raise rejected("run", f"{why} the id {name}", fix="`lessons list` tells the ids.")


def _verify(command: _Command) -> int:
    return anyio.run(_verified, command)


async def _verified(command: _Command) -> int:
    async with Services(command.settings) as services:
        result = await verify(services, Path(command.given.folder), _progress(command))
    command.say(result.model_dump_json(indent=2) if command.given.json else text(result))
    return OK if result.outcome == "holds" else FAILED


def _progress(command: _Command, prefix: str = "") -> Progress:
    """Tells each thing that is done once."""
    last = ""

    async def progress(done: float, total: float, message: str) -> None:
        nonlocal last
        if message != last:
            last = message
            command.tell(f"{prefix}{message}")

    return progress


_COMMANDS: Final[dict[tuple[str, str | None], Callable[[_Command], int]]] = {
    ("runs", "list"): _list,
    ("runs", "show"): _show,
    ("runs", "export"): _export,
    ("runs", "resume"): _resume,
    ("runs", "delete"): _delete,
    ("runs", "check"): _check,
    ("lessons", "list"): _lessons_list,
    ("lessons", "export"): _lessons_export,
    ("lessons", "delete"): _lessons_delete,
    ("verify", None): _verify,
}
