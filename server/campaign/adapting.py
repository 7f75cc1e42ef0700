"""The first step with an artefact: a kernel file and a task file in the campaign's folder."""

import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import anyio

from ...sandbox.errors import Stopped
from ...sandbox.outcome import Kind
from ..adapters.find import choices, made_of
from ..adapters.ground import ground
from ..adapters.model import Adapted
from ..adapters.settle import settle
from ..services import Services
from .folder import ERROR, Adaptation, CampaignFolder, write
from .model import Entry, KernelRecord, Plan
from .reasons import line

TARGET: Final = "h100"
"""Baselines are compiled for it while a task is tried; it says which cases can be used, nothing of speed."""


async def adapted(services: Services, folder: CampaignFolder, plan: Plan, entry: Entry) -> Adaptation | KernelRecord:
    """The task of an artefact, from an earlier sitting or made now; where there is none, its record.

    A task is made anew where the artefact has changed, and on a GPU where it was made without one.

    Raises:
        Stopped: ``unavailable`` or ``cancelled``: nothing that the artefact could help.
    """
    before, on_gpu = folder.adaptation(entry.name), await services.has_gpu()
    speed = _performance(plan, entry)
    # It never raises: a fault of one artefact must not cost the others.
    digest = await anyio.to_thread.run_sync(lambda: made_of(entry.path, performance=speed))
    if before is not None and (before.on_gpu or not on_gpu) and digest in (before.made_of, None):
        return before
    begun = time.monotonic()

    def without_task(outcome: str, kind: str, why: str) -> KernelRecord:
        seconds = {"adapt": round(time.monotonic() - begun, 2)}
        update = {"outcome": outcome, "why": line(why), "failure_kind": kind, "seconds": seconds}
        return record(entry, plan).model_copy(update=update)

    try:
        tasks = await anyio.to_thread.run_sync(lambda: choices(entry.path, performance=speed))
        found, made = await _made(services, tasks, on_gpu=on_gpu)
    except Stopped as stopped:
        if stopped.kind in (Kind.UNAVAILABLE, Kind.CANCELLED):
            raise
        return without_task("not_loaded", stopped.kind.value, stopped.problem.message)
    except Exception as error:  # noqa: BLE001
        # A fault of ours with one artefact must not cost the others.
        return without_task("failed", "internal_error", await failed_within(folder.kernel(entry.name), error))
    found = found.model_copy(update={"seconds": round(time.monotonic() - begun, 2), "made_of": digest or ""})
    place = folder.kernel(entry.name)
    # First away and last there: it says that the others are whole.
    await anyio.to_thread.run_sync(lambda: folder.adapted_file(entry.name).unlink(missing_ok=True))
    await anyio.to_thread.run_sync(write, place / "kernel.py", made.kernel)
    await anyio.to_thread.run_sync(write, place / "task.py", made.task_text)
    await anyio.to_thread.run_sync(write, folder.adapted_file(entry.name), found.model_dump_json(indent=2))
    return found


def _performance(plan: Plan, entry: Entry) -> Path | None:
    """The artefact's performance file in the folder of the plan."""
    file = None if plan.performance is None else plan.performance / f"{entry.path.stem}_perf.py"
    return file if file is not None and file.is_file() else None


async def _made(services: Services, tasks: Sequence[Adapted], *, on_gpu: bool) -> tuple[Adaptation, Adapted]:
    if on_gpu:
        grounded = await ground(services, tasks, target=TARGET)
        made, cases, why_not, kind = grounded.adapted, grounded.cases, grounded.why_not, grounded.kind
    else:
        settled = await settle(services, tasks, target=TARGET)
        made, cases, why_not, kind = (
            settled.adapted,
            len(settled.task.cases.keys() - settled.dropped.keys()),
            None,
            None,
        )
    return Adaptation(
        form=made.form,
        entry=made.entry,
        cases=cases,
        assumptions=list(made.assumptions),
        seconds=0.0,
        on_gpu=on_gpu,
        why_not=why_not,
        kind=kind,
    ), made


async def failed_within(place: Path, error: Exception) -> str:
    """Keep a fault of ours beside a kernel; what its record says of it."""
    await anyio.to_thread.run_sync(write, place / ERROR, "".join(traceback.format_exception(error)))
    return f"internal error (see {ERROR}): {type(error).__name__}: {error}"


def record(entry: Entry, plan: Plan, made: Adaptation | None = None) -> KernelRecord:
    """What is known of a kernel before anything was measured."""
    path = entry.path.relative_to(plan.folder) if entry.path.is_relative_to(plan.folder) else Path(entry.path.name)
    first = KernelRecord(name=entry.name, path=str(path), lines=entry.lines, outcome="failed")
    if made is None:
        return first
    known = {"form": made.form, "entry": made.entry, "cases": made.cases, "assumptions": made.assumptions}
    return first.model_copy(update={**known, "seconds": {"adapt": made.seconds}})
