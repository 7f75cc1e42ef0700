"""The process that works on a campaign's kernels with one GPU: ``python -m tritonforge.server.campaign.worker``.

Arguments: the campaign's folder, the settings as JSON, and `prepare` where only tasks are to be made. It prints events,
and ends with its parent: when its standard input does.
"""

import os
import signal
import sys
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

import anyio

from ...sandbox.errors import Stopped
from ...sandbox.executors.end import abandon
from ...sandbox.source import Source
from ..optimize.headless import Opened, opened, optimize_with
from ..optimize.model import OptimizeResult, Plan, Says
from ..optimize.process import ending_with_us
from ..settings import Settings
from ..tools.benchmark import benchmark
from ..tools.benchmark_report import BenchmarkResult
from ..tools.hardware_spec import hardware_spec
from .adapting import adapted
from .events import Event, Halted
from .folder import CampaignFolder, Frozen
from .kernel import UNSEEN_S, Bench, Won
from .model import Unseen
from .unseen import unseen
from .work import Work

OK: Final = 0
HALTED: Final = 3
"""It can't go on, and said why; a fresh process may."""
PREPARE: Final = "prepare"


def main(arguments: Sequence[str]) -> int:
    """Work on the campaign of a folder."""
    folder, settings = CampaignFolder(Path(arguments[0])), Settings.model_validate_json(arguments[1])
    frozen = folder.frozen()
    assert frozen is not None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with ending_with_us():
        return anyio.run(_work, folder, frozen, settings, PREPARE in arguments[2:])


async def _work(folder: CampaignFolder, frozen: Frozen, settings: Settings, only_tasks: bool) -> int:
    plan = frozen.plan
    async with opened(settings, plan.ablations) as shared:
        try:
            bench = None if only_tasks else await _bench(shared)
            await Work(folder, frozen, bench, partial(adapted, shared.services, folder, plan), _tell).run()
        except Stopped as stopped:
            problem = stopped.problem
            _tell(Halted(why=f"{stopped.kind}: {problem.message}. {problem.likely_fix or ''}".strip()))
            return HALTED
    return OK


async def _bench(shared: Opened) -> Bench:
    """What kernels are worked on with.

    Raises:
        Stopped: ``unavailable``: the GPU can't be used.
    """
    services, machine = shared

    async def optimize(plan: Plan, say: Says, begun: Says) -> OptimizeResult:
        return await optimize_with(plan, services, machine, say=say, begun=begun)

    async def tries(won: Won) -> tuple[list[Unseen], list[str]]:
        notes: list[str] = []
        found = await unseen(services, _silent, **won._asdict(), budget_s=UNSEEN_S, tell=notes.append)
        return found, notes

    async def alone(kernel: Source, task: Source, cases: list[str] | None) -> BenchmarkResult:
        return await benchmark(services, _silent, kernel=kernel, task=task, cases=cases)

    spec = await hardware_spec(services, _silent, detail=True)
    device = spec.model_dump(mode="json", exclude={"summary", "next_step", "artifacts"})
    if not await services.has_gpu():
        return Bench(machine.store, optimize, alone, None, None, None, device)
    environment = await services.require_gpu("campaign")
    assert environment.gpu is not None
    device["versions"] = {"python": environment.python, "torch": environment.torch, "triton": environment.triton}
    async with services.gpu_turn(alone=False) as found:
        uuid = found.uuid
    return Bench(machine.store, optimize, alone, tries, environment.gpu.name, uuid, device)


def _tell(event: Event) -> None:
    sys.stdout.write(event.model_dump_json() + "\n")
    sys.stdout.flush()


async def _silent(done: float, total: float, message: str) -> None:
    """Stages are told; what they do in detail is not."""


def _end_with_parent() -> None:
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    abandon()
    os._exit(128 + number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
