"""The catalogue: one module a family, each with a tuple `RULES`. To add a rule, declare it in its family's module."""

from typing import Final

from ..rule import Rule
from . import (
    atomics,
    grid,
    host,
    instructions,
    layouts,
    overlap,
    pipelining,
    registers,
    specialization,
    tensor_cores,
    traffic,
    tuning,
    vectorization,
)

RULES: Final[tuple[Rule, ...]] = (
    *tensor_cores.RULES,
    *overlap.RULES,
    *vectorization.RULES,
    *pipelining.RULES,
    *registers.RULES,
    *layouts.RULES,
    *atomics.RULES,
    *specialization.RULES,
    *grid.RULES,
    *instructions.RULES,
    *host.RULES,
    *traffic.RULES,
    *tuning.RULES,
)
DROPPED: Final[dict[str, str]] = {
    **vectorization.DROPPED,
    **pipelining.DROPPED,
    **registers.DROPPED,
    **layouts.DROPPED,
    **specialization.DROPPED,
    **traffic.DROPPED,
    **tuning.DROPPED,
}
"""Entries that are no rules, and why."""
