"""What compile_kernel finds out of the launches of one kernel file, case by case."""

import hashlib
from typing import Final, NamedTuple

import anyio

from ...profiling.compiler import compare, remarks, sass_facts
from ...profiling.compiler.backends import backend_of
from ...profiling.compiler.details import LaunchDetails
from ...profiling.compiler.launch import LaunchFacts, with_grid
from ...profiling.hardware.model import Target
from ...sandbox.errors import Stopped
from ...sandbox.facts import Capture, CapturedLaunch, Explanation
from ...sandbox.outcome import Kind
from ...sandbox.workers import KernelWorker
from ..results import ended
from ..services import Services
from .compile_report import (
    CHANGES_SHOWN,
    EXPLAINED,
    LAUNCHES_SHOWN,
    PLACES_NAMED,
    REMARKS_SHOWN,
    CompileResult,
    ExplainedCode,
    Launch,
    LaunchObservation,
    comparison,
    distinct,
    ended_early,
    launch_of,
    next_step,
    summary,
    unexplained,
)

BY_FAULT_OF_A_KERNEL: Final = frozenset({Kind.COMPILE_ERROR, Kind.LAUNCH_ERROR})
"""A file that ends so did not only miss its results: one of its launches can't be made."""
KERNEL_FILE: Final = "kernel.py"
"""What a worker calls the kernel file."""
ARTIFACTS_OF_ONE: Final = 7
"""Of a launch that was explained: TTIR, TTGIR, LLIR, PTX, SASS, cubin and facts of all lines."""
COMPARED: Final = 16
"""Launches of a case that are compared with another file's."""
NOT_READ: Final = "only NVIDIA's machine code is read, and there is none of this launch"


class _Kept(NamedTuple):
    """A launch in which a fault counts, with what is known of its lines."""

    captured: CapturedLaunch
    capture: Capture
    case: str
    facts: LaunchFacts
    lines: LaunchDetails

    @property
    def binary(self) -> bytes | None:
        """NVIDIA's machine code."""
        blob = self.captured.assembly.get("cubin")
        return None if blob is None else self.capture.blobs[blob]


class Findings:
    """Launches and observations, case by case."""

    def __init__(self, services: Services, goal: Target) -> None:
        self.services, self.goal = services, goal
        self.entry: str | None = None
        self.failure: Stopped | None = None
        """How the file ended after its last launch."""
        self._backend = backend_of(goal)
        self._launches: list[Launch] = []
        self._omitted = 0
        self._observations: list[LaunchObservation] = []
        self._kept: list[_Kept] = []
        self._explained: dict[str, ExplainedCode] = {}
        self._sass: dict[str, str] = {}
        self._notes: list[str] = []
        self._changes: list[compare.LaunchChange] = []
        self._compared: str | None = None
        self._diffs: dict[str, str] = {}
        self._linked_diffs: list[str] = []
        self._artifacts: dict[str, str] = {}

    async def add(self, capture: Capture, case: str, *, observed: bool) -> None:
        """Take the launches of a case; `observed` are those in which a fault counts."""
        await anyio.to_thread.run_sync(lambda: self._add(capture, case, observed=observed))
        self._omitted += capture.left_out

    def _add(self, capture: Capture, case: str, *, observed: bool) -> None:
        known: dict[str, tuple[LaunchFacts, LaunchDetails]] = {}
        for captured in capture.launches:
            # A code is read once, on however many grids it is launched.
            code = captured.model_copy(update={"grid": (1, 1, 1), "count": 1, "tuning": False}).model_dump_json()
            if code not in known:
                known[code] = (
                    self._backend.facts(capture, captured, self.goal),
                    self._backend.details(capture, captured),
                )
            first, lines = known[code]
            facts = with_grid(first, captured.grid, self.goal)
            self._launches.append(launch_of(facts, captured, case, lines.places))
            if captured.tuning or not observed:
                continue
            self._observations += [
                LaunchObservation(**found.model_dump(), kernel=captured.kernel, case=case)
                for found in self._backend.observations(facts, self.goal)
            ]
            self._kept.append(_Kept(captured, capture, case, facts, lines))

    async def explain(self, kernels: KernelWorker) -> None:
        """Look into the machine codes of the launches, in the worker that compiled them."""
        codes: dict[str, _Kept] = {}
        for kept in self._kept:
            if len(codes) < EXPLAINED:
                codes.setdefault(kept.facts.code_hash, kept)
        wanted = {name: _sha256(kept.binary) for name, kept in codes.items() if kept.binary is not None}
        try:
            found = await kernels.explain(list(wanted.values())) if wanted else {}
        except Stopped as stopped:
            self._notes.append(unexplained(stopped))
            return
        for name, kept in codes.items():
            explanation = found.get(wanted.get(name, ""), Explanation([], None, NOT_READ))
            self._explained[name], lines = await anyio.to_thread.run_sync(_read, kept, explanation)
            if explanation.sass is not None:
                self._sass[name] = explanation.sass
            if kept.binary is None:
                continue
            # Equal code of another function has lines of its own.
            self._kept = [each._replace(lines=lines) if each.binary == kept.binary else each for each in self._kept]

    def note(self, text: str) -> None:
        """Something that a reader of the launches must know."""
        self._notes.append(text)

    async def compare_with(self, other: "Findings", name: str) -> None:
        """Tell what differs from another kernel file's launches."""
        self._compared = name
        for case in dict.fromkeys(kept.case for found in (other, self) for kept in found._kept):
            before, after = other._compiled_of(case), self._compiled_of(case)
            changed, diffs = await anyio.to_thread.run_sync(_differences, case, before, after)
            self._changes += changed
            for kernel, diff in diffs:
                self._diffs.setdefault(diff, f"{kernel}.ttgir.diff")

    def _compiled_of(self, case: str) -> list[compare.Compiled]:
        found: list[compare.Compiled] = []
        for kept in [kept for kept in self._kept if kept.case == case][:COMPARED]:
            ttgir, assembly = (kept.capture.text(kept.captured, stage) for stage in self._backend.stages)
            found.append(compare.Compiled(kept.facts, ttgir, assembly))
        return found

    async def store(self) -> None:
        """Keep what a result links to: all assembly of what was explained, and two texts of others."""
        stored_already: set[tuple[int, tuple[int, ...]]] = set()
        for kept in self._kept:
            same = id(kept.capture), tuple(kept.captured.assembly.values())
            if same in stored_already:
                continue
            stored_already.add(same)
            explained = kept.facts.code_hash in self._explained
            stages = kept.captured.assembly if explained else self._backend.stages
            files = {stage: kept.capture.blobs[kept.captured.assembly[stage]] for stage in stages}
            if kept.facts.code_hash in self._sass:
                files["sass"] = self._sass[kept.facts.code_hash].encode()
            files["lines.json"] = kept.lines.model_dump_json().encode()
            for suffix, data in files.items():
                stored = await self.services.artifacts.put(f"{kept.captured.kernel}.{suffix}", data)
                self._artifacts.setdefault(stored.uri, stored.name)
        for text, name in self._diffs.items():
            stored = await self.services.artifacts.put(name, text.encode())
            self._linked_diffs.append(stored.uri)

    def result(self) -> CompileResult:
        """Everything together."""
        failure = self.failure
        shown = sorted(self._launches, key=lambda launch: launch.tuning)[:LAUNCHES_SHOWN]
        omitted = len(self._launches) - len(shown) + self._omitted
        observations = distinct(self._observations)
        at_fault = failure is not None and failure.kind in BY_FAULT_OF_A_KERNEL
        notes = ([] if failure is None else [ended_early(failure)]) + self._notes
        explained = list(self._explained.values())
        if explained:
            # For room: the artifact of all lines has the others.
            shown = [launch.model_copy(update={"places": launch.places[:PLACES_NAMED]}) for launch in shown]
        told = summary(self.goal, shown, omitted, observations, explained, self._backend.unobserved)
        changes = self._changes[:CHANGES_SHOWN]
        compared = [] if self._compared is None else comparison(self._compared, changes, len(self._changes))
        unchanged = bool(self._changes) and all(change.same_code for change in self._changes)
        outcome = CompileResult(kind=Kind.OK, summary="", next_step=next_step(observations, unchanged=unchanged))
        if failure is not None and at_fault:
            outcome = ended(CompileResult, failure.kind, failure.problem)
        kinds = len(self._backend.stages) + 1 if not explained else ARTIFACTS_OF_ONE
        return outcome.model_copy(
            update={
                "summary": "\n".join(filter(None, [outcome.summary, *notes, *compared, told])),
                "target": self.goal.name,
                "entry": self.entry,
                "launches": shown,
                "launches_omitted": omitted,
                "observations": observations,
                "explained": explained,
                "compared_with": self._compared,
                "changes": changes,
                "changes_omitted": len(self._changes) - len(changes),
                "notes": notes,
                "artifacts": [
                    *self._linked_diffs[:CHANGES_SHOWN],
                    *list(self._artifacts)[: kinds * LAUNCHES_SHOWN],
                ],
            }
        )


def _differences(
    case: str, before: list[compare.Compiled], after: list[compare.Compiled]
) -> tuple[list[compare.LaunchChange], list[tuple[str, str]]]:
    """The changes of a case, and the IR's diffs with their kernels' names."""
    diffs = [
        (mine.facts.kernel, compare.ir_diff(its.ttgir, mine.ttgir))
        for its, mine in compare.matched(before, after)
        if its is not None and mine is not None and its.facts.code_hash != mine.facts.code_hash
    ]
    return compare.changes(case, before, after), [(kernel, diff) for kernel, diff in diffs if diff]


def _sha256(binary: bytes) -> str:
    return hashlib.sha256(binary).hexdigest()


def _read(kept: _Kept, explanation: Explanation) -> tuple[ExplainedCode, LaunchDetails]:
    """What an explanation says, for the result and for the artifact of all lines."""
    sass = None
    if explanation.sass is not None:
        sass = sass_facts.read(explanation.sass, kept.capture.text(kept.captured, "ptx"), kept.facts.spill_bytes)
    said = remarks.parse(explanation.said, KERNEL_FILE)
    lines = kept.lines.model_copy(update={"sass": sass.sites if sass else [], "remarks": said})
    code = ExplainedCode(
        kernel=kept.captured.kernel,
        case=kept.case,
        code_hash=kept.facts.code_hash,
        sass=sass.facts if sass else None,
        absent=None if sass else explanation.reason or NOT_READ,
        remarks=said[:REMARKS_SHOWN],
    )
    return code, lines
