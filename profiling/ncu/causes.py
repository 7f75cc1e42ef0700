"""What limits a launch, told from its profile: named causes with their numbers, roots before symptoms.

Thresholds are those of Nsight Compute 2025.3.1's rules where one is named, else our own. What was not counted is
unknown, and a rule that lacks a number stays silent. Where a roof is reached, what leaves warps waiting costs nothing
and is not told; but a cache that is busy with wasted sectors is no roof.
"""

from collections.abc import Sequence
from typing import Final

from ..hardware.ceilings import Ceilings
from ..roofline import Work
from . import waits, waste
from .cause import Cause, Facts, Rule
from .hotspots import Hotspot
from .model import LaunchProfile
from .roofs import ROOFS

CAUSES_SHOWN: Final = 4

_WASTE: Final[tuple[Rule, ...]] = (
    waste.extra_traffic,
    waste.spills,
    waste.uncoalesced_loads,
    waste.uncoalesced_stores,
)
_BADLY_USED: Final[tuple[Rule, ...]] = (waste.wrong_mma, waste.no_tensor_core, waste.bank_conflicts)
"""Of no matter where device memory is the limit."""
_WAITING: Final[tuple[Rule, ...]] = (
    waits.tiny_block,
    waits.small_grid,
    waits.occupancy,
    waits.tail,
    waits.imbalance,
    waits.stall,
    waits.latency_bound,
)
_FILLED_BY_WASTE: Final = frozenset({"l2_bound", "l1_bound", "pipe_bound", "issue_bound"})
_FILLING: Final = frozenset({"spills", "uncoalesced_loads", "uncoalesced_stores"})
_UNEVEN: Final = frozenset({"small_grid", "tail"})


def causes(
    profile: LaunchProfile,
    hotspots_lines: Sequence[Hotspot] | None = None,
    ceilings: Ceilings | None = None,
    work: Work | None = None,
) -> list[Cause]:
    """Names what limits the launch: at most four causes, the one to look at first before the others.

    Args:
        profile: of the launch.
        hotspots_lines: its hottest lines, to name where a cause shows.
        ceilings: of the device.
        work: least work of the launch; that of a whole call only where the launch does all of it.
    """
    facts = Facts(profile, hotspots_lines or (), ceilings, work)
    wasted = _found(_WASTE, facts)
    roofs = [roof for roof in (rule(facts) for rule in ROOFS) if roof is not None]
    # The first of equals: what lies deeper.
    roof = max(roofs, key=lambda roof: (roof.reached, roof.busy_pct), default=None)
    told = [] if roof is None else [roof.cause]
    hollow = {cause.id for cause in told} <= _FILLED_BY_WASTE and not _FILLING.isdisjoint(one.id for one in wasted)
    at_limit = roof.cause.id if roof is not None and roof.reached and not hollow else None
    found = [
        *wasted,
        *([] if at_limit == "dram_bound" else _found(_BADLY_USED, facts)),
        *([] if hollow else told),
        *([] if at_limit is not None else _waiting(facts)),
        *(told if hollow else []),
    ]
    return found[:CAUSES_SHOWN]


def _waiting(facts: Facts) -> list[Cause]:
    found = _found(_WAITING, facts)
    # Few blocks leave some SMs with less to do: that is no second finding.
    uneven = any(cause.id in _UNEVEN for cause in found)
    return [cause for cause in found if not (uneven and cause.id == "imbalance")]


def _found(rules: Sequence[Rule], facts: Facts) -> list[Cause]:
    return [cause for cause in (rule(facts) for rule in rules) if cause is not None]
