"""What diagnose_kernel looks at, level by level, and only as deep as it has to."""

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Final, Literal

import anyio
from pydantic import ValidationError

from ...profiling.compiler.backends import backend_of
from ...profiling.diagnosis.engine import at_roof, diagnose
from ...profiling.diagnosis.facts import Facts
from ...profiling.diagnosis.floor import floor
from ...profiling.diagnosis.model import Diagnosis, Level
from ...profiling.diagnosis.source import kernel as sources
from ...profiling.diagnosis.source import syntax
from ...profiling.hardware.model import Target
from ...profiling.ncu.causes import causes
from ...profiling.ncu.model import LaunchProfile
from ...profiling.roofline import Work
from ...sandbox.errors import Stopped, rejected
from ...sandbox.facts import Capture, CapturedLaunch
from ...sandbox.source import Source
from ...sandbox.task import Task
from ...sandbox.workers import KernelWorker, capture_worker, task_worker
from ..services import Services, target_facts
from .compile_report import ended_early
from .diagnose_facts import call, code, told
from .profile_case import FILE, CaseProfile, Profiled

Depth = Literal["auto", "source", "profile", "code", "compiler"]

LAUNCHES_DIAGNOSED: Final = 3
"""Of a call: those that take longest, or come first."""
FILE_SHARE: Final = 0.75
"""Of a request's time: how long a file runs that no task calls."""
DEPTHS: Final[dict[Depth, Level]] = {
    "auto": Level.COMPILER,
    "source": Level.SOURCE,
    "profile": Level.PROFILE,
    "code": Level.CODE,
    "compiler": Level.COMPILER,
}
ENOUGH: Final = 0.6
"""Of what can be won at all: findings that are expected to win as much leave no question open."""

Measure = Callable[[], Awaitable[CaseProfile]]


@dataclass(frozen=True, slots=True)
class Asked:
    """What is diagnosed."""

    goal: Target
    task: Source | None
    spec: Task | None
    case: str
    depth: Depth


@dataclass(frozen=True, slots=True)
class Step:
    """One level of the ladder."""

    level: Level
    ran: bool
    seconds: float
    """What it took; the compiler's work, which all levels need, apart."""
    why: str
    """What it looked at, or why it was left out."""


@dataclass(frozen=True, slots=True)
class Diagnosed:
    """One launch."""

    facts: Facts
    told: Diagnosis

    @property
    def profile(self) -> LaunchProfile | None:
        return self.facts.profile


@dataclass(slots=True)
class Ladder:
    """What was found out of one call of the entry."""

    case: str
    compile_s: float = 0.0
    """Start of workers, inputs, and Triton's own compilation."""
    launches: list[Diagnosed] = field(default_factory=list[Diagnosed])
    left_out: int = 0
    """Further distinct launches."""
    steps: list[Step] = field(default_factory=list[Step])
    notes: list[str] = field(default_factory=list[str])
    data: CaseProfile | None = None


@asynccontextmanager
async def captured(
    services: Services, asked: Asked, kernel: Source
) -> AsyncGenerator[tuple[KernelWorker, Capture, Stopped | None]]:
    """The launches of one call, compiled, the worker that compiled them, and how the file ended early after them.

    Raises:
        Stopped: any failing outcome.
    """
    async with capture_worker(services.executor, target=target_facts(asked.goal)) as kernels:
        failure: Stopped | None = None
        if asked.task is None or asked.spec is None:
            try:
                await kernels.run_file(kernel, limit_s=FILE_SHARE * services.settings.limits.request_s)
            except Stopped as stopped:
                failure = stopped
            try:
                capture = await kernels.captured()
            except Stopped as stopped:
                # A worker that was killed has nothing to hand over; why it was is what counts.
                raise failure or stopped from stopped
        else:
            async with task_worker(services.executor, on_gpu=False) as tasks:
                await tasks.load(asked.task)
                await kernels.load(kernel, asked.spec)
                await kernels.set_inputs(await tasks.make_inputs(asked.case, seed=0, contents="repeated"))
            capture = await kernels.capture()
        if not capture.launches:
            raise failure or rejected(
                "capture",
                f"{kernel.shown_as} launched no Triton kernel"
                + ("" if asked.case == FILE else f" on case {asked.case!r}"),
                file=kernel.shown_as,
                fix="Give a task whose ENTRY launches a @triton.jit kernel, or call it at the end of the file.",
            )
        yield kernels, capture, failure


async def climb(
    services: Services, asked: Asked, kernel: Source, measure: Measure | None, unmeasured: str | None
) -> Ladder:
    """Look at one call of the entry as deep as is asked for, or as the question stays open.

    Args:
        services: of this server.
        asked: what is diagnosed.
        kernel: its file.
        measure: profiles the call; None where that is not wanted or can't be done.
        unmeasured: why.

    Raises:
        Stopped: the kernel can't be compiled.
    """
    climber = _Climb(services, asked, kernel)
    failure: Stopped | ValidationError | None = None
    # As long as the compiler is at work: neither waits for the other.
    profiled = _Beside(measure, unmeasured)
    async with anyio.create_task_group() as beside:
        beside.start_soon(profiled.run)
        try:
            await climber.climb(profiled)
        except (Stopped, ValidationError) as error:
            # Raised behind the group, which would wrap it.
            failure = error
            beside.cancel_scope.cancel()
    if profiled.failure is not None and asked.depth == "profile":
        raise profiled.failure
    if failure is not None:
        raise failure
    return climber.found


class _Beside:
    """A profile that is taken while something else is done."""

    def __init__(self, measure: Measure | None, unmeasured: str | None) -> None:
        self._measure, self.missing = measure, unmeasured
        self._done = anyio.Event()
        self._found: CaseProfile | None = None
        self.seconds = 0.0
        self.failure: Stopped | None = None

    async def run(self) -> None:
        started = time.perf_counter()
        try:
            if self._measure is not None:
                self._found = await self._measure()
        except Stopped as stopped:
            self.failure = stopped
            self.missing = f"{stopped.kind}: {' '.join(stopped.problem.message.split())[:200]}"
        except ValidationError:
            # Only what workers say is validated there.
            self.missing = "a worker's reply about the profile was malformed"
        finally:
            self.seconds = time.perf_counter() - started
            self._done.set()

    async def found(self) -> CaseProfile | None:
        await self._done.wait()
        return self._found


class _Climb:
    def __init__(self, services: Services, asked: Asked, kernel: Source) -> None:
        self._services, self._asked, self._kernel = services, asked, kernel
        self._backend = backend_of(asked.goal)
        self._deepest = DEPTHS[asked.depth]
        self._file: syntax.KernelFile | None = None
        self._facts: list[Facts] = []
        self.found = Ladder(asked.case)

    async def climb(self, profiled: _Beside) -> None:
        started = time.perf_counter()
        async with captured(self._services, self._asked, self._kernel) as (
            kernels,
            capture,
            ended,
        ):
            if ended is not None:
                self.found.notes.append(ended_early(ended))
            self.found.compile_s = time.perf_counter() - started
            started = time.perf_counter()
            await anyio.to_thread.run_sync(self._look_at_source, capture)
            self._step(Level.SOURCE, started, f"the syntax tree of {self._kernel.shown_as}")
            data = await profiled.found()
            if data is None:
                self._skip(Level.PROFILE, profiled.missing or "not asked for")
            else:
                self.found.data = data
                why = "taken before: the same sources" if data.cached else f"{len(data.launches)} launches profiled"
                self.found.steps.append(Step(Level.PROFILE, True, profiled.seconds, why))
            await anyio.to_thread.run_sync(self._choose, capture, data)
            await self._look_at_code(kernels, capture)
        self.found.launches = [Diagnosed(facts, diagnose(facts)) for facts in self._facts]

    async def _look_at_code(self, kernels: KernelWorker, capture: Capture) -> None:
        auto = self._asked.depth == "auto"
        for level, look in ((Level.CODE, self._read), (Level.COMPILER, self._explain)):
            if self._deepest < level:
                self._skip(level, "not asked for")
                continue
            closed = self._closed(level) if auto else None
            if closed is not None:
                self._skip(level, closed)
                continue
            started = time.perf_counter()
            self._step(level, started, await look(kernels, capture))

    def _closed(self, level: Level) -> str | None:
        """Why a level need not be looked at; None where the question is open."""
        if not all(facts.has("profile") for facts in self._facts):
            return None
        if all(at_roof(facts) for facts in self._facts):
            return "the profile answers: next to nothing is left to win"
        if level is Level.COMPILER and all(map(_answered, self._facts)):
            return "the compiled code answers: what it shows is expected to be most of what can be won"
        return None

    def _look_at_source(self, capture: Capture) -> None:
        self._file = syntax.parse(self._kernel.text)
        if self._file is None:
            self.found.notes.append("The kernel file is too long or too deep to be analysed; its code is.")

    def _source_of(self, launch: CapturedLaunch) -> Facts:
        source = None if self._file is None else sources.live(self._file, launch.kernel, launch)
        if source is not None and not _defined_here(source, launch):
            self.found.notes.append(
                f"{launch.kernel} is not defined in this file at line {launch.line}: lines are its own file's."
            )
            return Facts(target=self._asked.goal, captured=launch)
        return Facts(target=self._asked.goal, captured=launch, file=self._file, source=source)

    def _choose(self, capture: Capture, data: CaseProfile | None) -> None:
        """Which launches are diagnosed: the longest that were profiled, else the first."""
        if data is None or not data.launches:
            distinct: dict[tuple[str, tuple[int, ...]], CapturedLaunch] = {}
            for launch in sorted(capture.launches, key=lambda launch: launch.tuning):
                distinct.setdefault((launch.kernel, tuple(launch.assembly.values())), launch)
            chosen = [launch for launch in distinct.values() if not launch.tuning] or list(distinct.values())
            self._facts = [self._source_of(launch) for launch in chosen[:LAUNCHES_DIAGNOSED]]
            self.found.left_out = len(chosen) - len(self._facts) + capture.left_out
            return
        ranked: dict[tuple[object, ...], Profiled] = {}
        for launch in sorted(data.launches, key=lambda each: -(each.profile.duration_us or 0.0)):
            profile = launch.profile
            if any(profile.kernel in (one.kernel, one.symbol) for one in capture.launches):
                # Others are torch's own.
                ranked.setdefault((profile.kernel, profile.grid, profile.block, profile.registers), launch)
        for launch in list(ranked.values())[:LAUNCHES_DIAGNOSED]:
            compiled = self._same(capture, launch.profile)
            if compiled is None:
                self.found.notes.append(
                    f"{launch.profile.kernel}: none of the launches compiled without a GPU is the one measured (an "
                    "autotuner chose another configuration, or it depends on values): it is not diagnosed."
                )
                continue
            self._facts.append(self._profiled(self._source_of(compiled), launch, data))
        around = call(data, {launch.kernel for launch in capture.launches})
        self._facts = [replace(facts, call=around) for facts in self._facts]
        self.found.left_out = len(ranked) - len(self._facts) + data.left_out
        if not self._facts:
            self._choose(capture, None)

    def _same(self, capture: Capture, profile: LaunchProfile) -> CapturedLaunch | None:
        """The captured launch that was measured: the entry's own before those that its autotuner tries.

        Of several, the one with as many registers; of one, whatever it has: the profiler counts what the driver gives a
        thread, which may be more than the code asks for.
        """
        alike = [
            launch
            for launch in sorted(capture.launches, key=lambda launch: launch.tuning)
            if profile.kernel in (launch.kernel, launch.symbol) and launch.grid == profile.grid
        ]
        if len(alike) == 1:
            return alike[0]
        for launch in alike:
            facts = self._backend.facts(capture, launch, self._asked.goal)
            if profile.registers is None or facts.registers is None or facts.registers == profile.registers:
                return launch
        return None

    def _profiled(self, facts: Facts, launch: Profiled, data: CaseProfile) -> Facts:
        alone = len(data.launches) == 1 and not data.left_out
        work = Work(data.compulsory_bytes, data.useful_flops) if alone else None
        spots = launch.lines.hotspots if launch.lines is not None else []
        return replace(
            facts,
            profile=launch.profile,
            hotspots=spots,
            causes=causes(launch.profile, spots, data.ceilings, work),
            floor=floor(launch.profile, facts.captured, work, data.ceilings, self._asked.goal.gpu),
        )

    async def _read(self, _: KernelWorker, capture: Capture) -> str:
        def read(facts: Facts) -> Facts:
            return replace(
                facts,
                launch=self._backend.facts(capture, facts.captured, self._asked.goal),
                lines=self._backend.details(capture, facts.captured),
            )

        self._facts = await anyio.to_thread.run_sync(lambda: [read(facts) for facts in self._facts])
        return "the compiler's IR and PTX, by line"

    async def _explain(self, kernels: KernelWorker, capture: Capture) -> str:
        codes = [code(capture, facts.captured) for facts in self._facts]
        try:
            said = await kernels.explain(list(dict.fromkeys(code for code in codes if code is not None)))
        except Stopped as stopped:
            return f"the compiler did not tell ({stopped.kind}: {stopped.problem.message[:100]})"
        pairs = zip(self._facts, [said.get(code or "") for code in codes], strict=True)
        self._facts = await anyio.to_thread.run_sync(lambda: [told(capture, facts, each) for facts, each in pairs])
        return "remarks of the compiler's passes, and the machine code"

    def _step(self, level: Level, started: float, why: str) -> None:
        self.found.steps.append(Step(level, True, time.perf_counter() - started, why))

    def _skip(self, level: Level, why: str) -> None:
        self.found.steps.append(Step(level, False, 0.0, why))


def _defined_here(source: sources.LiveKernel, launch: CapturedLaunch) -> bool:
    """Whether the function that was launched is the one of this name in the file."""
    node = source.function.node
    first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
    return launch.line is None or first <= launch.line <= (node.end_lineno or node.lineno)


def _answered(facts: Facts) -> bool:
    """Whether what the code shows is expected to win most of what can be won."""
    if facts.floor is None or (facts.launch is not None and facts.launch.mma not in (None, "none")):
        return False  # why products wait, only the compiler tells
    expected = [found.gain.expected_pct for found in diagnose(facts).findings]
    return sum(gain for gain in expected if gain is not None) >= ENOUGH * (100 - facts.floor.share_pct)


async def compiled(services: Services, asked: Asked, kernel: Source) -> Sequence[Facts]:
    """All that is known of a file's launches without a GPU.

    Raises:
        Stopped: any failing outcome.
    """
    deep = replace(asked, depth="compiler")
    ladder = await climb(services, deep, kernel, None, "not asked for")
    return [launch.facts for launch in ladder.launches]
