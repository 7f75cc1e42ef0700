"""Runs cheats and their twins through `run_correctness`, each kernel file in workers of its own."""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.cheats.cheat import Cheat
from tests.cheats.switches import switch_off
from tests.faults.evaluations import ignore
from tritonforge.sandbox.executors.host import Host
from tritonforge.sandbox.executors.local import LocalExecutor
from tritonforge.sandbox.limits import Limits
from tritonforge.sandbox.outcome import Kind
from tritonforge.server.results import respond
from tritonforge.server.services import Services
from tritonforge.server.settings import Settings
from tritonforge.server.tools.run_correctness import CorrectnessResult, run_correctness

SEEDS = 3
"""The second inputs lie where the first lay, the third are given to an ordinary call."""


class Checker:
    """One server for all cheats of a module."""

    def __init__(self, services: Services, *, sealed: bool) -> None:
        self.services = services
        self._sealed = sealed
        self._known: dict[tuple[str, str], CorrectnessResult] = {}

    async def check(self, kernel: str, task: str) -> CorrectnessResult:
        async def evaluate() -> CorrectnessResult:
            return await run_correctness(self.services, ignore, kernel=kernel, task=task, seeds=SEEDS)

        return CorrectnessResult.model_validate((await respond(CorrectnessResult, evaluate)).structured_content)

    async def is_caught(self, cheat: Cheat) -> None:
        if cheat.sealed and not self._sealed:
            pytest.skip("this machine allows no sandbox")
        result = await self.check(cheat.hostile, cheat.task)
        assert result.kind is cheat.kind, result.summary
        assert result.problem is not None
        if cheat.kind is Kind.WRONG:
            assert result.cases[0].check in cheat.found.split(" or "), result.summary
        else:
            assert cheat.found in result.problem.message, result.summary

    async def honest_twin_is_right(self, cheat: Cheat) -> None:
        """Twins that several cheats have in common are run once."""
        key = cheat.honest, cheat.honest_task or cheat.task
        if key not in self._known:
            self._known[key] = await self.check(*key)
        assert self._known[key].kind is Kind.OK, self._known[key].summary

    async def passes_without_its_defence(self, cheat: Cheat, patch: pytest.MonkeyPatch) -> None:
        # What was found out about tasks with other seeds stays out.
        patch.setattr(self.services.audits, "put", lambda *arguments: None)  # pyright: ignore
        switch_off(cheat.off, patch)
        result = await self.check(cheat.hostile, cheat.task)
        assert result.kind is Kind.OK, result.summary


@asynccontextmanager
async def checking(state_dir: Path, limits: Limits, *, gpu_spares: int = 0) -> AsyncGenerator[Checker]:
    """A server that is gone afterwards."""
    services = Services(Settings(state_dir=state_dir, limits=limits))
    host = Host(sys.executable, limits, hidden=(Path.home(),), masked=(state_dir,))
    services.executor = LocalExecutor(host, spares=2, gpu_spares=gpu_spares)
    async with services:
        _, seal = await host.ground()
        yield Checker(services, sealed=seal.sealed)
