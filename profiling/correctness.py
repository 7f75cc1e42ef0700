"""Whether a kernel's results are right: evidence from two workers that never see each other's side."""

import secrets

from ..sandbox.errors import Stopped, rejected
from ..sandbox.outcome import Kind
from ..sandbox.wire import Wire
from ..sandbox.workers import KernelWorker, OutputComparison, TaskWorker, Values


class CaseResult(Wire):
    """One case over all its seeds; the errors are those of the worst seed."""

    case: str
    kind: Kind
    seeds: list[int]
    """Seeds that were run: `torch.manual_seed(seed)` before `make_inputs`."""
    elements: int
    """Output elements compared, a seed."""
    max_abs_error: float | None
    max_rel_error: float | None
    """Largest |got - expected| / |expected| where expected is not zero."""
    wrong_elements: int
    worst_output: str | None
    worst_index: list[int] | None
    """Position of the element furthest beyond its tolerance."""
    worst_expected: float | str | None
    worst_got: float | str | None
    rtol: float | None
    atol: float | None
    message: str | None
    """What differs, in words, where it is wrong."""


async def check_case(
    case: str, seeds: int, tasks: TaskWorker, candidate: KernelWorker, reference: KernelWorker | None
) -> CaseResult:
    """Compare the candidate's outputs with the expected ones on `seeds` fresh inputs, until one is wrong.

    Args:
        case: name of the case.
        seeds: how many inputs.
        tasks: worker of the loaded task.
        candidate: worker of the loaded kernel.
        reference: worker of the kernel whose outputs are expected; None: the task's own reference.

    Raises:
        Stopped: any outcome but ``ok`` and ``wrong``.
    """
    done: list[int] = []
    worst: OutputComparison | None = None
    elements = 0
    for _ in range(seeds):
        # Drawn now, after the candidate has been loaded: nothing in it can know them.
        seed = secrets.randbelow(1 << 31)
        done.append(seed)
        inputs = await tasks.make_inputs(case, seed)
        if reference is None:
            await tasks.expect()
        else:
            # First, and copied by it before the candidate gets the same memory, to which it could write.
            await reference.set_inputs(inputs)
            await tasks.expect_from(await _reference_call(reference))
        await candidate.set_inputs(inputs)
        outputs = await tasks.judge(await candidate.call())
        if not outputs:
            raise rejected(
                "compare",
                "the reference returned nothing to compare",
                fix="Return the outputs from reference, or name mutated arguments in IN_PLACE.",
            )
        elements = sum(output.elements for output in outputs)
        if all(output.mismatch is None and output.finite_elements == 0 for output in outputs):
            raise rejected(
                "compare",
                f"case {case}: the reference returned no finite number ({elements:,} elements), so nothing is proved",
                fix="Choose inputs for which the reference returns numbers, at least one element of them.",
            )
        for output in outputs:
            if worst is None or _badness(output) > _badness(worst):
                worst = output
        if any(_is_wrong(output) for output in outputs):
            break
    assert worst is not None
    return _case_result(case, done, elements, worst)


async def _reference_call(reference: KernelWorker) -> Values:
    try:
        return await reference.call()
    except Stopped as stopped:
        problem = stopped.problem.model_copy(update={"message": f"the baseline failed: {stopped.problem.message}"})
        raise Stopped(stopped.kind, problem) from stopped


def _is_wrong(output: OutputComparison) -> bool:
    return output.mismatch is not None or output.wrong_elements > 0


def _badness(output: OutputComparison) -> tuple[bool, int, float]:
    return output.mismatch is not None, output.wrong_elements, output.max_abs_error


def _case_result(case: str, seeds: list[int], elements: int, worst: OutputComparison) -> CaseResult:
    wrong = _is_wrong(worst)
    compared = worst.mismatch is None
    return CaseResult(
        case=case,
        kind=Kind.WRONG if wrong else Kind.OK,
        seeds=seeds,
        elements=elements,
        max_abs_error=worst.max_abs_error if compared else None,
        max_rel_error=worst.max_rel_error if compared else None,
        wrong_elements=worst.wrong_elements,
        worst_output=worst.where,
        worst_index=worst.worst_index,
        worst_expected=worst.worst_expected,
        worst_got=worst.worst_got,
        rtol=worst.rtol if compared else None,
        atol=worst.atol if compared else None,
        message=_describe(worst) if wrong else None,
    )


def _describe(worst: OutputComparison) -> str:
    if worst.mismatch is not None:
        return worst.mismatch
    share = 100 * worst.wrong_elements / max(worst.elements, 1)
    odd = f", {worst.not_finite_mismatches} of them NaN or Inf on one side" if worst.not_finite_mismatches else ""
    return (
        f"{worst.where}: {worst.wrong_elements:,} of {worst.elements:,} elements wrong ({share:.3g} %){odd}; the "
        f"worst at {worst.worst_index}: expected {worst.worst_expected}, got {worst.worst_got} "
        f"(allowed {worst.atol:g} + {worst.rtol:g} * |expected|)"
    )
