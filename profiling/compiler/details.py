"""Compiler facts by Python line: complete tables for an artifact, and the few places that matter most."""

import re
from typing import Final

from ...sandbox.wire import Wire
from . import ptx_lines, ttgir_lines
from .ptx_lines import PtxSite
from .remarks import Remark
from .sass_facts import SassSite
from .ttgir_lines import TtgirSite

PLACES_LIMIT: Final = 12
BEST_WIDTH_BYTES: Final = 16
"""The widest access that a thread makes by one instruction up to Hopper (PTX ISA, `ld`)."""

_TENSOR = re.compile(r"tensor<((?:\d{1,9}x){1,9})(!tt\.ptr<)?(\w{1,20})>?(?:, (#\w{1,40})(?![.\w]))?")


class Place(Wire):
    """Something on a line of the kernel file that may cost time."""

    line: int
    what: str
    """Short name, such as `load-waits-beside-dot` or `narrow-load`."""
    detail: str


class LaunchDetails(Wire):
    """What the compiler made of each line of one kernel."""

    places: list[Place]
    """At most 12, what costs most first."""
    ptx: list[PtxSite]
    ttgir: list[TtgirSite]
    sass: list[SassSite] = []
    """Machine code, where it was asked for."""
    remarks: list[Remark] = []
    """What the compiler's passes said, where they were asked."""


def details(ptx: str, ttgir: str) -> LaunchDetails:
    """Reads both texts of one kernel. Neither is trusted: this takes time linear in their lengths and raises nothing.

    Args:
        ptx: with `.loc` directives, as Triton writes them unless `TRITON_DISABLE_LINE_INFO` is set.
        ttgir: with locations, which Triton writes by default.
    """
    instructions, operations = ptx_lines.sites(ptx), ttgir_lines.sites(ttgir)
    # By weight: the loop's work first, then what is done once.
    ranked = [place for site in operations if (place := _of_operation(site))]
    ranked += _of_instructions(instructions, pipelined=_pipelined(instructions))
    ranked.sort(key=lambda found: -found[0])
    places = list(dict.fromkeys(place for _, place in ranked))
    return LaunchDetails(places=places[:PLACES_LIMIT], ptx=instructions, ttgir=operations)


def _of_operation(site: TtgirSite) -> tuple[int, Place] | None:
    if site.line is None:
        return None
    if site.waits_beside_dot:
        return 100, Place(line=site.line, what="load-waits-beside-dot", detail=shortened(site.detail))
    if site.through_memory and site.in_loop:
        return 90, Place(line=site.line, what="layout-conversion-in-loop", detail=shortened(site.detail))
    if site.kind == "reduction" and site.in_loop:
        return 40, Place(line=site.line, what="reduction-in-loop", detail=shortened(site.detail) or site.operation)
    return None


def shortened(types: str) -> str:
    """Types of operations in short: `64x32 f16 pointers` for `tensor<64x32x!tt.ptr<f16>, #blocked1>`."""
    if not (found := list(_TENSOR.finditer(types))):
        return types
    named = (
        f"{match[1].rstrip('x')} {match[3]}{' pointers' if match[2] else ''}"
        + (f" {match[4]}" if "->" in types and match[4] else "")
        for match in found
    )
    return (" to " if "->" in types else ", ").join(dict.fromkeys(named))


def _pipelined(sites: list[PtxSite]) -> bool:
    """Whether asynchronous copies feed matrix instructions in a loop: each iteration then needs its barriers."""
    kinds = {site.kind for site in sites if site.in_loop}
    return "mma" in kinds and not kinds.isdisjoint({"async_copy", "tma_copy"})


def _of_instructions(sites: list[PtxSite], *, pipelined: bool) -> list[tuple[int, Place]]:
    found: list[tuple[int, Place]] = []
    barriers: dict[int, int] = {}
    for site in sites:
        if site.line is None:
            continue
        looped = 20 if site.in_loop else 0
        detail = f"{site.count} x {site.instruction}" + (" in a loop" if site.in_loop else "")
        if site.kind in ("load", "store", "async_copy") and site.width_bytes and site.width_bytes < BEST_WIDTH_BYTES:
            # A single access, such as a program's scalar, costs little.
            weight = (60 if site.count > 1 or site.in_loop else 10) + looped - site.width_bytes
            kind = site.kind.replace("_", "-")
            found.append(
                (weight, Place(line=site.line, what=f"narrow-{kind}", detail=f"{detail}, {site.width_bytes} B"))
            )
        elif site.kind == "atomic" and site.semantics != "relaxed":
            found.append(
                (65 + looped, Place(line=site.line, what=f"{site.semantics}-atomic".replace("_", "-"), detail=detail))
            )
        elif site.kind == "barrier" and site.in_loop and not pipelined:
            barriers[site.line] = barriers.get(site.line, 0) + site.count
    found += [
        (50, Place(line=line, what="barrier-in-loop", detail=f"{count} x bar.sync")) for line, count in barriers.items()
    ]
    return found
