"""A client of a server whose evaluator measures what a candidate's text says."""

from collections.abc import AsyncGenerator

import pytest
from mcp.client import Client

from tests.server.runs.fake_evaluator import FakeEvaluator
from tests.server.runs.run_calls import Call, calls
from tritonforge.server.app import build_server
from tritonforge.server.settings import Settings


@pytest.fixture
def fake() -> FakeEvaluator:
    return FakeEvaluator()


@pytest.fixture
async def client(settings: Settings, fake: FakeEvaluator) -> AsyncGenerator[Client]:
    async with Client(build_server(settings, lambda _: fake)) as connected:
        yield connected


@pytest.fixture
def call(client: Client) -> Call:
    return calls(client)
