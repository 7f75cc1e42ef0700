"""Does an exported kernel still deserve its record? Everything that this machine can check of it is checked anew."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, cast

import anyio
from pydantic import ValidationError

from ...profiling.comparison import Score
from ...profiling.hardware.detect import detect
from ...sandbox.errors import Stopped, rejected
from ...sandbox.outcome import Kind
from ..results import Result
from ..services import Services
from ..tools.benchmark import benchmark
from ..tools.compile_kernel import compile_kernel
from ..tools.parameters import Progress
from ..tools.run_correctness import CorrectnessResult, run_correctness
from .claims import Claim, Here, VerificationResult, concluded, differences, interpreted, judge_ratio, same_code
from .evaluation_check import hidden_problem
from .export import RECORD, digest
from .verification import FORMAT, INTERPRETER, VERSION, VerificationRecord

NOT_ITS_DOING: Final = frozenset({Kind.CANCELLED, Kind.UNAVAILABLE})
"""Ends that say nothing of the kernel."""
UNTOLD: Final = NOT_ITS_DOING | {Kind.UNSUPPORTED, Kind.REJECTED}
"""These, and those by which this machine, or this version, does not come to look at it."""
SLOW: Final = frozenset({Kind.TIMEOUT, Kind.OUT_OF_MEMORY})
"""Ends that say nothing of it in Triton's interpreter."""

R = TypeVar("R", bound=Result)


def read_record(folder: Path) -> VerificationRecord:
    """The record of an export.

    Raises:
        Stopped: ``rejected``: there is none, or none that this version can read.
    """
    path = folder / RECORD
    fix = "Name a folder that `tritonforge-mcp runs export` has written."
    try:
        fields: Any = json.loads(path.read_bytes())
    except OSError as error:
        raise rejected("verify", f"{path} can't be read: {error.strerror}", file=str(path), fix=fix) from None
    except (ValueError, RecursionError) as error:
        raise rejected("verify", f"{path} is not JSON: {error}", file=str(path), fix=fix) from None
    known = cast(dict[str, Any], fields) if isinstance(fields, dict) else {}
    if known.get("format") != FORMAT:
        raise rejected("verify", f"{path} is no {FORMAT} record", file=str(path), fix=fix)
    if known.get("version") != VERSION:
        raise rejected(
            "verify",
            f"{path} has version {known.get('version')!r} of the form; this tritonforge-mcp reads version {VERSION}",
            file=str(path),
            fix=f"Verify it with tritonforge-mcp {known.get('tool_version', 'of its time')}, which wrote it.",
        )
    try:
        return VerificationRecord.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise rejected("verify", f"{path} is damaged: {where}: {first['msg']}", file=str(path), fix=fix) from None


async def verify(services: Services, folder: Path, progress: Progress) -> VerificationResult:
    """Check hashes, then compile, compare results on fresh inputs and, on a GPU, time the kernel beside the baseline.

    Args:
        services: workers of this machine.
        folder: an export.
        progress: told how far it is.

    Raises:
        Stopped: ``rejected``: it is no export; ``cancelled`` or ``unavailable``: this machine can't check anything.
    """
    record = read_record(folder)
    files = _files(folder, record)
    if not files.holds:
        return concluded(record, None, [files], ["Nothing was run: the files are not those of the record."])
    return await _Look(services, folder, record, progress, files).result()


class _Look:
    """One verification, while it goes on."""

    def __init__(
        self, services: Services, folder: Path, record: VerificationRecord, progress: Progress, files: Claim
    ) -> None:
        self._services, self._record, self._progress = services, record, progress
        self._kernel, self._baseline, self._task = (
            str(folder / file.name) for file in (record.kernel, record.baseline, record.task)
        )
        self._claims = [files]
        self._open: list[str] = []
        self._score: Score | None = None
        self._on_gpu = False

    async def result(self) -> VerificationResult:
        environment = await self._services.environment()
        if environment.problem is not None:
            raise Stopped(Kind.UNAVAILABLE, environment.problem)
        self._on_gpu = await self._services.has_gpu()
        detected = (await detect()).gpus if self._on_gpu else []
        gpu = environment.gpu.name if self._on_gpu and environment.gpu is not None else None
        driver = detected[0].driver_version if detected else None
        here = Here(gpu=gpu, driver=driver, torch=environment.torch, triton=environment.triton)
        if await self._compiles(here) and (right := await self._correct()) is not None:
            here = here.model_copy(update={"device": right.device})
            if right.device == INTERPRETER:
                self._open.append(interpreted(right))
            await self._hidden()
            if self._on_gpu:
                await self._faster(here)
            else:
                self._open.append("Times were not checked: this machine has no GPU that can be used.")
        return concluded(self._record, here, self._claims, self._open, self._score)

    async def _compiles(self, here: Here) -> bool:
        target = self._record.target
        found = await self._tried(
            "compiles",
            lambda: compile_kernel(
                self._services, self._progress, kernel=self._kernel, task=self._task, target=target,
                cases=self._record.cases,
            ),
        )  # fmt: skip
        if found is None:
            return self._claims[-1].holds is not False
        self._claims.append(Claim(claim="compiles", holds=True, detail=f"for {found.target or target}"))
        if here.triton != self._record.triton:
            self._open.append(
                f"Machine code was not compared: Triton is {here.triton} here and was {self._record.triton}."
            )
        elif self._record.code:
            self._claims.append(same_code(self._record, found))
        return True

    async def _correct(self) -> CorrectnessResult | None:
        """What came of comparing results; None where they are wrong, or could not be compared."""
        found = await self._tried(
            "correct",
            lambda: run_correctness(
                self._services, self._progress, kernel=self._kernel, task=self._task, baseline=self._baseline
            ),
        )
        if found is None:
            return None
        right = found.kind is Kind.OK
        self._claims.append(Claim(claim="correct", holds=right, detail=found.summary.partition("\n")[0]))
        return found if right else None

    async def _hidden(self) -> None:
        """The hidden cases too, where they are known and can be run as they are."""
        hidden = self._record.hidden
        if hidden.count == 0:
            return
        if hidden.source != "task":
            why = "the record holds only their hash"
        elif not self._on_gpu:
            why = "that takes a GPU"
        else:
            visible = await anyio.Path(self._task).read_text("utf-8")
            task = f"{visible}\n\nCASES = HIDDEN_CASES\nHIDDEN_CASES = {{}}\n"
            found = await self._tried(
                "hidden",
                lambda: run_correctness(
                    self._services, _silent, kernel=self._kernel, task=task, baseline=self._baseline
                ),
            )
            if found is not None:
                # Its own words name cases, and values of them.
                listed = [case.kind for case in found.cases]
                detail = f"right on {hidden.count} hidden case(s)"
                if found.kind is not Kind.OK:
                    detail = hidden_problem([kind for kind in listed if kind is not Kind.OK], hidden.count).message
                self._claims.append(Claim(claim="hidden", holds=found.kind is Kind.OK, detail=detail))
            return
        self._open.append(f"The run's {hidden.count} hidden case(s) were not run again: {why}.")

    async def _faster(self, here: Here) -> None:
        then = self._record.timing()
        cases = None if then is None else [case.case for case in then.cases]
        found = await self._tried(
            "faster",
            lambda: benchmark(
                self._services, self._progress, kernel=self._kernel, task=self._task, baseline=self._baseline,
                cases=cases,
            ),
        )  # fmt: skip
        if found is None or found.score is None:
            return
        self._score = found.score
        claims, left = judge_ratio(self._record, found.score, differences(self._record, here))
        self._claims += claims
        self._open += left

    async def _tried(
        self, claim: Literal["compiles", "correct", "hidden", "faster"], evaluate: Callable[[], Awaitable[R]]
    ) -> R | None:
        """A tool's result; None where it stopped early, which is a claim then.

        Raises:
            Stopped: ``cancelled`` or ``unavailable``, as long as nothing is known.
        """
        try:
            return await evaluate()
        except Stopped as stopped:
            if stopped.kind in NOT_ITS_DOING and claim != "faster":
                raise
            untold = stopped.kind in UNTOLD or (stopped.kind in SLOW and not self._on_gpu)
            holds = None if untold else False
            why = "on a hidden case" if claim == "hidden" else stopped.problem.message
            self._claims.append(Claim(claim=claim, holds=holds, detail=f"{stopped.kind}: {why}"))
            return None


async def _silent(done: float, total: float, message: str) -> None:
    """Hidden cases are named by nobody."""


def _files(folder: Path, record: VerificationRecord) -> Claim:
    wrong: list[str] = []
    for file in record.files():
        try:
            found = digest((folder / file.name).read_bytes())
        except OSError as error:
            wrong.append(f"{file.name} can't be read ({error.strerror})")
            continue
        if found != file.sha256:
            wrong.append(f"{file.name} was changed")
    names = ", ".join(file.name for file in record.files())
    return Claim(claim="files", holds=not wrong, detail="; ".join(wrong) or f"{names} have the recorded hashes")
