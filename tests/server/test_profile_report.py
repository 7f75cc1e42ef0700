"""What profile_ncu shows of what was read: few words, and none that was not measured."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.profiling.ncu.recorded import recorded
from tritonforge.profiling.ncu.causes import causes
from tritonforge.profiling.ncu.hotspots import Hotspot, HotspotReport
from tritonforge.profiling.ncu.report import summarize
from tritonforge.sandbox.outcome import Kind
from tritonforge.sandbox.profile_facts import ReportedMetric, ReportedRule
from tritonforge.server.memo import Memo
from tritonforge.server.tools.profile_case import CaseProfile, Profiled
from tritonforge.server.tools.profile_report import (
    ProfileChange,
    ProfiledLaunch,
    ProfileResult,
    case_of,
    launch_of,
    next_step,
    summary,
)

TOKENS_LIMIT = 1500
CHARACTERS_PER_TOKEN = 3.5
"""At least, of English and of JSON."""
RULE = ReportedRule(
    section="S", name="CPIStall", type="OPT", title="t", message="word " * 200, speedup_type="local", speedup_pct=23.456
)


def spot(line: int) -> Hotspot:
    fields: dict[str, Any] = {
        "line": line, "library": None, "source": "x = tl.load(x_ptr + offsets, mask=mask, other=0.0)" * 2,
        "samples": 900, "pct": 45.678, "executed_pct": 10.0, "stall": "long_scoreboard", "stall_pct": 71.234,
        "stall_meaning": "waits",
        "waits_for_line": 12, "waits_for": "LDG.E.128", "instruction": "FADD R1, R2, R3", "instruction_pct": 20.0,
        "operations": ["tt.load"], "l2_excess": None, "shared_excess": None, "hot": True,
    }  # fmt: skip
    return Hotspot.model_validate(fields)


def lines(count: int) -> HotspotReport:
    return HotspotReport(
        hotspots=[spot(line) for line in range(count)], samples=2000, doubt=None, lines_from="compiler",
        lines_reason=None, rest_pct=3.0, absent={},
    )  # fmt: skip


def profiled(name: str = "softmax_sections", **changed: Any) -> Profiled:
    return replace(Profiled(summarize(recorded(name)), lines(5), [RULE] * 6, {}), **changed)


def case(*launches: Profiled, **changed: Any) -> CaseProfile:
    return replace(CaseProfile("train", list(launches), 0, b"report", compulsory_bytes=100e6), **changed)


def shown(
    launch: Profiled, of: CaseProfile | None = None, *, longest: bool = True, detail: bool = False
) -> ProfiledLaunch:
    return launch_of(launch, of or case(launch), causes(launch.profile), longest=longest, detail=detail)


def result(*launches: ProfiledLaunch, **changed: Any) -> ProfileResult:
    fields: dict[str, Any] = {
        "kind": Kind.OK, "summary": "", "gpu": "NVIDIA H200", "level": "standard", "by": "ncu 2025.3.1",
        "launches": list(launches), "artifacts": ["tritonforge://artifacts/0123456789abcdef/train.ncu-rep"] * 2,
    }  # fmt: skip
    return ProfileResult(**(fields | changed))


def test_a_result_fits_into_a_small_context_as_structure_and_as_text():
    launch = profiled()
    one = result(shown(launch), cases=[case_of(case(launch))])
    text = summary(one, {0: "line 14: " + "x" * 200})
    assert len(json.dumps(one.model_dump(mode="json"))) / CHARACTERS_PER_TOKEN < TOKENS_LIMIT
    assert len(text) / CHARACTERS_PER_TOKEN < TOKENS_LIMIT


def test_three_launches_cost_little_more_than_one():
    launches = [shown(profiled(), longest=number == 0) for number in range(3)]
    sizes = [len(one.model_dump_json()) for one in launches]
    assert sizes[1] == sizes[2] < 0.6 * sizes[0]
    assert [len(one.hotspots) for one in launches] == [5, 1, 1]


def test_numbers_keep_the_digits_that_say_something():
    launch = shown(profiled())
    profile = summarize(recorded("softmax_sections"))
    assert profile.duration_us is not None
    assert launch.duration_us == float(f"{profile.duration_us:.4g}")
    assert launch.rules[0].speedup_pct == 23.5
    assert len(launch.rules[0].text) < 170


def test_what_was_not_counted_stays_unknown():
    launch = shown(profiled("softmax_one_pass", lines=None, rules=[]))
    assert (launch.memory_pct, launch.flops, launch.hotspots, launch.lines_from) == (None, None, [], None)
    assert "memory unknown" in summary(result(launch), {})


def test_detail_brings_everything_that_was_read():
    launch = shown(profiled(), detail=True)
    assert launch.profile is not None
    assert launch.profile["occupancy_limits"]
    assert shown(profiled()).profile is None


def test_traffic_is_compared_with_what_the_task_needs_where_all_launches_were_counted():
    launch = profiled()
    moved = launch.profile.dram_bytes
    assert moved is not None
    both = case_of(case(launch, launch))
    assert both.dram_bytes == 2 * moved
    assert both.traffic_ratio == pytest.approx(2 * moved / 100e6, rel=1e-3)
    assert case_of(case(launch, left_out=1)).traffic_ratio is None
    assert case_of(case(launch, compulsory_bytes=None)).traffic_ratio is None
    cut = case_of(case(launch, left_out=3))
    assert (cut.launches, cut.launches_left_out) == (1, 3)
    assert (cut.duration_us, cut.dram_bytes) == (None, None)
    assert "the first 1 launches; there are more" in summary(result(shown(launch), cases=[cut]), {})


def test_shares_are_of_the_time_of_all_launches():
    launch = profiled()
    assert shown(launch, case(launch, launch)).share_pct == 50
    assert shown(launch, case(launch, left_out=1)).share_pct is None
    unknown = replace(launch, profile=launch.profile.model_copy(update={"duration_us": None}))
    assert shown(launch, case(launch, unknown)).share_pct is None


def test_the_text_names_causes_changes_metrics_and_notes():
    asked = {"smsp__inst_executed.sum": ReportedMetric(value=12.5, unit="inst")}
    change = ProfileChange(
        field="dram_bytes", before=200.0, after=100.0, relative=-0.5, good=True, kernel="k", case="train"
    )
    launch = shown(profiled(metrics=asked))
    told = result(launch, changes=[change], notes=["others used this GPU"], launches_omitted=2, cached=True)
    text = summary(told, {})
    assert launch.causes
    for words in (
        launch.causes[0].id, "dram_bytes: 200 -> 100 (-50 %), better", "smsp__inst_executed.sum = 12.5 inst",
        "Note: others used this GPU", "2 more launch(es) not shown", "from memory",
    ):  # fmt: skip
        assert words in text
    assert next_step(told).startswith(launch.causes[0].suggestion)
    assert "full" in next_step(result())


def test_the_memo_keeps_the_last_results_by_what_they_are_of():
    memo = Memo[int]()
    keys = [memo.key("kernel", number) for number in range(memo.LIMIT + 1)]
    assert len(set(keys)) == memo.LIMIT + 1
    for number, key in enumerate(keys):
        memo.put(key, number)
    assert memo.get(keys[0]) is None
    assert memo.get(keys[1]) == 1
    assert memo.get(memo.key("kernel", memo.LIMIT)) == memo.LIMIT
