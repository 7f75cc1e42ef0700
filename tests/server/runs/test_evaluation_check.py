"""What may be told of hidden cases, by how kernels end on them."""

from types import SimpleNamespace
from typing import Any

import pytest

from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.outcome import Kind, Problem
from tritonforge.server.runs import evaluation_check
from tritonforge.server.runs.evaluation_check import hidden_problem, passed
from tritonforge.server.runs.evaluation_compile import Judged


@pytest.mark.parametrize(
    ("failed", "on_gpu", "told"),
    [
        ([Kind.UNSUPPORTED], False, "at least 1 of 4 hidden cases can't be checked without a GPU"),
        ([Kind.UNSUPPORTED], True, "at least one of 4 hidden cases ended in unsupported"),
        ([Kind.UNSUPPORTED, Kind.WRONG], False, "and 1 of 4 hidden cases are wrong"),
        ([Kind.WRONG], False, "1 of 4 hidden cases are wrong; the visible ones are right"),
    ],
)
def test_what_can_not_be_checked_is_not_told_as_wrong(failed: list[Kind], on_gpu: bool, told: str) -> None:
    assert told in hidden_problem(failed, 4, on_gpu=on_gpu).message


@pytest.mark.anyio
@pytest.mark.parametrize("on_gpu", [False, True])
async def test_given_cases_that_the_interpreter_can_not_run_are_told_as_such(
    monkeypatch: pytest.MonkeyPatch, on_gpu: bool
) -> None:
    async def kinds(*given: Any, **more: Any) -> list[Kind]:
        return [Kind.UNSUPPORTED, Kind.OK]

    async def has_gpu() -> bool:
        return on_gpu

    monkeypatch.setattr(evaluation_check, "hidden_kinds", kinds)
    services: Any = SimpleNamespace(has_gpu=has_gpu)
    judged: Any = SimpleNamespace(hidden={"a": {}, "b": {}})
    given: Any = {source: SimpleNamespace(hidden_from=source) for source in ("file", "derived")}
    nothing: Any = None
    with pytest.raises(Stopped) as caught:
        await passed(services, given["file"], judged, nothing, nothing)
    why = "the baseline fails on 1 of 2" if on_gpu else "1 of 2 hidden cases can't be checked without a GPU"
    assert why in caught.value.problem.message
    kept, dropped = await passed(services, given["derived"], judged, nothing, nothing)
    assert list(kept) == ["b"]
    assert ("without a GPU" in dropped["a"]) is not on_gpu


class Checks:
    """A made-up check of hidden cases: those that are given end otherwise than right."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, failing: dict[str, Kind]) -> None:
        self.failing = failing
        self.groups: list[list[str]] = []
        monkeypatch.setattr(evaluation_check, "check", self.check)
        monkeypatch.setattr(evaluation_check, "task_of", lambda task, cases, own: list(cases))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]

    async def check(self, services: Any, judged: Any, *more: Any) -> Any:
        self.groups.append(judged.task)
        cases: list[Any] = []
        for name in judged.task:
            kind = self.failing.get(name, Kind.OK)
            if kind is not Kind.OK and kind is not Kind.WRONG:
                raise Stopped(kind, Problem(stage="run", message="it broke"))
            cases.append(SimpleNamespace(kind=kind))
        return SimpleNamespace(cases=cases, cases_omitted=0)

    async def passed(self, *names: str) -> tuple[list[str], dict[str, str]]:
        async def has_gpu() -> bool:
            return True

        services: Any = SimpleNamespace(has_gpu=has_gpu)
        frozen: Any = SimpleNamespace(hidden_from="derived")
        nothing: Any = None
        judged = Judged(nothing, nothing, {name: {} for name in names}, own=False)
        kept, why = await passed(services, frozen, judged, nothing, nothing)
        return list(kept), why


@pytest.mark.anyio
async def test_hidden_cases_that_are_all_right_are_checked_together(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = Checks(monkeypatch, {})
    assert await checks.passed("a", "b", "c") == (["a", "b", "c"], {})
    assert checks.groups == [["a", "b", "c"]]


@pytest.mark.anyio
@pytest.mark.parametrize("kind", [Kind.WRONG, Kind.RUNTIME_ERROR])
async def test_where_one_fails_each_is_checked_alone(monkeypatch: pytest.MonkeyPatch, kind: Kind) -> None:
    checks = Checks(monkeypatch, {"b": kind})
    kept, why = await checks.passed("a", "b", "c")
    assert (kept, why) == (["a", "c"], {"b": f"the baseline itself ends in {kind} there"})
    assert checks.groups == [["a", "b", "c"], ["a"], ["b"], ["c"]]
