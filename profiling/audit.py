"""Whether a task can tell a right kernel from a wrong one: what passes a weak task proves nothing."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from ..sandbox.errors import Stopped, rejected
from ..sandbox.facts import Audit, Skipped, Variant
from ..sandbox.task import Task
from ..sandbox.workers import KernelWorker, TaskWorker

BASELINE_VARIANTS: Final = ("zeros", "ones", "ramp", "shifted", "negative_zero")
"""Structured inputs where the baseline kernel is the reference: nothing tells whether more extreme ones are fair."""
BASELINE_REFERENCE: Final = "the reference is the baseline kernel"

IMPOSTOR_FIX: Final = "Tighten TOLERANCE, or choose inputs whose outputs vary by much more than it."
IMPOSTOR_FIXES: Final = {
    "input copy": "Choose inputs that the reference changes by more than TOLERANCE: where it only moves elements, "
    "not one row, one column or an empty part, as then they stay in their order.",
    "input mean": "Let TOLERANCE be far below what tells the outputs from the mean of the inputs; a mean over "
    "everything needs a second input or output.",
}
"""What to do about a task that an impostor passes, by its name."""


@contextmanager
def blaming_baseline() -> Generator[None]:
    """Says whose failure it was, where two kernels run.

    Raises:
        Stopped: what failed within this context, named as the baseline's.
    """
    try:
        yield
    except Stopped as stopped:
        problem = stopped.problem.model_copy(update={"message": f"the baseline failed: {stopped.problem.message}"})
        raise Stopped(stopped.kind, problem) from stopped


async def audit_case(case: str, seed: int, spec: Task, tasks: TaskWorker, reference: KernelWorker | None) -> Audit:
    """Find out what a case is worth.

    Args:
        case: name of the case.
        seed: of the random inputs.
        spec: the task.
        tasks: worker of the loaded task.
        reference: worker of the kernel whose outputs are expected; None: the task's own reference.
    """
    if reference is None:
        return await tasks.audit(case, seed)
    inputs = await tasks.make_inputs(case, seed)
    with blaming_baseline():
        await reference.set_inputs(inputs)
        call = await reference.call()
    expected = await tasks.expect_from(call.values)
    names = (*BASELINE_VARIANTS, *spec.special_values)
    return Audit(
        nondeterministic=[],
        outputs=expected.outputs,
        impostors=await tasks.impostors(),
        exact=BASELINE_REFERENCE,
        variants=[Variant(name=name, scale=None) for name in names],
        skipped=[Skipped(name=name, reason=BASELINE_REFERENCE) for name in ("large", "tiny", "denormals")],
    )


def require_sound(case: str, audit: Audit, spec: Task) -> None:
    """Refuse a case that proves nothing.

    Raises:
        Stopped: ``rejected``: the reference is not deterministic or not finite, or an impostor passes.
    """
    if audit.nondeterministic and not spec.nondeterministic:
        worst = max(audit.nondeterministic, key=lambda one: (one.mismatch is not None, one.elements))
        what = worst.mismatch or f"{worst.where} differs in {worst.elements:,} elements"
        raise rejected(
            "audit",
            f"case {case}: the reference is not deterministic: {what} between two runs on the same inputs",
            fix="Draw random numbers in make_inputs, not in reference; or say NONDETERMINISTIC = True in the task.",
        )
    elements = sum(output.elements for output in audit.outputs)
    if audit.outputs and all(one.nan + one.inf == one.elements for one in audit.outputs):
        raise rejected(
            "audit",
            f"case {case}: the reference returned no finite number ({elements:,} elements), so nothing is proved",
            fix="Choose inputs for which the reference returns numbers, at least one element of them.",
        )
    for value in ("nan", "inf"):
        count = sum(getattr(output, value) for output in audit.outputs)
        if count and value not in spec.special_values:
            raise rejected(
                "audit",
                f"case {case}: the reference returned {count:,} {'NaN' if value == 'nan' else 'infinite'} elements",
                fix=f"Choose inputs for which it is finite, or say SPECIAL_VALUES = ('{value}',) where this is meant.",
            )
    if audit.impostors:
        raise rejected(
            "audit",
            f"case {case} is degenerate: these wrong results pass its tolerance as well: {', '.join(audit.impostors)}",
            fix=" ".join(dict.fromkeys(IMPOSTOR_FIXES.get(name, IMPOSTOR_FIX) for name in audit.impostors)),
        )
