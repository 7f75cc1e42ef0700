"""One named cause of a launch's time, and the facts that the rules for causes share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from ...sandbox.wire import Wire
from ..hardware.ceilings import Ceilings
from ..roofline import Work
from .hotspots import Hotspot
from .model import LaunchProfile

LATENCY_PCT: Final = 60.0
DOMINANT_POINTS: Final = 10.0
LIMIT_PCT: Final = 80.0
"""SOLBottleneck: with both sides below the first the launch waits, by the second one side dominates, at the third it is
the limit. HighPipeUtilization takes 60 and 80 too."""


class Cause(Wire):
    """One thing that limits a launch."""

    id: str
    """Such as `dram_bound`, `uncoalesced_loads`, `occupancy_registers`, `stall_barrier`."""
    text: str
    """One sentence with the numbers."""
    suggestion: str
    """What to try."""
    evidence: dict[str, int | float | str]
    """Field of the profile, or a figure made from some, -> value. `line` is one of the kernel file."""


@dataclass(frozen=True, slots=True)
class Facts:
    """A profile with what the rules make of it."""

    profile: LaunchProfile
    hotspots: Sequence[Hotspot]
    ceilings: Ceilings | None
    work: Work | None

    @property
    def blocks(self) -> int | None:
        """Of the grid."""
        return None if self.profile.grid is None else prod(self.profile.grid)

    @property
    def threads(self) -> int | None:
        """A block."""
        return None if self.profile.block is None else prod(self.profile.block)

    @property
    def blocks_per_sm(self) -> float | None:
        """Blocks of the grid over SMs."""
        limits, waves = self.profile.occupancy_limits, self.profile.waves_per_sm
        return None if waves is None or not limits else waves * min(limits.values())

    @property
    def memory_pct(self) -> float | None:
        """Busiest part of the memory system; where that wasn't counted, device memory alone."""
        profile = self.profile
        return profile.dram_pct if profile.memory_pct is None else profile.memory_pct

    @property
    def compute_pct(self) -> float | None:
        """Busiest part of the SM, of what was counted of it."""
        profile = self.profile
        return largest(profile.compute_pct, profile.tensor_pct, profile.issue_slot_pct)

    @property
    def achieved_share_pct(self) -> float | None:
        """Device memory traffic, of the best bandwidth measured on the device."""
        rate = None if self.ceilings is None else self.ceilings.memory_bytes_per_s(None)
        if rate is None or self.profile.dram_bytes is None or not self.profile.duration_us:
            return None
        return 100 * 1e6 * self.profile.dram_bytes / self.profile.duration_us / rate


Rule = Callable[[Facts], Cause | None]


def cause(name: str, text: str, suggestion: str, **evidence: float | str | None) -> Cause:
    """A cause; evidence that is unknown is left out."""
    known = {
        field: round(value, 3) if isinstance(value, float) else value
        for field, value in evidence.items()
        if value is not None
    }
    return Cause(id=name, text=text, suggestion=suggestion, evidence=known)


def largest(*shares: float | None) -> float | None:
    """The largest of those that are known."""
    return max((share for share in shares if share is not None), default=None)


def pct(share: float | None) -> str:
    """A share as text."""
    return "an unknown share" if share is None else f"{share:.0f} %"


def hottest(facts: Facts, weigh: Callable[[Hotspot], float]) -> int | None:
    """The kernel file's line with most of something; None where no line has any."""
    found = max(facts.hotspots, key=weigh, default=None)
    return None if found is None or weigh(found) <= 0 else found.line


def at(line: int | None) -> str:
    """A line as text."""
    return "" if line is None else f", most at line {line}"
