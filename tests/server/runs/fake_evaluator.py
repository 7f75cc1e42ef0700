"""An evaluator that measures nothing: each file says in a comment how it ends.

A comment line such as ``# FAKE: {"ratio": 1.3}`` scripts a file; without one it is right and as fast as the baseline.
Comments are no part of a file's identity, so `candidate` writes files that differ in code too.
"""

import ast
import hashlib
import json
import math
from typing import Any, Final, cast

import anyio
from pydantic import Field

from tritonforge.profiling.comparison import Outcome
from tritonforge.profiling.optimization.model import (
    CaseTime,
    CaseTiming,
    Confirmation,
    Diagnosed,
    Evidence,
    FindingNote,
    Timing,
)
from tritonforge.sandbox.errors import Stopped, rejected
from tritonforge.sandbox.outcome import Kind, Problem
from tritonforge.sandbox.source import Source
from tritonforge.sandbox.wire import Wire
from tritonforge.server.runs.evaluator import Asked, Identified, Measured, Other, Sources
from tritonforge.server.runs.record import Frozen, HiddenCases
from tritonforge.server.tools.parameters import Progress

MARK: Final = "# FAKE: "
GPU: Final = "NVIDIA H200 (made up)"
BASELINE_US: Final = 100.0
CASES: Final = {"large": 3.0, "ragged": 1.0}
"""Weights by name."""
FIXES: Final = "Mend what the script says."
NO_GPU: Final = "this machine has no GPU"


class Script(Wire):
    """How a file ends."""

    kind: Kind = Kind.OK
    message: str = "as its script says"
    ratio: float = Field(default=1.0, gt=0)
    """Of the baseline's time over its own."""
    cases: dict[str, float] = {}
    """The same of single cases; the others have `ratio`."""
    call_ratio: float | None = None
    """The same of whole calls; by default as of the device."""
    noise_pct: float = 0.2
    """Half of the interval's width."""
    identity: str | None = None
    """Of its machine code; by default every file has its own."""
    confirm: Kind = Kind.OK
    """How the second look ends."""
    light_pct: float = 10.0
    """Share of the speed of light that the baseline reaches."""
    findings: list[str] = []
    """Ids, each with a title of its own."""
    hold: str | None = None
    """Name of an event that its evaluation waits for: `FakeEvaluator.release`."""
    seconds: float = 0.0
    """That its evaluation takes."""
    fault: bool = False
    """Whether its evaluation fails for a fault of the evaluator's."""
    timed: bool = True
    """Of a task: whether there is a GPU."""


def script(text: str) -> Script:
    """What a file says of its end."""
    for line in text.splitlines():
        if line.startswith(MARK):
            return Script.model_validate_json(line.removeprefix(MARK))
    return Script()


def candidate(value: float, **fake: Any) -> str:
    """A kernel file whose code differs with `value`, and which ends as `fake` says."""
    return f"{MARK}{json.dumps(fake)}\ndef entry(x):\n    return x * {value}\n"


def task(name: str = "made up", *, hidden: HiddenCases | None = None, **fake: Any) -> str:
    """A task file; `fake` may say that nothing is timed."""
    kept = f"HIDDEN_CASES = {hidden!r}\n" if hidden else ""
    return f'"""{name}"""\n{MARK}{json.dumps(fake)}\n{kept}ENTRY = "entry"\n'


class FakeEvaluator:
    """Implements `Evaluator`; counts its calls and remembers who was compared with whom."""

    def __init__(self) -> None:
        self.identified = 0
        self.compared: list[tuple[str, int]] = []
        """Text of a candidate, and the number of the incumbent that it was compared with."""
        self.confirmed = 0
        self._held: dict[str, anyio.Event] = {}
        self._reached: dict[str, anyio.Event] = {}

    def release(self, name: str) -> None:
        """Let those go on that hold at `name`."""
        _event(self._held, name).set()

    async def reached(self, name: str) -> None:
        """Wait until an evaluation holds at `name`."""
        await _event(self._reached, name).wait()

    async def look(self, kernel: Source, task: Source, hidden: Source | None, target: str | None) -> Asked:
        if target == "h1000":
            raise rejected("target", "there is no target h1000", fix="Give h200.")
        try:
            module = ast.parse(task.text)
            given = _hidden(task.text if hidden is None else hidden.text)
        except (SyntaxError, ValueError) as error:
            raise rejected("task", f"the task can't be read: {error}", file=task.shown_as, fix=FIXES) from None
        timed = script(task.text).timed
        return Asked(
            title=ast.get_docstring(module) or "untitled",
            entry="entry",
            cases=list(CASES),
            hidden=given or {"derived": {"n": 7}},
            hidden_from="file" if hidden is not None else "task" if given else "derived",
            target="h200",
            gpu=GPU if timed else None,
            torch="2.11.0",
            triton="3.6.0",
        )

    async def baseline(self, frozen: Frozen, sources: Sources, progress: Progress) -> Measured:
        told = script(sources.baseline.text)
        await self._work(told, progress, "measuring the baseline")
        if told.kind is not Kind.OK:
            raise Stopped(told.kind, _problem(told))
        evidence = Evidence(
            kind=Kind.OK,
            stage="done",
            identity=_identity(sources.baseline.text),
            device="cuda:0" if frozen.gpu else "interpreter",
            own=[_own(name, told) for name in frozen.cases] if frozen.gpu else [],
            untimed=None if frozen.gpu else NO_GPU,
            diagnosed=_diagnosed(told),
            seconds={"correctness": 1.25, "benchmark": 2.5},
        )
        return Measured(evidence, sources.hidden, {})

    async def identify(self, frozen: Frozen, sources: Sources, candidate: Source) -> Identified:
        self.identified += 1
        told = script(candidate.text)
        if told.kind in (Kind.COMPILE_ERROR, Kind.REJECTED):
            raise Stopped(told.kind, _problem(told))
        return Identified(_identity(candidate.text), [])

    async def evaluate(
        self, frozen: Frozen, sources: Sources, candidate: Source, known: Identified, incumbent: Other,
        parent: Other, progress: Progress,
    ) -> Evidence:  # fmt: skip
        told = script(candidate.text)
        await self._work(told, progress, "checking results")
        if told.kind in (Kind.UNAVAILABLE, Kind.CANCELLED):
            raise Stopped(told.kind, _problem(told))
        device = "cuda:0" if frozen.gpu else "interpreter"
        found = Evidence(
            kind=told.kind, stage="done", identity=known.identity, launches=known.launches, device=device
        )  # fmt: skip
        if told.kind is not Kind.OK:
            return found.model_copy(update={"stage": "correctness", "problem": _problem(told)})
        if frozen.gpu is None:
            return found.model_copy(update={"untimed": NO_GPU})
        await progress(2, 4, "timing")
        self.compared.append((candidate.text, incumbent.number))
        others = {0: sources.baseline, incumbent.number: incumbent.source}
        return found.model_copy(
            update={
                "own": [_own(name, told) for name in frozen.cases],
                "timings": [_timing(told, number, other, frozen.cases) for number, other in others.items()],
                "diagnosed": _diagnosed(told),
                "seconds": {"compile": 0.25, "correctness": 0.5, "benchmark": 1.0},
            }
        )

    async def confirm(
        self, frozen: Frozen, sources: Sources, candidate: Source, incumbent: Other, progress: Progress
    ) -> Confirmation:
        self.confirmed += 1
        await progress(3, 4, "looking again")
        told = script(candidate.text)
        if told.confirm is not Kind.OK:
            return Confirmation(kind=told.confirm, problem=_problem(told), hidden_checked=len(sources.hidden))
        timing = _timing(told, incumbent.number, incumbent.source, [*frozen.cases, *sources.hidden])
        return Confirmation(kind=Kind.OK, hidden_checked=len(sources.hidden), timing=timing)

    async def _work(self, told: Script, progress: Progress, what: str) -> None:
        await progress(1, 4, what)
        if told.hold is not None:
            _event(self._reached, told.hold).set()
            await _event(self._held, told.hold).wait()
        await anyio.sleep(told.seconds)
        if told.fault:
            raise ZeroDivisionError("a made-up fault of the evaluator")


def _event(events: dict[str, anyio.Event], name: str) -> anyio.Event:
    return events.setdefault(name, anyio.Event())


def _hidden(text: str) -> HiddenCases:
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "HIDDEN_CASES":
            return cast(HiddenCases, ast.literal_eval(node.value))
    return {}


def _identity(text: str) -> str:
    return script(text).identity or hashlib.sha256(text.encode()).hexdigest()


def _problem(told: Script) -> Problem:
    return Problem(
        stage="compile", message=told.message, file="<source>", line=3, excerpt=">    3 | x", likely_fix=FIXES
    )


def _ratio(told: Script, case: str) -> float:
    return told.cases.get(case, told.ratio)


def _own(case: str, told: Script) -> CaseTime:
    ratio = _ratio(told, case)
    return CaseTime(
        case=case,
        weight=CASES[case],
        device_us=BASELINE_US / ratio,
        call_us=BASELINE_US / ratio + 10,
        speed_of_light_pct=min(100.0, told.light_pct * ratio),
        headroom=max(1.0, 100 / (told.light_pct * ratio)),
        first_call_s=0.5,
    )


def _timing(told: Script, against: int, other: Source, cases: list[str]) -> Timing:
    beside = script(other.text)
    noise = told.noise_pct / 100
    found: list[CaseTiming] = []
    for case in cases:
        ratio = _ratio(told, case) / _ratio(beside, case)
        calls = (told.call_ratio or _ratio(told, case)) / (beside.call_ratio or _ratio(beside, case))
        found.append(
            CaseTiming(
                case=case,
                weight=CASES.get(case, 1.0),
                device_us=BASELINE_US / _ratio(told, case),
                call_us=BASELINE_US / (told.call_ratio or _ratio(told, case)),
                other_device_us=BASELINE_US / _ratio(beside, case),
                ratio=ratio,
                ratio_low=ratio * (1 - noise),
                ratio_high=ratio * (1 + noise),
                comparison=_comparison(ratio * (1 - noise), ratio * (1 + noise)),
                min_detectable_pct=told.noise_pct,
                call_ratio=calls,
                call_ratio_low=calls * (1 - noise),
                call_ratio_high=calls * (1 + noise),
                speed_of_light_pct=min(100.0, told.light_pct * _ratio(told, case)),
                headroom=max(1.0, 100 / (told.light_pct * _ratio(told, case))),
                first_call_s=0.5,
                hidden=case not in CASES,
            )
        )
    visible = [case for case in found if not case.hidden]
    total = sum(case.weight for case in visible)
    score = math.exp(sum(case.weight * math.log(case.ratio) for case in visible) / total)
    low, high = score * (1 - noise), score * (1 + noise)
    return Timing(
        against=against, ratio=score, ratio_low=low, ratio_high=high, comparison=_comparison(low, high), cases=found
    )


def _comparison(low: float, high: float) -> Outcome:
    return "faster" if low > 1 else "slower" if high < 1 else "same"


def _diagnosed(told: Script) -> Diagnosed | None:
    if not told.findings:
        return None
    notes = [
        FindingNote(
            id=name,
            title=f"made-up finding {name}",
            kernel="kernel",
            line=3,
            recipe=f"Mend {name}.",
            expected_pct=20.0,
            at_most_pct=40.0,
        )
        for name in told.findings
    ]
    return Diagnosed(case="large", findings=notes, unmeasured="nothing is profiled here")
