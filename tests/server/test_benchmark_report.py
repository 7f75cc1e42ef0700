"""What `benchmark` says of times that were made up."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.server.made_up_times import BLOCKS, COOL, against, timed_case, times
from tritonforge.profiling.comparison import WeightedCase, combine, log_ratios
from tritonforge.profiling.hardware.catalog import resolve_target
from tritonforge.profiling.roofline import SpeedOfLight, Work, speed_of_light
from tritonforge.profiling.times import Times, pairs
from tritonforge.sandbox.timing_facts import FirstCall, GraphFloor, Tuned
from tritonforge.server.results import text
from tritonforge.server.timed_result import Against, TimedCase
from tritonforge.server.tools.benchmark_report import BenchmarkResult, CaseTimes, case_times, result
from tritonforge.server.tools.benchmark_samples import samples

H200 = resolve_target("h200").gpu
SUMMARY_TOKENS = 1500
"""What four cases may cost a reader."""
CHARACTERS_A_TOKEN = 3
"""Figures are dense."""


def told(timed: TimedCase, light: SpeedOfLight | None = None) -> CaseTimes:
    return case_times(timed, light)[0]


def reported(*cases: TimedCase, light: SpeedOfLight | None = None) -> BenchmarkResult:
    """The result of these cases, each of weight 1."""
    all_times: list[CaseTimes] = []
    weighted: list[WeightedCase] = []
    for timed in cases:
        found, comparison = case_times(timed, light)
        all_times.append(found)
        if comparison is not None:
            weighted.append(WeightedCase(timed.case, 1.0, comparison, [log_ratios(group) for group in timed.groups]))
    score = combine(weighted) if weighted else None
    return result("NVIDIA H200", "cold", all_times, score, ["tritonforge://artifacts/1/benchmark-samples.json"])


def light_of(us: float, megabytes: float) -> SpeedOfLight:
    """Half of the bytes read, half written."""
    half = int(megabytes * 1e6) // 2
    work = Work(bytes=2 * half, flops=None, dtypes={"float32"}, input_bytes=half, output_bytes=half)
    return speed_of_light(work, duration_us=us, gpu=H200, l2_bytes=50 << 20)


NOISY = {"noise": 0.05}


@pytest.mark.parametrize(
    ("candidate_us", "noise", "comparison", "next_step"),
    [
        (90.0, 0.0005, "faster", "Keep it as the one to beat"),
        (110.0, 0.0005, "slower", "Drop this idea"),
        (100.0, 0.0005, "same", "No gain worth having"),
        (100.0, 0.05, "ambiguous", "do not act on this ratio"),
    ],
)
def test_a_case_and_the_score_say_the_same_with_what_to_do_next(
    candidate_us: float, noise: float, comparison: str, next_step: str
) -> None:
    found = reported(timed_case(candidate=times(candidate_us, noise=noise)))
    (case,) = found.cases
    assert case.comparison == comparison
    assert found.score is not None
    assert found.score.comparison == comparison
    assert found.summary.startswith(f"{comparison.upper()}: {found.score.ratio:.4g}x of the baseline's speed")
    assert "on NVIDIA H200." in found.summary.splitlines()[0]
    assert next_step in (found.next_step or "")
    assert case.ratio is not None
    assert case.ratio_low is not None
    assert case.ratio_high is not None
    assert case.ratio_low < case.ratio < case.ratio_high
    assert case.ratio == pytest.approx(100 / candidate_us, rel=0.05)


def test_the_line_of_a_case_tells_times_verdict_interval_and_what_would_have_been_seen() -> None:
    found = reported(timed_case(candidate=90.0))
    (case,) = found.cases
    (line,) = [line for line in found.summary.splitlines() if line.startswith("- train:")]
    assert line.startswith(f"- train: {case.device_us:.2f} us on the device (kernels {case.kernel_us:.2f}, whole call ")
    assert "; replayed)" in line
    assert f", baseline {case.baseline_device_us:.2f} us: faster, {case.ratio:.4f}x [" in line
    assert f"smallest visible change {case.min_detectable_pct:.2f} %" in line


def test_fields_of_a_case_are_those_of_its_samples() -> None:
    case = told(timed_case(candidate=90.0))
    assert case.device_us == pytest.approx(90, rel=0.001)
    assert case.device_us_low < case.device_us < case.device_us_high
    assert case.baseline_device_us == pytest.approx(100, rel=0.001)
    assert case.call_us == pytest.approx(110.5, abs=0.5)
    assert case.call_ratio == pytest.approx(120.5 / 110.5, rel=0.01)
    assert case.samples == 2 * BLOCKS * 18
    assert (case.blocks, case.process_pairs, case.outputs_checked) == (BLOCKS, 1, 6)
    assert [(kernel.name, kernel.us) for kernel in case.kernels] == [("softmax_kernel", 90.0)]
    assert case.sm_clock_hz == case.baseline_sm_clock_hz == 1.98e9
    assert (case.first_call_s, case.contents_vary, case.notes) == (0.8, True, [])


def test_two_pairs_of_processes_are_counted_together() -> None:
    group = pairs(times(100, seed=5), times(100, seed=6))
    timed = timed_case()
    case = told(replace(timed, groups=[*timed.groups, group]))
    assert (case.blocks, case.process_pairs) == (2 * BLOCKS, 2)


def test_without_a_baseline_nothing_is_compared() -> None:
    found = reported(timed_case(baseline=None))
    (case,) = found.cases
    assert found.score is None
    assert "no baseline was given, so nothing is compared" in found.summary
    assert found.next_step == "Pass a baseline to compare with."
    assert (case.ratio, case.comparison, case.baseline_device_us, case.call_ratio) == (None,) * 4
    assert case.blocks == BLOCKS


def test_a_warm_cache_is_told() -> None:
    case, _ = case_times(timed_case(baseline=None), None)
    assert "L2 warm" in result("GPU", "warm", [case], None, []).summary
    assert "L2 warm" not in result("GPU", "cold", [case], None, []).summary


def test_a_case_that_became_slower_is_named_though_the_score_is_faster() -> None:
    found = reported(timed_case("train", 70.0), timed_case("decode", 104.0), timed_case("long", 90.0))
    assert found.score is not None
    assert found.score.comparison == "faster"
    assert found.score.slower_cases == ["decode"]
    assert "SLOWER in: decode." in found.summary
    assert found.next_step == "Find out why decode became slower before you keep it."


def test_one_slower_case_alone_is_not_told_twice() -> None:
    found = reported(timed_case(candidate=110.0))
    assert "SLOWER in" not in found.summary


# The speed of light


def test_how_far_the_speed_of_light_is_stands_in_the_line() -> None:
    light = light_of(100.0, 240)
    found = reported(timed_case(), light=light)
    (case,) = found.cases
    assert case.speed_of_light_pct == pytest.approx(50, rel=0.05)
    assert case.headroom == pytest.approx(2, rel=0.05)
    assert (case.bound, case.floor_from, case.work_suspect) == ("memory", "data_sheet", False)
    assert f"; {case.speed_of_light_pct:.0f} % of the speed of light (memory-bound, data_sheet)" in found.summary


def test_a_time_that_is_hardly_possible_is_suspect_with_the_arithmetic_first_of_the_notes() -> None:
    light = light_of(100.0, 240).model_copy(update={"verdict": "suspect", "explanation": "1 + 1 = 3"})
    found = reported(timed_case(varies=False), light=light)
    (case,) = found.cases
    assert case.work_suspect
    assert case.notes[0] == "work_suspect: 1 + 1 = 3"
    assert "  ! work_suspect: 1 + 1 = 3" in found.summary


def test_a_time_far_above_the_ceilings_comes_with_the_roofs_own_notes() -> None:
    light = light_of(100.0, 240).model_copy(update={"pct": 120.0, "notes": ["results may still lie in L2"]})
    assert "results may still lie in L2" in told(timed_case(), light).notes
    near = light.model_copy(update={"pct": 105.0})
    assert told(timed_case(), near).notes == []


# Launch-bound


def launch_bound_case(**more: Any) -> TimedCase:
    return timed_case(candidate=times(3.0, call_us=60.0), baseline=3.0, **more)


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        (None, "the device works 3.0 us of it; fusing launches or a CUDA graph gains more than a faster kernel"),
        (GraphFloor(graph_call_us=9.25), "of it (as a CUDA graph a call takes 9.2 us); fusing"),
        (GraphFloor(reason="it synchronizes"), "(it can't become a CUDA graph as it is: it synchronizes)"),
    ],
)
def test_a_launch_bound_case_is_told_with_the_floor_of_a_graph(graph: GraphFloor | None, words: str) -> None:
    case = told(launch_bound_case(graph=graph))
    assert case.launch_bound
    (note,) = case.notes
    assert note.startswith("launch-bound: a call takes 60.")
    assert words in note
    assert case.graph_call_us == (graph.graph_call_us if graph is not None else None)


def test_a_long_kernel_is_not_launch_bound() -> None:
    assert not told(timed_case()).launch_bound


# Notes


def test_contents_that_stayed_the_same_are_told() -> None:
    case = told(timed_case(varies=False))
    assert not case.contents_vary
    assert case.notes == [
        "the inputs' contents were the same in each timed call, so results kept between calls may go unseen"
    ]


def test_blocks_that_were_timed_again_are_told() -> None:
    assert told(timed_case(repeated=3)).notes == ["3 blocks were timed again, since the sides' clocks differed"]


def test_what_the_witnesses_say_is_told() -> None:
    (note,) = told(timed_case(candidate=times(100.0, event_us=20.0))).notes
    assert "another stream" in note


IN_CANDIDATE: dict[str, Any] = {"how": "in_candidate", "how_reason": "the kernel can't be replayed: aten.mm"}


def test_why_calls_were_not_replayed_is_told() -> None:
    case = told(timed_case(**IN_CANDIDATE))
    assert (case.timing, case.timing_reason) == ("in_candidate", "the kernel can't be replayed: aten.mm")
    assert told(timed_case()).timing_reason is None


def waiting() -> Times:
    """Samples that say twice as fast as the baseline, and calls that are no shorter by our clock."""
    mine = times(50.0)
    mine.wall_us = [400.0] * 2 * BLOCKS
    return mine


def test_an_entry_that_is_only_said_to_be_faster_by_its_own_process_is_not_believed() -> None:
    found = reported(timed_case(candidate=waiting(), **IN_CANDIDATE))
    (case,) = found.cases
    assert case.comparison == "ambiguous"
    assert found.score is not None
    assert found.score.faster_cases == []
    (note,) = case.notes
    assert note.startswith("not to be believed: by our own clock a call takes +0 us")


def test_doubts_take_nothing_from_a_kernel_that_is_slower() -> None:
    mine = times(150.0)
    mine.wall_us = [900.0] * 2 * BLOCKS
    case = told(timed_case(candidate=mine, **IN_CANDIDATE))
    assert case.comparison == "slower"
    assert case.notes[0].startswith("not to be believed")


def test_whole_calls_are_not_compared_where_our_clock_sees_them_otherwise() -> None:
    timed = timed_case()
    assert timed.baseline is not None
    timed.candidate.call_us = [[230.0] * 6] * 6
    timed.candidate.call_wall_us = timed.baseline.call_wall_us = [400.0] * 12
    case = told(timed)
    assert (case.call_ratio, case.call_ratio_low, case.call_ratio_high) == (None, None, None)
    assert case.ratio is not None
    (note,) = case.notes
    assert note.endswith("call_ratio is left out")


def test_a_replayer_needs_no_witness() -> None:
    case = told(timed_case(candidate=waiting()))
    assert (case.comparison, case.notes) == ("faster", [])


def test_what_speaks_against_the_entrys_own_calls_is_told_beside_the_replayed_ones() -> None:
    assert told(timed_case(doubt="candidate: an ordinary call takes 10 us")).notes == [
        "candidate: an ordinary call takes 10 us"
    ]


def test_inputs_that_held_the_same_in_each_call_are_told() -> None:
    first = FirstCall(first_call_s=1.0, second_call_us=1.0, results_bytes=1, varies=True, constant=2)
    (note,) = told(timed_case(first=first)).notes
    assert note.startswith("2 input tensors (integers, booleans) held the same contents")


def test_throttling_and_unequal_clocks_are_told_with_the_ratio_in_cycles() -> None:
    hot = COOL.model_copy(update={"throttle_reasons": ["power cap"], "temperature_c": 80})
    case = told(timed_case(candidate=times(100.0, clock_hz=1.62e9), conditions=[COOL, hot]))
    assert case.conditions is not None
    assert case.conditions.throttle_reasons == ["power cap"]
    assert case.conditions.side_clocks_hz == {"candidate": 1.62e9, "baseline": 1.98e9}
    throttled, unequal = case.notes
    assert throttled == "throttled: the GPU held its SM clock down: power cap (at 1 of 2 looks)"
    assert unequal.startswith("candidate at 1,620 MHz, baseline at 1,980")
    assert "ratio is 1.22" in unequal


# Beside the candidate


def test_the_reference_is_compared_in_a_line_of_its_own() -> None:
    found = reported(timed_case(against=[against("eager", 150.0), against("torch.compile", 100.0)]))
    eager, compiled = found.cases[0].against
    assert (eager.comparison, compiled.comparison) == ("faster", "same")
    assert eager.ratio == pytest.approx(1.5, rel=0.01)
    assert (eager.first_call_s, eager.reason) == (2.0, None)
    assert f"  eager: {eager.device_us:.2f} us on the device: the candidate is faster, {eager.ratio:.3f}x [" in (
        found.summary
    )


def test_a_reference_that_was_not_timed_is_told_with_its_reason() -> None:
    found = reported(timed_case(against=[Against("torch.compile", reason="there is no C compiler")]))
    assert found.cases[0].against[0].reason == "there is no C compiler"
    assert "  torch.compile: not timed: there is no C compiler" in found.summary


def test_what_the_autotuner_chose_is_told() -> None:
    tuned = [Tuned(kernel="softmax_kernel", configuration="BLOCK: 1024, num_warps: 8", configurations=4, tuning_s=0.3)]
    first = FirstCall(first_call_s=3.5, second_call_us=100.0, results_bytes=1, varies=True)
    found = reported(timed_case(tuned=tuned, first=first))
    assert "  tuned softmax_kernel: BLOCK: 1024, num_warps: 8" in found.summary
    assert found.cases[0].tuned == tuned
    assert found.cases[0].first_call_s == 3.5


# The whole


def test_the_text_of_four_cases_with_notes_is_short() -> None:
    tuned = [Tuned(kernel="softmax_kernel", configuration="BLOCK_M: 128, BLOCK_N: 64, num_warps: 8", configurations=4)]
    found = reported(
        timed_case("train", 90.0, tuned=tuned, against=[against("eager", 150.0), against("torch.compile", 120.0)]),
        timed_case("decode", times(3.0, call_us=60.0), 3.0, graph=GraphFloor(graph_call_us=9.0), tuned=tuned),
        timed_case("long", 104.0, repeated=2, varies=False, tuned=tuned),
        timed_case("ragged", times(100.0, noise=0.05), **IN_CANDIDATE),
        light=light_of(100.0, 240),
    )
    whole = text(found)
    assert len(whole) < SUMMARY_TOKENS * CHARACTERS_A_TOKEN
    for name in ("train", "decode", "long", "ragged"):
        assert f"- {name}: " in whole
    assert "benchmark-samples.json" in whole


def test_the_artifact_holds_every_sample_of_every_side_in_order() -> None:
    timed = timed_case(against=[against("eager", 150.0), Against("torch.compile", reason="no")])
    alone = timed_case("alone", baseline=None, **IN_CANDIDATE)
    kept = json.loads(samples([timed, alone]))
    assert list(kept) == ["train", "alone"]
    assert kept["train"]["timing"] == "replayed"
    assert kept["alone"]["timing"] == "in_candidate"
    assert list(kept["train"]["sides"]) == ["candidate", "baseline", "eager"]
    assert list(kept["alone"]["sides"]) == ["candidate"]
    side = kept["train"]["sides"]["candidate"]
    assert side["device_us"] == [[sample.device_us for sample in block] for block in timed.candidate.blocks]
    assert side["event_us"] == [[sample.event_us for sample in block] for block in timed.candidate.blocks]
    assert side["call_us"] == timed.candidate.call_us
    assert side["sm_clock_hz"] == timed.candidate.sm_clock_hz
    (group,) = kept["train"]["pairs"]
    assert group[0]["baseline_us"] == list(timed.groups[0][0].baseline_us)
    assert (len(group), kept["alone"]["pairs"]) == (BLOCKS, [])
    assert kept["train"]["conditions"] == [COOL.model_dump()] * 3
