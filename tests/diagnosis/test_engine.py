"""Roots before symptoms, by expected gain, and nothing where nothing is to be won."""

from dataclasses import replace

import pytest

from tritonforge.profiling.diagnosis.engine import diagnose
from tritonforge.profiling.diagnosis.facts import Facts
from tritonforge.profiling.diagnosis.floor import Floor
from tritonforge.profiling.diagnosis.model import Diagnosis, Level, Prediction
from tritonforge.profiling.diagnosis.rule import Hit, Rule
from tritonforge.profiling.diagnosis.rules import RULES
from tritonforge.profiling.ncu.cause import Cause

from .made_up import hotspot, profile, recorded, rule, written

FACTS = recorded("matmul_candidate")
ROOF = Cause(id="dram_bound", text="Device memory is busy 92 %", suggestion="", evidence={"dram_pct": 92.0})


def ids(told: Diagnosis) -> list[str]:
    return [finding.id for finding in told.findings]


def test_a_symptom_is_folded_into_its_root() -> None:
    root, symptom = rule("V1", 3, weight=10, explains=frozenset({"P8"})), rule("P8", 9, weight=90)
    (finding,) = diagnose(FACTS, [symptom, root]).findings
    assert finding.id == "V1"
    assert [(folded.id, folded.line) for folded in finding.explains] == [("P8", 9)]


def test_a_symptom_of_one_line_is_folded_on_that_line_only() -> None:
    root = rule("V1", 3, explains_here=frozenset({"V2"}))
    assert ids(diagnose(FACTS, [root, rule("V2", 3)])) == ["V1"]
    assert sorted(ids(diagnose(FACTS, [root, rule("V2", 4)]))) == ["V1", "V2"]


def test_a_symptom_of_a_symptom_goes_to_the_root() -> None:
    chain = [
        rule("R1", 5),
        rule("P8", 4, explains=frozenset({"R1"})),
        rule("V1", 3, explains=frozenset({"P8"})),
    ]
    (finding,) = diagnose(FACTS, chain).findings
    assert finding.id == "V1"
    assert {folded.id for folded in finding.explains} == {"R1", "P8"}


def test_two_that_explain_each_other_are_both_told_of_once() -> None:
    told = diagnose(FACTS, [rule("A1", 1, explains=frozenset({"A2"})), rule("A2", 2, explains=frozenset({"A1"}))])
    assert len(told.findings) >= 1
    named = {finding.id for finding in told.findings} | {f.id for finding in told.findings for f in finding.explains}
    assert named == {"A1", "A2"}


def test_weight_ranks_what_nobody_measured() -> None:
    assert ids(diagnose(FACTS, [rule("I1", 1, weight=20), rule("T1", 2, weight=90)])) == ["T1", "I1"]


def test_a_line_without_samples_goes_behind_one_with() -> None:
    facts = replace(FACTS, profile=profile(), hotspots=(hotspot(1, 80.0),))
    told = diagnose(facts, [rule("I1", 1, weight=20), rule("T1", 2, weight=90)])
    assert ids(told) == ["I1", "T1"]
    assert any("80 % of the warps' samples" in each.text for each in told.findings[0].evidence)
    assert told.findings[0].level is Level.CODE


def test_a_loop_is_as_hot_as_its_body_and_the_host_is_never_cold() -> None:
    text = (
        "import triton\n@triton.jit\ndef kernel(x):\n    for i in range(8):\n        x += i\n    x += 2\n"
        "def entry(x):\n    kernel[(1,)](x)\n"
    )
    facts = replace(written(text), launch=FACTS.launch, lines=FACTS.lines, hotspots=(hotspot(5, 90.0),))
    rules = [rule("I1", 6, weight=90), rule("T1", 4, weight=50), rule("H1", 8, weight=40)]
    assert ids(diagnose(facts, rules)) == ["T1", "H1", "I1"]


def test_what_only_the_source_suggests_is_a_hypothesis() -> None:
    told = diagnose(FACTS, [rule("H1", 1, level=Level.SOURCE, weight=99), rule("T1", 2)])
    assert ids(told) == ["T1"]
    assert [finding.id for finding in told.hypotheses] == ["H1"]


def test_a_rule_without_its_facts_is_not_applied_and_that_is_said() -> None:
    told = diagnose(FACTS, [rule("T8", 1, needs=("remarks",)), rule("I9", 1, needs=("source",))])
    assert told.findings == []
    assert told.not_looked_for == ["I9", "T8"]
    for need, remedy in (("remarks", "depth='compiler' asks them."), ("source", "kernel file.")):
        (line,) = [line for line in told.unknown if need in line]
        assert "1 of 2 known causes were not looked for" in line
        assert line.endswith(remedy)
        assert "T8" not in line


def test_at_the_roof_only_fewer_bytes_are_offered() -> None:
    facts = replace(FACTS, profile=profile(), causes=(ROOF,))
    rules: list[Rule] = [rule("T1", 1, weight=90), rule("V9", 2, relieves="bytes")]
    assert ids(diagnose(facts, rules)) == ["V9"]
    done = diagnose(facts, rules[:1]).done
    assert done is not None
    assert "Device memory is busy 92 %" in done
    busiest = ROOF.model_copy(update={"evidence": {"dram_pct": 70.0, "achieved_share_pct": 80.0}})
    assert ids(diagnose(replace(facts, causes=(busiest,)), rules)) == ["T1", "V9"]


def test_at_the_floor_of_its_work_nothing_is_left_to_win() -> None:
    rules = [rule("L1", 1, weight=90)]
    near = diagnose(replace(FACTS, profile=profile(), floor=Floor(91.0, 91.0, "100 MB", "memory")), rules)
    assert (near.findings, near.hypotheses) == ([], [])
    assert near.done is not None
    assert "Nothing to win: at 91 % of what this device can do" in near.done
    (finding,) = diagnose(
        replace(FACTS, profile=profile(), floor=Floor(60.0, 60.0, "100 MB", "memory")), rules
    ).findings
    assert (finding.gain.at_most_pct, "60.0 us" in finding.gain.why) == (40.0, True)


def test_what_saves_instructions_waits_for_a_profile() -> None:
    rules = [rule("I1", 1, if_busy=True)]
    assert [finding.id for finding in diagnose(FACTS, rules).hypotheses] == ["I1"]
    busy = diagnose(replace(FACTS, profile=profile(issue_slot_pct=60.0)), rules)
    assert (ids(busy), busy.hypotheses) == (["I1"], [])
    idle = diagnose(replace(FACTS, profile=profile(issue_slot_pct=59.0)), rules)
    assert (ids(idle), idle.hypotheses) == ([], [])


def test_what_a_profile_has_yet_to_show_is_a_hypothesis() -> None:
    def detect(facts: Facts) -> list[Hit]:
        return [replace(hit, unsure=True) for hit in rule("R7", 1).detect(facts)]

    told = diagnose(FACTS, [replace(rule("R7", weight=90), detect=detect), rule("I1", 2, weight=20)])
    assert (ids(told), [finding.id for finding in told.hypotheses]) == (["I1"], ["R7"])


def test_a_demoted_rule_is_told_last_without_a_gain_and_with_its_figures() -> None:
    facts = replace(FACTS, profile=profile(), floor=Floor(60.0, 60.0, "100 MB", "memory"))
    demoted = rule("V1", 1, weight=99, demoted="it took twice as long", explains=frozenset({"V2"}))
    told = diagnose(facts, [demoted, rule("H1", 3, level=Level.SOURCE), rule("V2", 2)])
    assert (ids(told), [finding.id for finding in told.hypotheses]) == (["V2"], ["H1", "V1"])
    gain = told.hypotheses[1].gain
    assert (gain.expected_pct, gain.at_most_pct, gain.why) == (None, None, "for information: it took twice as long")
    # It takes no share of what others are expected to win.
    assert told.findings[0].gain.expected_pct == 33.3


def test_what_only_might_win_something_stands_behind_what_is_expected_to() -> None:
    facts = replace(FACTS, profile=profile(), floor=Floor(63.0, 63.0, "100 MB", "memory"))
    rules = [rule("M1", 1, weight=99), rule("V1", 2, weight=10), rule("H8", 3, weight=20, relieves="call")]
    assert ids(diagnose(facts, rules)) == ["H8", "V1", "M1"]
    near = replace(facts, floor=Floor(84.0, 84.0, "100 MB", "memory"))
    assert ids(diagnose(near, [rule("M1", 1, weight=99), rule("V1", 2), rule("V2", 3)])) == ["M1", "V1", "V2"]


def test_a_bound_limits_the_rank() -> None:
    facts = recorded("matmul_candidate", grid=(131, 1, 1))
    told = diagnose(facts, [*(each for each in RULES if each.id == "G1"), rule("I1", 1, weight=20)])
    assert ids(told) == ["I1", "G1"]


def test_a_gain_is_a_bound_or_unknown_and_never_guessed() -> None:
    finding = diagnose(FACTS, [rule("T1", 1)]).findings[0]
    assert finding.gain.at_most_pct is None
    assert "not profiled" in finding.gain.why


def test_without_code_nothing_is_said_to_be_done() -> None:
    assert diagnose(written("import triton\n@triton.jit\ndef kernel(x):\n    pass\n")).done is None


@pytest.mark.parametrize(
    ("expected", "to", "after", "holds"),
    [
        ("becomes", "wgmma", "wgmma", True),
        ("becomes", "wgmma", "mma", False),
        ("falls", None, 7, True),
        ("falls", None, 8, False),
        ("falls", 1, 2, False),
        ("rises", 16, 16, True),
        ("rises", None, 8, False),
        ("rises", None, None, None),
    ],
)
def test_a_prediction_is_checked_against_the_fact(
    expected: str, to: str | int | None, after: str | int | None, holds: bool | None
) -> None:
    given = {"fact": "launch.mma", "now": 8, "expected": expected, "to": to}
    assert Prediction.model_validate(given).holds(after) is holds
