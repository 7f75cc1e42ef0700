"""The beginning of a headless optimization: a folder for its agents, a task, and a run with a measured baseline."""

import json
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio

from ...profiling.optimization.model import BASELINE, Budget, Limits
from ...sandbox.errors import Stopped, rejected
from ...sandbox.outcome import Kind, Problem
from ...sandbox.source import INLINE, Source, read_source
from ..runs.machine import Beginning, Machine
from ..runs.memory import sources_of
from ..runs.record import Run
from ..runs.visible import visible
from ..tools.parameters import Progress
from ..tools.run_report import tell
from .model import NONE, Agent, Plan, Says, TaskAsked

TASK_TRIES: Final = 3
"""How often an agent may write a task that is refused."""
WAIT_S: Final = 600.0
"""Of one look at an evaluation; it is looked at again until it is over."""
WORKSPACES: Final = "headless"
OURS: Final = "tritonforge"
"""How the folders in a workspace begin that are ours."""
BASELINE_FILE: Final = "baseline.py"
TASK_FILE: Final = "task.py"


@dataclass(slots=True)
class Stages:
    """How long each stage took, however it ended."""

    seconds: dict[str, float] = field(default_factory=dict[str, float])

    @contextmanager
    def stage(self, name: str) -> Generator[None]:
        started = anyio.current_time()
        try:
            yield
        finally:
            self.seconds[name] = round(self.seconds.get(name, 0.0) + anyio.current_time() - started, 3)


@dataclass(slots=True)
class Start:
    """A run as it comes to be."""

    plan: Plan
    agent: Agent
    machine: Machine
    state_dir: Path
    deadline: float
    """By the event loop's clock."""
    say: Says
    stages: Stages
    begun: Says | None = None
    """Takes the run's id as soon as there is one: a later process may go on with it."""
    run_id: str | None = None
    """Known as soon as there is a run, so that whoever gives up can end it."""
    folder: Path = Path()
    """Where agents work."""
    task_file: Path | None = None
    """The whole task, where an agent wrote it."""

    async def run(self) -> Run:
        """A run with a measured baseline: the one that was named, or a new one, whose task is written first where there
        is none.

        Raises:
            Stopped: kernel, task or run can't be used, or the baseline can't be measured.
        """
        if self.plan.run_id is not None:
            return await self._go_on(self.plan.run_id)
        kernel = await anyio.to_thread.run_sync(read_source, self.plan.kernel, "kernel")
        await self._prepare(kernel)
        if self.plan.task is None:
            return await self._with_written_task(kernel)
        task = await anyio.to_thread.run_sync(read_source, self.plan.task, "task")
        return await self._begin(kernel, task)

    async def _go_on(self, run_id: str) -> Run:
        store = self.machine.store
        run = await anyio.to_thread.run_sync(store.run, run_id)
        if run.state not in ("open", "measuring"):
            raise rejected(
                "run",
                f"run {run_id} is {run.state} and takes no more candidates",
                fix="Start another one with its best attempt as the kernel.",
            )
        self.run_id = run_id
        sources = await anyio.to_thread.run_sync(sources_of, store, run.frozen)
        await self._prepare(sources.baseline)
        await anyio.to_thread.run_sync(self._show, visible(sources.task.text))
        # Its server may have ended while it measured.
        await self.machine.resume(run_id)
        return await self._measured(run_id)

    async def _prepare(self, kernel: Source) -> None:
        self.folder = await anyio.to_thread.run_sync(_workspace, self.plan, self.state_dir, kernel)

    async def _with_written_task(self, kernel: Source) -> Run:
        wrong: str | None = None
        path = self.folder / TASK_FILE
        await anyio.Path(path).unlink(missing_ok=True)
        for number in range(1, TASK_TRIES + 1):
            self.say(f"the agent writes the task (try {number} of {TASK_TRIES})")
            with self.stages.stage("task"):
                asked = TaskAsked(kernel, self.folder / BASELINE_FILE, self.folder, path, wrong)
                given = await self.agent.write_task(asked)
            if given is None:
                words = self.agent.ends[-1].last_words if self.agent.ends else None
                wrong = f"there is no file {path}" + ("" if words is None else f"; the last words were: {words}")
                self.say(f"  {wrong}")
                continue
            try:
                self.task_file = path
                task = await anyio.to_thread.run_sync(read_source, given, "task")
                return await self._begin(kernel, task)
            except Stopped as stopped:
                if stopped.kind in (Kind.UNAVAILABLE, Kind.CANCELLED):
                    raise
                problem = stopped.problem.model_copy(update={"output": None})
                wrong = json.dumps({"kind": stopped.kind, **problem.model_dump(mode="json", exclude_none=True)})
                self.say(f"  the task was refused: {stopped.kind}: {problem.message}")
        raise rejected(
            "task",
            f"the agent wrote no usable task in {TASK_TRIES} tries; the last one: {wrong}",
            fix="Write the task yourself and give it with --task, or mend the one that is there: " + str(path),
        )

    async def _begin(self, kernel: Source, task: Source) -> Run:
        plan = self.plan
        hidden = None
        if plan.hidden_cases is not None:
            hidden = await anyio.to_thread.run_sync(read_source, plan.hidden_cases, "hidden_cases")
        budget = Budget(
            attempts=plan.rounds,
            # A run that is left open for another agent has that one's time.
            wall_s=None if plan.agent == NONE else max(1.0, self.deadline - anyio.current_time()),
            target_pct=plan.target_pct,
            target_ratio=plan.target_ratio,
        )
        with self.stages.stage("baseline"):
            run = await self.machine.start(Beginning(kernel, task, hidden, plan.target, budget, Limits()))
        self.run_id = run.frozen.run_id
        await anyio.to_thread.run_sync(self._show, visible(task.text))
        if self.begun is not None:
            self.begun(self.run_id)
        self.say(f"run {self.run_id}: measuring the baseline")
        return await self._measured(self.run_id)

    def _show(self, task: str) -> None:
        """Give agents the task as they may see it; one that an agent wrote with more is kept where they do not work."""
        path = self.folder / TASK_FILE
        if self.task_file == path and path.read_text(encoding="utf-8-sig") != task:
            self.task_file = self.state_dir / WORKSPACES / f"{self.folder.name}-{TASK_FILE}"
            self.task_file.parent.mkdir(parents=True, exist_ok=True)
            path.replace(self.task_file)
        # What stands there may be a link by now.
        path.unlink(missing_ok=True)
        path.write_text(task, encoding="utf-8")

    async def _measured(self, run_id: str) -> Run:
        with self.stages.stage("baseline"):
            while not await self.machine.wait(run_id, BASELINE, WAIT_S, _progress(self.say)):
                pass
        answer = await self.machine.answer(run_id, BASELINE)
        told = tell(answer)
        if told.problem is not None:
            raise Stopped(told.kind, told.problem)
        self.say(f"run {run_id}: {told.summary}")
        return answer.run


def _workspace(plan: Plan, state_dir: Path, kernel: Source) -> Path:
    """A new folder for agents to work in, with the baseline in it.

    Raises:
        Stopped: ``unavailable``: it can't be written.
    """
    name = "kernel" if kernel.shown_as == INLINE else Path(kernel.shown_as).stem
    above = (plan.workspace or state_dir / WORKSPACES).expanduser().absolute()
    folder = above
    try:
        above.mkdir(parents=True, exist_ok=True)
        # Always a new one: whatever its owner keeps in the folder that he names is none of ours.
        folder = Path(tempfile.mkdtemp(prefix=f"{name if plan.workspace is None else OURS}-", dir=above))
        # An agent may read it, and whatever it does to it: the run has its own.
        (folder / BASELINE_FILE).write_text(kernel.text, encoding="utf-8")
    except OSError as error:
        raise Stopped(
            Kind.UNAVAILABLE,
            Problem(
                stage="agent",
                message=f"the folder {folder} can't be written: {error.strerror}",
                likely_fix="Name another one: --workspace DIR.",
            ),
        ) from None
    return folder


def _progress(say: Says) -> Progress:
    """Tells each thing that is done once."""
    last = ""

    async def progress(done: float, total: float, message: str) -> None:
        nonlocal last
        if message != last:
            last = message
            say(f"  {message}")

    return progress
