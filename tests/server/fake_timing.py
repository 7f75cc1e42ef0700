"""An executor without processes for what times cases: kernels, replayers and a task that behave as the test says."""

import random
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.profiling.made_up import spec
from tests.sandbox.fake_timed import INPUTS, FakeTimed
from tritonforge.profiling.timing import FULL, Plan
from tritonforge.sandbox.executors.base import Device, Executor, Job, Role
from tritonforge.sandbox.isolation import Seal
from tritonforge.sandbox.process import WorkerProcess
from tritonforge.sandbox.source import Source
from tritonforge.sandbox.workers import gpu_worker, task_worker
from tritonforge.server.timed_case import CaseTimer
from tritonforge.server.timed_result import Reference, TimedCase

EXPECTED: dict[str, Any] = {"outputs": [], "aliased": [], "in_place": [], "bytes": 8192}
CANDIDATE, BASELINE, TASK = (Source(name, f"{name}.py", None) for name in ("candidate", "baseline", "task"))


@dataclass
class World:
    """What all workers of an executor have in common; a test changes it before or between cases."""

    us: dict[str, float] = field(default_factory=lambda: {"candidate": 100.0, "baseline": 100.0})
    """Source -> time of a call on the device."""
    replayed: dict[str, float] = field(default_factory=lambda: {"candidate": 1.0, "baseline": 1.0})
    """Source -> time of its replayed call over that of an ordinary one."""
    reference_us: float = 150.0
    reasons: dict[str, str] = field(default_factory=dict[str, str])
    """Source -> why it can't be replayed."""
    call_us: Callable[[float], float] = lambda us: us + 20.0
    right: dict[str, Callable[[int], bool]] = field(default_factory=dict[str, Callable[[int], bool]])
    """Side, such as `replayed candidate` -> whether its results for these contents are right."""
    coarse: bool = False
    """Results are within tolerance and far less accurate than the reference's."""
    changed: Callable[["FakeTimed"], None] = lambda process: None
    """Done to each process when it has become a side, and to the task's when it is started."""
    started: Callable[["FakeTimed"], None] = lambda process: None
    """Done to each process when it is started."""
    sources: list[str] | None = None
    """Names of kernel files in the order in which they are loaded; None: they are named as they are shown."""
    description: dict[str, Any] = field(default_factory=lambda: spec(cases={"train": CASE}).model_dump())


CASE: dict[str, Any] = {"parameters": {}, "weight": 1.0, "small": False}


class FakeKernel(FakeTimed):
    """A process with a kernel file."""

    index = 0
    """Among the processes of its role."""

    def __init__(self, world: World) -> None:
        super().__init__("kernel")
        self.world = world
        self.bias = 1.0

    def do_load_kernel(self, *, shown_as: str, **_: Any) -> dict[str, Any]:
        sources = self.world.sources
        self._become(shown_as.removesuffix(".py") if sources is None else sources[self.index % 2])
        return {}

    def do_record(self, *, seed: int) -> dict[str, Any]:
        if (reason := self.world.reasons.get(self.source)) is not None:
            return {"reason": reason}
        plan: dict[str, Any] = {
            "inputs": {"tuple": []}, "parameters": [self.source], "storages": [], "kernels": [], "operations": [],
            "outputs": {"value": 0},
        }  # fmt: skip
        return {"plan": plan}

    def do_tuned(self) -> dict[str, Any]:
        one = {"kernel": f"{self.source}_kernel", "configuration": "BLOCK: 64", "configurations": 4, "tuning_s": 0.2}
        return {"tuned": [one]}

    def do_visit(self, *, number: int, contents: list[int]) -> dict[str, Any]:
        self.us = self.world.us[self.source] * self._share()
        return super().do_visit(number=number, contents=contents)

    def _become(self, source: str) -> None:
        self.source = self.name = source
        self.call_us = lambda: self.world.call_us(self.world.us[source])
        self.right = lambda contents: self.world.right.get(self.name, lambda _: True)(contents)
        self.world.changed(self)

    def _share(self) -> float:
        return 1.0


class FakeReplayer(FakeKernel):
    """A process with recorded launches."""

    def do_load_plan(self, *, plan: dict[str, Any], **_: Any) -> dict[str, Any]:
        (source,) = plan["parameters"]
        self._become(source)
        self.name = f"replayed {source}"
        return {}

    def _share(self) -> float:
        return self.world.replayed[self.source] * self.bias


class FakeTask(FakeTimed):
    """A process with the task; what it times is the reference."""

    def __init__(self, world: World) -> None:
        super().__init__("task", world.reference_us)
        self.world = world
        self.number: Any = None
        """What is expected in slot 1."""
        world.changed(self)

    def do_load_task(self, **_: Any) -> dict[str, Any]:
        return {"task": self.world.description}

    def do_make_inputs(self, **_: Any) -> dict[str, Any]:
        return {"tree": INPUTS, "blobs": [b"x" * 4096]}

    def do_make_alternatives(self, *, case: str, seeds: list[int]) -> dict[str, Any]:
        return {"tree": {"list": [{"list": [{"value": seed}]} for seed in seeds]}}

    def do_keep_contents(self, *, seed: int | None) -> dict[str, Any]:
        return {"varies": seed is not None}

    def do_vary(self, *, number: int) -> dict[str, Any]:
        self.number = number
        return {"expected": EXPECTED}

    def do_vary_from(self, *, tree: dict[str, Any], number: int, **_: Any) -> dict[str, Any]:
        self.number = tree["dict"][0][1]["value"]
        return {"expected": EXPECTED}

    def do_judge_outputs(self, *, tree: dict[str, Any], slot: int, exact: bool) -> dict[str, Any]:
        assert slot == 1
        wrong = tree["dict"][0][1]["value"] != self.number
        output = {"where": "output", "mismatch": None, "elements": 10, "wrong_elements": 10 * int(wrong)}
        coarse = {
            "where": "output", "error": 1e-2, "reference_error": 1e-7, "allowed": 1e-6, "factor": 10.0, "elements": 10,
        }  # fmt: skip
        accuracy = [coarse] if exact and self.world.coarse else []
        return {"outputs": [output], "accuracy": accuracy, "changed": [], "broken": []}

    def do_time_reference(self, *, compiled: bool) -> dict[str, Any]:
        self.name = "torch.compile" if compiled else "eager"
        return {}

    def do_work(self, *, case: str) -> dict[str, Any]:
        return {"work": {"bytes": 8192.0, "flops": 1000.0}}


class FakeExecutor(Executor):
    """Starts fakes, and remembers them."""

    python = "python"

    def __init__(self, world: World) -> None:
        self.world = world
        self.started: list[tuple[Role, FakeTimed]] = []
        self.alive = 0

    def submit(self, job: Job) -> AbstractAsyncContextManager[WorkerProcess]:
        return self._submit(job)

    @asynccontextmanager
    async def _submit(self, job: Job) -> AsyncGenerator[WorkerProcess]:
        assert job.on_gpu
        kinds: dict[Role, Callable[[World], FakeTimed]] = {
            "cuda": FakeKernel, "replay": FakeReplayer, "task": FakeTask,
        }  # fmt: skip
        process = kinds[job.role](self.world)
        if isinstance(process, FakeKernel):
            process.index = len(self.of(job.role))
        process.random = random.Random(len(self.started))
        self.world.started(process)
        self.started.append((job.role, process))
        self.alive += 1
        try:
            yield process
        finally:
            self.alive -= 1

    def of(self, role: Role) -> list[FakeTimed]:
        """Those of a role, in the order in which they were started."""
        return [process for its, process in self.started if its == role]

    def named(self, name: str) -> list[FakeTimed]:
        """Those that became this side."""
        return [process for _, process in self.started if process.name == name]

    async def environment(self) -> dict[str, Any]:
        return {}

    async def seal(self) -> Seal:
        return Seal(None)

    async def devices(self) -> list[Device]:
        return []

    def quiet(self, device: Device) -> AbstractAsyncContextManager[None]:
        raise NotImplementedError

    async def close(self) -> None: ...

    async def __aenter__(self) -> "FakeExecutor":
        return self

    async def __aexit__(self, *error: object) -> None: ...


class Timing:
    """A timer with the executor behind it."""

    def __init__(self, executor: FakeExecutor, timer: CaseTimer) -> None:
        self.executor, self.timer = executor, timer

    async def case(self) -> TimedCase:
        return await self.timer.time(await self.timer.start("train"))

    def started(self) -> dict[str, int]:
        """How many workers of each role there have been."""
        return {role: len(self.executor.of(role)) for role in ("task", "cuda", "replay")}


@asynccontextmanager
async def timing(
    world: World,
    *,
    baseline: bool = True,
    against: Sequence[Reference] = (),
    plan: Plan = FULL,
    watch: Any = None,
) -> AsyncGenerator[Timing]:
    executor = FakeExecutor(world)
    async with AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(task_worker(executor, on_gpu=True))
        spec = await tasks.load(TASK)
        kernels: list[Any] = []
        for source in [CANDIDATE, BASELINE][: 1 + baseline]:
            worker = await stack.enter_async_context(gpu_worker(executor))
            await worker.load(source, spec)
            kernels.append((source, worker))
        timer = CaseTimer(executor, stack, spec, TASK, tasks, kernels, plan=plan, against=against, watch=watch)
        yield Timing(executor, timer)
    assert executor.alive == 0


async def one(world: World, **more: Any) -> tuple[TimedCase, Timing]:
    async with timing(world, **more) as found:
        return await found.case(), found
