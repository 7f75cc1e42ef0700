"""Predictions that did not come true, kept in the state folder: what the catalogue has to learn from."""

import fcntl
import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, cast

from ..sandbox.wire import Wire

BYTES_LIMIT: Final = 1 << 20
"""Of the file; beyond it nothing is added until somebody has read and removed it."""
FILE: Final = "mispredictions.jsonl"
CODE_KEY: Final = (
    "id", "kernel", "fact", "now", "expected", "to", "after", "target", "before_sha256", "after_sha256",
)  # fmt: skip
"""What makes two mispredictions of code the same."""
GAIN_KEY: Final = ("id", "device", "identity")
"""The same of those of time: a code, a rule and a device; measured again it tells nothing new."""


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
    """Of the kernel file that was diagnosed, comments, docstrings and formatting apart."""
    after_sha256: str
    """Of the edited one."""


class GainMisprediction(Wire):
    """What a finding promised of an edit's time, in percent of the diagnosed case's, beside what a run measured."""

    id: str
    """Of the rule."""
    kernel: str
    case: str
    came: Literal["less", "more"]
    expected_pct: float | None
    at_most_pct: float | None
    seen_pct: float
    seen_low_pct: float
    seen_high_pct: float
    device: str
    """Name of the GPU."""
    triton: str | None
    parent_identity: str | None
    """Of the code that was diagnosed."""
    identity: str | None
    """Of the edited one: same for files that compile to the same machine code."""
    run_id: str
    attempt: int


def record(state_dir: Path, missed: Sequence[Misprediction | GainMisprediction]) -> bool:
    """Append those that are not there yet, one JSON object a line, each with the time.

    Returns:
        Whether they are kept: a folder that can't be written, or a full file, is no reason to fail.
    """
    at = datetime.now(UTC).isoformat(timespec="seconds")
    try:
        state_dir.mkdir(parents=True, exist_ok=True)
        with (state_dir / FILE).open("a+b") as file:
            # Of two processes that have found the same, the second sees what the first has written.
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            before = file.read()
            known = set(_keys(before))
            # A line that was cut off stays by itself.
            new = b"" if not before or before.endswith(b"\n") else b"\n"
            for each in missed:
                fields = each.model_dump(mode="json")
                if (key := _key(fields)) not in known:
                    known.add(key)
                    new += json.dumps({"at": at, **fields}).encode() + b"\n"
            if len(before) + len(new) > BYTES_LIMIT:
                return False
            file.write(new)
    except OSError:
        return False
    return True


def _keys(lines: bytes) -> Iterable[tuple[Any, ...]]:
    for line in lines.splitlines():
        try:
            fields: object = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(fields, dict):
            yield _key(cast(dict[str, Any], fields))


def _key(fields: dict[str, Any]) -> tuple[Any, ...]:
    names = CODE_KEY if "fact" in fields else GAIN_KEY
    return (names, *(json.dumps(fields.get(name)) for name in names))
