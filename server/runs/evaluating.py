"""The evaluation of one attempt from beginning to end, as a job: measured, judged, and kept in one transaction."""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import anyio

from ...profiling.optimization.arbiter import decide, promising
from ...profiling.optimization.model import BASELINE, Attempt, Evidence, Hint, Memory, Prediction
from ...sandbox.errors import Stopped
from ...sandbox.outcome import Kind
from ...sandbox.source import Source
from ..mispredictions import GainMisprediction, record
from .evaluator import Evaluator, Identified, Other, Sources
from .jobs import Job
from .memory import (
    changed,
    hidden_text,
    is_to_be_verified,
    memory_of,
    now,
    source_of,
    sources_of,
    taught,
    verified,
)
from .record import Run
from .store import Store

_log = logging.getLogger(__name__)

COMPARED_AT_MOST: Final = 5
"""How often a candidate is measured, where others were accepted meanwhile."""
NOT_ITS_DOING: Final = frozenset({Kind.CANCELLED, Kind.UNAVAILABLE})
"""Ends that say nothing of a candidate: it can be evaluated again."""
PROMISED: Final = ("kernel", "case", "expected_pct", "at_most_pct", "seen_pct", "seen_low_pct", "seen_high_pct")


class _Loaded(NamedTuple):
    """An attempt with its files."""

    run: Run
    attempt: Attempt
    sources: Sources
    candidate: Source


@dataclass(slots=True)
class Evaluation:
    """Evaluates attempts of a store's runs."""

    store: Store
    evaluator: Evaluator
    advises: bool = True
    """Whether attempts get hints."""
    state_dir: Path | None = None
    """Where predictions that did not come true are kept; None: nowhere."""
    _judging: anyio.Lock = field(default_factory=anyio.Lock)
    """One verdict at a time: each counts those before it."""

    async def baseline(self, run_id: str, job: Job) -> None:
        """Measure a new run's baseline, and open the run.

        Raises:
            Stopped: ``cancelled`` or ``unavailable``: it can be measured again.
        """
        loaded = await anyio.to_thread.run_sync(self._load, run_id, 0)
        try:
            measured = await self.evaluator.baseline(loaded.run.frozen, loaded.sources, job.progress)
        except Stopped as stopped:
            if stopped.kind in NOT_ITS_DOING:
                raise
            await anyio.to_thread.run_sync(self._fail, loaded, stopped)
            return

        def keep() -> None:
            if measured.hidden == loaded.sources.hidden:
                hidden = loaded.run.frozen.hidden_sha256
            else:
                hidden = self.store.put_file(hidden_text(measured.hidden)) if measured.hidden else None
            update = {
                "hidden_sha256": hidden,
                "hidden_count": len(measured.hidden),
                "hidden_dropped": measured.dropped,
                "hidden_from": loaded.run.frozen.hidden_from if measured.hidden else "none",
            }
            frozen = loaded.run.frozen.model_copy(update=update)
            verdict = decide(measured.evidence, memory_of(loaded.run, []))
            finished = _finished(loaded.attempt, measured.evidence).model_copy(
                update={
                    "verdict": verdict,
                    "hints": self._hints(measured.evidence, None, memory_of(loaded.run, []), ""),
                }
            )
            over = verdict.verdict == "finish"
            self.store.finish(
                run_id,
                finished,
                expected_incumbent=None,
                run=lambda run: changed(
                    run, frozen=frozen, state="finished" if over else "open", ended_by=verdict.ended_by
                ),
            )

        await anyio.to_thread.run_sync(keep)

    async def candidate(self, run_id: str, number: int, job: Job) -> None:
        """Evaluate a candidate, however it ends.

        Raises:
            Stopped: ``cancelled`` or ``unavailable``: it can be evaluated again.
        """
        loaded = await anyio.to_thread.run_sync(self._load, run_id, number)
        await job.progress(0, 4, "compiling")
        started = time.perf_counter()
        try:
            known = await self.evaluator.identify(loaded.run.frozen, loaded.sources, loaded.candidate)
        except Stopped as stopped:
            if stopped.kind in NOT_ITS_DOING:
                raise
            evidence = Evidence(kind=stopped.kind, stage="compile", problem=stopped.problem)
            await self._judge(loaded, evidence, None)
            return
        compile_s = round(time.perf_counter() - started, 2)
        if await anyio.to_thread.run_sync(self._is_duplicate, loaded, known.identity):
            return
        for left in reversed(range(COMPARED_AT_MOST)):
            incumbent, parent = await anyio.to_thread.run_sync(self._others, loaded)
            evidence = await self._measured(loaded, known, incumbent, parent, job)
            evidence = evidence.model_copy(update={"seconds": {"compile": compile_s, **evidence.seconds}})
            if await self._judge(loaded, evidence, incumbent.number if left else None):
                return

    async def winner(self, run_id: str, job: Job) -> None:
        """Look once more at the winner of a run that has ended, beside the baseline.

        Raises:
            Stopped: ``cancelled`` or ``unavailable``: it can be looked at again.
        """
        run = await anyio.to_thread.run_sync(self.store.run, run_id)
        if not is_to_be_verified(run):
            return
        loaded = await anyio.to_thread.run_sync(self._load, run_id, run.incumbent)
        baseline = await anyio.to_thread.run_sync(self._other, run_id, BASELINE)
        await job.progress(0, 1, "measuring the winner once more")
        found = await self.evaluator.confirm(run.frozen, loaded.sources, loaded.candidate, baseline, job.progress)

        def keep(run: Run) -> Run:
            return verified(run, loaded.attempt, found)

        await anyio.to_thread.run_sync(self.store.change, run_id, keep)

    async def _measured(
        self, loaded: _Loaded, known: Identified, incumbent: Other, parent: Other, job: Job
    ) -> Evidence:
        frozen = loaded.run.frozen
        evidence = await self.evaluator.evaluate(
            frozen, loaded.sources, loaded.candidate, known, incumbent, parent, job.progress
        )
        memory = await anyio.to_thread.run_sync(self._memory, loaded)
        if memory.incumbent != incumbent.number or promising(evidence, memory):
            return evidence
        confirmation = await self.evaluator.confirm(frozen, loaded.sources, loaded.candidate, incumbent, job.progress)
        return evidence.model_copy(update={"confirmation": confirmation, "stage": "acceptance"})

    async def _judge(self, loaded: _Loaded, evidence: Evidence, incumbent: int | None) -> bool:
        """Decide over an attempt and keep it.

        Args:
            loaded: the attempt.
            evidence: what was found.
            incumbent: which it was compared with; None: it is kept whatever the incumbent is by now.

        Returns:
            Whether it is kept: not where another was accepted meanwhile that it has to be compared with.
        """
        async with self._judging:
            return await anyio.to_thread.run_sync(self._keep, loaded, evidence, incumbent)

    # In threads

    def _load(self, run_id: str, number: int) -> _Loaded:
        run, attempt = self.store.run(run_id), self.store.attempt(run_id, number)
        return _Loaded(run, attempt, sources_of(self.store, run.frozen), source_of(self.store, attempt))

    def _memory(self, loaded: _Loaded) -> Memory:
        run_id = loaded.run.frozen.run_id
        return memory_of(self.store.run(run_id), self.store.attempts(run_id))

    def _others(self, loaded: _Loaded) -> tuple[Other, Other]:
        """The incumbent and the parent."""
        run_id = loaded.run.frozen.run_id
        incumbent, parent = self.store.run(run_id).incumbent, loaded.attempt.parent or 0
        found = [self._other(run_id, number) for number in (incumbent, parent)]
        return found[0], found[1]

    def _other(self, run_id: str, number: int) -> Other:
        attempt = self.store.attempt(run_id, number)
        assert attempt.evidence is not None
        return Other(number, source_of(self.store, attempt), attempt.evidence)

    def _is_duplicate(self, loaded: _Loaded, identity: str) -> bool:
        """Whether it compiles to what an earlier attempt compiles to; then it is kept as that."""
        run_id = loaded.run.frozen.run_id
        earlier = self.store.find(run_id, identity=identity)
        if earlier is None or earlier.number == loaded.attempt.number or earlier.evidence is None:
            return False
        attempt = duplicate(loaded.attempt, earlier)
        self.store.finish(run_id, attempt, expected_incumbent=None)
        return True

    def _fail(self, loaded: _Loaded, stopped: Stopped) -> None:
        evidence = Evidence(kind=stopped.kind, stage="correctness", problem=stopped.problem)
        self.store.finish(
            loaded.run.frozen.run_id,
            _finished(loaded.attempt, evidence),
            expected_incumbent=None,
            run=lambda run: changed(run, state="failed", problem=f"{stopped.kind}: {stopped.problem.message}"),
        )

    def _keep(self, loaded: _Loaded, evidence: Evidence, incumbent: int | None) -> bool:
        run_id = loaded.run.frozen.run_id
        if evidence.identity is not None and self._is_duplicate(loaded, evidence.identity):
            return True  # of one that was evaluated beside it
        run, attempts = self.store.run(run_id), self.store.attempts(run_id)
        memory = memory_of(run, attempts)
        if incumbent is not None and memory.incumbent != incumbent and evidence.kind is Kind.OK and evidence.timings:
            return False
        verdict = decide(evidence, memory, loaded.attempt.strategy)
        measured = loaded.attempt.model_copy(update={"evidence": evidence})
        predicted = _prediction(measured, attempts)
        parents = [each for each in attempts if each.number == loaded.attempt.parent]
        before = parents[0].evidence if parents else None
        attempt = _finished(loaded.attempt, evidence).model_copy(
            update={
                "verdict": verdict,
                "accepted": verdict.accepted,
                "counted": evidence.kind is Kind.OK or run.frozen.budget.failed_count,
                "hints": self._hints(evidence, before, memory, loaded.attempt.strategy),
                "predicted": predicted,
            }
        )
        ends = verdict.verdict == "finish"
        kept = self.store.finish(
            run_id,
            attempt,
            expected_incumbent=memory.incumbent if verdict.accepted else None,
            run=lambda run: changed(
                run,
                state="finished" if ends else None,
                ended_by=verdict.ended_by,
                incumbent=attempt.number if verdict.accepted else None,
            ),
            taught=partial(taught, number=attempt.number),
        )
        if kept:
            self._learn(run, attempt, before)
        return kept

    def _learn(self, run: Run, attempt: Attempt, before: Evidence | None) -> None:
        """Keep what a finding promised of an attempt and did not hold."""
        predicted, frozen = attempt.predicted, run.frozen
        if self.state_dir is None or predicted is None or predicted.came == "as_expected" or frozen.gpu is None:
            return
        missed = GainMisprediction(
            id=predicted.finding,
            came=predicted.came,
            device=frozen.gpu,
            triton=frozen.triton,
            parent_identity=None if before is None else before.identity,
            identity=None if attempt.evidence is None else attempt.evidence.identity,
            run_id=frozen.run_id,
            attempt=attempt.number,
            **predicted.model_dump(include=set(PROMISED)),
        )
        if not record(self.state_dir, [missed]):
            _log.warning("a misprediction of attempt %s of run %s could not be kept", attempt.number, frozen.run_id)

    def _hints(self, evidence: Evidence, before: Evidence | None, memory: Memory, strategy: str) -> list[Hint]:
        if not self.advises:
            return []
        # The rules that they rest on take a while to be loaded: not when the server starts.
        from ...profiling.optimization.hints import hints

        return hints(evidence, before, memory, strategy)


def _prediction(attempt: Attempt, attempts: Sequence[Attempt]) -> Prediction | None:
    from ...profiling.optimization.predictions import prediction

    return prediction(attempt, attempts)


def _finished(attempt: Attempt, evidence: Evidence) -> Attempt:
    finished_at = now(attempt.submitted_at)
    return attempt.model_copy(update={"state": "finished", "finished_at": finished_at, "evidence": evidence})


def duplicate(attempt: Attempt, earlier: Attempt) -> Attempt:
    """An attempt that is another one over again: it has that one's evidence, verdict apart, and costs nothing."""
    first = earlier.number if earlier.duplicate_of is None else earlier.duplicate_of
    assert earlier.evidence is not None
    return _finished(attempt, earlier.evidence).model_copy(
        update={"duplicate_of": first, "counted": False, "hints": earlier.hints}
    )
