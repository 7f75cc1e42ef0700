"""submit_candidate: one idea, evaluated in one call."""

from typing import Final

import anyio
from mcp_types import ToolAnnotations

from ...sandbox.errors import Stopped
from ...sandbox.source import read_source
from ..runs.machine import Machine
from .parameters import Progress
from .run_report import SubmissionResult, submission, tell

NAME: Final = "submit_candidate"
TITLE: Final = "Evaluate one candidate of an optimization run"
DESCRIPTION: Final = """\
Evaluates one candidate of a run that start_optimization began, in one call: is it new, does it compile, is it right, \
how does its time compare with the best attempt so far and with the baseline (interleaved), and does that stand up to \
a second look (fresh process, fresh seeds, hidden cases, times once more). It stops at the first failure and says how \
to mend it. One idea a candidate: change one thing of its parent, and say in strategy what and why.
Returns kind (ok, or how the candidate failed: wrong, compile_error, ... with problem), attempt, verdict: accept (the \
best so far), continue (and which lever next) or finish (the run is over); accepted, reasons[], score and \
versus_incumbent (ratio with its 95 % interval, above 1 is faster), cases[] (device_us, ratio, comparison, \
speed_of_light_pct), hints[] with numbers before and after, duplicate_of (same machine code, or the same file but for \
comments: answered from memory, costs nothing), remarks[] (near-duplicates, repeated strategies, what is untried), \
incumbent, attempts_left, next_step.
Takes 2 to 60 s. Where that is longer than wait_s the kind is 'running' and the evaluation goes on: \
get_run(run_id, attempt, wait_s) has its answer. Cancelling the call ends the evaluation. Several agents may submit to \
one run at once."""
ANNOTATIONS: Final = ToolAnnotations(
    title=TITLE,
    read_only_hint=False,
    # The same file again is answered from memory; a failed or lost call can be repeated.
    idempotent_hint=True,
    destructive_hint=False,
    open_world_hint=True,
)


async def submit_candidate(
    machine: Machine,
    progress: Progress,
    *,
    run_id: str,
    kernel: str,
    strategy: str,
    parent: int | None,
    wait_s: float,
) -> SubmissionResult:
    """Evaluate a candidate, or begin to.

    Raises:
        Stopped: ``rejected``: the file can't be used, or the run takes no candidate of that parent.
    """
    source = await anyio.to_thread.run_sync(read_source, kernel, "kernel")
    attempt = await machine.submit(run_id, source, strategy, parent)
    failure = None
    if attempt.state == "running":
        try:
            failure = await settled(machine, run_id, attempt.number, wait_s, progress)
        except anyio.get_cancelled_exc_class():
            # Whoever asked does not want it any more.
            with anyio.CancelScope(shield=True):
                await machine.withdraw(run_id, attempt.number)
            raise
    answer = await machine.answer(run_id, attempt.number)
    return submission(tell(answer, failure=failure, doing=machine.at_work(run_id).get(attempt.number)))


async def settled(machine: Machine, run_id: str, number: int, wait_s: float, progress: Progress) -> Stopped | None:
    """Wait for an attempt; what its evaluation ended with, where that says nothing of the candidate."""
    try:
        await machine.wait(run_id, number, wait_s, progress)
    except Stopped as stopped:
        return stopped
    return None
