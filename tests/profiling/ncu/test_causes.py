"""Which causes a profile shows: each alone, beside a profile that is just short of it, several, and those recorded."""

from typing import Any

import pytest

from tests.profiling.ncu.recorded import recorded
from tritonforge.profiling.hardware.ceilings import Ceilings
from tritonforge.profiling.ncu.causes import CAUSES_SHOWN, causes
from tritonforge.profiling.ncu.hotspots import Excess, Hotspot
from tritonforge.profiling.ncu.metrics import STALL_REASONS
from tritonforge.profiling.ncu.model import LaunchProfile, Pipe, Stall
from tritonforge.profiling.ncu.report import summarize
from tritonforge.profiling.ncu.waits import STALL_SUGGESTIONS
from tritonforge.profiling.roofline import Work

LIMITS = {"registers": 16, "shared_mem": 8, "warps": 16, "blocks": 32}
BUSY = {"memory_pct": 70.0, "compute_pct": 65.0}
"""So that no launch waits, and neither side leads."""


def profile(**fields: Any) -> LaunchProfile:
    """A profile of which nothing is known but `fields`."""
    nothing: dict[str, Any] = dict.fromkeys(LaunchProfile.model_fields)
    empty: dict[str, Any] = {"kernel": "k", "occupancy_limits": {}, "stalls": (), "pipes": (), "absent": {}}
    return LaunchProfile(**nothing | empty | fields)


def stall(reason: str, share: float) -> Stall:
    return Stall(reason=reason, pct=share, cycles=None, meaning=STALL_REASONS[reason])


def grid(blocks: int, waves: float, **more: Any) -> dict[str, Any]:
    return {"grid": (blocks, 1, 1), "waves_per_sm": waves, "occupancy_limits": LIMITS, **more}


def occupancy(achieved: float, theoretical: float, **more: Any) -> dict[str, Any]:
    return {"theoretical_occupancy_pct": theoretical, "achieved_occupancy_pct": achieved, **more}


def ids(found: LaunchProfile, **more: Any) -> list[str]:
    return [cause.id for cause in causes(found, **more)]


SHOWN: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    # Cause: what shows it, first what it can't be told without; and the change by which it is gone.
    "spills": ({"local_requests": 64.0, "registers": 255}, {"local_requests": 0.0}),
    "uncoalesced_loads": ({"load_bytes_per_sector": 8.0}, {"load_bytes_per_sector": 24.0}),
    "uncoalesced_stores": ({"store_bytes_per_sector": 4.0, "needed_sectors_pct": 20.0}, {"needed_sectors_pct": 95.0}),
    "wrong_mma": ({"mma": "hmma", "tensor_pct": 40.0}, {"mma": "gmma"}),
    "bank_conflicts": ({"bank_conflict_pct": 10.0}, {"bank_conflict_pct": 9.9}),
    "dram_bound": ({"dram_pct": 80.0}, {"dram_pct": 79.0}),
    "l2_bound": ({"l2_pct": 90.0, "memory_pct": 82.0}, {"memory_pct": 70.0}),
    "l1_bound": ({"l1_pct": 85.0, "memory_pct": 85.0}, {"l1_pct": 79.0, "memory_pct": 70.0}),
    "tensor_bound": ({"tensor_pct": 80.0}, {"tensor_pct": 70.0}),
    "pipe_bound": ({"pipes": (Pipe(name="alu", pct=80.0),)}, {"pipes": (Pipe(name="alu", pct=79.0),)}),
    "issue_bound": ({"issue_slot_pct": 80.0}, {"issue_slot_pct": 79.0}),
    "tiny_block": (
        grid(1 << 20, 200.0, cycles=2e6, block=(128, 1, 1), **occupancy(30, 100)),
        {"cycles": 2e7},
    ),
    "small_grid": (grid(132, 1 / 8), {"waves_per_sm": 2 / 8}),
    "occupancy_registers": (occupancy(18, 19, occupancy_limiter="registers", registers=158), occupancy(78, 80)),
    "occupancy_shared": (occupancy(12, 12.5, occupancy_limiter="warps and shared_mem"), {"mma": "gmma"}),
    "occupancy_blocks": (occupancy(40, 50, occupancy_limiter="blocks"), occupancy(30, 50)),
    "tail": ({"waves_per_sm": 1.1, **occupancy(60, 100)}, {"waves_per_sm": 5.1}),
    "imbalance": ({"sm_imbalance": 1.06}, {"sm_imbalance": 1.05}),
    "stall_barrier": ({"stalls": (stall("barrier", 31.0),)}, {"stalls": (stall("barrier", 30.0),)}),
    "latency_bound": ({"memory_pct": 59.0, "compute_pct": 59.0}, {"compute_pct": 60.0}),
}


@pytest.mark.parametrize("name", SHOWN)
def test_a_cause_is_told_alone_with_its_numbers_until_a_number_is_better(name: str):
    fields, better = SHOWN[name]
    (found,) = causes(profile(**BUSY | fields))
    assert found.id == name
    assert found.suggestion
    assert found.evidence
    assert any(character.isdigit() for character in found.text)
    assert ids(profile(**BUSY | fields | better)) == []


@pytest.mark.parametrize("name", SHOWN)
def test_a_number_that_was_not_counted_tells_nothing(name: str):
    fields = SHOWN[name][0]
    counted = next(iter(fields))
    assert ids(profile(**BUSY | fields | {counted: () if counted in {"pipes", "stalls"} else None})) == []


TINY = grid(8192, 4.0, block=(64, 1, 1), **occupancy(39, 50))
STARTED = grid(1 << 20, 200.0, block=(128, 1, 1), cycles=3.4e6, **occupancy(79, 100))
WAITS = {"stalls": (stall("wait", 31.0),), "issue_slot_pct": 79.0}
EDGES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    # Cause, what just shows it, and the change by which it just doesn't.
    ("dram_bound", {"memory_pct": 70.0, "dram_pct": 70.0, "compute_pct": 60.0}, {"compute_pct": 60.1}),
    ("uncoalesced_loads", {"load_bytes_per_sector": 23.9, "needed_sectors_pct": 89.9}, {"needed_sectors_pct": 90.0}),
    ("occupancy_blocks", occupancy(56, 79, occupancy_limiter="blocks"), {"achieved_occupancy_pct": 55.0}),
    ("tail", {"waves_per_sm": 4.1, **occupancy(79, 100)}, {"achieved_occupancy_pct": 80}),
    ("tiny_block", TINY, {"achieved_occupancy_pct": 40}),
    ("tiny_block", TINY, {"waves_per_sm": 3.9}),
    ("tiny_block", TINY, {"block": (96, 1, 1)}),
    ("tiny_block", STARTED, {"cycles": 3.6e6}),
    ("imbalance", {"sm_imbalance": 1.053}, {"sm_imbalance": 1.052}),
    ("stall_wait", WAITS, {"issue_slot_pct": 80.0, "memory_pct": 85.0, "dram_pct": 85.0}),
]


@pytest.mark.parametrize(("name", "fields", "short"), EDGES)
def test_a_threshold_lies_where_its_source_puts_it(name: str, fields: dict[str, Any], short: dict[str, Any]):
    assert ids(profile(**BUSY | fields)) == [name]
    assert name not in ids(profile(**BUSY | fields | short))


def test_of_a_profile_without_numbers_nothing_is_told():
    assert ids(profile()) == []


def test_more_bytes_than_the_work_needs_are_extra_traffic():
    work = Work(bytes=100e6, flops=None)
    (found,) = causes(profile(**BUSY, dram_bytes=131e6), work=work)
    assert (found.id, found.evidence["ratio"]) == ("extra_traffic", 1.31)
    assert ids(profile(**BUSY, dram_bytes=130e6), work=work) == []
    assert ids(profile(**BUSY, dram_bytes=131e6)) == []
    assert ids(profile(**BUSY, dram_bytes=4.9e6), work=Work(bytes=1e6, flops=None)) == []
    assert ids(profile(**BUSY, dram_bytes=5.1e6), work=Work(bytes=1e6, flops=None)) == ["extra_traffic"]


def test_much_arithmetic_for_each_byte_on_plain_cores_misses_tensor_cores():
    plain = profile(**BUSY, mma="none", pipes=(Pipe(name="fma", pct=65.0),))
    assert ids(plain, work=Work(bytes=1e6, flops=20e6)) == ["no_tensor_core"]
    assert ids(plain, work=Work(bytes=1e6, flops=19e6)) == []
    assert ids(plain) == []
    assert ids(plain.model_copy(update={"mma": None}), work=Work(bytes=1e6, flops=20e6)) == []


def ceilings(bytes_per_s: float) -> Ceilings:
    fields: dict[str, Any] = dict.fromkeys(Ceilings.model_fields)
    fields |= {"read_bytes_per_s": bytes_per_s, "uuid": "GPU-1", "measured_at": "2026-11-29T00:00:00Z", "absent": {}}
    return Ceilings.model_validate(fields)


def test_memory_is_at_its_limit_where_it_is_as_fast_as_was_measured_on_the_device():
    found = profile(**BUSY, dram_pct=72.0, dram_bytes=360e6, duration_us=100.0)
    assert ids(found) == []
    (bound,) = causes(found, ceilings=ceilings(4e12))
    assert (bound.id, bound.evidence["achieved_share_pct"]) == ("dram_bound", 90.0)
    assert "90 %" in bound.text
    assert ids(found, ceilings=ceilings(4.4e12)) == []


def test_memory_that_is_busier_than_all_else_is_told_as_such():
    (found,) = causes(profile(memory_pct=72.0, compute_pct=50.0, dram_pct=72.0))
    assert found.id == "dram_bound"
    assert "not at its limit" in found.text


def waiting(**fields: Any) -> LaunchProfile:
    """A launch of few blocks that wait for memory."""
    return profile(**grid(100, 0.1), stalls=(stall("long_scoreboard", 70.0),), sm_imbalance=1.4, **fields)


def test_roots_come_before_the_stalls_and_the_latency_that_follow_from_them():
    found = waiting(memory_pct=30.0, compute_pct=10.0, local_requests=8.0)
    assert ids(found) == ["spills", "small_grid", "stall_long_scoreboard", "latency_bound"]


def test_at_the_roof_warps_may_wait():
    assert ids(waiting(memory_pct=90.0, compute_pct=10.0, dram_pct=90.0)) == ["dram_bound"]
    assert ids(waiting(memory_pct=30.0, compute_pct=85.0, tensor_pct=85.0)) == ["tensor_bound"]


def test_where_device_memory_is_the_limit_a_badly_used_tensor_core_costs_nothing():
    assert ids(profile(memory_pct=90.0, compute_pct=20.0, dram_pct=90.0, mma="hmma")) == ["dram_bound"]


def test_a_cache_that_is_busy_with_wasted_sectors_is_no_roof():
    stores = {"store_bytes_per_sector": 4.0, "store_sectors_per_request": 32.0, "needed_sectors_pct": 22.0}
    room = occupancy(18, 19, occupancy_limiter="registers", registers=158)
    found = profile(memory_pct=95.0, compute_pct=20.0, l2_pct=95.0, **stores, **room)
    assert ids(found) == ["uncoalesced_stores", "occupancy_registers", "l2_bound"]
    assert ids(found.model_copy(update={"store_bytes_per_sector": 32.0})) == ["l2_bound"]


def test_one_roof_is_told_the_busiest():
    found = profile(memory_pct=88.0, compute_pct=85.0, dram_pct=88.0, tensor_pct=85.0, l2_pct=92.0)
    assert ids(found) == ["dram_bound"]


def test_a_few_large_blocks_are_enough_for_busy_tensor_cores():
    few = {**grid(150, 1.1), "occupancy_limits": {"shared_mem": 1}, "tensor_pct": 60.0}
    assert ids(profile(**BUSY | few)) == []
    assert ids(profile(**BUSY | few | {"tensor_pct": 59.0})) == ["small_grid"]
    room = occupancy(12, 12.5, occupancy_limiter="shared_mem", tensor_pct=62.0)
    assert ids(profile(**BUSY | room)) == []


def spot(line: int, share: float, **fields: Any) -> Hotspot:
    nothing: dict[str, Any] = dict.fromkeys(Hotspot.model_fields)
    own: dict[str, Any] = {"line": line, "samples": 100, "pct": share, "operations": [], "hot": True}
    own |= {"instruction": "LDG.E R2, [R4.64]", "instruction_pct": 50.0}
    return Hotspot(**nothing | own | fields)


def test_the_line_is_named_where_a_cause_shows_most():
    excess = {"l2_excess": Excess(count=900.0, pct=80.0)}
    spots = [spot(7, 60.0, stall="barrier"), spot(9, 30.0, stall="long_scoreboard", **excess)]
    found = profile(**BUSY, load_bytes_per_sector=4.0, stalls=(stall("long_scoreboard", 50.0),))
    access, waits = causes(found, spots)
    assert (access.evidence["line"], waits.evidence["line"]) == (9, 9)
    assert "line 9" in access.text
    assert "line" not in causes(found)[0].evidence


def test_stalls_of_healthy_warps_are_no_cause_and_each_cause_is_a_known_reason():
    assert ids(profile(**BUSY, stalls=(stall("not_selected", 60.0), stall("wait", 20.0)))) == []
    assert set(STALL_SUGGESTIONS) <= set(STALL_REASONS)
    assert ids(profile(**BUSY | {"tensor_pct": 66.0}, stalls=(stall("gmma", 60.0),))) == []


def test_causes_of_recorded_launches_are_those_that_a_reader_of_them_names():
    matmul = summarize(recorded("matmul_sections"))
    assert ids(matmul) == ids(summarize(recorded("matmul_two_passes"))) == ["tensor_bound"]
    assert ids(summarize(recorded("softmax_sections"))) == ["dram_bound", "stall_long_scoreboard"]
    assert ids(summarize(recorded("softmax_one_pass"))) == ["dram_bound"]


def test_no_more_causes_are_told_than_a_reader_looks_at():
    everything: dict[str, Any] = {}
    for fields, _ in SHOWN.values():
        everything |= fields
    assert len(ids(profile(**everything))) == CAUSES_SHOWN
