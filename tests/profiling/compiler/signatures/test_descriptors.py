"""Tensor descriptors and warp specialization: what they show at work, and what keeps the compiler from it."""

import pytest

from .conftest import Show


def test_specialized_warps_are_more_and_share_registers_anew(show: Show) -> None:
    facts = show("specialized").facts
    assert show("specialized").ir.warp_specialized
    assert facts.num_warps == 12
    assert facts.shared_bytes > show("described").facts.shared_bytes
    assert facts.registers == 65_536 // (32 * 12) // 8 * 8


@pytest.mark.parametrize(
    ("name", "warps"), [("specialized_eight_warps", 8), ("specialized_branch", 4), ("persistent_flat", 4)]
)
def test_warp_specialization_that_is_asked_for_is_ignored_without_a_word(show: Show, name: str, warps: int) -> None:
    assert not show(name).ir.warp_specialized
    assert show(name).facts.num_warps == warps
    assert "warp-specialization-failed" not in show(name).remarks


def test_the_same_loop_is_specialized_where_nothing_keeps_it(show: Show) -> None:
    assert show("persistent").ir.warp_specialized


def test_a_descriptor_that_the_kernel_makes_costs_instructions(show: Show) -> None:
    own, host = show("self_described"), show("described")
    assert (own.ir.descriptors_made, host.ir.descriptors_made) == (2, 0)
    assert own.code.instructions > host.code.instructions
    assert own.code.tma_copies == host.code.tma_copies > 0


def test_descriptors_need_fewer_registers_than_pointers(show: Show) -> None:
    described, pointed = show("described"), show("pointed")
    assert (described.code.tma_copies > 0, described.code.async_copies) == (True, 0)
    assert (pointed.code.tma_copies, pointed.code.async_copies > 0) == (0, True)
    assert (described.facts.registers or 0) < (pointed.facts.registers or 0)
