"""An agent's own CLI drives a run: it calls the tools, and we watch, and end it when it has to end."""

import shutil
from pathlib import Path
from subprocess import PIPE, STDOUT
from typing import Final

import anyio
from anyio.abc import Process

from ...sandbox.errors import rejected
from ..results import readable
from .agents import AGENTS, Attached, Started
from .model import AgentEnd, HowEnded, Plan, Says, Site, TaskAsked
from .process import GRACE_S, exited, started
from .texts import playbook, task_prompt

LAST_WORD_S: Final = 120.0
"""For an agent's report, once its run is over."""
LAST_WORDS_CHARACTERS: Final = 600
LOG: Final = "agent.log"
LOG_BYTES: Final = 64_000_000
FULL: Final = f"\n[tritonforge: {LOG_BYTES // 1_000_000} MB are full; nothing of what followed is kept]\n"


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
                prompt = await anyio.to_thread.run_sync(playbook, site, number, plan.parallel, plan.ablations)
                tasks.start_soon(self._run, folder, prompt, site.over)

    async def _run(self, folder: Path, prompt: str, over: anyio.Event | None) -> None:
        ready = await anyio.to_thread.run_sync(
            AGENTS[self._plan.agent], folder, self._server, prompt, self._plan.agent_words
        )
        log = folder / LOG
        ended: HowEnded = "wall_time"
        code: int | None = None
        end = bytearray()
        try:
            ended, code = await self._watched(folder, ready, log, over, end)
        finally:
            # Also where its time was up.
            self.ends.append(AgentEnd(ended=ended, exit_code=code, log=str(log), last_words=_words(bytes(end))))
        if code:
            self._say(f"{self._plan.agent} exited with code {code}; its output is in {log}")

    async def _watched(
        self, folder: Path, ready: Started, log: Path, over: anyio.Event | None, end: bytearray
    ) -> tuple[HowEnded, int | None]:
        ended: HowEnded = "exited"
        self._say(f"{self._plan.agent} works in {folder}; its output goes to {log}")
        async with (
            await anyio.open_file(log, "ab", buffering=0) as file,
            started(ready.words, folder=folder, environment=ready.environment, output=PIPE, errors=STDOUT) as process,
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
            with anyio.CancelScope() as reading:

                async def leave() -> None:
                    await exited(process)
                    await anyio.sleep(GRACE_S)
                    reading.cancel()

                tasks.start_soon(leave)
                await _kept(process, file, end)
            await exited(process)
            tasks.cancel_scope.cancel()
        return ended, process.returncode


async def _kept(process: Process, log: anyio.AsyncFile[bytes], end: bytearray) -> None:
    """Write what a program prints into a log, as far as that may grow, and its end into `end`."""
    assert process.stdout is not None
    room = LOG_BYTES - await log.tell()
    async for chunk in process.stdout:
        end += chunk
        del end[: -4 * LAST_WORDS_CHARACTERS]
        if room > 0:
            await log.write(chunk[:room])
            room -= len(chunk)
            if room <= 0:
                await log.write(FULL.encode())


def _words(end: bytes) -> str | None:
    """The end of what an agent has printed."""
    text = end.decode(errors="replace").strip()
    return readable(text[-LAST_WORDS_CHARACTERS:], LAST_WORDS_CHARACTERS) or None
