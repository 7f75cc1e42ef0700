"""What a search asks of a bench, and what it gets."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import anyio

from ...profiling.compiler.launch import LaunchFacts
from ...profiling.tuning.race import Standing
from ...profiling.tuning.space import Point


@dataclass(eq=False)
class Variant:
    """A variant ready to be timed in a case."""

    case: str
    point: Point | None
    """None: the file as it is."""
    call_us: float
    """One whole call, host included."""
    done: anyio.Event = field(default_factory=anyio.Event)
    """Set when it is needed no more."""
    chosen_at: float = 0.0
    ready_at: float = 0.0
    """By `anyio.current_time`."""


class Step(NamedTuple):
    """Where the time of an evaluation went, in seconds; 0 for what it did not come to."""

    case: str
    point: Point
    at_s: float
    """When it was chosen, from the search's start."""
    ready_s: float
    """Its worker started, compiled, and made the first calls."""
    waited_s: float
    """For the GPU, or for the file as it is."""
    race_s: float
    check_s: float
    how: str
    """How it ended."""


class Compiles(Protocol):
    """Compiles variants."""

    async def compile(self, point: Point | None) -> Mapping[str, Sequence[LaunchFacts]]:
        """The launches of a variant by case.

        Raises:
            Stopped: it can't be compiled, or launched.
        """
        ...


class Bench(Compiles, Protocol):
    """Prepares, times and checks them as well."""

    def prepared(self, case: str, point: Point | None) -> AbstractAsyncContextManager[Variant]:
        """A variant that has compiled and made its first calls.

        Raises:
            Stopped: it failed.
        """
        ...

    async def race(self, challenger: Variant, champion: Variant) -> Standing:
        """Time both, interleaved, until the race is decided.

        Raises:
            Stopped: one failed.
        """
        ...

    async def is_alive(self, variant: Variant) -> bool:
        """Whether it can still be timed."""
        ...

    async def check(self, variant: Variant) -> None:
        """Whether its results are right.

        Raises:
            Stopped: they are not, or it failed.
        """
        ...
