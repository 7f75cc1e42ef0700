"""One call of an entry between real workers: what it did beside returning right values is seen and told by name."""

import itertools
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import pytest

from tests.sandbox.conftest import H100, KERNEL_HEAD, describe_task
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.executors.base import Executor
from tritonforge.sandbox.facts import Verification
from tritonforge.sandbox.outcome import Kind
from tritonforge.sandbox.replies import Values
from tritonforge.sandbox.source import Source
from tritonforge.sandbox.workers import Call, KernelWorker, TaskWorker, interpreter_worker, task_worker

pytestmark = pytest.mark.anyio

KEY = b"\x01\x23\x45\x67\x89\xab\xcd\xef"
MARGIN = 16384
TASK = """\
import torch

ENTRY = "entry"
CASES = {"train": {"n": 100}, "large": {"n": 1 << 20}, "wide": {"n": 300}}


def make_inputs(n, device):
    return (torch.randn(n, device=device),)


def reference(x):
    return x * 2
"""
RIGHT = "def entry(x):\n    return launch(x, torch.empty_like(x))\n"
LINE = KERNEL_HEAD.count("\n") + 2
"""Of what stands in an entry's first line."""

Load = Callable[..., Awaitable[None]]
Evaluate = Callable[..., Awaitable[tuple[Call, Verification]]]


@pytest.fixture(scope="module")
async def tasks(executor: Executor) -> AsyncGenerator[TaskWorker]:
    """One worker for all tasks of the module: a task replaces the one before."""
    async with task_worker(executor, on_gpu=False) as worker:
        yield worker


@pytest.fixture(scope="module")
async def kernels(executor: Executor) -> AsyncGenerator[KernelWorker]:
    """One worker for all kernel files of the module: none does harm."""
    async with interpreter_worker(executor, target=H100) as worker:
        yield worker


@pytest.fixture
def load(tasks: TaskWorker, kernels: KernelWorker) -> Load:
    """A task and a kernel file, the inputs made and handed over, the outputs expected."""

    async def run(
        entry: str, task: str = TASK, case: str = "train", offset: int = 0, reuse: bool = False, **inputs: Any
    ) -> None:
        spec = await tasks.load(Source(task, "task.py", None))
        made, _ = await tasks.make_and_expect(case, 1, **inputs)
        await kernels.load(Source(KERNEL_HEAD + entry, "kernel.py", None), describe_task(in_place=spec.in_place))
        await kernels.set_inputs(made, offset=offset, reuse=reuse)

    return run


@pytest.fixture
def evaluate(tasks: TaskWorker, kernels: KernelWorker, load: Load) -> Evaluate:
    """One call with margins, judged."""

    async def run(entry: str, *more: Any, key: bytes | None = KEY, **inputs: Any) -> tuple[Call, Verification]:
        await load(entry, *more, **inputs)
        call = await kernels.call(key)
        return call, await tasks.judge(call.values, key or KEY)

    return run


def is_right(found: Verification) -> bool:
    return all(output.mismatch is None and not output.wrong_elements for output in found.outputs)


def part(call: Call, name: str) -> Any:
    return dict(call.values.tree["dict"])[name]


async def again(tasks: TaskWorker, kernels: KernelWorker, key: bytes | None = KEY) -> list[Any]:
    return await tasks.repeat((await kernels.call(key)).values)


# A right call


async def test_a_right_call_is_told_with_what_it_launched_and_where_its_tensors_lie(evaluate: Evaluate) -> None:
    call, found = await evaluate(RIGHT)
    assert is_right(found)
    assert (found.changed, found.broken) == ([], [])
    facts = call.facts
    assert facts.labels == ["input x", f"float32 (100,) from torch.empty_like, kernel.py line {LINE}"]
    assert [(one.kernel, one.symbol, one.own, one.count) for one in facts.launched] == [("double", "double", True, 1)]
    assert (facts.touched, facts.operations, facts.activities) == ([True], {}, None)
    assert [stop - start for start, stop in (*facts.outputs_at, *facts.inputs_at)] == [400, 400]


async def test_a_call_without_a_key_has_no_margins_and_the_same_outputs(evaluate: Evaluate) -> None:
    call, found = await evaluate(RIGHT, key=None)
    assert is_right(found)
    assert (found.changed, found.broken, call.facts.labels, call.facts.operations) == ([], [], [], {})
    assert part(call, "margins")["tensor"]["shape"] == [0, 2, MARGIN]
    assert len(call.facts.launched) == 1


async def test_large_tensors_have_margins_as_well(evaluate: Evaluate) -> None:
    copying = "def entry(x):\n    out = torch.mul(x, 2)\n    launch(x[:64], torch.empty(64))\n    return out\n"
    call, found = await evaluate(copying, TASK, "large")
    assert is_right(found)
    assert found.broken == []
    assert part(call, "margins")["tensor"]["shape"] == [2, 2, MARGIN]


# Stores outside


WRITES = """\
@triton.jit
def write_kernel(x_ptr, first, count):
    for i in range(count):
        tl.store(x_ptr + first + i, 7.5)


def write(x, first, count):
    write_kernel[(1,)](x, first, count)


"""
"""Writes `count` elements, the first of them so many elements from a tensor's first."""


@pytest.mark.parametrize(
    ("written", "label", "side", "size", "distance"),
    [
        ("out, 100, 28", "float32 (100,) from torch.empty_like", "after", 112, 0),
        ("out, -2, 1", "float32 (100,) from torch.empty_like", "before", 4, 4),
        ("x, -3, 3", "input x", "before", 12, 0),
        ("x, 107, 1", "input x", "after", 4, 28),
    ],
)
async def test_stores_outside_of_tensors_are_seen_with_their_place(
    evaluate: Evaluate, written: str, label: str, side: str, size: int, distance: int
) -> None:
    entry = f"def entry(x):\n    out = torch.empty_like(x)\n    write({written})\n    return launch(x, out)\n"
    call, found = await evaluate(WRITES + entry)
    assert is_right(found)
    assert found.changed == []
    (broken,) = found.broken
    assert call.facts.labels[broken.index].startswith(label)
    assert (broken.side, broken.bytes, broken.distance) == (side, size, distance)


async def test_a_mask_with_the_wrong_bound_is_seen(evaluate: Evaluate) -> None:
    entry = "def entry(x):\n    out = torch.empty_like(x)\n    double[(2,)](x, out, 128, BLOCK=64)\n    return out\n"
    _, found = await evaluate(entry)
    assert is_right(found)
    assert [broken.side for broken in found.broken] == ["after"]


COPIES = """\
@triton.jit
def copy(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets))


def entry(x):
    out = torch.empty_like(x)
    copy[(2,)](x, out, BLOCK=64)
    return out
"""


async def test_a_copy_without_any_mask_is_seen(evaluate: Evaluate) -> None:
    _, found = await evaluate(COPIES, TASK.replace("x * 2", "x.clone()"))
    assert is_right(found)
    assert [broken.side for broken in found.broken] == ["after"]


async def test_margins_filled_with_another_key_are_broken(tasks: TaskWorker, kernels: KernelWorker, load: Load) -> None:
    await load(RIGHT)
    call = await kernels.call(KEY)
    assert len((await tasks.judge(call.values, bytes(8))).broken) == 4


async def test_a_key_changes_from_call_to_call_where_it_is_asked_to(
    tasks: TaskWorker, kernels: KernelWorker, load: Load
) -> None:
    await load(RIGHT)
    for key in (KEY, bytes(range(8)), KEY):
        assert (await tasks.judge((await kernels.call(key)).values, key)).broken == []


# Inputs


async def test_a_changed_input_is_named_with_the_number_of_its_elements(evaluate: Evaluate) -> None:
    _, found = await evaluate(
        "def entry(x):\n    out = launch(x, torch.empty_like(x))\n    x[:3] += 1\n    return out\n"
    )
    assert is_right(found)
    (changed,) = found.changed
    assert (changed.where, changed.elements, changed.max_abs_difference) == ("input x", 3, pytest.approx(1.0))


async def test_an_input_that_a_kernel_writes_to_is_changed_also_without_margins(evaluate: Evaluate) -> None:
    _, found = await evaluate("def entry(x):\n    out = x * 2\n    launch(x, x)\n    return out\n", key=None)
    assert [change.where for change in found.changed] == ["input x"]


IN_PLACE = TASK.replace("return x * 2", "x.mul_(2)") + "IN_PLACE = ('x',)\n"


async def test_an_argument_in_place_may_change_and_is_the_output(evaluate: Evaluate) -> None:
    call, found = await evaluate("def entry(x):\n    launch(x, x)\n", IN_PLACE)
    assert is_right(found)
    assert found.changed == []
    assert call.facts.outputs_at == call.facts.inputs_at


async def test_a_call_leaves_the_inputs_of_the_next_one_alone(
    tasks: TaskWorker, kernels: KernelWorker, evaluate: Evaluate
) -> None:
    await evaluate("def entry(x):\n    launch(x, x)\n", IN_PLACE)
    for key in (None, KEY, None):
        assert await again(tasks, kernels, key) == []


@pytest.mark.parametrize("layout", ["plain", "strided", "broadcast"])
async def test_inputs_keep_their_layout_between_margins(evaluate: Evaluate, layout: str) -> None:
    task = TASK.replace("torch.randn(n", "torch.randn(4, n")
    tell = "def entry(x):\n    launch(x[0].contiguous(), torch.empty(100))\n    return x * 2, list(x.stride())\n"
    call, _ = await evaluate(tell, task, layout=layout)
    strides = {"plain": [100, 1], "strided": [200, 2], "broadcast": [0, 1]}
    told = [node["value"] for node in part(call, "outputs")["tuple"][1]["list"]]
    assert told == strides[layout]


@pytest.mark.parametrize(("offset", "remainder"), [(0, 0), (1, 4)])
async def test_inputs_are_aligned_unless_an_offset_is_asked_for(
    evaluate: Evaluate, offset: int, remainder: int
) -> None:
    tell = "def entry(x):\n    launch(x, torch.empty_like(x))\n    return x.data_ptr() % 16\n"
    call, found = await evaluate(tell, offset=offset)
    assert part(call, "outputs") == {"value": remainder}
    assert found.broken == []


async def test_new_inputs_lie_where_the_last_ones_lay_where_that_is_asked_for(
    tasks: TaskWorker, kernels: KernelWorker, load: Load
) -> None:
    await load(RIGHT)
    first = await kernels.call(KEY)
    for reuse in (True, False):
        made, _ = await tasks.make_and_expect("train", 2)
        await kernels.set_inputs(made, reuse=reuse)
        call = await kernels.call(KEY)
        assert is_right(await tasks.judge(call.values, KEY))
        assert (call.facts.inputs_at == first.facts.inputs_at) is reuse


REMEMBERS = """\
known = {}
def entry(x):
    if x.data_ptr() not in known:
        known[x.data_ptr()] = launch(x, torch.empty_like(x)).clone()
    return known[x.data_ptr()].clone()
"""


async def test_results_remembered_by_address_are_wrong_on_new_inputs_in_the_same_place(
    tasks: TaskWorker, kernels: KernelWorker, evaluate: Evaluate
) -> None:
    _, found = await evaluate(REMEMBERS)
    assert is_right(found)
    made, _ = await tasks.make_and_expect("train", 2)
    await kernels.set_inputs(made, reuse=True)
    assert not is_right(await tasks.judge((await kernels.call(KEY)).values, KEY))


# Outputs


async def test_memory_that_nothing_was_written_to_is_no_number(evaluate: Evaluate) -> None:
    _, found = await evaluate("def entry(x):\n    out = torch.empty_like(x)\n    launch(x[:64], out)\n    return out\n")
    (output,) = found.outputs
    assert (output.wrong_elements, output.not_finite_mismatches) == (36, 36)
    (cluster,) = output.clusters
    assert (cluster.first, cluster.last, cluster.wrong) == (64, 99, 36)


async def test_an_output_that_is_a_view_of_an_input_lies_in_it(evaluate: Evaluate) -> None:
    call, _ = await evaluate("def entry(x):\n    launch(x, torch.empty_like(x))\n    return x[10:20]\n")
    ((start, stop),) = call.facts.outputs_at
    ((first, last),) = call.facts.inputs_at
    assert (start - first, stop - start) == (40, 40)
    assert stop <= last
    assert call.facts.touched == [True]


KEEPS = "kept = torch.empty(100)\ndef entry(x):\n    return launch(x, kept)\n"


@pytest.mark.parametrize(("entry", "same"), [(KEEPS, True), (RIGHT, False)], ids=["kept", "new"])
async def test_only_a_buffer_that_is_kept_lies_where_the_last_output_lay(
    kernels: KernelWorker, load: Load, entry: str, same: bool
) -> None:
    await load(entry)
    places = [(await kernels.call(key)).facts.outputs_at for key in (KEY, None, KEY, None, None)]
    assert all((one == other) is same for one, other in itertools.pairwise(places))


async def test_an_output_that_no_launch_was_given_is_untouched(evaluate: Evaluate) -> None:
    call, found = await evaluate("def entry(x):\n    launch(x, torch.empty_like(x))\n    return x * 2\n")
    assert is_right(found)
    assert call.facts.touched == [False]
    assert call.facts.operations == {"aten.mul": 1}


async def test_operations_before_and_after_the_launch_are_counted(evaluate: Evaluate) -> None:
    entry = (
        "def entry(x):\n    out = launch(x + 0, torch.empty_like(x))\n    return out.sin().sin().reshape(10, 10).t()\n"
    )
    call, _ = await evaluate(entry)
    assert call.facts.operations == {"aten.add": 1, "aten.sin": 2}


async def test_launches_are_counted_by_kernel_and_by_call(kernels: KernelWorker, load: Load) -> None:
    other = "@triton.jit\ndef other(x_ptr):\n    tl.store(x_ptr, 0.0)\n\n\n"
    await load(
        f"{other}def entry(x):\n    other[(1,)](torch.empty(1))\n    launch(x, torch.empty_like(x))\n"
        "    return launch(x, torch.empty_like(x))\n"
    )
    for key in (KEY, None):
        launched = (await kernels.call(key)).facts.launched
        assert [(one.kernel, one.count) for one in launched] == [("other", 1), ("double", 2)]


async def test_an_entry_that_launches_nothing_says_so(evaluate: Evaluate) -> None:
    call, found = await evaluate("def entry(x):\n    return x * 2\n")
    assert is_right(found)
    assert call.facts.launched == []


@pytest.mark.parametrize("key", [KEY, None])
@pytest.mark.parametrize(
    ("returned", "words"),
    [
        ("out.to_sparse()", "the entry's result is a torch.sparse_coo tensor; only dense strided"),
        ("(out, [object()])", "the entry's result[1][0] is a builtins.object"),
        ("torch.masked.masked_tensor(out, out > 0)", "MaskedTensor"),
    ],
)
async def test_a_result_that_is_no_data_is_rejected_with_its_place(
    kernels: KernelWorker, load: Load, key: bytes | None, returned: str, words: str
) -> None:
    await load(f"def entry(x):\n    out = launch(x, torch.empty_like(x))\n    return {returned}\n")
    with pytest.raises(Stopped) as caught:
        await kernels.call(key)
    assert (caught.value.kind, caught.value.problem.stage) == (Kind.REJECTED, "run")
    assert words in caught.value.problem.message


# The task's side


async def test_a_repeated_call_is_compared_bit_by_bit(
    tasks: TaskWorker, kernels: KernelWorker, evaluate: Evaluate
) -> None:
    counts = "calls = []\ndef entry(x):\n    calls.append(0)\n    return launch(x, torch.empty_like(x)){}\n"
    await evaluate(counts.format(""))
    assert await again(tasks, kernels) == await again(tasks, kernels, None) == []
    # Too little to be wrong by the tolerance.
    await evaluate(counts.format(" + 1e-6 * (len(calls) > 1)"))
    (difference,) = await again(tasks, kernels)
    assert difference.where == "output"
    assert 0 < difference.elements <= 100
    assert 0 < (difference.max_abs_difference or 0) < 2e-6


async def test_another_form_the_second_time_is_a_difference_in_words(
    tasks: TaskWorker, kernels: KernelWorker, evaluate: Evaluate
) -> None:
    shrinks = "calls = []\ndef entry(x):\n    calls.append(0)\n    out = launch(x, torch.empty_like(x))\n"
    await evaluate(f"{shrinks}    return out[len(calls) - 1:]\n")
    (difference,) = await again(tasks, kernels)
    assert "(100,)" in (difference.mismatch or "")
    await evaluate(f"{shrinks}    return out if len(calls) == 1 else [out]\n")
    (difference,) = await again(tasks, kernels)
    assert difference.mismatch


async def test_accuracy_is_measured_where_there_is_a_float64_reference(
    tasks: TaskWorker, kernels: KernelWorker, load: Load
) -> None:
    half = RIGHT.replace("launch(x, ", "launch(x.half().float(), ")
    for entry, is_fine in ((RIGHT, True), (half, False)):
        await load(entry)
        assert (await tasks.judge((await kernels.call(KEY)).values, KEY)).accuracy == []
        assert await tasks.expect_exact() is None
        (accuracy,) = (await tasks.judge((await kernels.call(KEY)).values, KEY)).accuracy
        assert (accuracy.error <= accuracy.allowed) is is_fine
        assert (accuracy.elements, accuracy.factor) == (100, 16.0)


async def test_without_a_float64_reference_the_reason_is_told(tasks: TaskWorker, load: Load) -> None:
    await load(RIGHT, TASK.replace("x * 2", "x.view(torch.int32).view(torch.float32) * 2"))
    reason = await tasks.expect_exact()
    assert reason is not None
    assert reason.startswith("the reference does not work in float64")


@pytest.mark.parametrize(("returned", "aliased"), [("x * 2", [False]), ("x[1:], x + 1", [True, False])])
async def test_what_is_expected_is_described(tasks: TaskWorker, returned: str, aliased: list[bool]) -> None:
    await tasks.load(Source(TASK.replace("x * 2", returned), "task.py", None))
    _, expected = await tasks.make_and_expect("train", 1)
    assert (expected.aliased, expected.in_place) == (aliased, [])
    assert len(expected.outputs) == len(aliased)
    assert expected.outputs[-1].elements == 100
    assert (expected.outputs[0].nan, expected.outputs[0].inf) == (0, 0)


async def test_a_kernels_outputs_can_be_the_expected_ones(
    tasks: TaskWorker, kernels: KernelWorker, evaluate: Evaluate
) -> None:
    tripled = RIGHT.replace("launch(x, ", "launch(x * 1.5, ")
    call, found = await evaluate(tripled)
    assert not is_right(found)
    expected = await tasks.expect_from(call.values)
    assert (expected.outputs[0].elements, expected.aliased) == (100, [False])
    assert is_right(await tasks.judge((await kernels.call(KEY)).values, KEY))
    assert await tasks.impostors() == []


async def test_a_case_is_audited_over_the_wire(tasks: TaskWorker) -> None:
    await tasks.load(Source(TASK, "task.py", None))
    sound = await tasks.audit("train", 3)
    assert (sound.nondeterministic, sound.impostors, sound.exact) == ([], [], None)
    assert {"zeros", "ramp", "large"} <= {variant.name for variant in sound.variants}
    assert next(variant for variant in sound.variants if variant.name == "large").scale is not None
    random = TASK.replace("return x * 2", "return x * 0 + torch.rand(1) * 1e-9")
    await tasks.load(Source(random, "task.py", None))
    poor = await tasks.audit("train", 3)
    assert "zeros" in poor.impostors
    assert poor.nondeterministic[0].where == "output"


async def test_a_case_is_made_smaller_over_the_wire_for_as_long_as_the_task_is_loaded(tasks: TaskWorker) -> None:
    await tasks.load(Source(TASK, "task.py", None))
    assert await tasks.shrink("large", 1000) == {"n": 512}
    (blob,) = (await tasks.make_inputs("large", 1)).blobs
    assert blob is not None
    assert len(blob) == 512 * 4  # pyright: ignore[reportArgumentType]
    with pytest.raises(Stopped) as caught:
        await tasks.shrink("train", 15)
    assert (caught.value.kind, caught.value.problem.stage) == (Kind.REJECTED, "inputs")
    assert "more than 15 elements however small" in caught.value.problem.message


async def test_two_slots_hold_inputs_and_outputs_each_of_their_own(
    tasks: TaskWorker, kernels: KernelWorker, load: Load
) -> None:
    await load(RIGHT)
    made, _ = await tasks.make_and_expect("wide", 2, slot=1)
    first = await kernels.call(KEY)
    await kernels.set_inputs(made)
    second = await kernels.call(KEY)
    assert await tasks.expect_exact(slot=1) is None
    for slot, call, other, elements in ((0, first, second, 100), (1, second, first, 300)):
        found = await tasks.judge(call.values, KEY, slot=slot)
        assert is_right(found)
        assert found.outputs[0].elements == elements
        assert len(found.accuracy) == slot
        assert found.changed == []
        assert await tasks.repeat(call.values, slot=slot) == []
        assert await tasks.repeat(other.values, slot=slot) != []


# Gradients

GRAD = TASK.replace("x * 2", "x * 2, x.detach()") + "GRAD = True\n"
FUNCTION = """\
class Double(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return launch(x, torch.empty_like(x))

    @staticmethod
    def backward(context, gradient):
        return launch(gradient, torch.empty_like(gradient))


def entry(x):
    return Double.apply(x), launch(x, torch.empty_like(x)) / 2
"""


async def test_a_call_with_upstream_gradients_goes_backward(
    tasks: TaskWorker, kernels: KernelWorker, load: Load
) -> None:
    await load(FUNCTION, GRAD)
    upstream = await tasks.upstream()
    assert len(upstream.blobs) == 1
    call = await kernels.call(KEY, upstream=upstream)
    found = await tasks.judge(call.values, KEY)
    assert is_right(found)
    assert [output.where for output in found.outputs] == ["output[0]", "output[1]", "gradient of x"]
    assert (found.changed, found.broken) == ([], [])
    assert sum(one.count for one in call.facts.launched) == 3
    assert len(call.facts.outputs_at) == 3
    await kernels.call(KEY, upstream=upstream)
    assert await tasks.repeat((await kernels.call(None, upstream=upstream)).values) == []


# Forged results


@pytest.fixture
async def forged(executor: Executor) -> AsyncGenerator[KernelWorker]:
    """A worker of its own for kernels that tamper with theirs."""
    async with interpreter_worker(executor, target=H100) as worker:
        yield worker


@pytest.mark.parametrize(
    "facts",
    [
        "labels=5",
        "labels=[5]",
        "outputs_at=[[1, 2, 3]]",
        "outputs_at=None",
        "launched=[{'kernel': 'k'}]",
        "operations={'aten.mm': 'many'}",
        "touched='yes'",
        "more=1",
    ],
)
async def test_forged_facts_of_a_call_are_cheating(tasks: TaskWorker, forged: KernelWorker, facts: str) -> None:
    await loaded_with(tasks, forged, f"facts.update({facts})")
    with pytest.raises(Stopped) as caught:
        await forged.call(KEY)
    assert caught.value.kind is Kind.CHEATING
    assert "the worker's call is malformed" in caught.value.problem.message


@pytest.mark.parametrize(
    ("tampering", "words"),
    [
        ("facts['tree']['dict'] = facts['tree']['dict'][1:]", "without outputs"),
        ("facts['tree']['dict'] = facts['tree']['dict'][:1]", "without inputs"),
        ("facts['tree']['dict'] = facts['tree']['dict'][:2]", "without margins"),
        ("facts['tree'] = {'value': 1}", "without outputs"),
        ("facts['tree']['dict'][2][1]['tensor']['dtype'] = 'int8'", "margins"),
        ("facts['tree']['dict'][2][1] = {'value': 1}", "margins"),
    ],
)
async def test_a_call_that_lacks_a_part_is_cheating(
    tasks: TaskWorker, forged: KernelWorker, tampering: str, words: str
) -> None:
    await loaded_with(tasks, forged, tampering)
    call = await forged.call(KEY)
    with pytest.raises(Stopped) as caught:
        await tasks.judge(call.values, KEY)
    assert caught.value.kind is Kind.CHEATING, json.dumps(caught.value.problem.model_dump())
    assert words in caught.value.problem.message
    # It does the task's worker no harm.
    await tasks.make_and_expect("train", 2)


@pytest.mark.parametrize("tree", ["{'tuple': []}", "{'dict': []}", "{'value': 5}", "{'tuple': [{'value': 5}]}"])
async def test_inputs_that_do_not_come_back_are_changed(tasks: TaskWorker, forged: KernelWorker, tree: str) -> None:
    await loaded_with(tasks, forged, f"facts['tree']['dict'][1][1] = {tree}")
    found = await tasks.judge((await forged.call(KEY)).values, KEY)
    assert is_right(found)
    assert found.changed[0].mismatch


async def loaded_with(tasks: TaskWorker, kernels: KernelWorker, tampering: str) -> None:
    """A right kernel whose worker's replies to `call` are tampered with."""
    await tasks.load(Source(TASK, "task.py", None))
    text = f"""\
import sys
side = sys.modules["tritonforge_worker.kernel_side"].KernelSide
original = side.do_call
def do_call(self, blobs, **fields):
    facts, blobs = original(self, blobs, **fields)
    {tampering}
    return facts, blobs
side.do_call = do_call
"""
    await kernels.load(Source(KERNEL_HEAD + text + RIGHT, "kernel.py", None), describe_task())
    made, _ = await tasks.make_and_expect("train", 1)
    await kernels.set_inputs(made)


async def test_an_output_on_another_device_is_told_as_such(tasks: TaskWorker, forged: KernelWorker) -> None:
    await loaded_with(tasks, forged, "facts['tree']['dict'][0][1]['tensor']['device'] = 'cuda'")
    (output,) = (await tasks.judge((await forged.call(KEY)).values, KEY)).outputs
    assert output.mismatch == "output: 1 of its tensors lie on the wrong device; expected cpu"


async def test_values_of_another_form_can_not_be_judged(tasks: TaskWorker) -> None:
    await tasks.load(Source(TASK, "task.py", None))
    inputs, _ = await tasks.make_and_expect("train", 1)
    with pytest.raises(Stopped) as caught:
        await tasks.judge(Values(inputs.tree, inputs.blobs), KEY)
    assert caught.value.kind is Kind.CHEATING
