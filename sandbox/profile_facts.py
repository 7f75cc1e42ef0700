"""What a worker tells of a profile: read out of Nsight Compute's report, or counted itself. Both were made beside a
kernel: no more is believed of them."""

from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from .facts import Line
from .wire import Wire

LARGEST: Final = 1e24
"""No counter gets there, and sums of a few such numbers are still numbers."""

COUNTED_LIMIT: Final = 200
"""Launches; a worker counts no more of them."""


MESSAGE_LIMIT: Final = 2000


def _message(text: str) -> str:
    """Printable characters alone: a reader may take anything else for instructions."""
    return "".join(character if character.isprintable() else "?" for character in text[:MESSAGE_LIMIT])


Message = Annotated[str, AfterValidator(_message)]


class ReportedMetric(Wire):
    """One metric of one launch."""

    value: Annotated[float, Field(ge=-LARGEST, le=LARGEST)] | str
    """Text where the metric is none of numbers, such as a cache configuration."""
    unit: Line
    """As the report tells it, in base units (`nsecond`, `byte`, `%`, `inst`); empty for pure numbers."""


class ReportedRule(Wire):
    """One finding of Nsight Compute's own rules."""

    section: Line
    name: Line
    """The rule's identifier, such as `SOLBottleneck`."""
    type: Line
    """`OPT` (something to improve), `WRN`, `ERR`, `INF`."""
    title: Line
    message: Message
    """Without links and mark-up."""
    speedup_type: Line | None = None
    """`global` (of the kernel's time) or `local` (of the part that the rule is about)."""
    speedup_pct: float | None = None
    """Nsight Compute's own estimate of the gain."""


class InstructionTable(Wire):
    """The machine code of one launch with what was counted at each instruction: lists of equal length.

    Instructions stand in the order of their addresses, each 16 bytes long.
    """

    offset: list[int]
    """From the function's start, in bytes."""
    sass: list[str]
    """The instruction as text; empty where it was not asked for."""
    file: list[int]
    """Index into the launch's `files`; -1 where there is no line information."""
    line: list[int]
    """Of the innermost inlined function; 0 where there is no line information."""
    counts: dict[str, list[float]]
    """Metric -> count at each instruction: `inst_executed`, `smsp__pcsamp_sample_count`,
    `smsp__pcsamp_warps_issue_stalled_*` and the like. A metric that was not collected is not there."""

    @model_validator(mode="after")
    def _is_a_table(self) -> Self:
        columns = (self.offset, self.sass, self.file, self.line, *self.counts.values())
        if len({len(column) for column in columns}) != 1:
            raise ValueError("columns of an instruction table differ in length")
        if any(later <= earlier for earlier, later in zip(self.offset, self.offset[1:], strict=False)):
            raise ValueError("instructions are not in the order of their addresses")
        return self


class ReportedLaunch(Wire):
    """One launch in a report."""

    kernel: Line
    """Name of the function."""
    metrics: dict[str, ReportedMetric]
    """Those that were asked for and that have a value."""
    rules: list[ReportedRule]
    files: list[Line]
    """Source files of the instructions."""
    instructions: InstructionTable | None = None
    """None where nothing was collected by instruction."""

    @model_validator(mode="after")
    def _files_are_named(self) -> Self:
        if self.instructions is not None and not all(-1 <= at < len(self.files) for at in self.instructions.file):
            raise ValueError("an instruction names a source file that is not listed")
        return self


class Report(Wire):
    """What was read out of one report."""

    launches: list[ReportedLaunch]
    """In the order of their starts."""
    left_out: int = 0
    """Further launches, that were not read."""


Dimension = Annotated[int, Field(ge=1, lt=2**31)]
SharedBytes = Annotated[int, Field(ge=0, lt=2**31)]


class CountedLaunch(Wire):
    """One launch whose counters a worker read."""

    kernel: Line
    """Name of the function."""
    grid: tuple[Dimension, Dimension, Dimension]
    """Blocks in x, y and z."""
    block: tuple[Dimension, Dimension, Dimension]
    """Threads a block in x, y and z."""
    registers: int = Field(ge=0, lt=2**16)
    """A thread."""
    static_shared_bytes: SharedBytes
    """A block, as is the next."""
    dynamic_shared_bytes: SharedBytes
    metrics: dict[str, float]
    """By name, in the base units of Nsight Compute's reports: nanoseconds, bytes, percent, cycles."""
    absent: dict[str, Line]
    """Metric -> why it has no value here."""


class Counted(Wire):
    """What a worker counted in one call of an entry."""

    launches: list[CountedLaunch] = Field(max_length=COUNTED_LIMIT)
    """In the order in which the entry made them."""
    passes: int = Field(ge=0, lt=2**31)
    """How often the entry ran while it was counted; 0 where the chip has none of the metrics."""
    left_out: int = Field(ge=0, lt=2**31)
    """Further launches, that are not told."""

    def answers(self, metrics: set[str], launches_limit: int) -> bool:
        """Whether each launch has a value or a reason for each of these metrics, and there are no more of both."""
        return len(self.launches) <= launches_limit and all(
            {*launch.metrics, *launch.absent} == metrics and not launch.metrics.keys() & launch.absent.keys()
            for launch in self.launches
        )


class Unread(Wire):
    """Why a worker can't read a report."""

    reason: Line


class Uncounted(Wire):
    """Why a worker can't count on its machine."""

    code: Literal["no_cupti", "cupti_too_old", "counters_forbidden", "counters_busy", "unsupported_gpu", "other"]
    message: Line
    """What is wrong, with CUPTI's own name for it where it gave one."""
