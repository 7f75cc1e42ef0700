"""When two kernel files are one program: made-up launches, and sources that differ in one thing."""

from pathlib import Path
from typing import Any

import pytest

from tritonforge.sandbox.source import Source
from tritonforge.server.runs.identity import Launched, host_code, identity

KERNEL = '''\
"""A kernel."""
import torch
import triton
import triton.language as tl

LIMIT = 4


@triton.jit
def helper(x):
    return x * 2


@triton.jit
def double_kernel(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, helper(tl.load(x_ptr + offsets)), mask=offsets < n)


@triton.jit
def other_kernel(x_ptr):
    tl.store(x_ptr, 1)


def double(x):
    """Doubles."""
    double_kernel[(1,)](x, n=x.numel(), BLOCK=64, num_warps=4)
    return x
'''
COMPILED = frozenset({"double_kernel"})
ONE = Launched("train", "aa", (4, 1, 1), 1, False)


def of(text: str = KERNEL, launches: list[Launched] | None = None, origin: str | None = None, **more: Any) -> str:
    fields: dict[str, Any] = {"complete": True, **more}
    return identity(Source(text, "k.py", origin), [ONE] if launches is None else launches, COMPILED, **fields)


def edited(*edits: tuple[str, str]) -> str:
    text = KERNEL
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize(
    "edits",
    [
        [('"""A kernel."""\n', "# Another comment.\n\n")],
        [('    """Doubles."""\n', "")],
        [("return x * 2", "return x + x")],
        [("offsets", "places")],
        [("double_kernel", "twice_kernel"), ("helper", "twice")],
        [
            ("BLOCK", "SIZE"),
            ("(x_ptr, n, ", "(pointer, count, "),
            ("x_ptr + offsets", "pointer + offsets"),
            ("(x, n=", "(x, count="),
            ("< n", "< count"),
        ],
        [("(1,)](x, n=x.numel(), ", "( 1, ) ] (\n        x,\n        n=x.numel(),\n")],
    ],
)
def test_what_only_the_compiler_reads_makes_no_other_program(edits: list[tuple[str, str]]) -> None:
    names = frozenset({"double_kernel", "twice_kernel"})
    source = Source(edited(*edits), "another.py", None)
    assert identity(source, [ONE], names, complete=True) == identity(
        Source(KERNEL, "k.py", None), [ONE], names, complete=True
    )


@pytest.mark.parametrize(
    "edit",
    [
        ("LIMIT = 4", "LIMIT = 5"),
        ("    return x\n", "    return x.clone()\n"),
        ("BLOCK=64", "BLOCK=128"),
        ("num_warps=4", "num_warps=8"),
        ("n=x.numel(), BLOCK=64", "n=64, BLOCK=x.numel()"),
        ("@triton.jit\ndef double", "@triton.autotune([], key=['n'])\n@triton.jit\ndef double"),
        ("tl.store(x_ptr, 1)", "tl.store(x_ptr, 2)"),
        ("import triton\n", "import triton as tri\n"),
    ],
)
def test_what_the_host_does_and_kernels_that_were_not_launched_make_another(edit: tuple[str, str]) -> None:
    assert of(edited(edit)) != of()


def test_a_function_that_triton_does_not_compile_keeps_its_body() -> None:
    host = edited(
        ("import triton\n", "import triton\nfrom numba import jit\n"), ("@triton.jit\ndef double", "@jit\ndef double")
    )
    assert of(host) != of(host.replace("offsets < n", "offsets <= n"))
    compiled = edited(("import triton\n", "import triton as t\n"), ("@triton.jit", "@t.jit"))
    assert of(compiled) == of(compiled.replace("offsets < n", "offsets <= n"))


def test_two_definitions_of_a_name_keep_their_bodies() -> None:
    two = KERNEL + "\n\n@triton.jit\ndef double_kernel(x_ptr, n, BLOCK: tl.constexpr):\n    tl.store(x_ptr, 3)\n"
    assert of(two) != of(two.replace("tl.store(x_ptr, 3)", "tl.store(x_ptr, 4)"))


@pytest.mark.parametrize(
    "changed",
    [{"case": "decode"}, {"code_hash": "bb"}, {"grid": (5, 1, 1)}, {"times": 2}, {"tuning": True}],
)
def test_each_launch_counts(changed: dict[str, Any]) -> None:
    assert of(launches=[ONE._replace(**changed)]) != of()
    assert of(launches=[ONE, ONE._replace(**changed)]) == of(launches=[ONE._replace(**changed), ONE])


def test_launches_count_as_often_as_they_are_made() -> None:
    assert of(launches=[ONE, ONE]) != of()


def test_where_launches_are_missing_only_the_same_text_is_the_same_program() -> None:
    assert of(complete=False) == of(complete=False)
    assert of(complete=False) != of(KERNEL + "# A comment.\n", complete=False)


@pytest.mark.parametrize("text", ["def (", "x = " + "(" * 300 + ")" * 300, "x = " + "+".join("1" * 60_000)])
def test_what_cannot_be_read_is_its_text(text: str) -> None:
    assert host_code(text, COMPILED) == text


def test_files_that_are_imported_from_beside_the_kernel_count(tmp_path: Path) -> None:
    importing = KERNEL + "\nfrom near import scale\n"
    before = of(importing, origin=str(tmp_path))
    (tmp_path / "near.py").write_text("scale = 1\n")
    with_one = of(importing, origin=str(tmp_path))
    (tmp_path / "near.py").write_text("scale = 2\n")
    assert len({before, with_one, of(importing, origin=str(tmp_path))}) == 3


def test_files_beside_a_kernel_that_imports_none_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "near.py").write_text("scale = 1\n")
    assert of(origin=str(tmp_path)) == of()
