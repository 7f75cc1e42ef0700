"""Predictions that did not come true, kept in the state folder: what the catalogue has to learn from."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from ..sandbox.wire import Wire

BYTES_LIMIT: Final = 1 << 20
"""Of the file; beyond it nothing is added until somebody has read and removed it."""
FILE: Final = "mispredictions.jsonl"


class Misprediction(Wire):
    """One prediction of a finding beside what an edit's code showed."""

    id: str
    """Of the rule."""
    kernel: str
    fact: str
    now: int | float | str | None
    expected: str
    to: int | float | str | None
    after: int | float | str | None
    target: str
    before_sha256: str
    """Of the kernel file that was diagnosed."""
    after_sha256: str
    """Of the edited one."""


def record(state_dir: Path, missed: Sequence[Misprediction]) -> bool:
    """Append those that are not there yet, one JSON object a line, each with the time.

    Returns:
        Whether they are kept: a folder that can't be written, or a full file, is no reason to fail.
    """
    path = state_dir / FILE
    at = datetime.now(UTC).isoformat(timespec="seconds")
    try:
        state_dir.mkdir(parents=True, exist_ok=True)
        before = path.read_bytes() if path.exists() else b""
        known = {line.partition(b", ")[2] for line in before.splitlines()}
        lines = [json.dumps({"at": at, **each.model_dump(mode="json")}).encode() for each in missed]
        new = b"".join(line + b"\n" for line in dict.fromkeys(lines) if line.partition(b", ")[2] not in known)
        if len(before) + len(new) > BYTES_LIMIT:
            return False
        with path.open("ab") as file:
            file.write(new)
    except OSError:
        return False
    return True
