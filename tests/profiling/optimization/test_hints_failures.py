"""What is advised after a failure, from made-up problems."""

import pytest

from tests.profiling.optimization.made_up_launches import (
    advised,
    case_timing,
    facts,
    failed,
    memory,
    product,
    right,
    timing,
)
from tritonforge.profiling.optimization.hints import hints
from tritonforge.profiling.optimization.model import Confirmation, Evidence
from tritonforge.sandbox.outcome import Kind, Problem

SHARED = "OutOfResources: out of resource: shared memory, Required: {}, Hardware limit: 232448. Reducing block sizes"


@pytest.mark.parametrize(
    ("evidence", "text", "because"),
    [
        (
            failed(Kind.LAUNCH_ERROR, SHARED.format(262_144),
                   facts(num_stages=4, pipeline_buffers=4, shared_bytes=262_144, dots=product(256, 256, 64))),
            "Shared memory 256 KiB of 227 KiB: stages 4 -> 3 saves some 64 KiB; keep the rest",
            "4 pipeline buffers of 64 KiB at num_stages=4",
        ),
        (
            failed(Kind.LAUNCH_ERROR, SHARED.format(245_760)),
            "Shared memory 240 KiB of 227 KiB, as 5 of the parent's pipeline buffers: 4 fit, num_stages=4",
            "the baseline: 48 KiB a buffer at num_stages=3",
        ),
        (
            failed(Kind.LAUNCH_ERROR, SHARED.format(300_000)),
            "Shared memory 293 KiB of 227 KiB: fewer stages or a smaller tile, 1.29 times less in all",
            "the baseline: 144 KiB at num_stages=3, tile 128x256x64",
        ),
        (
            failed(Kind.LAUNCH_ERROR, "OutOfResources: out of resource: threads, Required: 2048, Hardware limit: 1024"),
            "2048 threads of 1024 a block may have: divide num_warps by 2",
            "threads asked for 2048, at most 1024",
        ),
        (
            failed(Kind.COMPILE_ERROR, "at 14:8: FOO is not defined", line=14, excerpt="13 | a\n14 | b = FOO\n15 | c",
                   likely_fix="Define it."),
            "Does not compile at line 14: Define it.",
            "14 | b = FOO",
        ),
        (
            failed(Kind.WRONG, "output: 12 of 4,000 elements wrong; the worst at [3990]; they lie in dimension 0 only "
                   "at 3968..3999 of 0..3999 (the last tile of 128, which is not full: look at its mask)",
                   facts(dots=product(64, 256, 64))),
            "Wrong only in dimension 0 at 3968..3999 of 0..3999: the last tile's mask or the grid: the tile 128x256x64 "
            "became 64x256x64; mask loads and stores with the true extent",
            "tile 128x256x64 -> 64x256x64",
        ),
        (
            failed(Kind.WRONG, "output: wrong", facts(dots=product(128, 256, 64, accumulator_dtype="f16"))),
            "Wrong since the dot's sum went from f32 to f16: go back to f32 there, or split off what needs it",
            "dot sum f32 -> f16",
        ),
        (
            failed(Kind.WRONG, "two calls on the same inputs differ: output, 3 elements", facts(atomics=2)),
            "Two calls differ: let one program write each element in a fixed order",
            "atomics 0 -> 2",
        ),
        (
            failed(Kind.WRONG, "output: 9 of 9 elements wrong", facts(num_warps=4), likely_fix="Work it out by hand."),
            "Wrong: Work it out by hand.",
            "changed: num_warps 8 -> 4",
        ),
        (
            failed(Kind.RUNTIME_ERROR, "CUDA error: an illegal memory access", facts(grid=(64, 2, 1)), line=8),
            "Illegal memory access at line 8: check offsets and masks",
            "grid 4096x1x1 -> 64x2x1",
        ),
        (
            failed(Kind.TIMEOUT, "the call took longer than 30 s", likely_fix="Look for an endless loop."),
            "Timeout: Look for an endless loop.",
            "the call took longer than 30 s",
        ),
    ],
)  # fmt: skip
def test_a_failure_is_told_with_its_place_and_the_way_out(evidence: Evidence, text: str, because: str) -> None:
    first = advised(evidence, right(facts()))[0]
    assert first.text.startswith(text)
    assert because in first.because


def test_a_failure_without_a_word_still_gets_advice() -> None:
    evidence = Evidence(kind=Kind.UNSUPPORTED, stage="compile")
    assert advised(evidence)[0].text == "Unsupported: Undo half of the edit and submit again."


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Kind.CHEATING, "Cheating: Take out what the message names"),
        (Kind.REJECTED, "Rejected: Mend what the message names"),
    ],
)
def test_what_no_smaller_edit_mends_is_not_told_to_be_halved(kind: Kind, text: str) -> None:
    (hint,) = advised(Evidence(kind=kind, stage="compile"))
    assert hint.text.startswith(text)
    assert "half" not in hint.text


def test_failures_in_a_row_send_back_to_the_best_attempt() -> None:
    wrong = failed(Kind.WRONG, "output: wrong")
    known = memory(right(facts()), right(facts(), timings=[timing(1.3)]), wrong, wrong, incumbent=1)
    evidence = failed(Kind.WRONG, "output: wrong again")
    last = hints(evidence, None, known, "once more")[-1]
    assert last.text.startswith("3 in a row end in wrong: begin at attempt 1")
    assert last.because == ["so far: ok 1, wrong 2"]


def test_a_second_look_that_fails_tells_nothing_of_hidden_cases() -> None:
    second = Confirmation(
        kind=Kind.WRONG, hidden_checked=4, problem=Problem(stage="compare", message="A hidden case is wrong."),
        timing=timing(1.1, cases=[case_timing("secret", 1.1, hidden=True)]),
    )  # fmt: skip
    (only,) = advised(right(facts(num_stages=4), timings=[timing(1.2)], confirmation=second), right(facts()))
    assert only.text.startswith("Right and fast at first, wrong in the second look with fresh seeds and shapes: mask")
    assert only.because == ["4 hidden cases checked"]
