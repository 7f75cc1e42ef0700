"""More planted faults: grids, traffic, descriptors, tuning and the host."""

from typing import Final

from .plant import Planted

PLANTED: Final[tuple[Planted, ...]] = (
    Planted("G8", "grids", "two_blocks", "num_ctas=2", "two_blocks", "one_block"),
    Planted("M1", "grids", "three_passes", "total += tl.exp2(tl.load", "three_passes", "one_pass"),
    Planted("W5", "grids", "described_in_loop", "tl.make_tensor_descriptor", "described_each_time", "described_before"),
)
CLEAN: Final[dict[str, tuple[str, ...]]] = {"grids": ("described_by_host",)}
OWN_TESTS: Final[frozenset[str]] = frozenset(
    {"G3", "G4", "G5", "G6", "G7", "M3", "M4", "M5", "M7", "H4", "H5", "H6", "H7", "H8", "U1", "U2", "U3", "U7", "U15"}
)
"""Ids of rules that no kernel of these lists shows: they have tests of their own."""
