"""What a task says, as the trusted worker found it: typed, checked, no torch."""

import difflib
from typing import Any, Literal

from pydantic import Field, JsonValue

from .errors import rejected
from .wire import Wire


class Case(Wire):
    """One named input configuration of a task."""

    parameters: dict[str, JsonValue]
    """Keyword arguments of `make_inputs`, device aside."""
    weight: float = Field(gt=0)
    """Weight of the case in the score."""
    small: bool
    """Marked as fit for the CPU interpreter."""


class Tolerance(Wire):
    """Mixed tolerance: an element is right if |got - expected| <= atol + rtol * |expected|."""

    rtol: float = Field(ge=0)
    atol: float = Field(ge=0)


class Task(Wire):
    """How to call an entry, and what to call it with."""

    entry: str
    title: str | None
    cases: dict[str, Case]
    hidden_cases: dict[str, Case]
    has_reference: bool
    has_work: bool
    has_reduction: bool = False
    """Whether it says how long the sum behind each output element is."""
    in_place: list[str]
    tolerances: dict[str, Tolerance]
    own_tolerances: list[str] = []
    """Names of the dtypes whose tolerance is the task's own; the rest are defaults."""
    error_factor: float | None = Field(default=None, ge=1)
    """How many times the reference's own error against float64 a kernel may have; None: the default of the dtype."""
    special_values: list[Literal["nan", "inf"]] = []
    """Values in the inputs that are not finite and that a kernel has to pass on as the reference does."""
    views: list[Literal["offset", "strided", "broadcast"]] = []
    """Ways for an input to lie in memory that a kernel has to cope with."""
    strides: bool = False
    """Whether outputs must have the reference's strides."""
    nondeterministic: bool = False
    """Whether outputs may differ, within tolerance, from run to run."""
    grad: bool = False
    """Whether gradients of the inputs are judged too."""

    def select(self, names: list[str] | None) -> list[str]:
        """The visible cases asked for, in the task's order; all of them by default.

        Raises:
            Stopped: ``rejected``, for a name that is no visible case.
        """
        if names is None:
            return list(self.cases)
        if not names:
            raise rejected(
                "task", "cases is an empty list", fix=f"Leave it out, or choose from {', '.join(self.cases)}."
            )
        for name in names:
            if name not in self.cases:
                near = difflib.get_close_matches(name, list(self.cases), n=1)
                hint = f"Did you mean {near[0]!r}? " if near else ""
                raise rejected(
                    "task",
                    f"the task has no case {name!r}",
                    fix=f"{hint}Its cases are: {', '.join(self.cases)}.",
                )
        return [name for name in self.cases if name in names]


def parse_task(fields: Any) -> Task:
    """A `Task` from a worker's description.

    Raises:
        pydantic.ValidationError: the worker sent something else.
    """
    return Task.model_validate(fields)
