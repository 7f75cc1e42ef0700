"""What clients see of a tool changes only on purpose: the committed snapshots change with it."""

import json

import pytest

from tests.server.refresh_snapshots import SNAPSHOTS, current

pytestmark = pytest.mark.anyio

REFRESH = "if this was meant: python tests/server/refresh_snapshots.py, then look at the diff and commit it"


async def test_every_tool_is_as_its_snapshot_says() -> None:
    tools = await current()
    recorded = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in SNAPSHOTS.glob("*.json")}
    assert sorted(recorded) == sorted(tools), REFRESH
    for name, tool in tools.items():
        assert tool == recorded[name], f"{name} differs from its snapshot; {REFRESH}"
