"""What profile_ncu takes from a kernel file before it runs, and what it makes of a report that can't be true."""

import pytest

from tests.profiling.ncu.recorded import changed, recorded
from tritonforge.profiling.ncu import metrics
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.outcome import Kind
from tritonforge.sandbox.source import Source
from tritonforge.server.tools import profile_ncu
from tritonforge.server.tools.profile_case import Compiled, read_launches, triton_functions

FILE = """
import triton
from triton import jit
import lib

raise SystemExit("it was run")

@triton.autotune(configs=[], key=[])
@triton.jit
def tuned(x): ...

@jit
def plain(x): ...

@triton.jit(do_not_specialize=["n"])
def called(x): ...

@lib.compiled
def other(x): ...

def host(x):
    @triton.jit
    def inner(y): ...
"""


def source(text: str) -> Source:
    return Source(text, "kernel.py", None)


def test_kernels_are_found_by_their_decorator_and_nothing_is_run() -> None:
    assert triton_functions(source(FILE)) == ("tuned", "plain", "called", "inner")


@pytest.mark.parametrize(
    ("text", "words"),
    [("x = 1", "no @triton.jit function"), ("def (", "not valid Python"), ("(" * 5000, "not valid Python")],
)
def test_a_file_without_kernels_is_refused(text: str, words: str) -> None:
    with pytest.raises(Stopped, match=words) as caught:
        triton_functions(source(text))
    assert caught.value.kind is Kind.REJECTED


def test_launches_are_read_with_the_metrics_that_were_asked_for() -> None:
    (found,) = read_launches([recorded("softmax_sections")], "", Compiled(), ("launch__grid_size", "x"))
    assert list(found.metrics) == ["launch__grid_size"]
    assert found.lines is None
    assert found.profile.kernel == "softmax_kernel"


def test_numbers_that_no_gpu_counts_are_not_believed() -> None:
    never: dict[str, float | str] = {metrics.CYCLES_ACTIVE_MAX.names[0]: 1e24, metrics.CYCLES_ACTIVE.names[0]: 1e-300}
    launch = changed(recorded("softmax_sections"), never)
    with pytest.raises(Stopped, match="no GPU counts") as caught:
        read_launches([launch], "", Compiled(), ())
    assert caught.value.kind is Kind.CHEATING


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"cases": ["a"]}, "need a task"),
        ({"compare": "x = 1\n"}, "need a task"),
    ],
)
async def test_what_makes_no_sense_without_a_task_is_refused_before_anything_runs(
    asked: dict[str, object], words: str
) -> None:
    async def progress(done: float, total: float, message: str) -> None:
        raise NotImplementedError

    with pytest.raises(Stopped, match=words) as caught:
        await profile_ncu.profile_ncu(None, progress, kernel="x = 1\n", **asked)  # pyright: ignore[reportArgumentType]
    assert caught.value.kind is Kind.REJECTED
