"""Scores candidates for search frameworks: one call in, a score, feedback and side information out.

    with Evaluator("baseline.py", "task.py") as evaluator:
        evaluation = evaluator(program_text)

What is judged is what a run judges (compiled, checked, timed beside the baseline, and, for those that are faster, a
second look with fresh seeds and hidden cases), but nothing is kept: the search remembers. The workers stay warm between
calls.
"""

import hashlib
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import anyio
from anyio.from_thread import start_blocking_portal

from ..profiling.optimization.arbiter import promising
from ..profiling.optimization.hints import hints
from ..profiling.optimization.model import (
    BASELINE,
    Attempt,
    Budget,
    Confirmation,
    Evidence,
    Limits,
    Memory,
    Timing,
)
from ..sandbox.errors import Stopped, Unfit
from ..sandbox.outcome import Kind, Problem
from ..sandbox.source import INLINE, Source, read_file, read_source, source_text
from ..sandbox.wire import Wire
from .evaluation_words import feedback, side_info
from .runs.evaluation import ToolEvaluator
from .runs.evaluator import Evaluator as RunEvaluator
from .runs.evaluator import Identified, Other, Sources
from .runs.memory import now
from .runs.record import Frozen
from .services import Services
from .settings import Settings, from_environment

NOT_ITS_DOING: Final = frozenset({Kind.CANCELLED, Kind.UNAVAILABLE})
"""Ends that say nothing of a candidate."""


class Evaluation(Wire):
    """What one candidate is worth."""

    kind: Kind
    """`ok`: right in all cases, and timed; else how it failed. `unavailable`: it could not be timed here."""
    score: float | None
    """Higher is better: the baseline's time over the candidate's, weighted geometric mean over the cases (1.0 is the
    baseline), the smaller one where it was measured twice; 0 for a candidate that failed. None: it is unknown, because
    this machine can't time it; no number would be true."""
    feedback: str
    """For a model: what was wrong and how to mend it, or how fast each case is and what to change next."""
    side: dict[str, Any]
    """The same as data, JSON throughout: problem, cases, findings, hints, launches, second look."""

    def known_score(self) -> float:
        """The score, for those who need one.

        Raises:
            Stopped: ``unavailable``: there is none. No candidate has one on this machine, so the search can't go on.
        """
        if self.score is None:
            raise Stopped(
                Kind.UNAVAILABLE,
                Problem(stage="benchmark", message=f"a candidate can't be scored here: {self.side['why_no_score']}"),
            )
        return self.score

    def for_openevolve(self) -> tuple[dict[str, float], dict[str, str | bytes]]:
        """Metrics (`combined_score` first) and artifacts, as OpenEvolve's `EvaluationResult` takes them.

        Raises:
            Stopped: as of `known_score`.
        """
        metrics = {"combined_score": self.known_score(), "correct": float(self.kind is Kind.OK)}
        metrics |= {f"ratio_{case['case']}": case["ratio"] for case in self.side["cases"]}
        return metrics, {"feedback": self.feedback, "kind": self.kind.value}

    def for_gepa(self) -> tuple[float, dict[str, Any]]:
        """Score and side information, as evaluators of GEPA's `optimize_anything` return them.

        Raises:
            Stopped: as of `known_score`.
        """
        scores = {case["case"]: case["ratio"] for case in self.side["cases"]}
        told: dict[str, Any] = {"scores": scores, "Feedback": self.feedback}
        # All of it goes into a prompt, and the feedback has the rest in words.
        if self.side["launches"]:
            told["Compiled"] = self.side["launches"]
        return self.known_score(), told


class Evaluator:
    """A warm evaluator of candidates against one baseline and one task. May be called from several threads.

    Use it as a context manager, or `close` it: its workers are processes.
    """

    def __init__(
        self,
        baseline: str | Path,
        task: str | Path,
        *,
        hidden_cases: str | Path | None = None,
        target: str | None = None,
        settings: Settings | None = None,
        evaluator: Callable[[Services], RunEvaluator] = ToolEvaluator,
    ) -> None:
        """Start it: the baseline is checked and timed.

        Args:
            baseline: the kernel file that candidates are compared with: a path, or, as a str with a line break, its
                text. A str without one is a path: a text that a model wrote belongs into a file first.
            task: the same of the task.
            hidden_cases: the same of a file with HIDDEN_CASES; by default the task's, or derived ones.
            target: what is compiled for; by default this machine's GPU.
            settings: interpreter of the workers, state folder, limits; by default as the environment says.
            evaluator: what measures.

        Raises:
            Stopped: a file can't be used, or the baseline fails.
            TypeError: what should be a str or Path is something else.
        """
        sources = [_named(baseline, "baseline"), _named(task, "task")]
        hidden = None if hidden_cases is None else _named(hidden_cases, "hidden_cases")
        services = Services(settings or from_environment())
        self._inner = _Inner(services, evaluator(services))
        with ExitStack() as stack:
            self._portal = stack.enter_context(start_blocking_portal())
            stack.enter_context(self._portal.wrap_async_context_manager(self._inner.opened()))
            self._portal.call(self._inner.begin, sources[0], sources[1], hidden, target)
            self._stack = stack.pop_all()
        self._closed = False

    def __call__(self, program: str | Path) -> Evaluation:
        """Evaluate one candidate.

        Args:
            program: its text, whatever stands in it; or, as a Path and never as a str, the path of its file.

        Raises:
            Stopped: ``rejected``: there is no such file; ``cancelled``, ``unavailable``: nothing can be said of it.
            TypeError: it is neither.
            RuntimeError: this evaluator is closed.
        """
        return self._evaluated(_candidate(program))

    def _evaluated(self, candidate: Source | Unfit) -> Evaluation:
        if self._closed:
            raise RuntimeError("this Evaluator is closed and its workers have ended: make another one")
        return self._portal.call(self._inner.evaluate, candidate)

    def __enter__(self) -> "Evaluator":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End its workers; nothing happens the second time."""
        self._closed = True
        self._stack.close()


def evaluate(
    program: str | Path,
    *,
    baseline: str | Path,
    task: str | Path,
    hidden_cases: str | Path | None = None,
    target: str | None = None,
    settings: Settings | None = None,
    evaluator: Callable[[Services], RunEvaluator] = ToolEvaluator,
) -> Evaluation:
    """Evaluate one candidate, and end all workers: for more than one, `Evaluator` saves their start.

    Args:
        program: text of the candidate, whatever stands in it; or, as a Path and never as a str, the path of its file.
        baseline: the kernel file that it is compared with, as path or text: see `Evaluator`.
        task: the task, as path or text.
        hidden_cases: a file with HIDDEN_CASES, as path or text.
        target: what is compiled for; by default this machine's GPU.
        settings: by default as the environment says.
        evaluator: what measures.

    Raises:
        Stopped: a file can't be used, the baseline fails, or nothing can be said of the candidate.
        TypeError: what should be a str or Path is something else.
    """
    # A path that leads nowhere is told before anything is measured.
    candidate = _candidate(program)
    with Evaluator(
        baseline, task, hidden_cases=hidden_cases, target=target, settings=settings, evaluator=evaluator
    ) as warm:
        return warm._evaluated(candidate)  # pyright: ignore[reportPrivateUsage]


def _candidate(program: object) -> Source | Unfit:
    """The candidate, or what is wrong with its text.

    Raises:
        Stopped: ``rejected``: there is no such file.
        TypeError: it is neither text nor path.
    """
    try:
        if isinstance(program, str):
            return source_text(program, "kernel")
        if isinstance(program, Path):
            source = read_file(str(program), "kernel")
            return source if source.text.strip() else Unfit(f"{program} is empty", file=str(program))
    except Unfit as unfit:
        return unfit
    raise TypeError(f"a candidate is its text (str) or the path of its file (Path), not {type(program).__name__}")


def _named(given: object, what: str) -> Source:
    """
    Raises:
        Stopped: ``rejected``: it can't be used.
        TypeError: it is neither text nor path.
    """
    if isinstance(given, Path):
        return read_file(str(given), what)
    if isinstance(given, str):
        return read_source(given, what)
    raise TypeError(f"{what} is a path (str or Path) or a text (str with a line break), not {type(given).__name__}")


def unknown(kind: Kind, problem: Problem) -> Evaluation:
    """What is told of a candidate that could not be judged, for a reason that is none of its doing."""
    why = problem.message if problem.likely_fix is None else f"{problem.message}. {problem.likely_fix}"
    evidence = Evidence(kind=kind, stage="compile", problem=problem)
    side = {**side_info(evidence, problem, (), problem.message, None), "stage": problem.stage}
    return Evaluation(kind=kind, score=None, feedback=f"No score: {why}", side=side)


class _Inner:
    """The asynchronous half."""

    def __init__(self, services: Services, evaluator: RunEvaluator) -> None:
        self._services, self._evaluator = services, evaluator
        self._frozen: Frozen
        self._sources: Sources
        self._baseline: Attempt

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[None]:
        async with self._services:
            yield

    async def begin(self, baseline: Source, task: Source, hidden: Source | None, target: str | None) -> None:
        """Measure the baseline."""
        asked = await self._evaluator.look(baseline, task, hidden, target)
        frozen = Frozen(
            run_id="search", created_at=now(), title=asked.title or asked.entry, kernel_sha256=_sha256(baseline.text),
            task_sha256=_sha256(task.text), kernel_shown_as=baseline.shown_as, task_shown_as=task.shown_as,
            kernel_origin=baseline.origin, task_origin=task.origin, entry=asked.entry, cases=asked.cases,
            hidden_sha256=None, hidden_from=asked.hidden_from, hidden_count=len(asked.hidden), target=asked.target,
            gpu=asked.gpu, torch=asked.torch, triton=asked.triton, budget=Budget(attempts=1000), limits=Limits(),
        )  # fmt: skip
        measured = await self._evaluator.baseline(frozen, Sources(baseline, task, asked.hidden), _silent)
        self._frozen = frozen.model_copy(update={"hidden_count": len(measured.hidden)})
        self._sources = Sources(baseline, task, measured.hidden)
        self._baseline = Attempt(
            number=BASELINE, state="finished", parent=None, strategy="the baseline",
            kernel_sha256=frozen.kernel_sha256, text_identity=frozen.kernel_sha256, submitted_at=frozen.created_at,
            evidence=measured.evidence,
        )  # fmt: skip

    async def evaluate(self, candidate: Source | Unfit) -> Evaluation:
        """Judge one candidate; one that is no text of a Python file has failed."""
        if isinstance(candidate, Unfit):
            return self._told(Evidence(kind=candidate.kind, stage="compile", problem=candidate.problem))
        if candidate.shown_as == INLINE:
            # It is a form of the baseline, so it finds what that imports.
            candidate = candidate._replace(origin=self._sources.baseline.origin)
        async with self._services.evaluations:
            try:
                known = await self._evaluator.identify(self._frozen, self._sources, candidate)
            except Stopped as stopped:
                if stopped.kind in NOT_ITS_DOING:
                    raise
                return self._told(Evidence(kind=stopped.kind, stage="compile", problem=stopped.problem))
            return self._told(await self._measured(candidate, known))

    async def _measured(self, candidate: Source, known: Identified) -> Evidence:
        assert self._baseline.evidence is not None
        other = Other(BASELINE, self._sources.baseline, self._baseline.evidence)
        evidence = await self._evaluator.evaluate(self._frozen, self._sources, candidate, known, other, other, _silent)
        if evidence.kind is not Kind.OK or evidence.untimed is not None or promising(evidence, self._memory()):
            return evidence
        second = await self._evaluator.confirm(self._frozen, self._sources, candidate, other, _silent)
        return evidence.model_copy(update={"confirmation": second, "stage": "acceptance"})

    def _told(self, evidence: Evidence) -> Evaluation:
        memory = self._memory()
        advice = hints(evidence, self._baseline.evidence, memory, "")
        second, first = evidence.confirmation, evidence.timing(BASELINE)
        kind, problem = evidence.kind, evidence.problem
        if kind is Kind.OK and second is not None and second.kind is not Kind.OK:
            kind, problem = second.kind, second.problem
        untimed = None
        if kind is Kind.OK and first is None:
            untimed = evidence.untimed if self._frozen.gpu is not None else "this machine has no GPU that can be used"
            untimed = untimed or "it was not timed"
        score = 0.0 if kind is not Kind.OK else None if first is None else _score(first, second)
        if untimed is not None:
            kind = Kind.UNAVAILABLE
        refused = promising(evidence, memory) if kind is Kind.OK else None
        side = side_info(evidence, problem, advice, untimed, None if refused is None else refused.reasons)
        return Evaluation(kind=kind, score=score, feedback=feedback(kind, score, side), side=side)

    def _memory(self) -> Memory:
        return Memory(
            attempts=[self._baseline], incumbent=BASELINE, budget=self._frozen.budget, limits=self._frozen.limits,
            elapsed_s=0.0,
        )  # fmt: skip


def _score(first: Timing, second: Confirmation | None) -> float:
    again = None if second is None else second.timing
    return first.ratio if again is None else min(first.ratio, again.ratio)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


async def _silent(done: float, total: float, message: str) -> None:
    await anyio.lowlevel.checkpoint()
