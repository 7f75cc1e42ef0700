"""The two sides of an evaluation as typed objects: the trusted task and the untrusted kernel.

Each lives in a process of its own. The task's worker makes inputs, knows the expected outputs and compares; the
kernel's worker gets input bytes and gives back bytes, launches and samples. Neither loads the other's file.
"""

import contextlib
import functools
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from pydantic import FiniteFloat, TypeAdapter, ValidationError

from .errors import ProtocolViolation, Stopped
from .executors.base import Executor, Job
from .facts import (
    Audit,
    Block,
    CallFacts,
    Capture,
    CapturedLaunch,
    Difference,
    Environment,
    Expected,
    FirstCall,
    TargetFacts,
    Verification,
    WarmUp,
)
from .outcome import Kind, Problem
from .process import WorkerProcess
from .protocol import Blob, Frame
from .source import Source
from .task import Task, parse_task
from .trees import check_tree

F = TypeVar("F")
NEEDED_ASSEMBLY = frozenset({"ttgir", "ptx"})


class Values(NamedTuple):
    """Arguments or outputs on their way between workers: a JSON tree and raw tensor bytes, never looked into here."""

    tree: Any
    blobs: list[Blob]


class Call(NamedTuple):
    """One call of an entry: outputs, inputs as they were afterwards and margins, with what happened."""

    values: Values
    facts: CallFacts


@functools.cache
def _adapter(form: type[F]) -> TypeAdapter[F]:
    # Building one takes as long as a small comparison.
    return TypeAdapter(form)


class _Replies:
    """Checks a reply's form once for both sides."""

    def __init__(self, process: WorkerProcess) -> None:
        self.process = process

    def end(self) -> None:
        """Its work is done: it may go while others are still being left, which wait for it only at the end."""
        self.process.handle.kill()

    @staticmethod
    def checked(form: type[F], what: str, data: Any) -> F:
        try:
            return _adapter(form).validate_python(data)
        except ValidationError as error:
            raise _malformed(what, error) from error


def _malformed(what: str, error: Exception) -> Stopped:
    # pydantic's own text is long, and sends its reader to a manual.
    found = error.errors() if isinstance(error, ValidationError) else []
    wrong = "; ".join(f"{'.'.join(map(str, one['loc'])) or 'it'}: {one['msg']}" for one in found[:3]) or str(error)
    return Stopped(Kind.CHEATING, Problem(stage="worker", message=f"the worker's {what} is malformed: {wrong}"[:500]))


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
    """The trusted side. `load` comes first; `make_and_expect`, or `make_inputs` and `expect_from`, then `judge`."""

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

    async def shrink(self, case: str, elements: int) -> dict[str, Any]:
        """Make a case's integer parameters smaller until its inputs have at most so many elements; the parameters."""
        frame = await self.process.request("shrink", case=case, elements=elements)
        return self.checked(dict[str, Any], "smaller case", frame.fields.get("parameters"))

    async def audit(self, case: str, seed: int) -> Audit:
        """Whether a case can tell a right kernel from a wrong one; its reference is run several times."""
        return self.checked(Audit, "audit", _fields(await self.process.request("audit", case=case, seed=seed)))

    async def impostors(self) -> list[str]:
        """Wrong results that pass for the expected ones of the inputs made last."""
        frame = await self.process.request("impostors")
        return self.checked(list[str], "impostors", frame.fields.get("impostors"))

    async def make_inputs(
        self,
        case: str,
        seed: int,
        variant: str = "random",
        scale: float | None = None,
        layout: str = "plain",
        slacks: Mapping[str, float] | None = None,
        *,
        slot: int = 0,
    ) -> Values:
        """Fresh inputs of a case; the task's worker keeps them, with what belongs to them, in one of two slots."""
        return _values(await self._make("make_inputs", case, seed, variant, scale, layout, slacks, slot))

    async def make_and_expect(
        self,
        case: str,
        seed: int,
        variant: str = "random",
        scale: float | None = None,
        layout: str = "plain",
        slacks: Mapping[str, float] | None = None,
        *,
        slot: int = 0,
    ) -> tuple[Values, Expected]:
        """Fresh inputs of a case, and the reference run on them."""
        frame = await self._make("make_and_expect", case, seed, variant, scale, layout, slacks, slot)
        return _values(frame), self.checked(Expected, "expectation", frame.fields.get("expected"))

    async def _make(
        self,
        operation: str,
        case: str,
        seed: int,
        variant: str,
        scale: float | None,
        layout: str,
        slacks: Mapping[str, float] | None,
        slot: int,
    ) -> Frame:
        return await self.process.request(
            operation,
            case=case,
            seed=seed,
            variant=variant,
            scale=scale,
            layout=layout,
            slacks=dict(slacks or {}),
            slot=slot,
        )

    async def work(self, case: str) -> dict[str, float] | None:
        """Minimum useful ``bytes`` and ``flops`` of a case, where the task says."""
        work: Any = (await self.process.request("work", case=case)).fields.get("work")
        return None if work is None else self.checked(dict[str, float], "work", work)

    async def expect_exact(self, *, slot: int = 0) -> str | None:
        """Run the reference in float64 as well, for `judge` to measure errors against; why not, where it can't be."""
        frame = await self.process.request("expect_exact", slot=slot)
        reason: Any = frame.fields.get("reason")
        return None if reason is None else self.checked(str, "reason", reason)

    async def expect_from(self, values: Values, *, slot: int = 0) -> Expected:
        """Take what a kernel's `call` gave as the expected outputs."""
        frame = await self.process.request("expect_from", values.blobs, tree=values.tree, slot=slot)
        return self.checked(Expected, "expectation", _fields(frame))

    async def upstream(self, *, slot: int = 0) -> Values:
        """Gradients of the outputs, random, for a task that has its gradients checked."""
        return _values(await self.process.request("upstream", slot=slot))

    async def judge(self, values: Values, key: bytes, *, slot: int = 0) -> Verification:
        """Compare what a kernel's `call` gave with what was expected, every element, and look for what it did beside.

        ``key`` is the one that the call's margins were filled with.
        """
        frame = await self.process.request("judge", values.blobs, tree=values.tree, key=key.hex(), slot=slot)
        return self.checked(Verification, "comparison", _fields(frame))

    async def repeat(self, values: Values, *, slot: int = 0) -> list[Difference]:
        """Compare the outputs of another call on the same inputs with those judged last, bit by bit."""
        frame = await self.process.request("repeat", values.blobs, tree=values.tree, slot=slot)
        return self.checked(list[Difference], "comparison", frame.fields.get("differing"))


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

    async def set_inputs(self, values: Values, *, offset: int = 0, reuse: bool = False) -> None:
        """Hand over the inputs of the next calls.

        Args:
            values: what the task's worker made.
            offset: elements by which each tensor's storage is shifted.
            reuse: put them where the inputs before lay, where the forms agree.
        """
        await self.process.request("set_inputs", values.blobs, tree=values.tree, offset=offset, reuse=reuse)

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

    async def call(self, key: bytes | None = None, *, upstream: Values | None = None) -> Call:
        """Run the entry once on copies of the inputs.

        Args:
            key: eight bytes that fill the margins of all tensors; None: without margins, the device's work recorded.
            upstream: gradients of the outputs; the call goes backward too.
        """
        frame = await self.process.request(
            "call",
            upstream.blobs if upstream is not None else [],
            key=key.hex() if key is not None else None,
            upstream=upstream.tree if upstream is not None else None,
        )
        fields = _fields(frame)
        fields.pop("tree", None)
        return Call(_values(frame), self.checked(CallFacts, "call", fields))

    async def run_once(self) -> None:
        """Run the entry once and wait for it; nothing is returned."""
        await self.process.request("run_once")

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
    executor: Executor,
    *,
    wrapper: Sequence[str] = (),
    writable: str | None = None,
    environment: dict[str, str] | None = None,
) -> AsyncGenerator[KernelWorker]:
    """A process that runs a kernel file on the GPU, by itself or under a profiler's command that writes to a folder."""
    job = Job("cuda", on_gpu=True, wrapper=wrapper, writable=writable, environment=environment)
    async with executor.submit(job) as process:
        yield KernelWorker(process)


async def probe(executor: Executor) -> Environment:
    """What the workers' interpreter has, or why it can't be used."""
    try:
        return _Replies.checked(Environment, "environment", await executor.environment())
    except Stopped as stopped:
        return Environment(executable=executor.python, problem=stopped.problem)
