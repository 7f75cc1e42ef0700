"""Rules of tuning and of the host: hypotheses from the source."""

import ast
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tritonforge.profiling.diagnosis.engine import diagnose
from tritonforge.profiling.diagnosis.facts import Call, Facts
from tritonforge.profiling.diagnosis.model import Level

from .made_up import profile, written
from .sources import CAUSAL, PRODUCT, found, told_of

ROWS = """
import torch
import triton
import triton.language as tl

{tuner}
@triton.jit
def kernel(x_ptr, y_ptr, M, N, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, N, BLOCK):
        total += tl.load(x_ptr + tl.program_id(0) * N + start + i)
    {store}

@triton.jit
def other(x_ptr, y_ptr):
    pass

def entry(x, scale):
{entry}
"""
STORE = "tl.store(y_ptr + tl.program_id(0) * BLOCK + i, total)"
CALL = """    y = torch.empty_like(x)
    M, N = x.shape
    kernel[(M,)](x, y, M, N{last})
    return y"""
CONFIGS = "[triton.Config({'BLOCK': b}, num_stages=s) for b in [256, 512] for s in [3, 4]]"
SIGNATURE = {"x_ptr": "*fp16", "y_ptr": "*fp32", "M": "i32", "N": "i32", "BLOCK": "constexpr"}


def rows(tuner: str = "", entry: str = CALL, store: str = STORE, last: str = ", BLOCK=1024", **launch: Any) -> Facts:
    text = ROWS.format(tuner=tuner, store=store, entry=entry.replace("{last}", last))
    return written(text, signature=SIGNATURE, **{"constexprs": {"BLOCK": 1024}} | launch)


def tuned(configs: str = CONFIGS, key: str = "['N']", more: str = "", store: str = STORE, entry: str = CALL) -> Facts:
    return rows(f"@triton.autotune(configs={configs}, key={key}{more})", entry, store, last="")


def ids(facts: Facts) -> list[str]:
    told = diagnose(facts)
    assert told.findings == []
    return [each.id for each in told.hypotheses]


def product(configs: str, key: str = "['K']") -> Facts:
    """The list has a name in the module."""
    tuner = f"CONFIGS = {configs}\n\n@triton.autotune(CONFIGS, key={key})\n@triton.jit"
    return written(PRODUCT.replace("@triton.jit", tuner))


def test_a_plain_launch_and_a_plain_tuner_give_no_hypothesis() -> None:
    assert ids(rows()) == []
    assert ids(tuned()) == []


ADDED = "tl.atomic_add(y_ptr + i, total)"


def test_tuning_on_live_data_is_told_with_the_argument_to_restore() -> None:
    finding = found(tuned(store=ADDED), "U1")
    assert (finding.line, finding.excerpt) == (6, f"@triton.autotune(configs={CONFIGS}, key=['N'])")
    assert finding.rewrite.diff is not None
    assert "key=['N'], restore_value=[\"y_ptr\"])" in finding.rewrite.diff
    assert ids(tuned(store="tl.store(y_ptr + i, tl.load(y_ptr + i) + total)")) == ["U1"]


@pytest.mark.parametrize(
    "facts",
    [
        tuned(store=ADDED, more=", reset_to_zero=['y_ptr']"),
        tuned(store=ADDED, more=", restore_value=['y_ptr']"),
        tuned(store=ADDED, more=", restore_value=NAMES"),
        tuned(store=ADDED, more=", pre_hook=clear"),
        tuned(configs="[triton.Config({'BLOCK': 256}, pre_hook=clear), triton.Config({'BLOCK': 512})]", store=ADDED),
        tuned(configs="[triton.Config({'BLOCK': 256})]", store=ADDED),
        tuned(configs="made_elsewhere()", store=ADDED),
        tuned(store="tl.atomic_max(y_ptr + i, total)"),
        tuned(store="tl.store(y_ptr + i, tl.load(y_ptr + i + BLOCK) + total)"),
        rows(store=ADDED),
    ],
)
def test_data_that_is_restored_or_not_tuned_on_is_not_told(facts: Facts) -> None:
    assert "U1" not in ids(facts)


def test_a_key_without_the_length_of_a_products_loop_is_told() -> None:
    two = "[triton.Config({'S': s}) for s in (64, 128)]"
    finding = found(product(two, "['M']"), "U2")
    assert finding.line == 7
    assert finding.evidence[0].text.endswith("depends on K")
    for configs, key in ((two, "['K']"), (two, "['k_bucket']"), (two, "KEYS"), ("[triton.Config({'S': 64})]", "['M']")):
        assert told_of(diagnose(product(configs, key)), "U2") is None
    assert "U2" not in ids(tuned(key="['M']"))  # a loop without a product


def test_a_key_that_changes_with_the_batch_is_told_where_many_configurations_are_tried() -> None:
    eight = "[triton.Config({'BLOCK': b}, num_stages=s) for b in (256, 512) for s in (2, 3, 4, 5)]"
    assert ids(tuned(eight, "['M', 'N']")) == ["U3"]
    assert ids(tuned(eight, "['N']")) == []
    assert ids(tuned(eight, "['M', 'N']", entry=CALL.replace("x.shape", "weight.shape"))) == []
    assert ids(tuned(CONFIGS, "['M', 'N']")) == []
    assert ids(tuned("[triton.Config({'BLOCK': f(b)}) for b in range(9)]", "['M', 'N']")) == []


@pytest.mark.parametrize(
    ("configs", "missing"),
    [
        ("[triton.Config({'BLOCK': 256}, num_stages=s) for s in (3, 4, 7)]", "5, 6"),
        (
            "[triton.Config({'BLOCK': 256}, 4, 1), triton.Config({'BLOCK': 256}), triton.Config({'BLOCK': 256}, 4, 4)]",
            "2",
        ),
        ("[triton.Config({'BLOCK': b}) for b in (128, 256, 2048)]", "512, 1024"),
        ("[triton.Config({'BLOCK': 256}, num_warps=w) for w in (1, 2, 8)]", "4"),
    ],
)
def test_a_hole_in_a_tuners_list_is_told(configs: str, missing: str) -> None:
    assert found(tuned(configs), "U15").evidence[0].text.endswith(f"but not at {missing}")


@pytest.mark.parametrize("values", ["(128, 256, 512)", "(128, 2048)", "(96, 256, 1024)", "VALUES", "(0, 2, 8)"])
def test_a_list_without_holes_or_that_can_not_be_read_is_not_told(values: str) -> None:
    assert ids(tuned(f"[triton.Config({{'BLOCK': b}}) for b in {values}]")) == []


@pytest.mark.parametrize(
    ("configs", "told"),
    [
        ("[triton.Config({'S': 64}, num_stages=s) for s in (1, 2)]", "more than 2 stages"),
        ("[triton.Config({'BLOCK_M': 128, 'BLOCK_N': 256}), triton.Config({'S': 64})]", "128 by 256 has 4 warps"),
        ("[triton.Config({'BM': 256, 'BN': 128}, num_warps=4), triton.Config({'S': 64})]", "256 by 128 has 4 warps"),
        ("[triton.Config({'S': 64}, num_stages=s) for s in (2, 3)]", None),
        ("[triton.Config({'BLOCK_M': 128, 'BLOCK_N': 256}, num_warps=8), triton.Config({'S': 64})]", None),
        ("[triton.Config({'BLOCK_M': 128, 'BLOCK_N': 128}), triton.Config({'S': 64})]", None),
        ("[triton.Config({'S': 64}, num_stages=STAGES)]", None),
    ],
)
def test_a_list_of_older_gpus_is_told_for_products(configs: str, told: str | None) -> None:
    finding = told_of(diagnose(product(configs)), "U7")
    assert (finding is None) == (told is None)
    assert finding is None or told is None or finding.evidence[0].text.endswith(told)


def test_a_size_of_the_batch_that_is_compiled_in_is_told() -> None:
    text = (
        CAUSAL.replace("n, BLOCK", "n: tl.constexpr, BLOCK", 1) + "\ndef entry(x, y):\n    kernel[(4,)](x, y, {}, 64)\n"
    )
    assert ids(written(text.format("x.shape[0]"), constexprs={"n": 1000, "BLOCK": 64})) == ["G7"]
    assert ids(written(text.format("x.shape[1]"), constexprs={"n": 1000, "BLOCK": 64})) == []
    assert ids(written(text.format("x.numel()"), constexprs={"n": 1024, "BLOCK": 64})) == []


@pytest.mark.parametrize(
    ("id", "entry", "line"),
    [
        ("H4", "    y = torch.empty_like(x)\n    kernel[(4,)](x.float(), y, 4, 64, BLOCK=1024)", 21),
        ("H4", "    w = x.to(torch.float32)\n    kernel[(4,)](w, x, 4, 64, BLOCK=1024)", 20),
        ("H4", "    w = x.to(dtype=scale.dtype)\n    kernel[(4,)](w, x, 4, 64, BLOCK=1024)", 20),
        ("H5", CALL.replace("empty", "zeros"), 20),
        ("H6", CALL + " * scale", 23),
        ("H6", CALL.replace("return y", "y += scale\n    return y"), 23),
        ("H6", CALL.replace("return y", "return torch.relu(y)"), 23),
        ("H6", CALL.replace("return y", "return y.mul_(scale)"), 23),
        ("H7", "    t = torch.tensor([1, 2], device=x.device)\n    kernel[(4,)](x, t, 4, 64, BLOCK=1024)", 20),
        ("M7", CALL.replace("return y", "return y.to(x.dtype)"), 23),
        ("M7", CALL.replace("return y", "return y.half()"), 23),
    ],
)
def test_waste_of_the_host_is_a_hypothesis_on_its_line(id: str, entry: str, line: int) -> None:
    told = diagnose(rows(entry=entry))
    assert [(each.id, each.line, each.level) for each in told.hypotheses] == [(id, line, Level.SOURCE)]
    assert told.findings == []


@pytest.mark.parametrize(
    "entry",
    [
        "    kernel[(4,)](x.to(scale), x.cuda(), 4, 64, BLOCK=1024)",
        "    w = x.float()\n    kernel[(4,)](x, scale, 4, 64, BLOCK=1024)\n    return w",
        CALL.replace("empty", "zeros").replace("return y", "other[(1,)](y, x)\n    return y"),
        CALL.replace("return y", "return (y, M * N)"),
        CALL.replace("return y", "dist.all_reduce(y)\n    return y * scale"),
        "    for start in range(0, M, 65535):\n        kernel[(4,)](x, x, 4, 64, BLOCK=1024)",
        "    kernel[(4,)](x.amax(1).float(), x, 4, 64, BLOCK=1024)",
        "    t = torch.tensor([1])\n    u = torch.tensor(1, device='cpu')\n    kernel[(4,)](x, x, 4, 64, BLOCK=1024)",
        "    t = torch.empty(4, device=x.device)\n    kernel[(4,)](x, t, 4, 64, BLOCK=1024)",
    ],
)
def test_a_host_that_wastes_nothing_is_left_alone(entry: str) -> None:
    assert ids(rows(entry=entry)) == []


@pytest.mark.parametrize(
    "store",
    [
        ADDED,
        f"if tl.program_id(0) > M:\n        {STORE}",
        "tl.store(y_ptr + i, total + tl.load(y_ptr + i))",
        "other(x_ptr, y_ptr)",
        f"{STORE}\n    other(x_ptr, y_ptr)",
    ],
)
def test_zeros_that_may_be_needed_are_left_alone(store: str) -> None:
    facts = rows(entry=CALL.replace("empty", "zeros"), store=store)
    assert "H5" not in ids(facts)


def test_zeros_in_vain_have_an_edit_with_its_condition() -> None:
    finding = found(rows(entry=CALL.replace("empty", "zeros")), "H5")
    assert finding.rewrite.diff is not None
    assert "+    y = torch.empty_like(x)" in finding.rewrite.diff
    assert finding.rewrite.applies_if == "the programs together store every element of `y`"


def test_sums_of_several_programs_may_stay_wide() -> None:
    assert "M7" not in ids(rows(entry=CALL.replace("return y", "return y.half()"), store=f"{STORE}\n    {ADDED}"))


def test_a_result_for_the_next_kernel_alone_is_told_of_element_wise_kernels() -> None:
    entry = CALL.replace("return y", "z = torch.empty_like(x)\n    other[(1,)](y, z)\n    return z")
    text = ROWS.replace("for start in range(0, N, BLOCK):", "if M > 0:").replace(" + start", "")

    def handed(text: str, entry: str) -> Facts:
        return written(text.format(tuner="", store=STORE, entry=entry.replace("{last}", "")), signature=SIGNATURE)

    finding = found(handed(text, entry), "H8")
    assert finding.line == 24
    assert ids(handed(text, entry.replace("return z", "return y, z"))) == []
    assert ids(handed(ROWS, entry)) == []
    assert ids(handed(text.replace("{store}", "tl.store(y_ptr, tl.sum(total))"), entry)) == []


def test_an_expression_too_deep_to_print_is_no_fault_of_ours() -> None:
    deep = "(" + " + ".join(["x"] * 2_500) + ")"
    entry = f"    y = {deep}.t().contiguous()\n    kernel[(4,)](y, y, 4, {deep}.numel(), BLOCK=1024)"
    assert ids(rows(entry=entry)) == ["H1"]
    assert ids(tuned(key="['M', 'N']", entry=entry.replace(", BLOCK=1024", ""))) == ["H1"]


LAUNCH = "kernel[(4,)](x, w, 4, 64, BLOCK=1024)"


@pytest.mark.parametrize(
    ("id", "entry"),
    [
        ("H1", f"    w = x.clone()\n    {LAUNCH}"),
        ("H1", f"    w = x.transpose(0, 1).contiguous()\n    {LAUNCH}"),
        ("H1", f"    w = x.mT\n    w = w.contiguous()\n    {LAUNCH}"),
        ("H1", f"    w = x[:, 8:].contiguous()\n    {LAUNCH}"),
        ("H1", f"    w = x[..., 0].contiguous()\n    {LAUNCH}"),
        ("H1", f"    if scale:\n        w = x.t().contiguous()\n        {LAUNCH}"),
        ("H2", f"    w = x.sum().item()\n    {LAUNCH}"),
        ("H2", f"    if scale:\n        w = x.sum().item()\n        {LAUNCH}"),
        ("H3", f"    while scale > x:\n        {LAUNCH}"),
    ],
)
def test_copies_waits_and_loops_of_each_launch_are_told(id: str, entry: str) -> None:
    assert ids(rows(entry=entry)) == [id]


@pytest.mark.parametrize(
    "entry",
    [
        f"    w = x.contiguous()\n    {LAUNCH}",  # free where it is contiguous
        f"    w = x[:8].contiguous()\n    {LAUNCH}",
        f"    w = x[0, 1].contiguous()\n    {LAUNCH}",
        f"    w = x[:, :].contiguous()\n    {LAUNCH}",
        f"    if x.stride(-1) != 1:\n        w = x.t().contiguous()\n    {LAUNCH}",
        f"    {LAUNCH}\n    return w.clone(), x.t().contiguous()",
        f"    if scale:\n        w = x.sum().item()\n        other[(1,)](x, w)\n    else:\n        {LAUNCH}",
        f"    if scale:\n        torch.cuda.synchronize()\n    {LAUNCH}",
        f"    pass\n\ndef test_it(x):\n    w = x.clone()\n    for _ in range(4):\n        {LAUNCH}\n    w.item()",
    ],
)
def test_copies_and_waits_that_need_not_be_are_left_alone(entry: str) -> None:
    assert ids(rows(entry=entry)) == []


COPIED = f"    w = x.clone()\n    {LAUNCH}"
AGAIN = f"    while scale > x:\n        {LAUNCH}"


def called(**changed: Any) -> Call:
    given: dict[str, Any] = {
        "us": 100.0,
        "launches": 2,
        "others_us": 30.0,
        "others": ("copy_kernel", "fill"),
        "complete": True,
    }
    return Call(**given | changed)


def test_a_profile_of_the_call_confirms_a_copy_with_its_share() -> None:
    (finding,) = diagnose(replace(rows(entry=COPIED), call=called())).findings
    assert (finding.id, finding.level) == ("H1", Level.PROFILE)
    assert (finding.gain.expected_pct, finding.gain.at_most_pct) == (30.0, 30.0)
    assert "30 % of the call's time on the GPU (copy_kernel, fill)" in finding.evidence[-1].text


def test_a_complete_profile_without_other_launches_falsifies_a_copy() -> None:
    alone = called(launches=1, others_us=0.0, others=())
    assert ids(replace(rows(entry=COPIED), call=alone)) == []
    assert ids(replace(rows(entry=COPIED), call=replace(alone, complete=False))) == ["H1"]


def test_a_copy_that_may_be_free_is_told_where_the_profile_has_one() -> None:
    facts = rows(entry=f"    w = x.contiguous()\n    {LAUNCH}")
    assert [each.id for each in diagnose(replace(facts, call=called())).findings] == ["H1"]
    assert ids(replace(facts, call=called(others=("fill",)))) == []


def test_a_loop_is_told_with_the_launches_that_were_counted() -> None:
    (finding,) = diagnose(replace(rows(entry=AGAIN), call=called(us=80.0, launches=8, complete=False))).findings
    assert (finding.id, finding.level) == ("H3", Level.PROFILE)
    assert finding.evidence[-1].text == "at least 8 launches of 10.0 us in a call"
    assert ids(replace(rows(entry=AGAIN), call=called(launches=1))) == []


@pytest.mark.parametrize(("part", "expected"), [("x[b]", 67.5), ("x[0]", None), ("x", None)])
def test_launches_of_their_own_slices_are_expected_to_fill_the_gpu_as_one(part: str, expected: float | None) -> None:
    facts = rows(entry=f"    for b in range(8):\n        {LAUNCH.replace('(x, ', f'({part}, ')}")
    seen = profile(memory_pct=8.5, compute_pct=5.0, issue_slot_pct=7.0)
    (finding,) = diagnose(replace(facts, profile=seen, call=called(launches=8, others_us=25.0))).findings
    assert (finding.id, finding.gain.expected_pct) == ("H3", expected)


@pytest.mark.parametrize(
    ("stages", "loop", "told"),
    [("1, 2, 4, 8", True, False), ("1, 2, 5", True, True), ("1, 2, 5", False, False)],
)
def test_stages_that_double_or_do_nothing_leave_no_hole(stages: str, loop: bool, told: bool) -> None:
    configs = f"[triton.Config({{'BLOCK': 256}}, num_stages=s) for s in ({stages})]"
    facts = tuned(configs)
    if not loop:
        text = (
            facts.file.text.replace("for start in range(0, N, BLOCK):", "for start in tl.static_range(4):")
            if facts.file
            else ""
        )
        facts = written(text, signature=SIGNATURE, constexprs={"BLOCK": 1024})
    assert ("U15" in ids(facts)) is told


def test_rules_of_the_host_walk_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    walked: list[ast.AST] = []
    facts, walk = rows(entry=CALL), ast.walk

    def counted(node: ast.AST) -> Iterator[ast.AST]:
        if isinstance(node, ast.FunctionDef) and node.name == "entry":
            walked.append(node)
        return walk(node)

    monkeypatch.setattr(ast, "walk", counted)
    assert ids(facts) == []
    assert len(walked) == 1
