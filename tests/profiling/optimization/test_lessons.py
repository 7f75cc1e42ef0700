"""Lessons from made-up runs: distilled, pooled, recalled."""

import math
import random

import pytest

from tests.profiling.optimization.made_up_launches import (
    attempt,
    diagnosed,
    facts,
    failed,
    finding,
    product,
    right,
    timing,
)
from tritonforge.profiling.compiler.launch import LaunchFacts
from tritonforge.profiling.optimization.hint_context import launches_beside
from tritonforge.profiling.optimization.lesson import KERNELS_KEPT, RUNS_KEPT, Lesson, merge
from tritonforge.profiling.optimization.lesson_distillation import RunFacts, distill, lesson_key
from tritonforge.profiling.optimization.lesson_gains import Pooled, gain_beside, pooled
from tritonforge.profiling.optimization.lesson_kinds import KINDS, finding_of, kernel_kind, kind_of, named_findings
from tritonforge.profiling.optimization.lessons import recall
from tritonforge.profiling.optimization.model import Attempt, Confirmation, Evidence
from tritonforge.sandbox.outcome import Kind

H200 = "NVIDIA H200"
RUN = RunFacts("run-1", "Matrix product", H200, "3.6.0", "2.11.0", "2026-11-30T13:00:00+00:00")
BASE = right(facts(), diagnosed=diagnosed(finding("P1"), finding("V2")))


def run_of(*candidates: Attempt, baseline: Evidence = BASE) -> list[Attempt]:
    return [attempt(0, baseline), *candidates]


def lesson(**changed: object) -> Lesson:
    given = {
        "key": "k", "finding": "V2", "strategy": "vectorization", "device": H200, "triton": "3.6.0", "torch": "2.11.0",
        "tried": 1, "helped": 1, "gain_pct": 10.0, "gain_low_pct": 9.0, "gain_high_pct": 11.0, "why": "It saved 10 %.",
        "kernels": ["Softmax"], "runs": ["run-1"], "updated_at": "2026-11-30T12:00:00+00:00", "kernel_kind": "rows",
    }  # fmt: skip
    return Lesson.model_validate(given | changed)


def test_an_attempt_that_helped_is_a_lesson_with_its_interval() -> None:
    wider = right(facts(num_stages=4), timings=[timing(1.25, width=0.01)], diagnosed=diagnosed(finding("V2")))
    (only,) = distill(RUN, run_of(attempt(1, wider, "num_stages 4 for P1")))
    assert (only.finding, only.strategy, only.device, only.kernel_kind) == ("P1", "stages", H200, "products")
    assert (only.tried, only.helped, only.failed) == (1, 1, {})
    assert (only.gain_pct, only.gain_low_pct, only.gain_high_pct) == (20.0, 19.355, 20.635)
    assert only.why == "Matrix product: num_stages 3 -> 4 saved 20.0 % (19.4 to 20.6)"
    assert (only.kernels, only.runs) == (["Matrix product"], ["run-1"])
    assert only.key == lesson_key("P1", "stages", H200, "products")


def test_an_attempt_that_lost_says_what_it_lost_to() -> None:
    spilling = right(facts(num_warps=4, spill_bytes=96), timings=[timing(0.8)])
    (only,) = distill(RUN, run_of(attempt(1, spilling, "fewer warps")))
    assert only.strategy == "warps"
    assert only.helped == 0
    assert only.gain_pct == -25.0
    assert only.why == (
        "Matrix product: num_warps 8 -> 4 lost 25.0 % (24.2 to 25.8): registers spill, 96 bytes a thread"
    )


def test_a_failure_is_a_lesson_without_a_gain() -> None:
    broken = failed(Kind.LAUNCH_ERROR, "out of resource: shared memory\nmore")
    (only,) = distill(RUN, run_of(attempt(1, broken, "P1: six stages")))
    assert (only.tried, only.helped, only.gain_pct, only.failed) == (1, 0, None, {"launch_error": 1})
    assert only.why == "Matrix product: P1: six stages ended in launch_error: out of resource: shared memory"


def test_a_gain_that_the_second_look_refutes_is_a_failure() -> None:
    second = Confirmation(kind=Kind.WRONG, hidden_checked=3)
    wrong = right(facts(num_stages=4), timings=[timing(1.5)], confirmation=second)
    (only,) = distill(RUN, run_of(attempt(1, wrong, "stages")))
    assert (only.helped, only.gain_pct, only.failed) == (0, None, {"wrong": 1})


def test_without_a_gpu_nothing_is_claimed_of_time() -> None:
    right_only = right(facts(num_stages=4), untimed="no GPU here")
    run = RunFacts("run-1", "Product", None, "3.6.0", None, "2026-11-30T13:00:00+00:00")
    (only,) = distill(run, run_of(attempt(1, right_only, "stages")))
    assert (only.device, only.gain_pct, only.helped) == ("no GPU", None, 0)
    assert only.why == "Product: num_stages 3 -> 4 was right and not timed (no GPU here)"


@pytest.mark.parametrize(
    "unheard",
    [
        attempt(1, right(facts(), timings=[timing(1.2)]), duplicate_of=0),
        attempt(1, right(facts(), timings=[timing(1.2)]), state="interrupted"),
        attempt(1, None),
        attempt(1, failed(Kind.UNAVAILABLE, "the GPU is gone")),
        attempt(1, failed(Kind.CANCELLED, "cancelled")),
    ],
)
def test_what_says_nothing_of_a_candidate_is_no_lesson(unheard: Attempt) -> None:
    assert distill(RUN, run_of(unheard)) == []


def test_attempts_are_measured_against_their_parents_and_pooled_by_kind() -> None:
    first = right(facts(num_stages=4), timings=[timing(1.2)])
    second = right(facts(num_stages=5), timings=[timing(1.8), timing(1.5, against=1)])
    attempts = run_of(attempt(1, first, "more stages"), attempt(2, second, "more stages still", parent=1))
    (only,) = distill(RUN, attempts)
    assert (only.tried, only.helped) == (2, 2)
    assert only.gain_pct is not None
    assert 16.6 < only.gain_pct < 33.4
    assert "num_stages 4 -> 5" in only.why


def test_the_same_attempts_give_the_same_lessons_in_whatever_order_they_come() -> None:
    attempts = run_of(
        attempt(1, right(facts(num_stages=4), timings=[timing(1.2)]), "stages"),
        attempt(2, right(facts(num_warps=4), timings=[timing(1.1)]), "warps"),
        attempt(3, right(facts(num_stages=5), timings=[timing(1.3)]), "stages"),
    )
    expected = distill(RUN, attempts)
    assert [one.strategy for one in expected] == ["stages", "warps"]
    for seed in range(5):
        shuffled = random.Random(seed).sample(attempts, len(attempts))
        assert distill(RUN, shuffled) == expected


def test_merging_adds_counts_and_keeps_the_newest_words() -> None:
    old = lesson(failed={"wrong": 1}, tried=3, helped=2)
    new = lesson(
        triton="3.7.0", failed={"wrong": 1, "timeout": 2}, tried=4, helped=1, why="It saved nothing.",
        kernels=["Norm"], runs=["run-2"], updated_at="2026-12-01T00:00:00+00:00",
    )  # fmt: skip
    both = merge(old, new)
    assert (both.tried, both.helped, both.failed) == (7, 3, {"timeout": 2, "wrong": 2})
    assert (both.why, both.triton, both.updated_at) == ("It saved nothing.", "3.7.0", "2026-12-01T00:00:00+00:00")
    assert (both.kernels, both.runs) == (["Norm", "Softmax"], ["run-2", "run-1"])


def test_a_gain_survives_failures_that_come_later() -> None:
    both = merge(lesson(), lesson(gain_pct=None, gain_low_pct=None, gain_high_pct=None, helped=0, failed={"wrong": 1}))
    assert (both.gain_pct, both.gain_low_pct, both.gain_high_pct) == (10.0, 9.0, 11.0)


def test_lessons_of_different_things_are_not_merged() -> None:
    with pytest.raises(ValueError, match="only equal keys"):
        merge(lesson(), lesson(key="other"))


def test_a_lesson_stays_small_however_often_it_is_seen() -> None:
    whole = lesson()
    for number in range(60):
        whole = merge(whole, lesson(kernels=[f"Kernel {number}"], runs=[f"run-{number}"]))
    assert (len(whole.kernels), len(whole.runs), whole.tried) == (KERNELS_KEPT, RUNS_KEPT, 61)
    assert whole.kernels[0] == "Kernel 59"
    assert Lesson.model_validate_json(whole.model_dump_json()) == whole


def test_equal_gains_pool_to_a_narrower_interval() -> None:
    both = pooled(Pooled(10.0, 8.0, 12.0), 1, Pooled(10.0, 8.0, 12.0), 1)
    assert both is not None
    assert both.pct == pytest.approx(10.0, abs=0.05)
    assert both.high_pct - both.low_pct == pytest.approx(4 / math.sqrt(2), rel=0.02)


def test_the_more_certain_gain_weighs_more_where_they_agree() -> None:
    both = pooled(Pooled(10.0, 4.0, 16.0), 1, Pooled(12.0, 11.5, 12.5), 1)
    assert both is not None
    assert 11.9 < both.pct <= 12.0


def test_gains_that_truly_differ_are_averaged_and_the_interval_holds_both() -> None:
    both = pooled(Pooled(50.0, 49.99, 50.01), 1, Pooled(10.0, 9.0, 11.0), 1)
    assert both is not None
    assert both.pct == pytest.approx(100 * (1 - math.sqrt(0.5 * 0.9)), abs=0.1)
    assert both.low_pct < 10.0
    assert both.high_pct > 50.0


def test_many_attempts_outweigh_one_that_differs() -> None:
    both = pooled(Pooled(10.0, 9.0, 11.0), 19, Pooled(50.0, 49.0, 51.0), 1)
    assert both is not None
    assert both.pct < 15.0
    assert pooled(Pooled(50.0, 49.0, 51.0), 1, Pooled(10.0, 9.0, 11.0), 19) == pytest.approx(both)


def test_a_gain_of_nearly_everything_can_be_kept_and_pooled() -> None:
    huge = right(facts(num_stages=4), timings=[timing(1e7, width=1.0)])
    (only,) = distill(RUN, run_of(attempt(1, huge, "stages")))
    assert only.gain_pct == 99.999
    assert merge(only, only).gain_pct == 99.999


def test_recalling_ranks_what_helps_first_and_marks_what_is_stale() -> None:
    fresh = lesson(key="a", tried=9, helped=8)
    lucky = lesson(key="b", tried=1, helped=1, gain_pct=40.0)
    elsewhere = lesson(key="c", device="NVIDIA A100", tried=9, helped=9)
    older = lesson(key="d", triton="3.4.1", tried=9, helped=9)
    found = recall([elsewhere, older, lucky, fresh], device=H200, triton="3.6.2")
    assert [each.lesson.key for each in found] == ["a", "b", "c", "d"]
    assert [each.stale for each in found] == [
        None, None, "seen on NVIDIA A100, this is NVIDIA H200", "seen with Triton 3.4.1, this is 3.6.2",
    ]  # fmt: skip


def test_what_was_never_timed_is_recalled_before_what_did_not_help() -> None:
    untimed = lesson(key="a", tried=9, helped=0, gain_pct=None, gain_low_pct=None, gain_high_pct=None)
    failing = untimed.model_copy(update={"key": "b", "failed": {"wrong": 9}})
    vain, good = lesson(key="c", tried=9, helped=0, gain_pct=-1.0), lesson(key="d", tried=9, helped=8)
    found = recall([failing, vain, untimed, good], device=H200, triton="3.6.2")
    assert [each.lesson.key for each in found][:2] == ["d", "a"]


def test_another_device_and_another_version_are_both_told() -> None:
    (found,) = recall([lesson(device="NVIDIA A100", triton=None)], device=H200, triton="3.6.0")
    assert found.stale == "seen on NVIDIA A100, this is NVIDIA H200; nobody knows with which Triton it was seen"
    (found,) = recall([lesson(device="NVIDIA A100", triton="3.4")], device=None, triton=None)
    assert found.stale is None


def test_recalling_finds_by_finding_and_by_kernel() -> None:
    rows = lesson(key="a")
    product = lesson(key="b", finding="P1", kernels=["Matrix product, tiled"], kernel_kind="products")
    both = [rows, product]

    def keys(**wanted: str) -> list[str]:
        return [each.lesson.key for each in recall(both, device=H200, triton="3.6.0", **wanted)]

    assert keys(finding="P1") == ["b"]
    assert keys(finding="L1") == []
    assert keys(kernel="a softmax kernel") == ["a"]
    assert keys(kernel="products") == ["b"]
    assert keys(kernel="matrix softmax") == ["a", "b"]
    assert keys(kernel="matrix product softmax")[0] == "b"
    assert keys() == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "after", "kind"),
    [
        ("num_stages=4", facts(), "stages"),
        ("use 4 warps", facts(), "warps"),
        ("larger tile", facts(), "tiling"),
        ("larger tile with 4 warps", facts(num_warps=4), "warps"),
        ("larger tile with 4 warps", facts(dots=product(128, 128, 64)), "tiling"),
        ("larger tile with 4 warps", facts(), "tiling"),
        ("round the stride so that loads are 16 bytes wide and aligned", facts(load_widths_bytes=[8]), "vectorization"),
        ("leave full blocks unmasked", facts(), "masks"),
        ("fuse the two kernels", facts(), "fusion"),
        ("wgmma through tf32", facts(), "tensor_cores"),
        ("swizzle the layout", facts(), "memory_layout"),
        ("split-K reduction", facts(), "reduction"),
        ("persistent grid", facts(), "launch_grid"),
        ("less Python on the host", facts(), "host"),
        ("exp2 with a folded scale", facts(), "algorithm"),
        ("try something", facts(num_stages=4), "stages"),
        ("try something", facts(mma="mma", num_warps=4), "tensor_cores"),
        ("try something", facts(grid=(32, 1, 1)), "launch_grid"),
        ("try something", facts(), "host"),
        ("try something", facts(registers=99), "other"),
    ],
)
def test_a_strategy_is_what_its_words_say_and_its_code_confirms(text: str, after: LaunchFacts, kind: str) -> None:
    base, candidate = right(facts()), right(after)
    assert kind_of(text, launches_beside(base.launches, candidate.launches)) == kind
    assert kind in KINDS


def test_a_kernel_that_is_launched_no_more_was_fused() -> None:
    two, one = right(facts(), facts("sin_baseline", kernel="scale")), right(facts(registers=99))
    assert kind_of("try something", launches_beside(two.launches, one.launches)) == "fusion"


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("mend V2, then P1", ["V2", "P1"]),
        ("better L2 hit rate and L1 cache reuse", []),
        ("L2: no bank conflicts; L1, layout", ["L2", "L1"]),
        ("on an H100 and an A100 with BLOCK_M1", []),
        ("Z9 is none", []),
    ],
)
def test_findings_are_named_by_their_ids_and_caches_are_none(text: str, ids: list[str]) -> None:
    assert named_findings(text) == ids


@pytest.mark.parametrize(
    ("text", "id"),
    [("for V2", "V2"), ("L7, and V2", "V2"), ("for L7", "L7"), ("more stages", "P1")],
)
def test_the_finding_is_the_named_one_else_the_weightiest_that_is_gone(text: str, id: str) -> None:
    before = diagnosed(finding("R1"), finding("P1"), finding("V2"))
    assert finding_of(text, before, diagnosed(finding("R1"))) == id


def test_no_finding_is_guessed_where_diagnoses_do_not_compare() -> None:
    before = diagnosed(finding("P1"))
    assert finding_of("stages", before, None) is None
    assert finding_of("stages", before, diagnosed(case="other")) is None
    assert finding_of("stages", before, diagnosed(finding("P1"))) is None


@pytest.mark.parametrize(
    ("name", "kind"),
    [("matmul_candidate", "products"), ("softmax_candidate", "rows"), ("sin_baseline", "elementwise"),
     ("atomics", "atomics")],
)  # fmt: skip
def test_kernels_are_of_a_kind_by_their_code(name: str, kind: str) -> None:
    assert kernel_kind(right(facts(name)).launches) == kind


def test_a_gain_beside_a_parent_that_was_not_timed_with_it_goes_through_the_baseline() -> None:
    parent, child = right(facts(), timings=[timing(1.5, width=0.03)]), right(facts(), timings=[timing(3.0, width=0.06)])
    gain = gain_beside(child, parent, 4)
    assert gain is not None
    assert (gain.against, gain.comparison, gain.timing) == (4, "faster", None)
    assert gain.ratio == pytest.approx(2.0)
    assert gain.high / gain.ratio - 1 == pytest.approx(math.sqrt(2) * 0.02, rel=0.05)


def test_a_gain_beside_an_unknown_parent_is_that_beside_the_incumbent() -> None:
    gain = gain_beside(right(facts(), timings=[timing(2.0), timing(1.1, against=3)]), None, None)
    assert gain is not None
    assert (gain.against, gain.ratio) == (3, 1.1)
    assert gain_beside(right(facts()), None, None) is None
