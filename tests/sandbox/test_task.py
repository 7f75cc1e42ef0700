"""A task as the trusted worker describes it, and the choice of its cases."""

from typing import Any

import pytest
from pydantic import ValidationError

from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.outcome import Kind, Problem
from tritonforge.sandbox.task import Task, parse_task

CASE: dict[str, Any] = {"parameters": {"rows": 4}, "weight": 1.0, "small": False}
DESCRIPTION: dict[str, Any] = {
    "entry": "softmax",
    "title": "Row-wise softmax.",
    "cases": {"decode": CASE, "train": CASE, "ragged": CASE},
    "hidden_cases": {"secret": CASE},
    "has_reference": True,
    "has_work": False,
    "in_place": [],
    "tolerances": {"float16": {"rtol": 1e-3, "atol": 1e-5}},
}


@pytest.fixture
def task() -> Task:
    return parse_task(DESCRIPTION)


def refusal(task: Task, names: list[str]) -> Problem:
    with pytest.raises(Stopped) as caught:
        task.select(names)
    assert caught.value.kind is Kind.REJECTED
    return caught.value.problem


def test_all_visible_cases_are_chosen_by_default(task: Task) -> None:
    assert task.select(None) == ["decode", "train", "ragged"]


def test_named_cases_come_once_each_and_in_the_tasks_order(task: Task) -> None:
    assert task.select(["ragged", "decode", "ragged"]) == ["decode", "ragged"]


def test_an_empty_list_is_rejected_with_the_choice(task: Task) -> None:
    problem = refusal(task, [])
    assert problem.message == "cases is an empty list"
    assert problem.likely_fix == "Leave it out, or choose from decode, train, ragged."


def test_an_unknown_case_is_rejected_with_the_nearest_and_the_choice(task: Task) -> None:
    problem = refusal(task, ["decode", "trian"])
    assert problem.message == "the task has no case 'trian'"
    assert problem.likely_fix == "Did you mean 'train'? Its cases are: decode, train, ragged."


def test_an_unknown_case_with_no_near_name_is_rejected_with_the_choice(task: Task) -> None:
    assert refusal(task, ["zzz"]).likely_fix == "Its cases are: decode, train, ragged."


def test_a_hidden_case_can_be_neither_chosen_nor_found_out(task: Task) -> None:
    problem = refusal(task, ["secret"])
    assert problem.message == "the task has no case 'secret'"
    assert "secret" not in (problem.likely_fix or "")
    assert "secret" not in (refusal(task, ["secrot"]).likely_fix or "")


@pytest.mark.parametrize(
    "changed",
    [
        {"entry": None},
        {"cases": {"a": {**CASE, "weight": 0}}},
        {"cases": {"a": {**CASE, "weight": -1.0}}},
        {"cases": {"a": {**CASE, "extra": 1}}},
        {"cases": [CASE]},
        {"tolerances": {"float16": {"rtol": -1e-3, "atol": 0}}},
        {"in_place": "out"},
        {"special_values": ["nan", "none"]},
        {"views": ["transposed"]},
        {"error_factor": 0.5},
        {"grad": None},
        {"own_tolerances": "float16"},
        {"unknown": 1},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_a_malformed_description_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        parse_task({**DESCRIPTION, **changed})


def test_what_a_task_asks_for_beyond_its_outputs_is_read() -> None:
    asked = {
        "has_reduction": True, "own_tolerances": ["float16"], "error_factor": 8.0, "special_values": ["nan", "inf"],
        "views": ["offset", "strided", "broadcast"], "strides": True, "nondeterministic": True, "grad": True,
    }  # fmt: skip
    read = parse_task({**DESCRIPTION, **asked}).model_dump()
    assert {name: read[name] for name in asked} == asked


def test_a_task_asks_for_nothing_more_by_default(task: Task) -> None:
    read = task.model_dump()
    switches = ("has_reduction", "strides", "nondeterministic", "grad")
    assert not any(read[name] for name in (*switches, "own_tolerances", "special_values", "views"))
    assert task.error_factor is None


@pytest.mark.parametrize("fields", [None, [], "task", 1])
def test_what_is_no_description_is_refused(fields: Any) -> None:
    with pytest.raises(ValidationError):
        parse_task(fields)
