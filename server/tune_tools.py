"""tune_kernel as an MCP tool: its parameters, and which function answers."""

from collections.abc import Callable
from typing import Annotated, Any

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import CallToolResult
from pydantic import Field

from .results import respond
from .services import Services
from .tools import tune_kernel
from .tools.parameters import Cases, Kernel, Progress, TargetName, TaskFile
from .tuning.report import TuneResult

SearchSpace = Annotated[
    dict[str, list[int | bool]] | None,
    Field(
        description="Values of knobs by name, such as {'BLOCK_M': [64, 128], 'num_warps': [4, 8]}: they take the place "
        "of the inferred ones; [] leaves a knob as the file has it. Default: none, all is inferred.",
        max_length=16,
    ),
]
BudgetS = Annotated[
    float,
    Field(
        ge=tune_kernel.LEAST_BUDGET_S,
        le=tune_kernel.MOST_BUDGET_S,
        allow_inf_nan=False,
        description="Seconds for the whole, the final check and benchmark included, 5 to 3600. Default: 60.",
    ),
]
Evaluations = Annotated[
    int | None,
    Field(
        ge=1,
        le=100_000,
        description="Most variants that are measured; one in two cases counts twice. Default: as many as the time "
        "allows.",
    ),
]


def _progress(context: Context[Any, Any]) -> Progress:
    async def report(done: float, total: float, message: str) -> None:
        await context.report_progress(done, total, message)

    return report


def register(
    server: MCPServer[Any], services: Services, progress: Callable[[Context[Any, Any]], Progress] = _progress
) -> None:
    """Add the tool.

    Args:
        server: what it is added to.
        services: the server's.
        progress: tells a call's client how far it is.
    """

    @server.tool(
        tune_kernel.NAME,
        title=tune_kernel.TITLE,
        description=tune_kernel.DESCRIPTION,
        annotations=tune_kernel.ANNOTATIONS,
    )
    async def _tune_kernel(  # pyright: ignore[reportUnusedFunction]
        context: Context[Any, Any],
        kernel: Kernel,
        task: TaskFile,
        space: SearchSpace = None,
        cases: Cases = None,
        budget_s: BudgetS = tune_kernel.BUDGET_S,
        evaluations: Evaluations = None,
        target: TargetName = None,
    ) -> Annotated[CallToolResult, TuneResult]:
        return await respond(
            TuneResult,
            lambda: tune_kernel.tune_kernel(
                services,
                progress(context),
                kernel=kernel,
                task=task,
                space=space,
                cases=cases,
                budget_s=budget_s,
                evaluations=evaluations,
                target=target,
            ),
            turn=services.evaluations,
        )
