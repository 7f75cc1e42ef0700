"""The runs of a server: begun, fed with candidates, waited for, and picked up again after whatever stopped them."""

import json
import re
import secrets
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Final, NamedTuple

import anyio

from ...profiling.optimization import novelty
from ...profiling.optimization.arbiter import ends
from ...profiling.optimization.model import BASELINE, Attempt, Budget, Limits, Memory
from ...sandbox.errors import Stopped, rejected
from ...sandbox.outcome import Kind
from ...sandbox.source import Source
from ..tools.parameters import Progress
from .evaluating import Evaluation, duplicate
from .evaluator import Asked, Evaluator
from .jobs import Job, JobKey, Jobs, wait
from .memory import changed, is_to_be_verified, lessons_of, memory_of, now, source_of
from .record import Frozen, Run
from .store import Store

WINNER: Final = -1
"""In a job's key: the last look at the winner."""
POLL_S: Final = 0.5
"""How often an evaluation by another server is looked for."""
STRATEGY_CHARACTERS: Final = 500
SLUG_CHARACTERS: Final = 24


class Beginning(NamedTuple):
    """A run as a caller asks for it."""

    kernel: Source
    task: Source
    hidden: Source | None
    target: str | None
    budget: Budget
    limits: Limits


class Answer(NamedTuple):
    """Where an attempt and its run stand."""

    run: Run
    attempt: Attempt
    memory: Memory
    """All finished attempts, this one too."""


class Machine:
    """The runs of one server process. Use it as an asynchronous context manager."""

    def __init__(
        self,
        store: Store,
        evaluator: Evaluator,
        turn: Callable[[], AbstractAsyncContextManager[object]] = nullcontext,
    ) -> None:
        """
        Args:
            store: where runs are kept.
            evaluator: measures baseline and candidates.
            turn: entered by each evaluation: waits until there is room for one more.
        """
        self.store = store
        self._evaluator, self._turn = evaluator, turn
        self._evaluation = Evaluation(store, evaluator)
        self._jobs = Jobs()

    async def __aenter__(self) -> "Machine":
        await self._jobs.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._jobs.__aexit__(*error)
        await anyio.to_thread.run_sync(self.store.close)

    async def start(self, beginning: Beginning) -> Run:
        """Freeze kernel and task, and begin to measure the baseline.

        Raises:
            Stopped: a file can't be used, or nothing can be kept.
        """
        asked = await self._evaluator.look(beginning.kernel, beginning.task, beginning.hidden, beginning.target)
        run = await anyio.to_thread.run_sync(self._create, beginning, asked)
        self._begin(run.frozen.run_id, BASELINE)
        return run

    async def submit(self, run_id: str, kernel: Source, strategy: str, parent: int | None) -> Attempt:
        """Take a candidate: a job evaluates it, unless an earlier attempt answers for it.

        Raises:
            Stopped: ``rejected``: the run takes none, or there is no such run or parent.
        """
        words = " ".join(strategy.split())[:STRATEGY_CHARACTERS]
        if not words:
            raise rejected("run", "strategy is empty", fix="Say in a sentence what was changed and why it should help.")
        await self.resume(run_id)
        attempt = await anyio.to_thread.run_sync(self._take, run_id, kernel, words, parent)
        if attempt.state == "running":
            self._begin(run_id, attempt.number)
        return attempt

    async def wait(self, run_id: str, number: int, wait_s: float, progress: Progress) -> bool:
        """Wait for an attempt.

        Returns:
            Whether it is over.

        Raises:
            Stopped: its evaluation ended by what is no candidate's doing, or there is no such attempt.
        """
        job = self._jobs.get(JobKey(run_id, number))
        if job is not None:
            until = anyio.current_time() + wait_s
            ended = await wait(job, wait_s, progress)
            await self._wait_for_winner(run_id, until, progress)
            return ended

        async def over() -> bool:
            return (await anyio.to_thread.run_sync(self.store.attempt, run_id, number)).state != "running"

        with anyio.move_on_after(wait_s):
            while not await over():
                await progress(0, 1, "another server evaluates it")
                await anyio.sleep(POLL_S)
            return True
        return await over()

    async def answer(self, run_id: str, number: int) -> Answer:
        """Where an attempt stands.

        Raises:
            Stopped: ``rejected``: there is no such run or attempt.
        """

        def read() -> Answer:
            run = self.store.run(run_id)
            return Answer(run, self.store.attempt(run_id, number), memory_of(run, self.store.attempts(run_id)))

        return await anyio.to_thread.run_sync(read)

    def at_work(self, run_id: str) -> dict[int, str]:
        """What this server evaluates of a run: how far each attempt is."""
        return {number: job.message for number, job in self._jobs.running(run_id)}

    async def resume(self, run_id: str) -> list[int]:
        """Begin again what a server that ended has left behind; the numbers of these attempts.

        Raises:
            Stopped: there is no such run.
        """
        left = await anyio.to_thread.run_sync(self.store.orphans, run_id)
        begun: list[int] = []
        for _, attempt in left:
            # One that this server could not evaluate is left to another, or to a person.
            if self._jobs.get(JobKey(run_id, attempt.number)) is not None:
                continue
            if await anyio.to_thread.run_sync(self.store.adopt, run_id, attempt.number) is not None:
                self._begin(run_id, attempt.number)
                begun.append(attempt.number)
        await self._verify(run_id)
        return begun

    async def cancel(self, run_id: str, number: int) -> bool:
        """End an evaluation of this server, for good; whether it went on. Without its baseline a run has failed."""
        job = self._jobs.get(JobKey(run_id, number))
        if job is None or job.finished.is_set():
            return False
        job.cancel()
        with anyio.CancelScope(shield=True):
            await job.finished.wait()
            if number == BASELINE:
                await anyio.to_thread.run_sync(self._fail, run_id, "cancelled: its baseline is not measured")
        return True

    async def end(self, run_id: str) -> Run:
        """End a run, because its user has enough of it.

        Raises:
            Stopped: there is no such run.
        """

        def change() -> Run:
            return self._end(self.store.run(run_id), "user")

        ended = await anyio.to_thread.run_sync(change)
        await self._verify(run_id)
        return ended

    async def _wait_for_winner(self, run_id: str, until: float, progress: Progress) -> None:
        job = self._jobs.get(JobKey(run_id, WINNER))
        if job is not None and not job.finished.is_set():
            await wait(job, until - anyio.current_time(), progress)

    async def _verify(self, run_id: str) -> None:
        """Begin to look at a winner once more, where that is to be done and nobody here does or has failed to."""
        if self._jobs.get(JobKey(run_id, WINNER)) is not None:
            return
        run = await anyio.to_thread.run_sync(self.store.run, run_id)
        if not is_to_be_verified(run):
            return

        async def work(job: Job) -> None:
            async with self._turn():
                await self._evaluation.winner(run_id, job)

        self._jobs.start(JobKey(run_id, WINNER), work)

    def _begin(self, run_id: str, number: int) -> None:
        async def work(job: Job) -> None:
            kept = wanted = False
            try:
                async with self._turn():
                    if number == BASELINE:
                        await self._evaluation.baseline(run_id, job)
                    else:
                        await self._evaluation.candidate(run_id, number, job)
                kept = True
                await self._verify(run_id)
            except Stopped as stopped:
                wanted = stopped.kind is Kind.CANCELLED
                raise
            finally:
                if not kept:
                    # Also behind a fault of ours: the attempt would seem to go on for ever.
                    state = "cancelled" if wanted or job.cancelled else "interrupted"
                    with anyio.CancelScope(shield=True):
                        await anyio.to_thread.run_sync(self.store.abandon, run_id, number, state)

        self._jobs.start(JobKey(run_id, number), work)

    # In threads

    def _create(self, beginning: Beginning, asked: Asked) -> Run:
        kernel, task = beginning.kernel, beginning.task
        started = now()
        frozen = Frozen(
            run_id=f"{_slug(asked.title or asked.entry)}-{secrets.token_hex(3)}",
            created_at=started,
            title=asked.title or asked.entry,
            kernel_sha256=self.store.put_file(kernel.text),
            task_sha256=self.store.put_file(task.text),
            kernel_shown_as=kernel.shown_as,
            task_shown_as=task.shown_as,
            kernel_origin=kernel.origin,
            task_origin=task.origin,
            entry=asked.entry,
            cases=asked.cases,
            hidden_sha256=self.store.put_file(json.dumps(asked.hidden, sort_keys=True)) if asked.hidden else None,
            hidden_from=asked.hidden_from,
            hidden_count=len(asked.hidden),
            target=asked.target,
            gpu=asked.gpu,
            torch=asked.torch,
            triton=asked.triton,
            budget=beginning.budget,
            limits=beginning.limits,
        )
        run = Run(frozen=frozen, state="measuring", updated_at=started)
        self.store.create(run)
        self._claim(run, kernel, "the baseline", None, counts=False)
        return run

    def _claim(
        self, run: Run, kernel: Source, strategy: str, parent: int | None, *, counts: bool,
        remarks: list[str] | None = None,
    ) -> Attempt:  # fmt: skip
        return self.store.claim(
            run.frozen.run_id,
            parent=parent,
            strategy=strategy,
            kernel_sha256=self.store.put_file(kernel.text),
            kernel_shown_as=kernel.shown_as,
            kernel_origin=kernel.origin,
            text_identity=novelty.text_identity(kernel.text),
            counts=counts,
            remarks=remarks or [],
        )

    def _take(self, run_id: str, kernel: Source, strategy: str, parent: int | None) -> Attempt:
        run = self.store.run(run_id)
        attempts = self.store.attempts(run_id)
        memory = memory_of(run, attempts)
        if run.state == "open" and (ended := ends(memory)) is not None:
            run = self._end(run, ended)
        _require_open(run)
        chosen = run.incumbent if parent is None else parent
        same = self.store.find(run_id, text_identity=novelty.text_identity(kernel.text))
        if same is not None:
            attempt = self._claim(run, kernel, strategy, chosen, counts=False)
            finished = duplicate(attempt, same)
            self.store.finish(run_id, finished, expected_incumbent=None)
            return finished
        texts = {each.number: source_of(self.store, each).text for each in attempts if each.duplicate_of is None}
        remarks = novelty.remarks(kernel.text, strategy, attempts, texts)
        return self._claim(run, kernel, strategy, chosen, counts=True, remarks=remarks)

    def _fail(self, run_id: str, problem: str) -> None:
        def change(run: Run) -> Run:
            # Its baseline may have been measured before it was told to end.
            return run if run.state != "measuring" else changed(run, state="failed", problem=problem)

        self.store.change(run_id, change)

    def _end(self, run: Run, ended_by: str) -> Run:
        run_id = run.frozen.run_id
        if run.state in ("finished", "failed"):
            return run
        ended = self.store.change(run_id, lambda run: changed(run, state="finished", ended_by=ended_by))
        self.store.put_lessons(lessons_of(ended, self.store.attempts(run_id)))
        return ended


def _require_open(run: Run) -> None:
    """
    Raises:
        Stopped: ``rejected``: it takes no candidates.
    """
    run_id = run.frozen.run_id
    match run.state:
        case "open":
            return
        case "measuring":
            raise rejected(
                "run",
                f"the baseline of run {run_id} is still being measured",
                fix=f"Call get_run(run_id='{run_id}') until its state is open, then submit again.",
            )
        case "failed":
            raise rejected(
                "run",
                f"run {run_id} has failed: {run.problem}",
                fix="Mend the baseline or the task, and call start_optimization again.",
            )
        case "finished":
            raise rejected(
                "run",
                f"run {run_id} is finished ({run.ended_by}); its best attempt is {run.incumbent}",
                fix=f"Read the result with get_run(run_id='{run_id}'). To go on, call start_optimization with the best "
                "attempt's file as the kernel.",
            )


def _slug(title: str) -> str:
    """The beginning of a run's id, for people."""
    words = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
    return words[:SLUG_CHARACTERS].rstrip("-") or "run"
