"""Rules on values that need a profile, and sights that must not be told."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.profiling.compiler.signatures.shown import TRITON
from tritonforge.profiling.compiler.details import LaunchDetails
from tritonforge.profiling.compiler.ptx_lines import PtxSite, SiteKind
from tritonforge.profiling.compiler.ttgir_lines import TtgirSite
from tritonforge.profiling.diagnosis.engine import diagnose
from tritonforge.profiling.diagnosis.facts import Facts, value
from tritonforge.profiling.diagnosis.rules import RULES, instructions, registers, vectorization
from tritonforge.profiling.ncu.cause import Cause
from tritonforge.profiling.ncu.model import Pipe, Stall

from .made_up import profile, recorded, written
from .plant import Planted
from .planted import first
from .planted_values import PLANTED

pytestmark = pytest.mark.xdist_group("diagnosis")
compiled = pytest.mark.skipif(TRITON != (3, 7), reason="what is planted was chosen for the compiler of Triton 3.7")
Show = Callable[[str, str], Facts]
HEAD = (
    "import triton\nimport triton.language as tl\n\n@triton.jit\ndef kernel(x_ptr, y_ptr, n, scale, B: tl.constexpr):\n"
)
"""Five lines: the body begins at the sixth."""
BODY = 6


def ids(facts: Facts) -> list[str]:
    told = diagnose(facts)
    return [finding.id for finding in told.findings + told.hypotheses]


def site(line: int, kind: SiteKind, count: int, *, in_loop: bool = False) -> PtxSite:
    return PtxSite(
        line=line, kind=kind, instruction=kind, width_bytes=None, vector=1, semantics=None, in_loop=in_loop, count=count
    )


def made(body: str, *sites: PtxSite, atomics_of: int | None = None, x: str = "*fp32") -> Facts:
    """A kernel of which the compiler made some instructions, and atomics of a tile on the second line."""
    text = HEAD + "".join(f"    {line}\n" for line in body.split("\n"))
    facts = written(text, signature={"x_ptr": x, "y_ptr": "*fp32", "n": "i32", "scale": "fp32"}, constexprs={"B": 256})
    tile = TtgirSite(
        line=BODY + 1, kind="atomic", operation="tt.atomic_rmw", in_loop=False, waits_beside_dot=False,
        through_memory=False, semantics="relaxed", detail=f"(tensor<{atomics_of}x!tt.ptr<f32>, #blocked>",
    )  # fmt: skip
    lines = LaunchDetails(places=[], ptx=list(sites), ttgir=[] if atomics_of is None else [tile])
    return replace(facts, launch=recorded("softmax_candidate").launch, lines=lines)


def stall(reason: str, pct: float) -> Stall:
    return Stall(reason=reason, pct=pct, cycles=None, meaning="")


def starved(**changed: Any) -> Facts:
    """Few warps of many registers, which wait for memory."""
    given: dict[str, Any] = {
        "theoretical_occupancy_pct": 50.0, "achieved_occupancy_pct": 47.0, "occupancy_limiter": "registers",
        "issue_slot_pct": 20.0, "tensor_pct": 0.0, "mma": "none",
        "stalls": (Stall(reason="long_scoreboard", pct=70.0, cycles=9.0, meaning="waits"),),
    }  # fmt: skip
    return replace(
        recorded("softmax_candidate", registers=60, registers_for_next_block=56), profile=profile(**given | changed)
    )


def test_registers_that_limit_warps_are_told_where_the_warps_wait_for_memory() -> None:
    (finding,) = diagnose(starved()).findings
    assert (finding.id, finding.level) == ("R3", 3)
    assert (finding.predicted[0].fact, finding.predicted[0].to) == ("launch.registers", 56)
    assert "56" in finding.rewrite.recipe


@pytest.mark.parametrize(
    "changed",
    [
        {"theoretical_occupancy_pct": 81.0},
        {"achieved_occupancy_pct": 20.0},
        {"occupancy_limiter": "registers and shared_mem"},
        {"occupancy_limiter": "warps"},
        {"issue_slot_pct": 61.0},
        {"issue_slot_pct": None},
        {"tensor_pct": 65.0},
        {"mma": "gmma"},
        {"stalls": (Stall(reason="barrier", pct=70.0, cycles=9.0, meaning="waits"),)},
        {"stalls": ()},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_registers_are_not_told_where_more_warps_would_not_help(changed: dict[str, Any]) -> None:
    assert "R3" not in ids(starved(**changed))


def test_registers_are_not_told_without_a_profile_or_a_next_block() -> None:
    assert "R3" not in ids(replace(starved(), profile=None))
    assert starved().launch is not None
    cramped = recorded("softmax_candidate", registers=60, registers_for_next_block=None)
    assert "R3" not in ids(replace(starved(), launch=cramped.launch))


@compiled
def test_a_transposing_copy_is_told_where_its_passes_collide(launches: Show) -> None:
    facts = launches("accesses", "transposed_copy")
    collided = replace(facts, profile=profile(bank_conflict_pct=40.0))
    assert "V12" in ids(collided)
    assert "V12" not in ids(replace(facts, profile=profile(bank_conflict_pct=9.0)))
    assert "V12" not in ids(facts)
    straight = replace(launches("values", "wide_tile"), profile=profile(bank_conflict_pct=40.0))
    assert "V12" not in ids(straight)


@compiled
def test_bank_conflicts_cost_no_more_than_warps_wait_for_shared_memory(launches: Show) -> None:
    facts = launches("accesses", "transposed_copy")
    collided = Cause(id="bank_conflicts", text="", suggestion="", evidence={"bank_conflict_pct": 40.0})
    stalls = (stall("short_scoreboard", 2.0), stall("mio_throttle", 1.0), stall("long_scoreboard", 80.0))
    facts = replace(facts, profile=profile(stalls=stalls), causes=[collided])
    (finding,) = [finding for finding in diagnose(facts).findings if finding.id == "L2"]
    assert finding.gain.at_most_pct == 3.0


@compiled
def test_an_unrolled_loop_is_told_if_its_code_is_waited_for_or_spills(launches: Show) -> None:
    facts = launches("arithmetic", "unrolled_steps")
    waited = replace(facts, profile=profile(stalls=(stall("no_instruction", 12.0),)))
    (finding,) = [finding for finding in diagnose(waited).findings if finding.id == "R7"]
    assert finding.gain.expected_pct == 12.0
    idle = replace(facts, profile=profile(stalls=(stall("no_instruction", 1.0), stall("long_scoreboard", 90.0))))
    assert "R7" not in ids(idle)
    assert facts.launch is not None
    spilled = replace(idle, launch=facts.launch.model_copy(update={"spill_bytes": 640}))
    (finding,) = diagnose(spilled).findings
    assert (finding.id, [each.id for each in finding.explains]) == ("R7", ["R1"])


def test_a_tile_that_gives_each_thread_its_widest_access_is_not_tiny() -> None:
    text = HEAD.replace("B: tl.constexpr", "BLOCK: tl.constexpr = 32") + "    pass\n"
    facts = written(text, constexprs={"BLOCK": 32})
    large = recorded("softmax_candidate", elements_per_program_max=2048, element_bytes=2, num_warps=4)
    small = recorded("softmax_candidate", elements_per_program_max=256, element_bytes=2, num_warps=4)
    assert "U16" in ids(facts)
    assert "U16" in ids(replace(facts, launch=small.launch))
    assert "U16" not in ids(replace(facts, launch=large.launch))


@compiled
def test_fp32_arithmetic_of_halves_is_told_where_it_fills_its_pipe(launches: Show) -> None:
    facts = launches("values", "upcast")
    told = diagnose(replace(facts, profile=profile(pipes=(Pipe(name="fma", pct=72.0),))))
    (finding,) = [finding for finding in told.findings if finding.id == "I10"]
    assert (finding.excerpt, finding.level) == ("x = x.to(tl.float32)", 3)
    assert finding.predicted[0].holds(launches("values", "halves").count("fused_multiply"))
    assert "I10" not in ids(replace(facts, profile=profile(pipes=(Pipe(name="fma", pct=50.0),))))
    assert "I10" not in ids(facts)
    packed = launches("values", "halves")
    assert "I10" not in ids(replace(packed, profile=profile(pipes=(Pipe(name="fma", pct=72.0),))))


@compiled
@pytest.mark.parametrize(
    "planted", [each for each in PLANTED if each.id != "A6" and each.twin], ids=lambda each: each.faulty
)
def test_the_twin_shows_what_was_predicted(launches: Show, planted: Planted) -> None:
    finding = first(diagnose(launches(planted.file, planted.faulty)))
    assert planted.twin is not None
    twin = launches(planted.file, planted.twin)
    assert finding.predicted
    assert all(prediction.holds(value(prediction.fact, twin)) for prediction in finding.predicted)


@compiled
def test_as_many_products_as_sms_make_a_split_needless(launches: Show) -> None:
    facts = launches("values", "split_needlessly")
    for products, told in ((132, True), (131, False)):
        grid = (products, 4, 1)
        other = replace(facts, captured=facts.captured.model_copy(update={"grid": grid}))
        assert ("A6" in ids(other)) is told


LOOP = "x = tl.load(x_ptr)\nfor start in range(0, n, B):\n"
STEP = BODY + 2


@pytest.mark.parametrize(
    ("condition", "told"),
    [
        ("n >= start + tl.arange(0, B)", True),
        ("start + tl.arange(0, B) < n", True),
        ("tl.arange(0, B) < n", False),  # the same in each step
        ("start % 2 < tl.arange(0, B)", False),  # needed in every other step
        ("tl.load(x_ptr + start) > 0", False),  # of data
        ("start == n", False),
    ],
)
def test_a_mask_in_a_loop_is_told_if_it_compares_positions_with_the_step(condition: str, told: bool) -> None:
    body = f"{LOOP}    x += tl.where({condition}, x, 0.0)\ntl.store(y_ptr, x)"
    assert ("I7" in ids(made(body, site(STEP, "select", 8, in_loop=True)))) is told
    assert "I7" not in ids(made(body, site(STEP, "select", 8)))


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("tl.where(x > 0, tl.log(x), tl.exp(x))", True),
        ("tl.where(x > 0, z, z * 2)", False),  # one function, computed once
        ("tl.where(x > 0, tl.exp(x), 0.0)", False),
        ("tl.exp(tl.where(x > 0, x, 0.0))", False),
    ],
)
def test_a_selection_is_told_if_each_side_has_a_function_of_its_own(value: str, told: bool) -> None:
    body = f"x = tl.load(x_ptr)\nz = tl.exp(x)\ny = {value}\ntl.store(y_ptr, y)"
    sites = [site(line, "multiply", 8) for line in (BODY + 1, BODY + 2)]
    assert ("I5" in ids(made(body, *sites))) is told


@pytest.mark.parametrize(
    ("scaled", "told"),
    [
        ("s = scale * 1.44\nx = tl.where(x > 0, x * s, -1e6)", True),
        ("x = x * scale\nx = tl.where(x > 0, x, -1e6)", True),
        ("x *= scale\nx = tl.where(x > 0, x, -1e6)", True),
        ("s = tl.load(y_ptr)\nx = tl.where(x > 0, x * s, -1e6)", False),  # not one value: nothing to take out
        ("pass\nx = tl.where(x > 0, x, -1e6)", False),
    ],
)
def test_a_mask_is_told_if_it_stands_between_a_scale_and_a_subtraction(scaled: str, told: bool) -> None:
    body = f"x = tl.load(x_ptr)\n{scaled}\ny = tl.exp2(x - tl.max(x))\ntl.store(y_ptr, y)"
    sites = [site(line, "multiply", 8) for line in (BODY + 1, BODY + 2)]
    assert ("I6" in ids(made(body, *sites))) is told
    assert "I6" not in ids(made(body, *sites, site(BODY + 3, "fused_multiply", 8)))


def test_program_numbers_are_divided_in_vain_only_where_nothing_else_hides_it() -> None:
    body = "p = tl.program_id(0)\nrow, column = 0, 0\nrow = p // n\ncolumn = p % n\ntl.store(y_ptr + row, column)"
    sites = [site(line, "integer_division", 1) for line in (BODY + 2, BODY + 3)]
    facts = made(body, *sites)
    assert facts.launch is not None
    for loops, told in ((0, True), (1, False)):
        one = replace(facts, launch=facts.launch.model_copy(update={"loops": loops}))
        assert ("I11" in ids(one)) is told


def test_a_division_of_a_tile_is_none_of_program_numbers() -> None:
    body = "i = tl.program_id(0) * B + tl.arange(0, B)\nrow = i // n\ncolumn = i % n\ntl.store(y_ptr + row, column)"
    sites = [site(line, "integer_division", 8) for line in (BODY + 1, BODY + 2)]
    facts = made(body, *sites)
    assert facts.launch is not None
    assert "I11" not in ids(replace(facts, launch=facts.launch.model_copy(update={"loops": 0})))


@pytest.mark.parametrize(
    ("atomic", "told"),
    [
        ("tl.atomic_add(y_ptr + i % 64, 1.5)", True),
        ("tl.atomic_max(y_ptr + i % 64, 1.5)", True),
        ("tl.atomic_add(y_ptr + i % 256, 1.5)", False),  # one element each
        ("tl.atomic_add(y_ptr + i % n, 1.5)", False),  # n is not known
        ("tl.atomic_add(y_ptr + i, 1.5)", False),
        ("tl.atomic_add(y_ptr + i % 64 + i * 64, 1.5)", False),
        ("tl.atomic_xchg(y_ptr + i % 64, 1.5)", False),
        ("tl.atomic_add(y_ptr + tl.load(x_ptr + i), 1)", True),
        ("tl.atomic_add(y_ptr + tl.load(x_ptr + i), scale)", False),  # no count
    ],
)
def test_atomics_are_told_if_a_program_adds_to_an_address_again_and_again(atomic: str, told: bool) -> None:
    facts = made(f"i = tl.arange(0, B)\n{atomic}", site(BODY + 1, "atomic", 2), atomics_of=256)
    assert ("A2" in ids(facts)) is told


@pytest.mark.parametrize(("in_loop", "told"), [(True, True), (False, False)])
def test_a_barrier_is_told_in_a_loop_only(in_loop: bool, told: bool) -> None:
    body = "for _ in range(n):\n    tl.debug_barrier()" if in_loop else "pass\ntl.debug_barrier()"
    facts = made(f"{body}\ntl.store(y_ptr, n)", site(BODY + 1, "barrier", 1, in_loop=in_loop))
    assert ("A7" in ids(facts)) is told


@pytest.mark.parametrize(
    ("offsets", "x", "told"),
    [
        ("tl.load(x_ptr + tl.arange(0, B))", "*i64", True),
        ("tl.load(x_ptr + tl.arange(0, B))", "*i32", False),
        ("tl.load(x_ptr + tl.program_id(0))", "*i64", False),  # one for the program
        ("tl.arange(0, B).to(tl.int64)", "*fp32", True),
        ("tl.arange(0, B).to(tl.int32)", "*fp32", False),
        ("tl.program_id(0).to(tl.int64)", "*fp32", False),
    ],
)
def test_offsets_of_64_bits_are_told_if_each_element_has_one(offsets: str, x: str, told: bool) -> None:
    body = f"i = {offsets}\ntl.store(y_ptr + i * n, 0.0)"
    assert ("R6" in ids(made(body, site(BODY + 1, "wide_multiply", 4), x=x))) is told
    assert "R6" not in ids(made(body, site(BODY + 1, "wide_multiply", 3), x=x))


def test_an_expression_of_any_depth_is_no_error() -> None:
    deep = "p" + " * 1" * 900
    body = f"p = tl.program_id(0)\nprint(1, 2, 3, 4, ({deep} % 2).to(tl.int64))\ntl.where({deep} > 0, {deep}, {deep})"
    assert "R6" not in ids(made(body, site(BODY + 1, "wide_multiply", 8)))


@compiled
@pytest.mark.parametrize(
    ("name", "cause", "recipe", "sources"),
    [
        ("started_anywhere", "needs `start`", "`tl.multiple_of(…, 8)`", ["aligned: `start`"]),
        ("masked_by_data", "The address is fine.", "tl.where", ["neighbours: `tl.load(keep_ptr + at) > 0`"]),
        ("counted_odd_rows", "`i < start`", "without a mask", ["(stride = 1000)", "aligned: `i < start`"]),
        ("odd_rows_to_a_constant", "`i < 1001`", "without a mask", ["(stride = 1000)", "aligned: `i < 1001`"]),
    ],
)
def test_what_no_argument_is_to_blame_for_is_said_without_a_diff(
    launches: Show, name: str, cause: str, recipe: str, sources: list[str]
) -> None:
    (finding,) = diagnose(launches("values", name)).findings
    assert cause in finding.cause
    assert recipe in finding.rewrite.recipe
    assert finding.rewrite.diff is None
    told = [each.text for each in finding.evidence if each.level == 1]
    assert [text for text, end in zip(told, sources, strict=True) if not text.endswith(end)] == []


@compiled
def test_an_argument_is_told_with_its_value_and_made_a_constant_only_if_that_helps(launches: Show) -> None:
    facts = launches("accesses", "odd_rows")
    value = facts.captured.integers["stride"]
    (finding,) = diagnose(facts).findings
    assert any(each.text.endswith(f"(stride = {value})") for each in finding.evidence)
    assert f"`stride` (stride = {value})" in finding.cause
    assert finding.rewrite.diff is not None
    odd = facts.captured.model_copy(update={"integers": {"stride": 1001}})
    (finding,) = diagnose(replace(facts, captured=odd)).findings
    assert finding.rewrite.diff is None
    assert "stride = 1001" in (finding.rewrite.no_diff or "")


@compiled
@pytest.mark.parametrize(("mask", "vec", "expected"), [(1, 8, "V2"), (1, 1, "V1"), (64, 1, "V1")])
def test_the_compilers_remark_says_whether_it_is_the_mask(launches: Show, mask: int, vec: int, expected: str) -> None:
    facts = launches("options", "ragged_rows")
    said = f"Warning: vectorization fails vec = 1 origin vec = {vec} numElems = 8 mask is {mask}"
    remarks = [each.model_copy(update={"message": said}) for each in facts.remarks or () if each.id == "narrow-access"]
    loads = [site for site in remarks if facts.source and any(a.line == site.line for a in facts.source.accesses)]
    assert loads
    assert [each.id for each in diagnose(replace(facts, remarks=loads)).findings] == [expected]


PERSISTENT = "p = tl.program_id(0)\nrow, column = 0, 0\nfor k in range(n):\n"


@pytest.mark.parametrize(("step", "told"), [("if k % 2 == 0:\n        ", False), ("if True:\n        ", True)])
def test_program_numbers_that_some_steps_divide_are_left_alone(step: str, told: bool) -> None:
    body = f"{PERSISTENT}    {step}row = p // n\n        column = p % n\n    tl.store(y_ptr + row, column)"
    sites = [site(line, "integer_division", 1, in_loop=True) for line in (BODY + 4, BODY + 5)]
    assert ("I11" in ids(made(body, *sites))) is told


def test_registers_that_limit_warps_are_folded_into_what_the_warps_wait_for() -> None:
    body, late = "i = tl.arange(0, B)\ntl.atomic_add(y_ptr + i % 64, 1.5, sem='relaxed')", starved()
    atomic = made(body, site(BODY + 1, "atomic", 2), atomics_of=256)
    told = diagnose(replace(late, file=atomic.file, source=atomic.source, lines=atomic.lines))
    assert [each.id for each in told.findings][:1] == ["A2"]
    assert "R3" in [each.id for each in told.findings[0].explains]


def test_what_explains_latency_comes_before_it() -> None:
    rules = {rule.id: rule for rule in RULES}
    accesses = {"V1", "V2", "V3", "V4", "V5", "V6", "V7", "V8", "V9", "V10", "V13", "V15"}
    for id in accesses | {"A1", "A2", "A3", "A4", "A5"}:
        assert {"M3", "R3"} <= rules[id].explains, id
    for id in ("V4", "V8", "V9", "V10"):
        assert {"M4", "M5"} <= rules[id].explains, id
    assert "P8" in rules["V10"].explains
    for symptom in ("M3", "R3", "M4", "M5"):
        assert all(rule.weight > rules[symptom].weight for rule in RULES if symptom in rule.explains), symptom


@pytest.mark.parametrize("kind", ["division", "multiply", "select"])
def test_a_deep_expression_is_told_by_a_part_of_its_text(kind: SiteKind) -> None:
    deep = " + ".join(["x"] * 2_000)
    body = f"x = tl.load(x_ptr)\nx = ({deep}) / scale\nx = tl.where(x > 0, {deep}, 0.0)\ntl.store(y_ptr, x)"
    told = ids(made(body, *(site(line, kind, 8) for line in (BODY + 1, BODY + 2))))
    assert ("I2" in told) is (kind == "division")


def test_what_has_no_rule_has_a_reason() -> None:
    dropped = {**vectorization.DROPPED, **registers.DROPPED}
    assert dropped.keys() == {"V11", "R8"}
    assert dropped.keys().isdisjoint(rule.id for rule in RULES)
    # Instructions are hypotheses until a profile shows that they are what the launch spends its time on.
    assert {rule.id for rule in instructions.RULES if not rule.if_busy} == {"I4", "I8", "I10"}
