"""A winner on shapes that it was not optimized for, on a real GPU: right and timed there, or told as wrong."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.faults.evaluations import KERNEL, TASK, ignore, replaced
from tests.server.adapters.files import SPEED, bench_file
from tritonforge.sandbox.source import Source
from tritonforge.server.adapters.find import choices
from tritonforge.server.campaign.model import Unseen
from tritonforge.server.campaign.unseen import unseen
from tritonforge.server.services import Services
from tritonforge.server.settings import from_environment

pytestmark = [pytest.mark.gpu, pytest.mark.anyio]

SIZED = replaced(TASK, '{"train": {"n": 1000, "small": True}}', '{"train": {"n": 1 << 24}}')
FAST = replaced(replaced(KERNEL, "BLOCK=64", "BLOCK=1024"), "x.numel(), 64", "x.numel(), 1024")
WITHOUT_TAIL = replaced(FAST, "offsets < n", "offsets < n // 16 * 16")
LIMIT = 3


@pytest.fixture(scope="module")
async def services(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Services]:
    async with Services(from_environment(state_dir=str(tmp_path_factory.mktemp("state")))) as services:
        yield services


async def tried(services: Services, kernel: str, baseline: str, task: str) -> list[Unseen]:
    said: list[str] = []
    found = await unseen(
        services,
        ignore,
        kernel=Source(kernel, "winner.py", None),
        baseline=Source(baseline, "baseline.py", None),
        task=Source(task, "task.py", None),
        limit=LIMIT,
        seed="gpu",
        budget_s=300.0,
        tell=said.append,
    )
    assert said == []
    return found


async def test_a_faster_kernel_is_faster_on_other_sizes_too(services: Services) -> None:
    found = await tried(services, FAST, KERNEL, SIZED)
    sizes = [int(str(each.parameters["n"])) for each in found]
    assert [each.kind for each in found] == ["ok"] * LIMIT
    assert {1 << 25, 1 << 23} <= set(sizes)
    assert 1 << 24 not in sizes
    for each in found:
        assert each.gain is not None
        assert each.gain.comparison == "faster", each
        assert 1 < each.gain.ratio_low <= each.gain.ratio <= each.gain.ratio_high


async def test_what_is_wrong_on_a_ragged_size_is_told_and_the_others_are_timed(services: Services) -> None:
    found = await tried(services, WITHOUT_TAIL, KERNEL, SIZED)
    for each in found:
        ragged = int(str(each.parameters["n"])) % 16 != 0
        assert (each.kind, each.gain is None) == (("wrong", True) if ragged else ("ok", False)), each
    assert {each.kind for each in found} == {"ok", "wrong"}


async def test_a_performance_file_gives_the_sizes(services: Services, tmp_path: Path) -> None:
    file = tmp_path / "scale_perf.py"
    file.write_text(SPEED)
    adapted = choices(bench_file(tmp_path), performance=file)[0]
    winner = adapted.kernel.replace("numel(), 256)", "numel(), 1024)").replace("BLOCK=256", "BLOCK=1024")
    found = await tried(services, winner, adapted.kernel, adapted.task_text)
    assert [each.kind for each in found] == ["ok"] * LIMIT
    assert [each.parameters["inputs"] for each in found] == ["x 64 float32", "x 16384 float32", "x 16777216 float32"]
    assert all(each.gain is not None for each in found)
