"""Which findings the recorded kernels give away, and above all which they don't."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tritonforge.profiling.compiler.launch import LaunchFacts, RawLaunch, build
from tritonforge.profiling.compiler.observations import Observation, observe
from tritonforge.profiling.compiler.ttgir import Dot
from tritonforge.profiling.hardware.catalog import resolve_target

H200 = resolve_target("h200")
SMS = 132
Recorded = Callable[[str], RawLaunch]


def observed(facts: LaunchFacts, sm_count: int | None = SMS, target: str = "h200") -> list[Observation]:
    return observe(facts, resolve_target(target).limits, sm_count)


def ids(facts: LaunchFacts, sm_count: int | None = SMS, target: str = "h200") -> list[str]:
    return [observation.id for observation in observed(facts, sm_count, target)]


def the(found: str, facts: LaunchFacts) -> Observation:
    (observation,) = (observation for observation in observed(facts) if observation.id == found)
    return observation


def changed_dot(facts: LaunchFacts, **values: object) -> LaunchFacts:
    dot = Dot.model_validate(facts.dots[0].model_dump() | values)
    return facts.model_copy(update={"dots": [dot]})


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sin_baseline", ["V6"]),
        ("sin_candidate", []),
        ("softmax_baseline", ["V6"]),
        ("softmax_candidate", []),
        ("softmax_unaligned", ["V2"]),
        ("matmul_baseline", ["T1", "P1", "R3"]),
        ("matmul_candidate", []),
        ("matmul_short", ["T2"]),
        ("matmul_unaligned", ["V2", "P8"]),
        ("while_loop", ["P3"]),
        ("attention", []),
        ("tma", []),
        ("atomics", []),
    ],
)
def test_each_recorded_kernel_shows_what_is_wrong_with_it_and_no_more(
    recorded_launch: Recorded, name: str, expected: list[str]
) -> None:
    assert ids(build(recorded_launch(name), H200)) == expected


def test_a_block_too_small_is_told_with_its_numbers(recorded_launch: Recorded) -> None:
    finding = the("V6", build(recorded_launch("sin_baseline"), H200))
    assert "4 elements of 4 bytes, 16 bytes for 128 threads" in finding.detail
    assert "124 of 128 threads have no element of their own" in finding.detail
    assert "widest access is 4 bytes" in finding.detail
    assert "at least 512 elements at num_warps=4" in finding.suggestion


def test_fewer_warps_are_offered_where_they_fit_the_block(recorded_launch: Recorded) -> None:
    facts = build(recorded_launch("sin_candidate"), H200).model_copy(update={"num_warps": 16})
    finding = the("V6", facts)
    assert "no element" not in finding.detail
    assert "or num_warps=8 for this block" in finding.suggestion


def test_a_block_that_is_just_large_enough_is_no_finding(recorded_launch: Recorded) -> None:
    facts = build(recorded_launch("sin_candidate"), H200)
    assert "V6" not in ids(facts.model_copy(update={"elements_per_program_max": 512}))
    assert "V6" in ids(facts.model_copy(update={"elements_per_program_max": 256}))


def test_a_tiny_launch_is_not_blamed_for_narrow_accesses(recorded_launch: Recorded) -> None:
    facts = build(recorded_launch("sin_candidate"), H200).model_copy(
        update={"elements_per_program_max": 256, "grid": (SMS, 1, 1)}
    )
    assert "V6" not in ids(facts)
    assert "V6" in ids(facts.model_copy(update={"grid": (100 * SMS, 1, 1)}))
    assert "V6" in ids(facts.model_copy(update={"loops": 1}))
    assert "V6" in ids(facts, sm_count=None)
    assert "V6" in ids(facts.model_copy(update={"elements_per_program_max": 64}))


def test_narrow_loads_name_what_hides_the_alignment(recorded_launch: Recorded) -> None:
    finding = the("V2", build(recorded_launch("softmax_unaligned"), H200))
    assert "widest load moves 2 bytes" in finding.detail
    assert "widest store moves 2 bytes" in finding.detail
    assert "divisible by 16" in finding.suggestion


def test_partly_vectorized_loads_have_their_own_entry(recorded_launch: Recorded) -> None:
    facts = build(recorded_launch("softmax_candidate"), H200).model_copy(update={"load_widths_bytes": [8, 2]})
    finding = the("V13", facts)
    assert "8 bytes" in finding.detail
    assert "store" not in finding.detail


def test_half_width_stores_of_narrower_elements_are_normal(recorded_launch: Recorded) -> None:
    facts = build(recorded_launch("softmax_candidate"), H200)
    assert ids(facts.model_copy(update={"store_widths_bytes": [8]})) == []
    assert ids(facts.model_copy(update={"store_widths_bytes": [2]})) == ["V2"]


def test_a_narrow_side_load_beside_tma_tiles_is_no_finding(recorded_launch: Recorded) -> None:
    facts = build(recorded_launch("tma"), H200)
    assert ids(facts.model_copy(update={"load_widths_bytes": [4], "load_tile_bytes": 256})) == []


def test_too_few_warps_for_a_warp_group_come_before_the_missing_pipeline(recorded_launch: Recorded) -> None:
    first, second, _ = observed(build(recorded_launch("matmul_baseline"), H200))
    assert (first.id, second.id) == ("T1", "P1")
    assert first.title == "2 warps can't form a warp group"
    assert "64x64x32 dot of f16 and f16 compiled to mma.sync instead of wgmma" in first.detail
    assert "num_stages=1" in second.detail


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"precision": "ieee", "a_dtype": "f32"}, "T4"),
        ({"batch": 2}, "T11"),
        ({"n": 8}, "T3"),
        ({"m": 32}, "T2"),
        ({}, "T"),
    ],
)
def test_the_condition_that_keeps_a_dot_from_warp_groups_is_named(
    recorded_launch: Recorded, change: dict[str, object], expected: str
) -> None:
    facts = build(recorded_launch("matmul_candidate"), H200).model_copy(update={"mma": "mma"})
    assert [found for found in ids(changed_dot(facts, **change)) if found.startswith("T")] == [expected]


def test_fp64_dots_have_no_warp_group_form(recorded_launch: Recorded) -> None:
    facts = build(recorded_launch("matmul_candidate"), H200).model_copy(update={"mma": "mma"})
    assert "T" not in ids(changed_dot(facts, a_dtype="f64"))


def test_warp_groups_are_expected_of_hopper_and_data_center_blackwell_only(recorded_launch: Recorded) -> None:
    facts = build(recorded_launch("matmul_baseline"), H200)
    assert "T1" in ids(facts, target="b200")
    for target in ("a100-sxm", "l40s", "sm_120"):
        assert not {"T1", "T2", "T"} & set(ids(facts, target=target))


def test_a_small_m_is_left_alone_where_memory_is_the_limit(recorded_launch: Recorded) -> None:
    finding = the("T2", build(recorded_launch("matmul_short"), H200))
    assert "32x64x64" in finding.detail
    assert "limited by memory" in finding.suggestion


def test_a_dot_with_two_obstacles_is_reported_once(recorded_launch: Recorded) -> None:
    facts = build(recorded_launch("matmul_short"), H200).model_copy(update={"num_warps": 2})
    assert [found for found in ids(facts) if found.startswith("T")] == ["T1"]


def test_waiting_loads_without_a_known_cause_are_told_all_the_same(recorded_launch: Recorded) -> None:
    facts = build(recorded_launch("matmul_candidate"), H200).model_copy(update={"sync_loads_beside_dots": 1})
    finding = the("P", facts)
    assert "1 tile load waits" in finding.detail
    assert "36 asynchronous copies" in finding.detail


def test_spills_point_to_their_likely_cause(recorded_launch: Recorded) -> None:
    spill = {"spill_bytes": 712, "registers": 255, "ptxas_notes": ["(C7511) serialized"]}
    large_tile = build(recorded_launch("matmul_candidate"), H200).model_copy(update={**spill, "num_warps": 4})
    finding = the("R1", large_tile)
    assert "712 bytes" in finding.detail
    assert "(C7511) serialized" in finding.detail
    assert "256 registers a thread" in finding.suggestion

    narrow = build(recorded_launch("matmul_unaligned"), H200).model_copy(update=spill)
    assert ids(narrow)[:3] == ["V2", "P8", "R1"]
    assert "Widen the loads first" in the("R1", narrow).suggestion

    elementwise = build(recorded_launch("sin_candidate"), H200).model_copy(update=spill)
    assert "smaller tile" in the("R1", elementwise).suggestion


def test_stack_without_spills_is_no_spilling(recorded_launch: Recorded) -> None:
    facts = build(recorded_launch("sin_candidate"), H200)
    assert facts.stack_bytes == 32
    assert "R1" not in ids(facts)


def test_too_much_shared_memory_comes_first(recorded_launch: Recorded) -> None:
    raw = replace(recorded_launch("matmul_baseline"), shared_bytes=232_449)
    facts = build(raw, H200)
    first = observed(facts)[0]
    assert first.id == "P2"
    assert "232449 bytes a block, of at most 232448" in first.detail
    assert ids(facts) == ["P2", "T1", "P1"]
    assert ids(build(replace(raw, shared_bytes=232_448), H200))[0] == "T1"


def test_a_small_grid_is_told_where_the_gpu_is_known(recorded_launch: Recorded) -> None:
    facts = build(replace(recorded_launch("softmax_candidate"), grid=(64, 1, 1)), H200)
    finding = the("G1", facts)
    assert "68 stay idle" in finding.detail
    assert ids(facts, sm_count=None) == []
    assert ids(facts.model_copy(update={"grid": (66, 2, 1)})) == []
    assert ids(facts.model_copy(update={"grid": (66, 1, 1), "num_ctas": 2})) == []


def test_low_occupancy_of_a_warp_group_kernel_is_normal(recorded_launch: Recorded) -> None:
    facts = build(recorded_launch("matmul_candidate"), H200)
    assert facts.theoretical_occupancy_pct == 12.5
    assert ids(facts) == []


@pytest.mark.parametrize(
    ("registers", "shared_bytes", "expected", "suggestion"),
    [
        (255, 0, "R3", "at 168 registers a thread or less"),
        (64, 115_712, "P2", "at 76800 bytes of shared memory a block or less"),
        (128, 0, None, None),
    ],
)
def test_low_occupancy_is_told_with_its_limiter_and_the_way_out(
    recorded_launch: Recorded, registers: int, shared_bytes: int, expected: str | None, suggestion: str | None
) -> None:
    raw = recorded_launch("sin_candidate")
    assert raw.ptxas_log is not None
    log = raw.ptxas_log.replace("Used 22 registers", f"Used {registers} registers")
    facts = build(replace(raw, ptxas_log=log, shared_bytes=shared_bytes), H200)
    assert ids(facts) == ([expected] if expected else [])
    if expected and suggestion:
        assert suggestion in the(expected, facts).suggestion


def test_unknown_registers_give_no_verdict_on_occupancy(recorded_launch: Recorded) -> None:
    assert ids(build(replace(recorded_launch("sin_candidate"), ptxas_log=None), H200)) == []
