"""A baseline that has no memory beside others is compared with itself alone."""

import contextlib
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.server.adapters.grounds import ONE, WRITES, grounded
from tritonforge.profiling.correctness import check_case
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.executors.base import Executor
from tritonforge.sandbox.outcome import Kind, Problem
from tritonforge.sandbox.workers import KernelWorker, TaskWorker, interpreter_worker, task_worker
from tritonforge.server.adapters import ground as module
from tritonforge.server.services import Services, target_facts

pytestmark = pytest.mark.anyio


@pytest.fixture
def turns(services: Services, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """A made-up GPU, which is Triton's interpreter; who has it alone, by turn."""
    seen: list[bool] = []

    @contextlib.asynccontextmanager
    async def gpu_turn(*, alone: bool) -> AsyncGenerator[None]:
        seen.append(alone)
        yield

    async def yes() -> bool:
        return True

    async def in_the_interpreter(self: Any, on_gpu: bool) -> Any:
        assert on_gpu
        return interpreter_worker(services.executor, target=target_facts(await services.target("h100")))

    def on_the_cpu(executor: Executor, on_gpu: bool) -> AbstractAsyncContextManager[TaskWorker]:
        assert on_gpu
        return task_worker(executor, on_gpu=False)

    monkeypatch.setattr(module, "task_worker", on_the_cpu)
    monkeypatch.setattr(module, "sound_audit", _no_audit)
    monkeypatch.setattr(module._Ground, "_worker", in_the_interpreter)  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(services, "has_gpu", yes)
    monkeypatch.setattr(services, "gpu_turn", gpu_turn)
    return seen


@pytest.mark.parametrize("lasting", [False, True])
async def test_a_case_that_has_no_memory_beside_others_is_looked_at_alone(
    services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turns: list[bool], lasting: bool
) -> None:
    looked_at: list[tuple[str, bool]] = []

    async def no_memory(name: str, *given: Any, **more: Any) -> Any:
        alone = turns[-1]
        looked_at.append((name, alone))
        if name == "call_2" and (lasting or not alone):
            raise Stopped(Kind.OUT_OF_MEMORY, Problem(stage="call", message="no memory"))
        return await check_case(name, *given, **more)

    monkeypatch.setattr(module, "check_case", no_memory)
    found = await grounded(services, tmp_path, WRITES, ONE + ONE.replace("96", "80") + ONE.replace("96", "64"))
    assert ("call_2", False) in looked_at
    assert ("call_2", True) in looked_at
    assert found.cases == (2 if lasting else 3)


async def test_a_kernel_file_that_has_no_memory_beside_others_is_loaded_alone(
    services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turns: list[bool]
) -> None:
    load = KernelWorker.load

    async def no_memory(self: KernelWorker, *given: Any) -> None:
        if turns and not turns[-1]:
            raise Stopped(Kind.OUT_OF_MEMORY, Problem(stage="load", message="no memory"))
        await load(self, *given)

    monkeypatch.setattr(KernelWorker, "load", no_memory)
    found = await grounded(services, tmp_path, WRITES, ONE)
    assert (found.why_not, True in turns) == (None, True)


async def _no_audit(*given: Any, **more: Any) -> None:
    return None
