"""The MCP server: tools, prompts and resources put together."""

import contextlib
import difflib
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Annotated, Any, Final

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, CallToolResult, GetPromptResult, InputRequiredResult
from pydantic import Field, ValidationError

from .. import __version__
from . import prompt_registry, resources, run_resources, run_tools, schemas, switched_off, tune_tools
from .results import respond
from .runs.evaluation import ToolEvaluator
from .runs.evaluator import Evaluator
from .runs.machine import Machine
from .runs.store import Store
from .services import Services
from .settings import Settings
from .tools import (
    benchmark,
    compile_kernel,
    compile_report,
    diagnose_kernel,
    diagnose_report,
    hardware_spec,
    profile_ncu,
    profile_report,
    recall_lessons,
    run_correctness,
)
from .tools.parameters import (
    Against,
    Cache,
    Cases,
    Compared,
    Depth,
    Detail,
    DiagnosedCase,
    Kernel,
    KernelNames,
    Launches,
    MetricNames,
    OptionalBaseline,
    OptionalTask,
    Probes,
    ProfileCompared,
    ProfiledCases,
    ProfileLevel,
    Progress,
    TargetName,
    TaskFile,
    VerifyWith,
)

NAME: Final = "tritonforge"
INSTRUCTIONS: Final = """\
Makes Triton kernels faster with evidence. The loop:
1. hardware_spec: what is optimized for, and what works here (without a GPU: compile facts and the interpreter).
2. A task file says how the kernel is called: ENTRY, CASES, make_inputs, reference, TOLERANCE, work. How to \
write one: get_playbook(role='generate_tests'), or the prompt of that name; roles have one each. Never weaken it later.
3. start_optimization(kernel, task): freezes both, measures the baseline, and tells run_id, the headroom, why it is \
slow by line (findings) and what to change first (hints). recall_lessons: what earlier runs taught about a finding.
4. One idea at a time: write a candidate with the same entry and signature. diagnose_kernel(baseline, \
verify_with=candidate) or compile_kernel(compare=...) tells in a second, without the GPU, whether the compiler did it.
5. submit_candidate(run_id, kernel, strategy, parent): checked, timed against baseline and best so far, judged: \
verdict accept, continue or finish, with reasons and hints. A failing one carries problem: mend it or drop the idea.
6. kind running: the call goes on; follow next_step with get_run(run_id, attempt, wait_s). get_run(run_id) shows the \
lineage and which attempt to go on from; get_run() lists runs, also of earlier sessions: any can be gone on with.
7. Tile sizes, warps and stages are not searched by hand: tune_kernel does, within seconds that you give it.
8. Go on until the verdict is finish, and report the best attempt's ratio with its interval. Never claim more.
9. Single looks, without a run: run_correctness (is it right?), benchmark (believe comparison, not ratio alone), \
profile_ncu (counters by line), diagnose_kernel (why slow, which edit). Without a GPU nothing is timed or accepted.
Every result has kind, summary and next_step; anything but kind ok and running carries problem."""

TOLERATED_ARGUMENTS: Final = frozenset({"wait_for_previous"})
"""Gemini CLI adds this one to every tool's schema and sends it along."""


SHOWN_CHARACTERS: Final = 100
"""Of an unknown name: enough to recognize it."""


class ToolServer(MCPServer[Any]):
    """Refuses unknown names and arguments with the nearest known one; the SDK would ignore stray arguments."""

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        tools = {tool.name: tool for tool in await self.list_tools()}
        if name not in tools:
            raise ToolError(f"There is no tool {_unknown(name, tools)} The tools are: {', '.join(tools)}.")
        known: list[str] = list(tools[name].input_schema.get("properties", {}))
        unknown = [argument for argument in arguments if argument not in known and argument not in TOLERATED_ARGUMENTS]
        if unknown:
            raise ToolError(f"{name} has no argument {_unknown(unknown[0], known)} It takes: {', '.join(known)}.")
        accepted = {argument: value for argument, value in arguments.items() if argument not in TOLERATED_ARGUMENTS}
        try:
            return await super().call_tool(name, accepted, context)
        except UnexpectedToolError:
            raise
        except ToolError as error:
            if not isinstance(error.__cause__, ValidationError):
                raise
            # The SDK's text names our private models and links to pydantic's manual.
            wrong = [f"{'.'.join(map(str, found['loc']))}: {found['msg']}" for found in error.__cause__.errors()]
            raise ToolError(f"{name} can't take these arguments: {'; '.join(wrong[:5])}.") from error.__cause__

    async def get_prompt(
        self, name: str, arguments: dict[str, Any] | None = None, context: Context[Any, Any] | None = None
    ) -> GetPromptResult | InputRequiredResult:
        prompts = {prompt.name: prompt for prompt in await self.list_prompts()}
        if name not in prompts:
            raise MCPError(
                INVALID_PARAMS, f"There is no prompt {_unknown(name, prompts)} The prompts are: {', '.join(prompts)}."
            )
        given = arguments or {}
        expected = prompts[name].arguments or []
        missing = [argument.name for argument in expected if argument.required and argument.name not in given]
        if missing:
            raise MCPError(INVALID_PARAMS, f"The prompt {name} needs {', '.join(missing)}.")
        return await super().get_prompt(name, arguments, context)


def _unknown(given: str, known: Iterable[str]) -> str:
    """What was given, cut to a readable length, and the nearest known name."""
    given = given[:SHOWN_CHARACTERS]
    near = difflib.get_close_matches(given, list(known), n=1)
    return f"{given!r}." + (f" Did you mean {near[0]!r}?" if near else "")


def build_server(settings: Settings, evaluator: Callable[[Services], Evaluator] = ToolEvaluator) -> MCPServer[Any]:
    """A server with all tools, prompts and resources; no worker is started before the first call.

    Args:
        settings: of this process.
        evaluator: what measures the candidates of runs.

    Raises:
        Unusable: a tool is to be switched off that there is none of.
    """
    services = Services(settings)
    machine = Machine(
        Store(settings.state_dir / "runs"),
        evaluator(services),
        turn=lambda: services.evaluations,
        state_dir=settings.state_dir,
        advises=diagnose_kernel.NAME not in settings.without,
    )

    @contextlib.asynccontextmanager
    async def lifespan(_: MCPServer[Any]) -> AsyncGenerator[Services]:
        async with services, machine, watch:
            yield services

    async def here() -> recall_lessons.Here:
        # Without a GPU no worker is started to find out which Triton there is.
        environment = await services.environment() if await services.has_gpu() else None
        gpu = None if environment is None else environment.gpu
        triton = None if environment is None else environment.triton
        return recall_lessons.Here(None if gpu is None else gpu.name, triton)

    server = ToolServer(
        NAME,
        title="TritonForge",
        instructions=INSTRUCTIONS + switched_off.told(settings.without),
        version=__version__,
        log_level="WARNING",
        lifespan=lifespan,
    )
    _register_tools(server, services)
    run_tools.register(server, machine, here, _progress)
    tune_tools.register(server, services, _progress)
    prompt_registry.register(server, machine.store, switched_off.told(settings.without))
    switched_off.take_away(server, settings.without)
    resources.register(server, services)
    watch = run_resources.register(server, machine.store)
    schemas.register(server)
    return server


def _progress(context: Context[Any, Any]) -> Progress:
    async def report(done: float, total: float, message: str) -> None:
        await context.report_progress(done, total, message)

    return report


def _register_tools(server: MCPServer[Any], services: Services) -> None:
    @server.tool(
        hardware_spec.NAME,
        title=hardware_spec.TITLE,
        description=hardware_spec.DESCRIPTION,
        annotations=hardware_spec.ANNOTATIONS,
        meta={"anthropic/alwaysLoad": True},
    )
    async def _hardware_spec(  # pyright: ignore[reportUnusedFunction]
        context: Context[Any, Any],
        target: TargetName = None,
        measure: Annotated[
            bool,
            Field(
                description="Measure anew what this machine's GPU reaches, and keep it. Under 20 s; needs a GPU. "
                "Default: false."
            ),
        ] = False,
        detail: Annotated[
            bool,
            Field(description="Add the whole data sheet, the limits of an SM and live values. Default: false."),
        ] = False,
    ) -> Annotated[CallToolResult, hardware_spec.HardwareResult]:
        return await respond(
            hardware_spec.HardwareResult,
            lambda: hardware_spec.hardware_spec(
                services, _progress(context), target=target, measure=measure, detail=detail
            ),
        )

    @server.tool(
        compile_kernel.NAME,
        title=compile_kernel.TITLE,
        description=compile_kernel.DESCRIPTION,
        annotations=compile_kernel.ANNOTATIONS,
        meta={"anthropic/alwaysLoad": True},
    )
    async def _compile_kernel(  # pyright: ignore[reportUnusedFunction]
        context: Context[Any, Any],
        kernel: Kernel,
        task: OptionalTask = None,
        target: TargetName = None,
        cases: Cases = None,
        explain: Annotated[
            bool,
            Field(
                description="Also read the machine code and ask the compiler's passes why they did not do more. About "
                "1 s a distinct kernel. Default: false."
            ),
        ] = False,
        compare: Compared = None,
    ) -> Annotated[CallToolResult, compile_report.CompileResult]:
        return await respond(
            compile_report.CompileResult,
            lambda: compile_kernel.compile_kernel(
                services,
                _progress(context),
                kernel=kernel,
                task=task,
                target=target,
                cases=cases,
                explain=explain,
                compare=compare,
            ),
            turn=services.evaluations,
        )

    @server.tool(
        diagnose_kernel.NAME,
        title=diagnose_kernel.TITLE,
        description=diagnose_kernel.DESCRIPTION,
        annotations=diagnose_kernel.ANNOTATIONS,
    )
    async def _diagnose_kernel(  # pyright: ignore[reportUnusedFunction]
        context: Context[Any, Any],
        kernel: Kernel,
        task: OptionalTask = None,
        case: DiagnosedCase = None,
        target: TargetName = None,
        depth: Depth = "auto",
        verify_with: VerifyWith = None,
        probes: Probes = None,
    ) -> Annotated[CallToolResult, diagnose_report.DiagnosisResult]:
        return await respond(
            diagnose_report.DiagnosisResult,
            lambda: diagnose_kernel.diagnose_kernel(
                services,
                _progress(context),
                kernel=kernel,
                task=task,
                case=case,
                target=target,
                depth=depth,
                verify_with=verify_with,
                probes=probes,
            ),
            turn=services.evaluations,
        )

    @server.tool(
        run_correctness.NAME,
        title=run_correctness.TITLE,
        description=run_correctness.DESCRIPTION,
        annotations=run_correctness.ANNOTATIONS,
    )
    async def _run_correctness(  # pyright: ignore[reportUnusedFunction]
        context: Context[Any, Any],
        kernel: Kernel,
        task: TaskFile,
        baseline: OptionalBaseline = None,
        cases: Cases = None,
        seeds: Annotated[
            int,
            Field(
                ge=1,
                le=run_correctness.SEEDS_LIMIT,
                description="Random inputs a case, 1 to 64. Default: 3.",
            ),
        ] = run_correctness.DEFAULT_SEEDS,
        sanitize: Annotated[
            bool,
            Field(
                description="Also run compute-sanitizer (memcheck, racecheck, initcheck, synccheck) over one call. "
                "About 15 s; needs a GPU. Default: false."
            ),
        ] = False,
    ) -> Annotated[CallToolResult, run_correctness.CorrectnessResult]:
        return await respond(
            run_correctness.CorrectnessResult,
            lambda: run_correctness.run_correctness(
                services,
                _progress(context),
                kernel=kernel,
                task=task,
                baseline=baseline,
                cases=cases,
                seeds=seeds,
                sanitized=sanitize,
            ),
            turn=services.evaluations,
        )

    @server.tool(
        benchmark.NAME,
        title=benchmark.TITLE,
        description=benchmark.DESCRIPTION,
        annotations=benchmark.ANNOTATIONS,
    )
    async def _benchmark(  # pyright: ignore[reportUnusedFunction]
        context: Context[Any, Any],
        kernel: Kernel,
        task: TaskFile,
        baseline: OptionalBaseline = None,
        cases: Cases = None,
        against: Against = None,
        cache: Cache = "cold",
    ) -> Annotated[CallToolResult, benchmark.BenchmarkResult]:
        return await respond(
            benchmark.BenchmarkResult,
            lambda: benchmark.benchmark(
                services,
                _progress(context),
                kernel=kernel,
                task=task,
                baseline=baseline,
                cases=cases,
                against=against,
                cache=cache,
            ),
            turn=services.evaluations,
        )

    @server.tool(
        profile_ncu.NAME,
        title=profile_ncu.TITLE,
        description=profile_ncu.DESCRIPTION,
        annotations=profile_ncu.ANNOTATIONS,
    )
    async def _profile_ncu(  # pyright: ignore[reportUnusedFunction]
        context: Context[Any, Any],
        kernel: Kernel,
        task: OptionalTask = None,
        cases: ProfiledCases = None,
        level: ProfileLevel = "standard",
        metrics: MetricNames = None,
        kernel_names: KernelNames = None,
        launches: Launches = profile_ncu.LAUNCHES,
        compare: ProfileCompared = None,
        detail: Detail = False,
    ) -> Annotated[CallToolResult, profile_report.ProfileResult]:
        return await respond(
            profile_report.ProfileResult,
            lambda: profile_ncu.profile_ncu(
                services,
                _progress(context),
                kernel=kernel,
                task=task,
                cases=cases,
                level=level,
                metrics=metrics,
                kernel_names=kernel_names,
                launches=launches,
                compare=compare,
                detail=detail,
            ),
            turn=services.evaluations,
        )
