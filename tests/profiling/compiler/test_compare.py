"""What differs between two compiles."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tritonforge.profiling.compiler.compare import LINES_READ, WEIGHTY, Compiled, changes, in_words, ir_diff, matched
from tritonforge.profiling.compiler.launch import RawLaunch, build
from tritonforge.profiling.hardware.catalog import resolve_target

H200 = resolve_target("h200")

Compile = Callable[..., Compiled]


@pytest.fixture
def compiled(recorded_launch: Callable[[str], RawLaunch]) -> Compile:
    """A recorded launch, by name; fields of the raw launch may be replaced."""

    def compiled(name: str, **fields: object) -> Compiled:
        raw = replace(recorded_launch(name), **fields)
        return Compiled(build(raw, H200), raw.ttgir, raw.ptx)

    return compiled


def test_facts_that_differ_come_with_both_values(compiled: Compile) -> None:
    (found,) = changes("square", [compiled("matmul_baseline")], [compiled("matmul_candidate")])
    facts = {change.fact: (change.before, change.after) for change in found.facts}
    assert facts["mma"] == ("mma", "wgmma")
    assert facts["async_copies"] == (0, 36)
    assert facts["registers"][1] == 207
    assert "num_ctas" not in facts
    assert not facts.keys() & {"kernel", "code_hash", "absent"}
    assert not found.same_code


def test_what_moves_data_multiplies_or_waits_comes_first(compiled: Compile) -> None:
    before, after = compiled("matmul_baseline"), compiled("matmul_candidate")
    (found,) = changes("square", [before], [after])
    by_name = {one.operation: (one.before, one.after) for one in found.operations}
    assert by_name["ttng.warp_group_dot"] == (0, after.ttgir.count("ttng.warp_group_dot "))
    weights = [
        (WEIGHTY.match(one.operation) is None, min(one.before, one.after) > 0, -abs(one.after - one.before))
        for one in found.operations
    ]
    assert weights == sorted(weights)
    assert all(amount < 0 for _, _, amount in weights)
    instructions = {one.operation: (one.before, one.after) for one in found.instructions}
    assert instructions["cp.async.cg.shared.global"] == (0, 36)


def test_the_same_code_is_said_to_be_the_same(compiled: Compile, recorded_launch: Callable[[str], RawLaunch]) -> None:
    one = compiled("softmax_candidate")
    text, log = (recorded_launch("softmax_candidate").ptx, recorded_launch("softmax_candidate").ptxas_log or "")
    old = one.facts.kernel
    other = compiled("softmax_candidate", ptx=text.replace(old, "renamed"), ptxas_log=log.replace(old, "renamed"))
    (found,) = changes("train", [other], [one])
    assert found.same_code
    assert (found.facts, found.operations, found.instructions) == ([], [], [])
    assert "the same machine code" in in_words(found)[0]


def test_a_grid_alone_is_a_fact(compiled: Compile) -> None:
    (found,) = changes("train", [compiled("sin_candidate")], [compiled("sin_candidate", grid=(8, 1, 1))])
    assert found.same_code
    tail = ["last_wave_filled_pct", "tail_lost_pct_at_most"]
    assert [change.fact for change in found.facts] == ["grid", "waves", *tail]
    assert "grid 4096/1/1 -> 8/1/1" in in_words(found)[0]


def test_kernels_of_one_name_belong_together_and_others_by_their_order(compiled: Compile) -> None:
    a, b, c = (compiled("sin_candidate", kernel=name) for name in "abc")
    x = compiled("sin_candidate", kernel="x")
    assert matched([a, b], [b, c]) == [(b, b), (a, c)]
    assert matched([a], [x, a]) == [(None, x), (a, a)]
    assert matched([a, b], [a]) == [(a, a), (b, None)]
    assert matched([], []) == []


def test_launches_without_a_counterpart_are_told(compiled: Compile) -> None:
    one, other = (compiled("sin_candidate", kernel=name) for name in ("one", "other"))
    words = [line for found in changes("c", [one, other], [one]) for line in in_words(found)]
    assert words[1] == "[c] other is launched no more"
    (new,) = changes("c", [], [one])
    assert in_words(new) == ["[c] one is new"]


def test_the_words_are_short(compiled: Compile) -> None:
    (found,) = changes("square", [compiled("matmul_baseline")], [compiled("matmul_candidate")])
    words = in_words(found)
    assert len(words) == 3
    assert "mma mma -> wgmma" in words[0]
    assert words[1].startswith("  TTGIR: ")
    assert words[2].startswith("  PTX: ")


def test_an_ir_diff_ignores_names_and_positions() -> None:
    before = '#loc = loc("k.py":1:0)\n  %x_1 = arith.addf %a, %b : f32 loc(#loc2)\n  tt.return loc(#loc)\n'
    after = '#loc = loc("k.py":9:0)\n  %y = arith.addf %c_3, %d : f32 loc(#loc4)\n  tt.return loc(#loc1)\n'
    assert ir_diff(before, after) == ""
    changed = ir_diff(before, after.replace("addf", "mulf"))
    assert "-  % = arith.addf %, % : f32" in changed
    assert "+  % = arith.mulf %, % : f32" in changed


def test_an_ir_diff_reads_no_more_than_it_can_match() -> None:
    long = "\n".join(f"  a.b {number}" for number in range(LINES_READ + 5))
    assert ir_diff(long, f"{long}\n  a.c") == ""
    assert ir_diff(f"  a.c\n{long}", long) != ""
