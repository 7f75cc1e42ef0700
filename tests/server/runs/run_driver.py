"""Servers that drive one run of a folder to its end, by a script: each begins where the one before it was killed."""

import hashlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import anyio

from tests.server.runs.fake_evaluator import FakeEvaluator, candidate, task
from tests.server.runs.nursery import DONE, serve, tell
from tests.server.runs.store_writer import fingerprint
from tritonforge.profiling.optimization.model import BASELINE, Budget, Limits
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.outcome import Kind
from tritonforge.sandbox.source import Source
from tritonforge.server.runs.machine import Beginning, Machine
from tritonforge.server.runs.memory import is_to_be_verified
from tritonforge.server.runs.store import Store

BUDGET: Final = 14
WALL_S: Final = 30.0
AGENTS: Final = 3
ENOUGH: Final = 9
"""Number of the attempt upon which some runs are ended."""
POLL_S: Final = 0.002
BASELINE_TEXT: Final = candidate(0, light_pct=1.0, seconds=0.01)


def texts(seed: int) -> list[str]:
    """What is submitted, in order: of all kinds, more than the budget allows."""
    chance = random.Random(seed)
    written: list[str] = []
    best = 1.0
    for number in range(1, 31):
        seconds = round(chance.uniform(0.001, 0.02), 4)
        match chance.choice(["better", "better", "slower", "same", "wrong", "broken", "unconfirmed", "again", "twin"]):
            case "better":
                best *= 1.2
                text = candidate(number, ratio=best, light_pct=1.0, seconds=seconds)
            case "slower":
                text = candidate(number, ratio=0.8, seconds=seconds)
            case "same":
                text = candidate(number, ratio=best, seconds=seconds)
            case "wrong":
                text = candidate(number, kind="wrong", seconds=seconds)
            case "broken":
                text = candidate(number, kind="compile_error")
            case "unconfirmed":
                text = candidate(number, ratio=best * 1.5, confirm="wrong", seconds=seconds)
            case "again":
                text = f"# {number}\n{chance.choice([BASELINE_TEXT, *written])}"
            case _:
                # Other code, and the same machine code as others of its kind.
                text = candidate(number, identity="twins", ratio=0.9, seconds=seconds)
        written.append(text)
    return written


def drive(folder: Path, seed: int) -> None:
    """Go on with the folder's run, or begin it, and tell of each attempt that is over."""
    anyio.run(_drive, folder, seed)
    tell(DONE)


async def _drive(folder: Path, seed: int) -> None:
    store = Store(folder)
    async with Machine(store, FakeEvaluator()) as machine:
        known = store.runs()
        if known:
            run_id = known[0].frozen.run_id
            tell("resumed", *await machine.resume(run_id))
        else:
            kernel, its_task = Source(BASELINE_TEXT, "baseline.py", None), Source(task(), "task.py", None)
            limits, budget = Limits(), Budget(attempts=BUDGET, wall_s=WALL_S, target_pct=100.0)
            run_id = (await machine.start(Beginning(kernel, its_task, None, None, budget, limits))).frozen.run_id
            tell("started", run_id)
        submitted = {attempt.kernel_sha256 for attempt in store.attempts(run_id)}
        left = (each for each in texts(seed) if hashlib.sha256(each.encode()).hexdigest() not in submitted)
        under_way = [attempt.number for attempt in store.attempts(run_id) if attempt.state == "running"]
        async with anyio.create_task_group() as agents:
            for number in under_way:
                agents.start_soon(_over, machine, run_id, number)
            if BASELINE in under_way:
                await machine.wait(run_id, BASELINE, WALL_S, _silent)
            for _ in range(AGENTS):
                agents.start_soon(_submit, machine, run_id, left, ENOUGH if seed % 20 else None)
        await machine.end(run_id)
        while is_to_be_verified(store.run(run_id)):  # noqa: ASYNC110 - nothing is set when the last look is over
            await anyio.sleep(POLL_S)


async def _submit(machine: Machine, run_id: str, left: Iterator[str], last: int | None) -> None:
    for text in left:
        try:
            attempt = await machine.submit(run_id, Source(text, "<source>", None), f"try {text.splitlines()[0]}", None)
        except Stopped as stopped:
            # It has ended, or what is under way may be the last of its budget.
            if stopped.kind is not Kind.REJECTED:
                raise
            return
        tell("taken", attempt.number, attempt.kernel_sha256)
        if attempt.number == last:
            # Enough of it, while others are under way.
            await machine.end(run_id)
        await _over(machine, run_id, attempt.number)


async def _over(machine: Machine, run_id: str, number: int) -> None:
    while not await machine.wait(run_id, number, 60, _silent):
        pass
    tell("answered", number, fingerprint((await machine.answer(run_id, number)).attempt))


async def _silent(done: float, total: float, message: str) -> None:
    """Nobody is told how far it is."""


if __name__ == "__main__":
    serve(drive)
