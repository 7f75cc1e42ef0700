"""The joined record of a launch, and its gaps."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tritonforge.profiling.compiler.launch import LaunchFacts, RawLaunch, build, with_grid
from tritonforge.profiling.hardware.catalog import resolve_target
from tritonforge.profiling.hardware.model import Target

H200 = resolve_target("h200")
SM_90 = resolve_target("sm_90")


def test_a_matmul_is_described_from_end_to_end(recorded_launch: Callable[[str], RawLaunch]) -> None:
    facts = build(recorded_launch("matmul_candidate"), H200)
    assert (facts.registers, facts.spill_bytes, facts.stack_bytes) == (207, 0, 0)
    assert facts.shared_bytes == 147_456
    assert (facts.blocks_per_sm, facts.theoretical_occupancy_pct) == (1, 12.5)
    assert (facts.registers_for_next_block, facts.shared_bytes_for_next_block) == (128, 115_712)
    assert facts.waves == 31.03
    assert (facts.last_wave_filled_pct, facts.tail_lost_pct_at_most) == (3.0, 3.0)
    assert (facts.barriers, facts.warp_specialized) == (7, False)
    assert (facts.mma, facts.async_copies, facts.tma_copies, facts.pipeline_buffers) == ("wgmma", 36, 0, 3)
    assert [(dot.m, dot.n, dot.k) for dot in facts.dots] == [(128, 256, 64)]
    assert (facts.load_widths_bytes, facts.store_widths_bytes) == ([16], [16])
    assert (facts.elements_per_program_max, facts.element_bytes) == (128 * 256, 2)
    assert (facts.load_tile_bytes, facts.store_tile_bytes) == (64 * 256 * 2, 128 * 256 * 2)
    assert facts.absent == {}


def test_each_null_has_its_reason_and_each_reason_its_null(recorded_launch: Callable[[str], RawLaunch]) -> None:
    for target in (H200, SM_90):
        for name in ("sin_candidate", "matmul_candidate", "tma"):
            raw = recorded_launch(name)
            for variant in (
                raw,
                replace(raw, ptxas_log=None),
                replace(raw, ttgir=""),
                replace(raw, shared_bytes=1 << 20),
            ):
                facts = build(variant, target)
                nulls = {field for field, value in facts.model_dump().items() if value is None}
                assert nulls - {"amd"} == set(facts.absent)
                assert facts.amd is None


def test_without_a_log_what_needs_registers_is_null(recorded_launch: Callable[[str], RawLaunch]) -> None:
    facts = build(replace(recorded_launch("sin_candidate"), ptxas_log=None), H200)
    assert facts.registers is None
    assert facts.absent["registers"] == "there is no ptxas log"
    assert "needs the register count" in facts.absent["theoretical_occupancy_pct"]


def test_a_log_of_another_kernel_is_not_taken_for_this_one(recorded_launch: Callable[[str], RawLaunch]) -> None:
    raw = replace(recorded_launch("sin_candidate"), ptxas_log=recorded_launch("atomics").ptxas_log)
    facts = build(raw, H200)
    assert facts.registers is None
    assert facts.absent["registers"] == "the ptxas log does not hold this kernel"


def test_a_bare_architecture_has_occupancy_and_no_waves(recorded_launch: Callable[[str], RawLaunch]) -> None:
    facts = build(recorded_launch("sin_candidate"), SM_90)
    assert facts.theoretical_occupancy_pct == 100
    for field in ("waves", "last_wave_filled_pct", "tail_lost_pct_at_most"):
        assert getattr(facts, field) is None
        assert "sm_90 is an architecture" in facts.absent[field]


def test_a_launch_that_does_not_fit_has_no_waves(recorded_launch: Callable[[str], RawLaunch]) -> None:
    facts = build(replace(recorded_launch("matmul_candidate"), shared_bytes=240_000), H200)
    assert (facts.blocks_per_sm, facts.waves) == (0, None)
    assert facts.absent["waves"] == facts.absent["tail_lost_pct_at_most"] == "no block fits on an SM"


def test_the_tail_is_that_of_all_blocks_that_fit(recorded_launch: Callable[[str], RawLaunch]) -> None:
    facts = build(recorded_launch("sin_candidate"), H200)
    # 4,096 blocks, of which 132 SMs hold 16 each: one wave and most of another.
    assert (facts.blocks_per_sm, facts.waves) == (16, 1.939)
    assert (facts.last_wave_filled_pct, facts.tail_lost_pct_at_most) == (93.9, 3.0)


def test_an_empty_grid_has_no_waves(recorded_launch: Callable[[str], RawLaunch]) -> None:
    facts = build(replace(recorded_launch("sin_candidate"), grid=(0, 1, 1)), H200)
    assert facts.waves is None
    assert facts.absent["waves"] == "the grid is empty"


def test_waiting_at_a_barrier_counts_and_arriving_does_not(recorded_launch: Callable[[str], RawLaunch]) -> None:
    raw = recorded_launch("sin_candidate")
    assert build(raw, H200).barriers == 0
    waits = "bar.sync 0; barrier.sync.aligned 1, 128; barrier.cluster.wait.acquire; bar.red.popc.u32 %r1, 0, %p1;"
    others = "bar.warp.sync -1; barrier.cluster.arrive; bar.arrive 1, 128; mbarrier.try_wait.b64 %p1, [%r1], %r2;"
    assert build(replace(raw, ptx=raw.ptx + f"// ;\n{waits} {others}"), H200).barriers == 4


def test_warps_that_run_different_code_are_seen(recorded_launch: Callable[[str], RawLaunch]) -> None:
    raw = recorded_launch("tma")
    assert not build(raw, H200).warp_specialized
    specialized = raw.ttgir.replace("scf.for", "ttg.warp_specialize(%a)\n    scf.for", 1)
    assert build(replace(raw, ttgir=specialized), H200).warp_specialized


def test_static_shared_memory_is_added(recorded_launch: Callable[[str], RawLaunch]) -> None:
    raw = recorded_launch("softmax_candidate")
    assert raw.ptxas_log is not None
    log = raw.ptxas_log.replace("used 1 barriers", "used 1 barriers, 2048 bytes smem")
    assert build(replace(raw, ptxas_log=log), H200).shared_bytes == 32 + 2048


def test_every_block_of_a_cluster_counts_in_the_waves(recorded_launch: Callable[[str], RawLaunch]) -> None:
    raw = recorded_launch("sin_candidate")
    one, two = build(raw, H200).waves, build(replace(raw, num_ctas=2, grid=(64, 32, 2)), H200).waves
    assert one is not None
    assert two is not None
    assert abs(two - 2 * one) < 0.002


def test_the_hash_is_the_codes(recorded_launch: Callable[[str], RawLaunch]) -> None:
    raw = recorded_launch("softmax_candidate")
    assert build(raw, H200).code_hash == build(replace(raw, kernel="other", grid=(1, 1, 1)), SM_90).code_hash
    assert build(raw, H200).code_hash != build(replace(raw, num_warps=4), H200).code_hash


def test_a_record_survives_the_wire(recorded_launch: Callable[[str], RawLaunch]) -> None:
    facts = build(recorded_launch("attention"), H200)
    assert LaunchFacts.model_validate_json(facts.model_dump_json()) == facts


@pytest.mark.parametrize(
    "text",
    [
        "ld." * 20_000,
        "/* " * 20_000,
        ".global x[\n" * 20_000,
        ".func (" * 20_000,
        " loc(" * 20_000 + ")",
        "scf.for {\n" * 20_000,
        "1" * 100_000 + " bytes stack frame",
        "tt.load : tensor<" + "9999999999x" * 20 + "!tt.ptr<f32>>",
        "ld.global.v" + "9" * 9_000 + ".b32 x;",
        "Used " + "9" * 9_000 + " registers",
    ],
)
def test_hostile_text_is_read_in_passing_and_without_an_error(text: str) -> None:
    raw = RawLaunch(
        "k", (1, 1, 1), num_warps=4, num_stages=3, num_ctas=1, shared_bytes=0, ptx=text, ttgir=text, ptxas_log=text
    )
    facts = build(raw, H200)
    assert facts.registers is None
    assert facts.dots == []


@pytest.mark.parametrize("target", [H200, SM_90], ids=["gpu", "architecture"])
@pytest.mark.parametrize("shared_bytes", [0, 1 << 20])
@pytest.mark.parametrize("grid", [(1, 1, 1), (133, 2, 1), (0, 1, 1)])
@pytest.mark.parametrize("with_log", [True, False])
def test_another_grid_changes_what_depends_on_it_and_nothing_else(
    recorded_launch: Callable[[str], RawLaunch],
    target: Target,
    shared_bytes: int,
    grid: tuple[int, int, int],
    with_log: bool,
) -> None:
    raw = replace(recorded_launch("sin_candidate"), shared_bytes=shared_bytes)
    raw = raw if with_log else replace(raw, ptxas_log=None)
    assert with_grid(build(raw, target), grid, target) == build(replace(raw, grid=grid), target)
