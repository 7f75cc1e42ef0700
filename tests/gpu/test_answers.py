"""What tools answer from measurements of a real GPU: text and structure each do alone, within a client's window."""

from collections.abc import AsyncGenerator
from typing import Any, NamedTuple

import pytest
from mcp.client import Client
from mcp_types import Tool

from tests.gpu.conftest import example
from tests.server.answer_checks import stands
from tests.server.conftest import tools_of
from tritonforge.server.app import build_server
from tritonforge.server.settings import from_environment

pytestmark = [pytest.mark.gpu, pytest.mark.anyio]

FAST, SLOW, TASK = (example("softmax", part) for part in ("candidate", "baseline", "task"))
FASTER = {"kernel": FAST, "task": TASK, "cases": ["train"]}


class Asked(NamedTuple):
    """A call, and the fields that only a measurement fills."""

    tool: str
    arguments: dict[str, Any]
    measured: tuple[str, ...]


CALLS: dict[str, Asked] = {
    "ceilings": Asked(
        "hardware_spec", {"measure": True}, ("measured.read_bytes_per_s", "measured.launch_us", "gpus.*.name")
    ),
    "times": Asked(
        "benchmark",
        {**FASTER, "baseline": SLOW, "against": ["eager"]},
        ("score.ratio", "cases.*.device_us", "cases.*.speed_of_light_pct", "cases.*.against.*.ratio"),
    ),
    "times alone": Asked("benchmark", FASTER, ("cases.*.device_us",)),
    "counters": Asked(
        "profile_ncu",
        {**FASTER, "compare": SLOW},
        ("launches.*.duration_us", "launches.*.memory_pct", "launches.*.hotspots.*.line", "changes.*.field"),
    ),
    "a few counters": Asked("profile_ncu", {**FASTER, "level": "quick"}, ("launches.*.duration_us",)),
    "a search": Asked(
        "tune_kernel",
        {"kernel": example("sin", "baseline"), "task": example("sin", "task"), "cases": ["large"], "budget_s": 30},
        ("ratio", "cases.*.tuned_us", "device"),
    ),
    "a diagnosis": Asked(
        "diagnose_kernel", {"kernel": SLOW, "task": TASK, "case": "train"}, ("launches.*.duration_us",)
    ),
    "a check": Asked("run_correctness", {**FASTER, "baseline": SLOW}, ("cases.*.max_abs_error",)),
}


@pytest.fixture(scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Client]:
    settings = from_environment(state_dir=str(tmp_path_factory.mktemp("state")))
    async with Client(build_server(settings)) as client:
        yield client


@pytest.fixture(scope="module")
async def tools(client: Client) -> dict[str, Tool]:
    return await tools_of(client)


@pytest.mark.parametrize("name", CALLS)
async def test_text_and_structure_each_do_alone(client: Client, tools: dict[str, Tool], name: str) -> None:
    call = CALLS[name]
    found = stands(await client.call_tool(call.tool, call.arguments), tools[call.tool], "ok")
    assert [field for field in call.measured if field not in found] == []
