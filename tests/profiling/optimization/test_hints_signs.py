"""What an edit did to the code and to its counters, from made-up launches and profiles."""

import re
from typing import Any

import pytest

from tests.profiling.optimization.made_up_launches import (
    advised,
    diagnosed,
    facts,
    memory,
    product,
    profiled,
    right,
    timing,
)
from tritonforge.profiling.compiler.launch import LaunchFacts
from tritonforge.profiling.ncu.model import LaunchProfile
from tritonforge.profiling.optimization.hint_context import Pair, Seen
from tritonforge.profiling.optimization.hint_counters import COUNTERS, Counter, measured_marks
from tritonforge.profiling.optimization.hint_signs import COMPILED, Mark, compiled_marks


def numbers(text: str) -> set[str]:
    return set(re.findall(r"\d+(?:\.\d+)?", text))


@pytest.mark.parametrize(
    ("before", "after", "worse", "advice", "id"),
    [
        ({}, {"spill_bytes": 64, "num_stages": 4}, "registers spill, 64 bytes a thread", "cut stages to 3", "R1"),
        ({}, {"spill_bytes": 64, "num_warps": 4}, "registers spill", "the accumulator takes 256 registers", "R1"),
        ({}, {"mma": "mma", "num_warps": 2}, "products fell from wgmma to mma", "use num_warps=4 or 8", "T1"),
        ({}, {"mma": "mma", "dots": product(32, 256, 64)}, "products fell", "raise the dot's M from 32 to 64", "T2"),
        ({}, {"mma": "mma", "dots": product(64, 40, 64)}, "products fell", "make the dot's N of 40", "T3"),
        ({}, {"mma": "none", "dots": product(64, 64, 64, precision="ieee")}, "to none", 'input_precision="tf32"', "T4"),
        ({}, {"load_widths_bytes": [2]}, "loads narrowed from 16 to 2 bytes", "divisibility by 16", "V2"),
        (
            {"num_warps": 4}, {"load_widths_bytes": [4], "elements_per_program_max": 128, "num_warps": 4},
            "loads narrowed from 16 to 4", "at least 1024 elements", "V6",
        ),
        ({}, {"store_widths_bytes": [4]}, "stores narrowed from 16 to 4", "divisibility", "V2"),
        ({}, {"pipeline_buffers": 0, "num_stages": 1}, "the software pipeline is gone", "use num_stages=3", "P1"),
        ({}, {"sync_loads_beside_dots": 2}, "tile loads that wait beside the dot rose from 0 to 2", "other=0", None),
        ({}, {"layout_conversions_in_loops": 3}, "layout changes in loops rose from 0 to 3", "after the loop", "L1"),
        ({}, {"atomics": 4}, "atomics rose from 0 to 4", "reduce within the program", "A2"),
        ({}, {"acq_rel_atomics": 4}, "order memory rose from 0 to 4", 'sem="relaxed"', "A1"),
        ({"waves": 2.0}, {"waves": 0.4, "grid": (53, 1, 1)}, "has only 0.4 blocks for each SM", "smaller", "G1"),
        (
            {"waves": 4.0, "tail_lost_pct_at_most": 0.0}, {"waves": 1.1, "tail_lost_pct_at_most": 45.0},
            "the last wave may leave 45 % of the time idle", "whole waves", "G2",
        ),
        ({"barriers": 4}, {"barriers": 12}, "barriers rose from 4 to 12", "once after the loop", None),
        ({"barriers": 4}, {"barriers": 12, "loops": 0}, "barriers rose from 4 to 12", "over fewer warps", None),
        (
            {"blocks_per_sm": 2, "theoretical_occupancy_pct": 25.0, "shared_bytes": 98_304},
            {
                "occupancy_limiter": "shared_memory", "theoretical_occupancy_pct": 12.5, "blocks_per_sm": 1,
                "shared_bytes": 147_456,
            },
            "shared memory rose to 144 KiB and cost 1 block per SM", "less shared memory a block", "P2",
        ),
    ],
)  # fmt: skip
def test_what_got_worse_in_the_code_is_told_with_its_remedy(
    before: dict[str, Any], after: dict[str, Any], worse: str, advice: str, id: str | None
) -> None:
    evidence = right(facts(**before | after), timings=[timing(0.9)])
    found = advised(evidence, right(facts(**before)))
    hint = next(hint for hint in found if worse in hint.text[:1].lower() + hint.text[1:])
    assert advice in hint.text
    assert hint.finding == id


def test_lost_alignment_is_told_once_and_its_symptoms_are_not() -> None:
    after = facts(load_widths_bytes=[2], spill_bytes=32, sync_loads_beside_dots=2, pipeline_buffers=0)
    texts = " ".join(hint.text for hint in advised(right(after, timings=[timing(0.5)]), right(facts())))
    assert "loads narrowed" in texts.lower()
    assert "spill" not in texts
    assert "pipeline is gone" not in texts


def test_code_that_has_no_loop_any_more_is_not_advised_about_one() -> None:
    gone = facts(loops=0, barriers=12, pipeline_buffers=0)
    texts = " ".join(
        hint.text.lower() for hint in advised(right(gone, timings=[timing(0.9)]), right(facts(barriers=0)))
    )
    assert "barriers rose from 0 to 12" in texts
    assert "loop" not in texts
    assert "pipeline" not in texts


def test_a_grid_of_less_than_a_wave_is_no_small_one_while_each_sm_has_a_block() -> None:
    before, after = (facts("sin_baseline", waves=waves, registers=17) for waves in (2.0, 0.5))
    assert signs(before, after) == []


def test_each_sign_has_a_made_up_launch_that_shows_both_its_sides() -> None:
    moved: dict[str, Any] = {
        "spill_bytes": 64, "mma": "mma", "sync_loads_beside_dots": 2, "load_widths_bytes": [4],
        "pipeline_buffers": 0, "waves": 0.5, "theoretical_occupancy_pct": 6.0, "layout_conversions_in_loops": 1,
        "store_widths_bytes": [4], "acq_rel_atomics": 1, "atomics": 1, "barriers": 40,
    }  # fmt: skip
    whole = facts(waves=2.0, tail_lost_pct_at_most=0.0)
    pairs = [(whole, facts(waves=2.0, **{name: value})) for name, value in moved.items() if name != "waves"]
    pairs += [(whole, facts(waves=0.5)), (whole, facts(waves=2.0, tail_lost_pct_at_most=30.0))]
    for before, after in pairs:
        (worse,), (better,) = signs(before, after), signs(after, before)
        assert (worse.id, worse.better, better.better) == (better.id, False, True)
        assert worse.advice is not None
        assert numbers(worse.clause) | numbers(better.clause) <= numbers(" ".join((*worse.because, *better.because)))
    shown = {mark.id for before, after in pairs for mark in signs(before, after)}
    assert shown == {sign.id for sign in COMPILED}


def signs(before: LaunchFacts, after: LaunchFacts) -> list[Mark]:
    return compiled_marks([Pair("main", before, after)])


@pytest.mark.parametrize("counter", COUNTERS, ids=lambda counter: counter.field)
def test_each_counter_is_told_either_way(counter: Counter) -> None:
    low, high = (profiled(100.0, None, **{counter.field: value}) for value in (20.0, 60.0))
    (rose,), (fell,) = (
        measured_marks(seen.profiles) for seen in (_seen(low, high), _seen(high, low))
    )  # fmt: skip
    assert rose.better is not counter.less_is_better
    assert fell.better is counter.less_is_better
    assert "rose 3 times" in rose.clause
    assert "fell 67 %" in fell.clause


def _seen(before: LaunchProfile, after: LaunchProfile) -> Seen:
    parent = right(diagnosed=diagnosed(profiles=[before]))
    return Seen(right(diagnosed=diagnosed(profiles=[after])), parent, memory(parent), "")
