"""V: accesses to global memory that are narrower than 16 bytes a thread."""

from collections.abc import Sequence
from typing import Final

from ..edits import annotated, diff
from ..facts import Facts, Need
from ..model import Level, Prediction, Rewrite
from ..narrow import evidence, narrow_accesses, needed_elements, valued, wider
from ..rule import Hit, Rule
from ..source.alignment import NOT_OF_ARGUMENTS, Reason
from ..tail_path import full_blocks_apart
from . import tiles, unaligned

_NEEDS: Final[frozenset[Need]] = frozenset({"source", "code", "lines"})
LINES_TOLD: Final = 3
_LATE: Final = frozenset({"M3", "R3"})
"""Narrow accesses have few bytes under way, so that each of them is waited for."""
_VANISHING: Final = frozenset({"P8", "R1", *_LATE})
"""Scalar accesses can't be copied ahead, and an address an element takes registers."""
_SCATTERED: Final = frozenset({"M4", "M5", *_LATE})
"""Of neighbours that lie apart each takes a sector."""
_NOT_ALIGNED: Final[frozenset[Reason]] = frozenset({"pointer", "constant"})
_FALSIFIED: Final = (
    "After the edit the access is no wider, or it is wider and the launch takes as long: then it waits for something "
    "else."
)


def _hits(
    facts: Facts,
    *reasons: Reason,
    also: Sequence[Reason] = (),
    unless: frozenset[Reason] = frozenset(),
    forgotten: bool = False,
) -> list[Hit]:
    """One hit for everything that has these reasons: one edit of the arguments repairs all of it.

    Args:
        facts: of the launch.
        reasons: to look for.
        also: what has to be repaired with it on the same accesses, or nothing gets wider.
        unless: what keeps an access narrow all the same, so that the edit would be in vain.
        forgotten: whether the arguments are those that `do_not_specialize` names.
    """
    found = [
        (narrow, obstacle)
        for narrow in narrow_accesses(facts)
        for obstacle in narrow.obstacles
        if unless.isdisjoint(each.reason for each in narrow.obstacles)
        and obstacle.reason in reasons
        and _unspecialized(facts, obstacle.arguments) is forgotten
    ]
    if not found:
        return []
    # What is executed often first: loops before the rest, and what a branch may leave out last.
    found.sort(key=lambda each: (bool(each[0].access.place.branches), not each[0].in_loop, each[0].width_bytes))
    names = dict.fromkeys(name for _, obstacle in found for name in obstacle.arguments)
    for narrow, _ in found:
        names |= dict.fromkeys(name for each in narrow.obstacles if each.reason in also for name in each.arguments)
    first, told = found[0][0].access.line, evidence(facts, *found[0])
    lines = {first}
    for each, what in found[1:]:
        if each.access.line not in lines and len(lines) < LINES_TOLD:
            lines.add(each.access.line)
            told += evidence(facts, each, what)[1:2]
    return [Hit(tuple(told), first, tuple(names))]


def _unspecialized(facts: Facts, names: Sequence[str]) -> bool:
    return facts.source is not None and any(name in facts.source.function.unspecialized for name in names)


def _wider(facts: Facts, hit: Hit) -> list[Prediction]:
    return wider(facts, hit.line)


def _constants(facts: Facts, hit: Hit, *, aligned: bool = True) -> tuple[str | None, str | None]:
    """The diff that makes arguments constants: right whatever they are, of use if they are `aligned`."""
    if facts.file is None or facts.source is None or not hit.subject:
        return None, "the arguments are not the kernel's own"
    if any(name in facts.source.function.unspecialized for name in hit.subject):
        return None, "they are excluded from specialization: see V5"
    needed = needed_elements(facts, hit.line) if aligned else 1
    odd = [name for name in hit.subject if facts.captured.integers.get(name, 0) % needed]
    if odd:
        return None, f"a constant does not help at this launch's {valued(facts, odd)}: pad to a multiple"
    if facts.source.changes(hit.subject):
        return None, "the kernel assigns to the argument, or calls its methods: a constant has none"
    edits = annotated(facts.source.function, hit.subject)
    return (diff(facts.file, edits), None) if edits else (None, "the arguments are not the kernel's own")


def _named(facts: Facts, hit: Hit) -> str:
    return " and ".join(f"`{name}`" + (f" ({shown})" if shown != name else "") for name, shown in _values(facts, hit))


def _values(facts: Facts, hit: Hit) -> list[tuple[str, str]]:
    return [(name, valued(facts, [name])) for name in hit.subject]


def _explain_offset(facts: Facts, hit: Hit) -> str:
    names = _named(facts, hit)
    return (
        f"tritongpu-coalesce: a thread's elements must begin at a multiple of their width, and {names} "
        f"{'is' if len(hit.subject) == 1 else 'are'} not known to be divisible: the launcher tells the compiler "
        f"only of "
        "values divisible by 16, and this launch's is not. tl.multiple_of or tl.assume on an argument has no effect."
    )


def _rewrite_offset(facts: Facts, hit: Hit) -> Rewrite:
    edit, why = _constants(facts, hit)
    needed, name = needed_elements(facts, hit.line), (hit.subject or ("stride",))[0]
    return Rewrite(
        recipe=f"If every caller's {name} is divisible by {needed}, say so in the kernel: `{name} = ({name} // "
        f"{needed}) * {needed}`, and assert it on the host. Else make it tl.constexpr (one compilation a value; helps "
        f"where the value is divisible by {needed}), or pad the rows to a multiple of {needed} elements.",
        applies_if=f"{' and '.join(hit.subject) or name} divisible by {needed}",
        diff=edit,
        no_diff=why if edit is None else None,
    )


def _explain_limit(facts: Facts, hit: Hit) -> str:
    names = _named(facts, hit)
    return (
        f"The lowering of loads and stores takes the mask's constancy into account: with {names} not divisible by "
        f"16 the "
        "mask may change between any two neighbours, so each element is moved by itself."
    )


def _rewrite_limit(facts: Facts, hit: Hit) -> Rewrite:
    needed, name = needed_elements(facts, hit.line), (hit.subject or ("n",))[0]
    access = next((one.access for one in narrow_accesses(facts) if one.access.line == hit.line), None)
    apart = None
    if facts.file is not None and facts.source is not None and access is not None:
        apart = full_blocks_apart(facts.file, facts.source, access)
    if apart is not None:
        return Rewrite(
            recipe="Give full blocks a path without a mask; only the last block takes the masked one.",
            diff=apart,
        )
    edit, why = _constants(facts, hit)
    return Rewrite(
        recipe=f"If every caller's {name} is divisible by {needed}, say so: `{name} = ({name} // {needed}) * "
        f"{needed}`, and assert it on the host; or make it tl.constexpr; or pad; or split the loop into full steps "
        "without a mask and one masked step.",
        applies_if=f"{' and '.join(hit.subject) or name} divisible by {needed}",
        diff=edit,
        no_diff=why if edit is None else None,
    )


V1: Final = Rule(
    id="V1",
    name="An argument in the address is not divisible by 16",
    example="x = tl.load(x_ptr + row * stride + i)\n->\n"
    "stride = (stride // 8) * 8   # the host asserts stride % 8 == 0\nx = tl.load(x_ptr + row * stride + i)",
    level=Level.CODE,
    needs=_NEEDS,
    weight=86,
    detect=lambda facts: _hits(facts, "offset", also=("limit", "division"), unless=NOT_OF_ARGUMENTS | _NOT_ALIGNED),
    explain=_explain_offset,
    rewrite=_rewrite_offset,
    predicts=_wider,
    falsified_by=_FALSIFIED,
    risks=("rounding an argument that is not divisible moves the wrong elements: assert it on the host",),
    explains=_VANISHING | _SCATTERED,
    explains_here=frozenset({"V2"}),
)
V2: Final = Rule(
    id="V2",
    name="The mask's limit is not divisible by 16",
    example="tl.store(y + i, f(tl.load(x + i, mask=i < n)), mask=i < n)\n->\nif pid * BLOCK + BLOCK <= n:\n"
    "    tl.store(y + i, f(tl.load(x + i)))\nelse:\n    tl.store(y + i, f(tl.load(x + i, mask=i < n)), mask=i < n)",
    level=Level.CODE,
    needs=_NEEDS,
    weight=85,
    detect=lambda facts: _hits(facts, "limit", unless=NOT_OF_ARGUMENTS | _NOT_ALIGNED),
    explain=_explain_limit,
    rewrite=_rewrite_limit,
    predicts=_wider,
    falsified_by=_FALSIFIED,
    risks=("rounding a limit that is not divisible leaves the last elements out",),
    explains=_VANISHING,
)
V3: Final = Rule(
    id="V3",
    name="The address does not begin at a multiple of 16 bytes",
    example="kernel[grid](x[1:], ...)\n->\nkernel[grid](x, 1, ...)   # and mask the first elements in the kernel",
    level=Level.CODE,
    needs=_NEEDS,
    weight=80,
    detect=lambda facts: _hits(facts, "pointer", "constant", unless=NOT_OF_ARGUMENTS),
    explain=lambda facts, hit: (
        "tritongpu-coalesce: the pointer's own divisibility bounds the width; a slice such as "
        "`x[1:]`, or a constant offset, begins between two 16-byte pieces."
    ),
    rewrite=lambda facts, hit: Rewrite(
        recipe="Pass the base pointer and treat the first elements by themselves, or copy the tensor to an aligned one "
        "(`.clone()`), which costs a launch.",
        no_diff="the slice is made outside the kernel",
    ),
    predicts=_wider,
    falsified_by=_FALSIFIED,
    explains=_VANISHING | _SCATTERED,
)
V4: Final = Rule(
    id="V4",
    name="Neighbouring elements lie a run-time stride apart",
    example="kernel[grid](x, x.stride(0), ...)   # stride(0) of a column\n->\nkernel[grid](x.t().contiguous(), 1, ...)",
    level=Level.CODE,
    needs=_NEEDS,
    weight=84,
    detect=lambda facts: _hits(facts, "stride"),
    explain=lambda facts, hit: (
        f"AxisInfo: the stride {_named(facts, hit)} of the fastest axis is an argument; "
        "only the value 1 is made a constant by the launcher, and this launch's is not 1."
    ),
    rewrite=lambda facts, hit: Rewrite(
        recipe="Give the kernel a tensor whose fastest axis is contiguous: choose the layout where the tensor is made, "
        "move square tiles where loads and stores run along different axes, or `.contiguous()` once if it is "
        "used often.",
        no_diff="the layout is chosen outside the kernel",
    ),
    predicts=_wider,
    falsified_by=_FALSIFIED,
    explains=_VANISHING | _SCATTERED,
    relieves="bytes",
)
V5: Final = Rule(
    id="V5",
    name="An argument in the address is excluded from specialization",
    example='@triton.jit(do_not_specialize=["stride"])\n->\n@triton.jit',
    level=Level.CODE,
    needs=_NEEDS,
    weight=88,
    detect=lambda facts: _hits(facts, "offset", "stride", "limit", unless=NOT_OF_ARGUMENTS, forgotten=True),
    explain=lambda facts, hit: (
        f"`do_not_specialize` names `{' and '.join(hit.subject)}`: the compiler learns neither "
        "that it is 1 nor that it is divisible by 16."
    ),
    rewrite=lambda facts, hit: Rewrite(
        recipe="Let strides and sizes that reach an address be specialized; exclude only counters and seeds.",
        no_diff="other arguments may be excluded on purpose",
    ),
    predicts=_wider,
    falsified_by=_FALSIFIED,
    risks=("none to results; one compilation for each class of values",),
    explains=frozenset({"V1", "V2", "V4", *_VANISHING, *_SCATTERED}),
    relieves="bytes",
)
V8: Final = Rule(
    id="V8",
    name="Gather: the address of each element is loaded",
    example="tl.load(x + tl.load(index + i))\n->\nrow = tl.load(index + pid)\ntl.load(x + row * BLOCK + i)",
    level=Level.CODE,
    needs=_NEEDS,
    weight=60,
    detect=lambda facts: _hits(facts, "gather"),
    explain=lambda facts, hit: (
        "AxisInfo knows nothing of values that come from memory, so every element is fetched by "
        "itself, each perhaps a sector of 32 bytes."
    ),
    rewrite=lambda facts, hit: Rewrite(
        recipe="Load one index for a contiguous run of elements (a row) instead of one for each; sort the indices so "
        "that neighbours share sectors. Where the data is what it is, this is the price of a gather.",
        no_diff="the data's layout decides",
    ),
    predicts=_wider,
    falsified_by="Sectors per request of the profile are near their ideal: the indices are neighbours already.",
    explains=_SCATTERED,
)
V9: Final = Rule(
    id="V9",
    name="Neighbouring elements lie a constant stride apart",
    example="a, b = tl.load(x + 2 * i), tl.load(x + 2 * i + 1)\n->\n"
    "a, b = tl.split(tl.reshape(tl.load(x + tl.arange(0, 2 * BLOCK)), (BLOCK, 2)))",
    level=Level.CODE,
    needs=_NEEDS,
    weight=82,
    detect=lambda facts: _hits(facts, "pairs"),
    explain=lambda facts, hit: (
        "tritongpu-coalesce: neighbours lie a constant stride above 1 apart, so the contiguity is "
        "1; each access uses a part of every sector."
    ),
    rewrite=lambda facts, hit: Rewrite(
        recipe="Of pairs, load the whole run at once and part it in registers: tl.reshape to (BLOCK, 2) and "
        "tl.split; tl.join or "
        "tl.interleave to store. Of longer strides, exchange the axes of the tile or of the tensor.",
        no_diff="loads and stores have to change together",
    ),
    predicts=_wider,
    falsified_by=_FALSIFIED,
    explains=_SCATTERED,
    relieves="bytes",
)
V10: Final = Rule(
    id="V10",
    name="The offset is divided by an argument",
    example="row, column = i // n, i % n\n->\nrow, column = tl.program_id(0), tl.arange(0, BLOCK)",
    level=Level.CODE,
    needs=_NEEDS,
    weight=78,
    detect=lambda facts: _hits(facts, "division"),
    explain=lambda facts, hit: (
        f"AxisInfo keeps of a division by `{' and '.join(hit.subject)}` only what its divisor is "
        "divisible by, and the division itself takes some 20 instructions an element."
    ),
    rewrite=lambda facts, hit: Rewrite(
        recipe="Make the divisor tl.constexpr, or use one axis of the grid or of the tile for each index.",
        diff=_constants(facts, hit, aligned=False)[0],
        no_diff=_constants(facts, hit, aligned=False)[1],
        applies_if="the divisor takes few values: each is one compilation",
    ),
    predicts=lambda facts, hit: [
        Prediction(fact="ptx.integer_division", now=facts.count("integer_division"), expected="falls")
    ],
    falsified_by=_FALSIFIED,
    explains=_VANISHING | _SCATTERED,
    explains_here=frozenset({"V13"}),
)

RULES: Final = (tiles.V15, V5, V1, V2, V4, V3, V9, V10, tiles.V7, tiles.V6, V8, tiles.V12, tiles.V14, unaligned.V13)
DROPPED: Final[dict[str, str]] = {
    "V11": "never a finding: tritongpu-coalesce orders each access by its own contiguity, so that a tile whose fast "
    "axis comes first is moved 16 bytes a thread as well; what is left of it is told as L1, V4 or V12.",
}
"""Entries of the family that have no rule, and why."""
