"""The form that every tool's result has, and the one place where an early end becomes a result."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Final, TypeVar

from mcp_types import CallToolResult, TextContent
from pydantic import ValidationError

from ..sandbox.errors import Stopped
from ..sandbox.outcome import Kind, Problem
from ..sandbox.wire import Wire

TEXT_LIMIT = 9000
"""Characters of a result's text: clients cut between 10,000 and 12,000."""
PROBLEM_LIMITS = {
    "message": 1600, "file": 300, "excerpt": 1500, "likely_cause": 500, "likely_fix": 800, "output": 1400,
}  # fmt: skip
"""Characters of a problem's parts: together, with message and fix repeated in summary and next step, below
`TEXT_LIMIT`."""

NEXT_STEPS: Final[Mapping[Kind, str]] = {
    Kind.REJECTED: "Mend the call as the problem says, and call it again.",
    Kind.CANCELLED: "Call it again when its result is wanted.",
    Kind.UNSUPPORTED: "It says nothing of the kernel: go on with what works here.",
    Kind.COMPILE_ERROR: "Mend the line that the problem names, and call it again.",
    Kind.LAUNCH_ERROR: "Ask for less of what the launch lacks, and call it again.",
    Kind.RUNTIME_ERROR: "Mend the line that the problem names, and call it again.",
    Kind.WRONG: "Mend the kernel, then run_correctness.",
    Kind.TIMEOUT: "Find what does not end, or make the case smaller.",
    Kind.OUT_OF_MEMORY: "Allocate less, or make the case smaller.",
    Kind.CHEATING: "Remove what the problem names.",
    Kind.UNAVAILABLE: "Change no code for it: go on with what works here.",
}
"""Where the problem itself has no likely fix."""


class Result(Wire):
    """What all results have in common."""

    kind: Kind
    """How it ended; anything but `ok` and `running` comes with `problem`."""
    summary: str
    """The essentials in a few lines."""
    next_step: str | None = None
    """What to do next, where there is an obvious step."""
    problem: Problem | None = None
    """Why it did not end in `ok`: stage, message, place, likely cause and fix."""
    artifacts: list[str] = []
    """Resource URIs of files too large for a result."""

    def in_words(self) -> str:
        """What the text begins with: more than the summary where that does not tell all that the fields do."""
        return self.summary


R = TypeVar("R", bound=Result)


async def respond(
    model: type[R], evaluate: Callable[[], Awaitable[R]], *, turn: AbstractAsyncContextManager[object] | None = None
) -> CallToolResult:
    """Run an evaluation; its result, or the outcome that it stopped with, as a tool result.

    The structured content and the text each stand alone: some clients show their model only one of them.

    Args:
        model: form of the result.
        evaluate: the evaluation.
        turn: entered first: waits until there is room for one more.
    """
    try:
        async with turn or nullcontext():
            result = await evaluate()
    except Stopped as stopped:
        result = ended(model, stopped.kind, stopped.problem)
    except ValidationError as error:
        # Only worker data is validated inside an evaluation: a malformed reply is the worker's doing.
        problem = Problem(stage="worker", message=f"a worker's reply is malformed: {error.error_count()} errors")
        result = ended(model, Kind.CHEATING, problem)
    return CallToolResult(
        content=[TextContent(type="text", text=text(result))],
        structured_content=result.model_dump(mode="json"),
    )


def ended(model: type[R], kind: Kind, problem: Problem) -> R:
    """A result that carries only its outcome, in bounds and printable whatever a kernel or a caller put into it."""
    problem = problem.model_copy(
        update={
            name: readable(value, limit)
            for name, limit in PROBLEM_LIMITS.items()
            if (value := getattr(problem, name)) is not None
        }
    )
    where = f" ({problem.file}, line {problem.line})" if problem.file and problem.line else ""
    return model(
        kind=kind,
        summary=f"{kind}: {problem.message}{where}",
        problem=problem,
        next_step=problem.likely_fix or NEXT_STEPS.get(kind),
    )


def readable(value: str, limit: int) -> str:
    """Lines of printable characters, cut; a terminal, or a model, may take others for more than text."""
    shown = "".join(character if character.isprintable() or character in "\n\t" else "?" for character in value[:limit])
    return shown + " [cut]" if len(value) > limit else shown


def text(result: Result) -> str:
    """The same facts as the structured content, for a reader."""
    parts = [result.in_words()]
    problem = result.problem
    if problem is not None:
        if problem.message not in result.summary:
            parts.append(problem.message)
        if problem.excerpt:
            parts.append(problem.excerpt)
        if problem.likely_cause:
            parts.append(f"Likely cause: {problem.likely_cause}")
        if problem.likely_fix and problem.likely_fix != result.next_step:
            parts.append(f"Likely fix: {problem.likely_fix}")
        if problem.output:
            parts.append(f"It printed:\n{problem.output}")
    if result.next_step:
        parts.append(f"Next: {result.next_step}")
    if result.artifacts:
        parts.append("Artifacts: " + " ".join(result.artifacts))
    whole = "\n".join(parts)
    return whole if len(whole) <= TEXT_LIMIT else whole[:TEXT_LIMIT] + "\n[cut]"
