"""Sees on the GPU whether an adapted task can judge anything: the baseline, its reference, must agree with itself.

Tests of other projects run their kernels on what happens to work. What a check of the baseline against itself finds is
put into the task where it can be (arguments that are written to, results that differ from run to run), or the case is
left out and named. Where the likeliest reading of an artefact leaves nothing to be timed, the next one is tried.
"""

import ast
import pprint
import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from ...profiling.correctness import CaseResult, check_case
from ...profiling.rounds import Plan
from ...sandbox.errors import Stopped
from ...sandbox.outcome import Kind
from ...sandbox.source import Source
from ...sandbox.task import Case
from ...sandbox.workers import KernelWorker, gpu_worker, interpreter_worker, task_worker
from ..audits import sound_audit
from ..services import Services, target_facts
from .facts import Function, facts_of, parameters_of
from .model import Adapted
from .settle import NOT_ITS_DOING, WIDTH, Settled, origin, settle

FROZEN: Final = re.compile(
    r"^CASES = .*?^IN_PLACE = \([^\n]*\)\n(?:^NONDETERMINISTIC = True\n)?", re.MULTILINE | re.DOTALL
)
"""What `settle` has written down."""
PLAN: Final = Plan(seeds=1, repeats=1)
MENDS: Final = 3
"""So often is a task changed before a case that still fails is left out."""
INPUT: Final = re.compile(r"\binput(?:\[(\d+)\]| (\w+))")
CHANGED: Final = "the call changed its inputs"
REASON_CHARACTERS: Final = 200
Failure = CaseResult | Stopped


@dataclass(frozen=True, slots=True)
class Grounded:
    """A task that was tried on the GPU."""

    adapted: Adapted
    cases: int
    """Visible ones that are left."""
    why_not: str | None = None
    """Why no candidate can be judged by it; None: one can."""
    kind: Kind | None = None
    """How the baseline ended then."""


@dataclass(slots=True)
class _State:
    """A task as it is changed."""

    cases: dict[str, Case]
    hidden: dict[str, Case]
    in_place: list[str]
    nondeterministic: bool
    dropped: dict[str, Failure]
    said: list[str]


async def ground(services: Services, tasks: Sequence[Adapted], *, target: str | None) -> Grounded:
    """The first reading of an artefact by which a candidate can be judged; where there is none, the first that loads.

    Args:
        services: of this process, with a GPU.
        tasks: those of `choices`.
        target: a GPU to compile for while a reading is looked at; see `settle`.

    Raises:
        Stopped: no reading can be used; it says why the first can't.
    """
    failure: Stopped | None = None
    best: Grounded | None = None
    for adapted in tasks:
        try:
            settled = await settle(services, [adapted], target=target)
        except Stopped as stopped:
            if stopped.kind in NOT_ITS_DOING:
                raise
            failure = failure or stopped
            continue
        if settled.task.has_reference:
            return Grounded(settled.adapted, len(settled.task.cases.keys() - settled.dropped.keys()))
        found = await _Ground(services, settled).look()
        if found.why_not is None:
            return found
        best = best or found
    if best is not None:
        return best
    assert failure is not None
    raise failure


class _Ground:
    """One reading being tried."""

    def __init__(self, services: Services, settled: Settled) -> None:
        self._services, self._adapted = services, settled.adapted
        task = settled.task
        left = {name: case for name, case in task.cases.items() if name not in settled.dropped}
        hidden = {name: case for name, case in task.hidden_cases.items() if name not in settled.dropped}
        self._now = _State(left, hidden, list(task.in_place), task.nondeterministic, {}, [])
        self._all_small = all(case.small for case in left.values())
        self._kernel = Source(self._adapted.kernel, "kernel.py", origin(self._adapted))
        functions = facts_of(ast.parse(self._adapted.kernel)).functions
        self._entry: Function | None = functions.get(self._adapted.entry)

    async def look(self) -> Grounded:
        """Check the baseline against itself, change the task, and check again."""
        now = self._now
        first = dict(now.cases)
        if now.in_place and self._returns_new(set(now.in_place)):
            now.said.append(f"judged by {', '.join(now.in_place)} alone: what {self._adapted.entry} may return is not")
        failed: dict[str, Failure] = {}
        for at in range(MENDS + 1):
            failed = await self._failures()
            if not failed or at == MENDS or not self._mend(failed):
                break
        self._drop(failed)
        if not self._times_something():
            why = next(each for name, each in now.dropped.items() if name in first)
            now.cases = first
            return self._grounded(why)
        return self._grounded(None)

    def _times_something(self) -> bool:
        return any(not case.small or self._all_small for case in self._now.cases.values())

    async def _failures(self) -> dict[str, Failure]:
        """By case, hidden ones too, how the baseline disagrees with itself; those that agree are left out."""
        now = self._now
        waiting = {**now.cases, **now.hidden}
        every = replace(now, cases=waiting, hidden={})
        task = Source(self._written(every).task_text, "task.py", origin(self._adapted))
        failed: dict[str, Failure] = {}
        left = list(waiting)
        while left:
            # After a failure that ends a worker, the next cases get others.
            failed |= await self._services.beside_others(partial(self._some_failures, task, left))
        return failed

    async def _some_failures(self, task: Source, left: list[str], alone: bool) -> dict[str, Failure]:
        """The failures until one ends the workers; takes the names of those that were looked at from a list.

        Raises:
            Stopped: there is no GPU, or no memory beside others; what was looked at before that agrees.
        """
        services, failed = self._services, dict[str, Failure]()
        on_gpu = await services.has_gpu()
        async with AsyncExitStack() as stack:
            if on_gpu:
                await stack.enter_async_context(services.gpu_turn(alone=alone))
            tasks = await stack.enter_async_context(task_worker(services.executor, on_gpu=on_gpu))
            spec = await tasks.load(task)
            reference, candidate = [await stack.enter_async_context(await self._worker(on_gpu)) for _ in range(2)]
            try:
                for worker in (reference, candidate):
                    await worker.load(self._kernel, spec)
            except Stopped as stopped:
                _raise_if_not_its_doing(stopped)
                failed |= dict.fromkeys(left, stopped)
                left.clear()
                return failed
            while left:
                name = left[0]
                try:
                    audit = await sound_audit(
                        services.audits, name, spec, tasks, task, reference, self._kernel, on_gpu=on_gpu
                    )
                    found = await check_case(name, PLAN, spec, tasks, candidate, reference=reference, audit=audit)
                except Stopped as stopped:
                    _raise_if_not_its_doing(stopped)
                    if stopped.kind is Kind.OUT_OF_MEMORY and on_gpu and not alone:
                        if failed:
                            # They are known now; the case is looked at again, first of all.
                            return failed
                        raise
                    left.remove(name)
                    failed[name] = stopped
                    if stopped.kind is not Kind.REJECTED:
                        return failed
                else:
                    left.remove(name)
                    if found.kind is not Kind.OK:
                        failed[name] = found
        return failed

    async def _worker(self, on_gpu: bool) -> AbstractAsyncContextManager[KernelWorker]:
        if on_gpu:
            return gpu_worker(self._services.executor)
        facts = target_facts(await self._services.target(None))
        return interpreter_worker(self._services.executor, target=facts)

    def _mend(self, failed: dict[str, Failure]) -> bool:
        """Put into the task what the failures say of it; whether there was anything."""
        now = self._now
        changed = [_message(each) for each in failed.values() if CHANGED in _message(each)]
        names = list(dict.fromkeys(name for message in changed for name in self._arguments(message)))
        new = [name for name in names if name not in now.in_place]
        # In the others they may be what they seem: inputs. These would have no outputs then.
        agree = len(now.cases) + len(now.hidden) - len(failed)
        if new and len(changed) >= agree and not self._returns_new({*now.in_place, *names}):
            now.in_place += new
            now.said.append(f"{', '.join(new)}: written to, as seen when the baseline ran: outputs")
            return True
        differs = any(isinstance(each, CaseResult) and each.check == "nondeterministic" for each in failed.values())
        if differs and not now.nondeterministic:
            now.nondeterministic = True
            now.said.append("two calls of the baseline on the same inputs differ: candidates may, within tolerance")
            return True
        return False

    def _arguments(self, message: str) -> list[str]:
        """Names of the arguments that a message names by place or by name."""
        entry = self._entry
        if entry is None or entry.args.vararg is not None:
            return []
        names = parameters_of(entry)
        found = [name or names[int(place)] for place, name in INPUT.findall(message) if name or int(place) < len(names)]
        return [name for name in found if name in names]

    def _returns_new(self, written: set[str]) -> bool:
        """Whether the entry may return anything but its arguments: that would no longer be judged."""
        if self._entry is None:
            return True
        # One that is assigned where it is None is the argument wherever that was given, as what is written to was.
        names = set(parameters_of(self._entry)) - _assigned(self._entry.body, written)
        returned = [node.value for node in _own(self._entry) if isinstance(node, ast.Return) and node.value is not None]
        parts = [part for value in returned for part in (value.elts if isinstance(value, ast.Tuple) else [value])]
        return any(
            not (isinstance(part, ast.Constant) and part.value is None)
            and not (isinstance(part, ast.Name) and part.id in names)
            for part in parts
        )

    def _drop(self, failed: dict[str, Failure]) -> None:
        for name, found in failed.items():
            self._now.cases.pop(name, None)
            self._now.hidden.pop(name, None)
            self._now.dropped[name] = found

    def _written(self, now: _State) -> Adapted:
        """The task in a state."""

        def literal(cases: dict[str, Case]) -> str:
            shown = {
                name: {
                    **case.parameters,
                    **({"small": True} if case.small else {}),
                    **({"weight": case.weight} if case.weight != 1 else {}),
                }
                for name, case in cases.items()
            }
            return pprint.pformat(shown, width=WIDTH, sort_dicts=False)

        lines = (
            f"CASES = {literal(now.cases)}\nHIDDEN_CASES = {literal(now.hidden)}\n"
            f"IN_PLACE = {tuple(now.in_place)!r}\n" + ("NONDETERMINISTIC = True\n" if now.nondeterministic else "")
        )
        return replace(self._adapted, task=FROZEN.sub(lambda _: lines, self._adapted.task, count=1))

    def _grounded(self, failure: Failure | None) -> Grounded:
        now = self._now
        written = self._written(now).assuming(*now.said)
        if failure is not None:
            told = written.assuming(f"no candidate can be judged: {_words(failure)}")
            return Grounded(told, len(now.cases), _message(failure), failure.kind)
        left = [f"left out on the GPU: case {name} ({_words(each)})" for name, each in now.dropped.items()]
        return Grounded(written.assuming(*left), len(now.cases))


def _raise_if_not_its_doing(stopped: Stopped) -> None:
    if stopped.kind in NOT_ITS_DOING:
        raise stopped


def _own(function: Function) -> Iterator[ast.AST]:
    """The nodes of a function, without those of functions in it."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            continue
        yield node
        waiting += ast.iter_child_nodes(node)


def _assigned(body: Sequence[ast.stmt], written: set[str]) -> set[str]:
    """Names that stand for something else after they were assigned; where they are None they may be, if written to."""
    found: set[str] = set()
    waiting: list[ast.AST] = list(body)
    while waiting:
        node = waiting.pop()
        match node:
            case ast.If(
                test=ast.Compare(left=ast.Name(id=name), ops=[ast.Is()], comparators=[ast.Constant(value=None)])
            ) if name in written:
                found |= _assigned(node.body, written) - {name}
                waiting += node.orelse
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda() | ast.ClassDef():
                pass
            case ast.AugAssign(target=ast.Name()):
                # A tensor changes in place.
                waiting.append(node.value)
            case ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case _:
                waiting += ast.iter_child_nodes(node)
    return found


def _message(found: Failure) -> str:
    return found.problem.message if isinstance(found, Stopped) else found.message or ""


def _words(found: Failure) -> str:
    return f"{found.kind}: {' '.join(_message(found).split())[:REASON_CHARACTERS]}"
