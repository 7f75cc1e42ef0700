"""Sees in workers whether an adapted task loads, makes inputs and compiles, and writes down what it found."""

import contextlib
import pprint
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from ...sandbox.errors import Stopped, rejected
from ...sandbox.outcome import Kind
from ...sandbox.replies import Values
from ...sandbox.source import Source
from ...sandbox.task import Case, Task
from ...sandbox.workers import KernelWorker, capture_worker, task_worker
from ..services import Services, target_facts
from .model import Adapted

FOUND: Final = re.compile(r"^# FOUND\n.*?^# END FOUND\n", re.MULTILINE | re.DOTALL)
"""The lines of a task that find its cases whenever it is loaded."""
WIDTH: Final = 118
NOT_ITS_DOING: Final = frozenset({Kind.UNAVAILABLE, Kind.CANCELLED})
"""Ends that say nothing of an artefact."""


@dataclass(frozen=True, slots=True)
class Settled:
    """A task that loads, and what became of its baseline."""

    adapted: Adapted
    task: Task
    dropped: dict[str, str]
    """By case, why it was left out: its inputs can't be made, or the baseline can't be compiled for it."""
    uncompiled: dict[str, str]
    """By case, why the baseline could not be compiled for it, where it could for none: all of them are left in."""
    compiled: bool
    """Whether the baseline compiles for every case that is left; False where that was not tried."""


async def settle(services: Services, tasks: Sequence[Adapted], *, target: str | None = "h100") -> Settled:
    """The first of some tasks that loads and whose baseline compiles for a timed case, with only such cases.

    Where there is none, the best that loads and makes inputs: some hosts look at results, which a capture has not.

    Args:
        services: of this process.
        tasks: those of `choices`.
        target: a GPU to compile for; None: only inputs are made.

    Raises:
        Stopped: none of them can be used; it says why the first can't.
    """
    first: Stopped | None = None
    second: Settled | None = None
    # Without a GPU, other inputs of a reading fare no better.
    for adapted in [each for each in tasks if not each.is_spare] or tasks:
        try:
            found = await _settled(services, adapted, target)
        except Stopped as stopped:
            if stopped.kind in NOT_ITS_DOING:
                raise
            first = first or stopped
            continue
        if _is_whole(found, adapted, target):
            return found
        # Nothing compiled is worse than only the small case.
        if second is None or (found.compiled and not second.compiled):
            second = found
    if second is not None:
        return second
    raise first or rejected("source", "there is no task to look at")


def _is_whole(found: Settled, adapted: Adapted, target: str | None) -> bool:
    """Whether nothing better is to be hoped for from another reading of the artefact."""
    if target is None or not adapted.has_launches:
        return True
    cases = found.task.cases
    kept = cases.keys() - found.dropped.keys()
    return found.compiled and (
        any(not cases[name].small for name in kept) or all(case.small for case in cases.values())
    )


async def _settled(services: Services, adapted: Adapted, target: str | None) -> Settled:
    unmade, uncompiled = dict[str, str](), dict[str, str]()
    task, waiting = None, list[str]()
    last: Stopped | None = None
    while task is None or waiting:
        # After a failure, the next cases get workers of their own.
        async with contextlib.AsyncExitStack() as stack:
            tasks = await stack.enter_async_context(task_worker(services.executor, on_gpu=False))
            loaded = await tasks.load(Source(adapted.task_text, "task.py", None))
            if task is None:
                task, waiting = loaded, [*loaded.cases, *loaded.hidden_cases]
            kernels: KernelWorker | None = None
            while waiting:
                name, found = waiting.pop(0), unmade
                try:
                    values = await tasks.make_inputs(name, seed=0, contents="repeated")
                    if target is None or not adapted.has_launches:
                        continue
                    found = uncompiled
                    if kernels is None:
                        facts = target_facts(await services.target(target))
                        kernels = await stack.enter_async_context(capture_worker(services.executor, target=facts))
                        await kernels.load(Source(adapted.kernel, "kernel.py", origin(adapted)), task)
                    await _compile(kernels, task, values)
                except Stopped as stopped:
                    if stopped.kind in NOT_ITS_DOING:
                        raise
                    found[name] = f"{stopped.kind}: {' '.join(stopped.problem.message.split())[:160]}"
                    last = stopped
                    break
    if last is not None and not task.cases.keys() - unmade.keys():
        raise last
    dropped = {**unmade, **uncompiled}
    compiled = target is not None and adapted.has_launches and bool(task.cases.keys() - dropped.keys())
    if target is not None and adapted.has_launches and not compiled:
        adapted = adapted.assuming(f"not compiled without a GPU: {next(iter(uncompiled.values()))}")
        return Settled(_frozen(adapted, task, unmade), task, unmade, uncompiled, compiled=False)
    return Settled(_frozen(adapted, task, dropped), task, dropped, {}, compiled)


async def _compile(kernels: KernelWorker, task: Task, values: Values) -> None:
    """Compile what the baseline launches on the inputs."""
    await kernels.set_inputs(values)
    capture = await kernels.capture()
    if not capture.launches:
        raise rejected("capture", f"the entry {task.entry} launches no Triton kernel")


def origin(adapted: Adapted) -> str:
    """The folder that an artefact's own imports come from."""
    folder = adapted.path if adapted.path.is_dir() else adapted.path.parent
    return str(folder.resolve())


def _frozen(adapted: Adapted, task: Task, dropped: dict[str, str]) -> Adapted:
    """The task with its cases written down, so that a reader sees them and loading it runs nothing."""

    def literal(cases: dict[str, Case]) -> str:
        kept = {
            name: {
                **case.parameters,
                **({"small": True} if case.small else {}),
                **({"weight": case.weight} if case.weight != 1 else {}),
            }
            for name, case in cases.items()
            if name not in dropped
        }
        return pprint.pformat(kept, width=WIDTH, sort_dicts=False)

    lines = (
        f"CASES = {literal(task.cases)}\nHIDDEN_CASES = {literal(task.hidden_cases)}\n"
        f"IN_PLACE = {tuple(task.in_place)!r}\n"
    )
    text = FOUND.sub(lambda _: lines, adapted.task)
    words = tuple(f"left out: case {name} ({reason})" for name, reason in dropped.items() if text != adapted.task)
    return replace(adapted, task=text).assuming(*words)
