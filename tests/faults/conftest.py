"""Servers on which every fault of a module is tried: they must outlive all of them."""

import os
from collections.abc import AsyncGenerator, Generator

import pytest

from tests.faults.evaluations import Tools, serving
from tests.faults.hostile import Sealed, sealed_tools
from tritonforge.sandbox.limits import Limits
from tritonforge.server.settings import Settings

HANG_S = 3.0
"""Time for what never ends; all else that a worker does in these tests takes far less."""


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Generator[Settings]:
    """What a module's servers have in common; none of them may leave scratch behind."""
    scratch = tmp_path_factory.mktemp("scratch")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(scratch))
        yield Settings(state_dir=tmp_path_factory.mktemp("state"))
    assert os.listdir(scratch) == []


@pytest.fixture(scope="module")
async def tools(warm: None, settings: Settings) -> AsyncGenerator[Tools]:
    """Those of one server for all faults of a module: it must outlive every one of them."""
    async with serving(settings) as tools:
        yield tools


@pytest.fixture(scope="module")
async def hasty(warm: None, settings: Settings) -> AsyncGenerator[Tools]:
    """Those of a server that waits `HANG_S` for what a worker does."""
    async with serving(settings.model_copy(update={"limits": Limits(request_s=HANG_S)})) as tools:
        yield tools


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything here is about the interpreter and capture, whatever the machine has."""
    monkeypatch.setattr("tritonforge.server.services.GPU_DEVICE_FILES", ())


@pytest.fixture(scope="module")
async def shared_sealed(warm: None, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Sealed]:
    """The tools with sealed workers, one server for all hostile kernels of a module."""
    async with sealed_tools(tmp_path_factory.mktemp("state")) as tools:
        yield tools


@pytest.fixture
async def sealed(shared_sealed: Sealed) -> AsyncGenerator[Sealed]:
    """Whatever a test does, the evaluations after it must go on as if nothing had been."""
    yield shared_sealed
    await shared_sealed.go_on()
