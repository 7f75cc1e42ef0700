"""Whether a host function draws random numbers at every call, as far as the source tells."""

import ast
from collections.abc import Sequence
from typing import Final

from .facts import Facts, Function, dotted_name

DRAWN: Final = frozenset(
    f"torch.{name}"
    for name in (
        "rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial", "rand_like", "randn_like",
        "randint_like",
    )
)  # fmt: skip
FILLS: Final = frozenset(("normal_", "uniform_", "random_", "bernoulli_", "exponential_"))
"""Methods of a tensor."""
STATES: Final = frozenset(("torch.cuda.default_generators", "torch.default_generator"))
DEPTH: Final = 6
"""Calls within calls that are followed."""


def draws(function: Function, facts: Facts, depth: int = 0) -> bool:
    """Whether it does, or a function of its file that it calls: whichever way its branches go.

    Args:
        function: the host function.
        facts: of its module.
        depth: of the call.
    """
    return _block(function.body, facts, depth)


def _block(body: Sequence[ast.stmt], facts: Facts, depth: int) -> bool:
    return any(_statement(each, facts, depth) for each in body)


def _statement(node: ast.stmt, facts: Facts, depth: int) -> bool:
    match node:
        case ast.If(test=test, body=body, orelse=orelse):
            return _in(test, facts, depth) or (_block(body, facts, depth) and _block(orelse, facts, depth))
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return False
        case ast.For() | ast.While() | ast.With() | ast.Try():
            return _block(node.body, facts, depth)
        case _:
            return _in(node, facts, depth)


def _in(node: ast.AST, facts: Facts, depth: int) -> bool:
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute) and dotted_name(each) in STATES:
            return True
        if isinstance(each, ast.Call) and _is_drawn(each, facts, depth):
            return True
    return False


def _is_drawn(call: ast.Call, facts: Facts, depth: int) -> bool:
    called = call.func
    if any(each.arg == "generator" for each in call.keywords):
        return False
    if isinstance(called, ast.Attribute):
        return dotted_name(called) in DRAWN or called.attr in FILLS
    if not isinstance(called, ast.Name) or called.id in facts.kernels or depth >= DEPTH:
        return False
    inner = facts.functions.get(called.id)
    return inner is not None and draws(inner, facts, depth + 1)
