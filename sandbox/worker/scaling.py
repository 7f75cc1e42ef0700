# pyright: basic
# torch ships incomplete types.
"""Cases made smaller: for the interpreter and for tools that slow a kernel down a hundredfold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import contract, values
from .failures import Refused

if TYPE_CHECKING:
    from .task import Task

LEAST = 16
"""Integers up to this one stay: counts of heads, kernel widths and the like."""
HALVINGS = 24


def shrink(task: Task, case: str, elements: int) -> dict[str, Any]:
    """Halve a case's integer parameters together, as often as it takes for its inputs to have few elements.

    The task's case is changed for as long as this worker lives. The smallest is made first, so that inputs too large
    for this machine are never made.

    Args:
        task: the loaded task.
        case: name of a case.
        elements: of all input tensors together, at most.

    Returns:
        The parameters that the case now has, as JSON values.

    Raises:
        Refused: ``rejected``: no halving is small enough, or `make_inputs` can't take the smaller parameters.
    """
    parameters = task.parameters(case)
    found: dict[str, Any] | None = None
    for halvings in reversed(range(HALVINGS + 1)):
        smaller = {name: _halved(value, halvings) for name, value in parameters.items()}
        if smaller == found:
            continue
        try:
            task.resize(case, smaller)
            size = sum(tensor.numel() for tensor in values.tensors(task.make_random(case, 0)))
        except (RuntimeError, ValueError, TypeError, IndexError, ZeroDivisionError, AssertionError) as error:
            task.resize(case, parameters)
            message = f"make_inputs can't take {smaller}: {type(error).__name__}: {error}"
            raise Refused("rejected", "inputs", message[:500]) from error
        if size > elements:
            break
        found = smaller
    if found is None:
        task.resize(case, parameters)
        raise Refused("rejected", "inputs", f"its inputs have more than {elements:,} elements however small it is made")
    task.resize(case, found)
    return contract.as_json(found)


def _halved(value: Any, times: int) -> Any:
    """An integer of 17 and more, halved but never to less than `LEAST`; odd ones stay odd, and ragged."""
    if isinstance(value, bool) or not isinstance(value, int) or value <= LEAST:
        return value
    return max(value >> times, LEAST) | (value & 1)
