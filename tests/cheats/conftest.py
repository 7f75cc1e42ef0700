"""One server for all cheats, without a GPU."""

from collections.abc import AsyncGenerator

import pytest

from tests.cheats.checking import Checker, checking
from tritonforge.sandbox.limits import Limits


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything here runs in the interpreter, whatever the machine has."""
    monkeypatch.setattr("tritonforge.server.services.GPU_DEVICE_FILES", ())


@pytest.fixture(scope="module")
async def checker(warm: None, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Checker]:
    async with checking(tmp_path_factory.mktemp("state"), Limits(request_s=30.0)) as checker:
        yield checker
