"""Accesses that are narrower than their tile would let them be, each with what the source says of the reason."""

import re
from collections.abc import Sequence
from math import prod
from typing import Final, NamedTuple

from ..compiler.occupancy import WARP_THREADS
from ..compiler.ttgir_lines import TtgirSite
from .expressions import unit_axis
from .facts import Facts
from .model import Evidence, Level, Prediction
from .rule import seen
from .source.alignment import OF_MASK, WIDTH_BYTES, Obstacle, mask_of, obstacles
from .source.kernel import Access

_POINTERS: Final = re.compile(r"tensor<((?:\d{1,9}x){1,8})!tt\.ptr<[a-z]{1,5}(\d{1,3})")
_REMARK: Final = re.compile(r"origin vec = (\d{1,5}) .{0,40}mask is (-?\d{1,5})")
"""Elements that the address alone would let a thread move at once, and those of which the mask is the same (-1: there
is none), in Triton's `LoadStoreOpToLLVM`."""
_MOVES: Final = {"load": ("load", "async_copy"), "store": ("store",)}


class Narrow(NamedTuple):
    """One access of the source that the compiler made narrow."""

    access: Access
    width_bytes: int
    possible_bytes: int
    """That a thread could move at once: its share of the tile, 16 at most."""
    instructions: int
    element_bytes: int
    in_loop: bool
    run_elements: int | None
    """Elements of the tile that lie side by side, by its shape; None where the source doesn't tell the axis."""
    obstacles: tuple[Obstacle, ...]


class Tile(NamedTuple):
    """What one operation moves."""

    shape: tuple[int, ...]
    element_bytes: int

    @property
    def elements(self) -> int:
        return prod(self.shape)


def narrow_accesses(facts: Facts) -> list[Narrow]:
    """Those of the kernel's own lines. Cold tails of a kernel that has a wide path are none."""
    if facts.source is None or facts.lines is None or facts.launch is None:
        return []
    found: list[Narrow] = []
    for access in facts.source.accesses:
        if access.kind == "atomic" or access.pointer is None:
            continue
        one = _narrow(facts, access)
        if one is not None and not _cold_tail(facts, access):
            found.append(one)
    return found


def valued(facts: Facts, names: Sequence[str]) -> str:
    """Arguments with what the launch hands over: `stride = 1000`."""
    integers = facts.captured.integers
    return ", ".join(f"{name} = {integers[name]}" if name in integers else name for name in names)


def _why(facts: Facts, narrow: Narrow, obstacle: Obstacle) -> str:
    kind, text = narrow.access.kind, f"`{obstacle.text}`"
    match obstacle.reason:
        case "start":
            return f"the {kind}'s address has a part that is not known to be aligned: {text}"
        case "bound":
            return f"the {kind}'s mask ends where it is not known to be aligned: {text}"
        case "mask":
            return f"the {kind}'s mask may differ between any two neighbours: {text}"
        case _:
            about = valued(facts, obstacle.arguments)
            return f"the {kind} depends on {text}" + (f" ({about})" if about else "")


def evidence(facts: Facts, narrow: Narrow, *found: Obstacle) -> list[Evidence]:
    """Level by level: the source, the instructions, and the compiler's remark."""
    line = narrow.access.line
    told = [seen(Level.SOURCE, _why(facts, narrow, obstacle), line) for obstacle in found]
    kind = narrow.access.kind
    told.append(
        seen(
            Level.CODE,
            f"{narrow.instructions} {kind} instructions of {narrow.width_bytes} bytes a thread"
            f"{' in a loop' if narrow.in_loop else ''}, where the tile has enough for {narrow.possible_bytes}",
            line,
            f"launch.{kind}_widths_bytes.min",
            narrow.width_bytes,
        )
    )
    remark = facts.said("narrow-access", line)
    if remark is not None:
        told.append(seen(Level.COMPILER, f"compiler: {remark.message}", line, "remark.narrow-access"))
    return told


def needed_elements(facts: Facts, line: int | None) -> int:
    """Elements that 16 bytes have, of a line's access."""
    found = [one.element_bytes for one in narrow_accesses(facts) if one.access.line == line]
    return WIDTH_BYTES // min(found) if found else 8


def wider(facts: Facts, line: int | None) -> list[Prediction]:
    """How the widths of a line's accesses change, if they become what their tiles let them be."""
    found = [one for one in narrow_accesses(facts) if one.access.line == line]
    kinds = dict.fromkeys(one.access.kind for one in found)
    predicted = [
        Prediction(
            fact=f"launch.{kind}_widths_bytes.max",
            now=max(widths),
            expected="becomes",
            to=max(one.possible_bytes for one in found if one.access.kind == kind),
        )
        for kind in kinds
        if facts.launch is not None
        and (widths := facts.launch.load_widths_bytes if kind == "load" else facts.launch.store_widths_bytes)
        and max(widths) < 16
    ]
    if not predicted and facts.launch is not None and facts.launch.load_widths_bytes:
        now = min(facts.launch.load_widths_bytes)
        predicted = [Prediction(fact="launch.load_widths_bytes.min", now=now, expected="rises")]
    return predicted


def _narrow(facts: Facts, access: Access) -> Narrow | None:
    assert facts.launch is not None
    line = access.line
    tiles = [tile for site in facts.operations_at(line) if (tile := tile_of(site, access.kind))]
    sites = [site for site in facts.instructions_at(line) if site.kind in _MOVES[access.kind] and site.width_bytes]
    own = {bytes for bytes in (_element_bytes(facts, access),) if bytes is not None}
    fitting = [tile for tile in tiles if not own or tile.element_bytes in own]
    if not fitting or not sites:
        return None
    tile = max(fitting, key=lambda one: (one.elements, one.element_bytes))
    element_bytes, axis = tile.element_bytes, unit_axis(access.address)
    possible = tile.elements * element_bytes // (facts.launch.num_warps * WARP_THREADS)
    possible = min(1 << max(possible.bit_length() - 1, 0), WIDTH_BYTES)
    width = min(site.width_bytes or WIDTH_BYTES for site in sites)
    if width >= possible or width < element_bytes:
        return None
    narrowest = [site for site in sites if site.width_bytes == width]
    return Narrow(
        access=access,
        width_bytes=width,
        possible_bytes=possible,
        instructions=sum(site.count for site in narrowest),
        element_bytes=element_bytes,
        in_loop=any(site.in_loop for site in narrowest),
        run_elements=tile.shape[axis[0]] if axis is not None and axis[1] == len(tile.shape) else None,
        obstacles=tuple(_blamed(facts, access, obstacles(access, element_bytes), possible // element_bytes)),
    )


def _blamed(facts: Facts, access: Access, found: list[Obstacle], wanted: int) -> list[Obstacle]:
    """Those of the mask alone, where the compiler says of the line's only access that the address is fine.

    The other way round it tells nothing: of a poor address the layout may run along another axis than the mask.
    """
    assert facts.source is not None
    remark = facts.said("narrow-access", access.line)
    said = _REMARK.search(remark.message) if remark is not None else None
    if said is None or sum(each.line == access.line for each in facts.source.accesses) > 1:
        return found
    by_address, by_mask = int(said[1]), int(said[2])
    if by_address < wanted or by_mask == -1:
        return found
    of_mask = [each for each in found if each.reason in OF_MASK]
    return of_mask or [Obstacle("mask", (), mask_of(access))]


def tile_of(site: TtgirSite, kind: str) -> Tile | None:
    """The tile of pointers that an operation of a kind goes through; None where it has one address."""
    match = _POINTERS.search(site.detail) if site.kind == kind else None
    if match is None:
        return None
    shape = tuple(int(size) for size in match[1].rstrip("x").split("x"))
    return Tile(shape, max(int(match[2]) // 8, 1))


def _element_bytes(facts: Facts, access: Access) -> int | None:
    """By the argument's type, such as `*fp16`."""
    kind = facts.captured.signature.get(access.pointer or "", "")
    bits = re.match(r"\*[a-z]{1,4}(\d{1,2})", kind)
    return max(int(bits[1]) // 8, 1) if bits else None


def _cold_tail(facts: Facts, access: Access) -> bool:
    """Whether the other side of a branch around it makes the same access wide."""
    assert facts.source is not None
    for branch in access.place.branches:
        for other in facts.source.accesses:
            if other.kind != access.kind or other.pointer != access.pointer or other.line == access.line:
                continue
            opposite = any(each.node is branch.node and each.other != branch.other for each in other.place.branches)
            if opposite and _narrow(facts, other) is None:
                return True
    return False
