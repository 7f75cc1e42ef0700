"""Reads Compute Sanitizer's logs.

A log is written where the checked program can write too, so all of it is untrusted: whatever it holds, reading it
takes time linear in its length, and what comes out are short, printable strings.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final, Literal, NamedTuple

from pydantic import Field

from ...sandbox.scratch import PREFIX as SCRATCH_PREFIX
from ...sandbox.wire import Wire
from .command import Tool

CANDIDATE_FILE: Final = "kernel.py"
"""What a worker calls the candidate's file, in its scratch folder."""
GROUPS_LIMIT: Final = 200
"""Different findings that are kept of one log."""
LINE_LIMIT: Final = 1000
TEXT_LIMIT: Final = 300
MARK: Final = "========="

Severity = Literal["error", "warning"]


class Finding(Wire):
    """What one tool says about one place in a kernel; equal ones are merged."""

    tool: Tool
    kind: str
    """Such as `invalid write`, `misaligned read`, `race`, `uninitialized read` or `barrier`."""
    severity: Severity = "error"
    """`warning`: a race between threads of one warp, which may be intended."""
    kernel: str
    """The compiled kernel's name; for Triton, the function's."""
    file: str | None = None
    """The candidate's file, or the name of another one that the code came from; None without line information."""
    line: int | None = None
    """1-based, in the candidate's file; None for places elsewhere."""
    size_bytes: int | None = None
    """Of the access."""
    detail: str | None = None
    """What else is known, of the first of these."""
    block: tuple[int, int, int] | None = None
    """Program that it was first seen in."""
    count: int = Field(default=1, ge=1)
    """How many the log describes; it has a limit."""


class Report(Wire):
    """One log."""

    tool: Tool
    findings: list[Finding]
    """In kernels that are not torch's or a library's, in the order of the log."""
    elsewhere: int
    """Errors in torch's and libraries' kernels and in CUDA calls: none that a line of the candidate's stands behind."""
    total: int | None
    """Errors that the tool counted; None where the log ends before that, so that the tool did not finish."""
    trouble: str | None
    """What kept the tool from checking everything."""


class _Place(NamedTuple):
    """Where an instruction comes from."""

    kernel: str
    path: str | None = None
    line: int | None = None

    @property
    def own(self) -> bool:
        """Whether that is the candidate's file."""
        return self.path is not None and _OWN.search(self.path) is not None

    @property
    def foreign(self) -> bool:
        """Whether it is a kernel of torch or a library."""
        if self.own:
            return False
        # Libraries' kernels come without line information, Triton's with it.
        return "at::" in self.kernel or (self.path is None and _FOREIGN.match(self.kernel) is not None)

    def words(self) -> str:
        """Line, or file and line, as far as they are known."""
        if self.path is None:
            return "an unknown line"
        return f"line {self.line}" if self.own else f"{_name(self.path)}:{self.line}"


_Record = tuple[str, list[str]]
"""A message's first line and the indented ones below it."""

_OWN: Final = re.compile(rf"/{re.escape(SCRATCH_PREFIX)}[^/]*/{re.escape(CANDIDATE_FILE)}\Z")
# How the names of libraries' kernels begin. `at::` also stands in the template arguments of torch's own kernels that
# are in no namespace.
_FOREIGN: Final = re.compile(
    r"(?:void )?(?:c10|cub|thrust|cutlass|cute|cudnn|cublas\w*|cusparse\w*|cufft\w*|at_cuda_detail|fmha\w*"
    r"|flash|pytorch_flash)::"
    r"|(?:void )?(?:nvjet|cutlass|cublas|cudnn|cufft|nccl|magma|ampere|volta|turing|hopper|sm\d+|gemv|gemmk|gemmSN"
    r"|splitK|dot_kernel|reduce_1Block|vector_fft|regular_fft)\w*"
)
_ACCESS: Final = re.compile(r"(?:Potential )?invalid __\w+__ (\w+) of size ([\d,]{1,15})", re.IGNORECASE)
_UNINITIALIZED: Final = re.compile(r"Uninitialized __\w+__ memory read of size ([\d,]{1,15})")
_BARRIER: Final = re.compile(r"(Barrier|Warpgroup MMA sequence) error detected\b[. ]*(.*)")
_RACE: Final = re.compile(r"(\w+): ?(?:\(.{0,100}?\) ?)?(?:Race reported between|Potential W?R?A[WR] hazard)")
_RACING: Final = re.compile(r"\b(Read|Write) (?:access|Thread \([\d, ]{1,60}\)) at ")
_HAZARDS: Final = re.compile(r" \[([\d,]{1,15}) hazards?\]\Z")
_SUMMARY: Final = re.compile(r"(?:ERROR SUMMARY: ([\d,]{1,15}) errors?\Z|RACECHECK SUMMARY: ([\d,]{1,15}) hazards? )")
_BLOCK: Final = re.compile(r"in block \((\d{1,10}), ?(\d{1,10}), ?(\d{1,10})\)")
_ADDRESS: Final = re.compile(r" ?(?:\bat )?0x[0-9a-fA-F]{1,16}\b")
_OLD_PLACE: Final = re.compile(r"([^:]*):(\d{1,9}):(.+)")
# The end of the checked program, of which the worker tells more.
_CONSEQUENCES: Final = (
    "Error: process didn't terminate successfully",
    "Error: couldn't find exit code",
    "Target application returned an error",
    "Tracking kernels launched by child processes",
    "Default timeout can be adjusted",
)
_TROUBLE: Final = re.compile(r"(?:Internal Sanitizer )?Error:|Unable to |Failed to |Warning: ", re.IGNORECASE)


def parse(text: str, tool: Tool) -> Report:
    """The findings of one tool's log."""
    merged: dict[tuple[str, str, str | None, int | None], Finding] = {}
    elsewhere, total, trouble = 0, None, None
    for head, below in _records(text):
        if summary := _SUMMARY.match(head):
            total = _number(summary[1] or summary[2])
        elif finding := _finding(head, below, tool):
            place, found = finding
            key = found.kind, found.kernel, found.file, found.line
            if place.foreign:
                elsewhere += 1
            elif key in merged:
                merged[key] = merged[key].model_copy(update={"count": merged[key].count + 1})
            elif len(merged) < GROUPS_LIMIT:
                merged[key] = found
        # Another summary counts what was not printed.
        elif head.startswith(_CONSEQUENCES) or "SUMMARY:" in head or head == "COMPUTE-SANITIZER":
            continue
        elif _TROUBLE.match(head):
            trouble = trouble or printable(head)
        else:
            # About calls from the host: torch tries some that may fail, and reads back what it never wrote.
            elsewhere += 1
    return Report(tool=tool, findings=list(merged.values()), elsewhere=elsewhere, total=total, trouble=trouble)


def ranked(findings: Sequence[Finding]) -> list[Finding]:
    """The worst first: writes where nothing may be written, other accesses, races, barriers, then undefined values."""
    order = ("invalid write", "misaligned write", "invalid", "misaligned", "race", "barrier")

    def rank(finding: Finding) -> tuple[bool, int, int]:
        fits = (number for number, start in enumerate(order) if finding.kind.startswith(start))
        return finding.severity == "warning", next(fits, len(order)), -finding.count

    return sorted(findings, key=rank)


def sentence(finding: Finding) -> str:
    """A finding in one line of words."""
    size = f" of {finding.size_bytes:,} bytes" if finding.size_bytes is not None else ""
    place = f" at line {finding.line}" if finding.line is not None else ""
    often = f" ({finding.count:,} times)" if finding.count > 1 else ""
    first = f", first in program {finding.block}" if finding.block is not None else ""
    detail = f": {finding.detail}" if finding.detail else ""
    return f"{finding.tool}: {finding.kind}{size} in {finding.kernel}{place}{often}{first}{detail}"


def printable(text: str, limit: int = TEXT_LIMIT) -> str:
    """One line of printable characters, cut where it is too long."""
    shown = "".join(character if character.isprintable() else " " for character in text[: limit + 1]).strip()
    return shown if len(shown) <= limit else shown[: limit - 3] + "..."


def _records(text: str) -> Iterator[_Record]:
    """The log's messages. Lines below a message's first are indented."""
    head: str | None = None
    below: list[str] = []
    for line in text.splitlines():
        if not line.startswith(MARK):
            continue
        content = line[len(MARK) : LINE_LIMIT]
        if content.startswith("   "):
            below.append(content.strip())
        elif content.strip():
            if head is not None:
                yield head, below
            head, below = content.strip(), []
    if head is not None:
        yield head, below


def _finding(head: str, below: list[str], tool: Tool) -> tuple[_Place, Finding] | None:
    """What a message says about a place in a kernel; None where it speaks of none."""
    if race := _RACE.match(head):
        return _race(race[1], head, below, tool)
    at = next((line for line in below if line.startswith("at ")), None)
    if at is None:
        return None
    place = _place(at.removeprefix("at "))
    kind, size, detail = _kind(head, below)
    return place, Finding(
        tool=tool,
        kind=kind,
        kernel=printable(place.kernel),
        file=_file(place),
        line=place.line if place.own else None,
        size_bytes=size,
        detail=_detail(detail, place),
        block=_block(below),
    )


def _kind(head: str, below: list[str]) -> tuple[str, int | None, str]:
    """Kind, size of the access in bytes and detail of a message that is no race."""
    if access := _ACCESS.match(head):
        misaligned = any("is misaligned" in line for line in below)
        kind = f"{'misaligned' if misaligned else 'invalid'} {printable(access[1].lower(), 20)}"
        space = "" if "__global__" in head else f"{head.split('__')[1]} memory, "
        return kind, _number(access[2]), space + _where(below)
    if read := _UNINITIALIZED.match(head):
        return "uninitialized read", _number(read[1]), "" if "__global__" in head else f"{head.split('__')[1]} memory"
    if barrier := _BARRIER.match(head):
        return ("barrier" if barrier[1] == "Barrier" else "warpgroup mma"), None, barrier[2].rstrip(". ")
    return "error", None, head


def _where(below: list[str]) -> str:
    """How an address lies to the nearest allocation; the address itself is another in each run."""
    for line in below:
        if line.startswith("and is "):
            return _ADDRESS.sub("", line.removeprefix("and is "))
    said = next((line for line in below if line.startswith(("Address ", "Access "))), "")
    return said.partition(" is ")[2]


def _race(severity: str, head: str, below: list[str], tool: Tool) -> tuple[_Place, Finding] | None:
    """Accesses of two or more threads to the same shared memory, with no barrier between."""
    places: list[_Place] = []
    words: list[str] = []
    hazards = 0
    for line in (head, *below):
        if (racing := _RACING.search(line)) is None:
            continue
        rest = line[racing.end() :]
        if count := _HAZARDS.search(rest):
            hazards += _number(count[1])
            rest = rest[: count.start()]
        place = _place(rest)
        places.append(place)
        words.append(f"{racing[1].lower()} at {place.words()}")
    if not places:
        return None
    first = next((place for place in places if place.own), places[0])
    detail = " and ".join(words) + (f", {hazards:,} hazards" if hazards else "")
    return first, Finding(
        tool=tool,
        kind="race",
        severity="warning" if severity.upper().startswith("WARN") else "error",
        kernel=printable(first.kernel),
        file=_file(first),
        line=first.line if first.own else None,
        detail=printable(detail),
        block=_block([head]),
    )


def _place(text: str) -> _Place:
    """Kernel, file and line of `kernel(int *)+0x180 in /a/b.py:22`, or of old forms with the number in front."""
    if text.startswith("0x"):
        where = text.partition(" in ")[2]
        if old := _OLD_PLACE.match(where):
            return _Place(_kernel(old[3]), old[1], int(old[2]))
        return _Place(_kernel(where) or "unknown")
    kernel, found, rest = text.rpartition("+0x")
    if not found:
        kernel, _, rest = text.partition(" in ")
        rest = f" in {rest}"
    path, _, line = rest.partition(" in ")[2].rpartition(":")
    if path and line.isascii() and line.isdigit() and len(line) < 10:
        return _Place(_kernel(kernel), path, int(line))
    return _Place(_kernel(kernel))


def _kernel(symbol: str) -> str:
    """A kernel's name without its arguments."""
    name, opened, _ = symbol.partition("(")
    return name if opened and name.isidentifier() else symbol


def _file(place: _Place) -> str | None:
    if place.path is None:
        return None
    return CANDIDATE_FILE if place.own else printable(_name(place.path), 100)


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _detail(text: str, place: _Place) -> str | None:
    # A line of Triton's own library, inlined into the kernel.
    elsewhere = f"in {place.words()}" if place.path is not None and not place.own else ""
    return printable(", ".join(part for part in (text, elsewhere) if part)) or None


def _block(below: list[str]) -> tuple[int, int, int] | None:
    for line in below:
        if found := _BLOCK.search(line):
            return int(found[1]), int(found[2]), int(found[3])
    return None


def _number(digits: str) -> int:
    return int(digits.replace(",", "") or 0)
