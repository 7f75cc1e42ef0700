"""What the compiler's passes said of their decisions, as facts with a line and a meaning.

Remarks have a place in the source; lines of a pass' debug output have none. The texts are those of Triton 3.4 to 3.9;
what no rule knows is kept as ``other``. They come from a worker and are not trusted.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from ...sandbox import facts
from ...sandbox.wire import Wire

SHOWN: Final = 20
MESSAGE_CHARACTERS: Final = 240

_REMARK = re.compile(
    r"(?P<file>\S.*?):(?P<line>\d{1,7}):(?P<column>\d{1,7}): (?:remark|warning|error): (?P<message>.*)"
)
_DEBUG = re.compile(r"\[(?P<category>[\w-]{1,60})\]: (?P<message>.*)")
_TILE = re.compile(r"tensor<((?:\d+x)+)(?:!tt\.ptr<)?(\w+)")


class Remark(Wire):
    """One decision of a pass."""

    id: str
    """Short name of what was decided; `other` for texts that no rule knows."""
    line: int | None
    """Line in the kernel file; null where the pass does not say, or speaks of Triton's own library."""
    category: str
    """`remark`, or the debug category of the pass."""
    message: str
    """The compiler's own words, shortened."""
    meaning: str | None
    """What that means for the kernel, and what changes it."""
    count: int = 1
    """How often it was said of the same place."""


class _Rule(NamedTuple):
    pattern: re.Pattern[str]
    id: str
    meaning: str


def _rule(pattern: str, id: str, meaning: str) -> _Rule:
    return _Rule(re.compile(pattern), id, meaning)


# In order of weight: what costs most comes first.
RULES: Final = (
    _rule(r"MMA version 3 acceleration not applied", "wgmma-rejected",
          "This dot does not use Hopper's wgmma: it needs num_warps a multiple of 4, M of at least 64, N a multiple "
          "of 8 (of 16 with Triton 3.5 to 3.7), and operands of 16 or 8 bits (or fp32 as tf32)."),
    _rule(r"failed to partition the function into warp-specialized code", "warp-specialization-failed",
          "The loop was left without warp specialization."),
    _rule(r"partition not possible|Partition not available", "data-partition-failed",
          "The tile can't be divided between consumer warp groups: M of at least 128 is needed."),
    _rule(r"is too small for pipelining", "load-too-narrow-to-pipeline",
          "cp.async moves at least 4 bytes a thread: the load's addresses or its mask are not known to be divisible by "
          "16, or its fast dimension is not contiguous. It waits for its data in each iteration."),
    _rule(r"[Pp]ipelining load that cannot use vectorized", "pipelined-through-registers",
          "The copy to shared memory goes through registers, since it can't be made 4 bytes wide."),
    _rule(r"[Pp]ipelining load with different use encodings", "load-with-two-layouts",
          "Its consumers want different layouts: load it twice, or compute one result from the other."),
    _rule(r"cannot have shared encoding", "load-not-for-shared-memory",
          "Its consumers can't read it from shared memory, so it is not pipelined."),
    _rule(r"has multiple uses at different distances", "load-used-at-two-distances",
          "It is used at different depths of loads that depend on each other, and is not pipelined."),
    _rule(r"vectorization fails vec = (\d+) origin vec = (\d+)", "narrow-access",
          "Moves one element at a time: contiguity or divisibility of the address, or of the mask's limit, can't be "
          "proved."),
    _rule(r"vectorization fails vec = \d+ packed", "narrow-atomic", "The atomics are done one element at a time."),
    _rule(r"Can't make dot async because shmem operands aren't multi-buffered", "dot-waits-for-operands",
          "The dot's operands have one buffer each, so each dot waits: its loads are not pipelined, or num_stages is "
          "1."),
    _rule(r"Can't make dot async because dot is unconditionally used", "dot-result-used-in-loop",
          "The result is used in the same iteration, so the next dot can't overlap: move that work behind the loop."),
    _rule(r"Can't make dot async because its result from i-1", "accumulator-changed-in-loop",
          "The accumulator is changed between two dots, by scaling for example: each waits for the one before."),
    _rule(r"Can't make dot async because the accumulator is not fp32", "accumulator-not-fp32",
          "Dots overlap only where they accumulate in fp32."),
    _rule(r"Can't make dot async because dot is used by multiple ops", "dot-used-twice",
          "The result has several uses in the loop, so each dot waits."),
    _rule(r"No properly async dots", "no-async-dot", "No dot of the loop overlaps with anything."),
    _rule(r"Forcing a different order", "operand-order-forced",
          "An operand's layout in shared memory is changed: transposed operands of 8-bit or tf32 types cost that."),
    _rule(r"operation scheduled before its operands", "schedule-broken",
          "The loop can't be pipelined as it is written."),
    _rule(r"capturing tensor values into warp partitions", "tensor-captured",
          "Values in registers cross from one warp group to another, through shared memory."),
    _rule(r"descriptor block and tensor (?:types must match|must have the same number)", "descriptor-type-mismatch",
          "The store through the descriptor is split."),
)  # fmt: skip
_UNINTERESTING = re.compile(
    r"has width|considered for pipelining|[Ss]chedule|Original loop|Considering whether|^\s*$|properly async(?! dots)"
)


def parse(lines: Iterable[str], kernel_file: str) -> list[Remark]:
    """Decisions, those that cost most first; the same one of the same place once.

    Args:
        lines: what the compiler said.
        kernel_file: the end of the path that it names for the kernel file.
    """
    found: dict[tuple[str, int | None, str], Remark] = {}
    for line in lines:
        remark = _remark(line, kernel_file)
        if remark is None:
            continue
        key = remark.id, remark.line, remark.message if remark.line is None or remark.id == "other" else ""
        if key in found:
            remark = found[key].model_copy(update={"count": found[key].count + 1})
        found[key] = remark
    order = {rule.id: place for place, rule in enumerate(RULES)}
    ranked = sorted(found.values(), key=lambda one: (order.get(one.id, len(order)), one.line or 0))
    return ranked[:SHOWN]


def _remark(text: str, kernel_file: str) -> Remark | None:
    if (match := _REMARK.fullmatch(text)) is not None:
        line = int(match["line"]) if match["file"].endswith(kernel_file) else None
        category, message = "remark", match["message"]
    elif (match := _DEBUG.fullmatch(text)) is not None:
        line, category, message = None, match["category"], match["message"]
    else:
        return None
    rule = next((rule for rule in RULES if rule.pattern.search(message)), None)
    if rule is None and (category != "remark" or _UNINTERESTING.search(message)):
        return None
    return Remark(
        id=rule.id if rule else "other",
        line=line,
        category=category,
        message=_shortened(message),
        meaning=rule.meaning if rule else None,
    )


def _shortened(message: str) -> str:
    """The words, and of an operation that is printed only its name and tile."""
    start, separator, rest = message.partition(" = ")
    if separator and (tile := _TILE.search(rest)) is not None:
        operation = rest.split(" ", 1)[0]
        words = rest.rpartition("> ")[2] if "> " in rest else ""
        message = f"{start.rpartition(' ')[0]} {operation} of {tile[1]}{tile[2]} {words}"
    return facts.line(" ".join(message.split()))[:MESSAGE_CHARACTERS]
