"""The two sides of an evaluation as typed objects: the trusted task and the untrusted kernel.

Each lives in a process of its own. The task's worker makes inputs, knows the expected outputs and compares; the
kernel's worker gets input bytes and gives back bytes, launches and samples. Neither loads the other's file.
"""

import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from pydantic import ValidationError

from .captures import capture_of
from .ceiling_facts import CeilingFacts
from .errors import Stopped
from .executors.base import Executor, Job
from .facts import (
    Audit,
    CallFacts,
    Capture,
    Captured,
    Difference,
    Environment,
    Expected,
    Explained,
    Explanation,
    TargetFacts,
    Vendor,
    Verification,
)
from .protocol import Frame
from .replay_plan import Recorded, settled
from .replies import Replies, Values, fields_of, malformed, values_of
from .source import Source
from .task import Task, parse_task
from .timed import TimedWorker
from .timing_facts import TUNED_LIMIT, Tuned


class Call(NamedTuple):
    """One call of an entry: outputs, inputs as they were afterwards and margins, with what happened."""

    values: Values
    facts: CallFacts


class TaskWorker(TimedWorker):
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
            raise malformed("task description", error) from error

    async def shrink(self, case: str, elements: int) -> dict[str, Any]:
        """Make a case's integer parameters smaller until its inputs have at most so many elements; the parameters."""
        frame = await self.process.request("shrink", case=case, elements=elements)
        return self.checked(dict[str, Any], "smaller case", frame.fields.get("parameters"))

    async def audit(self, case: str, seed: int) -> Audit:
        """Whether a case can tell a right kernel from a wrong one; its reference is run several times."""
        return self.checked(Audit, "audit", fields_of(await self.process.request("audit", case=case, seed=seed)))

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
        contents: Literal["real", "repeated"] = "real",
    ) -> Values:
        """Fresh inputs of a case; the task's worker keeps them, with what belongs to them, in one of two slots.

        With repeated contents, made in a fraction of the time, large random tensors hold a block of values over and
        over: for a capture, which needs their form. No result may be judged and nothing timed on such inputs.
        """
        return values_of(await self._make("make_inputs", case, seed, variant, scale, layout, slacks, slot, contents))

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
        return values_of(frame), self.checked(Expected, "expectation", frame.fields.get("expected"))

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
        contents: Literal["real", "repeated"] = "real",
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
            contents=contents,
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
        return self.checked(Expected, "expectation", fields_of(frame))

    async def make_alternatives(self, case: str, seeds: Sequence[int]) -> Values:
        """Integer and boolean tensors of a case's inputs under other seeds; those in slot 0 must be the case's.

        Left out are those of inputs that differ in more than their tensors' elements.
        """
        return values_of(await self.process.request("make_alternatives", case=case, seeds=list(seeds)))

    async def keep_contents(self, seed: int | None) -> bool:
        """From the inputs in slot 0, be ready for `vary`; whether their contents can differ at all."""
        frame = await self.process.request("keep_contents", seed=seed)
        return self.checked(bool, "contents", frame.fields.get("varies"))

    async def vary(self, number: int, expected: Values | None = None) -> Expected:
        """Put the inputs of slot 0 with other contents into slot 1, and expect what the reference makes of them.

        Args:
            number: of the contents, as in `TimedWorker.visit`.
            expected: what another program made of them, where there is no reference.
        """
        if expected is None:
            frame = await self.process.request("vary", number=number)
        else:
            frame = await self.process.request("vary_from", expected.blobs, tree=expected.tree, number=number)
        return self.checked(Expected, "expectation", frame.fields.get("expected"))

    async def judge_outputs(self, values: Values, *, slot: int = 0, exact: bool = False) -> Verification:
        """Compare the outputs of a timed call with what was expected, every element.

        Args:
            values: the outputs.
            slot: where what is expected is.
            exact: run the reference in float64 as well, and measure errors against it.
        """
        frame = await self.process.request("judge_outputs", values.blobs, tree=values.tree, slot=slot, exact=exact)
        return self.checked(Verification, "comparison", fields_of(frame))

    async def time_reference(self, *, compiled: bool) -> None:
        """From now on the reference is what is timed, on the inputs in slot 0, as it is or through torch.compile.

        Raises:
            Stopped: ``unsupported``, where it can't be compiled.
        """
        await self.process.request("time_reference", compiled=compiled)

    async def ceilings(self) -> CeilingFacts:
        """What this device reaches at best; takes some seconds."""
        return self.checked(CeilingFacts, "ceilings", fields_of(await self.process.request("ceilings")))

    async def upstream(self, *, slot: int = 0) -> Values:
        """Gradients of the outputs, random, for a task that has its gradients checked."""
        return values_of(await self.process.request("upstream", slot=slot))

    async def judge(self, values: Values, key: bytes, *, slot: int = 0) -> Verification:
        """Compare what a kernel's `call` gave with what was expected, every element, and look for what it did beside.

        ``key`` is the one that the call's margins were filled with.
        """
        frame = await self.process.request("judge", values.blobs, tree=values.tree, key=key.hex(), slot=slot)
        return self.checked(Verification, "comparison", fields_of(frame))

    async def repeat(self, values: Values, *, slot: int = 0) -> list[Difference]:
        """Compare the outputs of another call on the same inputs with those judged last, bit by bit."""
        frame = await self.process.request("repeat", values.blobs, tree=values.tree, slot=slot)
        return self.checked(list[Difference], "comparison", frame.fields.get("differing"))


class KernelWorker(TimedWorker):
    """The untrusted side. `load` comes first, then `set_inputs`, then any of the others."""

    vendor: Vendor = "nvidia"
    """Of the GPU that launches are captured for."""

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

    async def capture(self) -> Capture:
        """Run the entry once under the capturing driver."""
        return self._captured(await self.process.request("capture"))

    async def run_file(self, source: Source, *, limit_s: float) -> None:
        """Execute a kernel file as it stands, with the code that calls its kernels, under the capturing driver.

        Args:
            source: the file.
            limit_s: after so many seconds the worker stops it; below the limit of a request, or all is lost.

        Raises:
            Stopped: how it ended otherwise; `captured` has the launches made until then, unless the worker is gone.
        """
        await self.process.request(
            "run_file",
            [source.text.encode()],
            shown_as=source.shown_as,
            origin=source.origin,
            limit_s=limit_s,
        )

    async def captured(self) -> Capture:
        """The launches that `run_file` has made, compiled."""
        return self._captured(await self.process.request("captured"))

    async def explain(self, codes: Sequence[str]) -> dict[str, Explanation]:
        """What the compiler said of captured kernels, and their machine code as text.

        Args:
            codes: SHA-256 of the machine code of those that are wanted, in hexadecimal.

        Returns:
            What was found out, by SHA-256; a kernel that the worker does not know is left out.
        """
        frame = await self.process.request("explain", codes=list(codes))
        found = self.checked(list[Explained], "explanation", frame.fields.get("explained"))
        explained: dict[str, Explanation] = {}
        for each in found:
            sass: Any = None
            if each.sass is not None:
                sass = frame.blobs[each.sass] if each.sass in range(len(frame.blobs)) else None
                if not isinstance(sass, bytes):
                    raise malformed("explanation", ValueError("a text is missing"))
                sass = sass.decode("utf-8", errors="replace")
            if each.code in codes:
                explained[each.code] = Explanation(each.said, sass, each.reason)
        return explained

    def _captured(self, frame: Frame) -> Capture:
        fields = {name: frame.fields.get(name) for name in ("launches", "left_out")}
        captured = self.checked(Captured, "capture", fields)
        return capture_of(captured, frame.blobs, self.vendor)

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
        fields = fields_of(frame)
        fields.pop("tree", None)
        return Call(values_of(frame), self.checked(CallFacts, "call", fields))

    async def run_once(self) -> None:
        """Run the entry once and wait for it; nothing is returned."""
        await self.process.request("run_once")

    async def record(self) -> Recorded:
        """What one call of the entry puts on the device, for a replayer; or why it can't be replayed."""
        first, second = [await self._record(seed) for seed in (1, 2)]
        return settled(first, second)

    async def _record(self, seed: int) -> Recorded:
        frame = await self.process.request("record", seed=seed)
        blobs: Any = frame.blobs
        return self.checked(Recorded, "recording", {**fields_of(frame), "blobs": blobs})

    async def tuned(self) -> list[Tuned]:
        """What Triton's autotuner has chosen so far."""
        frame = await self.process.request("tuned")
        return self.checked(list[Tuned], "tuning", frame.fields.get("tuned"))[:TUNED_LIMIT]

    async def profile(self) -> None:
        """One call inside the range ``BIG_OP``."""
        await self.process.request("profile")

    async def profile_file(self, source: Source, *, limit_s: float) -> None:
        """Run a kernel file as it stands inside the range ``BIG_OP``, stopped by the worker after so many seconds."""
        fields: dict[str, Any] = {"shown_as": source.shown_as, "origin": source.origin, "limit_s": limit_s}
        await self.process.request("profile_file", [source.text.encode()], **fields)


class ReplayWorker(TimedWorker):
    """A process of ours that launches recorded binaries: the file that they come from is never loaded in it."""

    async def load_plan(self, recorded: Recorded) -> None:
        """Get ready to carry out what `KernelWorker.record` found, which must be a plan."""
        await self.process.request("load_plan", [*recorded.blobs], plan=recorded.fields(), in_place=[])


@contextlib.asynccontextmanager
async def task_worker(executor: Executor, *, on_gpu: bool) -> AsyncGenerator[TaskWorker]:
    """A process for the task file, its tensors on a GPU or on the CPU."""
    async with executor.submit(Job("task", on_gpu=on_gpu)) as process:
        yield TaskWorker(process)


@contextlib.asynccontextmanager
async def capture_worker(executor: Executor, *, target: TargetFacts) -> AsyncGenerator[KernelWorker]:
    """A process that compiles a kernel file's launches for a target; no GPU is touched."""
    async with executor.submit(Job("capture", target=target.model_dump())) as process:
        worker = KernelWorker(process)
        worker.vendor = target.vendor
        yield worker


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


@contextlib.asynccontextmanager
async def replay_worker(executor: Executor) -> AsyncGenerator[ReplayWorker]:
    """A process that launches recorded binaries on the GPU."""
    async with executor.submit(Job("replay", on_gpu=True)) as process:
        yield ReplayWorker(process)


async def probe(executor: Executor) -> Environment:
    """What the workers' interpreter has, or why it can't be used."""
    try:
        return Replies.checked(Environment, "environment", await executor.environment())
    except Stopped as stopped:
        return Environment(executable=executor.python, problem=stopped.problem)
