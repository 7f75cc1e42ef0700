"""Edits become diffs that apply, and none is made that breaks the file."""

import ast

import pytest

from tritonforge.profiling.diagnosis.edits import Edit, annotated, diff, launch_option, replaced, with_argument
from tritonforge.profiling.diagnosis.source.syntax import KernelFile, calls, language, parse
from tritonforge.profiling.diagnosis.tail_path import full_blocks_apart

from .applied import applied
from .made_up import written

TEXT = (
    "import triton\n\n@triton.jit\ndef kernel(x, n, B: tl.constexpr):\n    pass\n\n"
    "def f(x):\n    kernel[(1,)](x, 3, B=4, num_warps=2)\n"
)


def read(text: str) -> KernelFile:
    file = parse(text)
    assert file is not None
    return file


def test_an_option_is_replaced_where_it_is_said_once() -> None:
    file = read(TEXT)
    place = launch_option(file, "kernel", "num_warps", 2)
    assert place is not None
    found = diff(file, [replaced(place, "4")])
    assert found is not None
    assert applied(TEXT, found) == TEXT.replace("num_warps=2", "num_warps=4")


@pytest.mark.parametrize(
    "more", ["    kernel[(2,)](x, 3, B=4, num_warps=2)\n", "    kernel[(2,)](x, 3, B=4, num_warps=n)\n"]
)
def test_an_option_that_is_said_twice_is_left_alone(more: str) -> None:
    assert launch_option(read(TEXT + more), "kernel", "num_warps", 2) is None


def test_an_argument_becomes_a_constant_and_several_edits_go_together() -> None:
    file = read(TEXT)
    found = diff(file, annotated(file.kernels["kernel"], ["n", "x"]))
    assert found is not None
    assert "def kernel(x: tl.constexpr, n: tl.constexpr, B: tl.constexpr):" in applied(TEXT, found)
    assert annotated(file.kernels["kernel"], ["missing"]) == []


def test_an_edit_that_leaves_no_python_is_not_offered() -> None:
    file = read(TEXT)
    assert diff(file, [Edit(4, 0, 4, 3, "(")]) is None
    assert diff(file, [Edit(4, 0, 4, 5, "a"), Edit(4, 3, 4, 8, "b")]) is None
    assert diff(file, [Edit(99, 0, 99, 0, "a")]) is None


def test_edits_that_overlap_are_not_offered() -> None:
    assert diff(read("abcdef\n"), [Edit(1, 0, 1, 3, "x"), Edit(1, 2, 1, 6, "y")]) is None
    assert diff(read("abcdef\n"), [Edit(1, 0, 1, 3, "x"), Edit(1, 3, 1, 6, "y")]) is not None


@pytest.mark.parametrize(
    ("call", "edited"),
    [
        ("tl.atomic_add(p, x)", 'tl.atomic_add(p, x, sem="relaxed")'),
        ("tl.atomic_add(\n    p,\n    x,\n)", 'tl.atomic_add(\n    p,\n    x, sem="relaxed",\n)'),
        ("tl.atomic_add(é, x, mask=m)", 'tl.atomic_add(é, x, mask=m, sem="relaxed")'),
    ],
)
def test_an_argument_is_added_at_a_calls_end(call: str, edited: str) -> None:
    text = f"é = '⌘'; {call}\n"
    file = read(text)
    node = next(each for each in calls(ast.parse(text)) if language(each) == "atomic_add")
    edit = with_argument(file, node, 'sem="relaxed"')
    assert edit is not None
    found = diff(file, [edit])
    assert found is not None
    assert applied(text, found) == f"é = '⌘'; {edited}\n"


def tail(*body: str) -> str | None:
    text = "import triton\n@triton.jit\ndef kernel(x, y, n, B: tl.constexpr):\n" + "".join(
        f"    {line}\n" for line in body
    )
    facts = written(text, signature={"x": "*fp32", "y": "*fp32", "n": "i32"}, constexprs={"B": 1024})
    assert facts.file is not None
    assert facts.source is not None
    found = full_blocks_apart(facts.file, facts.source, facts.source.accesses[0])
    return None if found is None else applied(text, found)


AT = "i = tl.program_id(0) * B + tl.arange(0, B)"


def test_full_blocks_get_a_path_without_a_mask() -> None:
    text = tail(AT, "m = i < n", "v = tl.load(x + i, mask=m, other=0.0)", "tl.store(y + i, v * 2, mask=m)")
    assert text is not None
    assert "    if tl.program_id(0) * B + B <= n:\n        v = tl.load(x + i)\n        tl.store(y + i, v * 2)\n" in text
    assert "    else:\n        v = tl.load(x + i, mask=m, other=0.0)\n        tl.store(y + i, v * 2, mask=m)\n" in text


@pytest.mark.parametrize(
    "body",
    [
        (AT, "for _ in range(n):", "    tl.load(x + i, mask=i < n)"),
        (AT, "tl.load(x + i, mask=(i < n) & (i > 3))"),
        (AT, "tl.load(x + i, mask=i <= n)"),
        (AT, "tl.load(x + i, mask=i < n)", "tl.store(y + i, 0, mask=i < n + 1)"),
        (AT, "tl.load(x + i, mask=i < n)", "if n > 3:", "    tl.store(y, 0)"),
        (AT, "tl.load(x + i, mask=i * 2 < n)"),
        ("i = tl.arange(0, B) * 2", "tl.load(x + i, mask=i < n)"),
    ],
)
def test_what_is_not_that_simple_gets_no_such_path(body: tuple[str, ...]) -> None:
    assert tail(*body) is None
