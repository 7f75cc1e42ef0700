"""A campaign on the disk: its plan, a folder a kernel, and the report. What is written is whole or not there."""

import contextlib
import fcntl
import os
import secrets
import shutil
from collections.abc import Generator, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeVar

from pydantic import ValidationError

from ... import __version__
from ...sandbox.errors import rejected
from ...sandbox.wire import Wire
from ..adapters.model import Form
from ..optimize.model import NONE
from .model import Entry, KernelRecord, Plan

PLAN: Final = "campaign.json"
KERNELS: Final = "kernels"
STATE: Final = "state"
RECORD: Final = "record.json"
BEGUN: Final = "begun.json"
LOCK: Final = ".lock"
WINNER: Final = "winner"
TASK_FILES: Final = ("kernel.py", "task.py")
ADAPTED: Final = "adapted.json"
ERROR: Final = "error.txt"
FOUND: Final = ("baseline.json", "diagnosis.json", "profile.json", ERROR)
"""What is written beside a kernel's task while it is worked on."""
DEATHS_LIMIT: Final = 2
"""So often may the process die that works on a kernel before the campaign goes on without it."""

M = TypeVar("M", bound=Wire)


class Frozen(Wire):
    """What a campaign was begun with: later sittings go on with the same."""

    plan: Plan
    entries: list[Entry]
    version: str
    begun_at: str


class Adaptation(Wire):
    """What became of an artefact when a task was made of it."""

    form: str
    entry: str
    cases: int
    assumptions: list[str]
    seconds: float
    made_of: str = ""
    """SHA-256 of the files that it was made of."""
    on_gpu: bool = False
    """Whether the baseline was tried on the GPU."""
    why_not: str | None = None
    """Why no candidate can be judged by the task, as that showed."""
    kind: str | None = None
    """How the baseline ended then, such as `wrong`."""

    @property
    def agrees(self) -> bool:
        """Whether the baseline, which says what is right, was compared with itself on the GPU, and was right."""
        return self.on_gpu and self.why_not is None and self.form in (Form.TRITONBENCH, Form.PYTEST)


class Begun(Wire):
    """How far a kernel got whose record is not there yet."""

    deaths: int = 0
    """How often the process that worked on it ended in the middle."""
    run_id: str | None = None


class CampaignFolder:
    """The folder of one campaign."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def state(self) -> Path:
        """The state folder of its runs."""
        return self.path / STATE

    def kernel(self, name: str) -> Path:
        """The folder of a kernel."""
        return self.path / KERNELS / name

    def freeze(self, plan: Plan, found: Iterable[Entry], *, resume: bool) -> Frozen:
        """Write down what the campaign is, or see that it is the one that is there.

        Raises:
            Stopped: ``rejected``: there is one already, or another one, or nothing can be written.
        """
        before = self.frozen()
        if before is None:
            frozen = Frozen(plan=plan, entries=list(found), version=__version__, begun_at=datetime.now(UTC).isoformat())
            try:
                write(self.path / PLAN, frozen.model_dump_json(indent=2))
            except OSError as error:
                raise rejected(
                    "campaign",
                    f"nothing can be written into {self.path}: {error.strerror}",
                    fix="Name another folder: --out DIR.",
                ) from None
            return frozen
        if not resume:
            raise rejected(
                "campaign",
                f"{self.path} holds a campaign that was begun {before.begun_at[:16]}",
                fix="Go on with it by --resume, or begin another one in another folder: --out DIR.",
            )
        changed = _changed(before.plan, plan)
        if changed:
            raise rejected(
                "campaign",
                f"{self.path} was begun with another {' and another '.join(changed)}",
                fix="Resume with the same options, or begin another campaign: --out DIR.",
            )
        if before.plan != plan:
            before = before.model_copy(update={"plan": plan})
            write(self.path / PLAN, before.model_dump_json(indent=2))
        return before

    def frozen(self) -> Frozen | None:
        """What the campaign was begun with; None: there is none here.

        Raises:
            Stopped: ``rejected``: the file is damaged.
        """
        file = self.path / PLAN
        try:
            return Frozen.model_validate_json(file.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValidationError) as error:
            raise rejected(
                "campaign", f"{file} can't be read: {str(error).splitlines()[0]}", fix="Begin anew with another --out."
            ) from None

    def records(self, frozen: Frozen) -> list[KernelRecord]:
        """Of all kernels that the campaign is through with, in its order."""
        found = [self.record(entry.name) for entry in frozen.entries]
        return [record for record in found if record is not None and is_through(record, frozen.plan)]

    def record(self, name: str) -> KernelRecord | None:
        """Of a kernel; None: it has to be worked on, or its file was damaged."""
        return _read(self.kernel(name) / RECORD, KernelRecord)

    def damaged(self, frozen: Frozen) -> list[str]:
        """Kernels whose records are there and can't be read, which is as if there were none."""
        names = [entry.name for entry in frozen.entries]
        return [name for name in names if (self.kernel(name) / RECORD).exists() and self.record(name) is None]

    def put(self, record: KernelRecord) -> None:
        """Keep a kernel's record."""
        folder = self.kernel(record.name)
        write(folder / RECORD, record.model_dump_json(indent=2))
        (folder / BEGUN).unlink(missing_ok=True)

    def forget(self, name: str) -> None:
        """Have a kernel worked on again, from its task on."""
        for file in (RECORD, BEGUN):
            (self.kernel(name) / file).unlink(missing_ok=True)

    def clear(self, name: str) -> None:
        """Remove what was found the last time that a kernel was worked on; its task stays."""
        folder = self.kernel(name)
        for file in FOUND:
            (folder / file).unlink(missing_ok=True)
        shutil.rmtree(folder / WINNER, ignore_errors=True)

    def adaptation(self, name: str) -> Adaptation | None:
        """What an earlier sitting has made of an artefact; its files are beside."""
        folder = self.kernel(name)
        if not all((folder / file).is_file() for file in TASK_FILES):
            return None
        return _read(self.adapted_file(name), Adaptation)

    def adapted_file(self, name: str) -> Path:
        """Says that a kernel's task is there, and what became of its artefact."""
        return self.kernel(name) / ADAPTED

    def begun(self, name: str) -> Begun:
        """How far a kernel got."""
        return _read(self.kernel(name) / BEGUN, Begun) or Begun()

    def begin(self, name: str, begun: Begun) -> None:
        """Write down how far it got."""
        write(self.kernel(name) / BEGUN, begun.model_dump_json())

    @contextlib.contextmanager
    def claimed(self, name: str) -> Generator[bool]:
        """A kernel for oneself among several processes; False: another one has it."""
        folder = self.kernel(name)
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True
        finally:
            os.close(descriptor)


def is_through(record: KernelRecord, plan: Plan) -> bool:
    """Whether nothing is left to be done with a kernel: where only its baseline was measured, an agent goes on."""
    return record.outcome != "measured" or plan.agent == NONE


def write(file: Path, text: str) -> None:
    """A file that is whole or as it was."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    try:
        partial.write_text(text if text.endswith("\n") else f"{text}\n", encoding="utf-8", errors="surrogatepass")
        partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)


def _read(file: Path, model: type[M]) -> M | None:
    try:
        return model.model_validate_json(file.read_bytes())
    except (OSError, ValidationError):
        return None


def _changed(before: Plan, now: Plan) -> list[str]:
    """What decides the results and is another now; baselines alone may be followed by an agent."""
    names = {"folder": "folder", "ablations": "set of ablations", "subset": "subset", "only": "choice of names"}
    names["performance"] = "folder of performance files"
    if before.subset is not None:
        names["seed"] = "seed"
    if before.agent != NONE:
        names |= {"agent": "agent", "agent_words": "list of agent arguments", "rounds": "number of rounds"}
        names |= {"search_s": "search time", "wall_s": "time for a kernel"}
    return [words for name, words in names.items() if getattr(before, name) != getattr(now, name)]
