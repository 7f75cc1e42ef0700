"""Which arguments a host function's kernels write to, from the source alone."""

import ast

import pytest

from tritonforge.server.adapters.facts import facts_of
from tritonforge.server.adapters.random_numbers import draws
from tritonforge.server.adapters.written import kernel_writes, unreturned, writes_of

KERNEL = """\
import triton
import triton.language as tl

@triton.jit
def inner(p, value):
    tl.store(p, value)

@triton.jit
def kernel(x, y, index, stride, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.load(index + tl.program_id(0)) * stride
    to = y + at
    to += BLOCK
    tl.store(to[:, None], tl.load(x + at))

@triton.jit
def through(x, y):
    inner(y, tl.load(x))
"""


def test_a_kernel_writes_through_pointers_and_not_through_offsets() -> None:
    facts = facts_of(ast.parse(KERNEL))
    assert kernel_writes(facts.functions["kernel"], facts) == {"y"}
    assert kernel_writes(facts.functions["through"], facts) == {"y"}


@pytest.mark.parametrize(
    ("body", "written", "fresh"),
    [
        ("kernel[1](a, b, i, 1, 2)", {"b"}, False),
        ("kernel[1](a, y=b.view(-1), index=i, stride=1)\n    return b", {"b"}, False),
        ("out = torch.empty_like(a)\n    kernel[1](a, out, i, 1, 2)\n    return out", set[str](), True),
        ("if b is None:\n        b = torch.empty_like(a)\n    kernel[1](a, b, i, 1, 2)\n    return b", {"b"}, False),
        ("out = a if flag else torch.empty_like(a)\n    kernel[1](b, out, i, 1, 2)\n    return out", set[str](), True),
        ("b[0] = a", {"b"}, False),
        ("b.zero_()", {"b"}, False),
        ("torch.add(a, a, out=b)", {"b"}, False),
        ("helper(b, a)\n    return a.sum()", {"b"}, True),
        ("c, d = b, a\n    kernel[1](d, c, i, 1, 2)", {"b"}, False),
        ("c = triton.reinterpret(b.view(-1), tl.float16)\n    kernel[1](a, y=c, index=i, stride=1)", {"b"}, False),
        ("c = torch.flip(b, 0)\n    kernel[1](a, c, i, 1, 2)", set[str](), False),
    ],
)
def test_a_host_function_writes_to_what_it_hands_over(body: str, written: set[str], fresh: bool) -> None:
    source = (
        f"{KERNEL}\ndef helper(to, of):\n    kernel[1](of, to, of, 1, 2)\n\ndef f(a, b, i, flag=False):\n    {body}\n"
    )
    facts = facts_of(ast.parse(source))
    found = writes_of(facts.functions["f"], facts, {"a", "b", "i"})
    assert (found.written, found.fresh) == (written, fresh)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("c = torch.empty_like(a)\n    kernel[1](a, c, i, 1, 2)", ["c"]),
        ("c, n = torch.empty_like(a), 2\n    d = torch.zeros(3)\n    kernel[1](a, d.view(-1), i, 1, 2)", ["d"]),
        ("d = torch.zeros(3)\n    c = d\n    kernel[1](a, c, i, 1, 2)", ["d"]),
        ("c = torch.empty_like(a)\n    kernel[1](a, c, i, 1, 2)\n    return None", []),
        ("if a:\n        c = torch.empty_like(a)\n        kernel[1](a, c, i, 1, 2)", []),
        ("kernel[1](a, b, i, 1, 2)", []),
    ],
)
def test_what_is_made_and_written_to_and_not_returned_is_found(body: str, found: list[str]) -> None:
    facts = facts_of(ast.parse(f"{KERNEL}\ndef f(a, b, i):\n    {body}\n"))
    assert unreturned(facts.functions["f"], facts) == found


@pytest.mark.parametrize(
    ("body", "drawn"),
    [
        ("return torch.randn(3)", True),
        ("x = torch.empty(3).normal_()", True),
        ("if a:\n        x = torch.rand(3)\n    else:\n        x = torch.randn(3).T", True),
        ("if a:\n        x = torch.rand(3)", False),
        ("return helper()", True),
        ("def inner():\n        return torch.rand(3)\n    return inner", False),
        ("return torch.rand(3, generator=a)", False),
        ("return a.randn", False),
    ],
)
def test_a_host_function_that_draws_whichever_way_it_goes(body: str, drawn: bool) -> None:
    helper = "def helper():\n    return torch.cuda.default_generators[0].get_state()\n"
    facts = facts_of(ast.parse(f"{KERNEL}\n{helper}\ndef f(a):\n    {body}\n"))
    assert draws(facts.functions["f"], facts) is drawn


def test_only_what_leads_to_a_kernel_launches() -> None:
    source = f"{KERNEL}\ndef host(x):\n    kernel[1](x)\n\ndef outer(x):\n    host(x)\n\ndef plain(x):\n    return x\n"
    facts = facts_of(ast.parse(source))
    assert facts.launching == {"host", "outer"}
    assert facts.kernels == {"inner", "kernel", "through"}
