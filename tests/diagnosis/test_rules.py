"""Rules that no planted kernel is for: recorded launches, and the Python around a launch."""

from dataclasses import replace
from pathlib import Path

import pytest

from tritonforge.profiling.diagnosis.catalogue import render
from tritonforge.profiling.diagnosis.engine import diagnose
from tritonforge.profiling.diagnosis.floor import Floor
from tritonforge.profiling.diagnosis.rules import RULES

from .made_up import profile, recorded, written

KERNEL = (
    "import torch\nimport triton\nimport triton.language as tl\n\n"
    "@triton.jit\ndef kernel(x, BLOCK: tl.constexpr = 16):\n    pass\n\n"
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sin_baseline", ["V6"]),
        ("sin_candidate", []),
        ("softmax_baseline", ["V6"]),
        ("softmax_candidate", []),
        ("matmul_baseline", ["T1", "P1"]),
        ("matmul_candidate", []),
        ("matmul_short", ["T2"]),
        ("matmul_unaligned", ["P8"]),
        ("while_loop", ["L1"]),
        ("attention", []),
        ("tma", []),
        ("atomics", []),
    ],
)
def test_without_a_source_what_the_code_shows_is_told(name: str, expected: list[str]) -> None:
    assert [finding.id for finding in diagnose(recorded(name)).findings] == expected


def test_a_grid_smaller_than_the_gpu_has_a_bound() -> None:
    (finding,) = diagnose(recorded("matmul_candidate", grid=(33, 1, 1))).findings
    assert (finding.id, finding.gain.at_most_pct) == ("G1", 75.0)


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        ({}, 75.0),
        ({"l2_pct": 51.0, "memory_pct": 90.0}, 40.0),
        ({"l2_pct": 90.0, "memory_pct": 34.0}, 60.0),
        ({"dram_pct": 85.0}, 0.0),
    ],
)
def test_work_that_is_spread_wins_as_much_as_what_all_share_allows(measured: dict[str, float], expected: float) -> None:
    facts = recorded("matmul_candidate", grid=(33, 1, 1))
    (finding,) = diagnose(replace(facts, profile=profile(**measured))).findings
    assert (finding.gain.expected_pct, finding.gain.at_most_pct) == (expected, 75.0)
    assert "64x64 in the place of 128x128" in finding.rewrite.recipe
    floored = replace(facts, profile=profile(), floor=Floor(60.0, 60.0, "1 TFLOP", "compute"))
    assert diagnose(floored).findings[0].gain.expected_pct == 20.0


def test_a_grid_without_products_may_have_smaller_tiles() -> None:
    facts = recorded("softmax_candidate", grid=(33, 1, 1))
    assert "smaller tiles, or" in next(one for one in diagnose(facts).findings if one.id == "G1").rewrite.recipe


def test_a_tail_is_told_if_the_profile_shows_idle_warps() -> None:
    facts = recorded("matmul_candidate", tail_lost_pct_at_most=48.0, waves=1.02, last_wave_filled_pct=2.0)
    seen = profile(achieved_occupancy_pct=20.0, theoretical_occupancy_pct=26.0)
    (finding,) = diagnose(replace(facts, profile=seen)).findings
    assert (finding.id, finding.gain.at_most_pct) == ("G2", 48.0)
    full = profile(achieved_occupancy_pct=21.0, theoretical_occupancy_pct=26.0)
    assert diagnose(replace(facts, profile=full)).findings == []
    assert diagnose(facts).findings == []


def test_more_shared_memory_than_there_is_comes_first() -> None:
    (finding,) = diagnose(recorded("matmul_candidate", shared_bytes=232_449)).findings
    assert (finding.id, finding.predicted[0].to) == ("P2", 232_448)
    assert diagnose(recorded("matmul_candidate", shared_bytes=232_448)).findings == []


def test_spills_without_a_known_root_are_told_themselves() -> None:
    facts = recorded("softmax_candidate", spill_bytes=64)
    assert [finding.id for finding in diagnose(facts).findings] == ["R1"]


@pytest.mark.parametrize(
    ("id", "body", "line"),
    [
        ("H1", "    x = x.t().contiguous()\n    kernel[(4,)](x)\n", 10),
        ("H2", "    kernel[(4,)](x)\n    return x.sum().item()\n", 11),
        ("H3", "    for b in range(8):\n        kernel[(4,)](x[b])\n", 10),
        ("U16", "    kernel[(4,)](x)\n", 6),
    ],
)
def test_what_the_host_does_is_a_hypothesis_on_its_line(id: str, body: str, line: int) -> None:
    told = diagnose(written(KERNEL + "def entry(x):\n" + body, constexprs={"BLOCK": 16 if id == "U16" else 1024}))
    assert [(finding.id, finding.line, finding.level) for finding in told.hypotheses] == [(id, line, 1)]
    assert told.findings == []


def test_a_host_without_waste_gives_no_hypothesis() -> None:
    text = KERNEL + "def entry(x):\n    kernel[(4,)](x)\n\ndef other(x):\n    return x.contiguous().item()\n"
    assert diagnose(written(text, constexprs={"BLOCK": 1024})).hypotheses == []


def test_rules_are_well_formed() -> None:
    ids = [rule.id for rule in RULES]
    assert len(set(ids)) == len(ids)
    for rule in RULES:
        assert (rule.explains | rule.explains_here) <= set(ids), rule.id
        assert "\n->\n" in rule.example, rule.id
        assert 0 < rule.weight <= 100


def test_the_page_of_the_catalogue_is_up_to_date() -> None:
    assert (Path(__file__).parents[2] / "docs" / "diagnosis.md").read_text() == render()
