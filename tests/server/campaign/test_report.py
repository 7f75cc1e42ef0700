"""What a campaign's report says, of records whose numbers can be checked by hand."""

import random
import re
from typing import Any, get_args

import pytest

from tests.server.campaign.made_up_records import begun, gain, gained, made, on
from tritonforge.server.campaign.model import CaseTime, KernelRecord, Outcome
from tritonforge.server.campaign.report import report, summary
from tritonforge.server.campaign.report_summary import Summary

NINE = [
    gained("double", 2.0, lines=10, attempts=3, attempt_kinds={"ok": 2, "wrong": 1}, seconds={"total": 60}),
    gained("half_more", 1.5, lines=20, attempts=5, attempt_kinds={"ok": 4, "compile_error": 1}, seconds={"total": 20}),
    gained("barely", 1.03, lines=30, attempts=1, attempt_kinds={"ok": 1}),
    made("stays", "no_gain", lines=40, attempts=8, attempt_kinds={"ok": 6}, why="nothing was faster"),
    made("stuck", "failed", lines=50, cases=1, failure_kind="agent_died", why="the agent ended",
         baseline=[CaseTime(case="a", device_us=1.0)]),
    made("broken", "baseline_failed", lines=60, failure_kind="compile_error", why="tl.foo is not there"),
    made("odd", "not_loaded", lines=70, failure_kind="no_entry", why="it launches nothing"),
    made("strange", "not_loaded", lines=80, failure_kind="no_entry", why="no test section"),
    made("other", "not_loaded", lines=80, failure_kind="unsupported", why="torch.library"),
]  # fmt: skip
"""Five of nine are runnable, two of them successes; the geometric mean is that of 2, 1.5, 1.03 and 1."""


def section_of(text: str, title: str) -> str:
    return text.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def rows_of(text: str, title: str) -> list[list[str]]:
    """The cells of a section's last table, without its head."""
    lines = [line for line in section_of(text, title).splitlines() if line.startswith("|")]
    heads = [place for place, line in enumerate(lines) if set(line) <= set("|- ")]
    return [cells(line) for line in lines[heads[-1] + 1 :]]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def test_counts_rates_and_means_are_those_of_the_records() -> None:
    found = summary(NINE).all
    assert (found.artefacts, found.loaded, found.runnable, found.undecided) == (9, 6, 5, 0)
    assert (found.successes, found.certain) == (2, 2)
    assert found.success_of_runnable is not None
    assert (found.success_of_runnable.count, found.success_of_runnable.of) == (2, 5)
    assert found.success_of_runnable.pct == pytest.approx(40)
    assert found.success_of_all is not None
    assert found.success_of_all.pct == pytest.approx(100 * 2 / 9)
    assert found.mean_speedup == pytest.approx(1.75)
    assert found.median_speedup == pytest.approx(1.75)
    assert found.geometric_mean is not None
    assert found.geometric_mean.n == 4
    assert found.geometric_mean.value == pytest.approx((2 * 1.5 * 1.03) ** 0.25)
    assert found.speedup_unknown == 1
    assert (found.tried, found.rounds_mean, found.rounds_median) == (4, 4.25, 4)


def test_the_headline_and_the_words_say_the_rate_with_its_interval() -> None:
    text = report(NINE, begun(*NINE))
    assert "**2 of 5 runnable kernels became at least 1.05 times as fast: 40.0 (11.8 to 76.9) %**; 2 of all 9" in text
    assert summary(NINE).in_words() == (
        "9 artefacts, 6 loaded, 5 runnable; 2 became at least 1.05 times as fast: 40.0 % of the runnable ones (11.8 to "
        "76.9), 1.750 times in the mean; geometric mean of all 1.326."
    )


def test_what_was_measured_at_the_end_counts_and_not_what_was_accepted() -> None:
    faded = made("faded", "gained", gain=gain(1.2), verified=gain(1.01, 0.99, 1.03))
    alone = made("alone", "gained", gain=gain(1.2))
    found = summary([faded, alone])
    assert found.all.successes == 1
    assert found.verified == 1
    rows = {row[0]: row for row in rows_of(report([faded, alone], begun(faded, alone)), "Every kernel")}
    assert rows["`faded`"][3:6] == ["1.010", "0.990 to 1.030", "1.200"]
    assert rows["`faded`"][-1] == "at the end ambiguous"
    assert rows["`alone`"][-1] == "not measured once more at the end"


def test_a_success_is_certain_where_its_whole_interval_is() -> None:
    edge = [
        made("at", "gained", gain=gain(1.05, 1.05, 1.06)),
        made("over", "gained", gain=gain(1.06, 1.04, 1.08)),
        made("below", "gained", gain=gain(1.0499, 1.04, 1.06)),
    ]
    found = summary(edge).all
    assert (found.successes, found.certain) == (2, 1)


def test_kernels_are_grouped_by_length_as_all_are_counted() -> None:
    found = summary(NINE)
    assert [(group.lines_low, group.lines_high) for group in found.by_length] == [
        (10, 30),
        (40, 50),
        (60, 70),
        (80, 80),
    ]
    assert [group.numbers.artefacts for group in found.by_length] == [3, 2, 2, 2]
    first, second, third, _ = (group.numbers for group in found.by_length)
    assert (first.runnable, first.successes, first.rounds_mean) == (3, 2, 3)
    assert second.success_of_runnable is not None
    assert second.success_of_runnable.pct == 0
    assert third.success_of_runnable is None
    rows = rows_of(report(NINE, begun(*NINE)), "By length")
    assert [row[0] for row in rows] == ["0 to 25 %", "25 to 50 %", "50 to 75 %", "75 to 100 %", "all"]
    # Nothing ran among the longest: blank, but none of all of them succeeded.
    assert rows[3][6] == ""
    assert rows[3][7].startswith("0.0 (0.0 to ")


def test_all_speed_ups_are_in_the_distribution() -> None:
    counts = {each.low: (each.kernels, each.unchanged) for each in summary(NINE).speedups if each.kernels}
    assert counts == {1.0: (1, 1), 1.02: (1, 0), 1.5: (1, 0), 2.0: (1, 0)}
    rows = rows_of(report(NINE, begun(*NINE)), "Speed-ups")
    assert rows[0] == ["below 1", "0", "", "0.0"]
    assert rows[1] == ["1 to below 1.02, near the baseline", "1", "1", "25.0"]
    assert rows[-1][0] == "5 and more"


def test_times_are_told_by_stage_with_the_total_last() -> None:
    times = [
        made("a", "no_gain", seconds={"total": 10, "baseline": 4, "adapt": 1, "odd": 2}),
        made("b", "no_gain", seconds={"total": 30, "baseline": 8}),
    ]
    found = summary(times).stages
    assert [each.stage for each in found] == ["adapt", "baseline", "odd", "total"]
    assert (found[1].kernels, found[1].median_s, found[1].most_s, found[1].total_s) == (2, 6, 8, 12)
    assert rows_of(report(times, begun(*times)), "Time")[-1] == ["`total`", "2", "20.0", "30.0", "40.0"]


def test_candidates_are_counted_over_all_kernels_and_those_of_no_kind_too() -> None:
    assert summary(NINE).candidates == {"ok": 13, "not told": 2, "compile_error": 1, "wrong": 1}


def test_failures_are_counted_by_kind_and_each_is_named_with_its_reason() -> None:
    found = [(each.outcome, each.kind, each.count) for each in summary(NINE).failures]
    assert found == [
        ("not_loaded", "no_entry", 2),
        ("not_loaded", "unsupported", 1),
        ("baseline_failed", "compile_error", 1),
        ("failed", "agent_died", 1),
    ]
    failed = section_of(report(NINE, begun(*NINE)), "Failures")
    assert "- `odd`, `not_loaded`, `no_entry`: it launches nothing" in failed
    assert "- `stuck`, `failed`, `agent_died`: the agent ended" in failed
    assert "stays" not in failed


def test_what_could_not_be_timed_is_no_failure_and_gives_no_rate() -> None:
    untimed = [made("a", "untimed", why="this machine has no GPU"), made("b", "not_loaded", failure_kind="no_entry")]
    found = summary(untimed)
    assert found.all.success_of_runnable is None
    assert found.all.success_of_all is None
    assert found.all.geometric_mean is None
    assert [each.outcome for each in found.failures] == ["not_loaded"]
    text = report(untimed, begun(*untimed))
    assert "No success rate: no baseline was timed. 0 of 2 baselines were timed." in text
    assert "Not timed, which is no failure: 1.\n\n- `a`: this machine has no GPU" in text
    assert "- `b`, `not_loaded`, `no_entry`: no reason was kept" in text


def test_baselines_alone_give_no_rate() -> None:
    alone = [made("a", "measured"), made("b", "measured")]
    text = report(alone, begun(*alone, agent="none"))
    assert summary(alone).all.success_of_all is None
    assert "No success rate: no agent was at work. 2 of 2 baselines were timed." in text
    assert "`none`; 1800 s for a kernel\n" in text


def test_failures_alone_give_a_rate_of_nought() -> None:
    found = summary([made("a", "not_loaded"), made("b", "baseline_failed")]).all
    assert found.success_of_runnable is None
    assert found.success_of_all is not None
    assert found.success_of_all.pct == 0


def test_an_artefact_with_which_the_campaign_failed_is_loaded_if_it_had_cases() -> None:
    assert summary([made("early", "failed"), made("late", "failed", cases=2)]).all.loaded == 1


def test_no_kernels_and_one_kernel_have_reports() -> None:
    none = report([], begun())
    assert none.startswith("# 0 kernels of kernels, and what became of them\n")
    assert "No success rate: there are no artefacts." in none
    one = gained("one", 1.5)
    text = report([one], begun(one))
    assert text.startswith("# 1 kernel of kernels")
    assert "of 1 kernel; fewer than 6 have no interval" in text
    assert "100.0 (20.7 to 100.0) %" in text


def test_a_campaign_that_is_not_through_says_so() -> None:
    assert "**Not finished: 3 of 12 artefacts are left" in report(NINE, begun(*NINE, left=3))
    assert "Not finished" not in report(NINE, begun(*NINE))


def test_the_head_says_what_the_results_depend_on_and_no_path() -> None:
    given = begun(*NINE, agent="claude", agent_words=("--model", "x"), subset=9, seed=4, ablations={"no-profile"})
    text = report(NINE, given)
    assert "- agent: `claude --model x`; 1800 s for a kernel, 8 rounds\n" in text
    assert "- without: no-profile\n" in text
    assert "- artefacts: 9, 9 chosen at random, seed 4\n" in text
    assert "/home/me" not in text


def test_every_kernel_is_in_the_table_the_fastest_first() -> None:
    rows = rows_of(report(NINE, begun(*NINE)), "Every kernel")
    assert [row[0] for row in rows][:4] == ["`double`", "`half_more`", "`barely`", "`stays`"]
    assert {row[0].strip("`") for row in rows} == {record.name for record in NINE}
    assert rows[0] == [
        "`double`", "10", "`gained`", "2.000", "1.980 to 2.020", "2.000", "10.00", "50", "3", "", "60", "", "",
    ]  # fmt: skip
    # What was not measured is blank, and the remark says why.
    assert rows[3][3:6] == ["1.000", "", ""]
    assert rows[3][-1] == "nothing was faster"
    stuck = next(row for row in rows if row[0] == "`stuck`")
    assert stuck[3:8] == ["", "", "", "1.00", ""]
    assert stuck[2] == "`failed: agent_died`"


def test_several_cases_show_the_least_and_the_most_and_knobs_their_values() -> None:
    cases = [CaseTime(case="a", device_us=4.0, speed_of_light_pct=80), CaseTime(case="b", device_us=1200.5)]
    tuned = gained("tuned", 1.2, baseline=cases, chosen={"BLOCK": 64, "num_warps": 4, "mode": "fast", "flag": True})
    (row,) = rows_of(report([tuned], begun(tuned)), "Every kernel")
    assert row[6:8] == ["4.00 to 1,200.50 (2 cases)", "80"]
    assert row[9] == "`BLOCK=64, num_warps=4, mode=fast, flag=true`"


def test_winners_on_other_shapes_are_counted_by_what_became_of_them() -> None:
    keeps = gained("keeps", 2.0, unseen=[on("b", 2.0), on("c", 1.125)])
    slows = gained("slows", 2.0, unseen=[on("b", 4.0), on("c", 0.5), on("d", 1.0)])
    errs = gained("errs", 2.0, unseen=[on("b", 3.0), on("c", kind="wrong"), on("d", kind="timeout"), on("e")])
    absent = gained("absent", 2.0, unseen_absent="there is one shape only")
    quiet = made("quiet", "no_gain")
    found = summary([keeps, slows, errs, absent, quiet])
    first, second, third = found.winners
    assert (first.right, first.faster, first.worst_case, first.worst_ratio) == (2, 2, "c", 1.125)
    assert first.geometric_mean == pytest.approx(1.5)
    assert (second.faster, second.slower, second.ambiguous) == (1, 1, 1)
    assert (third.shapes, third.right, third.wrong, third.untimed, third.failed) == (4, 2, 1, 1, {"timeout": 1})
    total = found.unseen
    assert (total.winners, total.tried, total.shapes, total.right) == (4, 3, 9, 7)
    # "errs" is fast where it is right, and keeps nothing.
    assert (total.keep, total.regress, total.wrong, total.fail) == (2, 1, 1, 1)
    assert total.absent == {"there is one shape only": 1}
    assert total.geometric_mean is not None
    assert total.geometric_mean.value == pytest.approx((1.5 * 2 ** (1 / 3) * 3) ** (1 / 3))
    text = report([keeps, slows, errs, absent, quiet], begun())
    told = section_of(text, "Shapes that were not optimized for")
    assert "**2 of 3 keep at least 1.05**" in told
    assert "- 1 not tried: there is one shape only" in told
    assert [row[0] for row in rows_of(text, "Shapes that were not optimized for")] == ["`slows`", "`keeps`", "`errs`"]


def test_without_winners_on_other_shapes_the_report_says_why() -> None:
    one = gained("one", 2.0, unseen_absent="not asked for")
    told = section_of(report([one], begun(one)), "Shapes that were not optimized for")
    assert "None of 1 winners was tried on others.\n\n- 1 not tried: not asked for" in told
    assert "There is no winner." in report(NINE[3:], begun())
    untimed = summary([gained("u", 2.0, unseen=[on("b")])])
    assert untimed.unseen.geometric_mean is None
    assert untimed.winners[0].worst_case is None


HOSTILE = "a|b\n\n# owned\x1b[2J\u202e `x` <script>\\| *b* [l](u)"


def test_names_and_reasons_of_kernels_stay_text() -> None:
    records = [
        gained(HOSTILE, 2.0, chosen={HOSTILE: HOSTILE}, unseen=[on(HOSTILE, 1.5), on("x", kind=HOSTILE)]),
        made(
            "stays", "no_gain", why=HOSTILE, attempts=1, attempt_kinds={HOSTILE: 1}, seconds={HOSTILE: 1.0}, gpu=HOSTILE
        ),
        made(HOSTILE + "2", "baseline_failed", failure_kind=HOSTILE, why=HOSTILE),
    ]
    text = report(records, begun(*records, agent=HOSTILE))
    assert text.replace("\n", "").isprintable()
    assert "\n# owned" not in text
    assert not re.search(r"(?<!\\)<script", text)
    widths: dict[str, set[int]] = {}
    for title in re.findall(r"^## (.+)$", text, re.MULTILINE):
        for block in re.findall(r"(?:^\|.*\n)+", section_of(text, title) + "\n", re.MULTILINE):
            widths.setdefault(title, set()).add(len({len(cells(line)) for line in block.splitlines()}))
    assert widths
    assert set().union(*widths.values()) == {1}, "all lines of a table have as many cells"


def test_the_summary_comes_back_from_its_json() -> None:
    found = summary(NINE)
    assert Summary.model_validate_json(found.model_dump_json()) == found


def made_at_random(draws: random.Random, name: str) -> KernelRecord:
    outcome: Any = draws.choice(get_args(Outcome))
    more: dict[str, Any] = {
        "lines": draws.randint(1, 40),
        "cases": draws.randint(0, 2),
        "attempts": draws.randint(0, 3),
    }
    if outcome == "gained":
        more |= {"gain": gain(draws.uniform(0.5, 9)) if draws.random() < 0.9 else None}
        more |= {"unseen": [on("s", draws.uniform(0.5, 2)) for _ in range(draws.randint(0, 2))]}
    return made(name, outcome, **more)


def test_whatever_the_records_are_the_counts_add_up() -> None:
    draws = random.Random(4)
    for size in [0, 1, 2, 3, 5, 8, 13, 21, 34]:
        records = [made_at_random(draws, f"k{place}") for place in range(size)]
        found = summary(records)
        assert sum(found.outcomes.values()) == size
        assert sum(group.numbers.artefacts for group in found.by_length) == size
        assert sum(group.numbers.successes for group in found.by_length) == found.all.successes
        assert sum(each.kernels for each in found.speedups) == sum(each.speedup is not None for each in records)
        assert sum(each.kernels for each in found.speedups if (each.low or 0) >= 1.05) == found.all.successes
        assert found.all.certain <= found.all.successes <= found.all.runnable <= found.all.loaded <= size
        if (mean := found.all.geometric_mean) is not None and mean.low is not None and mean.high is not None:
            assert mean.low <= mean.value <= mean.high
        assert len(rows_of(report(records, begun(*records)), "Every kernel")) == size
        draws.shuffle(records)
        again = summary(records).all
        assert again.successes == found.all.successes
        assert again.success_of_all == found.all.success_of_all


def test_gains_on_the_device_are_counted_apart_with_why_they_were_refused() -> None:
    records = [
        gained("a", 1.5, device_gain=gain(1.5)),
        made("b", "no_gain", device_gain=gain(2.5), device_gain_refused="case small is slower"),
        made("c", "no_gain", device_gain=gain(1.01)),
        made("d", "no_gain"),
    ]
    found = summary(records)
    assert found.all.success_of_runnable is not None
    assert found.all.success_of_runnable.count == 1
    assert found.all.device_successes is not None
    assert (found.all.device_successes.count, found.all.device_successes.of) == (2, 4)
    text = report(records, begun(*records))
    (row,) = [line for line in text.splitlines() if line.startswith("| 1.05 times as fast on the device alone")]
    assert "50.0" in row
    rows = {row[0]: row[-2:] for row in rows_of(text, "Every kernel")}
    assert rows == {
        "`a`": ["1.500, accepted", ""],
        "`b`": ["2.500, refused", "refused: case small is slower"],
        "`c`": ["1.010, accepted", "no reason was kept"],
        "`d`": ["", "no reason was kept"],
    }


def test_a_best_one_on_the_device_that_was_refused_is_told_beside_what_became_of_the_kernel() -> None:
    refused: dict[str, Any] = {"device_gain": gain(3.0), "device_gain_refused": "wrong in hidden case x|y"}
    records = [
        gained("won", 1.5, **refused),
        made("faded", "gained", gain=gain(1.2), verified=gain(1.01, 0.99, 1.03), **refused),
        made("died", "failed", failure_kind="process_died", why="it ended", **refused),
        made("slower", "no_gain", why="nothing was faster", device_gain=gain(0.5), device_gain_refused="it is slower"),
    ]
    rows = {row[0]: row[-2:] for row in rows_of(report(records, begun(*records)), "Every kernel")}
    why = "refused: wrong in hidden case x\\|y"
    assert rows == {
        "`won`": ["3.000, refused", why],
        "`faded`": ["3.000, refused", f"at the end ambiguous; {why}"],
        "`died`": ["3.000, refused", f"see failures; {why}"],
        "`slower`": ["0.500, refused", "refused: it is slower"],
    }
