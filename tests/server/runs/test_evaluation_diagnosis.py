"""What a diagnosis becomes in a run: findings in short, what the profiler measured, or why there is neither."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.diagnosis.made_up import profile, recorded
from tests.profiling.made_up import spec
from tritonforge.profiling.diagnosis.model import Diagnosis, Finding, Gain, Level, Rewrite
from tritonforge.profiling.hardware.catalog import resolve_target
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.outcome import Kind, Problem
from tritonforge.sandbox.source import Source
from tritonforge.server.artifacts import ArtifactStore
from tritonforge.server.runs import evaluation_diagnosis
from tritonforge.server.runs.evaluation_compile import Judged
from tritonforge.server.runs.evaluation_diagnosis import Told
from tritonforge.server.services import Services
from tritonforge.server.settings import Settings
from tritonforge.server.tools.diagnose_case import Asked, Diagnosed, Ladder, Step

pytestmark = pytest.mark.anyio

SPEC = spec(cases={"train": {"parameters": {"n": 1024}, "weight": 3.0, "small": False}})
TASK, CANDIDATE = Source("task", "task.py", None), Source("candidate", "candidate.py", None)


def stopped(kind: Kind, message: str = "it ended") -> Stopped:
    return Stopped(kind, Problem(stage="run", message=message))


def finding(id: str, kernel: str, expected_pct: float | None) -> Finding:
    return Finding(
        id=id, title=f"title of {id}", level=Level.CODE, kernel=kernel, line=7, excerpt=None, evidence=[],
        cause="cause", rewrite=Rewrite(recipe=f"recipe of {id}"), predicted=[],
        gain=Gain(expected_pct=expected_pct, at_most_pct=90.0, why="why"), falsified_by="nothing", risks=[],
    )  # fmt: skip


def launch(kernel: str, us: float | None, *findings: Finding, done: str | None = None) -> Diagnosed:
    profiled = None if us is None else profile(kernel=kernel, duration_us=us)
    told = Diagnosis(kernel=kernel, findings=list(findings), hypotheses=[], done=done, unknown=[])
    return Diagnosed(replace(recorded("softmax_baseline"), profile=profiled), told)


def climbed(*launches: Diagnosed, skipped: str | None = None) -> Ladder:
    step = Step(Level.PROFILE, skipped is None, 0.0, skipped or "profiled")
    return Ladder("train", launches=list(launches), steps=[step], notes=["a note of the ladder"])


@pytest.fixture
def diagnose(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Awaitable[Told]]:
    """Diagnoses by a ladder that was made up, or that stops."""

    async def diagnose(found: Ladder | Stopped, target: str = "h200") -> Told:
        async def climb(_: Any, asked: Asked, *__: Any) -> Ladder:
            assert (asked.case, asked.depth) == ("train", "auto")
            if isinstance(found, Stopped):
                raise found
            return found

        async def how_profiled(*_: Any, named_target: str, **__: Any) -> tuple[None, str]:
            assert named_target == target
            return None, "unused"

        monkeypatch.setattr(evaluation_diagnosis, "climb", climb)
        monkeypatch.setattr(evaluation_diagnosis, "how_profiled", how_profiled)
        services = SimpleNamespace(artifacts=ArtifactStore(tmp_path), settings=Settings())
        judged = Judged(TASK, SPEC, {}, own=False)
        return await evaluation_diagnosis.diagnosis(cast(Services, services), resolve_target(target), judged, CANDIDATE)

    return diagnose


Diagnose = Callable[..., Awaitable[Told]]


async def test_findings_rank_by_what_they_save_of_the_whole_call(diagnose: Diagnose) -> None:
    told = await diagnose(
        climbed(
            launch("short", 10.0, finding("V1", "short", 80.0), finding("V6", "short", None)),
            launch("long", 90.0, finding("M1", "long", 20.0)),
        )
    )
    diagnosed = told.diagnosed
    assert diagnosed is not None
    assert [(note.id, note.kernel, note.expected_pct) for note in diagnosed.findings] == [
        ("M1", "long", 20.0), ("V1", "short", 80.0), ("V6", "short", None),
    ]  # fmt: skip
    assert (diagnosed.findings[0].recipe, diagnosed.findings[0].at_most_pct) == ("recipe of M1", 90.0)
    assert [each.duration_us for each in diagnosed.profiles] == [10.0, 90.0]
    assert (diagnosed.case, diagnosed.unmeasured, diagnosed.done) == ("train", None, None)
    assert told.notes == ["a note of the ladder"]
    assert len(told.artifacts) == 1


@pytest.mark.parametrize(("second", "done"), [("at the floor too", "at the floor"), (None, None)])
async def test_nothing_is_left_to_win_where_that_is_so_of_every_launch(
    diagnose: Diagnose, second: str | None, done: str | None
) -> None:
    told = await diagnose(climbed(launch("k", 1.0, done="at the floor"), launch("l", 1.0, done=second)))
    assert told.diagnosed is not None
    assert told.diagnosed.done == done


async def test_without_counters_the_code_is_diagnosed_and_the_reason_told(diagnose: Diagnose) -> None:
    told = await diagnose(climbed(launch("k", None, finding("V1", "k", None)), skipped="the driver forbids it"))
    assert told.diagnosed is not None
    assert (told.diagnosed.profiles, told.diagnosed.unmeasured) == ([], "the driver forbids it")
    assert [note.id for note in told.diagnosed.findings] == ["V1"]


async def test_a_diagnosis_that_fails_is_a_note(diagnose: Diagnose) -> None:
    told = await diagnose(stopped(Kind.TIMEOUT, "the worker\ntook too long"))
    assert told == Told(None, ["not diagnosed: timeout: the worker took too long"], [])
    with pytest.raises(Stopped):
        await diagnose(stopped(Kind.CANCELLED))


async def test_other_gpus_than_the_catalogues_are_not_diagnosed(diagnose: Diagnose) -> None:
    told = await diagnose(climbed(), target="a100-sxm")
    assert told.diagnosed is None
    assert told.notes == ["not diagnosed: the catalogue of causes is not that of a100-sxm"]
