# pyright: basic
# The worker's modules have no name that a type checker could resolve: they are loaded from their folder.
"""References through torch.compile: compiled where that is possible, refused in one line where it is not."""

import importlib
import os
import tempfile

import pytest
import torch

from tests.sandbox.conftest import Workers, describe_task
from tritonforge.sandbox.source import Source
from tritonforge.sandbox.workers import KernelWorker

SEALED = """\
import os, tempfile
import torch
from tritonforge_worker.compiled import compiled


# A product of matrices is none of inductor's own kernels: for those a C++ compiler would run for half a minute.
def reference(x):
    return x @ x


x = torch.randn(64, 64)
entry = compiled(reference, (x,))
torch.testing.assert_close(entry(x), reference(x))
assert os.listdir(f"{tempfile.gettempdir()}/inductor-cache")
children = open(f"/proc/self/task/{os.getpid()}/children").read().split()
assert not children, children
"""


@pytest.fixture
def compiled(worker, monkeypatch, tmp_path):
    """The function; what it sets for its process is taken back."""
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TORCHINDUCTOR_COMPILE_THREADS"):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return importlib.import_module("tritonforge_worker.compiled").compiled


@pytest.fixture
def refused(compiled, failures):
    """The line with which a function is refused."""

    def refuse(function, *inputs, **options):
        with pytest.raises(failures.Refused) as caught:
            compiled(function, inputs, **options)
        assert caught.value.kind == "unsupported"
        message = str(caught.value)
        assert "\n" not in message
        return message

    return refuse


def doubled(x, scale=2):
    return x * scale


@pytest.mark.parametrize("inputs", [(torch.ones(3), 5), {"x": torch.ones(3), "scale": 5}])
def test_a_compiled_function_takes_and_returns_what_the_reference_does(compiled, inputs):
    entry = compiled(doubled, inputs, backend="eager")
    again = entry(**inputs) if isinstance(inputs, dict) else entry(*inputs)
    assert again.tolist() == [5.0] * 3
    assert entry(torch.ones(7)).tolist() == [2.0] * 7


def test_a_function_of_torchs_own_can_be_the_reference(compiled):
    x = torch.randn(4, 8)
    assert torch.equal(compiled(torch.softmax, (x, -1), backend="eager")(x, -1), torch.softmax(x, -1))


def test_the_inputs_stay_as_they_are(compiled):
    x = torch.ones(3)
    compiled(lambda x: x.mul_(2), (x,), backend="eager")
    assert x.tolist() == [1.0] * 3


def test_what_can_be_compiled_only_in_pieces_is_compiled_so(compiled):
    def reference(x):
        return x * float(x.sum())

    assert compiled(reference, (torch.ones(3),), backend="eager")(torch.ones(2)).tolist() == [2.0] * 2


def test_more_shapes_than_torch_expects_are_compiled_too(compiled):
    from torch._dynamo.utils import counters

    before = counters["stats"]["unique_graphs"]
    entry = compiled(doubled, (torch.ones(1),), backend="eager")
    for size in range(2, 21):
        entry(torch.ones(size))
    assert counters["stats"]["unique_graphs"] - before == 20


@pytest.mark.parametrize("function", [lambda x: x, lambda x: 3])
def test_a_reference_that_computes_nothing_is_not_taken_for_compiled(refused, function):
    assert refused(function, torch.ones(3), backend="eager").endswith("nothing in the reference that it can compile")


def test_an_error_is_told_in_one_line(refused):
    message = refused(lambda x: x @ torch.ones(4, 4), torch.ones(3), backend="aot_eager")
    assert message.startswith("torch.compile can't compile the reference: ")


def test_the_innermost_error_is_the_one_that_is_told(refused):
    def backend(graph, inputs):
        raise OSError(28, "No space left on device")

    told = "torch.compile can't compile the reference: OSError: [Errno 28] No space left on device"
    assert refused(doubled, torch.ones(3), backend=backend) == told


# Importing inductor warns of what in torch is deprecated.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_machine_without_a_compiler_is_told_as_such(refused, monkeypatch):
    from torch._inductor import config

    monkeypatch.setattr(config.cpp, "cxx", ("/nonexistent/g++",))
    assert "InvalidCxxCompiler: No working C++ compiler found" in refused(doubled, torch.ones(3))


def test_what_is_compiled_stays_in_the_scratch_folder_and_in_this_process(compiled, tmp_path):
    from torch._inductor import config

    compiled(doubled, (torch.ones(3),), backend="eager")
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == f"{tmp_path}/inductor-cache"
    assert config.compile_threads == 1


@pytest.mark.anyio
async def test_a_sealed_worker_compiles_without_help(workers: Workers) -> None:
    async with workers.start("sealed") as worker:
        await KernelWorker(worker).load(Source(SEALED, "kernel.py", None), describe_task(entry="reference"))
