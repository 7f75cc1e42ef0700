"""Why an attempt is as slow as it is: the profiler and the ladder of diagnose_kernel, where they can say something."""

from typing import NamedTuple

from ...profiling.diagnosis.model import Level
from ...profiling.hardware.model import Target
from ...profiling.optimization.model import Diagnosed
from ...sandbox.errors import Stopped
from ...sandbox.outcome import Kind
from ...sandbox.source import Source
from ..services import Services
from ..tools.diagnose_case import Asked, climb
from ..tools.diagnose_kernel import NAME, artifact, how_profiled, known
from ..tools.profile_ncu import heaviest
from .evaluation_compile import NOT_ITS_DOING, Judged
from .evaluation_facts import diagnosed, typed


class Told(NamedTuple):
    """A diagnosis, or notes on why there is none."""

    diagnosed: Diagnosed | None
    notes: list[str]
    artifacts: list[str]


async def diagnosis(services: Services, goal: Target, judged: Judged, kernel: Source) -> Told:
    """Diagnose a kernel on the case that weighs most.

    Raises:
        Stopped: ``cancelled`` or ``unavailable``: no worker can be had. A kernel that can't be diagnosed is a note.
    """
    if NAME in services.settings.without:
        return Told(None, [f"not diagnosed: {NAME} is switched off"], [])
    if not known(goal):
        return Told(None, [f"not diagnosed: the catalogue of causes is not that of {goal.name}"], [])
    await services.artifacts.prepare()
    asked = Asked(goal, judged.task, judged.spec, heaviest(judged.spec), "auto")
    measure, unmeasured = await how_profiled(services, asked, kernel, named_target=goal.name)
    try:
        with typed():
            ladder = await climb(services, asked, kernel, measure, unmeasured)
    except Stopped as stopped:
        if stopped.kind in NOT_ITS_DOING:
            raise
        return Told(None, [f"not diagnosed: {_line(stopped.kind, stopped.problem.message)}"], [])
    skipped = [step.why for step in ladder.steps if step.level is Level.PROFILE and not step.ran]
    notes = [*ladder.notes, *(ladder.data.notes if ladder.data is not None else [])]
    told = diagnosed(ladder, skipped[0] if skipped else "none of the launches measured is one that was compiled here")
    return Told(told, notes, [await artifact(services, ladder)])


def _line(kind: Kind, message: str) -> str:
    return f"{kind}: {' '.join(message.split())[:300]}"
