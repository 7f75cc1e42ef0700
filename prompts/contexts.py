"""What each prompt needs to know: one model per prompt, its fields being the prompt's arguments.

MCP clients send every argument as a string and often send an empty one for a field left blank. None is required: where
neither an argument nor a run gives something, the text says where to look, and so serves skills and playbooks too.
"""

from typing import Annotated

from pydantic import BeforeValidator, Field

from ..sandbox.wire import Wire


def _blank_is_absent(value: object) -> object:
    return None if isinstance(value, str) and not value.strip() else value


OptionalText = Annotated[str | None, BeforeValidator(_blank_is_absent)]
AttemptNumber = Annotated[Annotated[int, Field(ge=0, lt=2**31)] | None, BeforeValidator(_blank_is_absent)]
Rounds = Annotated[Annotated[int, Field(ge=1, le=100)] | None, BeforeValidator(_blank_is_absent)]


class OptimizeKernel(Wire):
    """Make a kernel faster, one measured idea at a time."""

    kernel: OptionalText = None
    """Path of the kernel file that is the baseline, or its source text."""
    task: OptionalText = None
    """Path of the task file; where left out, writing one comes first."""
    target: OptionalText = None
    """GPU that the code is compiled for, such as `h100`, `h200` or `sm_90`. Default: this machine's, else `h100`."""
    goal: OptionalText = None
    """What is enough, such as `1.5x` or `memory bandwidth`; as fast as the hardware allows where left out."""
    rounds: Rounds = None
    """Most candidates to try, 1 to 100. Default: 8, or what the run has left."""
    run_id: OptionalText = None
    """Run to go on with, as get_run lists them; what it knows fills the prompt."""


class GenerateTests(Wire):
    """Write the task file that says how a kernel is called, checked and timed."""

    kernel: OptionalText = None
    """Path of the kernel file, or its source text."""
    entry: OptionalText = None
    """Name of the host function that callers use; found in the kernel file where left out."""
    notes: OptionalText = None
    """What is known about production: shapes, dtypes, layouts, accuracy that callers rely on."""
    run_id: OptionalText = None
    """Run whose kernel needs a better task; that run's own task stays frozen."""


class ProposeCandidate(Wire):
    """Have the next idea of a run, and write it as a candidate."""

    run_id: OptionalText = None
    """Run that the candidate is for, as get_run lists them; what it knows fills the prompt."""
    attempt: AttemptNumber = None
    """Number of the attempt to start from; the one that the run suggests where left out."""
    kernel: OptionalText = None
    """Path of the kernel file to start from, or its source text; from the run where left out."""
    task: OptionalText = None
    """Path of the task file; from the run where left out."""
    case: OptionalText = None
    """Case to make faster; the one with the largest weight times time where left out."""
    idea: OptionalText = None
    """An idea to follow, or a direction; what the evidence ranks first where left out."""


class RemediateFailure(Wire):
    """Repair a kernel that failed in one of the tools."""

    kernel: OptionalText = None
    """Path of the kernel file that failed, or its source text; from the run where left out."""
    problem: OptionalText = None
    """The failing result of the tool, whole or its `problem` alone, as JSON or text; from the run where left out."""
    task: OptionalText = None
    """Path of the task file that the tool was given."""
    run_id: OptionalText = None
    """Run that the failed attempt belongs to; what it knows fills the prompt."""
    attempt: AttemptNumber = None
    """Number of the attempt that failed; the newest of the run that did where left out."""


class JudgeCandidate(Wire):
    """Decide whether a candidate replaces the kernel that it competes with."""

    kernel: OptionalText = None
    """Path of the kernel file to beat, or its source text; from the run where left out."""
    candidate: OptionalText = None
    """Path of the kernel file offered instead, or its source text; from the run where left out."""
    task: OptionalText = None
    """Path of the task file that both are held to; from the run where left out."""
    evidence: OptionalText = None
    """Results measured so far, as JSON or text; claims without results count for nothing."""
    run_id: OptionalText = None
    """Run that the candidate was submitted to; what it knows fills the prompt."""
    attempt: AttemptNumber = None
    """Number of the attempt to judge; the newest finished one of the run where left out."""


class RefineCandidate(Wire):
    """Choose the next edit of a candidate from what was measured."""

    kernel: OptionalText = None
    """Path of the kernel file that is the baseline, or its source text; from the run where left out."""
    candidate: OptionalText = None
    """Path of the kernel file to refine, or its source text; from the run where left out."""
    task: OptionalText = None
    """Path of the task file that both are held to; from the run where left out."""
    case: OptionalText = None
    """Case to make faster; the one with the largest weight times time where left out."""
    evidence: OptionalText = None
    """Results for the candidate (compile facts, benchmark, profile), as JSON or text."""
    tried: OptionalText = None
    """Ideas tried so far, each with its outcome."""
    run_id: OptionalText = None
    """Run that the candidate was submitted to; what it knows fills the prompt."""
    attempt: AttemptNumber = None
    """Number of the attempt to refine; the one that the run suggests where left out."""


class Parametrize(Wire):
    """Expose a kernel's knobs, so that a search can set them."""

    kernel: OptionalText = None
    """Path of the kernel file, or its source text; the best one of the run where left out."""
    task: OptionalText = None
    """Path of the task file; where left out, writing one comes first."""
    run_id: OptionalText = None
    """Run whose best kernel is meant; what it knows fills the prompt."""


Context = (
    OptimizeKernel
    | GenerateTests
    | ProposeCandidate
    | RemediateFailure
    | JudgeCandidate
    | RefineCandidate
    | Parametrize
)
