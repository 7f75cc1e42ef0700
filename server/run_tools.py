"""The four tools of optimization runs, as MCP tools: parameters, and which function answers."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import CallToolResult

from ..profiling.optimization.model import Budget, Limits
from .results import respond
from .runs.machine import Machine
from .tools import (
    get_run,
    lesson_report,
    recall_lessons,
    run_lineage_shown,
    run_report,
    start_optimization,
    submit_candidate,
)
from .tools.parameters import (
    AttemptNumber,
    Attempts,
    CancelAttempt,
    CaseRegression,
    EndRun,
    FailedCount,
    FindingId,
    HiddenCases,
    Kernel,
    LessonKernel,
    LessonLimit,
    OptionalRunId,
    Parent,
    PollS,
    Progress,
    RunDetail,
    RunId,
    Strategy,
    TargetName,
    TargetPct,
    TargetRatio,
    TaskFile,
    WaitS,
    WallTime,
)


def register(
    server: MCPServer[Any],
    machine: Machine,
    here: Callable[[], Awaitable[recall_lessons.Here]],
    progress: Callable[[Context[Any, Any]], Progress],
) -> None:
    """Add the tools.

    Args:
        server: what they are added to.
        machine: the runs.
        here: looks up what lessons are held against.
        progress: tells a call's client how far it is.
    """

    @server.tool(
        start_optimization.NAME,
        title=start_optimization.TITLE,
        description=start_optimization.DESCRIPTION,
        annotations=start_optimization.ANNOTATIONS,
        meta={"anthropic/alwaysLoad": True},
    )
    async def _start_optimization(  # pyright: ignore[reportUnusedFunction]
        context: Context[Any, Any],
        kernel: Kernel,
        task: TaskFile,
        hidden_cases: HiddenCases = None,
        target: TargetName = None,
        attempts: Attempts = 8,
        wall_s: WallTime = None,
        target_pct: TargetPct = 95,
        target_ratio: TargetRatio = None,
        failed_count: FailedCount = True,
        case_regression_pct: CaseRegression = 1,
        wait_s: WaitS = 45,
    ) -> Annotated[CallToolResult, run_lineage_shown.StartResult]:
        return await respond(
            run_lineage_shown.StartResult,
            lambda: start_optimization.start_optimization(
                machine,
                progress(context),
                kernel=kernel,
                task=task,
                hidden_cases=hidden_cases,
                target=target,
                budget=Budget(
                    attempts=attempts,
                    wall_s=wall_s,
                    target_pct=target_pct,
                    target_ratio=target_ratio,
                    failed_count=failed_count,
                ),
                limits=Limits(case_regression_pct=case_regression_pct),
                wait_s=wait_s,
            ),
        )

    @server.tool(
        submit_candidate.NAME,
        title=submit_candidate.TITLE,
        description=submit_candidate.DESCRIPTION,
        annotations=submit_candidate.ANNOTATIONS,
    )
    async def _submit_candidate(  # pyright: ignore[reportUnusedFunction]
        context: Context[Any, Any],
        run_id: RunId,
        kernel: Kernel,
        strategy: Strategy,
        parent: Parent = None,
        wait_s: WaitS = 45,
    ) -> Annotated[CallToolResult, run_report.SubmissionResult]:
        return await respond(
            run_report.SubmissionResult,
            lambda: submit_candidate.submit_candidate(
                machine,
                progress(context),
                run_id=run_id,
                kernel=kernel,
                strategy=strategy,
                parent=parent,
                wait_s=wait_s,
            ),
        )

    @server.tool(
        get_run.NAME,
        title=get_run.TITLE,
        description=get_run.DESCRIPTION,
        annotations=get_run.ANNOTATIONS,
    )
    async def _get_run(  # pyright: ignore[reportUnusedFunction]
        context: Context[Any, Any],
        run_id: OptionalRunId = None,
        attempt: AttemptNumber = None,
        wait_s: PollS = 0,
        cancel: CancelAttempt = False,
        end: EndRun = False,
        detail: RunDetail = False,
    ) -> Annotated[CallToolResult, run_lineage_shown.RunResult]:
        wanted = get_run.Wanted(attempt, wait_s, cancel, end, detail)
        return await respond(
            run_lineage_shown.RunResult,
            lambda: get_run.get_run(machine, progress(context), run_id=run_id, wanted=wanted),
        )

    @server.tool(
        recall_lessons.NAME,
        title=recall_lessons.TITLE,
        description=recall_lessons.DESCRIPTION,
        annotations=recall_lessons.ANNOTATIONS,
    )
    async def _recall_lessons(  # pyright: ignore[reportUnusedFunction]
        finding: FindingId = None,
        kernel: LessonKernel = None,
        limit: LessonLimit = 10,
    ) -> Annotated[CallToolResult, lesson_report.LessonsResult]:
        async def recalled() -> lesson_report.LessonsResult:
            return await recall_lessons.recall_lessons(
                machine, await here(), finding=finding, kernel=kernel, limit=limit
            )

        return await respond(lesson_report.LessonsResult, recalled)
