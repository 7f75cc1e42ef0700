"""What each prompt needs to know: one model per prompt, its fields being the prompt's arguments.

MCP clients send every argument as a string and often send an empty one for a field left blank.
"""

from typing import Annotated

from pydantic import BeforeValidator, Field

from ..sandbox.wire import Wire


def _blank_is_absent(value: object) -> object:
    return None if isinstance(value, str) and not value.strip() else value


Text = Annotated[str, Field(pattern=r"\S")]
OptionalText = Annotated[str | None, BeforeValidator(_blank_is_absent)]


class GenerateTests(Wire):
    """Write the task file that says how a kernel is called, checked and timed."""

    kernel: Text
    """Path of the kernel file, or its source text."""
    entry: OptionalText = None
    """Name of the host function that callers use; found in the kernel file where left out."""
    notes: OptionalText = None
    """What is known about production: shapes, dtypes, layouts, accuracy that callers rely on."""


class OptimizeKernel(Wire):
    """Make a kernel faster, one measured idea at a time."""

    kernel: Text
    """Path of the kernel file that is the baseline, or its source text."""
    task: OptionalText = None
    """Path of the task file; where left out, writing one comes first."""
    target: Text = "h100"
    """GPU that the code is compiled for, such as `h100`, `h200` or `sm_90`."""
    goal: OptionalText = None
    """What is enough, such as `1.5x` or `memory bandwidth`; as fast as the hardware allows where left out."""
    rounds: Annotated[int, Field(ge=1, le=100)] = 8
    """Most candidates to try."""


class RemediateFailure(Wire):
    """Repair a kernel that failed in one of the tools."""

    kernel: Text
    """Path of the kernel file that failed, or its source text."""
    problem: Text
    """The failing result of the tool, whole or its `problem` alone, as JSON or text."""
    task: OptionalText = None
    """Path of the task file that the tool was given."""


class JudgeCandidate(Wire):
    """Decide whether a candidate replaces the kernel that it competes with."""

    kernel: Text
    """Path of the kernel file to beat, or its source text."""
    candidate: Text
    """Path of the kernel file offered instead, or its source text."""
    task: Text
    """Path of the task file that both are held to."""
    evidence: OptionalText = None
    """Results measured so far, as JSON or text; claims without results count for nothing."""


class RefineCandidate(Wire):
    """Choose the next edit of a candidate from what was measured."""

    kernel: Text
    """Path of the kernel file that is the baseline, or its source text."""
    candidate: Text
    """Path of the best kernel file so far, or its source text."""
    task: Text
    """Path of the task file that both are held to."""
    evidence: OptionalText = None
    """Results for the candidate (compile facts, benchmark, profile), as JSON or text."""
    tried: OptionalText = None
    """Ideas tried so far, each with its outcome."""


class Parametrize(Wire):
    """Expose a kernel's knobs, so that a search can set them."""

    kernel: Text
    """Path of the kernel file, or its source text."""
    task: OptionalText = None
    """Path of the task file; where left out, writing one comes first."""


Context = GenerateTests | OptimizeKernel | RemediateFailure | JudgeCandidate | RefineCandidate | Parametrize
