"""How much is counted: from two passes over a kernel to everything."""

from dataclasses import dataclass
from typing import Final, Literal

from . import metrics

LevelName = Literal["quick", "standard", "full"]

SECTIONS: Final = (
    "SpeedOfLight",
    "LaunchStats",
    "Occupancy",
    "SchedulerStats",
    "ComputeWorkloadAnalysis",
    "MemoryWorkloadAnalysis",
    "WorkloadDistribution",
    "SourceCounters",
)
"""What a diagnosis needs. Warp states are not among them: their eight passes count what SourceCounters samples."""


@dataclass(frozen=True, slots=True)
class Level:
    """What is collected."""

    name: str
    collect: tuple[str, ...]
    """Words of ncu's command line."""
    seconds: float
    """About so long a launch of 0.1 ms takes, from a worker that waits ready (H200)."""


def _metrics(*names: str) -> tuple[str, ...]:
    return ("--metrics", ",".join(dict.fromkeys(names)))


LEVELS: Final[dict[LevelName, Level]] = {
    "quick": Level("quick", _metrics(*metrics.FIRST_LOOK, *metrics.SECOND_LOOK, *metrics.LAUNCH_FACTS), 1.5),
    "standard": Level(
        "standard",
        (
            *(word for section in SECTIONS for word in ("--section", section)),
            *_metrics(*metrics.TARGETED),
            "--import-source",
            "yes",
        ),
        3.0,
    ),
    "full": Level("full", ("--set", "full", *_metrics(*metrics.TARGETED), "--import-source", "yes"), 6.0),
}


def custom(names: tuple[str, ...]) -> Level:
    """Metrics by name, beside what tells the launch and its time."""
    return Level("custom", _metrics(*metrics.DURATION.names, *names, *metrics.LAUNCH_FACTS), 10.0)
