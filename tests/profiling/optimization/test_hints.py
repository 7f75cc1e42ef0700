"""What is advised after an attempt, from made-up evidence."""

import random
import re
from typing import Any

from tests.profiling.optimization.made_up_launches import (
    advised,
    case_timing,
    diagnosed,
    facts,
    failed,
    finding,
    launched,
    memory,
    own,
    product,
    profiled,
    right,
    timing,
)
from tritonforge.profiling.compiler.launch import LaunchFacts
from tritonforge.profiling.optimization.hint_context import TEXT_LIMIT
from tritonforge.profiling.optimization.hint_failures import FAILURES, REPEATED
from tritonforge.profiling.optimization.hint_rules import RULES
from tritonforge.profiling.optimization.hint_signs import COMPILED
from tritonforge.profiling.optimization.hints import HINTS_SHOWN, hints
from tritonforge.sandbox.outcome import Kind

PLAIN = facts(registers=120, blocks_per_sm=2, theoretical_occupancy_pct=25.0, shared_bytes=98_304)
DEEPER = facts(
    registers=168, blocks_per_sm=1, theoretical_occupancy_pct=12.5, num_stages=4, shared_bytes=131_072,
    dots=product(128, 128, 64),
)  # fmt: skip
SHARED = "out of resource: shared memory, Required: {}, Hardware limit: 232448"
WAITING = profiled(100.0, {"long_scoreboard": (40.0, 12.0)})
WAITING_LESS = profiled(104.0, {"long_scoreboard": (30.0, 7.2)})


def test_what_an_edit_won_and_what_it_cost_come_in_one_sentence_with_the_way_out() -> None:
    parent = right(PLAIN, diagnosed=diagnosed(profiles=[WAITING]))
    slower = right(DEEPER, timings=[timing(0.96)], diagnosed=diagnosed(profiles=[WAITING_LESS]))
    first = advised(slower, parent)[0]
    assert first.text == (
        "Stalls on global loads fell 40 %, registers rose to 168 and cost 1 block per SM: keep the tiling, cut stages "
        "to 3 (the next block fits at 128 registers)"
    )
    assert first.because == [
        "blocks per SM 2 -> 1 (25 % -> 12 % of its warps), limit: registers",
        "registers 120 -> 168, shared memory 96 KiB -> 128 KiB",
        "long_scoreboard 12 -> 7.2 cycles an instruction",
        "time lost beside the baseline: 4.2 % (ratio 0.960, 0.955 to 0.965)",
    ]


def test_where_nothing_was_timed_the_code_is_compared_and_the_hints_say_so() -> None:
    found = advised(right(DEEPER, untimed="No GPU here."), right(PLAIN))
    assert all(hint.text.startswith("Not timed: ") for hint in found)
    assert "registers rose to 168" in found[0].text
    # Why is the verdict's reason.
    assert not any("no GPU here" in f"{hint.text} {hint.because}" for hint in found)
    assert not any("ratio" in number for hint in found for number in hint.because)


def test_profiles_of_different_cases_are_not_compared() -> None:
    parent = right(PLAIN, diagnosed=diagnosed(profiles=[WAITING], case="other"))
    slower = right(DEEPER, timings=[timing(0.96)], diagnosed=diagnosed(profiles=[WAITING_LESS]))
    assert not any("stalls" in hint.text.lower() for hint in advised(slower, parent))


def test_the_same_machine_code_is_told_as_no_change() -> None:
    parent = right(facts(), identity="same")
    first = advised(right(facts(), identity="same", timings=[timing(1.0)]), parent)[0]
    assert first.text.startswith("Nothing changed on the GPU beside the baseline: the edit is optimized away")
    other_host = advised(right(facts(), identity="other", timings=[timing(1.0)]), parent)[0]
    assert "only host code differs" in other_host.text


def test_another_grid_of_the_same_code_is_a_change() -> None:
    found = advised(right(facts(grid=(64, 1, 1)), timings=[timing(1.0)]), right(facts()))
    assert not any("Nothing changed" in hint.text for hint in found)


def test_a_setting_without_effect_is_said_to_have_no_hold() -> None:
    found = advised(right(facts(num_stages=4), timings=[timing(1.0)]), right(facts()))
    assert found[0].text.startswith("num_stages 3 -> 4 made no difference: this lever has no hold here")


def test_after_a_gain_the_next_untried_finding_comes_first() -> None:
    parent = right(PLAIN, diagnosed=diagnosed(finding("V1"), finding("P7"), finding("L1")))
    faster = right(PLAIN, timings=[timing(1.2)], diagnosed=diagnosed(finding("P7"), finding("L1")))
    known = memory(parent)
    first = hints(faster, parent, known, "round the stride for V1")[0]
    assert (first.text, first.finding) == ("Next P7 at line 12, title of P7: do what mends P7", "P7")
    assert first.because == ["expected to save 31 % of the launch", "then: L1 title of L1"]
    first = hints(faster, parent, known, "the loop of P7")[0]
    assert "P7 is still there at line 12" in first.text


def test_a_finding_whose_gain_nobody_knows_is_told_without_a_number() -> None:
    unknown = diagnosed(finding("P7", expected_pct=None, at_most_pct=None))
    found = advised(right(PLAIN, timings=[timing(1.2)], diagnosed=unknown), right(facts()))
    assert found[0].because == ["what it saves is not measured"]


def test_a_finding_that_came_with_the_edit_and_one_that_went_in_vain_are_advised() -> None:
    parent = right(facts(), diagnosed=diagnosed(finding("V1")))
    same = right(facts(num_stages=2), timings=[timing(1.0)], diagnosed=diagnosed(finding("R7")))
    texts = [hint.text for hint in advised(same, parent)]
    assert texts[0] == "R7 came with this edit at line 12, title of R7: do what mends R7"
    assert any(
        text.startswith("V1 is gone and no time with it, so it was not what limits: next is R7") for text in texts
    )


def test_a_finding_that_went_is_no_vain_effort_where_the_code_got_worse_beside_it() -> None:
    parent = right(facts(), diagnosed=diagnosed(finding("V1")))
    spilling = right(facts(num_stages=4, spill_bytes=64), timings=[timing(1.0)], diagnosed=diagnosed())
    texts = [hint.text for hint in advised(spilling, parent)]
    assert texts[0].startswith("V1 is gone, registers spill, 64 bytes a thread: ")
    assert not any("in vain" in text or "no time with it" in text for text in texts)


def test_what_the_gain_came_from_is_told_with_its_numbers() -> None:
    parent, faster = facts(load_widths_bytes=[4]), facts(load_widths_bytes=[16])
    found = advised(right(faster, timings=[timing(1.25)]), right(parent))
    hint = next(hint for hint in found if hint.text.startswith("The gain"))
    assert "loads widened from 4 to 16 bytes a thread" in hint.text
    assert hint.because == [
        "time saved beside the baseline: 20 % (ratio 1.250, 1.245 to 1.255)",
        "widest load 4 -> 16 bytes",
    ]


def test_low_occupancy_is_no_complaint_about_what_is_faster() -> None:
    texts = [hint.text for hint in advised(right(DEEPER, timings=[timing(1.2)]), right(PLAIN))]
    assert not any("per SM" in text for text in texts)


def test_blocks_that_warp_group_products_took_the_place_of_are_not_missed() -> None:
    found = advised(right(facts("matmul_candidate"), timings=[timing(0.9)]), right(facts("matmul_baseline")))
    assert not any("per SM" in hint.text or "an SM's warps" in hint.text for hint in found)


def test_the_case_with_most_left_is_named() -> None:
    cases = [
        own("train", headroom=1.2, speed_of_light_pct=83.0),
        own("decode", 5.0, headroom=2.5, speed_of_light_pct=40.0),
    ]
    found = advised(right(PLAIN, timings=[timing(1.2)], own=cases), right(facts()))
    hint = next(hint for hint in found if "most is left" in hint.text.lower())
    assert hint.text.startswith("Most is left in case decode, at 40 % of the speed of light: it could be 2.5 times")
    assert hint.because[1] == "speed of light: train 83 %, decode 40 %"


def test_cases_that_gained_and_lost_ask_for_a_choice_by_shape_and_hidden_ones_stay_hidden() -> None:
    cases = [case_timing("train", 1.2), case_timing("decode", 0.9), case_timing("secret", 0.5, hidden=True)]
    found = advised(right(DEEPER, timings=[timing(1.05, cases=cases)]), right(PLAIN))
    assert found[0].text.startswith("Case train gained 17 % and case decode lost 11 %: choose tile or warps by shape")
    assert "secret" not in "".join(hint.model_dump_json() for hint in found)


def test_a_call_that_takes_much_longer_than_its_kernels_is_a_matter_of_the_host() -> None:
    found = advised(right(PLAIN, timings=[timing(1.2)], own=[own("main", 6.0, call_us=41.0)]), right(facts()))
    assert found[0].text.startswith("A call of case main takes 41 us, its kernels 6 us: fewer launches")


def test_calls_that_lost_what_kernels_gained_are_advised() -> None:
    case = case_timing("main", 1.2, call_ratio=0.95, call_ratio_low=0.94, call_ratio_high=0.96)
    found = advised(right(PLAIN, timings=[timing(1.2, cases=[case])]), right(facts()))
    assert found[0].text.startswith("Kernels of case main gained 17 %, whole calls lost 5.3 %")


def test_an_edit_that_helped_an_old_attempt_is_sent_to_the_incumbent() -> None:
    base, best = right(facts()), right(facts(num_warps=4), timings=[timing(2.0)])
    evidence = right(facts(num_stages=4), timings=[timing(1.3), timing(0.65, against=1)])
    found = hints(evidence, base, memory(base, best, incumbent=1), "deeper")
    assert found[0].text == "Faster than the baseline, behind attempt 1: make the same edit there"


def test_a_parent_that_was_not_timed_beside_it_is_compared_through_the_baseline() -> None:
    base, parent = right(facts()), right(facts(num_warps=4), timings=[timing(1.5)])
    evidence = right(facts(num_stages=1, pipeline_buffers=0), timings=[timing(1.2)])
    found = hints(evidence, parent, memory(base, parent), "shallower")
    assert any("time lost beside attempt 1: 25 % (ratio 0.800" in number for hint in found for number in hint.because)


def test_what_is_done_is_said_to_be_done() -> None:
    found = advised(right(PLAIN, timings=[timing(1.2)], own=[own("main", speed_of_light_pct=91.0)],
                       diagnosed=diagnosed(done="The launch reaches 91 % of its floor.")), right(facts()))  # fmt: skip
    assert found[0].text == "Little is left in case main: the launch reaches 91 % of its floor"


def test_what_limits_is_told_where_no_finding_is() -> None:
    busy = profiled(50.0, dram_pct=92.0, memory_pct=92.0, compute_pct=20.0, dram_bytes=1e8)
    found = advised(right(PLAIN, timings=[timing(1.2)], diagnosed=diagnosed(profiles=[busy])), right(facts()))
    assert any(hint.text.startswith("What limits kernel now: ") for hint in found)


def test_there_are_at_most_five_short_hints_however_much_went_wrong() -> None:
    recipe = "Round the stride in the kernel, " * 20
    many = [finding(id, recipe=recipe, title="long " * 40) for id in ("V1", "P7", "R1", "L1")]
    after = facts(
        num_warps=4, num_stages=4, spill_bytes=900, layout_conversions_in_loops=7, atomics=4, mma="mma",
        store_widths_bytes=[2], theoretical_occupancy_pct=6.0,
    )  # fmt: skip
    evidence = right(
        after, timings=[timing(0.5, cases=[case_timing("a" * 90, 1.2), case_timing("b" * 90, 0.4)])],
        own=[own("a" * 90, headroom=9.0, call_us=900.0), own("b" * 90)],
        diagnosed=diagnosed(*many, profiles=[profiled(200.0, {"barrier": (60.0, 9.0)}, dram_bytes=9e8)]),
    )  # fmt: skip
    parent = right(facts(), diagnosed=diagnosed(finding("V1"), profiles=[profiled(100.0, {"wait": (60.0, 9.0)})]))
    found = advised(evidence, parent, "V1 and more")
    assert len(found) == HINTS_SHOWN
    assert all(len(hint.text) < TEXT_LIMIT for hint in found)
    assert found == advised(evidence, parent, "V1 and more")
    ids = [hint.finding for hint in found if hint.finding is not None]
    assert len(ids) == len(set(ids))


def test_whatever_is_unknown_hints_come_out_well_formed() -> None:
    choose = random.Random(7)
    nullable = ["registers", "spill_bytes", "theoretical_occupancy_pct", "blocks_per_sm", "waves", "acq_rel_atomics"]
    nullable += ["tail_lost_pct_at_most", "sync_loads_beside_dots", "elements_per_program_max", "element_bytes"]
    names = ["matmul_candidate", "matmul_baseline", "softmax_candidate", "sin_baseline", "attention", "atomics"]

    def any_facts() -> LaunchFacts:
        changed: dict[str, Any] = {name: choose.choice([None, 1, 40]) for name in choose.sample(nullable, 4)}
        changed["num_warps"], changed["num_stages"] = choose.choice([1, 4, 8, 16]), choose.choice([1, 3, 5])
        changed["load_widths_bytes"] = choose.choice([[], [2], [16, 4]])
        changed["mma"] = choose.choice(["none", "mma", "wgmma", "mfma", "tcgen05"])
        return facts(choose.choice(names), **changed)

    for _ in range(300):
        message = choose.choice(["", "shared memory", SHARED.format(1 << 20), "two calls on the same inputs differ"])
        kind = choose.choice([kind for kind in Kind if kind is not Kind.OK])
        launches = [any_facts() for _ in range(choose.randint(0, 2))]
        evidence = choose.choice([
            failed(kind, message, *launches),
            right(*launches),
            right(*launches, timings=[timing(choose.choice([0.5, 1.0, 1.5]))]),
        ])  # fmt: skip
        found = advised(evidence, right(any_facts()))
        assert len(found) <= HINTS_SHOWN
        for hint in found:
            assert 0 < len(hint.text) < TEXT_LIMIT
            assert not re.search(r"[{}]|\bNone\b", " ".join((hint.text, *hint.because)))
        assert found or evidence.kind is Kind.OK


def test_launches_of_several_cases_are_told_once_with_their_case() -> None:
    narrow, wide = facts(load_widths_bytes=[4]), facts()
    parent = right().model_copy(update={"launches": [*launched(wide, case="a"), *launched(wide, case="b")]})
    evidence = right(timings=[timing(0.9)], own=[own("a", 1.0), own("b", 9.0)])
    evidence = evidence.model_copy(update={"launches": [*launched(narrow, case="a"), *launched(narrow, case="b")]})
    found = [hint for hint in advised(evidence, parent) if "narrowed" in hint.text]
    assert len(found) == 1
    assert "case b, kernel kernel" in found[0].because


def test_more_launches_than_before_are_advised() -> None:
    found = advised(right(facts(), facts("sin_baseline", kernel="sum_up"), timings=[timing(0.9)]), right(facts()))
    assert any(hint.text.startswith("2 launches instead of 1, sum_up is new") for hint in found)


def test_without_a_parent_nothing_is_compared() -> None:
    found = hints(right(DEEPER, timings=[timing(1.1)]), None, memory(), "from scratch")
    assert not any("->" in number for hint in found for number in hint.because)


def test_rules_have_names_of_their_own_and_places_in_order() -> None:
    ids = [rule.id for rule in (*RULES, *FAILURES, REPEATED)] + [sign.id for sign in COMPILED]
    assert len(ids) == len(set(ids))
    assert [rule.weight for rule in RULES] == sorted((rule.weight for rule in RULES), reverse=True)


def test_a_baseline_that_was_timed_alone_is_told_what_to_begin_with() -> None:
    cases = [own("train", headroom=1.2, speed_of_light_pct=83.0), own("decode", 5.0, headroom=2.5)]
    its = right(PLAIN, own=cases, diagnosed=diagnosed(finding("V1"), finding("P7")))
    found = [hint.text for hint in hints(its, None, memory(), "")]
    assert found[0].startswith("Next V1 at line 12")
    assert any(text.startswith("Most is left in case decode") for text in found)
    assert not any("Not timed" in text or "gain" in text.lower() for text in found)
