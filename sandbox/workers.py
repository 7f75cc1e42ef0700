"""The two sides of an evaluation as typed objects: the trusted task and the untrusted kernel.

Each lives in a process of its own. The task's worker makes inputs, knows the expected outputs and compares; the
kernel's worker gets input bytes and gives back bytes, launches and samples. Neither loads the other's file.
"""

import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import Annotated, Any, NamedTuple, TypeVar

from pydantic import Field, FiniteFloat, JsonValue, TypeAdapter, ValidationError

from .errors import ProtocolViolation, Stopped
from .executors.base import Executor, Job
from .outcome import Kind, Problem
from .process import WorkerProcess
from .protocol import Blob, Frame
from .source import Source
from .task import Task, parse_task
from .trees import check_tree
from .wire import Wire

F = TypeVar("F")
Extent = Annotated[int, Field(ge=0, lt=2**31)]
NEEDED_ASSEMBLY = frozenset({"ttgir", "ptx"})


class Values(NamedTuple):
    """Arguments or outputs on their way between workers: a JSON tree and raw tensor bytes, never looked into here."""

    tree: Any
    blobs: list[Blob]


class TargetFacts(Wire):
    """What a worker without a GPU needs to know of the one that it compiles for."""

    name: str
    capability: int
    sm_count: int | None
    shared_bytes_per_block: int
    registers_per_sm: int


class OutputComparison(Wire):
    """One output against the expected one."""

    where: str
    mismatch: str | None
    """Structure, shape, dtype or device differ: nothing was compared element by element."""
    dtype: str | None = None
    elements: int = 0
    rtol: float = 0.0
    atol: float = 0.0
    wrong_elements: int = 0
    max_abs_error: float = 0.0
    max_rel_error: float = 0.0
    worst_index: list[int] | None = None
    worst_expected: float | str | None = None
    worst_got: float | str | None = None
    not_finite_mismatches: int = 0
    finite_elements: int = 0
    """Expected elements that are finite numbers."""


class CapturedLaunch(Wire):
    """One distinct launch that an entry made, compiled for the target."""

    kernel: str
    symbol: str
    grid: tuple[Extent, Extent, Extent]
    count: int
    tuning: bool
    """Made by the autotuner while it tried configurations."""
    num_warps: int = Field(ge=1)
    num_stages: int = Field(ge=0)
    num_ctas: int = Field(ge=1)
    shared_bytes: int = Field(ge=0)
    constexprs: dict[str, JsonValue]
    signature: dict[str, str]
    divisible_by_16: list[str]
    line: int | None
    ptxas_log: str | None
    assembly: dict[str, int]


class Capture(NamedTuple):
    """The launches of one call of the entry, with their assembly texts by stage."""

    launches: list[CapturedLaunch]
    blobs: list[bytes]

    def text(self, launch: CapturedLaunch, stage: str) -> str:
        """An assembly text (``ttir``, ``ttgir``, ``llir`` or ``ptx``) of a launch."""
        return self.blobs[launch.assembly[stage]].decode("utf-8", errors="replace")


class Sample(Wire):
    """One timed call, from the device's own activity records."""

    kernel_us: float
    """Sum over the kernels and copies that the call put on the device."""
    device_us: float
    """First start to last end of these."""
    activities: int


class Block(Wire):
    """A block of timed calls, each with a flushed L2."""

    samples: list[Sample]
    kernels: dict[str, float]
    """Mean microseconds a call, by name of the kernel or copy."""
    sm_clock_hz: float | None
    """SM clock at the end of the block, from kernels that wait for a known number of cycles."""


class FirstCall(Wire):
    """The call before any other."""

    first_call_s: float
    """Compile and autotuning included."""


class WarmUp(Wire):
    """What the calls before the first block took."""

    call_us: float


class _Replies:
    """Checks a reply's form once for both sides."""

    def __init__(self, process: WorkerProcess) -> None:
        self.process = process

    @staticmethod
    def checked(form: type[F], what: str, data: Any) -> F:
        try:
            return TypeAdapter(form).validate_python(data)
        except ValidationError as error:
            raise _malformed(what, error) from error


def _malformed(what: str, error: Exception) -> Stopped:
    return Stopped(Kind.CHEATING, Problem(stage="worker", message=f"the worker's {what} is malformed: {error}"[:500]))


def _values(frame: Frame) -> Values:
    """What a worker passes on to another, of a form that the other can read."""
    tree: Any = frame.fields.get("tree")
    try:
        check_tree(tree, len(frame.blobs))
    except ProtocolViolation as error:
        raise Stopped(Kind.CHEATING, Problem(stage="worker", message=str(error))) from error
    return Values(tree, frame.blobs)


def _fields(frame: Frame) -> dict[str, Any]:
    return {name: value for name, value in frame.fields.items() if name != "ok"}


class TaskWorker(_Replies):
    """The trusted side. `load` comes first; `make_inputs`, then `expect` or `expect_from`, then `judge`."""

    async def load(self, source: Source) -> Task:
        """Load and check the task file.

        Raises:
            Stopped: ``rejected``, naming the missing or wrong part and the expected form.
        """
        frame = await self.process.request(
            "load_task", [source.text.encode()], shown_as=source.shown_as, origin=source.origin
        )
        try:
            return parse_task(frame.fields.get("task"))
        except ValidationError as error:
            raise _malformed("task description", error) from error

    async def make_inputs(self, case: str, seed: int) -> Values:
        """Fresh inputs of a case; the task's worker keeps them for the reference."""
        return _values(await self.process.request("make_inputs", case=case, seed=seed))

    async def work(self, case: str) -> dict[str, float] | None:
        """Minimum useful ``bytes`` and ``flops`` of a case, where the task says."""
        work: Any = (await self.process.request("work", case=case)).fields.get("work")
        return None if work is None else self.checked(dict[str, float], "work", work)

    async def expect(self) -> None:
        """Run the reference on the inputs made last."""
        await self.process.request("expect")

    async def expect_from(self, values: Values) -> None:
        """Take these outputs as the expected ones."""
        await self.process.request("expect_from", values.blobs, tree=values.tree)

    async def judge(self, values: Values) -> list[OutputComparison]:
        """Compare outputs with the expected ones, every element."""
        frame = await self.process.request("judge", values.blobs, tree=values.tree)
        return self.checked(list[OutputComparison], "comparison", frame.fields.get("outputs"))


class KernelWorker(_Replies):
    """The untrusted side. `load` comes first, then `set_inputs`, then any of the others."""

    async def load(self, source: Source, task: Task) -> None:
        """Execute the kernel file and find the entry."""
        await self.process.request(
            "load_kernel",
            [source.text.encode()],
            shown_as=source.shown_as,
            origin=source.origin,
            entry=task.entry,
            in_place=task.in_place,
        )

    async def set_inputs(self, values: Values) -> None:
        """Hand over the inputs of the next calls."""
        await self.process.request("set_inputs", values.blobs, tree=values.tree)

    async def capture(self) -> Capture:
        """Run the entry once under the capturing driver."""
        frame = await self.process.request("capture")
        launches = self.checked(list[CapturedLaunch], "capture", frame.fields.get("launches"))
        texts = [blob for blob in frame.blobs if isinstance(blob, bytes)]
        if len(texts) < len(frame.blobs) or not all(
            launch.assembly.keys() >= NEEDED_ASSEMBLY
            and all(blob in range(len(texts)) for blob in launch.assembly.values())
            for launch in launches
        ):
            raise _malformed("capture", ValueError("an assembly text is missing"))
        return Capture(launches, texts)

    async def call(self) -> Values:
        """Run the entry once on copies of the inputs; its outputs."""
        return _values(await self.process.request("call"))

    async def prepare(self, flush_bytes: int) -> None:
        """Allocate what timing needs; ``flush_bytes`` are read between calls to empty L2."""
        await self.process.request("prepare", flush_bytes=flush_bytes)

    async def first_call(self) -> FirstCall:
        """Compile and autotune."""
        return self.checked(FirstCall, "first call", _fields(await self.process.request("first_call")))

    async def warm_up(self, seconds: float, calls_limit: int) -> WarmUp:
        """Call until time or count is reached."""
        frame = await self.process.request("warm_up", seconds=seconds, calls_limit=calls_limit)
        return self.checked(WarmUp, "warm-up", _fields(frame))

    async def block(self, calls: int, number: int) -> Block:
        """Time a block of calls; ``number`` chooses among the copies of the inputs."""
        frame = await self.process.request("block", calls=calls, number=number)
        return self.checked(Block, "block", _fields(frame))

    async def call_times(self, calls: int) -> list[float]:
        """Host call to completion, in microseconds."""
        frame = await self.process.request("call_times", calls=calls)
        return self.checked(list[FiniteFloat], "call times", frame.fields.get("call_us"))

    async def profile(self) -> None:
        """One call inside the range ``BIG_OP``."""
        await self.process.request("profile")


@contextlib.asynccontextmanager
async def task_worker(executor: Executor, *, on_gpu: bool) -> AsyncGenerator[TaskWorker]:
    """A process for the task file, its tensors on a GPU or on the CPU."""
    async with executor.submit(Job("task", on_gpu=on_gpu)) as process:
        yield TaskWorker(process)


@contextlib.asynccontextmanager
async def capture_worker(executor: Executor, *, target: TargetFacts) -> AsyncGenerator[KernelWorker]:
    """A process that compiles a kernel file's launches for a target; no GPU is touched."""
    async with executor.submit(Job("capture", target=target.model_dump())) as process:
        yield KernelWorker(process)


@contextlib.asynccontextmanager
async def interpreter_worker(executor: Executor, *, target: TargetFacts) -> AsyncGenerator[KernelWorker]:
    """A process that runs a kernel file in Triton's interpreter, on the CPU."""
    async with executor.submit(Job("interpret", target=target.model_dump())) as process:
        yield KernelWorker(process)


@contextlib.asynccontextmanager
async def gpu_worker(
    executor: Executor, *, wrapper: Sequence[str] = (), writable: str | None = None
) -> AsyncGenerator[KernelWorker]:
    """A process that runs a kernel file on the GPU, by itself or under a profiler's command that writes to a folder."""
    async with executor.submit(Job("cuda", on_gpu=True, wrapper=wrapper, writable=writable)) as process:
        yield KernelWorker(process)


class GpuFacts(Wire):
    """The GPU that the worker's torch sees."""

    name: str
    capability: int
    sm_count: int
    memory_bytes: int
    l2_bytes: int
    cuda: str | None
    device_count: int


class Environment(Wire):
    """What the worker's interpreter has; `problem` says why kernels can't be evaluated in it."""

    python: str | None = None
    executable: str
    torch: str | None = None
    triton: str | None = None
    numpy: str | None = None
    nvtx: str | None = None
    gpu: GpuFacts | None = None
    problem: Problem | None = None


async def probe(executor: Executor) -> Environment:
    """What the workers' interpreter has, or why it can't be used."""
    try:
        return _Replies.checked(Environment, "environment", await executor.environment())
    except Stopped as stopped:
        return Environment(executable=executor.python, problem=stopped.problem)
