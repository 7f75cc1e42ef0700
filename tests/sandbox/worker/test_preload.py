# pyright: basic
# The worker's modules are loaded from their folder, so their types are unknown here.
"""The preloader's first compile: what a machine may lack for it is passed over, and nothing else."""

import subprocess
import sys
from types import SimpleNamespace

import pytest
from triton.runtime.errors import PTXASError


@pytest.fixture
def compile_first(worker, preload, monkeypatch):
    """The first compile, on a machine where it ends in the given exception."""

    def run(error):
        def compile_once(cache, *, driver):
            raise error

        warm = SimpleNamespace(compile_once=compile_once)
        monkeypatch.setitem(sys.modules, "tritonforge_worker.warm", warm)
        monkeypatch.setattr(worker, "warm", warm, raising=False)
        preload.compile_first("/no/cache", driver=True)

    return run


@pytest.mark.parametrize(
    "error",
    [
        PTXASError("unsupported"),
        RuntimeError("Failed to find C compiler"),
        subprocess.CalledProcessError(1, "cc"),
        FileNotFoundError(2, "No such file or directory"),
        ImportError("libcuda.so.1: cannot open shared object file"),
        AssertionError("libcuda.so cannot found!"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_a_machine_lacks_is_passed_over(compile_first, error):
    compile_first(error)


@pytest.mark.parametrize("error", [AttributeError("moved"), TypeError("odd"), KeyboardInterrupt()])
def test_any_other_exception_goes_on(compile_first, error):
    with pytest.raises(type(error)) as caught:
        compile_first(error)
    assert caught.value is error
