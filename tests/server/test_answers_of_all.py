"""Every tool's results, good and bad: they fit their schema and a client's window; text and structure each do alone."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from mcp.client import Client
from mcp_types import CallToolResult, Tool

from tests.server.conftest import RESULT_LIMIT, SIN, content_of, fits, text_of, tools_of, without_gpu
from tests.server.made_up_times import timed_case, times
from tests.server.runs.fake_evaluator import FakeEvaluator, candidate, task
from tests.server.test_benchmark_report import reported
from tests.server.test_profile_report import case, case_of, profiled, shown
from tests.server.test_profile_report import result as profile_result
from tests.server.test_tune_kernel import (
    Whole,
    whole,  # noqa: F401  # pyright: ignore[reportUnusedImport] - a fixture
)
from tritonforge.sandbox.outcome import Kind
from tritonforge.server.app import build_server
from tritonforge.server.results import Result, respond
from tritonforge.server.settings import Settings
from tritonforge.server.tools.profile_report import summary as profile_summary

pytestmark = pytest.mark.anyio

RUN = "RUN"
"""Stands for the id of the run that the calls begin."""
NO_RUN = {"run_id": "sin-000000"}


class Answered(NamedTuple):
    """A call, how it has to end, and fields whose numbers have to stand in the text too."""

    tool: str
    arguments: dict[str, Any]
    kind: str
    numbers: tuple[str, ...] = ()


def submitting(number: int, **fake: Any) -> dict[str, Any]:
    return {"run_id": RUN, "kernel": candidate(number, **fake), "strategy": f"idea {number} of its own"}


CALLS: dict[str, Answered] = {
    "a target": Answered("hardware_spec", {"target": "h200"}, "ok", ("target.sm_count",)),
    "no such target": Answered("hardware_spec", {"target": "h1000"}, "rejected"),
    "nothing to compile": Answered("compile_kernel", {**SIN, "kernel": ""}, "rejected"),
    "nothing to diagnose": Answered("diagnose_kernel", {**SIN, "kernel": ""}, "rejected"),
    "nothing to check": Answered("run_correctness", {**SIN, "kernel": ""}, "rejected"),
    "nothing to time": Answered("benchmark", {**SIN, "kernel": ""}, "rejected"),
    "nothing to profile": Answered("profile_ncu", {**SIN, "kernel": ""}, "rejected"),
    "nothing to tune": Answered("tune_kernel", {**SIN, "kernel": ""}, "rejected"),
    "a run": Answered(
        "start_optimization", {"kernel": candidate(1, findings=["V6", "V1"]), "task": task("my kernel")}, "ok",
        ("cases.0.device_us", "cases.0.speed_of_light_pct", "attempts_left", "hidden_cases"),
    ),
    "a baseline that is wrong": Answered("start_optimization", {"kernel": candidate(1, kind="wrong"), "task": task()},
        "wrong"),
    "no such file": Answered("start_optimization", {"kernel": "no-such.py", "task": task()}, "rejected"),
    "a better one": Answered("submit_candidate", submitting(2, ratio=1.53), "ok",
        ("score.ratio", "score.ratio_low", "score.ratio_high", "attempts_left", "cases.0.device_us")),
    "a worse one": Answered("submit_candidate", submitting(3, ratio=0.81), "ok", ("score.ratio", "attempts_left")),
    "the same once more": Answered("submit_candidate", submitting(2, ratio=1.53), "ok", ("duplicate_of",)),
    "a wrong one": Answered("submit_candidate", submitting(4, kind="wrong", message="3 of 10 elements"), "wrong"),
    "one that does not compile": Answered("submit_candidate", submitting(5, kind="compile_error"), "compile_error"),
    "one that takes long": Answered("submit_candidate", {**submitting(6, hold="for ever"), "wait_s": 0}, "running"),
    "no such run": Answered("submit_candidate", {**submitting(7), **NO_RUN}, "rejected"),
    "the runs": Answered("get_run", {}, "ok"),
    "how the run stands": Answered("get_run", {"run_id": RUN}, "ok",
        ("incumbent.ratio", "attempts_left", "budget.attempts", "hidden_cases")),
    "how an attempt ended": Answered("get_run", {"run_id": RUN, "attempt": 1}, "ok", ("score.ratio", "attempt")),
    "one that is cancelled": Answered("get_run", {"run_id": RUN, "attempt": 6, "cancel": True}, "cancelled"),
    "an attempt of no run": Answered("get_run", {"attempt": 1}, "rejected"),
    "the end": Answered("get_run", {"run_id": RUN, "end": True}, "ok", ("incumbent.ratio",)),
    "its winner once more": Answered("get_run", {"run_id": RUN, "attempt": 1, "wait_s": 60}, "ok", ("score.ratio",)),
    "how it ended": Answered("get_run", {"run_id": RUN}, "ok", ("verified.ratio", "verified.ratio_low")),
    "what was learnt": Answered("recall_lessons", {"finding": "V6"}, "ok"),
    "a playbook": Answered("get_playbook", {"role": "optimize_kernel"}, "ok"),
    "a playbook of a run": Answered("get_playbook", {"role": "refine_candidate", "run_id": RUN}, "ok"),
    "a playbook of no run": Answered("get_playbook", {"role": "refine_candidate", **NO_RUN}, "rejected"),
}  # fmt: skip
"""In this order, of one server."""
UNAVAILABLE: dict[str, Answered] = {
    "times without a GPU": Answered("benchmark", SIN, "unavailable"),
    "a profile without a GPU": Answered("profile_ncu", SIN, "unavailable"),
}


@pytest.fixture(scope="module")
async def tools(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tool]:
    async with Client(build_server(Settings(state_dir=tmp_path_factory.mktemp("tools")))) as client:
        return await tools_of(client)


@pytest.fixture(scope="module")
async def answers(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, CallToolResult]:
    """What each call was answered; they follow each other."""
    found: dict[str, CallToolResult] = {}
    settings = Settings(state_dir=tmp_path_factory.mktemp("answers") / "state")
    async with Client(build_server(settings, lambda _: FakeEvaluator())) as client:
        run_id = ""
        for name, call in CALLS.items():
            arguments = {key: run_id if value == RUN else value for key, value in call.arguments.items()}
            found[name] = await client.call_tool(call.tool, arguments)
            if call.tool == "start_optimization" and not run_id:
                run_id = content_of(found[name])["run_id"]
    return found


def stands(result: CallToolResult, tool: Tool, kind: str, numbers: tuple[str, ...] = ()) -> None:
    """What holds of every result."""
    content, text = content_of(result), text_of(result)
    fits(content, tool)
    assert content["kind"] == kind, content["summary"]
    for form in (text, json.dumps(content, ensure_ascii=False)):
        assert len(form) <= RESULT_LIMIT
    # The text alone: how it ended, what was found, what to do next, what went wrong, where more is.
    assert text.startswith(content["summary"])
    assert in_words(kind) in text.lower().replace("_", " ")
    assert content["next_step"] is None or content["next_step"] in text
    assert all(uri in text for uri in content["artifacts"])
    for path in numbers:
        number = at(content, path)
        assert number is not None, path
        assert number_in(number, text), f"{path} = {number} is not in the text:\n{text}"
    # The structure alone: the same in fields of their own.
    assert content["summary"].strip()
    if kind in ("ok", "running"):
        assert content["problem"] is None
    else:
        problem = content["problem"]
        assert problem["stage"]
        assert problem["message"] in text
        assert content["next_step"] or problem["likely_fix"] or "Allowed: " in problem["message"]


def in_words(kind: str) -> str:
    """What a text has to say of it; what is fine is not said to be."""
    return {"ok": "", "running": "being evaluated"}.get(kind, kind.replace("_", " "))


def at(content: Any, path: str) -> Any:
    for step in path.split("."):
        content = content[int(step)] if step.isdecimal() else content[step]
    return content


def number_in(number: float, text: str) -> bool:
    """Whether a text has a number, with two digits of it or more."""
    figures = re.findall(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?", text)
    return any(abs(float(figure.replace(",", "")) - number) <= 0.01 * abs(number) for figure in figures)


@pytest.mark.parametrize("name", CALLS)
async def test_text_and_structure_each_do_alone(
    answers: Mapping[str, CallToolResult], tools: dict[str, Tool], name: str
) -> None:
    call = CALLS[name]
    stands(answers[name], tools[call.tool], call.kind, call.numbers)


@without_gpu
@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize("name", UNAVAILABLE)
async def test_so_they_do_without_a_gpu(settings: Settings, tools: dict[str, Tool], name: str) -> None:
    call = UNAVAILABLE[name]
    async with Client(build_server(settings)) as client:
        stands(await client.call_tool(call.tool, call.arguments), tools[call.tool], call.kind)


async def told(result: Result) -> CallToolResult:
    """What a client gets of it."""

    async def evaluated() -> Result:
        return result

    return await respond(type(result), evaluated)


async def test_times_do(tools: dict[str, Tool]) -> None:
    cases = [timed_case(candidate=times(candidate_us)) for candidate_us in (90.0, 104.0)]
    found = reported(*cases)
    numbers = ("score.ratio", "cases.0.device_us", "cases.0.baseline_device_us", "cases.0.ratio", "cases.1.ratio_low")
    stands(await told(found), tools["benchmark"], "ok", numbers)


async def test_a_profile_does(tools: dict[str, Tool]) -> None:
    read = [profiled() for _ in range(3)]
    launches = [shown(launch, longest=number == 0) for number, launch in enumerate(read)]
    found = profile_result(*launches, cases=[case_of(case(*read))], next_step="Next.")
    found = found.model_copy(update={"summary": profile_summary(found, {})})
    stands(await told(found), tools["profile_ncu"], "ok", ("launches.0.duration_us", "launches.0.memory_pct"))


async def test_a_search_does(whole: Whole, tools: dict[str, Tool]) -> None:  # noqa: F811 - the fixture from above
    found = await whole.run()
    stands(await told(found), tools["tune_kernel"], "ok", ("ratio", "ratio_low", "ratio_high", "evaluations"))


async def test_every_tool_is_asked(tools: dict[str, Tool]) -> None:
    asked = {call.tool for call in CALLS.values()}
    assert asked == set(tools)
    bad = {call.tool for call in CALLS.values() if call.kind not in ("ok", "running")}
    assert bad == set(tools) - {"recall_lessons"}


async def test_lessons_that_cannot_be_read_do(tmp_path: Path, tools: dict[str, Tool]) -> None:
    (tmp_path / "state").write_text("not a folder")
    async with Client(build_server(Settings(state_dir=tmp_path / "state"))) as client:
        stands(await client.call_tool("recall_lessons", {}), tools["recall_lessons"], Kind.UNAVAILABLE.value)
