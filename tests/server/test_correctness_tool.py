"""run_correctness with everything behind it, in the interpreter: what a task may ask, and what a kernel may not do."""

import itertools
import re
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from tests.faults.evaluations import KERNEL, TASK, Tools, failed, ignore, replaced, serving
from tritonforge.profiling import audit
from tritonforge.profiling.correctness import CaseResult
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.outcome import Kind
from tritonforge.server import audits
from tritonforge.server.settings import Settings
from tritonforge.server.tools.correctness_report import INPUTS_IN_WORDS
from tritonforge.server.tools.run_correctness import CorrectnessResult, run_correctness

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("warm")]


@pytest.fixture(scope="module")
async def tools(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Tools]:
    """Those of one server for the module: each evaluation has workers of its own."""
    async with serving(Settings(state_dir=tmp_path_factory.mktemp("state"))) as tools:
        yield tools


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything here is about the interpreter, whatever the machine has."""
    monkeypatch.setattr("tritonforge.server.services.GPU_DEVICE_FILES", ())


def task(text: str = TASK, **said: Any) -> str:
    """A task that says this as well."""
    return text + "".join(f"{name} = {value!r}\n" for name, value in said.items())


def doubling(argument: str = "x", result: str = "out", before: str = "") -> str:
    """A kernel file that doubles; its entry's body changed."""
    return f"""{KERNEL[: KERNEL.index("def double(x)")]}
def run(x):
    out = torch.empty_like(x)
    double_kernel[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), BLOCK=64)
    return out


{before}
def double({argument.partition(".")[0]}):
    out = run({argument})
    return {result}
"""


def right(result: CorrectnessResult) -> CaseResult:
    assert result.kind is Kind.OK, result.summary
    (case,) = result.cases
    assert (case.kind, case.message, case.wrong_elements) == (Kind.OK, None, 0)
    return case


def wrong(result: CorrectnessResult, check: str, inputs: str = "random") -> CaseResult:
    assert result.kind is Kind.WRONG, result.summary
    (case,) = result.cases
    assert (case.kind, case.check, case.inputs) == (Kind.WRONG, check, inputs), result.summary
    problem = result.problem
    assert problem is not None
    assert problem.stage == "compare"
    assert problem.message == case.message
    assert problem.message in result.summary
    assert problem.likely_cause
    assert problem.likely_fix
    return case


STRUCTURED = ["zeros", "ones", "ramp", "shifted", "large", "tiny", "negative_zero", "denormals"]


async def test_a_right_kernel_is_checked_on_structured_inputs_and_against_float64(tools: Tools) -> None:
    result = await tools.check()
    case = right(result)
    assert sorted(case.structured) == sorted(STRUCTURED)
    assert case.skipped == []
    assert (len(case.seeds), case.elements) == (1, 1000)
    assert case.accuracy is not None
    assert case.accuracy.error <= case.accuracy.allowed
    assert [(one.kernel, one.own, one.count) for one in case.launches] == [("double_kernel", True, 1)]
    assert (case.outside_triton_pct, case.outside_triton) == (None, [])
    assert "also on zeros, ones" in result.summary
    assert "error against float64" in result.summary
    assert result.made_smaller == {}


# Cases


LARGE = replaced(TASK, '{"n": 1000, "small": True}', '{"n": 1 << 22}')


async def test_without_a_small_case_the_first_is_made_smaller(tools: Tools) -> None:
    two = replaced(LARGE, '{"train"', '{"first": {"n": 5_000_001}, "train"')
    result = await tools.check(task=two)
    case = right(result)
    assert result.made_smaller == {"first": {"n": case.elements}}
    assert (1 << 14) < case.elements <= (1 << 15)
    assert f"No case is marked small: first was made smaller for the interpreter (n={case.elements})" in result.summary


async def test_a_case_that_cannot_be_made_smaller_is_rejected_with_the_remedy(tools: Tools) -> None:
    stubborn = replaced(LARGE, "torch.randn(n", "torch.randn(1 << 16")
    problem = failed(await tools.check(task=stubborn), Kind.REJECTED, "task")
    assert "case train can't be made smaller: its inputs have more than 32,768 elements" in problem.message
    assert "'small': True" in (problem.likely_fix or "")


async def test_a_case_that_is_named_runs_as_it_is(tools: Tools) -> None:
    two = replaced(TASK, '"small": True}', '"small": True}, "other": {"n": 70}')
    result = await tools.check(task=two, cases=["other"])
    assert right(result).elements == 70
    assert result.made_smaller == {}


# The task itself


@pytest.mark.parametrize(
    ("degenerate", "words"),
    [
        (replaced(TASK, "return x * 2", "return x * 0"), "zeros, shuffled reference"),
        (task(TOLERANCE={"float32": {"atol": 50.0}}), "zeros, ones, input copy, input mean, shuffled reference"),
        (task(replaced(TASK, "return x * 2", "return x + 1e-4"), TOLERANCE={"float32": {"atol": 1e-3}}), "input copy"),
    ],
    ids=["zeros", "tolerance", "copy"],
)
async def test_a_degenerate_task_is_rejected_with_the_impostors(tools: Tools, degenerate: str, words: str) -> None:
    problem = failed(await tools.check(task=degenerate), Kind.REJECTED, "audit")
    assert problem.message.startswith("case train is degenerate")
    assert problem.message.endswith(words)
    assert "TOLERANCE" in (problem.likely_fix or "")


async def test_a_copy_may_be_what_is_asked_for(tools: Tools) -> None:
    right(await tools.check(replaced(KERNEL, "x * 2", "x"), replaced(TASK, "return x * 2", "return x.clone()")))


async def test_every_case_is_audited_before_any_is_checked(tools: Tools) -> None:
    """One that proves nothing costs no call of the kernel, wherever it stands."""
    told: list[str] = []

    async def progress(done: float, total: float, message: str) -> None:
        told.append(message)

    two = replaced(TASK, '"small": True}', '"small": True}, "other": {"n": 70, "small": True}')
    await run_correctness(tools.services, progress, kernel=KERNEL, task=two, seeds=1)
    assert [message for message in told if message.startswith("checking")] == [
        "checking case train", "checking case other",
    ]  # fmt: skip
    told.clear()
    degenerate = replaced(two, "return x * 2", "return x * 2 if x.numel() > 70 else x * 0")
    with pytest.raises(Stopped) as stopped:
        await run_correctness(tools.services, progress, kernel=KERNEL, task=degenerate, seeds=1)
    assert stopped.value.problem.message.startswith("case other is degenerate")
    assert not [message for message in told if message.startswith("checking")]


RANDOM = replaced(TASK, "return x * 2", "return x * 2 + torch.rand_like(x) * 1e-6")


async def test_a_reference_that_is_not_deterministic_is_rejected_unless_meant(tools: Tools) -> None:
    problem = failed(await tools.check(task=RANDOM), Kind.REJECTED, "audit")
    assert "the reference is not deterministic" in problem.message
    right(await tools.check(task=task(RANDOM, NONDETERMINISTIC=True)))


async def test_a_task_is_audited_once_for_all_its_kernels(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = itertools.count()
    counted: list[int] = []

    async def counting(*arguments: Any) -> Any:
        counted.append(next(calls))
        return await audit.audit_case(*arguments)

    monkeypatch.setattr(audits, "audit_case", counting)
    fresh = TASK + "# Not seen by any other test.\n"
    first, second = right(await tools.check(task=fresh)), right(await tools.check(task=fresh))
    wrong(await tools.check(replaced(KERNEL, "x * 2", "x * 3"), fresh), "values")
    assert counted == [0]
    assert first.structured == second.structured
    right(await tools.check(task=fresh + "#\n"))
    assert counted == [0, 1]


# What a kernel may not do


@pytest.mark.parametrize(
    ("kernel", "check", "words"),
    [
        (replaced(KERNEL, "x * 2", "x * 3"), "values", "1,000 of 1,000 elements wrong"),
        (replaced(KERNEL, "mask=mask)\n\n", "mask=mask | True)\n\n"), "out_of_bounds", "after float32 (1000,) from"),
        (doubling(result="out, x.zero_()").replace("return out, x", "x"), "form", "got NoneType"),
        (doubling(before="", result="(out, x.zero_())[0]"), "inputs_changed", "input x ("),
        (doubling(result="x.mul_(2)"), "inputs_changed", "input x ("),
        (doubling(before="kept = torch.empty(1000)\n", result="kept.copy_(out)"), "reused_memory", "earlier call"),
        (
            doubling(before="calls = []\n", result="out * (1 + 2e-7 * bool(calls.append(0) or len(calls) > 2))"),
            "nondeterministic", "two calls on the same inputs differ: output, ",
        ),
        (doubling("x.half().float()", result="out"), "values", "elements wrong"),
    ],
    ids=[
        "values", "margins", "nothing returned", "input", "aliased input", "buffer", "calls", "half",
    ],
)  # fmt: skip
async def test_what_is_wrong_is_told_by_the_check_that_found_it(
    tools: Tools, kernel: str, check: str, words: str
) -> None:
    assert words in (wrong(await tools.check(kernel), check).message or "")


async def test_a_view_of_an_input_is_no_output(tools: Tools) -> None:
    halves = replaced(TASK, "return x * 2", "return x[::2].clone() * 2, x[1:].clone()")
    case = wrong(await tools.check(doubling(result="out[::2], x[1:]"), halves), "aliased")
    assert "output 1 shares memory with an input" in (case.message or "")
    right(await tools.check(doubling(result="out[::2], x[1:]"), halves.replace("x[1:].clone()", "x[1:]")))


async def test_a_kernel_that_fails_on_structured_inputs_only_is_wrong_there(tools: Tools) -> None:
    at_zero = replaced(KERNEL, "x * 2", "x / x * x * 2")
    case = wrong(await tools.check(at_zero), "values", "zeros")
    assert "NaN or Inf on one side" in (case.message or "")


def test_structured_inputs_have_words() -> None:
    assert set(INPUTS_IN_WORDS) == {*STRUCTURED, "nan", "inf"}


async def test_wrong_inputs_are_told_in_words(tools: Tools) -> None:
    at_zero = replaced(KERNEL, "x * 2", "x / x * x * 2")
    assert "- train: WRONG on inputs that are all zeros: output: " in (await tools.check(at_zero)).summary
    assert re.search(r"- train: WRONG with seed \d+: ", (await tools.check(replaced(KERNEL, "x * 2", "x * 3"))).summary)
    flat = replaced(STRIDED, "    x = x.contiguous()\n", "")
    assert "- train: WRONG on strided inputs: " in (await tools.check(flat, task(VIEWS=("strided",)))).summary


async def test_a_case_that_ends_early_leaves_the_next_one_its_worker(tools: Tools) -> None:
    two = replaced(TASK, '"small": True}', '"small": True}, "other": {"n": 70, "small": True}')
    at_zero = replaced(KERNEL, "x * 2", "x / x * x * 2")
    result = await tools.check(at_zero, two)
    assert result.kind is Kind.WRONG, result.summary
    assert [(case.case, case.check, case.inputs, case.elements) for case in result.cases] == [
        ("train", "values", "zeros", 1000), ("other", "values", "zeros", 70),
    ]  # fmt: skip


async def test_results_remembered_by_address_are_wrong_under_a_second_seed(tools: Tools) -> None:
    known = doubling(before="known = {}\n", result="known.setdefault(x.data_ptr(), out).clone()")
    result = await run_correctness(tools.services, ignore, kernel=known, task=TASK, seeds=2)
    assert len(wrong(result, "values").seeds) == 2


async def test_work_done_by_torch_is_told(tools: Tools) -> None:
    case = right(await tools.check(doubling(result="out.sin().asin() * 0 + x * 2")))
    assert case.outside_triton_pct is None
    assert case.outside_triton[0] == "output 0, which no launch was given"
    assert set(case.outside_triton[1:]) == {"aten.sin", "aten.asin", "aten.mul", "aten.add"}


# Precision

# Errors of fp16 are within this tolerance.
ROUGH = task(TOLERANCE={"float32": {"rtol": 1e-2, "atol": 1e-3}})
HALF = replaced(KERNEL, "x * 2", "(x.to(tl.float16) * 2).to(tl.float32)")


async def test_a_kernel_that_computes_in_fp16_is_told_by_its_accuracy(tools: Tools) -> None:
    case = wrong(await tools.check(HALF, ROUGH), "accuracy")
    assert case.wrong_elements == 0
    assert case.accuracy is not None
    assert 1e-5 < case.accuracy.error < 1e-3
    assert "less accurate than its type allows" in (case.message or "")


async def test_a_task_can_allow_less_accuracy(tools: Tools) -> None:
    # As many exponents as float32, so that it is right on large and tiny inputs too.
    short = HALF.replace("float16", "bfloat16")
    wrong(await tools.check(short, ROUGH), "accuracy")
    case = right(await tools.check(short, task(ROUGH, ERROR_FACTOR=1e5)))
    assert case.accuracy is not None
    assert case.accuracy.factor == 1e5


async def test_without_a_float64_reference_accuracy_is_skipped_with_the_reason(tools: Tools) -> None:
    bits = replaced(ROUGH, "return x * 2", "return x.view(torch.int32).view(torch.float32) * 2")
    case = right(await tools.check(HALF, bits))
    assert case.accuracy is None
    skipped = {one.name: one.reason for one in case.skipped}
    assert skipped["large"] == "no float64 reference"
    assert "the reference does not work in float64" in skipped["accuracy against float64"]


# What a task may say


IN_PLACE = task(replaced(TASK, "return x * 2", "x.mul_(2)"), IN_PLACE=("x",))
INTO = replaced(KERNEL, "    out = torch.empty_like(x)\n", "    out = x\n").replace("    return out\n", "")


async def test_an_argument_in_place_is_the_output(tools: Tools) -> None:
    case = right(await tools.check(INTO, IN_PLACE))
    assert case.worst_output == "output['x']"
    case = wrong(await tools.check(replaced(INTO, "x * 2", "x * 3"), IN_PLACE), "values")
    assert case.worst_output == "output['x']"


STRIDED = replaced(
    KERNEL, "    out = torch.empty_like(x)\n", "    out = torch.empty(x.shape)\n    x = x.contiguous()\n"
)


async def test_layouts_that_a_task_allows_are_tried(tools: Tools) -> None:
    views = task(VIEWS=("offset", "strided"))
    case = right(await tools.check(STRIDED, views))
    assert case.structured[-2:] == ["offset inputs", "strided inputs"]
    # Without strides in its arguments the kernel takes every tensor for a contiguous one.
    flat = replaced(KERNEL, "torch.empty_like(x)", "torch.empty(x.shape)")
    wrong(await tools.check(flat, views), "values", "strided inputs")
    right(await tools.check(flat))


async def test_values_that_are_not_finite_are_tried_where_a_task_allows_them(tools: Tools) -> None:
    special = task(SPECIAL_VALUES=("nan", "inf"))
    case = right(await tools.check(task=special))
    assert case.structured[-2:] == ["nan", "inf"]
    clean = replaced(KERNEL, "x * 2", "tl.where(x == x, x * 2, 0.0)")
    wrong(await tools.check(clean, special), "values", "nan")
    right(await tools.check(clean))


async def test_strides_count_where_a_task_says_so(tools: Tools) -> None:
    square = replaced(TASK, "torch.randn(n,", "torch.randn(20, n // 20,")
    turned = doubling(result="out.t().contiguous().t()")
    right(await tools.check(turned, square))
    case = wrong(await tools.check(turned, task(square, STRIDES=True)), "form")
    assert case.message == "output: expected strides (50, 1), got (1, 20)"
    right(await tools.check(task=task(square, STRIDES=True)))


async def test_results_may_differ_from_call_to_call_where_a_task_says_so(tools: Tools) -> None:
    unsteady = doubling(before="calls = []\n", result="out * (1 + 2e-7 * bool(calls.append(0) or len(calls) > 2))")
    result = await tools.check(unsteady, task(NONDETERMINISTIC=True))
    case = right(result)
    assert case.nondeterministic is not None
    assert 0 < case.nondeterministic.elements <= 1000
    assert "(allowed by the task)" in result.summary


# Gradients

GRAD = task(GRAD=True)
FUNCTION = doubling(result="Double.apply(x)", before="""\
class Double(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return run(x)

    @staticmethod
    def backward(context, gradient):
        return run(gradient)


""")  # fmt: skip


async def test_a_right_backward_is_right(tools: Tools) -> None:
    case = right(await tools.check(FUNCTION, GRAD))
    assert case.elements == 2000
    assert "zeros" in case.structured
    assert case.accuracy is not None


async def test_a_wrong_backward_is_wrong_though_the_outputs_are_right(tools: Tools) -> None:
    case = wrong(await tools.check(replaced(FUNCTION, "return run(gradient)", "return run(gradient) * 1.5"), GRAD),
                 "values")  # fmt: skip
    assert case.worst_output == "gradient of x"
    # An upstream gradient that happens to be next to nothing hides the mistake.
    assert 990 <= case.wrong_elements <= 1000


async def test_an_output_without_a_gradient_is_rejected_with_the_remedy(tools: Tools) -> None:
    problem = failed(await tools.check(task=GRAD), Kind.REJECTED, "run")
    assert "wrap the launches in a torch.autograd.Function" in problem.message


async def test_gradients_need_a_reference(tools: Tools) -> None:
    bare = TASK[: TASK.index("def reference")] + "GRAD = True\n"
    problem = failed(await tools.check(task=bare, baseline=KERNEL), Kind.REJECTED, "task")
    assert "reference" in problem.message


# A baseline in the reference's place

BARE = TASK[: TASK.index("def reference")]


async def test_a_baseline_is_the_reference_where_the_task_has_none(tools: Tools) -> None:
    result = await tools.check(task=BARE, baseline=KERNEL)
    case = right(result)
    assert result.reference == "baseline"
    assert case.structured == ["zeros", "ones", "ramp", "shifted", "negative_zero"]
    assert {one.name for one in case.skipped} == {"large", "tiny", "denormals", "accuracy against float64"}
    assert case.accuracy is None
    wrong(await tools.check(replaced(KERNEL, "x * 2", "x * 3"), BARE, baseline=KERNEL), "values")


async def test_a_baseline_that_proves_nothing_is_rejected(tools: Tools) -> None:
    nothing = replaced(KERNEL, "x * 2", "x * 0")
    problem = failed(await tools.check(task=BARE, baseline=nothing), Kind.REJECTED, "audit")
    assert "zeros" in problem.message


@pytest.mark.parametrize(
    ("stage", "failing"),
    [("run", replaced(KERNEL, "    return out", "    1 / 0\n    return out")), ("load", KERNEL + "1 / 0\n")],
)
async def test_a_failing_baseline_is_named_as_such(tools: Tools, stage: str, failing: str) -> None:
    problem = failed(await tools.check(task=BARE, baseline=failing), Kind.RUNTIME_ERROR, stage)
    assert problem.message.startswith("the baseline failed: ZeroDivisionError")


# The sanitizer


async def test_the_sanitizer_is_unavailable_without_a_gpu(tools: Tools) -> None:
    problem = failed(await tools.check(sanitized=True), Kind.UNAVAILABLE, "sanitize")
    assert "no NVIDIA GPU" in problem.message
