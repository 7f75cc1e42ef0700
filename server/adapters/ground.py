"""Sees on the GPU whether an adapted task can judge anything: the baseline, its reference, must agree with itself.

Tests of other projects run their kernels on what happens to work. What a check of the baseline against itself finds is
put into the task where it can be (arguments that are written to, results that differ from run to run), or the case is
left out and named. Where the likeliest reading of an artefact leaves nothing to be timed, the next one is tried. Where
none can judge, one whose baseline runs is kept, so that it can be timed at least.
"""

import ast
import pprint
import re
from collections.abc import Sequence
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
from .returned import returns_new
from .settle import NOT_ITS_DOING, WIDTH, Settled, origin, settle

FROZEN: Final = re.compile(r"^CASES = .*?^IN_PLACE = \([^\n]*\)\n", re.MULTILINE | re.DOTALL)
"""What `settle` has written down."""
PLAN: Final = Plan(seeds=1, repeats=1)
MENDS: Final = 3
"""So often is a task changed before a case that still fails is left out."""
INPUT: Final = re.compile(r"\binput(?:\[(\d+)\]| (\w+))")
CHANGED: Final = "the call changed its inputs"
RETURNED: Final = re.compile(r"the reference returned [\d,]+ (NaN|infinite) elements")
NOT_FINITE: Final = {"NaN": "nan", "infinite": "inf"}
"""By what a message calls them, the special values of a task."""
BEFORE_THE_CALL: Final = frozenset({"source", "task", "inputs", "load"})
"""Stages in which a baseline is refused that never ran. What is refused later ran, and its results prove nothing."""
SIZES: Final = 2
"""So many cases of a spare reading are timed; the others are checked."""
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
    runs: int = 2
    """Where no candidate can be judged: 2: the baseline ran in a case that is timed; 1: in the small one; 0: not."""


@dataclass(slots=True)
class _State:
    """A task as it is changed."""

    cases: dict[str, Case]
    hidden: dict[str, Case]
    in_place: list[str]
    nondeterministic: bool
    special: list[str]
    dropped: dict[str, Failure]
    said: list[str]


async def ground(services: Services, tasks: Sequence[Adapted], *, target: str | None) -> Grounded:
    """The first reading of an artefact by which a candidate can be judged.

    Where there is none, the first whose baseline runs in a case that is timed, else in the small one, else the first
    that loads.

    Args:
        services: of this process, with a GPU.
        tasks: those of `choices`.
        target: a GPU to compile for while a reading is looked at; see `settle`.

    Raises:
        Stopped: no reading can be used; it says why the first can't.
    """
    failure: Stopped | None = None
    tried: list[tuple[_Ground, Grounded]] = []
    compiles = False
    for adapted in tasks:
        if adapted.is_spare and not compiles:
            # Other inputs are of no use to it.
            continue
        compiles = False
        try:
            settled = await settle(services, [adapted], target=target)
        except Stopped as stopped:
            if stopped.kind in NOT_ITS_DOING:
                raise
            failure = failure or stopped
            continue
        if settled.task.has_reference:
            return Grounded(settled.adapted, len(settled.task.cases.keys() - settled.dropped.keys()))
        looked = _Ground(services, settled)
        found = await looked.look()
        if found.why_not is None:
            return found
        compiles = looked.loads and found.kind is not Kind.COMPILE_ERROR
        tried.append((looked, found))
    for looked, _ in tried:
        again = looked.with_special_values()
        while again is not None:
            found = await again.look()
            if found.why_not is None:
                return found
            again = again.with_special_values()
    if not tried:
        assert failure is not None
        raise failure
    _, first = tried[0]
    best = max((found for _, found in tried), key=lambda each: each.runs)
    if best is first or not best.runs:
        return first
    told = f"another reading came first, and its baseline does not run: {first.kind}: {_shortened(first.why_not or '')}"
    return replace(best, adapted=best.adapted.assuming(told))


class _Ground:
    """One reading being tried."""

    def __init__(self, services: Services, settled: Settled, special: Sequence[str] = ()) -> None:
        self.loads = True
        self._services, self._settled, self._adapted = services, settled, settled.adapted
        task = settled.task
        left = {name: case for name, case in task.cases.items() if name not in settled.dropped}
        hidden = {name: case for name, case in task.hidden_cases.items() if name not in settled.dropped}
        self._now = _State(left, hidden, list(task.in_place), task.nondeterministic, list(special), {}, [])
        self._all_small = all(case.small for case in left.values())
        self._kernel = Source(self._adapted.kernel, "kernel.py", origin(self._adapted))
        functions = facts_of(ast.parse(self._adapted.kernel)).functions
        self._entry: Function | None = functions.get(self._adapted.entry)

    async def look(self) -> Grounded:
        """Check the baseline against itself, change the task, and check again."""
        now = self._now
        first = dict(now.cases)
        if now.special:
            now.said.append(
                f"the baseline returns {' and '.join(now.special)} in places, and a candidate has to as well"
            )
        if now.in_place and self._returns_new(set(now.in_place)):
            now.said.append(f"judged by {', '.join(now.in_place)} alone: what {self._adapted.entry} may return is not")
        failed: dict[str, Failure] = {}
        for at in range(MENDS + 1):
            failed = await self._failures()
            if not failed or at == MENDS or not self._mend(failed):
                break
        self._drop(failed)
        if not self._times_something():
            return self._unjudged(first)
        self._check_the_others()
        return self._grounded()

    def with_special_values(self) -> "_Ground | None":
        """The same reading, where what spoke against it is that its baseline returns NaN or Inf: these may be meant."""
        now = self._now
        messages = [_message(each) for each in now.dropped.values()]
        found = {NOT_FINITE[match[1]] for message in messages for match in RETURNED.finditer(message)}
        # The other of the two is told only where the first is allowed.
        more = sorted(found - set(now.special))
        return _Ground(self._services, self._settled, [*now.special, *more]) if more else None

    def _times_something(self) -> bool:
        return any(not case.small or self._all_small for case in self._now.cases.values())

    def _check_the_others(self) -> None:
        """Of the many sizes of a spare reading, the first are timed."""
        now = self._now
        others = [name for name, case in now.cases.items() if not case.small][SIZES:] if self._adapted.is_spare else []
        for name in others:
            now.hidden[name] = now.cases.pop(name)

    def _unjudged(self, first: dict[str, Case]) -> Grounded:
        """What can be timed, at least, of a reading by which no candidate can be judged."""
        now = self._now
        crashed = {name: each for name, each in now.dropped.items() if name in first and not self._ran(each)}
        ran = {name: case for name, case in first.items() if name not in crashed}
        timed = [name for name, case in ran.items() if not case.small or self._all_small]
        failures = [now.dropped[name] for name in [*timed, *ran, *first] if name in now.dropped]
        now.cases = ran or first
        if ran:
            now.said += [f"left out on the GPU: case {name} ({_words(each)})" for name, each in crashed.items()]
        if ran and not timed:
            now.cases = {name: case.model_copy(update={"small": False, "weight": 1.0}) for name, case in ran.items()}
            now.said.append(f"timed on {', '.join(ran)}, which is small: the baseline runs in no other case")
        self._check_the_others()
        written = self._written(now).assuming(*now.said, f"no candidate can be judged: {_words(failures[0])}")
        return Grounded(
            written, len(now.cases), _message(failures[0]), failures[0].kind, runs=2 if timed else 1 if ran else 0
        )

    def _ran(self, failure: Failure) -> bool:
        """Whether the baseline came to its end, whatever its results are worth."""
        if isinstance(failure, Stopped) and (not self.loads or failure.problem.stage in BEFORE_THE_CALL):
            return False
        return failure.kind in (Kind.WRONG, Kind.REJECTED)

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
                if stopped.kind is Kind.OUT_OF_MEMORY and on_gpu and not alone:
                    raise
                self.loads = False
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
        return self._entry is None or returns_new(self._entry, written)

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
            f"IN_PLACE = {tuple(now.in_place)!r}\n"
            + ("NONDETERMINISTIC = True\n" if now.nondeterministic else "")
            + (f"SPECIAL_VALUES = {tuple(now.special)!r}\n" if now.special else "")
        )
        return replace(self._adapted, task=FROZEN.sub(lambda _: lines, self._adapted.task, count=1))

    def _grounded(self) -> Grounded:
        now = self._now
        left = [f"left out on the GPU: case {name} ({_words(each)})" for name, each in now.dropped.items()]
        return Grounded(self._written(now).assuming(*now.said, *left), len(now.cases))


def _raise_if_not_its_doing(stopped: Stopped) -> None:
    if stopped.kind in NOT_ITS_DOING:
        raise stopped


def _message(found: Failure) -> str:
    return found.problem.message if isinstance(found, Stopped) else found.message or ""


def _words(found: Failure) -> str:
    return f"{found.kind}: {_shortened(_message(found))}"


def _shortened(message: str) -> str:
    return " ".join(message.split())[:REASON_CHARACTERS]
