"""Every outcome becomes a result that text and structured content each tell in full."""

import pytest
from mcp_types import CallToolResult, TextContent

from tritonforge.sandbox.errors import Stopped, rejected
from tritonforge.sandbox.outcome import Kind, Problem
from tritonforge.sandbox.task import parse_task
from tritonforge.server.results import NEXT_STEPS, PROBLEM_LIMITS, TEXT_LIMIT, Result, ended, respond, text

pytestmark = pytest.mark.anyio

PROBLEM = Problem(
    stage="compile",
    message="y is not defined",
    file="kernel.py",
    line=15,
    excerpt=">   15 |     y + 1",
    likely_cause="A name used in the kernel is unknown at compile time.",
    likely_fix="Define it.",
    output="what it printed",
)


class Measured(Result):
    """A result with something of its own."""

    number: int | None = None


def text_of(result: CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


async def test_a_result_is_given_as_text_and_as_structured_content() -> None:
    async def evaluate() -> Measured:
        return Measured(kind=Kind.OK, summary="42 of them", next_step="Go on.", artifacts=["a://1", "a://2"], number=42)

    result = await respond(Measured, evaluate)
    assert not result.is_error
    assert result.structured_content == {
        "kind": "ok",
        "summary": "42 of them",
        "next_step": "Go on.",
        "problem": None,
        "artifacts": ["a://1", "a://2"],
        "number": 42,
    }
    assert text_of(result) == "42 of them\nNext: Go on.\nArtifacts: a://1 a://2"


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.OK])
async def test_an_early_end_of_any_kind_is_an_ordinary_result_with_its_problem(kind: Kind) -> None:
    async def evaluate() -> Measured:
        raise Stopped(kind, PROBLEM)

    result = await respond(Measured, evaluate)
    assert not result.is_error
    content = result.structured_content
    assert content is not None
    assert content["kind"] == kind.value
    assert content["number"] is None
    assert content["problem"] == PROBLEM.model_dump(mode="json")
    assert content["summary"] == f"{kind}: y is not defined (kernel.py, line 15)"
    assert content["next_step"] == "Define it."


async def test_a_malformed_reply_of_a_worker_is_cheating() -> None:
    async def evaluate() -> Measured:
        parse_task({"entry": 1})
        raise AssertionError("the reply was taken")

    content = (await respond(Measured, evaluate)).structured_content
    assert content is not None
    assert content["kind"] == "cheating"
    assert "malformed" in content["summary"]


async def test_a_fault_of_our_own_is_not_made_into_an_outcome() -> None:
    async def evaluate() -> Measured:
        raise KeyError("ours")

    with pytest.raises(KeyError):
        await respond(Measured, evaluate)


def test_the_text_tells_all_of_the_problem_and_nothing_twice() -> None:
    told = text(ended(Measured, Kind.COMPILE_ERROR, PROBLEM))
    assert told.splitlines() == [
        "compile_error: y is not defined (kernel.py, line 15)",
        ">   15 |     y + 1",
        "Likely cause: A name used in the kernel is unknown at compile time.",
        "It printed:",
        "what it printed",
        "Next: Define it.",
    ]


def test_a_problem_that_the_summary_leaves_out_is_told_below_it() -> None:
    result = Measured(kind=Kind.WRONG, summary="0 of 1 cases right", problem=PROBLEM, next_step="Mend it.")
    told = text(result).splitlines()
    assert told[:2] == ["0 of 1 cases right", "y is not defined"]
    assert "Likely fix: Define it." in told
    assert told[-1] == "Next: Mend it."


def test_a_problem_without_a_line_names_no_place() -> None:
    result = ended(Measured, Kind.REJECTED, rejected("source", "kernel is empty", file="k.py").problem)
    assert result.summary == "rejected: kernel is empty"
    assert result.next_step == NEXT_STEPS[Kind.REJECTED]


def test_every_failure_has_a_next_step() -> None:
    assert set(NEXT_STEPS) == set(Kind) - {Kind.OK, Kind.RUNNING}


def test_a_text_beyond_the_limit_is_cut_and_says_so() -> None:
    told = text(Measured(kind=Kind.OK, summary="s" * 20_000))
    assert told == "s" * TEXT_LIMIT + "\n[cut]"


def test_a_problem_of_any_size_stays_within_what_clients_show() -> None:
    huge = "x" * 50_000
    problem = Problem(
        stage="run", message=huge, file=huge, line=1, excerpt=huge, likely_cause=huge, likely_fix=huge, output=huge
    )
    result = ended(Measured, Kind.RUNTIME_ERROR, problem)
    assert result.problem is not None
    assert result.problem.message == "x" * PROBLEM_LIMITS["message"] + " [cut]"
    assert result.problem.line == 1
    assert len(result.model_dump_json()) < 10_000
    assert len(text(result)) < 10_000


def test_what_a_problem_quotes_is_printable() -> None:
    hostile = "first\nsecond\tthird\x1b[2J\x00\u202e\r"
    problem = Problem(stage="run", message=hostile, file="\x07", line=1, output=hostile)
    result = ended(Measured, Kind.RUNTIME_ERROR, problem)
    assert result.problem is not None
    assert result.problem.message == "first\nsecond\tthird?[2J???"
    assert all(character.isprintable() or character in "\n\t" for character in text(result))


def test_every_limited_part_is_a_part_of_a_problem() -> None:
    assert set(PROBLEM_LIMITS) == set(Problem.model_fields) - {"stage", "line"}
