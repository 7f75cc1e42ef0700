"""Runs, their attempts and their files as resources. Nothing of hidden cases is in them but their number."""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import anyio
from mcp.server.context import ServerRequestContext
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ResourceNotFoundError
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, ListResourcesResult, PaginatedRequestParams, Resource
from pydantic import Field

from ..profiling.optimization.model import BASELINE, Attempt, Budget, Confirmation, Limits
from ..profiling.optimization.scores import score_of
from ..sandbox.errors import Stopped
from ..sandbox.outcome import Kind
from ..sandbox.wire import Wire
from .lowlevel import answer
from .resources import bounded, bounds
from .run_uris import RUNS, attempt_uri, kernel_uri, run_uri
from .run_watch import POLL_S, RunWatch
from .runs.record import HiddenFrom, Run
from .runs.store import Kept, Store
from .runs.verification import shown, without_hidden
from .runs.visible import visible_kernel
from .tools.run_report import outcome_of
from .tools.run_shown import words

PAGE: Final = 50
"""Runs that one answer lists."""
PART: Final = "`?offset=200&limit=100` reads lines 201 to 300 of it."

T = TypeVar("T")


class AttemptSummary(Wire):
    """An attempt, in short."""

    number: int
    """0 is the baseline."""
    parent: int | None
    state: str
    kind: Kind
    strategy: str
    ratio: float | None
    """The baseline's time over its own; null: not timed, or the baseline."""
    ratio_low: float | None
    ratio_high: float | None
    accepted: bool
    duplicate_of: int | None
    record: str
    """URI of all that is known of it."""
    kernel: str
    """URI of its file."""


class RunRecord(Wire):
    """A run as a resource."""

    run_id: str
    title: str
    entry: str
    state: str
    ended_by: str | None
    problem: str | None
    incumbent: int
    """The best accepted attempt; 0 is the baseline."""
    verified: Confirmation | None
    target: str
    gpu: str | None
    torch: str | None
    triton: str | None
    cases: list[str]
    hidden_cases: int
    """How many are judged before a candidate is accepted; nothing else of them is told."""
    hidden_from: HiddenFrom
    budget: Budget
    limits: Limits
    kernel_sha256: str
    """Of the baseline's file."""
    task_sha256: str
    created_at: str
    updated_at: str
    attempts: list[AttemptSummary] = Field(default_factory=list[AttemptSummary])


def register(server: MCPServer[Any], store: Store, poll_s: float = POLL_S) -> RunWatch:
    """Add the resources, their list, and subscriptions to them.

    Args:
        server: what they are added to.
        store: where the runs are kept.
        poll_s: how often it is looked at for those who have subscribed.

    Returns:
        What tells of changes: to be entered while the server runs.
    """

    async def read(offset: str, limit: str | None, whole: Callable[[], str]) -> str:
        wanted = bounds(offset, limit)
        return bounded(await _asked(whole), *wanted)

    @server.resource(
        f"{RUNS}/{{run_id}}{{?offset,limit}}",
        name="run",
        title="Optimization run",
        description="One optimization run as JSON: state, budget, limits, incumbent, and every attempt in a line with "
        f"the URIs of its record and its file. {PART}",
        mime_type="application/json",
    )
    async def _run(  # pyright: ignore[reportUnusedFunction]
        run_id: str, offset: str = "0", limit: str | None = None
    ) -> str:
        return await read(offset, limit, lambda: run_json(store.run(run_id), store.attempts(run_id)))

    @server.resource(
        f"{RUNS}/{{run_id}}/attempts/{{number}}{{?offset,limit}}",
        name="attempt",
        title="Attempt of an optimization run",
        description="All that is known of one attempt (0 is the baseline) as JSON: outcome, compiled launches, times "
        f"by case with intervals, second look, findings, verdict with reasons, hints. {PART}",
        mime_type="application/json",
    )
    async def _attempt(  # pyright: ignore[reportUnusedFunction]
        run_id: str, number: str, offset: str = "0", limit: str | None = None
    ) -> str:
        at = _number(number)
        return await read(offset, limit, lambda: attempt_json(store.run(run_id), store.attempt(run_id, at)))

    @server.resource(
        f"{RUNS}/{{run_id}}/attempts/{{number}}/kernel{{?offset,limit}}",
        name="attempt-kernel",
        title="Kernel file of an attempt",
        description=f"The file that was submitted as an attempt; of attempt 0, the baseline. {PART}",
        mime_type="text/x-python",
    )
    async def _kernel(  # pyright: ignore[reportUnusedFunction]
        run_id: str, number: str, offset: str = "0", limit: str | None = None
    ) -> str:
        at = _number(number)
        # A file may be kernel and task at once.
        return await read(offset, limit, lambda: visible_kernel(store.file(store.attempt(run_id, at).kernel_sha256)))

    async def list_resources(
        context: ServerRequestContext[Any, Any], params: PaginatedRequestParams
    ) -> ListResourcesResult:
        fixed = [] if params.cursor else await server.list_resources()
        try:
            kept = await _asked(lambda: store.kept() if store.folder.is_dir() else Kept([], {}))
        except ResourceNotFoundError as error:
            raise MCPError(INTERNAL_ERROR, str(error)) from None
        listed = [*map(_listed, kept.runs), *(_damaged(run_id, why) for run_id, why in kept.damaged.items())]
        start = _start(params.cursor, len(listed))
        following = str(start + PAGE) if start + PAGE < len(listed) else None
        return ListResourcesResult(resources=[*fixed, *listed[start : start + PAGE]], next_cursor=following)

    answer(server, "resources/list", PaginatedRequestParams, list_resources)
    watch = RunWatch(store, poll_s)
    watch.register(server)
    return watch


def run_json(run: Run, attempts: Sequence[Attempt]) -> str:
    """A run with its attempts, as it is shown."""
    frozen = run.frozen
    return RunRecord(
        run_id=frozen.run_id,
        title=frozen.title,
        entry=frozen.entry,
        state=run.state,
        ended_by=run.ended_by,
        problem=run.problem,
        incumbent=run.incumbent,
        verified=_without_hidden(run.verified),
        target=frozen.target,
        gpu=frozen.gpu,
        torch=frozen.torch,
        triton=frozen.triton,
        cases=frozen.cases,
        hidden_cases=frozen.hidden_count,
        hidden_from=frozen.hidden_from,
        budget=frozen.budget,
        limits=frozen.limits,
        kernel_sha256=frozen.kernel_sha256,
        task_sha256=frozen.task_sha256,
        created_at=frozen.created_at,
        updated_at=run.updated_at,
        attempts=[_summary(frozen.run_id, attempt) for attempt in attempts],
    ).model_dump_json(indent=2)


def attempt_json(run: Run, attempt: Attempt) -> str:
    """All that is known of an attempt, as it is shown: neither hidden cases nor folders of this machine."""
    attempt = shown(attempt)
    if attempt.evidence is not None:
        cases, evidence = run.frozen.cases, attempt.evidence
        update = {
            "launches": [launch for launch in evidence.launches if launch.case in cases],
            "own": [time for time in evidence.own if time.case in cases],
        }
        attempt = attempt.model_copy(update={"evidence": evidence.model_copy(update=update)})
    return attempt.model_dump_json(indent=2, exclude={"kernel_origin"})


def _summary(run_id: str, attempt: Attempt) -> AttemptSummary:
    score = None if attempt.number == BASELINE else score_of(attempt)
    return AttemptSummary(
        number=attempt.number,
        parent=attempt.parent,
        state=attempt.state,
        kind=outcome_of(attempt),
        strategy=attempt.strategy,
        ratio=None if score is None else score.ratio,
        ratio_low=None if score is None else score.low,
        ratio_high=None if score is None else score.high,
        accepted=attempt.accepted,
        duplicate_of=attempt.duplicate_of,
        record=attempt_uri(run_id, attempt.number),
        kernel=kernel_uri(run_id, attempt.number),
    )


def _without_hidden(look: Confirmation | None) -> Confirmation | None:
    if look is None or look.timing is None:
        return look
    return look.model_copy(update={"timing": without_hidden(look.timing)})


def _listed(run: Run) -> Resource:
    run_id = run.frozen.run_id
    best = "nothing accepted yet" if run.incumbent == BASELINE else f"the best is attempt {run.incumbent}"
    return Resource(
        uri=run_uri(run_id),
        name=run_id,
        title=words(run.frozen.title, 80),
        description=f"Optimization run, {run.state}, {best}.",
        mime_type="application/json",
    )


def _damaged(run_id: str, why: str) -> Resource:
    return Resource(
        uri=run_uri(run_id), name=run_id, title=words(run_id, 80), description=f"It can't be read: {words(why, 200)}",
        mime_type="application/json",
    )  # fmt: skip


async def _asked(read: Callable[[], T]) -> T:
    """What the store says.

    Raises:
        ResourceNotFoundError: there is no such run or attempt, or nothing can be read.
    """
    try:
        return await anyio.to_thread.run_sync(read)
    except Stopped as stopped:
        fix = stopped.problem.likely_fix
        raise ResourceNotFoundError(stopped.problem.message + ("" if fix is None else f". {fix}")) from None


def _number(given: str) -> int:
    """
    Raises:
        ResourceNotFoundError: that is no attempt's number.
    """
    if not (given.isascii() and given.isdecimal() and len(given) <= 9):
        raise ResourceNotFoundError("an attempt is named by its number, as get_run tells it; 0 is the baseline")
    return int(given)


def _start(cursor: str | None, count: int) -> int:
    """
    Raises:
        MCPError: no answer of this server had that cursor.
    """
    if cursor is None:
        return 0
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) <= 9 and int(cursor) % PAGE == 0):
        raise MCPError(INVALID_PARAMS, "that cursor is none of this server's: list the resources from the beginning")
    return min(int(cursor), count)
