"""Any program as an agent: it is called once a round, reads a JSON request and writes a JSON answer."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from subprocess import PIPE
from typing import Any, Final, NamedTuple

import anyio
from anyio.abc import Process

from ...profiling.optimization.model import BASELINE
from ...sandbox.errors import Stopped, rejected
from ...sandbox.source import Source, source_text
from ..runs.machine import Answer
from .model import Ablation, AgentEnd, HowEnded, Plan, Says, Site, TaskAsked
from .process import GRACE_S, exited, started
from .requests import (
    A,
    CandidateAnswer,
    Malformed,
    Round,
    TaskAnswer,
    candidate_request,
    outcome,
    parse,
    task_request,
)
from .texts import ONCE

ANSWER_BYTES: Final = 4_000_000
WAIT_S: Final = 600.0
"""Of one look at an evaluation; it is looked at again until it is over."""


class _Called(NamedTuple):
    """How a call of the program ended."""

    output: bytes
    code: int | None
    """None: it was ended, as it wrote too much or took too long."""


class CommandAgent:
    """Implements `Agent` with a program that is started anew for each request."""

    def __init__(self, plan: Plan, words: Sequence[str], say: Says) -> None:
        """
        Raises:
            Stopped: ``rejected``: there is no such program.
        """
        if not words or shutil.which(words[0]) is None:
            raise rejected(
                "agent",
                f"there is no program {words[0] if words else plan.agent!r} to call",
                fix="Give --agent as claude, codex or gemini, or as a command line whose first word is a program.",
            )
        self._plan, self._words, self._say = plan, list(words), say
        self._rounds = self._malformed = 0
        self._wrong: str | None = None
        self.ends: list[AgentEnd] = []

    async def write_task(self, asked: TaskAsked) -> str | None:
        """Ask for the task."""
        given = await self._ask(task_request(asked), TaskAnswer)
        if isinstance(given, Malformed):
            self._told(given, "the task")
            self.ends.append(AgentEnd(ended="rounds", last_words=given.why, malformed=1))
            return None
        await anyio.Path(asked.written).write_text(given.task, encoding="utf-8")
        return str(asked.written)

    async def work(self, site: Site) -> None:
        """Call it until the run is over, or as often as it may be called."""
        ended: HowEnded = "wall_time"
        try:
            async with anyio.create_task_group() as tasks:
                for _ in range(self._plan.parallel):
                    tasks.start_soon(self._work, site)
            ended = "rounds" if self._rounds >= self._plan.rounds else "run_over"
        finally:
            self.ends.append(AgentEnd(ended=ended, last_words=self._wrong, malformed=self._malformed))

    async def _work(self, site: Site) -> None:
        last: dict[str, Any] | None = None
        while self._rounds < self._plan.rounds:
            answer = await site.machine.answer(site.run_id, BASELINE)
            if answer.run.state != "open":
                return
            self._rounds += 1
            left = site.deadline - anyio.current_time()
            round_ = Round(self._rounds, self._plan.rounds, left, last)
            request = await anyio.to_thread.run_sync(candidate_request, site, answer, round_)
            if Ablation.ONE_SHOT in self._plan.ablations:
                request["instructions"] += f"\n{ONCE}"
            given = await self._ask(request, CandidateAnswer)
            if isinstance(given, Malformed):
                self._told(given, f"round {round_.number}")
                last = {"problem": f"The answer of round {round_.number} was malformed: {given.why}"}
                continue
            last = await self._submit(site, answer, given)

    async def _submit(self, site: Site, answer: Answer, given: CandidateAnswer) -> dict[str, Any]:
        """Have a candidate evaluated; what became of it."""
        machine, run_id = site.machine, site.run_id
        try:
            source = _source(given.kernel, answer.run.frozen.kernel_origin)
            attempt = await machine.submit(run_id, source, given.strategy, given.parent)
        except Stopped as stopped:
            problem = stopped.problem
            self._say(f"  a candidate was not taken: {problem.message}")
            return {"problem": f"It was not taken: {problem.message}. {problem.likely_fix or ''}".strip()}
        failure: Stopped | None = None
        try:
            while not await machine.wait(run_id, attempt.number, WAIT_S, _silent):
                pass
        except Stopped as stopped:
            failure = stopped
        return outcome(await machine.answer(run_id, attempt.number), failure)

    def _told(self, given: Malformed, of: str) -> None:
        self._malformed += 1
        self._wrong = f"{of}: {given.why}"
        self._say(f"  malformed answer ({of}): {given.why}")

    async def _ask(self, request: dict[str, Any], model: type[A]) -> A | Malformed:
        """Call the program once."""
        called: _Called | None = None
        # Its own folder is the user's: that is what its arguments are relative to.
        async with started(self._words, folder=Path.cwd(), output=PIPE, asks=True) as process:
            with anyio.move_on_after(self._plan.call_s):
                called = await _talk(process, json.dumps(request).encode())
        if called is None:
            return Malformed(f"there was no answer within {self._plan.call_s:g} s, and the program was ended")
        if called.code is None:
            return Malformed(f"more than {ANSWER_BYTES:,} bytes were written, and the program was ended")
        if called.code != 0:
            return Malformed(f"the program exited with code {called.code}; 0 is expected with an answer")
        return parse(called.output, model)


async def _talk(process: Process, request: bytes) -> _Called:
    """Give a program its request and read its answer, until it has exited and all that it wrote is read."""
    assert process.stdin is not None
    assert process.stdout is not None
    output = bytearray()
    code: int | None = None
    stdin = process.stdin
    async with anyio.create_task_group() as tasks:

        async def give() -> None:
            # One that does not read may answer all the same.
            try:
                await stdin.send(request)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                pass
            finally:
                await stdin.aclose()

        with anyio.CancelScope() as reading:

            async def leave() -> None:
                await exited(process)
                await anyio.sleep(GRACE_S)
                reading.cancel()

            tasks.start_soon(give)
            tasks.start_soon(leave)
            async for chunk in process.stdout:
                output += chunk
                if len(output) > ANSWER_BYTES:
                    break
        if len(output) <= ANSWER_BYTES:
            code = await exited(process)
        tasks.cancel_scope.cancel()
    return _Called(bytes(output), code)


def _source(text: str, origin: str | None) -> Source:
    """A candidate's text, with the baseline's neighbours to import from.

    Raises:
        Stopped: ``rejected``: it can't be used.
    """
    return source_text(text, "kernel")._replace(origin=origin)


async def _silent(done: float, total: float, message: str) -> None:
    """What happens to candidates is told by whoever watches the run."""
