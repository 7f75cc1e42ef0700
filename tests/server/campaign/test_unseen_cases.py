"""Which shapes a winner is tried on that it was not optimized for."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from tests.faults.evaluations import TASK, replaced
from tests.profiling.made_up import spec
from tritonforge.sandbox.source import Source
from tritonforge.sandbox.task import Case, Task
from tritonforge.sandbox.workers import task_worker
from tritonforge.server.campaign.unseen_cases import SPARES, unseen_cases, with_fitting
from tritonforge.server.runs.record import HiddenCases
from tritonforge.server.services import Services
from tritonforge.server.settings import Settings


def case(small: bool = False, /, **parameters: Any) -> Case:
    return Case(parameters=parameters, weight=2.0, small=small)


def task_of(hidden: dict[str, Case] | None = None, **cases: Case) -> Task:
    return spec().model_copy(update={"cases": cases, "hidden_cases": hidden or {}})


def chosen(given: Task, further: dict[str, Case] | None = None, **more: Any) -> dict[str, dict[str, Any]]:
    fields: dict[str, Any] = {"limit": 4, "seed": "a", "on_gpu": True, **more}
    found = unseen_cases(given, further or {}, **fields)
    assert not found.own
    return found.cases


TWO = task_of(
    one=case(rows=512, cols=8192, seed=1234),
    two=case(rows=16384, cols=4096, seed=99),
    tiny=case(True, rows=32, cols=32),
)


@pytest.mark.parametrize("seed", ["a", "b", "c"])
def test_neighbours_are_doubled_halved_and_ragged_one_size_at_a_time(seed: str) -> None:
    found = list(chosen(TWO, seed=seed).values())[:4]
    factors: list[float] = []
    for parameters in found:
        assert parameters["seed"] in (1234, 99), "a seed is no size"
        base = next(
            each for each in (TWO.cases["one"], TWO.cases["two"]) if each.parameters["seed"] == parameters["seed"]
        )
        changed = {name for name in ("rows", "cols") if parameters[name] != base.parameters[name]}
        (name,) = changed
        factors.append(parameters[name] / float(str(base.parameters[name])))
        assert parameters[name] % 16 == 0 or factors[-1] < 1
    assert {0.5, 2.0} <= set(factors)
    assert [each for each in found if each["rows"] % 2 or each["cols"] % 2]


def test_half_of_a_multiple_of_16_is_one() -> None:
    found = chosen(task_of(only=case(n=48)), limit=8)
    assert 16 in [each["n"] for each in found.values()]
    assert 24 not in [each["n"] for each in found.values()]


def test_tasks_whose_cases_double_have_even_neighbours_too() -> None:
    found = chosen(task_of(one=case(n=1024), two=case(n=2048), three=case(n=4096)))
    assert {8192, 512, 768} <= {each["n"] for each in found.values()}


def test_what_the_winner_was_checked_on_is_seen_whatever_its_seed() -> None:
    first = list(chosen(TWO).values())
    reseeded: dict[str, Any] = {**first[0], "seed": 7}
    hidden = {"given": case(**reseeded)}
    again = list(
        chosen(TWO.model_copy(update={"hidden_cases": hidden}), checked=[{**first[1], "small": True}]).values()
    )
    assert first[2:4] == again[:2]
    assert first[0] not in again
    assert first[1] not in again


def test_further_sizes_come_first_spread_over_their_range() -> None:
    sizes = {f"size-{number}": case(number < 3, call=f"speed {number}") for number in range(10)}
    found = chosen(TWO, sizes)
    assert list(found)[:4] == ["size-0", "size-3", "size-6", "size-9"]
    assert len(found) == SPARES * 4
    assert list(chosen(TWO, sizes, on_gpu=False)) == ["size-0", "size-1", "size-2"]


def test_own_hidden_cases_are_for_tasks_without_sizes() -> None:
    hidden = {"ragged": case(mode="odd")}
    found = unseen_cases(task_of(hidden, one=case(mode="even")), {}, limit=4, seed="a", on_gpu=True)
    assert found == ({"ragged": {"mode": "odd"}}, True)
    assert unseen_cases(task_of(one=case(mode="even")), {}, limit=4, seed="a", on_gpu=True).cases == {}


WITH_CONTENTS = "torch.tensor([float(torch.ones(1, device=device).sum())] * min(n, 8))"
"""Can't be made without."""


@pytest.fixture(scope="module")
async def services(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Services]:
    async with Services(Settings(state_dir=tmp_path_factory.mktemp("unseen") / "state")) as services:
        yield services


@pytest.mark.anyio
@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize(
    ("made", "n", "kept"),
    [
        ("torch.randn(n, device=device)", 1 << 20, ["most"]),
        ("torch.randn(n, device=device)", 1 << 31, ["most", "over"]),
        ("torch.randn(n, device=device, generator=torch.Generator(device=device))", 1 << 20, ["most"]),
        (WITH_CONTENTS, 1 << 20, []),
        (WITH_CONTENTS, 1 << 31, ["most", "over"]),
        ("torch.randn(n // (n < 1 << 31), device=device)", 1 << 20, ["most"]),
    ],
)
async def test_inputs_may_be_as_large_as_4_gib_or_as_those_of_the_task(
    services: Services, made: str, n: int, kept: list[str]
) -> None:
    task = replaced(TASK, '{"n": 1000, "small": True}', f'{{"n": {n}, "seed": {1 << 40}}}')
    task = replaced(replaced(task, "torch.randn(n, device=device)", made), "(n, device)", "(n, device, seed)")
    sizes = {"most": 1 << 30, "over": 1 << 31, "far": 1 << 32}
    cases: HiddenCases = {name: {"n": size, "seed": 1 << 40} for name, size in sizes.items()}
    async with task_worker(services.executor, on_gpu=False) as tasks:
        found = await tasks.load(with_fitting(Source(task, "task.py", None), cases))
    assert list(found.hidden_cases) == kept
