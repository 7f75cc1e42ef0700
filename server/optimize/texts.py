"""What agents without a person are told beyond the prompts."""

from typing import Final

from ...prompts.contexts import GenerateTests, OptimizeKernel
from ...prompts.render import render
from ...prompts.roles import ROLES
from ..prompt_context import facts_of
from ..switched_off import told
from .model import SWITCHED_OFF, Ablation, Site, TaskAsked

ALONE: Final = """\
You work without a person: nobody answers questions or grants permission. Decide, and go on. Write files only into the
current folder."""

ONCE: Final = """\
You have one candidate: it is judged, the run ends, and there is no second one. Submit the best that you can justify.
"""

CANDIDATE_RULES: Final = """\
You make a Triton kernel faster, one measured idea a round. The request is one JSON object: `parent` is the kernel to \
change, `task` how it is called and checked, `findings` and `hints` why it is slow and what to change, `attempts` \
what was tried with its outcome (never the same again), `lessons` what earlier runs taught, `last` what became of your \
last answer, `remaining` what is left of the budget.
Rules: the entry keeps its name, signature, output dtypes and layouts. All of the work is done in Triton kernels, in \
each call: no other library computes a part of it, nothing is kept between calls, nothing recognizes the task's shapes \
or harness. One idea a candidate. A hidden set of cases is checked, too.
Answer with one JSON object and nothing else: {"kernel": the whole new kernel file, "strategy": in a sentence what was \
changed and why it should help, "parent": number of the attempt that it was made from (optional)}."""

TASK_RULES: Final = """\
You write the task file for a Triton kernel, as `prompt` in the request tells. `last` says what was wrong with the one \
before. You can't run anything: the file is checked after you answer.
Answer with one JSON object and nothing else: {"task": the whole task file}."""


def playbook(site: Site, number: int, of: int, ablations: frozenset[Ablation] = frozenset()) -> str:
    """The prompt of an agent that drives a run.

    Args:
        site: the run.
        number: of the agent.
        of: how many there are.
        ablations: what it is not given.

    Raises:
        Stopped: the run can't be read.
    """
    known = facts_of(site.machine.store, site.run_id, ROLES["optimize_kernel"].focus)
    asked = OptimizeKernel(kernel=str(site.kernel), task=str(site.task), target=site.target, run_id=site.run_id)
    beside = ""
    if of > 1:
        beside = (
            f"\nYou are agent {number} of {of} that work on this run at the same time. Look at get_run before each "
            "idea, and take one that nobody has: their attempts stand there while they are being evaluated.\n"
        )
    without = [SWITCHED_OFF[each] for each in sorted(ablations) if each in SWITCHED_OFF]
    once = ONCE if Ablation.ONE_SHOT in ablations else ""
    return f"""\
{render(asked, known)}{told(without)}

## Nobody is here

The run is begun, and its baseline measured: do not call `start_optimization`. {ALONE}
{once}{beside}
Go on until `run_state` is `finished` or no idea is left that rests on a measured fact. Then report, and end.
"""


def task_prompt(asked: TaskAsked) -> str:
    """The prompt of an agent that writes a task with the tools at hand."""
    wrong = "" if asked.wrong is None else f"\nThe one that is there was refused. Mend it: {asked.wrong}\n"
    return f"""\
{render(GenerateTests(kernel=str(asked.path)))}

## Where to

Write the finished task file to `{asked.written}`. {ALONE} Do not optimize the kernel, and start no run: that follows.
{wrong}"""


def task_text_prompt(asked: TaskAsked) -> str:
    """The same for a program that only answers."""
    return render(GenerateTests(kernel=asked.kernel.text))
