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
from .planted_products import REWRITTEN

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
    [*REWRITTEN, *(("products", name, id) for id, (name, _) in WAITING.items())],
    ids=lambda each: each if each.isupper() else "",
)
def test_an_edit_does_what_it_was_said_to(launches: Show, tmp_path: Path, file: str, name: str, id: str) -> None:
    facts = launches(file, name)
    finding = diagnose(stalled(facts, WAITING[id][1]) if id in WAITING else facts).findings[0]
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
    assert id not in ids(stalled(after, WAITING[id][1]) if id in WAITING else after)


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
    (finding,) = diagnose(room(163_840, 115_712)).findings
    assert (finding.id, finding.predicted[0].to) == ("L5", 115_712)


@pytest.mark.parametrize(
    "facts",
    [
        room(163_840, 98_303),
        room(163_840, None),
        room(163_840, 115_712, "registers"),
        room(131_072, 98_304, blocks=2),
        room(163_840, 160_000, n=256),
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
