"""Whether a kernel's results are right: evidence from two workers that never see each other's side."""

import secrets
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import anyio

from ..sandbox.errors import Stopped, rejected
from ..sandbox.facts import Audit, CallFacts, Difference, Expected, Launched, OutputAccuracy, OutputComparison, Skipped
from ..sandbox.outcome import Kind, Problem
from ..sandbox.replies import Values
from ..sandbox.task import Task
from ..sandbox.wire import Wire
from ..sandbox.workers import Call, KernelWorker, TaskWorker
from .audit import blaming_baseline
from .rounds import Plan, Round, rounds_of
from .verdict import (
    Check,
    Fault,
    Outside,
    aliased_of,
    call_faults,
    missing_kernel,
    named,
    outside,
    repeat_fault,
    require_no_decoy,
    value_faults,
    worst_output,
)

KEY_BYTES: Final = 8
"""Of the pattern in the margins around tensors."""
ACCURACY: Final = "accuracy against float64"
LAUNCHES_SHOWN: Final = 20
"""Distinct kernels of a case that are named."""


class CaseResult(Wire):
    """One case over all its inputs; the errors are those of the worst of its random inputs, or of those on which it
    is wrong."""

    case: str
    kind: Kind
    check: Check | None
    """What found it wrong."""
    inputs: str | None
    """The inputs on which it is wrong: `random`, a structured variant such as `zeros`, or a layout."""
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
    accuracy: OutputAccuracy | None
    """Error against the float64 reference beside the reference's own; null where there is none: `skipped` says why."""
    nondeterministic: Difference | None
    """How two calls on the same inputs differed, where the task allows it."""
    structured: list[str]
    """Structured inputs and layouts that were run."""
    skipped: list[Skipped]
    """What was not checked, and why."""
    launches: list[Launched]
    """Triton kernels that a call launches, the first of them."""
    outside_triton_pct: float | None
    """Share of the device's time that a call spends outside the kernel file's Triton kernels; null without a GPU."""
    outside_triton: list[str]
    """What that is; without a GPU the torch operations that compute something."""
    message: str | None
    """What is wrong, in words."""
    likely_cause: str | None
    likely_fix: str | None


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A round whose inputs are made and whose expected outputs are known."""

    round: Round
    seed: int
    slot: int
    """Where the task's worker keeps them."""
    inputs: Values
    expected: Expected
    upstream: Values | None


class _Calling:
    """A call of the kernel that goes on beside other work; what comes of it is kept until that is done."""

    def __init__(self) -> None:
        self._result: Call | Stopped | None = None

    async def run(self, call: Callable[[_Prepared], Awaitable[Call]], on: _Prepared) -> None:
        """Call, and keep a failure too: that of the round before it comes first."""
        try:
            self._result = await call(on)
        except Stopped as stopped:
            self._result = stopped

    def result(self) -> Call:
        """What the call gave.

        Raises:
            Stopped: its failure.
        """
        if isinstance(self._result, Stopped):
            raise self._result
        assert self._result is not None
        return self._result


@dataclass(slots=True)
class _Evidence:
    """What has been seen of one case so far."""

    seeds: list[int] = field(default_factory=list[int])
    structured: list[str] = field(default_factory=list[str])
    skipped: list[Skipped] = field(default_factory=list[Skipped])
    worst: OutputComparison | None = None
    elements: int = 0
    accuracy: OutputAccuracy | None = None
    nondeterministic: Difference | None = None
    facts: CallFacts | None = None
    beside: Outside = field(default_factory=lambda: Outside(None, 0.0, [], gave_results=True))


async def check_case(
    case: str,
    plan: Plan,
    spec: Task,
    tasks: TaskWorker,
    candidate: KernelWorker,
    *,
    reference: KernelWorker | None = None,
    audit: Audit | None = None,
) -> CaseResult:
    """Compare the candidate's outputs with the expected ones on fresh inputs, until something is wrong.

    Args:
        case: name of the case.
        plan: how much is checked.
        spec: the task.
        tasks: worker of the loaded task.
        candidate: worker of the loaded kernel.
        reference: worker of the kernel whose outputs are expected; None: the task's own reference.
        audit: which structured inputs are fair, and whether there is a float64 reference.

    Raises:
        Stopped: any outcome but ``ok`` and ``wrong``.
    """
    return await _CaseCheck(case, plan, spec, tasks, candidate, reference, audit).run()


class _CaseCheck:
    """One case being checked."""

    def __init__(
        self,
        case: str,
        plan: Plan,
        spec: Task,
        tasks: TaskWorker,
        candidate: KernelWorker,
        reference: KernelWorker | None,
        audit: Audit | None,
    ) -> None:
        self._case, self._plan, self._spec = case, plan, spec
        self._tasks, self._candidate, self._reference, self._audit = tasks, candidate, reference, audit
        self._key = secrets.token_bytes(KEY_BYTES)
        self._seen = _Evidence(skipped=list(audit.skipped) if audit is not None and plan.structured else [])

    async def run(self) -> CaseResult:
        """All rounds: while the kernel has the inputs of one, that before it is judged and the next is made."""
        rounds = rounds_of(self._plan, self._spec, self._audit)
        now = await self._prepare(rounds, 0)
        assert now is not None
        call = await self._call(now)
        faults = await self._judge(now, call) or await self._repeat(now)
        if faults:
            return self._result(now.round, faults)
        called: tuple[_Prepared, Call] | None = None
        ahead = await self._prepare(rounds, 1)
        while ahead is not None or called is not None:
            calling = _Calling()
            following: _Prepared | None = None
            stopped: Stopped | None = None
            async with anyio.create_task_group() as both:
                if ahead is not None:
                    both.start_soon(calling.run, self._call, ahead)
                try:
                    if called is not None:
                        faults = await self._judge(*called)
                    if ahead is not None and not faults:
                        following = await self._prepare(rounds, 1 - ahead.slot)
                except Stopped as error:
                    stopped = error
                # Where only this case ends, the call does too: its worker goes on to the next, and a reply that nobody
                # waited for would be taken for that to another request.
                if stopped is not None:
                    both.cancel_scope.cancel()
            if stopped is not None:
                raise stopped
            if faults:
                assert called is not None
                return self._result(called[0].round, faults)
            called = (ahead, calling.result()) if ahead is not None else None
            ahead = following
        return self._result(None, [])

    async def _prepare(self, rounds: Iterator[Round], slot: int) -> _Prepared | None:
        """Inputs and expected outputs of the next round that is fair; None where there is none any more."""
        for one in rounds:
            # Drawn now, after the candidate has been loaded: nothing in it can know them.
            seed = secrets.randbelow(1 << 31)
            inputs, expected = await self._make(one, seed, slot)
            if not self._is_fair(one, expected):
                continue
            if one.name == "random":
                await self._expect_exact(slot)
            upstream = await self._tasks.upstream(slot=slot) if self._spec.grad else None
            return _Prepared(one, seed, slot, inputs, expected, upstream)
        return None

    async def _make(self, one: Round, seed: int, slot: int) -> tuple[Values, Expected]:
        tasks, of = self._tasks, (self._case, seed, one.variant, one.scale, one.layout, one.slacks)
        if self._reference is None:
            return await tasks.make_and_expect(*of, slot=slot)
        inputs = await tasks.make_inputs(*of, slot=slot)
        # First, and copied by it before the candidate gets the same memory, to which it could write.
        await self._reference.set_inputs(inputs)
        with blaming_baseline():
            call = await self._reference.call()
        expected = await tasks.expect_from(call.values, slot=slot)
        # Its results came as copies; where they lay is known from its own call.
        return inputs, expected.model_copy(update={"aliased": aliased_of(call.facts)})

    async def _call(self, now: _Prepared) -> Call:
        offset = int(now.round.layout == "offset")
        await self._candidate.set_inputs(now.inputs, offset=offset, reuse=now.round.reuse)
        return await self._candidate.call(None if now.round.ordinary else self._key, upstream=now.upstream)

    def _is_fair(self, one: Round, expected: Expected) -> bool:
        """Structured inputs count only where the reference gives numbers; of the task's own the audit knows."""
        if one.name == "random" or one.variant in self._spec.special_values:
            return True
        values = [value for value in ("nan", "inf") if value not in self._spec.special_values]
        if any(getattr(output, value) for output in expected.outputs for value in values):
            self._seen.skipped.append(Skipped(name=one.name, reason="the reference is not finite there"))
            return False
        return True

    async def _expect_exact(self, slot: int) -> None:
        """For all random inputs: what is accurate at first may not stay so."""
        if self._audit is None:
            return
        reason = self._audit.exact
        if reason is None:
            reason = await self._tasks.expect_exact(slot=slot)
        if reason is not None and not any(skipped.name == ACCURACY for skipped in self._seen.skipped):
            self._seen.skipped.append(Skipped(name=ACCURACY, reason=reason))

    async def _judge(self, now: _Prepared, call: Call) -> list[Fault]:
        # What was made and called ahead counts only when its turn comes.
        if now.round.name == "random":
            self._seen.seeds.append(now.seed)
        else:
            self._seen.structured.append(now.round.name)
        found = await self._tasks.judge(call.values, self._key, slot=now.slot)
        if not found.outputs:
            # Arguments that were changed may be what is meant.
            changed = [fault.message for fault in value_faults(found) if fault.check == "inputs_changed"]
            raise rejected(
                "compare",
                "; ".join(["the reference returned nothing to compare", *changed]),
                fix="Return the outputs from reference, or name mutated arguments in IN_PLACE.",
            )
        seen = self._seen
        seen.elements = sum(output.elements for output in found.outputs)
        for one in found.accuracy:
            if seen.accuracy is None or one.error * seen.accuracy.allowed > seen.accuracy.error * one.allowed:
                seen.accuracy = one
        faults = [named(fault, found.broken, call.facts.labels) for fault in value_faults(found)]
        faults += call_faults(call.facts, seen.facts, now.expected.aliased, bool(self._spec.in_place))
        seen.facts = call.facts
        # Errors on extreme inputs say nothing about ordinary ones.
        if faults:
            seen.worst = worst_output(found.outputs)
        elif now.round.name == "random":
            seen.worst = worst_output([*found.outputs, *([seen.worst] if seen.worst is not None else [])])
        if (message := missing_kernel(call.facts)) is not None:
            raise Stopped(Kind.REJECTED, Problem(stage="run", message=message))
        if now.round.ordinary and not faults and call.facts.activities is not None:
            self._require_own_work(call.facts)
        return faults

    async def _repeat(self, now: _Prepared) -> list[Fault]:
        """The same inputs again, first as an ordinary call and recorded."""
        differing: list[Difference] = []
        for number in range(self._plan.repeats):
            before = self._seen.facts
            call = await self._candidate.call(self._key if number else None, upstream=now.upstream)
            if number == 0:
                self._require_own_work(call.facts)
            faults = call_faults(call.facts, before, now.expected.aliased, bool(self._spec.in_place))
            if faults:
                return faults
            self._seen.facts = call.facts
            differing += await self._tasks.repeat(call.values, slot=now.slot)
            faults = await self._judge_again(now, call) if number == 0 or self._spec.nondeterministic else []
            if faults and (self._spec.nondeterministic or not differing):
                return faults
        fault = repeat_fault(differing)
        if fault is None:
            return []
        if self._spec.nondeterministic:
            self._seen.nondeterministic = max(differing, key=lambda one: one.elements)
            return []
        return [fault]

    async def _judge_again(self, now: _Prepared, call: Call) -> list[Fault]:
        """Values and inputs of a further call on the same inputs.

        The ordinary call is judged for itself: what notices that it is watched may change its inputs only where it is
        not. Where results may differ from call to call, each call's must be right.
        """
        found = await self._tasks.judge(call.values, self._key, slot=now.slot)
        faults = [named(fault, found.broken, call.facts.labels) for fault in value_faults(found)]
        if faults and (worst := worst_output(found.outputs)) is not None:
            self._seen.worst = worst
        return faults

    def _require_own_work(self, facts: CallFacts) -> None:
        """The work is done by Triton kernels of the kernel file.

        Raises:
            Stopped: ``rejected`` where none ran, ``cheating`` where they are a decoy.
        """
        message = missing_kernel(facts)
        if message is not None:
            raise Stopped(Kind.REJECTED, Problem(stage="run", message=message))
        recorded = outside(facts)
        if recorded.pct is not None or self._seen.facts is None:
            self._seen.beside = recorded
        else:
            # Operations are seen in calls with margins.
            self._seen.beside = outside(self._seen.facts)
        require_no_decoy(recorded)

    def _result(self, one: Round | None, faults: list[Fault]) -> CaseResult:
        seen = self._seen
        worst = seen.worst
        assert worst is not None
        compared = worst.mismatch is None
        first = faults[0] if faults else None
        return CaseResult(
            case=self._case,
            kind=Kind.WRONG if faults else Kind.OK,
            check=first.check if first is not None else None,
            inputs=one.name if one is not None else None,
            seeds=seen.seeds,
            elements=seen.elements,
            max_abs_error=worst.max_abs_error if compared else None,
            max_rel_error=worst.max_rel_error if compared else None,
            wrong_elements=worst.wrong_elements,
            worst_output=worst.where,
            worst_index=worst.worst_index,
            worst_expected=worst.worst_expected,
            worst_got=worst.worst_got,
            rtol=worst.rtol if compared else None,
            atol=worst.atol if compared else None,
            accuracy=seen.accuracy,
            nondeterministic=seen.nondeterministic,
            structured=seen.structured,
            skipped=seen.skipped,
            launches=seen.facts.launched[:LAUNCHES_SHOWN] if seen.facts is not None else [],
            outside_triton_pct=seen.beside.pct,
            outside_triton=seen.beside.names,
            message="; also: ".join(fault.message for fault in faults) or None,
            likely_cause=first.cause if first is not None else None,
            likely_fix=first.fix if first is not None else None,
        )
