"""The files of a new run, looked at before anything is measured."""

import secrets
from contextlib import nullcontext
from pathlib import Path
from typing import Literal

from ...sandbox.errors import Stopped, rejected
from ...sandbox.outcome import Kind
from ...sandbox.source import INLINE, Source
from ...sandbox.task import Task
from ...sandbox.workers import task_worker
from ..audits import sound_audit
from ..services import Services
from ..tools.run_correctness import choose
from . import hidden as hidden_cases
from .evaluation_compile import timed_cases
from .evaluator import Asked
from .record import HiddenCases


async def look(services: Services, kernel: Source, task: Source, hidden: Source | None, target: str | None) -> Asked:
    """As `Evaluator.look`."""
    given = None if hidden is None else hidden_cases.read(hidden)
    goal = await services.target(target)
    on_gpu = await services.has_gpu()
    if on_gpu and (here := await services.gpu()) is not None and here.name != goal.name:
        raise rejected(
            "target",
            f"a run is measured on this machine's GPU, {here.name}, and the target is {goal.name}",
            fix=f"Leave target out, or run the server on a machine with an {goal.name}.",
        )

    async def looked_at(alone: bool) -> tuple[Task, HiddenCases | None]:
        async with (
            services.gpu_turn(alone=alone) if on_gpu else nullcontext(),
            task_worker(services.executor, on_gpu=on_gpu) as tasks,
        ):
            spec = await tasks.load(task)
            if spec.has_reference:
                # A case that proves nothing is told before anything is measured; what is found out here is kept.
                chosen, smaller = await choose(spec, tasks, None, on_gpu)
                for case in chosen:
                    await sound_audit(
                        services.audits,
                        case,
                        spec,
                        tasks,
                        task,
                        None,
                        None,
                        on_gpu=on_gpu,
                        parameters=smaller.get(case),
                    )
            if given is None:
                return spec, None
            both = {**hidden_cases.of_task(spec), **given}
            await _require_fitting(services, task, both, hidden)
            return spec, both

    spec, further = await services.beside_others(looked_at)
    cases, source = _hidden_of(spec, further, on_gpu=on_gpu)
    environment = await services.environment()
    named = Path(kernel.shown_as).stem if kernel.shown_as != INLINE else spec.entry
    return Asked(
        title=spec.title or named,
        entry=spec.entry,
        cases=timed_cases(spec),
        hidden=cases,
        hidden_from=source,
        target=goal.name,
        gpu=environment.gpu.name if on_gpu and environment.gpu is not None else None,
        torch=environment.torch,
        triton=environment.triton,
    )


async def _require_fitting(services: Services, task: Source, given: HiddenCases, file: Source | None) -> None:
    """
    Raises:
        Stopped: ``rejected``: the task can't take hidden cases from a file. Which, and why, would tell them.
    """
    try:
        async with task_worker(services.executor, on_gpu=False) as tasks:
            await tasks.load(hidden_cases.beside(task, given, own=False))
    except Stopped as stopped:
        if stopped.kind is not Kind.REJECTED:
            raise
        raise rejected(
            "task",
            "the hidden cases do not fit the task",
            file=None if file is None else file.shown_as,
            fix="Each needs the parameters that make_inputs takes, a name that no visible case has, and a weight "
            "above 0 if any.",
        ) from None


def _hidden_of(
    spec: Task, given: HiddenCases | None, *, on_gpu: bool
) -> tuple[HiddenCases, Literal["task", "file", "derived", "none"]]:
    """The hidden cases, and where they come from."""
    if given is not None:
        return given, "file"
    if spec.hidden_cases:
        return hidden_cases.of_task(spec), "task"
    # Drawn anew: a seed that follows from the task would tell them to whoever has read this.
    found = hidden_cases.derived(spec.cases, secrets.token_hex(16), on_gpu=on_gpu)
    return found, "derived" if found else "none"
