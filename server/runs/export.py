"""What a run comes to as files: the kernel, the patch that makes it of the baseline, and a record to verify it by."""

import difflib
import hashlib
import re
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from pydantic import ValidationError

from ...profiling.optimization.model import BASELINE, Attempt
from ...sandbox.errors import Stopped, rejected
from ...sandbox.outcome import Kind, Problem
from .neighbours import neighbours
from .record import Run
from .store import Store
from .verification import Files, RecordedFile, VerificationRecord, record

RECORD: Final = "verification.json"
BASELINE_FILE: Final = "baseline.py"
TASK_FILE: Final = "task.py"
TAKEN: Final = frozenset({"baseline", "task", "verification"})
"""Names that other files of an export have."""


class Exported(NamedTuple):
    """An export on disk."""

    folder: Path
    record: VerificationRecord

    @property
    def paths(self) -> list[Path]:
        """The files, the record last."""
        return [self.folder / name for name in [*(file.name for file in self.record.files()), RECORD]]


def export(store: Store, run_id: str, folder: Path, attempt: int | None = None, *, force: bool = False) -> Exported:
    """Write an attempt into a folder, which is made where it is not there.

    Args:
        store: where the run is kept.
        run_id: the run.
        folder: where to.
        attempt: which one; the incumbent by default.
        force: whether files may be replaced that no export of this run has written.

    Raises:
        Stopped: ``rejected``: there is nothing to export, or files are in the way; ``unavailable``: the folder can't be
            written, or a file of the run is gone or damaged.
    """
    run, attempts = store.run(run_id), store.attempts(run_id)
    chosen = _choose(run, attempts, attempt)
    kernel, baseline = store.file(chosen.kernel_sha256), store.file(run.frozen.kernel_sha256)
    name = file_name(run.frozen.entry)
    texts = {f"{name}.py": kernel, BASELINE_FILE: baseline, TASK_FILE: store.file(run.frozen.task_sha256)}
    if difference := patch(baseline, kernel):
        texts[f"{name}.patch"] = difference
    contents = {written: text.encode() for written, text in texts.items()}
    recorded = {written: RecordedFile(name=written, sha256=digest(data)) for written, data in contents.items()}
    files = Files(recorded[f"{name}.py"], recorded[BASELINE_FILE], recorded[TASK_FILE], recorded.get(f"{name}.patch"))
    missing = [
        *(_imports(f"{name}.py", kernel, chosen.kernel_origin)),
        *(_imports(BASELINE_FILE, baseline, run.frozen.kernel_origin)),
        *(_imports(TASK_FILE, texts[TASK_FILE], run.frozen.task_origin)),
    ]
    made = record(run, attempts, chosen.number, files, missing)
    contents[RECORD] = (made.model_dump_json(indent=2) + "\n").encode()
    try:
        before = _recorded(folder / RECORD)
        if not force:
            _require_ours(folder, contents, before, run_id)
        _write(folder, contents, [] if before is None else before.files())
    except OSError as error:
        raise Stopped(
            Kind.UNAVAILABLE,
            Problem(
                stage="export",
                message=f"the export can't be written to {folder}: {error.strerror}",
                likely_fix="Name a folder that may be written (--to DIR).",
            ),
        ) from error
    return Exported(folder, made)


def file_name(entry: str) -> str:
    """What an exported kernel is called, without the suffix."""
    name = re.sub(r"\W", "_", entry, flags=re.ASCII)
    return f"{name}_kernel" if name in TAKEN else name


def digest(data: bytes) -> str:
    """SHA-256 in hexadecimal, as everything of a run is hashed."""
    return hashlib.sha256(data).hexdigest()


def patch(baseline: str, kernel: str) -> str:
    """What `patch -p1` and `git apply` make the kernel of `baseline.py` with; empty where they are equal."""
    # Lines end where patch says they end, not where Python does.
    lines = [text.split("\n") for text in (baseline, kernel)]
    before, after = ([*(f"{line}\n" for line in whole), *([last] if last else [])] for *whole, last in lines)
    found = difflib.unified_diff(before, after, f"a/{BASELINE_FILE}", f"b/{BASELINE_FILE}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in found)


def _choose(run: Run, attempts: Sequence[Attempt], number: int | None) -> Attempt:
    """The attempt to export.

    Raises:
        Stopped: ``rejected``, with those that there are.
    """
    run_id = run.frozen.run_id
    finished = [each.number for each in attempts if each.state == "finished" and each.number != BASELINE]
    if not finished:
        raise rejected(
            "export",
            f"run {run_id} has no finished attempt: there is nothing to export",
            fix=f"Call submit_candidate(run_id='{run_id}', ...) first.",
        )
    # One that failed can be exported too: its file may be worth mending.
    there = f"Finished attempts: {', '.join(map(str, finished))}."
    if number is None:
        if run.incumbent == BASELINE:
            raise rejected(
                "export",
                f"run {run_id} has accepted nothing, so the attempt to export must be named",
                fix=f"{there} Name one of them, such as --attempt {finished[-1]}.",
            )
        number = run.incumbent
    if number == BASELINE:
        raise rejected("export", f"attempt {BASELINE} is the baseline itself", fix=there)
    found = next((each for each in attempts if each.number == number), None)
    if found is None:
        raise rejected("export", f"run {run_id} has no attempt {number}", fix=there)
    if found.state != "finished" or found.evidence is None:
        raise rejected("export", f"attempt {number} of run {run_id} is {found.state}, not finished", fix=there)
    return found


def _imports(name: str, text: str, origin: str | None) -> list[str]:
    """What a file imports from its own folder, in a sentence: that is not frozen, so not exported."""
    if origin is None:
        return []
    beside = neighbours(text, origin)
    if not beside:
        return []
    return [f"{name} imports {', '.join(beside)} from {origin}, which a run does not freeze: copy it beside {name}."]


def _require_ours(folder: Path, contents: dict[str, bytes], before: VerificationRecord | None, run_id: str) -> None:
    """
    Args:
        folder: where to.
        contents: what is to be written, by name.
        before: the record of the export that is there.
        run_id: the run that is exported.

    Raises:
        Stopped: ``rejected``: files would be replaced that an export of this run has not written.
        OSError: one can't be read.
    """
    again = "Name another folder (--to DIR), or give --force to replace it."
    if before is not None and before.run_id != run_id:
        raise rejected("export", f"{folder} holds the export of another run, {before.run_id}", fix=again)
    ours = {} if before is None else {file.name: file.sha256 for file in before.files()}
    for name in contents:
        if not (folder / name).exists() or (name == RECORD and before is not None):
            continue
        if name == RECORD or digest((folder / name).read_bytes()) not in (ours.get(name), digest(contents[name])):
            why = "was changed since it was exported" if name in ours else "was not written by an export of this run"
            raise rejected("export", f"{folder / name} {why}", file=str(folder / name), fix=again)


def _recorded(path: Path) -> VerificationRecord | None:
    """The record of the export that is there already; None where that is none."""
    try:
        return VerificationRecord.model_validate_json(path.read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def _write(folder: Path, contents: dict[str, bytes], before: Sequence[RecordedFile]) -> None:
    """The files, each of them whole or not at all, the record last; what was exported before and is no more, goes.

    Raises:
        OSError: the folder can't be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for file in before:
        gone = folder / file.name
        if file.name not in contents and gone.is_file() and digest(gone.read_bytes()) == file.sha256:
            gone.unlink()
    for name, data in contents.items():
        partial = folder / f".{name}.{secrets.token_hex(4)}.partial"
        try:
            partial.write_bytes(data)
            partial.replace(folder / name)
        finally:
            partial.unlink(missing_ok=True)
