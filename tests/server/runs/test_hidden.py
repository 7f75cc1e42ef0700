"""Hidden cases: read from a file that is never run, derived from visible ones, and put in their place."""

from typing import Any

import pytest

from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.outcome import Kind
from tritonforge.sandbox.source import Source
from tritonforge.sandbox.task import Case
from tritonforge.server.runs.hidden import (
    DERIVED_LIMIT,
    DERIVED_LIMIT_WITHOUT_GPU,
    beside,
    derived,
    judged,
    read,
)


def file(text: str) -> Source:
    return Source(text, "hidden.py", None)


def case(*, small: bool = False, **parameters: Any) -> Case:
    return Case(parameters=parameters, weight=2.0, small=small)


# Files


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("HIDDEN_CASES = {'a': {'n': 781}}", {"a": {"n": 781}}),
        ('"""Kept apart."""\n# Not for agents.\nHIDDEN_CASES: dict = {"a": {}}\n', {"a": {}}),
        ("HIDDEN_CASES = {'a': {'n': (1 << 24) + 2 * 3, 'k': 2**10 - 1, 'm': 7 // 2}}", {
            "a": {"n": (1 << 24) + 6, "k": 1023, "m": 3},
        }),
        ("HIDDEN_CASES = {'a': {'shape': (3, [4, 5]), 'x': -1.5, 'flag': True, 'none': None}}", {
            "a": {"shape": [3, [4, 5]], "x": -1.5, "flag": True, "none": None},
        }),
    ],
)  # fmt: skip
def test_a_file_is_read_as_plain_values(text: str, expected: dict[str, Any]) -> None:
    assert read(file(text)) == expected


SECRET = 48_611


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "does not define HIDDEN_CASES"),
        (f"CASES = {{'a': {{'n': {SECRET}}}}}", "line 1 is not the one assignment"),
        (f"import os\nHIDDEN_CASES = {{'a': {{'n': {SECRET}}}}}", "line 1 is not the one assignment"),
        (f"HIDDEN_CASES = {{'a': {{'n': {SECRET}}}}}\nHIDDEN_CASES['a']['n'] = 3", "line 2 is not the one assignment"),
        (f"HIDDEN_CASES = {{'a': {{'n': {SECRET}}}}}\nHIDDEN_CASES = {{}}", "line 2 is not the one assignment"),
        (f"HIDDEN_CASES = {{'a': {{'n': {SECRET}", "no Python source (line 1)"),
        (f"HIDDEN_CASES = {{'a': {{'n': open('/{SECRET}')}}}}", "no dict of dicts of plain values"),
        (f"HIDDEN_CASES = {{'a': {{'n': {{{SECRET}}}}}}}", "no dict of dicts of plain values"),
        (f"HIDDEN_CASES = {{'a': {{'n': b'{SECRET}'}}}}", "no dict of dicts of plain values"),
        (f"HIDDEN_CASES = {{'a': {SECRET}}}", "no dict of dicts of plain values"),
        (f"HIDDEN_CASES = {{{SECRET}: {{'n': 3}}}}", "no dict of dicts of plain values"),
        (f"HIDDEN_CASES = {{'a': {{'n': {SECRET} ** {SECRET} ** {SECRET}}}}}", "no dict of dicts of plain values"),
        (f"HIDDEN_CASES = {{'a': {{'n': {SECRET} // 0}}}}", "no dict of dicts of plain values"),
        ("HIDDEN_CASES = {}", "has 0 cases; 1 to 64 are allowed"),
        (f"HIDDEN_CASES = {'[' * 300}{SECRET}{']' * 300}", "no "),
    ],
)
def test_a_file_that_is_no_literal_is_rejected_without_telling_its_values(text: str, words: str) -> None:
    with pytest.raises(Stopped) as caught:
        read(file(text))
    assert caught.value.kind is Kind.REJECTED
    problem = caught.value.problem
    assert words in problem.message
    assert problem.file == "hidden.py"
    assert "HIDDEN_CASES = " in (problem.likely_fix or "")
    assert str(SECRET) not in problem.model_dump_json()


# Neighbours


TWO = {"one": case(rows=64, cols=8192, dtype="float16"), "two": case(rows=16384, cols=4096, dtype="float16")}


def changed(found: dict[str, Any], cases: dict[str, Case]) -> list[dict[str, tuple[Any, Any]]]:
    """By derived case what differs from the visible one that is nearest: its value there, and here."""
    told: list[dict[str, tuple[Any, Any]]] = []
    for parameters in found.values():
        differences = [
            {name: (value, parameters[name]) for name, value in each.parameters.items() if parameters[name] != value}
            for each in cases.values()
        ]
        told.append(min(differences, key=len))
    return told


@pytest.mark.parametrize("seed", ["a", "b", "c", "d"])
def test_neighbours_change_each_size_of_each_case_by_some(seed: str) -> None:
    found = derived(TWO, seed, on_gpu=True)
    assert len(found) == DERIVED_LIMIT
    assert all(parameters["dtype"] == "float16" for parameters in found.values())
    differences = changed(found, TWO)
    assert {name for each in differences for name in each} == {"rows", "cols"}
    assert all(len(each) == 1 for each in differences)
    factors = [new / old for each in differences for old, new in each.values()]
    assert all(0.75 <= factor < 1 or 1 < factor <= 1.75 for factor in factors)
    ragged = [new for each in differences for old, new in each.values() if new < old]
    assert len(ragged) == 2
    assert all(new % 2 for new in ragged)
    assert all(new % 16 == 0 for each in differences for old, new in each.values() if new > old)


def test_sizes_are_turned_where_a_task_has_one_case() -> None:
    found = derived({"one": TWO["one"]}, "a", on_gpu=True)
    assert any((each["rows"], each["cols"]) == (8192, 64) for each in found.values())


def test_the_seed_decides() -> None:
    again = derived(TWO, "a", on_gpu=True)
    assert derived(TWO, "a", on_gpu=True) == again
    assert len({str(derived(TWO, str(seed), on_gpu=True)) for seed in range(20)}) > 10


@pytest.mark.parametrize("parameters", [{}, {"heads": 8}, {"flag": True, "scale": 100.0, "dtype": "float32"}])
def test_a_case_without_sizes_has_no_neighbours(parameters: dict[str, Any]) -> None:
    assert derived({"one": case(**parameters)}, "a", on_gpu=True) == {}


def test_visible_cases_and_names_are_not_repeated() -> None:
    cases = {"derived-1": case(n=32, m=64), "turned": case(n=64, m=32)}
    found = derived(cases, "a", on_gpu=True)
    assert not found.keys() & cases.keys()
    assert not [each for each in found.values() if each in [one.parameters for one in cases.values()]]
    assert len({str(each) for each in found.values()}) == len(found)


def test_small_cases_have_no_part_on_a_gpu_and_alone_have_one_without() -> None:
    cases = {"large": case(n=1 << 20), "small": case(n=4096, small=True)}
    assert all(int(str(each["n"])) > 1 << 19 for each in derived(cases, "a", on_gpu=True).values())
    without = derived(cases, "a", on_gpu=False)
    assert len(without) == DERIVED_LIMIT_WITHOUT_GPU
    assert all(each["small"] is True and int(str(each["n"])) < 2048 for each in without.values())


# In a task


TASK = Source("X = 3\nCASES = {'a': {'n': X}}\nHIDDEN_CASES = {'h': {'shape': (1, X)}, 'i': {}}\n", "task.py", "/tasks")


def run(source: Source) -> dict[str, Any]:
    namespace: dict[str, Any] = {}
    exec(source.text, namespace)
    return namespace


def test_given_cases_take_the_place_of_the_visible_ones() -> None:
    source = judged(TASK, {"b": {"n": 7, "flag": True}}, own=False)
    assert (source.shown_as, source.origin) == ("task.py", "/tasks")
    found = run(source)
    assert (found["CASES"], found["HIDDEN_CASES"], found["X"]) == ({"b": {"n": 7, "flag": True}}, {}, 3)


def test_a_tasks_own_cases_keep_values_that_json_does_not_have() -> None:
    found = run(judged(TASK, {"h": {"shape": [1, 3]}}, own=True))
    assert (found["CASES"], found["HIDDEN_CASES"]) == ({"h": {"shape": (1, 3)}}, {})


def test_hidden_cases_can_stand_beside_the_visible_ones() -> None:
    assert beside(TASK, {"h": {}}, own=True) is TASK
    found = run(beside(TASK, {"b": {"n": 7}}, own=False))
    assert (found["CASES"], found["HIDDEN_CASES"]) == ({"a": {"n": 3}}, {"b": {"n": 7}})
