"""On which inputs, and how often, a kernel is called to see whether it is right."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from ..sandbox.facts import Audit
from ..sandbox.task import Task


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is checked of a case."""

    seeds: int = 3
    """Random inputs, each under a seed of its own."""
    repeats: int = 2
    """Further calls on the first inputs: the first without margins and recorded, the others with."""
    structured: bool = True
    """Zeros, ramps, extreme magnitudes and the layouts that the task allows as well."""
    ordinary: bool = False
    """All calls on random inputs without margins and recorded; otherwise only every third seed's."""


ONCE: Final = Plan(seeds=1, repeats=1, structured=False)
"""Before something is timed."""
AGAIN: Final = Plan(seeds=1, repeats=0, structured=False, ordinary=True)
"""After it, by a call like the timed ones."""


@dataclass(frozen=True, slots=True)
class Round:
    """Inputs to call the entry on."""

    name: str
    variant: str = "random"
    scale: float | None = None
    layout: str = "plain"
    slacks: Mapping[str, float] = field(default_factory=dict[str, float])
    """Added to the absolute tolerance of outputs."""
    reuse: bool = False
    """At the addresses of the inputs before: what remembers results by address is found out."""
    ordinary: bool = False
    """Without margins and recorded: what is honest only while it is watched is found out, on inputs new to it."""


def rounds_of(plan: Plan, spec: Task, audit: Audit | None) -> Iterator[Round]:
    """Random inputs, then the structured ones that the audit admits, then the layouts that the task allows."""
    for number in range(plan.seeds):
        yield Round("random", reuse=number % 2 == 1, ordinary=plan.ordinary or number % 3 == 2)
    if not plan.structured:
        return
    for variant in audit.variants if audit is not None else []:
        yield Round(variant.name, variant=variant.name, scale=variant.scale, slacks=variant.slacks)
    for layout in spec.views:
        yield Round(f"{layout} inputs", layout=layout)
