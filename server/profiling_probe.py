"""Whether hardware counters can really be read here: the known kernel under Nsight Compute."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from ..profiling.ncu import metrics
from ..profiling.ncu.levels import custom
from ..sandbox.errors import Stopped
from ..sandbox.workers import KernelWorker
from .check import Check
from .nsight_compute import find_profiler
from .services import Services

NAME = "profile of a known kernel"


async def probe_counters(services: Services) -> Check:
    """Profile the known kernel in a worker, as profile_ncu would; takes about 10 s.

    Returns:
        ok with what was counted, or limited with the reason and the remedy.
    """
    duration, counted = metrics.DURATION.names[0], "smsp__inst_executed.sum"

    @asynccontextmanager
    async def job(worker: KernelWorker) -> AsyncGenerator[None]:
        async with services.gpu_turn():
            await worker.process.request("probe_profile")
            yield

    try:
        await services.require_gpu("profile")
        profiler = await find_profiler()
        collected = await profiler.collect(
            services, custom((counted,)), job, wanted=[duration, counted], launches=1, ahead=False, texts=lambda: False
        )
    except Stopped as stopped:
        problem = stopped.problem
        return Check(name=NAME, status="limited", detail=problem.message, remedy=problem.likely_fix)
    found = [launch.metrics for launch in collected.report.launches]
    if not found or counted not in found[0]:
        return Check(
            name=NAME,
            status="limited",
            detail=f"ncu {profiler.version} ran, and its report has no {counted}",
            remedy="Install the Nsight Compute of this driver's CUDA version and set TRITONFORGE_NCU to it.",
        )
    return Check(
        name=NAME, status="ok", detail=f"ncu {profiler.version} counted {found[0][counted].value:g} instructions"
    )
