"""A search on this machine from a kernel file to its finalists, for whoever offers them: the tool, or an agent."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Final, NamedTuple

import anyio

from ...profiling.hardware.model import Target
from ...profiling.tuning.knobs import OPTIONS
from ...profiling.tuning.search import FINALISTS, Search
from ...profiling.tuning.space import Point, Space, SpaceError, infer
from ...profiling.tuning.split import Sizes, Split, loses, sizes_of, splits
from ...profiling.tuning.variant import variant
from ...sandbox.errors import rejected
from ...sandbox.facts import CapturedLaunch
from ...sandbox.source import Source
from ...sandbox.task import Task
from ...sandbox.workers import gpu_worker, task_worker
from ..services import Services
from .bench import Compiler, GpuBench
from .loop import Tuning
from .report import winners

SPLITS: Final = 1
"""Files that choose between two points, offered at most."""
COMPILERS: Final = 8
"""At most; half of the machine's cores."""

Given = Mapping[str, Sequence[int | bool]]


class Ground(NamedTuple):
    """What a search is made on: a kernel file that compiles, and what of it can be changed."""

    task: Source
    spec: Task
    cases: list[str]
    compiler: Compiler
    space: Space

    @property
    def nothing(self) -> str | None:
        """Why there is nothing to search; None: there is."""
        if self.space.size >= 2:
            return None
        left = "; ".join(f"{name}: {why}" for name, why in self.space.left.items())
        return "the kernel file exposes no knob that could be changed" + (f" ({left})" if left else "")

    def offers(self, search: Search) -> "list[Offer]":
        """The finalists of a search that was made on it, the best first; see `offers`."""
        text = self.compiler.kernel.text
        trees = {case: self.compiler.inputs[case].tree for case in self.cases}
        return list(offers(search, text, self.spec.entry, sizes_of(text, self.spec.entry, trees)))

    def search(self, evaluations: int | None = None) -> Search:
        """A search that has not begun, of at most so many evaluations."""
        total = sum(self.spec.cases[case].weight for case in self.cases)
        shares = {case: self.spec.cases[case].weight / total for case in self.cases}
        return Search(self.space, shares, self.compiler.target, evaluations, self.compiler.input_bytes)


class Offer(NamedTuple):
    """A variant that is worth a closer look."""

    point: Point
    value: float
    """log(baseline time / time) over all cases, as the search measured it."""
    text: str
    """Of the file."""
    split: Split | None = None
    """Where two points are in it: both, and what decides between them. `point` is the one above."""


async def prepare(
    services: Services,
    kernel: Source,
    task: Source,
    goal: Target,
    *,
    space: Given | None = None,
    cases: Sequence[str] | None = None,
) -> Ground:
    """Compile the file as it is, and see what of it can be changed. Needs no GPU.

    Args:
        services: the server's.
        kernel: the kernel file.
        task: the task file.
        goal: what is compiled for.
        space: values of knobs that take the place of the inferred ones.
        cases: of the task; None: all that are not small.

    Raises:
        Stopped: any failing outcome of the file as it is; ``rejected`` for a space or task that can't be used.
    """
    async with task_worker(services.executor, on_gpu=False) as tasks:
        spec = await tasks.load(task)
        wanted = None if cases is None else list(cases)
        chosen = [case for case in spec.select(wanted) if cases is not None or not spec.cases[case].small]
        if not chosen:
            raise rejected("task", "every case is marked small, for the CPU interpreter", fix="Add a case to time.")
        compiler = Compiler(services.executor, kernel, spec, goal)
        await compiler.make_inputs(tasks, chosen)
    await compiler.compile(None)
    try:
        # Of a long file that takes seconds.
        found = await anyio.to_thread.run_sync(
            lambda: infer(kernel.text, launched=_launched(compiler.captured), given=space)
        )
    except SpaceError as error:
        raise rejected("space", str(error), fix="Leave space out to see what is found.") from None
    compiler.space = found
    return Ground(task, spec, chosen, compiler, found)


async def race(services: Services, ground: Ground, search: Search, budget_s: float, *, begin_s: float = 0.0) -> Tuning:
    """Search for so many seconds, or until nothing better is expected, with the GPU to itself.

    Args:
        services: the server's.
        ground: what is searched.
        search: that has not begun.
        budget_s: for the search.
        begin_s: so much more, at most, until the file as it is can be timed.

    Raises:
        Stopped: the file as it is fails, or the call was cancelled.
    """
    compiler = ground.compiler
    async with services.gpu_turn(), AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(task_worker(services.executor, on_gpu=True))
        await tasks.load(ground.task)
        inputs = {case: await tasks.make_inputs(case, seed=0) for case in ground.cases}
        baseline = None
        if not ground.spec.has_reference:
            baseline = await stack.enter_async_context(gpu_worker(services.executor))
            await baseline.load(compiler.kernel, ground.spec)
        tuning = Tuning(search, GpuBench(compiler, tasks, baseline, inputs), compilers())
        await tuning.run(budget_s, begin_s)
    return tuning


def offers(search: Search, kernel: str, entry: str = "", sizes: Sizes | None = None) -> Iterator[Offer]:
    """The finalists of a search, the best first, those that lose in no case before those that do; an autotuner's list
    gets the winners of single cases, too, and none is offered that has the same ones.

    Args:
        search: that has ended.
        kernel: text of the file.
        entry: its function that is called.
        sizes: of the cases: where no point is best in all of them, a file may choose by these.
    """
    known: set[frozenset[Point]] = set()
    found = [
        (loses(search, choice.point, search.shares), choice.value, choice.point, None)
        for choice in search.worth_offering()
    ]
    if not search.space.listings:
        both = splits(search, kernel, entry, sizes or {})
        found = sorted(
            [*found, *((False, one.value, one.above, one) for one in both[:SPLITS])],
            key=lambda one: (one[0], -one[1]),
        )
    for _, value, point, split in found:
        if split is not None:
            yield Offer(point, value, split.text, split)
            continue
        others = winners(search, point)[:FINALISTS] if search.space.listings else []
        points = frozenset([point, *others])
        text = variant(kernel, search.space, point, *others)
        if text is not None and points not in known:
            known.add(points)
            yield Offer(point, value, text)


def compilers() -> int:
    """How many variants are compiled at a time."""
    return max(1, min(COMPILERS, (os.cpu_count() or 2) // 2))


def _launched(captured: Mapping[str, Sequence[CapturedLaunch]]) -> dict[str, dict[str, int]]:
    """Options of each kernel that is launched, as the first launch has them, and its integer constants, each the most
    that a launch has."""
    launched: dict[str, dict[str, int]] = {}
    for launches in captured.values():
        for one in launches:
            known = launched.setdefault(one.kernel, {"num_warps": one.num_warps, "num_stages": one.num_stages})
            for name, value in one.constexprs.items():
                if type(value) is int and name not in OPTIONS:
                    known[name] = max(value, known.get(name, value))
    return launched
