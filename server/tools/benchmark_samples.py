"""The artifact that holds everything `benchmark` measured."""

import json
from collections.abc import Sequence
from typing import Any

from ...profiling.times import Times
from ..timed_result import TimedCase


def samples(cases: Sequence[TimedCase]) -> bytes:
    """Everything that was measured, as JSON: each sample of each side, in the order in which it was taken."""
    return json.dumps({timed.case: _samples(timed) for timed in cases}, separators=(",", ":")).encode()


def _samples(timed: TimedCase) -> dict[str, Any]:
    sides: dict[str, Times | None] = {"candidate": timed.candidate, "baseline": timed.baseline}
    sides |= {entry.name: entry.times for entry in timed.against}
    for number, pair in enumerate(timed.further, 2):
        sides |= {f"{name} {number}": times for name, times in zip(("candidate", "baseline"), pair, strict=False)}
    return {
        "timing": timed.how,
        "sides": {name: _side(times) for name, times in sides.items() if times is not None},
        "pairs": [
            [{"baseline_us": list(block.baseline_us), "candidate_us": list(block.candidate_us)} for block in group]
            for group in timed.groups
        ],
        "conditions": [one.model_dump() for one in timed.conditions],
    }


def _side(times: Times) -> dict[str, Any]:
    def blocks(field: str) -> list[list[float | None]]:
        return [[getattr(sample, field) for sample in block] for block in times.blocks]

    return {
        "device_us": blocks("device_us"),
        "kernel_us": blocks("kernel_us"),
        "event_us": blocks("event_us"),
        "call_us": times.call_us,
        "sm_clock_hz": times.sm_clock_hz,
    }
