"""The examples show what their docstrings say: to the compiler, and to whoever checks them."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from mcp.client import Client

from tests.faults.evaluations import replaced
from tritonforge.server.app import build_server
from tritonforge.server.settings import Settings

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("warm")]

EXAMPLES = Path(__file__).parents[1] / "examples"
LARGEST = {"sin": "large", "softmax": "train", "matmul": "square"}
"""The case of each example that its docstrings speak of."""

SMALLER = {"sin": ('"n": 4096', '"n": 1027'), "softmax": ('"rows": 48', '"rows": 8'), "matmul": None}
"""What makes the small case smaller: the first drafts take a thousand steps for it, of some ms in the interpreter."""

SLOW_AND_FAST = ("tiny_block", "streamed_reduction", "register_transpose")
"""The case studies, each with a slow kernel and a mended one."""

Results = dict[str, dict[str, Any]]

every_example = pytest.mark.parametrize("name", LARGEST)
every_case_study = pytest.mark.parametrize("name", SLOW_AND_FAST)


@pytest.fixture(scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Client]:
    async with Client(build_server(Settings(state_dir=tmp_path_factory.mktemp("state")))) as connected:
        yield connected


async def call_for_both(
    client: Client, tool: str, name: str, *, smaller: tuple[str, str] | None = None, **arguments: Any
) -> tuple[Any, Any]:
    """A tool's structured results for both kernels of an example or case study, made at the same time."""
    found: Results = {}
    folder = EXAMPLES / "cases" / name if name in SLOW_AND_FAST else EXAMPLES / name
    parts = ("slow", "fast") if name in SLOW_AND_FAST else ("baseline", "candidate")
    task = str(folder / "task.py") if smaller is None else replaced((folder / "task.py").read_text(), *smaller)

    async def call(part: str) -> None:
        kernel = str(folder / f"{part}.py")
        result = await client.call_tool(tool, {"kernel": kernel, "task": task, **arguments})
        assert not result.is_error, result.content
        found[part] = cast(dict[str, Any], result.structured_content)

    async with anyio.create_task_group() as group:
        for part in parts:
            group.start_soon(call, part)
    for result in found.values():
        assert result["kind"] == "ok", result["summary"]
    return found[parts[0]], found[parts[1]]


async def compiled(client: Client, name: str) -> tuple[Any, Any, set[str], set[str]]:
    """The launches of both kernels for the H100, and the observations on each."""
    results = await call_for_both(client, "compile_kernel", name, target="h100", cases=[LARGEST.get(name, "large")])
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


async def test_the_tiny_block_is_seen_to_leave_the_gpu_to_starting_programs(client: Client) -> None:
    slow, fast, seen, seen_after = await compiled(client, "tiny_block")
    assert seen == {"V6"}
    assert seen_after == set()
    assert (slow["num_warps"], slow["elements_per_program_max"]) == (1, 64)
    assert slow["grid"][0] == 32 * fast["grid"][0]
    assert (slow["access_widths_bytes"], fast["access_widths_bytes"]) == ([4], [16])
    assert (slow["occupancy_limiter"], slow["theoretical_occupancy_pct"]) == ("blocks", 50)
    assert fast["theoretical_occupancy_pct"] == 100


async def test_the_broadcast_is_seen_to_be_summed_at_each_step_by_few_programs(client: Client) -> None:
    slow, fast, _, seen_after = await compiled(client, "streamed_reduction")
    assert seen_after == set()
    assert (slow["loops"] > 0, fast["loops"] > 0) == (True, True)
    places = [{place["what"] for place in launch["places"]} for launch in (slow, fast)]
    assert "reduction-in-loop" in places[0]
    assert "reduction-in-loop" not in places[1]
    assert slow["grid"][0] * 16 == fast["grid"][0] == 10240


async def test_the_transpose_is_seen_to_be_bound_by_registers_and_to_store_narrowly(client: Client) -> None:
    slow, fast, seen, seen_after = await compiled(client, "register_transpose")
    assert seen == {"R3"}
    assert seen_after == set()
    assert slow["occupancy_limiter"] == "registers"
    assert slow["registers"] > 128 > 64 > fast["registers"]
    assert slow["theoretical_occupancy_pct"] < 25 < 70 < fast["theoretical_occupancy_pct"]
    assert (slow["store_widths_bytes"], fast["store_widths_bytes"]) == ([4], [16])
    assert fast["shared_bytes"] > 0


@every_case_study
async def test_slow_and_fast_give_right_results(client: Client, name: str) -> None:
    results = await call_for_both(client, "run_correctness", name, cases=["small"], seeds=1)
    for result in results:
        (case,) = result["cases"]
        assert case["kind"] == "ok"
        assert result["reference"] == "task"


@every_example
async def test_baseline_and_candidate_give_right_results(client: Client, name: str) -> None:
    results = await call_for_both(client, "run_correctness", name, smaller=SMALLER[name], cases=["small"], seeds=1)
    for result in results:
        (case,) = result["cases"]
        assert case["kind"] == "ok"
        assert case["elements"] > 1000
        assert result["reference"] == "task"
