"""Occupancy against known answers, and against a plain search."""

import pytest

from tritonforge.profiling.compiler.occupancy import NextBlock, occupancy, waves
from tritonforge.profiling.hardware.catalog import resolve_target

HOPPER = resolve_target("sm_90").limits
ADA = resolve_target("sm_89").limits
CDNA3 = resolve_target("gfx942").limits


@pytest.mark.parametrize(
    ("registers", "num_warps", "shared_bytes", "blocks", "pct", "limiter"),
    [
        (32, 4, 0, 16, 100.0, "warps"),
        (32, 8, 32, 8, 100.0, "warps"),
        (28, 1, 0, 32, 50.0, "blocks"),
        (40, 4, 0, 12, 75.0, "registers"),
        (142, 2, 8192, 6, 18.75, "registers"),
        (210, 4, 98_304, 2, 12.5, "registers"),
        (90, 8, 147_456, 1, 12.5, "shared_memory"),
        (64, 4, 57_344, 4, 25.0, "shared_memory"),
    ],
)
def test_the_scarcest_resource_decides(
    registers: int, num_warps: int, shared_bytes: int, blocks: int, pct: float, limiter: str
) -> None:
    found = occupancy(registers, num_warps, shared_bytes, HOPPER)
    assert (found.blocks_per_sm, found.theoretical_occupancy_pct, found.limiter) == (blocks, pct, limiter)
    assert found.fits


def test_the_answers_are_those_that_ncu_gave_on_an_h200() -> None:
    found = occupancy(206, 8, 147_456, HOPPER)
    assert (found.blocks_per_sm, found.theoretical_occupancy_pct) == (1, 12.5)
    assert waves(512, 132, found.blocks_per_sm) == pytest.approx(3.88, abs=0.005)


def test_the_systems_share_of_shared_memory_counts() -> None:
    two_blocks = HOPPER.shared_bytes_per_sm // 2 - 1024
    assert occupancy(32, 4, two_blocks, HOPPER).blocks_per_sm == 2
    assert occupancy(32, 4, two_blocks + 1, HOPPER).blocks_per_sm == 1


def test_a_block_above_the_limit_does_not_fit() -> None:
    largest = HOPPER.shared_bytes_per_block
    assert occupancy(32, 4, largest, HOPPER).fits
    over = occupancy(32, 4, largest + 1, HOPPER)
    assert (over.fits, over.blocks_per_sm, over.limiter) == (False, 0, "shared_memory")
    assert over.next_block is not None
    assert over.next_block.shared_bytes_at_most == largest
    assert not occupancy(255, 16, 0, HOPPER).fits
    assert not occupancy(256, 4, 0, HOPPER).fits


def test_the_limit_of_a_block_holds_where_the_sm_has_more() -> None:
    limits = HOPPER.model_copy(update={"shared_bytes_per_block": 49_152})
    assert occupancy(32, 4, 49_152, limits).fits
    assert not occupancy(32, 4, 49_153, limits).fits


def test_smaller_architectures_hold_less() -> None:
    assert occupancy(32, 4, 0, ADA).blocks_per_sm == 12
    assert occupancy(28, 1, 0, ADA).limiter == "blocks"
    assert not occupancy(32, 4, 147_456, ADA).fits


def test_the_way_to_one_more_block_is_told() -> None:
    assert occupancy(210, 4, 98_304, HOPPER).next_block == NextBlock(registers_at_most=168, shared_bytes_at_most=76_800)


@pytest.mark.parametrize("num_warps", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("registers", [24, 40, 72, 142, 210, 255])
@pytest.mark.parametrize("shared_bytes", [0, 8192, 49_152, 98_304])
def test_the_way_to_one_more_block_is_as_short_as_can_be(num_warps: int, registers: int, shared_bytes: int) -> None:
    now = occupancy(registers, num_warps, shared_bytes, HOPPER)
    bounds = now.next_block
    if bounds is None:
        assert now.limiter in ("warps", "blocks")
        return

    def blocks(some_registers: int, some_bytes: int) -> int:
        return occupancy(some_registers, num_warps, some_bytes, HOPPER).blocks_per_sm

    assert blocks(*bounds) > now.blocks_per_sm
    if bounds.registers_at_most < 255:
        assert blocks(bounds.registers_at_most + 1, bounds.shared_bytes_at_most) <= now.blocks_per_sm
    if bounds.shared_bytes_at_most < HOPPER.shared_bytes_per_block:
        assert blocks(bounds.registers_at_most, bounds.shared_bytes_at_most + 1) <= now.blocks_per_sm


def test_exhausted_warps_admit_no_further_block() -> None:
    assert occupancy(16, 4, 0, HOPPER).next_block is None


def test_waves_count_fillings_of_the_whole_gpu() -> None:
    assert waves(264, 132, 1) == 2.0
    assert waves(133, 132, 2) == pytest.approx(0.504, abs=1e-3)
    assert waves(100, 132, 0) is None


@pytest.mark.parametrize(
    ("registers", "waves_per_simd"),
    [(24, 8), (64, 8), (65, 7), (72, 7), (73, 6), (80, 6), (96, 5), (128, 4), (168, 3), (256, 2), (257, 1), (512, 1)],
)
def test_waves_of_cdna3_are_those_that_llvm_counts(registers: int, waves_per_simd: int) -> None:
    # `llvm-calc-occupancy -mcpu=gfx942 --vgprs=REGISTERS`: 512 of a lane, in steps of 8.
    found = occupancy(registers, 4, 0, CDNA3)
    assert (found.blocks_per_sm, found.theoretical_occupancy_pct) == (waves_per_simd, 12.5 * waves_per_simd)


@pytest.mark.parametrize(
    ("num_warps", "shared_bytes", "blocks", "limiter"),
    [
        (1, 0, 32, "warps"),
        (1, 2_049, 25, "shared_memory"),
        (2, 0, 16, "warps"),
        (4, 65_536, 1, "shared_memory"),
        (4, 65_537, 0, "shared_memory"),
        (16, 0, 2, "warps"),
    ],
)
def test_workgroups_of_a_compute_unit(num_warps: int, shared_bytes: int, blocks: int, limiter: str) -> None:
    found = occupancy(32, num_warps, shared_bytes, CDNA3)
    assert (found.blocks_per_sm, found.limiter) == (blocks, limiter)


def test_the_compilers_count_can_only_lower_the_number() -> None:
    assert occupancy(64, 4, 0, CDNA3, warps_by_compiler=32) == occupancy(64, 4, 0, CDNA3)
    fewer = occupancy(64, 4, 0, CDNA3, warps_by_compiler=28)
    assert (fewer.blocks_per_sm, fewer.limiter, fewer.next_block) == (7, "registers", None)
    assert occupancy(256, 4, 0, CDNA3, warps_by_compiler=32).blocks_per_sm == 2
