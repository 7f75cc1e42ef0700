"""The check behind the prompt `parametrize`: both files compiled, and held against each other."""

from ...profiling.hardware.model import Target
from ...profiling.tuning.parametrized import Parametrized, parametrized
from ...sandbox.source import Source
from ...sandbox.workers import task_worker
from ..services import Services
from .bench import Compiler


async def check_parametrized(
    services: Services, before: Source, after: Source, task: Source, target: Target, cases: list[str] | None = None
) -> Parametrized:
    """Whether a file has knobs and is otherwise the one that it was made from. Needs no GPU.

    Args:
        services: the server's.
        before: the old kernel file.
        after: the new one.
        task: the task file.
        target: what both are compiled for.
        cases: of the task; None: all.

    Raises:
        Stopped: one of the files can't be compiled.
    """
    async with task_worker(services.executor, on_gpu=False) as tasks:
        spec = await tasks.load(task)
        chosen = spec.select(cases)
        compilers = [Compiler(services.executor, source, spec, target) for source in (before, after)]
        for compiler in compilers:
            await compiler.make_inputs(tasks, chosen)
    old, new = [await compiler.compile(None) for compiler in compilers]
    launched = {
        launch.kernel: {"num_warps": launch.num_warps, "num_stages": launch.num_stages}
        for launches in compilers[1].captured.values()
        for launch in launches
    }
    return parametrized(before.text, after.text, old, new, launched)
