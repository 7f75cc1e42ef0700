"""Loops around loads: each obstacle to a pipeline shows, and what the catalogue offers against it makes one."""

import pytest

from .conftest import Show


@pytest.mark.parametrize(
    ("id", "faulty"),
    [
        ("P1", "one_stage"),
        ("P3", "while"),
        ("P", "prefetched"),
        ("P", "prefetched_twice"),
        ("P", "branch"),
    ],
)
def test_a_loop_whose_loads_are_not_copied_ahead_is_told(show: Show, id: str, faulty: str) -> None:
    assert id in show(faulty).observed
    assert "load-waits-beside-dot" in show(faulty).places
    assert (show(faulty).code.async_copies, show(faulty).ir.pipelined) == (0, False)


def test_a_plain_loop_is_a_pipeline(show: Show) -> None:
    assert show("for").observed == []
    assert "load-waits-beside-dot" not in show("for").places
    assert (show("for").ir.pipelined, show("for").ir.buffers, show("for").ir.copy_waits_in_loops) == (True, 3, (2,))


def test_a_while_loop_also_changes_layouts(show: Show) -> None:
    assert show("while").ir.layout_conversions_in_loops > 0
    assert show("for").ir.layout_conversions_in_loops == 0


def test_an_unrolled_loop_leaves_no_loop_to_pipeline(show: Show) -> None:
    unrolled, looped = show("unrolled"), show("for")
    assert (unrolled.ir.loops, len(unrolled.ir.dots), unrolled.code.async_copies) == (0, 4, 0)
    assert (looped.ir.loops, len(looped.ir.dots)) == (1, 1)
    assert unrolled.code.mma_instructions == 4 * looped.code.mma_instructions


def test_loads_without_a_dot_are_copied_ahead_only_where_the_loop_asks_for_it(show: Show) -> None:
    assert not show("rows").ir.pipelined
    assert show("rows_in_stages").ir.pipelined
    assert (show("rows").code.async_copies, show("rows_in_stages").code.async_copies > 0) == (0, True)


@pytest.mark.parametrize("faulty", ["odd_k", "odd_stride", "odd_stride_and_k"])
def test_lost_divisibility_makes_loads_too_narrow_to_pipeline(show: Show, faulty: str) -> None:
    assert {"load-too-narrow-to-pipeline", "narrow-access", "dot-waits-for-operands"} <= show(faulty).remarks
    assert {"load-waits-beside-dot", "narrow-load"} <= show(faulty).places
    assert show(faulty).facts.load_widths_bytes == [16, 2]
    assert "P8" in show(faulty).observed


@pytest.mark.parametrize("repaired", ["masked", "rounded"])
def test_divisible_and_rounded_values_keep_it(show: Show, repaired: str) -> None:
    assert show(repaired).remarks == set()
    assert show(repaired).facts.load_widths_bytes == [16]
    assert show(repaired).observed == []


def test_a_fill_that_is_not_zero_takes_the_tile_through_registers(show: Show) -> None:
    filled, masked = show("filled"), show("masked")
    assert "dot-waits-for-operands" in filled.remarks
    assert (filled.ir.shared_loads_in_loops, filled.ir.staged_in_loops) == (1, 1)
    assert filled.ir.dot_waits_in_loops == (0,)
    assert (masked.ir.shared_loads_in_loops, masked.ir.staged_in_loops) == (0, 0)
    assert masked.ir.dot_waits_in_loops == (1,)


def waiting(show: Show, name: str) -> int:
    """Loads in the loop that nothing copies ahead."""
    return sum(
        access.kind == "load" and not access.is_async and access.loop is not None for access in show(name).ir.accesses
    )


def test_two_levels_of_loads_need_more_stages(show: Show) -> None:
    assert waiting(show, "indirect_in_two_stages") == 1
    assert waiting(show, "indirect_in_four_stages") == 0
    assert show("indirect_in_two_stages").ir.copy_waits_in_loops == (0,)


def test_a_nest_of_loops_starts_and_drains_a_pipeline_in_each_step(show: Show) -> None:
    nested, flat = show("nested"), show("for")
    assert (nested.ir.loops, flat.ir.loops) == (2, 1)
    assert nested.ir.async_copies_in_loops == 3 * flat.ir.async_copies_in_loops
    assert nested.ir.staged_in_loops == 0  # its buffers are empty when it makes them
    assert 0 in nested.ir.dot_waits_in_loops
    assert 0 not in flat.ir.dot_waits_in_loops


def test_a_tile_with_two_consumers_is_read_back_into_registers(show: Show) -> None:
    assert show("summed").ir.shared_loads_in_loops == 1
    assert "reduction-in-loop" in show("summed").places
    assert show("summed_by_dot").ir.shared_loads_in_loops == 0
    assert "reduction-in-loop" not in show("summed_by_dot").places
