"""An agent's own CLI drives a run: it calls the tools, and we watch, and end it when it has to end."""

import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import anyio

from ...sandbox.errors import rejected
from ..results import readable
from .agents import AGENTS, Attached, Started
from .model import AgentEnd, HowEnded, Plan, Says, Site, TaskAsked
from .process import started
from .texts import playbook, task_prompt

LAST_WORD_S: Final = 120.0
"""For an agent's report, once its run is over."""
LAST_WORDS_CHARACTERS: Final = 600
LOG: Final = "agent.log"


class CliAgent:
    """Implements `Agent` with the CLI of claude, codex or gemini."""

    def __init__(self, plan: Plan, server: Attached, say: Says) -> None:
        """
        Raises:
            Stopped: ``rejected``: the CLI is not there.
        """
        if shutil.which(plan.agent) is None:
            raise rejected(
                "agent",
                f"there is no program {plan.agent} on PATH",
                fix=f"Install {plan.agent} and sign in, or name another agent: {', '.join(AGENTS)} or a command line.",
            )
        self._plan, self._server, self._say = plan, server, say
        self.ends: list[AgentEnd] = []

    async def write_task(self, asked: TaskAsked) -> str | None:
        """Let it write the task."""
        await self._run(asked.folder, task_prompt(asked), None)
        written = anyio.Path(asked.written)
        return str(written) if await written.is_file() else None

    async def work(self, site: Site) -> None:
        """Let one or more of it drive a run until it is over, or they are through."""
        plan = self._plan
        async with anyio.create_task_group() as tasks:
            for number in range(1, plan.parallel + 1):
                folder = site.folder if plan.parallel == 1 else site.folder / f"agent-{number}"
                await anyio.Path(folder).mkdir(exist_ok=True)
                prompt = await anyio.to_thread.run_sync(playbook, site, number, plan.parallel)
                tasks.start_soon(self._run, folder, prompt, site.over)

    async def _run(self, folder: Path, prompt: str, over: anyio.Event | None) -> None:
        ready = await anyio.to_thread.run_sync(
            AGENTS[self._plan.agent], folder, self._server, prompt, self._plan.agent_words
        )
        log = folder / LOG
        ended: HowEnded = "wall_time"
        code: int | None = None
        try:
            ended, code = await self._watched(folder, ready, log, over)
        finally:
            # Also where its time was up.
            words = _end_of(log)
            self.ends.append(AgentEnd(ended=ended, exit_code=code, log=str(log), last_words=words))
        if code:
            self._say(f"{self._plan.agent} exited with code {code}; its output is in {log}")

    async def _watched(
        self, folder: Path, ready: Started, log: Path, over: anyio.Event | None
    ) -> tuple[HowEnded, int | None]:
        ended: HowEnded = "exited"
        with ExitStack() as files:
            output = files.enter_context(await anyio.to_thread.run_sync(lambda: log.open("ab")))
            self._say(f"{self._plan.agent} works in {folder}; its output goes to {log}")
            async with (
                started(
                    ready.words, folder=folder, environment=ready.environment, output=output, errors=output
                ) as process,
                anyio.create_task_group() as tasks,
            ):

                async def end_after_run() -> None:
                    nonlocal ended
                    assert over is not None
                    await over.wait()
                    await anyio.sleep(LAST_WORD_S)
                    ended = "run_over"
                    tasks.cancel_scope.cancel()

                if over is not None:
                    tasks.start_soon(end_after_run)
                await process.wait()
                tasks.cancel_scope.cancel()
            return ended, process.returncode


def _end_of(log: Path) -> str | None:
    """The end of what an agent has printed."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - 4 * LAST_WORDS_CHARACTERS))
            text = file.read().decode(errors="replace").strip()
    except FileNotFoundError:
        return None
    return readable(text[-LAST_WORDS_CHARACTERS:], LAST_WORDS_CHARACTERS) or None
