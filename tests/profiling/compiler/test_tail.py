"""The last wave of a launch."""

import pytest

from tritonforge.profiling.compiler.occupancy import Tail, tail


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [(200, Tail(100.0, 0.0)), (100, Tail(100.0, 0.0)), (125, Tail(25.0, 37.5)), (1, Tail(1.0, 99.0))],
)
def test_the_last_wave_costs_at_most_what_is_idle_in_it(blocks: int, expected: Tail) -> None:
    assert tail(blocks, sm_count=50, blocks_per_sm=2) == expected


@pytest.mark.parametrize(("blocks", "per_sm"), [(0, 2), (10, 0)])
def test_without_blocks_there_is_no_tail(blocks: int, per_sm: int) -> None:
    assert tail(blocks, sm_count=50, blocks_per_sm=per_sm) is None
