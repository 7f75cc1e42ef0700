"""Times of the sides of a measurement, and what is read from them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from ..sandbox.timed import TimedWorker
from ..sandbox.timing_facts import Sample
from .comparison import PairBlock
from .statistics import median

PLACES: Final = 1000
"""More than a side has sets of buffers."""


@dataclass(slots=True)
class Times:
    """What was measured of one side in one case, in microseconds unless it says otherwise."""

    blocks: list[list[Sample]] = field(default_factory=list[list[Sample]])
    """Samples, block by block."""
    layouts: list[int] = field(default_factory=list[int])
    """Which buffers each block used; empty where that is not known."""
    call_us: list[list[float]] = field(default_factory=list[list[float]])
    """Host call to completion, block by block."""
    call_wall_us: list[float] = field(default_factory=list[float])
    """Time from request to reply over the calls timed so, one entry a visit."""
    kernels: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    """Kernel or copy by name -> mean time a call, one entry a visit."""
    sm_clock_hz: list[float] = field(default_factory=list[float])
    """SM clock at the end of each block, mean of the side's visits."""
    strays: dict[str, int] = field(default_factory=dict[str, int])
    """What ran between timed calls and is not ours -> in how many visits."""
    visits: int = 0
    first_us: list[float] = field(default_factory=list[float])
    """First start to last end of each visit's first call."""
    wall_us: list[float] = field(default_factory=list[float])
    """Time from request to reply over the calls of a visit, one entry a visit: our own clock's view."""

    def clear(self) -> None:
        """Forget what was measured."""
        self.blocks.clear()
        self.layouts.clear()
        self.call_us.clear()
        self.call_wall_us.clear()
        self.kernels.clear()
        self.sm_clock_hz.clear()
        self.strays.clear()
        self.first_us.clear()
        self.wall_us.clear()
        self.visits = 0

    def device_us(self) -> list[float]:
        """First start to last end on the device, of each call."""
        return [sample.device_us for block in self.blocks for sample in block]

    def kernel_us(self) -> list[float]:
        """Sum over the kernels and copies, of each call."""
        return [sample.kernel_us for block in self.blocks for sample in block]

    def event_us(self) -> list[float]:
        """Between two events around each call."""
        return [sample.event_us for block in self.blocks for sample in block if sample.event_us is not None]


@dataclass(slots=True)
class Side:
    """One process that is timed, and its times."""

    name: str
    worker: TimedWorker
    layouts: int = 1
    """Sets of buffers that its blocks rotate over."""
    checks: int = 0
    """So many of its first visits have a call's results checked, later one in four; 0: none has."""
    expected: "Side | None" = None
    """Whose results they must be like; None: the reference's."""
    times: Times = field(default_factory=Times)
    checked: int = 0
    """Timed calls whose results were found right."""


def pairs(candidate: Times, baseline: Times) -> list[PairBlock]:
    """Times on the device of two sides that were timed together, block by block."""
    blocks = zip(baseline.blocks, candidate.blocks, strict=True)
    places = [its * PLACES + mine for its, mine in zip(baseline.layouts, candidate.layouts, strict=True)]
    return [
        PairBlock(
            baseline_us=[one.device_us for one in their],
            candidate_us=[one.device_us for one in my],
            layout=places[number] if places else None,
        )
        for number, (their, my) in enumerate(blocks)
    ]


def call_pairs(candidate: Times, baseline: Times) -> list[PairBlock]:
    """The same of whole calls, the undisturbed ones."""
    both = zip(baseline.call_us, candidate.call_us, strict=True)
    return [PairBlock(baseline_us=_undisturbed(their), candidate_us=_undisturbed(my)) for their, my in both]


def _undisturbed(call_us: Sequence[float]) -> list[float]:
    """The faster half: what disturbs a host only ever makes calls longer."""
    return sorted(call_us)[: max(1, len(call_us) // 2)]


def longest(times: Times, count: int) -> list[tuple[str, float]]:
    """The kernels and copies that a call spends most time in: name and mean microseconds, longest first."""
    means = {name: sum(us) / len(us) for name, us in times.kernels.items()}
    return sorted(means.items(), key=lambda item: -item[1])[:count]


def launch_bound(times: Times) -> bool:
    """Whether a caller waits mostly for the host: the call takes more than twice what the device works, and that is
    short."""
    device_us = median(times.device_us())
    return device_us < 50 and median([us for block in times.call_us for us in block]) > 2 * device_us
