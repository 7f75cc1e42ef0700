"""start_optimization: a kernel and a task become a run with a measured baseline and a budget."""

from typing import Final

import anyio
from mcp_types import ToolAnnotations

from ...profiling.optimization.model import BASELINE, Budget, Limits
from ...sandbox.source import read_source
from ..runs.machine import Beginning, Machine
from .parameters import Progress
from .run_lineage_report import started
from .run_lineage_shown import StartResult
from .run_report import tell
from .submit_candidate import settled

NAME: Final = "start_optimization"
TITLE: Final = "Start an optimization run"
DESCRIPTION: Final = """\
Begins a run: freezes the kernel file (the baseline) and the task, and measures the baseline once: are its results \
right, how long does each case take, how far is that from the speed of light, and why is it slow. From then on give \
candidates to submit_candidate, which judges them the same way every time, remembers all of them, and ends the run.
Returns run_id, cases[] of the baseline (device_us, speed_of_light_pct), findings[] by expected gain (id, line, \
recipe) and hints[] on what to change first, lessons[] of earlier runs, hidden_cases (how many more cases are judged \
before a candidate is accepted; nothing else of them is ever told), budget and next_step.
The budget ends the run: attempts (default 8), wall_s, target_pct of the speed of light (default 95), target_ratio; or \
diminishing returns by its own history. case_regression_pct is what one case may lose for the others' sake.
Takes 5 to 60 s. Where that is longer than wait_s the kind is 'running' and it goes on: get_run(run_id, attempt=0, \
wait_s) has the answer. Without a GPU candidates are compiled and checked in Triton's interpreter, and none can be \
accepted. Runs are kept on disk and can be gone on with after anything."""
ANNOTATIONS: Final = ToolAnnotations(
    title=TITLE,
    read_only_hint=False,
    # Each call begins a run of its own.
    idempotent_hint=False,
    destructive_hint=False,
    open_world_hint=True,
)


async def start_optimization(
    machine: Machine,
    progress: Progress,
    *,
    kernel: str,
    task: str,
    hidden_cases: str | None,
    target: str | None,
    budget: Budget,
    limits: Limits,
    wait_s: float,
) -> StartResult:
    """Begin a run, and wait for its baseline.

    Raises:
        Stopped: a file can't be used, or nothing can be kept.
    """

    def read() -> Beginning:
        return Beginning(
            kernel=read_source(kernel, "kernel"),
            task=read_source(task, "task"),
            hidden=None if hidden_cases is None else read_source(hidden_cases, "hidden_cases"),
            target=target,
            budget=budget,
            limits=limits,
        )

    await progress(0, 1, "looking at kernel and task")
    run = await machine.start(await anyio.to_thread.run_sync(read))
    run_id = run.frozen.run_id
    try:
        failure = await settled(machine, run_id, BASELINE, wait_s, progress)
    except anyio.get_cancelled_exc_class():
        # Nobody knows its id: nobody would go on with it.
        with anyio.CancelScope(shield=True):
            await machine.cancel(run_id, BASELINE)
        raise
    answer = await machine.answer(run_id, BASELINE)
    told = tell(answer, failure=failure, doing=machine.at_work(run_id).get(BASELINE))
    known = await anyio.to_thread.run_sync(machine.store.lessons)
    return started(told, answer, known)
