"""Rules for products, pipelines and layouts that no planted kernel shows alone: made-up facts, and profiles."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.profiling.compiler.signatures.shown import TRITON
from tritonforge.profiling.compiler.remarks import Remark
from tritonforge.profiling.diagnosis.engine import diagnose
from tritonforge.profiling.diagnosis.facts import Facts, value
from tritonforge.profiling.diagnosis.rules import RULES, layouts, pipelining
from tritonforge.profiling.ncu import cause, waits, waste
from tritonforge.profiling.ncu.model import LaunchProfile, Stall

from .applied import applied
from .conftest import compile_some, kernel_file, read
from .made_up import hotspot, profile, recorded

pytestmark = pytest.mark.xdist_group("diagnosis")
compiled = pytest.mark.skipif(TRITON != (3, 7), reason="what is planted was chosen for the compiler of Triton 3.7")
Show = Callable[[str, str], Facts]
WAITING = {"P7": ("long_rows", "long_scoreboard"), "L6": ("short_rows", "barrier")}
"""Rules that a profile makes a finding of, with the kernel and what its warps wait for."""


def stalled(facts: Facts, reason: str, pct: float = 45.0, line: int | None = None, **fields: float) -> Facts:
    """The same, where warps spend a share of their time waiting for one reason."""
    seen = profile(stalls=(Stall(reason=reason, pct=pct, cycles=None, meaning="waits"),), issue_slot_pct=20.0, **fields)
    spots = [] if line is None else [hotspot(line, 60.0).model_copy(update={"stall": reason})]
    return caused(facts, seen, waits.stall(cause.Facts(seen, spots, None, None)))


def caused(facts: Facts, seen: LaunchProfile, *found: cause.Cause | None) -> Facts:
    return replace(facts, profile=seen, causes=[each for each in found if each is not None])


def ids(facts: Facts) -> list[str]:
    return [finding.id for finding in diagnose(facts).findings]


def with_note(facts: Facts, *notes: str) -> Facts:
    """The same, with other words of ptxas."""
    assert facts.launch is not None
    return replace(facts, launch=facts.launch.model_copy(update={"ptxas_notes": list(notes)}))


def said(facts: Facts, id: str, line: int | None = None) -> Facts:
    """The same, where a pass said something."""
    told = Remark(id=id, line=line, category="remark", message=f"message of {id}", meaning=None)
    return replace(facts, remarks=[*(facts.remarks or ()), told])


@compiled
@pytest.mark.parametrize(
    ("file", "name", "id"),
    [("products", name, id) for id, (name, _) in WAITING.items()],
    ids=lambda each: each if each.isupper() else "",
)
def test_an_edit_does_what_it_was_said_to(launches: Show, tmp_path: Path, file: str, name: str, id: str) -> None:
    facts = launches(file, name)
    finding = diagnose(stalled(facts, WAITING[id][1])).findings[0]
    assert finding.id == id
    assert finding.rewrite.diff is not None, finding.rewrite.no_diff
    text = applied(kernel_file(file).read_text(), finding.rewrite.diff)
    edited = tmp_path / f"{file}.py"
    edited.write_text(text)
    compile_some(edited, [name], tmp_path / "out")
    after = read(text, tmp_path / "out" / f"{name}.json")
    assert finding.predicted
    for prediction in finding.predicted:
        assert prediction.holds(value(prediction.fact, after)), prediction
    assert id not in ids(stalled(after, WAITING[id][1]))


@compiled
@pytest.mark.parametrize("id", WAITING)
def test_what_only_a_profile_tells_is_told_on_its_line_and_not_without_it(launches: Show, id: str) -> None:
    name, reason = WAITING[id]
    facts = launches("products", name)
    finding = diagnose(stalled(facts, reason)).findings[0]
    mark = {"P7": "total += tl.load(x + start)", "L6": "tl.sum(x)"}[id]
    assert finding.id == id
    assert finding.excerpt is not None
    assert mark in finding.excerpt
    assert {each.level for each in finding.evidence} == {2, 3}
    for prediction in finding.predicted:
        assert value(prediction.fact, facts) == prediction.now
    assert ids(facts) == []
    assert ids(stalled(facts, reason, pct=20.0)) == []
    assert ids(stalled(facts, "wait")) == []
    assert ids(replace(stalled(facts, reason), lines=None)) == []
    assert ids(replace(stalled(facts, reason), launch=None)) == []


@compiled
@pytest.mark.parametrize("name", ["rows_in_stages", "for", "one_stage"])
def test_loops_with_copies_or_dots_need_no_stages_of_their_own(launches: Show, name: str) -> None:
    assert "P7" not in ids(stalled(launches("loops", name), "long_scoreboard"))


@compiled
def test_a_row_of_one_warp_waits_for_no_other(launches: Show) -> None:
    assert "L6" not in ids(stalled(launches("accesses", "row_of_one_warp"), "barrier"))


@compiled
def test_a_small_tile_is_told_where_warps_wait_for_products(launches: Show) -> None:
    facts = launches("dots", "product")
    finding = diagnose(stalled(facts, "gmma", tensor_pct=30.0)).findings[0]
    assert finding.id == "T15"
    assert finding.excerpt is not None
    assert "tl.load(a), tl.load(b)" in finding.excerpt
    assert "64x64" in " ".join(each.text for each in finding.evidence)
    assert ids(stalled(facts, "gmma", tensor_pct=70.0)) == []
    assert "T15" not in ids(stalled(launches("dots", "large_tile"), "gmma", tensor_pct=30.0))
    assert "T15" not in ids(stalled(launches("dots", "attention"), "gmma", tensor_pct=30.0))


@compiled
def test_bank_conflicts_are_told_on_the_line_that_has_most_of_them(launches: Show) -> None:
    facts = launches("products", "taps_flat")
    seen = profile(bank_conflict_pct=25.0)
    found = waste.bank_conflicts(cause.Facts(seen, [], None, None))
    assert found is not None
    line = next(each.line for each in facts.lines.ptx if each.kind == "shared_store") if facts.lines else None
    placed = found.model_copy(update={"evidence": {**found.evidence, "line": line}})
    finding = diagnose(caused(facts, seen, placed)).findings[0]
    assert (finding.id, finding.line) == ("L2", line)
    assert "st.shared" in finding.evidence[-1].text or "stmatrix" in finding.evidence[-1].text
    few = profile(bank_conflict_pct=5.0)
    assert ids(caused(facts, few, waste.bank_conflicts(cause.Facts(few, [], None, None)))) == []


@compiled
def test_a_nest_whose_outer_loop_has_work_of_its_own_gets_no_diff(launches: Show, tmp_path: Path) -> None:
    compile_some(kernel_file("loops"), ["nested"], tmp_path / "out")
    facts = read(kernel_file("loops").read_text(), tmp_path / "out" / "nested.json")
    finding = diagnose(facts).findings[0]
    assert (finding.id, finding.rewrite.diff) == ("P11", None)
    assert [each.id for each in finding.explains] == ["L1"]
    assert finding.excerpt == "for _ in range(STEPS):"
    assert facts.lines is not None
    assert facts.launch is not None
    kept = [each for each in facts.lines.ttgir if each.kind != "layout_conversion"]
    assert ids(replace(facts, lines=facts.lines.model_copy(update={"ttgir": kept}))) == []
    apart = facts.launch.model_copy(update={"warp_specialized": True})
    assert "P11" not in ids(replace(facts, launch=apart))


@compiled
@pytest.mark.parametrize("name", ["fp16_sum", "fp8_imprecise_64"])
def test_waits_that_ptxas_injects_are_folded_into_their_cause(launches: Show, name: str) -> None:
    (finding,) = diagnose(launches("dots", name)).findings
    assert "T14" in [each.id for each in finding.explains]


INJECTED = "(C7514) Potential Performance Loss: wgmma.mma_async instructions are serialized due to a call"
DEFINED = (
    "(C7515) Potential Performance Loss: wgmma.mma_async instructions are serialized due to non wgmma instructions"
)


def test_waits_that_ptxas_injects_are_told_where_nothing_explains_them() -> None:
    facts = with_note(recorded("matmul_candidate"), INJECTED)
    (finding,) = diagnose(facts).findings
    assert (finding.id, finding.level) == ("T14", 4)
    assert finding.evidence[0].text == f"ptxas: {INJECTED}"
    assert ids(replace(facts, launch=None)) == []


def test_accumulators_that_ptxas_notes_of_good_loops_too_are_no_finding() -> None:
    assert ids(with_note(recorded("matmul_candidate"), DEFINED)) == []


def test_a_single_buffer_is_told_of_warp_groups_only() -> None:
    facts = recorded("matmul_candidate", pipeline_buffers=1)
    (finding,) = diagnose(facts).findings
    assert (finding.id, finding.predicted[0].holds(2), finding.predicted[0].holds(1)) == ("P12", True, False)
    assert ids(recorded("matmul_candidate", pipeline_buffers=2)) == []
    assert ids(recorded("matmul_candidate", pipeline_buffers=1, mma="mma", num_stages=2)) == []
    assert ids(replace(facts, lines=None)) == []


def test_copies_through_registers_are_told_in_the_compilers_words() -> None:
    facts = said(recorded("matmul_candidate"), "pipelined-through-registers", 12)
    (finding,) = diagnose(facts).findings
    assert (finding.id, finding.line, finding.level) == ("P14", 12, 4)
    assert finding.evidence[0].text.startswith("compiler: message")
    assert ids(replace(facts, remarks=None)) == []


def room(
    shared_bytes: int, next_block: int | None, limiter: str = "shared_memory", blocks: int = 1, n: int = 128
) -> Facts:
    """A launch of one 128xN product, by what keeps a second block from an SM."""
    facts = recorded("matmul_candidate")
    assert facts.launch is not None
    fit: dict[str, object] = {"shared_bytes": shared_bytes, "shared_bytes_for_next_block": next_block}
    dots = [dot.model_copy(update={"n": n}) for dot in facts.launch.dots]
    changed = {**fit, "occupancy_limiter": limiter, "blocks_per_sm": blocks, "dots": dots}
    return replace(facts, launch=facts.launch.model_copy(update=changed))


def test_staged_results_are_told_if_the_tiles_alone_left_room_for_a_second_block() -> None:
    (finding,) = diagnose(room(163_840, 150_000)).findings
    assert (finding.id, finding.predicted[0].to) == ("L5", 150_000)


@pytest.mark.parametrize(
    "facts",
    [
        room(163_840, 147_455),
        room(163_840, None),
        room(163_840, 150_000, "registers"),
        room(131_072, 98_304, blocks=2),
        room(163_840, 150_000, n=256),
    ],
    ids=["tiles alone leave none", "none fits at all", "registers limit", "two fit", "wide tile"],
)
def test_staged_results_are_not_told_where_they_cost_no_block(facts: Facts) -> None:
    assert ids(facts) == []


def dropped() -> Sequence[str]:
    return [*pipelining.DROPPED, *layouts.DROPPED]


def test_what_was_dropped_has_a_reason_and_no_rule() -> None:
    assert not set(dropped()) & {rule.id for rule in RULES}
    assert all(why.endswith(".") for why in (*pipelining.DROPPED.values(), *layouts.DROPPED.values()))


def test_short_steps_are_told_only_where_loads_are_copied_ahead_and_shared_memory_has_room() -> None:
    facts = recorded("matmul_candidate")
    assert facts.launch is not None
    short = [dot.model_copy(update={"k": 32}) for dot in facts.launch.dots]
    half = facts.launch.model_copy(update={"dots": short, "shared_bytes": 73_728})
    assert ids(replace(facts, launch=half)) == ["T16"]
    for change in ({"sync_loads_beside_dots": 1}, {"spill_bytes": 8}, {"shared_bytes": 200_000}, {"mma": "mma"}):
        assert "T16" not in ids(replace(facts, launch=half.model_copy(update=change))), change


def refused(num_warps: int, **dot: object) -> Facts:
    """A launch whose product single warps compute, with a remark that does not say why."""
    facts = recorded("matmul_candidate", num_warps=num_warps, mma="none" if dot.get("precision") == "ieee" else "mma")
    assert facts.launch is not None
    dots = [one.model_copy(update=dot) for one in facts.launch.dots]
    return said(replace(facts, launch=facts.launch.model_copy(update={"dots": dots})), "wgmma-rejected")


NARROW: dict[str, object] = {"m": 16}
IEEE: dict[str, object] = {"m": 32, "a_dtype": "f32", "b_dtype": "f32", "precision": "ieee"}


@pytest.mark.parametrize(
    ("facts", "id", "conditions"),
    [
        (refused(2), "T1", ["num_warps is 2"]),
        (refused(2, **NARROW), "T2", ["num_warps is 2", "M is 16"]),
        (refused(2, m=16, n=8), "T2", ["num_warps is 2", "M is 16", "N is 8"]),
        (refused(2, n=8), "T3", ["num_warps is 2", "N is 8"]),
        (refused(2, batch=4), "T11", ["num_warps is 2", "batch of 4"]),
        (refused(2, **IEEE), "T4", ["num_warps is 2", "M is 32"]),
        (refused(4, **NARROW), "T2", ["M is 16"]),
    ],
)
def test_each_condition_that_warp_group_products_fail_is_named(facts: Facts, id: str, conditions: list[str]) -> None:
    told = [finding for finding in diagnose(facts).findings if finding.id.startswith("T")]
    assert [finding.id for finding in told] == [id]
    assert all(text in told[0].cause for text in conditions)
    assert ("no multiple of 4" in told[0].cause) == (conditions[0] == "num_warps is 2")
    few = id in ("T2", "T3", "T11") and conditions[0] == "num_warps is 2"
    assert ("num_warps=4 as well" in told[0].rewrite.recipe) == few


@pytest.mark.parametrize(("dot", "then"), [(IEEE, "mma"), ({**IEEE, "m": 64}, "wgmma")])
def test_tf32_is_said_to_reach_warp_groups_only_where_nothing_else_fails(dot: dict[str, object], then: str) -> None:
    found = next(finding for finding in diagnose(refused(4, **dot)).findings if finding.id == "T4")
    assert found.predicted[0].to == then
    assert ("by mma.sync" in found.cause) == (then == "mma")


@compiled
def test_waits_between_the_products_of_attention_are_no_finding(launches: Show) -> None:
    for file, name in (("dots", "attention"), ("products", "helped_attention")):
        facts = launches(file, name)
        assert facts.launch is not None
        assert [dot.in_loop for dot in facts.launch.dots].count(True) == 2
        assert ids(with_note(facts, INJECTED)) == []


def test_a_product_of_several_parts_on_one_line_is_one() -> None:
    """As of `tf32x3`: three products of one `tl.dot`."""
    facts = with_note(recorded("matmul_candidate"), INJECTED)
    assert facts.launch is not None
    assert facts.lines is not None
    more = [each for each in facts.lines.ttgir if each.kind == "dot"]
    once_more = [each.model_copy(update={"line": (each.line or 0) + 1}) for each in more]
    same, other = (
        replace(facts, lines=facts.lines.model_copy(update={"ttgir": [*facts.lines.ttgir, *added]}))
        for added in (more, once_more)
    )
    assert (ids(same), ids(other)) == (["T14"], [])


def test_all_that_is_copied_ahead_counts_before_staged_results_are_blamed() -> None:
    facts = room(163_840, 150_000)
    assert facts.lines is not None
    copies = [each for each in facts.lines.ttgir if each.kind == "load" and each.in_loop and "async" in each.operation]
    scales = facts.lines.model_copy(update={"ttgir": [*facts.lines.ttgir, *copies]})
    assert copies
    assert ids(replace(facts, lines=scales)) == []


@compiled
def test_a_launch_of_one_stage_is_not_told_of_two_levels_of_loads(launches: Show) -> None:
    facts = launches("loops", "indirect_in_two_stages")
    assert facts.launch is not None
    one = {"num_stages": 1, "sync_loads_beside_dots": 2, "async_copies": 0}
    (finding,) = diagnose(replace(facts, launch=facts.launch.model_copy(update=one))).findings
    assert (finding.id, "P10" in [each.id for each in finding.explains]) == ("P1", True)


@compiled
def test_casts_of_16_bit_operands_are_what_forces_an_order(launches: Show) -> None:
    facts = launches("products", "widened")
    assert "don't cast them" in diagnose(facts).findings[0].rewrite.recipe
    for name in ("a_ptr", "b_ptr"):
        single = facts.captured.model_copy(update={"signature": facts.captured.signature | {name: "*fp32"}})
        assert "transposed, once" in diagnose(replace(facts, captured=single)).findings[0].rewrite.recipe


@compiled
def test_statistics_of_rows_may_change_their_layout_in_a_loop(launches: Show) -> None:
    facts = launches("accesses", "converted_in_loop")
    assert facts.lines is not None
    for shape, found in (("64x64x", ["L1"]), ("64x1x", []), ("1x64x", []), ("1x1x", []), ("64x", ["L1"])):
        changed = [
            each.model_copy(update={"detail": f"tensor<{shape}f32, #a> -> tensor<{shape}f32, #b>"})
            for each in facts.lines.ttgir
        ]
        assert ids(replace(facts, lines=facts.lines.model_copy(update={"ttgir": changed}))) == found, shape
