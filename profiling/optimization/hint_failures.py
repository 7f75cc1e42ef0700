"""Advice for candidates that fail: what to mend, from the problem and from what their parent compiles to.

To add one, declare a `HintRule` in `FAILURES`.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

from ...sandbox.outcome import Kind
from ..compiler.launch import LaunchFacts
from .hint_context import Seen, kib, named, settings, tile
from .hint_rule import FAILED, HintRule, Values
from .model import BASELINE

_RESOURCE: Final = re.compile(r"out of resource: ([\w ]+?), Required: (\d+), Hardware limit: (\d+)")
_EDGE: Final = re.compile(r"(dimension \d+) (?:only )?(at [^,;()]+?) ?\((?:the last tile|the end)")
"""Of the comparison's message: wrong elements that lie at the end of a dimension."""
_FEW: Final = 2
"""Failures of one kind from which it is time to begin elsewhere."""


def _required(seen: Seen, resource: str) -> tuple[int, int] | None:
    """What a launch asked for and what a block may have, of a resource that ran out."""
    found = None if seen.problem is None else _RESOURCE.search(seen.problem.message)
    return (int(found[2]), int(found[3])) if found and found[1] == resource else None


def _own_launch(seen: Seen, shared_bytes: int) -> LaunchFacts | None:
    """The attempt's launch that asked for so much, where it was compiled."""
    return next((one.facts for one in seen.evidence.launches if one.facts.shared_bytes == shared_bytes), None)


def _too_many_stages(seen: Seen) -> Values | None:
    """Its own pipeline is known: how many stages fit."""
    asked = _required(seen, "shared memory")
    facts = None if asked is None else _own_launch(seen, asked[0])
    if asked is None or facts is None or facts.pipeline_buffers < 2:
        return None
    required, limit = asked
    each = _buffer_bytes(facts)
    over = -(-(required - limit) // each)
    if over >= facts.pipeline_buffers or over >= facts.num_stages:
        return None
    return {
        "required": kib(required), "limit": kib(limit), "was": str(facts.num_stages),
        "fits": str(facts.num_stages - over), "saved": kib(over * each), "finding": "P2",
        "each": kib(each), "buffers": str(facts.pipeline_buffers),
    }  # fmt: skip


def _too_many_buffers(seen: Seen) -> Values | None:
    """Only its parent was compiled: what it asks for is a whole number of the parent's buffers."""
    asked = _required(seen, "shared memory")
    if asked is None or _own_launch(seen, asked[0]) is not None:
        return None
    required, limit = asked
    for launch in () if seen.parent is None else seen.parent.launches:
        facts = launch.facts
        if facts.pipeline_buffers < 1:
            continue
        each = _buffer_bytes(facts)
        if required % each == 0 and required // each > facts.pipeline_buffers and limit // each > 0:
            more = limit // each - facts.pipeline_buffers
            return {
                "required": kib(required), "limit": kib(limit), "each": kib(each), "asked": str(required // each),
                "fits": str(limit // each), "stages": str(facts.num_stages + more), "finding": "P2",
                "parent": named(seen.parent_number), "parents": str(facts.num_stages),
            }  # fmt: skip
    return None


def _too_much_shared_memory(seen: Seen) -> Values | None:
    asked = _required(seen, "shared memory")
    if asked is None:
        return None
    parents = () if seen.parent is None else seen.parent.launches
    largest = max((one.facts for one in parents), key=lambda facts: facts.shared_bytes, default=None)
    its = "" if largest is None else (
        f"{named(seen.parent_number)}: {kib(largest.shared_bytes)} at num_stages={largest.num_stages}, "
        f"tile {tile(largest)}"
    )  # fmt: skip
    return {
        "required": kib(asked[0]), "limit": kib(asked[1]), "factor": f"{asked[0] / asked[1]:.3g}", "its": its,
        "finding": "P2",
    }  # fmt: skip


def _buffer_bytes(facts: LaunchFacts) -> int:
    """One buffer of the pipeline: the operands of its dot where all buffers can hold them, else an equal part of
    the shared memory."""
    looped = [dot for dot in facts.dots if dot.in_loop]
    if len(looped) == 1:
        dot = looped[0]
        bits = dot.batch * dot.k * (dot.m * _bits(dot.a_dtype) + dot.n * _bits(dot.b_dtype))
        if 0 < facts.pipeline_buffers * bits // 8 <= facts.shared_bytes:
            return bits // 8
    return max(facts.shared_bytes // facts.pipeline_buffers, 1)


def _bits(dtype: str) -> int:
    """As the compiler names it: f16, bf16, f8E4M3FN, i8."""
    found = re.search(r"\d+", dtype)
    return int(found[0]) if found else 0


def _too_many_threads(seen: Seen) -> Values | None:
    asked = _required(seen, "threads")
    if asked is None:
        return None
    return {"required": str(asked[0]), "limit": str(asked[1]), "factor": str(-(-asked[0] // asked[1]))}


def _compile_error(seen: Seen) -> Values | None:
    problem = seen.problem
    if seen.evidence.kind is not Kind.COMPILE_ERROR or problem is None:
        return None
    return {
        "where": "" if problem.line is None else f" at line {problem.line}",
        "message": problem.message.strip().splitlines()[0] if problem.message.strip() else "no message",
        "fix": problem.likely_fix or "Mend what the message names; the parent compiles, so it lies in this edit.",
        "line": "" if problem.excerpt is None else _excerpt(problem.excerpt, problem.line),
    }


def _excerpt(text: str, line: int | None) -> str:
    """The line at fault out of its neighbours."""
    marked = [each for each in text.splitlines() if line is not None and re.match(rf"\W*{line}\b", each)]
    return (marked or text.strip().splitlines())[0].strip()


def _message(seen: Seen) -> str:
    return "" if seen.problem is None else seen.problem.message


def _wrong_at_an_edge(seen: Seen) -> Values | None:
    found = _EDGE.search(_message(seen)) if seen.evidence.kind is Kind.WRONG else None
    if found is None:
        return None
    tiles = [pair for pair in seen.beside.pairs if tile(pair.before) != tile(pair.after)]
    changed = settings(tiles[0].before, tiles[0].after)["tiling"] if tiles else ""
    return {
        "place": f"{found[1]} {found[2]}", "changed": changed, "message": _message(seen),
        "tile": f": the {changed.split(' -> ')[0]} became {changed.split(' -> ')[1]}" if changed else "",
    }  # fmt: skip


def _wrong_precision(seen: Seen) -> Values | None:
    """Operands or sums of another type than the parent's."""
    if seen.evidence.kind is not Kind.WRONG:
        return None
    for pair in seen.beside.pairs:
        for before, after in zip(pair.before.dots, pair.after.dots, strict=False):
            for what, was, now in (
                ("sum", before.accumulator_dtype, after.accumulator_dtype),
                ("precision", before.precision, after.precision),
                ("first operand", before.a_dtype, after.a_dtype),
                ("second operand", before.b_dtype, after.b_dtype),
            ):
                if was != now and now is not None:
                    told = was or "another"
                    return {"what": what, "was": told, "now": now, "message": _message(seen)}
    return None


def _wrong_by_race(seen: Seen) -> Values | None:
    if seen.evidence.kind is not Kind.WRONG or "two calls on the same inputs differ" not in _message(seen):
        return None
    rose = [(pair.before.atomics, pair.after.atomics) for pair in seen.beside.pairs]
    more = next((f"atomics {was} -> {now}" for was, now in rose if now > was), "")
    return {"message": _message(seen), "atomics": more}


def _wrong(seen: Seen) -> Values | None:
    if seen.evidence.kind is not Kind.WRONG:
        return None
    changed = {text for pair in seen.beside.pairs for text in settings(pair.before, pair.after).values()}
    fix = None if seen.problem is None else seen.problem.likely_fix
    return {
        "message": _message(seen) or "the results are wrong",
        "fix": fix or "Undo half of the edit and check again.",
        "changed": f"changed: {', '.join(sorted(changed))}" if changed else "",
    }


def _access_outside(seen: Seen) -> Values | None:
    text = _message(seen)
    outside = re.search(r"illegal memory access|out of bounds|misaligned address|outside of tensors", text)
    if outside is None or seen.evidence.kind is Kind.COMPILE_ERROR:
        return None
    line = None if seen.problem is None else seen.problem.line
    grids = [(pair.before.grid, pair.after.grid) for pair in seen.beside.pairs if pair.before.grid != pair.after.grid]
    return {
        "what": outside[0].capitalize(), "where": "" if line is None else f" at line {line}", "message": text,
        "grid": f"grid {_grid(grids[0][0])} -> {_grid(grids[0][1])}" if grids else "",
    }  # fmt: skip


def _grid(grid: Sequence[int]) -> str:
    return "x".join(map(str, grid))


def _other(seen: Seen) -> Values:
    """Whatever no rule above knows: the problem's own remedy."""
    problem = seen.problem
    line = None if problem is None else problem.line
    return {
        "kind": seen.evidence.kind.value.replace("_", " ").capitalize(),
        "where": "" if line is None else f" at line {line}",
        "fix": (None if problem is None else problem.likely_fix) or _way_out(seen.evidence.kind),
        "message": _message(seen),
        "cause": (None if problem is None else problem.likely_cause) or "",
    }


def _way_out(kind: Kind) -> str:
    """What to do where the problem itself does not say."""
    match kind:
        case Kind.CHEATING:
            return (
                "Take out what the message names: each call does all of its work in Triton kernels, from its arguments."
            )
        case Kind.REJECTED:
            return "Mend what the message names: nothing of the file has run."
        case _:
            return "Undo half of the edit and submit again."


def _again(seen: Seen) -> Values | None:
    """The last ones failed in the same way."""
    kinds = [one.evidence.kind for one in seen.earlier if one.evidence is not None and one.duplicate_of is None]
    row = 0
    for kind in reversed(kinds):
        if kind is not seen.evidence.kind:
            break
        row += 1
    if row < _FEW:
        return None
    seen_kinds = Counter(kind.value for kind in kinds)
    incumbent = seen.memory.incumbent
    return {
        "row": str(row + 1), "kind": seen.evidence.kind.value.replace("_", " "),
        "start": named(incumbent), "kinds": ", ".join(f"{kind} {n}" for kind, n in sorted(seen_kinds.items())),
        "edit": "one change of it" if incumbent == BASELINE else "one change of it, not the whole rewrite",
    }  # fmt: skip


FAILURES: Final[tuple[HintRule, ...]] = (
    HintRule(
        "too_many_stages", FAILED, 100, _too_many_stages,
        "shared memory {required} of {limit}: stages {was} -> {fits} saves some {saved}; keep the rest",
        ("a block asks for {required}, at most {limit}", "{buffers} pipeline buffers of {each} at num_stages={was}"),
    ),
    HintRule(
        "too_many_buffers", FAILED, 100, _too_many_buffers,
        "shared memory {required} of {limit}, as {asked} of the parent's pipeline buffers: {fits} fit, "
        "num_stages={stages} with its tile",
        ("a block asks for {required}, at most {limit}", "{parent}: {each} a buffer at num_stages={parents}"),
    ),
    HintRule(
        "shared_memory", FAILED, 100, _too_much_shared_memory,
        "shared memory {required} of {limit}: fewer stages or a smaller tile, {factor} times less in all",
        ("a block asks for {required}, at most {limit}", "{its}"),
    ),
    HintRule(
        "threads", FAILED, 100, _too_many_threads,
        "{required} threads of {limit} a block may have: divide num_warps by {factor}",
        ("threads asked for {required}, at most {limit}",),
    ),
    HintRule("compile_error", FAILED, 100, _compile_error, "does not compile{where}: {fix}", ("{message}", "{line}")),
    HintRule(
        "race", FAILED, 100, _wrong_by_race,
        "two calls differ: let one program write each element in a fixed order, or reduce in a second step instead of "
        "by atomics",
        ("{message}", "{atomics}"),
    ),
    HintRule(
        "edge", FAILED, 100, _wrong_at_an_edge,
        "wrong only in {place}: the last tile's mask or the grid{tile}; mask loads and stores with the true extent",
        ("{message}", "{changed}"),
    ),
    HintRule(
        "precision", FAILED, 100, _wrong_precision,
        "wrong since the dot's {what} went from {was} to {now}: go back to {was} there, or split off what needs it",
        ("dot {what} {was} -> {now}", "{message}"),
    ),
    HintRule(
        "access", FAILED, 100, _access_outside,
        "{what}{where}: check offsets and masks of the last programs, and 64-bit offsets where a tensor is large",
        ("{message}", "{grid}"),
    ),
    HintRule("wrong", FAILED, 100, _wrong, "wrong: {fix}", ("{message}", "{changed}")),
    HintRule("other", FAILED, 100, _other, "{kind}{where}: {fix}", ("{message}", "{cause}")),
)  # fmt: skip
"""The first that applies is told: the more special ones stand first, and the last one always does."""

REPEATED: Final = HintRule(
    "again", FAILED, 60, _again,
    "{row} in a row end in {kind}: begin at {start} with {edit}, and check it with compile_kernel and run_correctness "
    "before submitting",
    ("so far: {kinds}",),
)  # fmt: skip
