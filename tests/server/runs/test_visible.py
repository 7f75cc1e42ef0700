"""Files without their hidden cases: nothing of those is left, or the file is refused."""

import textwrap

import pytest

from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.outcome import Kind
from tritonforge.sandbox.source import Source
from tritonforge.server.runs.visible import require_separable, visible, visible_kernel

SECRET = "97531"


def text(body: str) -> str:
    return textwrap.dedent(body).lstrip()


SEPARABLE = {
    "an assignment with its comments": """
        CASES = {"a": {"n": 3}}

        # The secret is 97531,
        # which nobody may know.
        HIDDEN_CASES: dict = {
            "secret": {"n": 97531},  # 97531
        }
        HIDDEN_CASES["more"] = {"n": 97531}
        HIDDEN_CASES.update({"more": {"n": 97531}})
        """,
    "names, and what only they use": """
        N = 97531  # the size
        PARAMETERS: dict = {"n": N}
        S = {"secret": PARAMETERS}
        S["other"] = {"n": 97531}
        HIDDEN_CASES = {**S}
        """,
    "a function": """
        @cache
        def secrets():
            return {"secret": {"n": 97531}}
        HIDDEN_CASES = secrets()
        """,
    "an import": """
        from elsewhere import case_97531 as HIDDEN_CASES
        """,
    "comprehensions with the same variable as visible ones": """
        CASES = {f"c{n}": {"n": n} for n in (3, 4)}
        HIDDEN_CASES = {f"h{n}": {"n": n} for n in (97531,)}
        """,
    "a name that is another thing in a function": """
        N = 97531
        HIDDEN_CASES = {"secret": {"n": N}}
        def make_inputs(n, device):
            N = n
            return N
        """,
    "what visible cases have in common with them": """
        import math
        SIZE = 1 << 10
        BASE = {"dtype": "float16"}
        CASES = {"a": {**BASE, "n": math.ceil(SIZE)}}
        HIDDEN_CASES = {"secret": {**CASES["a"], **BASE, "n": math.ceil(SIZE + 97531)}}
        """,
}


@pytest.mark.parametrize("body", SEPARABLE.values(), ids=SEPARABLE)
def test_nothing_of_hidden_cases_is_left(body: str) -> None:
    task = text('"""A title."""\nENTRY = "f"\n') + text(body) + "DONE = 1\n"
    told = visible(task)
    assert SECRET not in told
    assert "secret" not in told
    compile(told, "task", "exec")
    for kept in (
        '"""A title."""',
        'ENTRY = "f"',
        "DONE = 1",
        *(line for line in task.splitlines() if 'CASES = {f"c' in line),
    ):
        assert kept in told
    assert visible(task.replace("\n", "\r\n")) == told
    assert visible(told) == told


def test_what_is_read_of_a_task_stays() -> None:
    told = visible('CASES = {"a": {"n": 3}}\nA = CASES\nHIDDEN_CASES = {"secret": {**A["a"], "n": 97531}}\n')
    assert told.startswith('CASES = {"a": {"n": 3}}\n')
    assert "A = CASES" not in told


REFUSED = {
    "shared": ("ALL = {'a': {}, 's': {'n': 97531}}\nCASES = {'a': ALL['a']}\nHIDDEN_CASES = {'s': ALL['s']}\n", "ALL"),
    "shared dict": (
        "B = {'a': 3, 's': 97531}\nCASES = {'a': {'n': B['a']}}\nHIDDEN_CASES = {'s': {'n': B['s']}}\n",
        "B",
    ),
    "shared function": ("def f(x):\n    return {97531: x}\nCASES = f(0)\nHIDDEN_CASES = f(1)\n", "made of f"),
    "loop": ("S = {}\nfor n in (97531,):\n    S[n] = {}\nHIDDEN_CASES = S\n", "made of S"),
    "match": ("match {'s': 97531}:\n    case S:\n        pass\nHIDDEN_CASES = S\n", "made of S"),
    "globals": ("globals()['HIDDEN_CASES'] = {'s': {'n': 97531}}\n", "names HIDDEN_CASES"),
    "global": ("def f():\n    global HIDDEN_CASES\n    HIDDEN_CASES = {'s': {'n': 97531}}\nf()\n", "line 1 of task.py"),
    "exec": ("exec('HIDDEN_CASES = {1: 97531}')\n", "names HIDDEN_CASES"),
    "two targets": ("A = HIDDEN_CASES = {'s': {'n': 97531}}\n", "no assignment of it"),
    "a tuple": ("CASES, HIDDEN_CASES = {}, {'s': {'n': 97531}}\n", "no assignment of it"),
    "a condition": ("if True:\n    HIDDEN_CASES = {'s': {'n': 97531}}\n", "no assignment of it"),
    "walrus": ("CASES = dict(a=(HIDDEN_CASES := {'s': {'n': 97531}}))\n", "no assignment of it"),
    "used": ("HIDDEN_CASES = {'s': {'n': 97531}}\nCASES = {**HIDDEN_CASES}\n", "line 2 of task.py"),
    "same line": ("X = 97531; HIDDEN_CASES = {'s': {'n': X}}\n", "same line"),
}


@pytest.mark.parametrize(("task", "why"), REFUSED.values(), ids=REFUSED)
def test_what_can_not_be_taken_out_for_sure_is_refused_with_what_is_allowed(task: str, why: str) -> None:
    with pytest.raises(Stopped) as caught:
        visible(task, "task.py")
    assert caught.value.kind is Kind.REJECTED
    problem = caught.value.problem
    assert why in problem.message
    assert "--hidden-cases FILE" in (problem.likely_fix or "")
    assert SECRET not in problem.model_dump_json()


@pytest.mark.parametrize(
    "task",
    ["x = 1\n", "# HIDDEN_CASES: none\nCASES = {}\n", "HIDDEN_CASES = {\n", '"""No HIDDEN_CASES."""\nx = globals()\n'],
)
def test_a_file_without_any_stays_as_it_is(task: str) -> None:
    assert visible(task) == task


def test_a_kernel_is_never_refused() -> None:
    assert visible_kernel("HIDDEN_CASES = {'s': 97531}\n") == visible("HIDDEN_CASES = {'s': 97531}\n")
    assert visible_kernel("if True:\n    HIDDEN_CASES = {}\n") == "if True:\n    HIDDEN_CASES = {}\n"


def test_a_task_that_has_some_and_shows_none_is_refused() -> None:
    task = Source("from elsewhere import *\n", "task.py", None)
    kernel = Source("def f(x):\n    return x\n", "kernel.py", None)
    with pytest.raises(Stopped, match=r"nothing in task\.py shows"):
        require_separable(task, kernel, own=True)
    require_separable(task, kernel, own=False)
