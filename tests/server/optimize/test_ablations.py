"""What an agent is not given: neither by the run's evaluations, nor by its server, nor by its prompt."""

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.server.optimize.workshop import FAST, FASTEST, SLOW, Workshop
from tests.server.runs.fake_evaluator import FakeEvaluator
from tritonforge.profiling.hardware.catalog import resolve_target
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.outcome import Kind
from tritonforge.server.optimize.headless import ablated, opened, optimize_with
from tritonforge.server.optimize.model import Ablation
from tritonforge.server.runs.evaluation_diagnosis import diagnosis
from tritonforge.server.services import Services
from tritonforge.server.settings import Settings
from tritonforge.server.tools.diagnose_case import Asked, Depth
from tritonforge.server.tools.diagnose_kernel import how_profiled

pytestmark = pytest.mark.anyio
NO_PROFILE, NO_DIAGNOSIS, ONE_SHOT = Ablation.NO_PROFILE, Ablation.NO_DIAGNOSIS, Ablation.ONE_SHOT


def keeping(workshop: Workshop, *kernels: tuple[str, str]) -> str:
    """A program that keeps its requests."""
    return workshop.program(
        "Path(f'request-{request[\"round\"]}.json').write_text(json.dumps(request))\n"
        f"text, why = {kernels!r}[request['round'] - 1]\nprint(json.dumps({{'kernel': text, 'strategy': why}}))"
    )


def request(workshop: Workshop, number: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((workshop.folder / f"request-{number}.json").read_text())
    return found


async def test_one_shot_is_one_round_and_the_program_is_told(workshop: Workshop) -> None:
    result = await workshop.optimize(keeping(workshop, SLOW, FASTEST), rounds=5, ablations=frozenset({ONE_SHOT}))
    assert (result.gained, result.attempts, result.ended_by) == (False, 1, "budget")
    only = request(workshop, 1)
    assert (only["rounds"], only["remaining"]["attempts"]) == (1, 1)
    assert "You have one candidate" in only["instructions"]
    assert not (workshop.folder / "request-2.json").exists()


async def test_without_diagnosis_a_request_carries_no_hints(workshop: Workshop) -> None:
    await workshop.optimize(keeping(workshop, SLOW, FAST), rounds=2)
    assert all(request(workshop, number)["hints"] for number in (1, 2))
    assert "You have one candidate" not in request(workshop, 1)["instructions"]
    agent = keeping(workshop, SLOW, FAST)
    await workshop.optimize(agent, rounds=2, ablations=frozenset({NO_DIAGNOSIS}), force=True)
    assert [request(workshop, number)["hints"] for number in (1, 2)] == [[], []]
    assert request(workshop, 2)["last"]["hints"] == []


async def test_a_cli_is_told_what_is_switched_off_and_that_it_has_one_candidate(workshop: Workshop) -> None:
    workshop.stub_clis()
    await workshop.optimize("claude", ablations=frozenset(Ablation))
    await workshop.optimize("claude")
    ablated_one, whole = (start["prompt"] for start in workshop.starts)
    assert "Switched off: diagnose_kernel, profile_ncu." in ablated_one
    assert "You have one candidate" in ablated_one
    assert "1 of 1 attempts left" in ablated_one
    assert "Switched off" not in whole
    assert "You have one candidate" not in whole


def test_the_settings_of_all_servers_name_what_is_switched_off() -> None:
    settings = Settings(without=("tune_kernel",))
    assert ablated(settings, frozenset(Ablation)).without == ("tune_kernel", "diagnose_kernel", "profile_ncu")
    assert ablated(settings, frozenset({ONE_SHOT})) == settings


async def test_services_that_were_opened_without_the_ablations_are_refused(workshop: Workshop) -> None:
    async with opened(workshop.settings, evaluator=lambda _: FakeEvaluator()) as (services, machine):
        plan = workshop.plan("none", ablations=frozenset({NO_PROFILE}))
        with pytest.raises(ValueError, match="opened without no-profile"):
            await optimize_with(plan, services, machine, say=workshop.said.append)
        assert machine.store.runs() == []


def services_without(*tools: str) -> Services:
    """All that is looked at before anything is switched off."""
    return cast(Services, SimpleNamespace(settings=Settings(without=tools)))


async def test_an_evaluation_without_diagnosis_finds_nothing_and_says_why() -> None:
    told = await diagnosis(services_without("diagnose_kernel"), cast(Any, None), cast(Any, None), cast(Any, None))
    assert (told.diagnosed, told.artifacts) == (None, [])
    assert told.notes == ["not diagnosed: diagnose_kernel is switched off"]


def asked(depth: Depth) -> Asked:
    return Asked(resolve_target("h200"), None, None, "train", depth)


async def test_a_diagnosis_without_the_profiler_takes_no_counters() -> None:
    services = services_without("profile_ncu")
    measure, why = await how_profiled(services, asked("auto"), cast(Any, None), named_target=None)
    assert (measure, why) == (None, "profile_ncu is switched off")
    with pytest.raises(Stopped, match="profile_ncu is switched off") as caught:
        await how_profiled(services, asked("profile"), cast(Any, None), named_target=None)
    assert caught.value.kind is Kind.UNAVAILABLE
