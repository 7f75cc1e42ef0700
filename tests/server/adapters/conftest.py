"""Services for tests of adapters."""

from collections.abc import AsyncGenerator

import pytest

from tritonforge.server.services import Services
from tritonforge.server.settings import Settings


@pytest.fixture(scope="module")
async def services(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Services]:
    async with Services(Settings(state_dir=tmp_path_factory.mktemp("ground") / "state")) as services:
        yield services
