"""What a task may ask of a kernel, on the GPU: gradients, layouts, values that are not finite, outputs in place."""

from collections.abc import AsyncGenerator

import pytest

from tests.faults.evaluations import KERNEL, TASK, Tools, replaced, serving
from tritonforge.sandbox.outcome import Kind
from tritonforge.server.settings import Settings
from tritonforge.server.tools.run_correctness import CorrectnessResult

pytestmark = [pytest.mark.gpu, pytest.mark.anyio]

LAUNCHES = KERNEL[: KERNEL.index("def double(x)")]
FUNCTION = f"""{LAUNCHES}
def run(x):
    out = torch.empty_like(x)
    double_kernel[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), BLOCK=64)
    return out


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return run(x)

    @staticmethod
    def backward(ctx, gradient):
        return run(gradient)


def double(x):
    return Double.apply(x)
"""
CONTIGUOUS = replaced(KERNEL, "    out = torch.empty_like(x)", "    x = x.contiguous()\n    out = torch.empty_like(x)")
IN_PLACE = f"""{LAUNCHES}
def double(x):
    double_kernel[(triton.cdiv(x.numel(), 64),)](x, x, x.numel(), BLOCK=64)
"""


@pytest.fixture(scope="module")
async def tools(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Tools]:
    async with serving(Settings(state_dir=tmp_path_factory.mktemp("state"))) as tools:
        yield tools


def found(result: CorrectnessResult, check: str) -> None:
    assert (result.kind, result.device) == (Kind.WRONG, "cuda:0"), result.summary
    assert result.cases[0].check == check, result.summary


async def test_gradients_are_checked(tools: Tools) -> None:
    task = TASK + "GRAD = True\n"
    result = await tools.check(FUNCTION, task)
    assert (result.kind, result.device) == (Kind.OK, "cuda:0"), result.summary
    wrong = await tools.check(replaced(FUNCTION, "return run(gradient)", "return run(gradient) * 1.5"), task)
    found(wrong, "values")
    assert "gradient of x" in wrong.summary


async def test_layouts_that_the_task_allows_must_work(tools: Tools) -> None:
    task = TASK + 'VIEWS = ("offset", "strided")\n'
    result = await tools.check(CONTIGUOUS, task)
    assert result.kind is Kind.OK, result.summary
    assert result.cases[0].structured[-2:] == ["offset inputs", "strided inputs"]
    wrong = await tools.check(KERNEL, task)
    found(wrong, "values")
    assert wrong.cases[0].inputs == "strided inputs"


async def test_nan_and_infinities_go_through(tools: Tools) -> None:
    task = TASK + 'SPECIAL_VALUES = ("nan", "inf")\n'
    result = await tools.check(KERNEL, task)
    assert result.kind is Kind.OK, result.summary
    assert result.cases[0].structured[-2:] == ["nan", "inf"]
    found(await tools.check(replaced(KERNEL, "x * 2,", "tl.where(x == x, x, 0.0) * 2,"), task), "values")


async def test_an_argument_may_be_the_output(tools: Tools) -> None:
    task = replaced(TASK, "    return x * 2", "    x *= 2") + 'IN_PLACE = ("x",)\n'
    result = await tools.check(IN_PLACE, task)
    assert result.kind is Kind.OK, result.summary
    found(await tools.check(IN_PLACE, TASK.replace("x * 2", "x.mul(2)")), "form")
