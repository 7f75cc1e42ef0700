"""A scripted agent drives runs of the examples from beginning to end, with mistakes of every kind."""

import os
import sys
from pathlib import Path
from typing import Any, Final

import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from tests.server.conftest import without_gpu
from tests.server.runs.agent import Step, faults, optimize, steps
from tests.server.runs.fake_evaluator import FakeEvaluator, candidate
from tritonforge.sandbox.outcome import Kind
from tritonforge.server.app import build_server
from tritonforge.server.runs.evaluating import NOT_ITS_DOING
from tritonforge.server.settings import Settings

pytestmark = pytest.mark.anyio

SLOW_IN_THE_INTERPRETER: Final = {"softmax": {"regressed"}, "matmul": {"slower"}}
"""Steps that show nothing there that the others do not."""
FAILURES: Final = [kind for kind in Kind if kind not in (Kind.OK, Kind.RUNNING, *NOT_ITS_DOING)]


@without_gpu
@pytest.mark.parametrize("example", ["softmax", "matmul"])
async def test_an_agent_drives_an_example_over_stdio(example: str, tmp_path: Path) -> None:
    chosen = [step for step in steps(example) if step.name not in SLOW_IN_THE_INTERPRETER[example]]
    arguments = ["-m", "tritonforge.server", "--state-dir", str(tmp_path / "state")]
    server = StdioServerParameters(command=sys.executable, args=arguments, env=dict(os.environ))
    async with Client(server, read_timeout_seconds=120) as client:
        told = await optimize(client, example, chosen)
    assert faults(example, told, gpu=False, chosen=chosen) == []
    # Nothing is accepted that was not timed.
    assert (told.run["state"], told.run["incumbent"]["attempt"]) == ("open", 0)
    assert told.run["attempts"][0]["kind"] == "ok"


@pytest.mark.parametrize("example", ["sin", "softmax", "matmul"])
def test_the_agent_knows_mistakes_of_many_kinds_and_no_file_twice(example: str) -> None:
    known = steps(example)
    assert len({step.name for step in known}) == len({step.kernel for step in known}) == len(known)
    assert {step.kind for step in known} > {"ok"}
    for step in known:
        first = step.duplicate_of
        assert first in (None, "baseline") or first in [earlier.name for earlier in known[: known.index(step)]]


async def test_an_agent_is_led_from_failures_over_duplicates_to_the_end(tmp_path: Path) -> None:
    failing = [
        Step(kind.value, candidate(10 + place, kind=kind, message=f"ended as {kind}"), f"try {kind}", kind.value)
        for place, kind in enumerate(FAILURES)
    ]
    better = candidate(2, ratio=1.5)
    chosen = [
        *failing,
        Step("slower", candidate(1, ratio=0.7), "a smaller block", "ok"),
        Step("better", better, "a larger block", "ok", ("accept",)),
        Step("again", f"# The same.\n{better}", "a larger block", "ok", duplicate_of="better"),
        Step("twin", candidate(3, identity="one"), "loads hoisted", "ok"),
        Step("same code", candidate(4, identity="one"), "loads hoisted by hand", "ok", duplicate_of="twin"),
        Step("unconfirmed", candidate(5, ratio=9.0, confirm="wrong"), "no masks", "wrong"),
        Step("best", candidate(6, ratio=3.0), "one pass over memory", "ok", ("finish",)),
    ]
    fake = FakeEvaluator()
    settings: dict[str, Any] = {"attempts": 30, "target_ratio": 2.5, "target_pct": 100.0}
    async with Client(build_server(Settings(state_dir=tmp_path), lambda _: fake)) as client:
        told = await optimize(client, "sin", chosen, **settings)
        lessons = await client.call_tool("recall_lessons", {"limit": 20})
    assert faults("sin", told, gpu=True, chosen=chosen) == []
    assert all(told.answers[step.name]["problem"]["likely_fix"] for step in failing)
    best = told.answers["best"]
    assert (told.run["state"], told.run["ended_by"]) == ("finished", "target")
    assert told.run["incumbent"]["attempt"] == best["attempt"] == len(chosen)
    assert lessons.structured_content is not None
    tried = sum(lesson["tried"] for lesson in lessons.structured_content["lessons"])
    # All but the two duplicates.
    assert tried == len(chosen) - 2
