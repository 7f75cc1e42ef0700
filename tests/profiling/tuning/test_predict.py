"""What the compiler's output lets one expect of a variant: each fault costs, and whole rows come first."""

import math
from typing import Any

import pytest

from tests.diagnosis.made_up import H200
from tests.profiling.tuning.facts import dot, launch
from tritonforge.profiling.compiler.launch import LaunchFacts
from tritonforge.profiling.hardware.catalog import resolve_target
from tritonforge.profiling.tuning.predict import PARTS, parts
from tritonforge.profiling.tuning.stream import stream

COPY: dict[str, Any] = {"dots": [], "mma": "none"}
PRODUCT: dict[str, Any] = {"dots": [dot(128, 128, 64)], "mma": "wgmma", "loops": 1, "pipeline_buffers": 3}


@pytest.mark.parametrize(
    ("part", "before", "changed"),
    [
        ("bytes", COPY, {"grid": (8192, 1, 1)}),
        ("latency", COPY, {"blocks_per_sm": 1}),
        ("latency", COPY, {"loops": 1}),
        ("launch", COPY, {"grid": (1 << 20, 1, 1), "load_tile_bytes": 64, "store_tile_bytes": 64}),
        ("masked", {"loops": 1, "load_tile_bytes": 4096}, {"load_tile_bytes": 1 << 16}),
        ("idle", COPY, {"elements_per_program_max": 16}),
        ("narrow", COPY, {"load_widths_bytes": [4], "store_widths_bytes": [4]}),
        ("tail", COPY, {"tail_lost_pct_at_most": 40.0}),
        ("spills", COPY, {"spill_bytes": 100}),
        ("thread", COPY, {"elements_per_program_max": 128}),
        ("thread", COPY, {"elements_per_program_max": 1 << 15}),
        ("unfilled", PRODUCT, {"grid": (8, 1, 1)}),
        ("tensor", PRODUCT, {"mma": "mma"}),
        ("copies", PRODUCT, {"pipeline_buffers": 0}),
        ("tile", PRODUCT, {"dots": [dot(16, 16, 16)]}),
        ("buffers", PRODUCT, {"pipeline_buffers": 2}),
        ("depth", PRODUCT, {"dots": [dot(128, 128, 16)]}),
        ("depth", PRODUCT, {"dots": [dot(128, 128, 64).model_copy(update={"a_dtype": "i8"})]}),
    ],
)
def test_each_fault_makes_its_part_larger(part: str, before: dict[str, Any], changed: dict[str, Any]) -> None:
    place, size = PARTS.index(part), 4096 * 4096
    one, other = launch(**before), launch(**before | changed)
    assert parts([other], H200, size)[place] > parts([one], H200, size)[place]


def test_nothing_launched_is_expected_to_lose_nothing() -> None:
    assert parts([], H200) == (0.0,) * len(PARTS)


def test_of_several_launches_the_times_add_up() -> None:
    one = launch()
    place = PARTS.index("bytes")
    assert parts([one, one], H200)[place] == pytest.approx(parts([one], H200)[place] + math.log(2))


ROWS, COLUMNS = 16384, 4096
REGISTERS = {1: 20, 2: 18, 4: 16, 8: 8, 16: 4}
"""Blocks that an SM holds of a whole row in a block of so many warps."""


def rows(block: int, warps: int, **changed: Any) -> LaunchFacts:
    """Three passes over rows of half precision, a block of the tile's length at a time."""
    given: dict[str, Any] = {
        "grid": (ROWS, 1, 1), "num_warps": warps, "loops": 3, "elements_per_program_max": block, "element_bytes": 2,
        "load_tile_bytes": 2 * block, "store_tile_bytes": 2 * block, "blocks_per_sm": min(32, 64 // warps),
    }  # fmt: skip
    return launch(**given | changed)


def lost(one: LaunchFacts) -> float:
    return sum(parts([one], H200, 2 * ROWS * COLUMNS))


def test_a_row_in_one_trip_comes_before_many_trips_and_before_what_is_masked() -> None:
    order = sorted((128, 256, 512, 1024, 2048, 4096, 8192), key=lambda block: lost(rows(block, 4)))
    assert order[0] in (2048, 4096)
    assert order[-2:] == [256, 128]
    assert lost(rows(8192, 4)) > lost(rows(4096, 4))


def test_one_warp_does_not_get_through_a_long_row() -> None:
    assert lost(rows(8192, 1, blocks_per_sm=8)) > lost(rows(8192, 4, blocks_per_sm=9))
    assert lost(rows(128, 16)) > lost(rows(128, 1)) + 1


def test_what_l1_loses_between_passes_is_read_again() -> None:
    fits, does_not = (stream(rows(2048, 2, blocks_per_sm=held), H200, 2 * ROWS * COLUMNS) for held in (16, 32))
    assert fits.reread_us == fits.launch_us
    assert does_not.reread_us > 1.2 * does_not.launch_us


def test_bytes_take_their_time_and_few_blocks_leave_memory_idle() -> None:
    assert H200.gpu is not None
    assert H200.gpu.memory_bytes_per_s is not None
    many, few = (stream(launch(grid=(grid, 1, 1), blocks_per_sm=16), H200, None) for grid in (1 << 18, 8))
    assert many.bytes_us == pytest.approx((8192 << 18) / (0.92 * H200.gpu.memory_bytes_per_s) * 1e6)
    assert many.latency_us < 1.1 * many.bytes_us
    assert few.latency_us > 10 * few.bytes_us


def test_a_bare_architecture_will_do() -> None:
    assert stream(launch(loops=1), resolve_target("sm_90"), None).latency_us > 0
