"""What a report counted at each instruction, and the source line that each of them comes from."""

import re
from collections.abc import Collection
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from ...sandbox import facts
from ...sandbox.profile_facts import InstructionTable, ReportedLaunch
from ..compiler import join, sass
from ..compiler.join import CompiledCode
from .metrics import STALL_REASONS, sampled_stall_metric

COUNT_LIMIT: Final = 2.0**53
"""Up to which a float counts exactly."""
LINE_LIMIT: Final = 10**6
OFFSET_LIMIT: Final = 64 << 20
"""In bytes: no function is longer."""
SAMPLES: Final = "smsp__pcsamp_sample_count"
EXECUTED: Final = "inst_executed"
L2_SECTORS: Final = "memory_l2_theoretical_sectors_global"
SHARED_WAVEFRONTS: Final = "memory_l1_wavefronts_shared"

_ROOT = re.compile(r"\s*(?:@!?U?P\w{1,2}\s+)?([A-Z]\w{0,40})([\w.]{0,60})")


class At(NamedTuple):
    """What is counted together: a line, or what has none of its own."""

    line: int | None
    library: str | None


class Pair(NamedTuple):
    """Work of memory accesses at each instruction."""

    found: list[float]
    ideal: list[float]
    """What the same accesses need at best."""


class Counts(NamedTuple):
    """What was counted at each instruction."""

    samples: list[float]
    stalls: dict[str, list[float]]
    """Samples by the reason why the warp did not issue."""
    executed: list[float] | None
    """By warps; not all zero."""
    l2: Pair | None
    """Sectors of global accesses between L1 and L2."""
    shared: Pair | None
    """Wavefronts of shared memory."""


class Lines(NamedTuple):
    """Where each instruction comes from."""

    origins: list[At]
    code: sass.Code | None
    """The compiler's; None where the lines are the report's."""
    numbers: list[int]
    """Of each instruction in that code."""
    reason: str | None
    """Why they are not the compiler's."""


def counts(table: InstructionTable) -> Counts | None:
    """The columns that matter; None where warps were not sampled.

    Raises:
        ValueError: a place or a count can't be one.
    """
    if not all(0 <= offset < OFFSET_LIMIT for offset in table.offset):
        raise ValueError("the report's table has an instruction that is not within a function")
    samples = _column(table, SAMPLES)
    if samples is None:
        return None
    executed = _column(table, EXECUTED)
    columns = {reason: _column(table, sampled_stall_metric(reason)) for reason in STALL_REASONS}
    return Counts(
        samples=samples,
        stalls={reason: column for reason, column in columns.items() if column is not None},
        executed=executed if executed and any(executed) else None,
        l2=_pair(table, L2_SECTORS),
        shared=_pair(table, SHARED_WAVEFRONTS),
    )


def lines(
    launch: ReportedLaunch, table: InstructionTable, kernel_files: Collection[str], compiled: CompiledCode | None
) -> Lines:
    """The compiler's lines where its code is the same, else the report's. Takes a checked table."""
    reason = "the launch was not compiled beside the profile"
    names = [PurePosixPath(file[: sass.LINE_CHARACTERS]).name for file in launch.files]
    origins: list[At] = []
    for file, line in zip(table.file, table.line, strict=True):
        if file < 0 or not 0 < line <= LINE_LIMIT:
            origins.append(At(None, None))
        elif names[file] in kernel_files:
            origins.append(At(line, None))
        else:
            origins.append(At(None, facts.line(f"{names[file][:60]}:{line}")))
    if compiled is not None:
        code = sass.parse(compiled.sass, compiled.ptx)
        roots = [match[1] if (match := _ROOT.match(row[: sass.LINE_CHARACTERS])) else "" for row in table.sass]
        places = [at.library if at.line is None else str(at.line) for at in origins]
        found = join.matched(code, table.offset, roots, places)
        if not isinstance(found, str):
            chosen = [code.instructions[number].origin for number in found]
            return Lines([At(each.line, each.library) for each in chosen], code, found, None)
        reason = found
    return Lines(origins, None, [], reason)


def opcode_of(instruction: str) -> str:
    """The opcode of an instruction as ncu prints it, such as `LDG.E.128`; empty where the text is none."""
    match = _ROOT.match(instruction)
    return match[1] + match[2] if match else ""


def _column(table: InstructionTable, name: str) -> list[float] | None:
    column = table.counts.get(name)
    if column is None:
        return None
    if not all(0 <= count <= COUNT_LIMIT for count in column):
        raise ValueError(f"the report's table has a count of {name} that can't be one")
    return column


def _pair(table: InstructionTable, name: str) -> Pair | None:
    found, ideal = _column(table, name), _column(table, f"{name}_ideal")
    return None if found is None or ideal is None else Pair(found, ideal)
