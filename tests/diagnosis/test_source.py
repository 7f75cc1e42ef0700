"""What the syntax tree gives away: live code, addresses and masks by the launch's own arguments."""

import ast
from typing import Any

import pytest

from tritonforge.profiling.diagnosis.source import syntax
from tritonforge.profiling.diagnosis.source.alignment import obstacles
from tritonforge.profiling.diagnosis.source.kernel import Access, LiveKernel, live

from .made_up import captured

HEAD = "import triton\nimport triton.language as tl\n\nWIDTH = tl.constexpr(64)\n\n@triton.jit\n"
ARGUMENTS = "def kernel(x, y, n, s, B: tl.constexpr, HOW: tl.constexpr):\n"
SIGNATURE = {"x": "*fp16", "y": "*fp32", "n": "i32", "s": "i32", "B": "constexpr", "HOW": "constexpr"}
ALL = ["x", "y", "n", "s"]


def kernel(*body: str, divisible: list[str] = ALL, **constexprs: Any) -> LiveKernel:
    text = HEAD + ARGUMENTS + "".join(f"    {line}\n" for line in body)
    file = syntax.parse(text)
    assert file is not None
    launch = captured(constexprs={"B": 1024, "HOW": "a", **constexprs}, signature=SIGNATURE, divisible_by_16=divisible)
    found = live(file, "kernel", launch)
    assert found is not None
    return found


def only(*body: str, divisible: list[str] = ALL, **constexprs: Any) -> Access:
    (access,) = kernel(*body, divisible=divisible, **constexprs).accesses
    return access


def why(*body: str, divisible: list[str] = ALL, element_bytes: int = 2, **constexprs: Any) -> list[tuple[str, ...]]:
    """Reasons of the only access, with their arguments."""
    found = obstacles(only(*body, divisible=divisible, **constexprs), element_bytes)
    return [(each.reason, *each.arguments) for each in found]


LANES = "i = tl.program_id(0) * B + tl.arange(0, B)"


def test_an_aligned_access_has_no_obstacle() -> None:
    assert why(LANES, "tl.load(x + i)") == []
    assert why(LANES, "tl.load(x + i, mask=i < n)") == []
    assert why("tl.load(x + tl.program_id(0) * s + tl.arange(0, B))") == []
    assert why("tl.load(x + tl.program_id(0) * WIDTH + tl.arange(0, B))", divisible=["x"]) == []


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("tl.load(x + tl.program_id(0) * s + tl.arange(0, B))", ("offset", "s")),
        ("tl.load(x + i * s)", ("stride", "s")),
        ("tl.load(x + i, mask=i < n)", ("limit", "n")),
        ("tl.load(x + i, (i < n) & (i >= 0))", ("limit", "n")),
        ("tl.load(x + i * 2)", ("pairs",)),
        ("tl.load(x + i + 1)", ("constant",)),
        ("tl.load(x + i // n * 16 + i % n)", ("division", "n")),
    ],
)
def test_an_argument_that_is_not_divisible_is_named(line: str, reason: tuple[str, ...]) -> None:
    assert reason in why(LANES, line, divisible=["x"])


def test_a_pointer_that_is_not_aligned_is_named() -> None:
    assert why(LANES, "tl.load(x + i)", divisible=[]) == [("pointer", "x")]


def test_a_value_that_is_rounded_in_the_kernel_is_aligned() -> None:
    body = ("s = (s // 8) * 8", "tl.load(x + tl.program_id(0) * s + tl.arange(0, B))")
    assert why(*body, divisible=["x"]) == []


def test_factors_multiply() -> None:
    assert why("tl.load(x + tl.program_id(0) * n * 2 * 4 + tl.arange(0, B))", divisible=["x"]) == []
    assert why("tl.load(x + tl.program_id(0) * n * 4 + tl.arange(0, B))", divisible=["x"]) == [("offset", "n")]


def test_a_hint_counts_for_an_expression_and_not_for_an_argument() -> None:
    load = "tl.load(x + o + tl.arange(0, B))"
    assert why("o = tl.multiple_of(tl.program_id(0) * s, 8)", load, divisible=["x"]) == []
    assert why("o = tl.program_id(0) * tl.multiple_of(s, 8)", load, divisible=["x"]) == [("offset", "s")]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (("o = tl.load(y)", "tl.load(x + o + tl.arange(0, B))"), [("start", "o")]),
        (("tl.load(x + tl.program_id(0) + tl.arange(0, B))",), [("start", "program_id()")]),
        (("o = f(n)", "tl.load(x + o + tl.arange(0, B))"), [("start", "a function()")]),
        (("m = tl.load(y)", "tl.load(x + i, mask=i < m)"), [("bound", "i < m")]),
        (("tl.load(x + i, mask=i < 1001)",), [("bound", "i < 1001")]),
        (("m = tl.load(y + i)", "tl.load(x + i, mask=m > 0)"), [("mask", "m > 0")]),
        (("m = f(i)", "tl.load(x + i, mask=m)"), [("mask", "m")]),
        (("tl.load(x + i, mask=f(i))",), [("mask", "its mask")]),
        (("tl.load(x + i, mask=i < 1000)",), []),
        (("o = tl.load(y)", "tl.load(x + o * 8 + tl.arange(0, B), mask=tl.load(y) > 0)"), []),
        (("o = tl.multiple_of(tl.load(y), 8)", "tl.load(x + o + tl.arange(0, B))"), []),
    ],
)  # fmt: skip
def test_what_no_argument_is_to_blame_for_is_named(body: tuple[str, ...], expected: list[tuple[str, str]]) -> None:
    access = next(each for each in kernel(LANES, *body).accesses if each.pointer == "x")
    assert [(each.reason, each.text) for each in obstacles(access, 2)] == expected


def test_only_the_fast_axis_counts() -> None:
    rows = ("m = tl.arange(0, 16)", "k = tl.arange(0, 64)")
    tile = "x + m[:, None] * s + k[None, :]"
    assert why(*rows, f"tl.load({tile}, mask=m[:, None] < n)", divisible=["x", "s"]) == []
    assert why(*rows, f"tl.load({tile}, mask=k[None, :] < n)", divisible=["x", "s"]) == [("limit", "n")]
    assert why(*rows, f"tl.load({tile})", divisible=["x"]) == [("offset", "s")]
    assert why(*rows, "tl.load(x + (m % n)[:, None] * s + k[None, :])", divisible=["x", "s"]) == []
    assert why(*rows, "tl.load(x + m[:, None] * s + (k % n)[None, :])", divisible=["x", "s"]) == [("division", "n")]


def test_a_mask_that_has_a_name_is_followed() -> None:
    assert why(LANES, "m = i < n", "tl.load(x + i, mask=m)", divisible=["x"]) == [("limit", "n")]


def test_a_step_of_a_loop_counts_where_it_is_not_aligned() -> None:
    loop = ("p = x + tl.arange(0, B)", "for _ in range(n):", "    tl.load(p)")
    assert why(*loop, "    p += s", divisible=["x"]) == [("offset", "s")]
    assert why(*loop, "    p += B", divisible=["x"]) == []
    assert why("for k in range(0, n, 8):", "    tl.load(x + k + tl.arange(0, B))") == []


def test_a_gather_is_one_only_where_lanes_are_loaded() -> None:
    assert why("tl.load(x + tl.program_id(0) * s + tl.arange(0, B))") == []
    gather, index = kernel(LANES, "tl.load(x + tl.load(y + i))").accesses
    assert [each.reason for each in obstacles(gather, 2)] == ["gather"]
    assert obstacles(index, 4) == []
    row, _ = kernel("tl.load(x + tl.load(y) * B + tl.arange(0, B))").accesses
    assert obstacles(row, 2) == []


def test_branches_that_constants_rule_out_are_not_looked_at() -> None:
    body = ("if HOW == 'a':", "    tl.load(x)", "elif HOW == 'b':", "    tl.load(y)", "else:", "    tl.load(x + 1)")
    assert only(*body).line == 9
    assert only(*body, HOW="b").line == 11
    assert only(*body, HOW="c").line == 13
    assert only("if HOW is None:", "    tl.load(x)", "else:", "    tl.load(y)", HOW=None).line == 9
    assert only("if B > 8 and not HOW == 'b':", "    tl.load(x)").place.branches == ()
    assert [bool(access.place.branches) for access in kernel("if n > 8:", "    tl.load(x)").accesses] == [True]


def test_a_call_that_spans_lines_counts_where_it_begins() -> None:
    body = ("tl.store(", "    y,", "    tl.load(", "        x,", "    ),", ")", "tl.load(x)")
    starts = kernel(*body).first_lines()
    assert [starts[line] for line in range(8, 15)] == [8, 8, 10, 10, 10, 8, 14]


def test_loops_are_told_apart() -> None:
    found = kernel("for _ in tl.static_range(4):", "    pass", "for _ in tl.range(n, num_stages=3):", "    pass")
    assert [(loop.kind, loop.stages) for loop in found.loops] == [("static_range", None), ("for", 3)]
    assert kernel("while n > 0:", "    tl.load(x)").accesses[0].place.loops[0].kind == "while"


def test_decorators_tell_what_is_not_specialized_and_what_is_tuned() -> None:
    text = (
        "import triton\n@triton.autotune(configs=[triton.Config({'B': 1}, num_warps=4)], key=[])\n"
        "@triton.jit(do_not_specialize=['s', 1])\ndef kernel(x, n, s, B: tl.constexpr):\n    pass\n"
    )
    file = syntax.parse(text)
    assert file is not None
    function = file.kernels["kernel"]
    assert (function.unspecialized, function.constants, function.autotuned) == ({"s", "n"}, {"B"}, True)
    assert len(function.configs) == 1


@pytest.mark.parametrize(
    "text", ["def (", "\0", "(" * 10_000, "x = " + "-" * 100_000 + "1", "def f():\n\treturn\n        x"]
)
def test_a_file_that_can_not_be_read_is_no_error(text: str) -> None:
    syntax.parse(text)


@pytest.mark.parametrize(
    "line",
    [
        "tl.load(x + " + " + ".join(["i"] * 400) + ")",
        "tl.load(x + " + " * ".join(["(i + n + s + 1)"] * 12) + ")",
        "tl.load(x + " + "(" * 90 + "i" + ")" * 90 + ")",
        "tl.load(x + 10 ** 1000 * 9" + "9" * 3000 + ")",
        "tl.load(*[x], **{})",
        "tl.load()",
        "tl.arange(0)",
        "tl.load(x + tl.arange(0, B) // 0 % 0)",
        "tl.load(x + i[None, :, None, ...])",
        "tl.load(x + i // (" + " + ".join(["n"] * 2_500) + "))",
        "tl.load(x, mask=" + " + ".join(["i"] * 2_500) + " < n)",
        "tl.load(x, mask=~(i < n) if n else (lambda: 0)())",
    ],
)
def test_odd_code_is_read_without_an_error(line: str) -> None:
    for access in kernel(LANES, line).accesses:
        obstacles(access, 2)


def test_a_file_that_is_too_long_is_not_analysed() -> None:
    assert syntax.parse("x = 1\n" * 10_000) is not None
    assert syntax.parse("x = 1\n" * 40_000) is None
    assert syntax.parse("a+" * 90_000 + "a") is None


def test_a_chain_of_assignments_takes_no_time() -> None:
    doubling = ["a = i"] + ["a = a * (a + n)"] * 200
    assert obstacles(only(LANES, *doubling, "tl.load(x + a)"), 2) == []


def test_a_call_of_the_host_is_always_made_if_each_of_its_conditions_is_one_of_the_launch() -> None:
    file = syntax.parse(
        "import triton\n@triton.jit\ndef kernel(x):\n    pass\n\ndef host(x, y):\n    a(x)\n    if y:\n        b(x)\n"
        "        kernel[(1,)](x)\n        if x:\n            c(x)\n    else:\n        d(x)\n\n"
        "def test_host(x):\n    kernel[(1,)](x)\n"
    )
    assert file is not None
    ((host, launch),) = file.launches["kernel"]
    names = {syntax.dotted(call.func): host.always_with(call, launch) for call in host.calls if call is not launch}
    assert names == {"a": True, "b": True, "c": False, "d": False}


def test_a_kernel_that_the_file_has_not_is_none() -> None:
    file = syntax.parse("def host():\n    pass\n")
    assert file is not None
    assert live(file, "kernel", captured()) is None
    assert isinstance(file.host["host"].node, ast.FunctionDef)


def test_lines_are_counted_as_python_counts_them() -> None:
    file = syntax.parse("# \x85 a \u2028 \x0c b\r\nx = 1\ny = 2\r# end\n")
    assert file is not None
    assert [file.excerpt(line) for line in (2, 3, 4, 5)] == ["x = 1", "y = 2", "# end", None]


def test_of_two_kernels_with_one_name_the_last_is_meant() -> None:
    file = syntax.parse("import triton\n\n@triton.jit\ndef k(a):\n    pass\n\n@triton.jit\ndef k(b):\n    pass\n")
    assert file is not None
    assert file.kernels["k"].parameters == ("b",)
