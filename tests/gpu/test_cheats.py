"""Kernels that cheat, on the GPU: each is caught, its honest twin passes, and so does it without its defence."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from tests.cheats.cheat import HONEST, TASK, Cheat, replaced
from tests.cheats.checking import Checker, checking
from tests.cheats.harness import HONEST_WATCHED
from tests.cheats.reuse import FIFTY_CALLS, MORE_AT_FIRST
from tests.cheats.table import on
from tests.faults.evaluations import ignore
from tritonforge.profiling.correctness import Plan
from tritonforge.sandbox.limits import Limits
from tritonforge.sandbox.outcome import Kind
from tritonforge.server.results import respond
from tritonforge.server.timed_case import CaseTimer
from tritonforge.server.tools import benchmark
from tritonforge.server.tools.benchmark import BenchmarkResult

pytestmark = [pytest.mark.gpu, pytest.mark.anyio]

HERE = on("gpu")
NAMES = [cheat.id for cheat in HERE]
SWITCHED = [cheat for cheat in HERE if cheat.off]


@pytest.fixture(scope="module")
async def checker(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Checker]:
    limits = Limits(request_s=20.0, gpu_memory_bytes=24 << 30)
    async with checking(tmp_path_factory.mktemp("state"), limits, gpu_spares=2) as checker:
        yield checker


@pytest.mark.parametrize("cheat", HERE, ids=NAMES)
async def test_a_cheat_is_caught(checker: Checker, cheat: Cheat) -> None:
    await checker.is_caught(cheat)


@pytest.mark.parametrize("cheat", HERE, ids=NAMES)
async def test_its_honest_twin_is_right(checker: Checker, cheat: Cheat) -> None:
    await checker.honest_twin_is_right(cheat)


@pytest.mark.parametrize("cheat", SWITCHED, ids=[cheat.id for cheat in SWITCHED])
async def test_a_cheat_passes_without_its_defence(
    checker: Checker, cheat: Cheat, monkeypatch: pytest.MonkeyPatch
) -> None:
    await checker.passes_without_its_defence(cheat, monkeypatch)


# Honest until the clock runs

TIMED = replaced(TASK, '{"n": 1000, "small": True}', '{"n": 1 << 18}')


async def timed(checker: Checker, kernel: str) -> BenchmarkResult:
    async def evaluate() -> BenchmarkResult:
        return await benchmark.benchmark(checker.services, ignore, kernel=kernel, task=TIMED)

    return BenchmarkResult.model_validate((await respond(BenchmarkResult, evaluate)).structured_content)


@pytest.mark.parametrize("kernel", [FIFTY_CALLS, HONEST_WATCHED], ids=["fifty calls", "while it is watched"])
async def test_what_is_honest_only_before_it_is_timed_has_no_times(checker: Checker, kernel: str) -> None:
    result = await timed(checker, kernel)
    assert result.kind is Kind.WRONG, result.summary
    assert "results are wrong" in result.summary
    assert result.cases == []


@pytest.mark.parametrize("kernel", [HONEST, MORE_AT_FIRST], ids=["always", "tuned at first"])
async def test_what_is_honest_throughout_has_times(checker: Checker, kernel: str) -> None:
    result = await timed(checker, kernel)
    assert result.kind is Kind.OK, result.summary
    assert result.cases[0].device_us > 0


@pytest.mark.parametrize("kernel", [FIFTY_CALLS, HONEST_WATCHED], ids=["fifty calls", "while it is watched"])
async def test_it_has_times_where_nothing_is_checked_afterwards(
    checker: Checker, kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = benchmark._Judge.look  # pyright: ignore[reportPrivateUsage]

    async def only_before(judge: Any, plan: Plan, audit: Any) -> None:
        if plan is not benchmark.AGAIN:
            await look(judge, plan, audit)

    async def never(*_: Any) -> None:
        """Results of timed calls pass as they are."""

    monkeypatch.setattr(benchmark._Judge, "look", only_before)  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(CaseTimer, "_check", never)
    result = await timed(checker, kernel)
    assert result.kind is Kind.OK, result.summary
