"""The case studies under the profiler: the slow kernel's cause is named, and the mended kernel has it no more."""

from typing import Any

import pytest

from tests.gpu.conftest import Call, example

pytestmark = [pytest.mark.gpu, pytest.mark.anyio]


async def both(call: Call, name: str) -> tuple[Any, Any]:
    """The profiled launch of the slow kernel and of the fast one, on the large case."""
    launches: list[Any] = []
    for part in ("slow", "fast"):
        kernel, task = example(f"cases/{name}", part), example(f"cases/{name}", "task")
        result = await call("profile_ncu", kernel=kernel, task=task, cases=["large"])
        assert result["kind"] == "ok", result
        (launch,) = result["launches"]
        launches.append(launch)
    slow, fast = launches
    return slow, fast


def causes(launch: Any) -> set[str]:
    return {cause["id"] for cause in launch["causes"]}


async def test_the_tiny_block_is_named_and_a_larger_one_moves_bytes_at_full_speed(call: Call) -> None:
    slow, fast = await both(call, "tiny_block")
    assert slow["causes"][0]["id"] == "tiny_block"
    assert slow["causes"][0]["evidence"]["threads"] == 32
    assert slow["theoretical_occupancy_pct"] == 50
    assert slow["dram_pct"] < 40
    assert "tiny_block" not in causes(fast)
    assert fast["duration_us"] < slow["duration_us"] / 2


async def test_the_broadcast_waits_at_about_half_of_the_bandwidth_and_the_stream_reaches_it(call: Call) -> None:
    slow, fast = await both(call, "streamed_reduction")
    assert "stall_long_scoreboard" in causes(slow)
    assert 30 < slow["dram_pct"] < 65
    assert "dram_bound" in causes(fast)
    assert fast["achieved_pct"] > 90
    assert fast["duration_us"] < 0.7 * slow["duration_us"]


async def test_the_transpose_is_bound_by_registers_and_by_stores_that_are_spread_apart(call: Call) -> None:
    slow, fast = await both(call, "register_transpose")
    assert {"uncoalesced_stores", "occupancy_registers"} <= causes(slow)
    assert slow["occupancy_limiter"] == "registers"
    assert slow["achieved_occupancy_pct"] < 25
    stores = next(cause for cause in slow["causes"] if cause["id"] == "uncoalesced_stores")
    assert stores["evidence"]["store_bytes_per_sector"] == pytest.approx(4, abs=0.5)
    assert not {"uncoalesced_stores", "occupancy_registers"} & causes(fast)
    assert fast["duration_us"] < 0.7 * slow["duration_us"]
