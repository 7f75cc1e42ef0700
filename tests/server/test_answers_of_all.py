"""Every tool's results, good and bad: they fit their schema and a client's window; text and structure each do alone."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from mcp.client import Client
from mcp_types import CallToolResult, TextContent, Tool

from tests.server.answer_checks import NEEDED, OF_PROBLEMS, said, stands
from tests.server.conftest import EXAMPLES, SIN, content_of, text_of, tools_of, without_gpu
from tests.server.made_up_answers import ANSWERS
from tests.server.runs.fake_evaluator import FakeEvaluator, candidate, task
from tests.server.runs.in_store import lesson
from tests.server.runs.kept import store_in
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.outcome import Kind, Problem
from tritonforge.server.app import build_server
from tritonforge.server.results import PROBLEM_LIMITS, Result, respond
from tritonforge.server.settings import Settings

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("warm")]

RUN = "RUN"
"""Stands for the id of the run that the calls begin."""
NO_RUN = {"run_id": "sin-000000"}
KERNEL = Path(SIN["kernel"]).read_text()
SLOW = {**SIN, "kernel": str(EXAMPLES / "sin" / "baseline.py"), "target": "h100"}
ZEROING = {**SIN, "kernel": KERNEL.replace("empty_like", "zeros_like"), "target": "h100"}
WITHOUT_SMALL = Path(SIN["task"]).read_text().replace('    "small": {"n": 4096, "small": True},\n', "")
RAISING = {**SIN, "kernel": KERNEL.replace("    n = x.numel()", "    raise ValueError(x.shape)")}
BROKEN = {**SIN, "kernel": KERNEL.replace("tl.sin(x)", "tl.sin(y)")}


class Asked(NamedTuple):
    """A call, and how it has to end."""

    tool: str
    arguments: dict[str, Any]
    kind: str


def submitting(number: int, **fake: Any) -> dict[str, Any]:
    return {"run_id": RUN, "kernel": candidate(number, **fake), "strategy": f"idea {number} of its own"}


CALLS: dict[str, Asked] = {
    "a target": Asked("hardware_spec", {"target": "h200"}, "ok"),
    "a target in detail": Asked("hardware_spec", {"target": "h100", "detail": True}, "ok"),
    "no such target": Asked("hardware_spec", {"target": "h1000"}, "rejected"),
    "compiled": Asked("compile_kernel", SLOW, "ok"),
    "explained": Asked("compile_kernel", {**SLOW, "explain": True, "compare": SIN["kernel"]}, "ok"),
    "not compared": Asked("compile_kernel", {**SLOW, "compare": BROKEN["kernel"]}, "ok"),
    "not compiled": Asked("compile_kernel", BROKEN, "compile_error"),
    "nothing to compile": Asked("compile_kernel", {**SIN, "kernel": ""}, "rejected"),
    "no such case": Asked("compile_kernel", {**SIN, "cases": ["smal"]}, "rejected"),
    "diagnosed": Asked("diagnose_kernel", {**SLOW, "depth": "compiler"}, "ok"),
    "an edit verified": Asked("diagnose_kernel", {**SLOW, "verify_with": SIN["kernel"], "depth": "compiler"}, "ok"),
    "by its source alone": Asked("diagnose_kernel", {**ZEROING, "depth": "source"}, "ok"),
    "an edit that is broken": Asked(
        "diagnose_kernel", {**SLOW, "verify_with": BROKEN["kernel"], "depth": "source"}, "ok"
    ),
    "not diagnosed": Asked("diagnose_kernel", {**BROKEN, "target": "h100"}, "compile_error"),
    "nothing to diagnose": Asked("diagnose_kernel", {**SIN, "kernel": ""}, "rejected"),
    "no target to diagnose": Asked("diagnose_kernel", {**SIN, "target": "a100-sxm"}, "unsupported"),
    "right, made smaller": Asked("run_correctness", {**SIN, "task": WITHOUT_SMALL, "seeds": 1}, "ok"),
    "right": Asked("run_correctness", {**SIN, "seeds": 1}, "ok"),
    "wrong": Asked("run_correctness", {**SIN, "kernel": KERNEL.replace("tl.sin(x)", "tl.cos(x)"), "seeds": 1}, "wrong"),
    "not run": Asked("run_correctness", RAISING, "runtime_error"),
    "nothing to check": Asked("run_correctness", {**SIN, "kernel": ""}, "rejected"),
    "nothing to time": Asked("benchmark", {**SIN, "kernel": ""}, "rejected"),
    "nothing to profile": Asked("profile_ncu", {**SIN, "kernel": ""}, "rejected"),
    "nothing to tune": Asked("tune_kernel", {**SIN, "kernel": ""}, "rejected"),
    "a run": Asked(
        "start_optimization", {"kernel": candidate(1, findings=["V6", "V1"]), "task": task("my kernel")}, "ok"
    ),
    "a baseline that is wrong": Asked(
        "start_optimization", {"kernel": candidate(1, kind="wrong"), "task": task()}, "wrong"
    ),
    "no such file": Asked("start_optimization", {"kernel": "no-such.py", "task": task()}, "rejected"),
    "a better one": Asked("submit_candidate", submitting(2, ratio=1.53), "ok"),
    "a worse one": Asked("submit_candidate", submitting(3, ratio=0.81), "ok"),
    "the same once more": Asked("submit_candidate", submitting(2, ratio=1.53), "ok"),
    "a wrong one": Asked("submit_candidate", submitting(4, kind="wrong", message="3 of 10 elements"), "wrong"),
    "one that does not compile": Asked("submit_candidate", submitting(5, kind="compile_error"), "compile_error"),
    "one that takes long": Asked("submit_candidate", {**submitting(6, hold="for ever"), "wait_s": 0}, "running"),
    "no such run": Asked("submit_candidate", {**submitting(7), **NO_RUN}, "rejected"),
    "the runs": Asked("get_run", {}, "ok"),
    "how the run stands": Asked("get_run", {"run_id": RUN}, "ok"),
    "how an attempt ended": Asked("get_run", {"run_id": RUN, "attempt": 1}, "ok"),
    "one that is cancelled": Asked("get_run", {"run_id": RUN, "attempt": 6, "cancel": True}, "cancelled"),
    "an attempt of no run": Asked("get_run", {"attempt": 1}, "rejected"),
    "the end": Asked("get_run", {"run_id": RUN, "end": True}, "ok"),
    "its winner once more": Asked("get_run", {"run_id": RUN, "attempt": 1, "wait_s": 60}, "ok"),
    "how it ended": Asked("get_run", {"run_id": RUN}, "ok"),
    "a run in detail": Asked("get_run", {"run_id": RUN, "detail": True}, "ok"),
    "what was learnt": Asked("recall_lessons", {"finding": "V6"}, "ok"),
    "all that was learnt": Asked("recall_lessons", {}, "ok"),
    "the roles": Asked("get_playbook", {}, "ok"),
    "a playbook": Asked("get_playbook", {"role": "optimize_kernel"}, "ok"),
    "a playbook of a run": Asked("get_playbook", {"role": "refine_candidate", "run_id": RUN}, "ok"),
    "a playbook of no run": Asked("get_playbook", {"role": "refine_candidate", **NO_RUN}, "rejected"),
}
"""In this order, of one server."""
UNAVAILABLE: dict[str, Asked] = {
    "times without a GPU": Asked("benchmark", SIN, "unavailable"),
    "a profile without a GPU": Asked("profile_ncu", SIN, "unavailable"),
    "a search without a GPU": Asked(
        "tune_kernel", {**SLOW, "space": {"BLOCK": [512, 2048], "num_warps": []}, "cases": ["large"], "budget_s": 20},
        "unavailable",
    ),
    "ceilings without a GPU": Asked("hardware_spec", {"measure": True}, "unavailable"),
}  # fmt: skip
UNREADABLE = Asked("recall_lessons", {}, "unavailable")
"""Where the folder of runs is none."""
Answers = Mapping[str, tuple[Asked, CallToolResult]]


@pytest.fixture(scope="module")
async def tools(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tool]:
    async with Client(build_server(Settings(state_dir=tmp_path_factory.mktemp("tools")))) as client:
        return await tools_of(client)


@pytest.fixture(scope="module")
async def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, type[Result]]:
    """Tool -> the form of its results, by the title that its schema has before it is made lean."""
    named = {model.__name__: model for model in forms(Result)}
    server = build_server(Settings(state_dir=tmp_path_factory.mktemp("models")))
    return {tool.name: named[(tool.output_schema or {})["title"]] for tool in await server.list_tools()}


def forms(model: type[Result]) -> Iterator[type[Result]]:
    for each in model.__subclasses__():
        yield each
        yield from forms(each)


@pytest.fixture(scope="module")
async def answers(tmp_path_factory: pytest.TempPathFactory, warm: None) -> Answers:
    """What each call was answered; they follow each other. Then what a machine with a GPU would have answered."""
    found: dict[str, tuple[Asked, CallToolResult]] = {}
    settings = Settings(state_dir=tmp_path_factory.mktemp("answers") / "state")
    old = lesson(helped=5, tried=7, gain_pct=12.5, gain_low_pct=11.25, gain_high_pct=13.75)
    store_in(settings.state_dir).put_lessons([old])
    async with Client(build_server(settings, lambda _: FakeEvaluator())) as client:
        run_id = ""
        for name, call in CALLS.items():
            arguments = {key: run_id if value == RUN else value for key, value in call.arguments.items()}
            found[name] = call, await client.call_tool(call.tool, arguments)
            if call.tool == "start_optimization" and not run_id:
                run_id = content_of(found[name][1])["run_id"]
    for name, (tool, answer) in ANSWERS.items():
        with pytest.MonkeyPatch.context() as patch:
            result = await answer(tmp_path_factory.mktemp("made-up"), patch)
        found[name] = Asked(tool, {}, "ok"), await told(result)
    return found


async def told(result: Result) -> CallToolResult:
    """What a client gets of it."""

    async def evaluated() -> Result:
        return result

    return await respond(type(result), evaluated)


@pytest.mark.parametrize("name", [*CALLS, *ANSWERS])
async def test_text_and_structure_each_do_alone(answers: Answers, tools: dict[str, Tool], name: str) -> None:
    asked, result = answers[name]
    stands(result, tools[asked.tool], asked.kind)


@without_gpu
@pytest.mark.parametrize("name", UNAVAILABLE)
async def test_so_they_do_without_a_gpu(settings: Settings, tools: dict[str, Tool], name: str) -> None:
    call = UNAVAILABLE[name]
    async with Client(build_server(settings)) as client:
        stands(await client.call_tool(call.tool, call.arguments), tools[call.tool], call.kind)


async def test_lessons_that_cannot_be_read_do(tmp_path: Path, tools: dict[str, Tool]) -> None:
    (tmp_path / "state").write_text("not a folder")
    async with Client(build_server(Settings(state_dir=tmp_path / "state"))) as client:
        stands(await client.call_tool(UNREADABLE.tool, UNREADABLE.arguments), tools[UNREADABLE.tool], UNREADABLE.kind)


# No tool, no kind and no field is left out.


async def test_every_tool_answers_well_and_badly(tools: dict[str, Tool]) -> None:
    made_up = [Asked(tool, {}, "ok") for tool, _ in ANSWERS.values()]
    asked = [*CALLS.values(), *UNAVAILABLE.values(), UNREADABLE, *made_up]
    kinds = {tool: {each.kind for each in asked if each.tool == tool} for tool in tools}
    assert [tool for tool, found in kinds.items() if "ok" not in found] == []
    assert [tool for tool, found in kinds.items() if not found - {"ok", "running"}] == []
    assert {each.tool for each in asked} == set(tools) == set(NEEDED)


async def test_every_field_that_a_reader_needs_is_in_some_answer(answers: Answers, tools: dict[str, Tool]) -> None:
    seen: dict[str, set[str]] = {tool: set() for tool in tools}
    for asked, result in answers.values():
        seen[asked.tool] |= set(stands(result, tools[asked.tool], asked.kind))
    assert {tool: missing for tool, fields in seen.items() if (missing := set(NEEDED[tool]) - fields)} == {}


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind not in (Kind.OK, Kind.RUNNING)])
async def test_a_failure_of_any_kind_does_whichever_the_tool(
    tools: dict[str, Tool], models: dict[str, type[Result]], kind: Kind
) -> None:
    short = Problem(stage="compile", message="y is not defined", file="kernel.py", line=15, likely_fix="Define it.")
    long = Problem.model_validate({"stage": "run", **{name: "word " * limit for name, limit in PROBLEM_LIMITS.items()}})
    for name, tool in tools.items():
        for problem in (short, long):
            found = stands(await stopped(models[name], Stopped(kind, problem)), tool, kind.value)
            told_of = {f"problem.{field}" for field, value in problem if value is not None}
            assert set(OF_PROBLEMS) & set(found) == set(OF_PROBLEMS) & told_of


async def stopped(model: type[Result], how: Stopped) -> CallToolResult:
    """What a client gets of an evaluation that ended so."""

    async def evaluated() -> Result:
        raise how

    return await respond(model, evaluated)


# The checks find what they look for.


async def changed(
    answers: Answers, tools: dict[str, Tool], name: str, *, text: tuple[str, str] = ("", ""), **fields: Any
) -> None:
    asked, result = answers[name]
    block = TextContent(type="text", text=text_of(result).replace(*text) if text[0] else text_of(result))
    content = {**content_of(result), **fields}
    stands(result.model_copy(update={"content": [block], "structured_content": content}), tools[asked.tool], asked.kind)


async def test_a_figure_that_one_form_lacks_is_found(answers: Answers, tools: dict[str, Tool]) -> None:
    content = content_of(answers["times of both"][1])
    device_us = f"{content['cases'][0]['device_us']:.2f}"
    summary = content["summary"].replace(device_us, "some")
    await changed(answers, tools, "times of both")
    with pytest.raises(AssertionError, match=r"cases\.\*\.device_us = "):
        await changed(answers, tools, "times of both", text=(device_us, "some"), summary=summary)
    with pytest.raises(AssertionError, match="only the text has"):
        await changed(answers, tools, "times of both", score=None)


async def test_a_next_step_that_the_text_lacks_is_found(answers: Answers, tools: dict[str, Tool]) -> None:
    with pytest.raises(AssertionError):
        await changed(answers, tools, "compiled", next_step="Something else.")


@pytest.mark.parametrize(
    ("value", "text", "is_said"),
    [
        (1.5, "1.5x", True), (1.0049, "ratio 1.005", True), (1.5, "1.6", False), (4.8e12, "4.80 TB/s", True),
        (52_428_800, "52,428,800 B", True), (52_428_800, "L2 50 MiB", True), (132, "132 SMs", True),
        (132, "h132", False), ("not_told", "Not told.", True),
        ({"BLOCK": 64}, "BLOCK=64", True), ({"BLOCK": 64}, "BLOCK=32", False),
    ],
)  # fmt: skip
def test_a_value_is_said_with_the_digits_that_a_text_writes(value: Any, text: str, is_said: bool) -> None:
    assert said(value, text) == is_said
