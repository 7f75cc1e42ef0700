"""Small mistakes in the examples' candidates are all found, here in Triton's interpreter; the candidates are right."""

from collections.abc import AsyncGenerator

import pytest

from tests.faults.evaluations import ignore
from tests.mutants import HONEST_EDITS, MUTANTS, TASKS, Mutant, honest, mutated
from tritonforge.sandbox.outcome import Kind
from tritonforge.server.results import respond
from tritonforge.server.services import Services
from tritonforge.server.settings import Settings
from tritonforge.server.tools.run_correctness import CorrectnessResult, run_correctness

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("warm")]

EVERY = [(example, mutant) for example, mutants in MUTANTS.items() for mutant in mutants]


@pytest.fixture(scope="module")
async def services(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Services]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tritonforge.server.services.GPU_DEVICE_FILES", ())
        async with Services(Settings(state_dir=tmp_path_factory.mktemp("state"))) as services:
            yield services


async def check(services: Services, kernel: str, task: str, seeds: int) -> CorrectnessResult:
    async def evaluate() -> CorrectnessResult:
        return await run_correctness(services, ignore, kernel=kernel, task=task, seeds=seeds)

    return CorrectnessResult.model_validate((await respond(CorrectnessResult, evaluate)).structured_content)


@pytest.mark.parametrize(("example", "mutant"), EVERY, ids=[f"{example}-{mutant.name}" for example, mutant in EVERY])
async def test_a_small_mistake_is_found(services: Services, example: str, mutant: Mutant) -> None:
    result = await check(services, mutated(example, mutant), TASKS[example], 1)
    # Far outside of its tensors the interpreter may crash.
    assert result.kind in {Kind.WRONG, Kind.RUNTIME_ERROR}, result.summary


@pytest.mark.parametrize(("example", "dtype"), list(HONEST_EDITS))
async def test_the_honest_kernel_is_right(services: Services, example: str, dtype: str) -> None:
    result = await check(services, *honest(example, dtype), 3)
    assert result.kind is Kind.OK, result.summary


def test_every_example_has_twenty_mutants() -> None:
    assert {example: len({mutant.name for mutant in mutants}) for example, mutants in MUTANTS.items()} == dict.fromkeys(
        TASKS, 20
    )
