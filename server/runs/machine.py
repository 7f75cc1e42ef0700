"""The runs of a server: begun, fed with candidates, waited for, and picked up again after whatever stopped them."""

import contextlib
import re
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import Final, NamedTuple

import anyio

from ...profiling.optimization import novelty
from ...profiling.optimization.arbiter import ends
from ...profiling.optimization.model import BASELINE, Attempt, Budget, Limits
from ...sandbox.errors import Stopped, rejected
from ...sandbox.outcome import Kind
from ...sandbox.source import Source
from ..tools.parameters import Progress
from .admission import Claim
from .answer import Answer, answer_of
from .evaluating import Evaluation, duplicate
from .evaluator import Asked, Evaluator
from .jobs import Job, JobKey, Jobs, wait
from .memory import changed, elapsed_s, hidden_text, is_to_be_verified, memory_of, now, taught
from .neighbours import at_home
from .record import Frozen, Run
from .store import Store
from .visible import require_separable

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


class Machine:
    """The runs of one server process. Use it as an asynchronous context manager."""

    def __init__(
        self,
        store: Store,
        evaluator: Evaluator,
        turn: Callable[[], AbstractAsyncContextManager[object]] = nullcontext,
        *,
        advises: bool = True,
        state_dir: Path | None = None,
    ) -> None:
        """
        Args:
            store: where runs are kept.
            evaluator: measures baseline and candidates.
            turn: entered by each evaluation: waits until there is room for one more.
            advises: whether attempts get hints.
            state_dir: where predictions that did not come true are kept; None: nowhere.
        """
        self.store = store
        self._evaluator, self._turn = evaluator, turn
        self._evaluation = Evaluation(store, evaluator, advises, state_dir)
        self._jobs = Jobs()
        self._taking, self._verifying = anyio.Lock(), anyio.Lock()
        self._wanted: Counter[JobKey] = Counter()

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
        # A star import or the like may make some of which no line tells.
        require_separable(beginning.task, beginning.kernel, own=asked.hidden_from == "task")
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
        # One at a time: of two that submit the same, the second waits for the first one's answer.
        async with self._taking:
            attempt, is_new = await anyio.to_thread.run_sync(self._take, run_id, kernel, words, parent)
            if is_new:
                self._begin(run_id, attempt.number)
        if attempt.state == "running":
            self._wanted[JobKey(run_id, attempt.number)] += 1
        return attempt

    async def withdraw(self, run_id: str, number: int) -> None:
        """Take a submission back: its evaluation ends, unless others have submitted the same."""
        key = JobKey(run_id, number)
        self._wanted[key] -= 1
        if self._wanted[key] <= 0:
            await self.cancel(run_id, number)

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
            run, attempt = self.store.run(run_id), self.store.attempt(run_id, number)
            return answer_of(run, attempt, self.store.attempts(run_id))

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
        await anyio.to_thread.run_sync(self._end_if_over, run_id)
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

    async def end(self, run_id: str, by: str = "user") -> Run:
        """End a run, because its user, or whoever `by` names, has enough of it.

        Raises:
            Stopped: there is no such run.
        """

        def change() -> Run:
            return self._end(self.store.run(run_id), by)

        ended = await anyio.to_thread.run_sync(change)
        await self._verify(run_id)
        return ended

    async def _wait_for_winner(self, run_id: str, until: float, progress: Progress) -> None:
        job = self._jobs.get(JobKey(run_id, WINNER))
        if job is not None and not job.finished.is_set():
            await wait(job, until - anyio.current_time(), progress)

    async def _verify(self, run_id: str) -> None:
        """Begin to look at a winner once more, where that is to be done and nobody here does or has failed to."""

        async def work(job: Job) -> None:
            async with self._turn():
                await self._evaluation.winner(run_id, job)

        async with self._verifying:
            if self._jobs.get(JobKey(run_id, WINNER)) is not None:
                return
            run = await anyio.to_thread.run_sync(self.store.run, run_id)
            if is_to_be_verified(run):
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
                await anyio.to_thread.run_sync(self._end_if_over, run_id)
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
            hidden_sha256=self.store.put_file(hidden_text(asked.hidden)) if asked.hidden else None,
            hidden_from=asked.hidden_from,
            hidden_count=len(asked.hidden),
            target=asked.target,
            gpu=asked.gpu,
            torch=asked.torch,
            triton=asked.triton,
            budget=beginning.budget,
            limits=beginning.limits,
        )
        elapsed_s(frozen)  # its time counts from here
        run = Run(frozen=frozen, state="measuring", updated_at=started)
        baseline = Claim(
            parent=None,
            strategy="the baseline",
            kernel_sha256=frozen.kernel_sha256,
            text_identity=novelty.text_identity(kernel.text),
            counts=False,
            kernel_shown_as=kernel.shown_as,
            kernel_origin=kernel.origin,
        )
        # At once: nobody could measure the baseline of a run that has none.
        self.store.create(run, baseline)
        return run

    def _take(self, run_id: str, kernel: Source, strategy: str, parent: int | None) -> tuple[Attempt, bool]:
        """The attempt that a candidate is, and whether it is to be evaluated: not where another one answers for it."""
        run = self.store.run(run_id)
        attempts = self.store.attempts(run_id)
        memory = memory_of(run, attempts)
        if run.state == "open" and (ended := ends(memory)) is not None:
            run = self._end(run, ended)
        _require_open(run)
        kernel = at_home(kernel, run.frozen.kernel_origin)
        identity = novelty.text_identity(kernel.text)
        twins = [each for each in attempts if each.state == "running" and each.text_identity == identity]
        if twins:
            return twins[0], False
        same = self.store.find(run_id, text_identity=identity)
        claim = Claim(
            parent=run.incumbent if parent is None else parent,
            strategy=strategy,
            kernel_sha256=self.store.put_file(kernel.text),
            text_identity=identity,
            counts=same is None,
            kernel_shown_as=kernel.shown_as,
            kernel_origin=kernel.origin,
        )
        if same is not None:
            return self.store.claim(run_id, claim, answered=lambda attempt: duplicate(attempt, same)), False
        remarks = novelty.remarks(kernel.text, strategy, attempts, self._texts(attempts))
        return self.store.claim(run_id, claim._replace(remarks=remarks)), True

    def _texts(self, attempts: Sequence[Attempt]) -> dict[int, str]:
        """The attempts' files; only remarks need them, so one that is gone is no reason to take no candidates."""
        texts: dict[int, str] = {}
        for each in attempts:
            if each.duplicate_of is None:
                with contextlib.suppress(Stopped):
                    texts[each.number] = self.store.known_file(each.kernel_sha256)
        return texts

    def _end_if_over(self, run_id: str) -> None:
        """End a run that is over by what all attempts together have come to, though none of them could know: its time
        is up, or they were evaluated at once."""
        run, attempts = self.store.run(run_id), self.store.attempts(run_id)
        if run.state == "open" and all(each.state != "running" for each in attempts):
            ended = ends(memory_of(run, attempts))
            if ended is not None:
                self._end(run, ended)

    def _fail(self, run_id: str, problem: str) -> None:
        def change(run: Run) -> Run:
            # Its baseline may have been measured before it was told to end.
            return run if run.state != "measuring" else changed(run, state="failed", problem=problem)

        self.store.change(run_id, change)

    def _end(self, run: Run, ended_by: str) -> Run:
        run_id = run.frozen.run_id
        if run.state in ("finished", "failed"):
            return run
        return self.store.change(run_id, lambda run: changed(run, state="finished", ended_by=ended_by), taught)


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
