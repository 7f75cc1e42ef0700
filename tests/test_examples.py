"""The examples show what their docstrings say: to the compiler, and to whoever checks them."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from mcp.client import Client

from tritonforge.server.app import build_server
from tritonforge.server.settings import Settings

pytestmark = pytest.mark.anyio

EXAMPLES = Path(__file__).parents[1] / "examples"
LARGEST = {"sin": "large", "softmax": "train", "matmul": "square"}
"""The case of each example that its docstrings speak of."""

Results = dict[str, dict[str, Any]]

every_example = pytest.mark.parametrize("name", LARGEST)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Client]:
    async with Client(build_server(Settings(state_dir=tmp_path_factory.mktemp("state")))) as connected:
        yield connected


async def call_for_both(client: Client, tool: str, name: str, **arguments: Any) -> tuple[Any, Any]:
    """A tool's structured results for an example's baseline and candidate, made at the same time."""
    found: Results = {}
    task = str(EXAMPLES / name / "task.py")

    async def call(part: str) -> None:
        kernel = str(EXAMPLES / name / f"{part}.py")
        result = await client.call_tool(tool, {"kernel": kernel, "task": task, **arguments})
        assert not result.is_error, result.content
        found[part] = cast(dict[str, Any], result.structured_content)

    async with anyio.create_task_group() as group:
        group.start_soon(call, "baseline")
        group.start_soon(call, "candidate")
    for result in found.values():
        assert result["kind"] == "ok", result["summary"]
    return found["baseline"], found["candidate"]


async def compiled(client: Client, name: str) -> tuple[Any, Any, set[str], set[str]]:
    """The launches of baseline and candidate for the H100, and the observations on each."""
    results = await call_for_both(client, "compile_kernel", name, target="h100", cases=[LARGEST[name]])
    for result in results:
        assert len(result["launches"]) == 1
        assert result["launches"][0]["spill_bytes"] == 0
    baseline, candidate = (result["launches"][0] for result in results)
    assert baseline["code_hash"] != candidate["code_hash"]
    ids = [{observation["id"] for observation in result["observations"]} for result in results]
    return baseline, candidate, ids[0], ids[1]


async def test_the_first_sine_is_seen_to_have_too_small_a_block(client: Client) -> None:
    baseline, candidate, seen, seen_after = await compiled(client, "sin")
    assert seen == {"V6"}
    assert seen_after == set()
    assert (baseline["elements_per_program_max"], candidate["elements_per_program_max"]) == (4, 1024)
    assert baseline["grid"][0] == 256 * candidate["grid"][0]
    assert (baseline["access_widths_bytes"], candidate["access_widths_bytes"]) == ([4], [16])


async def test_the_first_softmax_is_seen_to_work_in_small_chunks(client: Client) -> None:
    baseline, candidate, seen, seen_after = await compiled(client, "softmax")
    assert seen == {"V6"}
    assert seen_after == set()
    assert (baseline["elements_per_program_max"], candidate["elements_per_program_max"]) == (128, 4096)
    assert max(baseline["access_widths_bytes"]) < 16
    assert candidate["access_widths_bytes"] == [16]
    assert (baseline["loops"] > 0, candidate["loops"] > 0) == (True, False)


async def test_the_first_matmul_is_seen_to_miss_wgmma_and_the_pipeline(client: Client) -> None:
    baseline, candidate, seen, seen_after = await compiled(client, "matmul")
    assert {"T1", "P1"} <= seen
    assert seen_after == set()
    assert (baseline["mma"], candidate["mma"]) == ("mma", "wgmma")
    assert (baseline["num_stages"], candidate["num_stages"]) == (1, 3)
    assert (baseline["async_copies"] > 0, candidate["async_copies"] > 0) == (False, True)


@every_example
async def test_baseline_and_candidate_give_right_results(client: Client, name: str) -> None:
    results = await call_for_both(client, "run_correctness", name, cases=["small"], seeds=1)
    for result in results:
        (case,) = result["cases"]
        assert case["kind"] == "ok"
        assert case["elements"] > 4000
        assert result["reference"] == "task"
