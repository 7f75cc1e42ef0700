"""More planted faults: products, pipelines and layouts."""

from typing import Final

from .plant import Planted

PLANTED: Final[tuple[Planted, ...]] = (
    Planted("T3", "dots", "n_8", "total = tl.dot(\n", "product", "n_16", 4),
    Planted("T12", "products", "eighths_added", "total += tl.dot", "eighths", "eighths_passed", 4),
    Planted("T5", "products", "widened", "total = tl.dot(wide", "widened", "not_widened", 4),
    Planted("T16", "dots", "k_32", "total = tl.dot(\n", "product", "product"),
    Planted("P11", "products", "taps_nested", "for _ in range(TAPS)", "taps", "taps_flat"),
    Planted("P13", "products", "tile_both_ways", "tile = a.load", "squared", "tile_turned", 4),
    Planted("P15", "products", "index_wrapped", "left = tl.load", "wrapped", "index_stepped", 4),
    Planted("L4", "dots", "transposed_result", "tl.trans(left)", "squared_transposed", "transposed_product"),
    Planted("L8", "products", "sorted", "tl.sort(x)", "in_order", "sorted_by_one"),
)
CLEAN: Final[dict[str, tuple[str, ...]]] = {
    "products": (
        "eighths_passed",
        "tile_turned",
        "taps_flat",
        "index_stepped",
        "long_rows",
        "short_rows",
        "scores",
        "helped_attention",
        "stored_now_and_then",
        "stored_in_each_step",
        "widened_once",
    ),
}
"""Among them what only a profile makes a fault of, loops without a dot and short rows of many warps, and what no edit
avoids: products that are used at once, and stores of what they make."""
OWN_TESTS: Final[frozenset[str]] = frozenset({"T14", "T15", "P7", "P12", "P14", "L2", "L5", "L6"})
"""Ids of rules that no kernel of these lists shows: they have tests of their own."""
REWRITTEN: Final = (
    ("products", "eighths_added", "T12"),
    ("products", "taps_nested", "P11"),
    ("products", "sorted", "L8"),
)
"""Launches whose finding has a diff."""
