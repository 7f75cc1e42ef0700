"""tune_kernel: searches over what a kernel file already exposes, without an agent."""

from collections.abc import Sequence
from typing import Any, Final

import anyio
from mcp_types import ToolAnnotations

from ...profiling.tuning.importance import effects
from ...profiling.tuning.search import Search
from ...sandbox.errors import rejected
from ...sandbox.outcome import Kind, Problem
from ...sandbox.source import Source, read_source
from ..services import Services
from ..tuning.bench import Compiler, device_us
from ..tuning.find import Given, compilers, prepare, race
from ..tuning.finish import Winner, decorator, finish, in_thread_diff
from ..tuning.loop import Tuning, compile_only
from ..tuning.report import (
    AUTOTUNE_CHARACTERS,
    DIFF_CHARACTERS,
    NOTES_SHOWN,
    TuneResult,
    bounded,
    cut,
    outlook,
    searched,
    space_in_words,
    summary,
    tuned_cases,
)
from .parameters import Progress

NAME: Final = "tune_kernel"
TITLE: Final = "Search a kernel's tile sizes, warps and stages"
DESCRIPTION: Final = """\
Finds the best values of what the kernel file already exposes: integer and boolean literals behind constexpr arguments \
of its launches (directly, or through a local name such as block_m = 64), num_warps, num_stages, @triton.autotune \
lists, and numbers that only the grid is made of. No agent is asked: variants are compiled in parallel, ruled out by \
what the compiler says (shared memory, spills in loops, tensor cores lost, idle threads), and raced on the GPU against \
the best so far, in an order that a model of the measurements chooses. The best is checked by run_correctness and \
timed by benchmark against the file as it is. It changes numbers, not code: use it when the algorithm stands.
space restricts or extends knobs, e.g. {"BLOCK_M": [64, 128], "num_warps": [4, 8]}; [] leaves one as it is. \
Returns chosen (the knobs best over all cases) with ratio (baseline time / tuned time) and its 95 % interval, cases[] \
with each one's own best, effects[] (what mattered), pruned and failed counts, diff, the tuned file as an artifact, \
and autotune, a ready @triton.autotune list. Without a GPU: kind unavailable, with the space and what is ruled out."""
ANNOTATIONS: Final = ToolAnnotations(
    # It runs the code that it is given, in a sandbox where the machine allows one.
    title=TITLE,
    read_only_hint=False,
    idempotent_hint=False,
    destructive_hint=False,
    open_world_hint=True,
)

BUDGET_S: Final = 60.0
LEAST_BUDGET_S: Final = 5.0
MOST_BUDGET_S: Final = 3600.0
END_S: Final = 8.0
END_OF_CASE_S: Final = 4.0
"""Kept of the budget for the end, where finalists are checked and the winner is timed."""
END_SHARE: Final = 0.4
"""At most."""


async def tune_kernel(
    services: Services,
    progress: Progress,
    *,
    kernel: str | Source,
    task: str | Source,
    space: Given | None = None,
    cases: list[str] | None = None,
    budget_s: float = BUDGET_S,
    evaluations: int | None = None,
    target: str | None = None,
) -> TuneResult:
    """Search for the best values of the file's knobs.

    Raises:
        Stopped: any failing outcome of the file as it is; ``rejected`` for a space that can't be searched.
    """
    begun = anyio.current_time()
    kernel_source, task_source = read_source(kernel, "kernel"), read_source(task, "task")
    goal, here = await services.target(target), await services.target(None)
    on_gpu = await services.has_gpu()
    await services.artifacts.prepare()
    await progress(0, 4, "compiling the file as it is")
    ground = await prepare(services, kernel_source, task_source, goal, space=space, cases=cases)
    if (nothing := ground.nothing) is not None:
        raise rejected(
            "space",
            nothing,
            file=kernel_source.shown_as,
            fix="Make tile sizes constexpr parameters whose values stand as integer literals at the launch or in a "
            "local name; the prompt parametrize says how.",
        )
    compiler, chosen = ground.compiler, ground.cases
    search = ground.search(evaluations)
    end_s = min(END_SHARE * budget_s, END_S + END_OF_CASE_S * len(chosen))
    left_s = max(0.2 * budget_s, budget_s - end_s - (anyio.current_time() - begun))
    if not on_gpu or (target is not None and goal.name != here.name):
        return await _without_gpu(progress, search, compiler, left_s, on_gpu=on_gpu)
    environment = await services.require_gpu("tune")
    await progress(1, 4, f"searching {ground.space.size} points")
    tuning = await race(services, ground, search, left_s)
    winner = await finish(
        services,
        progress,
        search,
        kernel_source,
        task_source,
        chosen,
        baseline_is_reference=not ground.spec.has_reference,
    )
    device = environment.gpu.name if environment.gpu is not None else None
    seconds = anyio.current_time() - begun
    return await _result(services, tuning, winner, compiler, chosen, device, seconds)


async def _without_gpu(
    progress: Progress, search: Search, compiler: Compiler, budget_s: float, *, on_gpu: bool
) -> TuneResult:
    """The space, and what compiling alone rules out."""
    goal = compiler.target
    await progress(1, 4, f"compiling variants for {goal.name}: there is no GPU to time them on")
    await compile_only(search, compiler, compilers(), budget_s)
    search.candidates()
    problem = Problem(
        stage="tune",
        message=f"variants are timed on this machine's GPU, which is not {goal.name}"
        if on_gpu
        else "this machine has no NVIDIA GPU: variants can be compiled, not timed",
        likely_fix="Leave target out." if on_gpu else "Run the server on a machine with the GPU to tune for. Check "
        "the space here first, and restrict it with space.",
    )  # fmt: skip
    fields: dict[str, Any] = searched(search)
    pruned = ", ".join(f"{count} {reason}" for reason, count in fields["pruned"].items()) or "none"
    result = TuneResult(
        kind=Kind.UNAVAILABLE,
        summary=f"{Kind.UNAVAILABLE}: {problem.message}.\nThe space has {search.space.size} points:\n"
        f"{space_in_words(search.space)}\n"
        f"{search.compiled_count} compiled for {goal.name}, {search.same_code()} of them to the same code as others; "
        f"ruled out: {pruned}.{outlook(search)}",
        next_step=problem.likely_fix,
        problem=problem,
        target=goal.name,
        **fields,
    )
    return bounded(result)


async def _result(
    services: Services,
    tuning: Tuning,
    winner: Winner,
    compiler: Compiler,
    cases: Sequence[str],
    device: str | None,
    seconds: float,
) -> TuneResult:
    search = tuning.search
    space, artifacts, timed = search.space, list[str](), winner.benchmark
    fields: dict[str, Any] = searched(search)
    its = tuned_cases(search, cases)
    notes = list(winner.notes)
    if timed is None:
        raced = {case: device_us(variant) for case, variant in tuning.started.items()}
        its = [one.model_copy(update={"baseline_us": raced.get(one.case)}) for one in its]
    if timed is not None:
        artifacts += timed.artifacts
        measured = {one.case: one for one in timed.cases}
        its = [
            one.model_copy(
                update={
                    "baseline_us": measured[one.case].baseline_device_us,
                    "tuned_us": measured[one.case].device_us,
                    "ratio": measured[one.case].ratio,
                    "ratio_low": measured[one.case].ratio_low,
                    "ratio_high": measured[one.case].ratio_high,
                    "comparison": measured[one.case].comparison,
                }
            )
            if one.case in measured
            else one
            for one in its
        ]
    if winner.text is not None:
        artifact = await services.artifacts.put("tuned_kernel.py", winner.text.encode())
        artifacts.insert(0, artifact.uri)
        fields["diff"] = cut(await in_thread_diff(compiler.kernel.text, winner.text), DIFF_CHARACTERS)
    listed = decorator(search, winner, compiler.captured)
    if listed is not None:
        fields["autotune"] = cut(listed, AUTOTUNE_CHARACTERS)
        if winner.others and not space.listings:
            notes.append(
                "Cases differ: with autotune the launch must leave these arguments to it, and the grid must take them "
                "from its meta argument. A kernel that adds to its output needs reset_to_zero or restore_value."
            )
    if search.left_count:
        notes.append(f"{search.left_count} points were neither compiled nor measured.")
    score = timed.score if timed is not None else None
    chosen = winner.point
    result = TuneResult(
        kind=Kind.OK,
        summary="",
        next_step=_next_step(winner, score is not None and score.comparison == "faster"),
        artifacts=artifacts,
        device=device,
        target=compiler.target.name,
        seconds=round(seconds, 1),
        stopped_because=tuning.stopped_because,
        chosen=space.named(chosen) if chosen is not None else None,
        ratio=score.ratio if score is not None else None,
        ratio_low=score.ratio_low if score is not None else None,
        ratio_high=score.ratio_high if score is not None else None,
        comparison=score.comparison if score is not None else None,
        cases=its,
        effects=effects(search, chosen if chosen is not None else space.present),
        notes=notes[:NOTES_SHOWN],
        **fields,
    )
    result = bounded(result)
    return result.model_copy(update={"summary": summary(result)})


def _next_step(winner: Winner, faster: bool) -> str:
    if winner.point is None:
        return "The numbers are not what limits it: diagnose_kernel says what does."
    if faster:
        return "Take the tuned file (artifact) as the candidate; diagnose_kernel says what limits it now."
    return "The gain is not certain: keep the file as it is unless the single cases' gains matter to you."
