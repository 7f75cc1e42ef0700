"""Whether results are right: on the visible cases, and on those that nobody is told of."""

from collections import Counter
from typing import Final

from ...sandbox.errors import Stopped, rejected
from ...sandbox.outcome import Kind, Problem
from ...sandbox.source import Source
from ..services import Services
from ..tools.parameters import Progress
from ..tools.run_correctness import DEFAULT_SEEDS, CorrectnessResult, run_correctness
from .evaluation_compile import NOT_ITS_DOING, Judged
from .evaluation_facts import typed
from .evaluation_report import BASELINES
from .hidden import judged as task_of
from .record import Frozen, HiddenCases

INTERPRETED_SEEDS: Final = 1
"""Of hidden cases, in the interpreter, which takes seconds a case."""


async def check(
    services: Services,
    judged: Judged,
    baseline: Source,
    kernel: Source,
    progress: Progress,
    seeds: int = DEFAULT_SEEDS,
) -> CorrectnessResult:
    """Results on the cases of a task; the baseline's are expected where it has no reference."""
    reference = None if judged.spec.has_reference else baseline
    with typed():
        return await run_correctness(
            services, progress, kernel=kernel, task=judged.task, baseline=reference, seeds=seeds
        )


async def passed(
    services: Services, frozen: Frozen, judged: Judged, baseline: Source, progress: Progress
) -> tuple[HiddenCases, dict[str, str]]:
    """The hidden cases that the baseline passes, and the derived ones that it does not.

    Raises:
        Stopped: ``rejected``: it fails on some that were given.
    """
    kinds = await hidden_kinds(services, judged, baseline, baseline, progress, together=True)
    if len(kinds) < len(judged.hidden) or any(kind is not Kind.OK for kind in kinds):
        # Which of them fail is told by each alone.
        kinds = await hidden_kinds(services, judged, baseline, baseline, progress, together=False)
    failed = {name: kind for name, kind in zip(judged.hidden, kinds, strict=True) if kind is not Kind.OK}
    unsure = [name for name, kind in failed.items() if kind is Kind.UNSUPPORTED]
    if await services.has_gpu():
        unsure = []
    if failed and len(unsure) == len(failed) and frozen.hidden_from != "derived":
        raise rejected(
            "task",
            f"{len(unsure)} of {len(judged.hidden)} hidden cases can't be checked without a GPU",
            fix="Begin the run on a machine with a GPU, or leave those hidden cases out.",
        )
    if failed and frozen.hidden_from != "derived":
        how = ", ".join(f"{count} {kind}" for kind, count in Counter(failed.values()).items())
        raise rejected(
            "task",
            f"the baseline fails on {len(failed)} of {len(judged.hidden)} hidden cases ({how})",
            fix="Whoever gave the hidden cases mends or removes those; each must be right for the baseline, with a "
            "reference that is finite and a tolerance that wrong results do not pass.",
        )
    kept = {name: case for name, case in judged.hidden.items() if name not in failed}
    why = {name: f"the baseline itself ends in {kind} there" for name, kind in failed.items()}
    return kept, why | dict.fromkeys(unsure, "it can't be checked without a GPU")


async def hidden_kinds(
    services: Services, judged: Judged, baseline: Source, kernel: Source, progress: Progress, *, together: bool
) -> list[Kind]:
    """How a kernel ends on hidden cases: on each, or, where they are run together, until the first that stops it.

    Raises:
        Stopped: ``cancelled`` or ``unavailable``.
    """

    async def silent(done: float, total: float, message: str) -> None:
        """The tool names cases."""
        await progress(done, total, "")

    seeds = DEFAULT_SEEDS if await services.has_gpu() else INTERPRETED_SEEDS
    names = list(judged.hidden)
    found: list[Kind] = []
    for group in [names] if together else [[name] for name in names]:
        cases = {name: judged.hidden[name] for name in group}
        task = task_of(judged.task, cases, own=judged.own)
        try:
            result = await check(services, judged._replace(task=task), baseline, kernel, silent, seeds)
        except Stopped as stopped:
            if stopped.kind in NOT_ITS_DOING:
                raise
            if kernel is not baseline and stopped.problem.message.startswith(BASELINES):
                message = "the baseline failed on a hidden case that it passed before"
                raise Stopped(Kind.UNAVAILABLE, Problem(stage="acceptance", message=message)) from None
            found.append(stopped.kind)
        else:
            # Those that are not listed are right.
            listed = [case.kind for case in result.cases]
            found += [*listed, *[Kind.OK] * result.cases_omitted]
    return found


def hidden_problem(failed: list[Kind], count: int, *, on_gpu: bool = True) -> Problem:
    """What may be told of hidden cases on which a candidate fails: how many, and how.

    Args:
        failed: how it ended on those.
        count: of all hidden cases.
        on_gpu: whether they were run there: what the interpreter can't do says nothing of a candidate.
    """
    if not on_gpu and all(kind is Kind.UNSUPPORTED for kind in failed):
        return Problem(
            stage="acceptance",
            message=f"at least {len(failed)} of {count} hidden cases can't be checked without a GPU; the visible ones "
            "are right",
            likely_fix="Check it on a machine with a GPU.",
        )
    wrong_ones = sum(kind is Kind.WRONG for kind in failed)
    how = f"{wrong_ones} of {count} hidden cases are wrong"
    if wrong_ones < len(failed):
        others = ", ".join(dict.fromkeys(str(kind) for kind in failed if kind is not Kind.WRONG))
        how = f"at least one of {count} hidden cases ended in {others}" + (f", and {how}" if wrong_ones else "")
    return Problem(
        stage="acceptance",
        message=f"{how}; the visible ones are right",
        likely_cause="Something holds for the shapes of the visible cases and not for others, such as sizes that are "
        "multiples of the block or of 16, or that fit into one block.",
        likely_fix="Look at sizes that are no multiple of the block: mask every load and store, and take grid, strides "
        "and block sizes from the arguments. A visible case of such a size in the task would show the error.",
    )
