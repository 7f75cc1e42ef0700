"""The roles of the loop: one prompt each, and what of a run goes into it."""

from collections.abc import Callable, Mapping
from typing import Final, Literal, NamedTuple

from .contexts import (
    Context,
    GenerateTests,
    JudgeCandidate,
    OptimizeKernel,
    Parametrize,
    ProposeCandidate,
    RefineCandidate,
    RemediateFailure,
)
from .run_facts import RunFacts

Focus = Literal["baseline", "parent", "failed", "newest", "incumbent"]
"""Which attempt of a run a role is about: `parent` is the one to go on from, `failed` and `newest` are the latest."""
SOURCE: Final = "<source>"
"""Path of what was given as text."""


class PromptDescription(NamedTuple):
    """One prompt as a client lists it; its arguments are the fields of `context`."""

    name: str
    title: str
    description: str
    when: str
    """When an agent should take this role, for clients that choose by it."""
    context: type[Context]
    focus: Focus
    fills: Mapping[str, Callable[[RunFacts], object]]
    """Arguments that a run gives where they were left out."""

    @property
    def template(self) -> str:
        """File name within the folder of templates."""
        return f"{self.name}.md"


def _file(run: RunFacts, number: int, shown_as: str) -> str:
    return shown_as if shown_as != SOURCE else f"get_run(run_id='{run.run_id}', attempt={number}, detail=true)"


def _task(run: RunFacts) -> str:
    return run.task if run.task != SOURCE else f"frozen in run {run.run_id}, given to it as text"


def _baseline(run: RunFacts) -> str:
    return _file(run, 0, run.kernel)


def _focus(run: RunFacts) -> str:
    return _file(run, run.focus.number, run.focus.shown_as)


def _number(run: RunFacts) -> int:
    return run.focus.number


def _incumbent(run: RunFacts) -> str:
    return _file(run, run.incumbent, run.incumbent_shown_as)


def _target(run: RunFacts) -> str:
    return run.target


def _attempts_left(run: RunFacts) -> int:
    return run.attempts_left


def _entry(run: RunFacts) -> str:
    return run.entry


PROMPTS: Final = (
    PromptDescription(
        name="optimize_kernel",
        title="Optimize a kernel",
        description="Make a Triton kernel faster, one measured idea at a time, until the evidence says stop.",
        when="Use when a Triton kernel is to be made faster, or an optimization run is to be gone on with.",
        context=OptimizeKernel,
        focus="parent",
        fills={"kernel": _baseline, "task": _task, "target": _target, "rounds": _attempts_left},
    ),
    PromptDescription(
        name="generate_tests",
        title="Generate tests",
        description="Write the task file that says how a kernel is called, checked and timed.",
        when="Use when a Triton kernel has no task file yet, or its task file is rejected or weak.",
        context=GenerateTests,
        focus="baseline",
        fills={"kernel": _baseline, "entry": _entry},
    ),
    PromptDescription(
        name="propose_candidate",
        title="Propose a candidate",
        description="Have the next idea of a run from its facts, write it as a candidate and submit it.",
        when="Use when an optimization run is open and its next candidate is wanted.",
        context=ProposeCandidate,
        focus="parent",
        fills={"kernel": _focus, "attempt": _number, "task": _task},
    ),
    PromptDescription(
        name="remediate_failure",
        title="Remediate a failure",
        description="Repair a kernel that failed to compile, launch, finish or give the right numbers.",
        when="Use when a tritonforge tool returned a kind other than ok or running for a kernel.",
        context=RemediateFailure,
        focus="failed",
        fills={"kernel": _focus, "attempt": _number, "task": _task},
    ),
    PromptDescription(
        name="judge_candidate",
        title="Judge a candidate",
        description="Decide on evidence whether a candidate replaces the kernel that it competes with.",
        when="Use when somebody claims that a Triton kernel is faster, before it is merged or reported.",
        context=JudgeCandidate,
        focus="newest",
        fills={"kernel": _incumbent, "candidate": _focus, "attempt": _number, "task": _task},
    ),
    PromptDescription(
        name="refine_candidate",
        title="Refine a candidate",
        description="Choose the next edit from compile facts and a profile, with a prediction that can fail.",
        when="Use when a Triton kernel is right and measured, and the one edit that helps most is wanted.",
        context=RefineCandidate,
        focus="parent",
        fills={"kernel": _baseline, "candidate": _focus, "attempt": _number, "task": _task},
    ),
    PromptDescription(
        name="parametrize",
        title="Expose a kernel's knobs",
        description="Turn a kernel's numbers into constexpr parameters at the same code, for tune_kernel to search.",
        when="Use when tile sizes, warps or stages of a Triton kernel are to be searched and stand fixed in its code.",
        context=Parametrize,
        focus="incumbent",
        fills={"kernel": _focus, "task": _task},
    ),
)

ROLES: Final = {prompt.name: prompt for prompt in PROMPTS}
