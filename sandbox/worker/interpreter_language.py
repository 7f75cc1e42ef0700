# pyright: basic
# triton ships incomplete types.
"""The language as Triton's interpreter runs it: Python itself, where a compiler gives some things another meaning.

``a and b`` of two masks is the second one in Python and both of them on a GPU; a loop's variable is a Python number and
lacks ``.to``; an argument of more than 32 bits is kept in too few.
"""

from __future__ import annotations

import ast
import inspect
import math
from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as triton_interpreter

from . import interpreter_memory
from .interpreter_arithmetic import Handle, replace
from .interpreter_numbers import unsupported

PROGRAM_LIMIT = 20_000
"""Programs of one interpreted launch; each takes about a millisecond, so that these take 20 seconds."""


def install() -> None:
    """Replace how kernels are rewritten, how their arguments arrive, and how grids are read."""
    triton_interpreter.FunctionRewriter.ast_transformer = _Transformer()
    # Globals of the interpreter's module are visible in rewritten kernels.
    setattr(triton_interpreter, _LOOP, _loop)
    setattr(triton_interpreter, _LOGIC, _logic)
    setattr(triton_interpreter, _NOT, _not)
    setattr(triton_interpreter, "_implicit_cvt", _argument(triton_interpreter._implicit_cvt))  # noqa: B010
    setattr(triton_interpreter, "_patch_builtin", _patch_builtin)  # noqa: B010
    executor = triton_interpreter.GridExecutor
    replace(executor, "__call__", _prepared(executor.__call__))


_LOOP, _LOGIC, _NOT = "_tritonforge_loop", "_tritonforge_logic", "_tritonforge_not"


class _Transformer(triton_interpreter.ASTTransformer):
    def visit_Assign(self, node: ast.Assign) -> Any:
        node.value = self.visit(node.value)
        return super().visit_Assign(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        self.generic_visit(node)
        empty = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        operands: list[ast.expr] = [ast.Lambda(args=empty, body=value) for value in node.values]
        return _calling(node, _LOGIC, [ast.Constant(value=isinstance(node.op, ast.And)), *operands])

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        self.generic_visit(node)
        return _calling(node, _NOT, [node.operand]) if isinstance(node.op, ast.Not) else node

    def visit_For(self, node: ast.For) -> Any:
        self.generic_visit(node)
        loop = node.iter
        if isinstance(loop, ast.Call):
            name = loop.func.attr if isinstance(loop.func, ast.Attribute) else getattr(loop.func, "id", "")
            if name == "range":
                loop.func = ast.copy_location(ast.Name(id=_LOOP, ctx=ast.Load()), loop.func)
        return node


def _calling(node: ast.expr, function: str, operands: list[ast.expr]) -> ast.expr:
    call = ast.Call(func=ast.Name(id=function, ctx=ast.Load()), args=operands, keywords=[])
    return ast.copy_location(call, node)


def _loop(arg1: Any, arg2: Any = None, step: Any = None, **hints: Any) -> Generator[Any]:
    """``range`` or ``tl.range``; the variable is a tensor of int32, or of int64 where a bound is."""
    bounds = [bound for bound in (arg1, arg2, step) if bound is not None]
    dtypes = [bound.dtype for bound in bounds if isinstance(bound, tl.tensor)]
    numbers = [int(getattr(bound, "value", bound)) for bound in bounds]
    wide = [dtype for dtype in dtypes if dtype.int_bitwidth == 64]
    dtype = wide[0] if wide else tl.int32 if all(-(2**31) <= number < 2**31 for number in numbers) else tl.int64
    for number in range(*numbers):
        yield _scalar(number, dtype)


def _scalar(value: Any, dtype: Any) -> Any:
    return tl.tensor(Handle(np.array([value], dtype=triton_interpreter._get_np_dtype(dtype)), dtype), dtype)


def _logic(both: bool, *operands: Callable[[], Any]) -> Any:
    """``and`` or ``or`` as Triton's compiler reads it: tensors are combined, and constants cut it short."""
    tensors = []
    value: Any = None
    for operand in operands:
        value = operand()
        if isinstance(value, tl.tensor):
            tensors.append(value)
        elif bool(value) is not both:
            return value
    if not tensors:
        return value
    semantic = triton_interpreter.interpreter_semantic
    result = tensors[-1]
    for left in reversed(tensors[:-1]):
        result = semantic.logical_and(left, result) if both else semantic.logical_or(left, result)
    return result


def _not(value: Any) -> Any:
    if isinstance(value, tl.tensor):
        return triton_interpreter.interpreter_semantic.not_(value)
    return not value


def _argument(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Numbers become tensors of the type that a GPU's launcher gives them."""

    def convert(value: Any) -> Any:
        if isinstance(value, bool):
            return _scalar(value, tl.int1)
        if isinstance(value, int):
            if not -(2**63) <= value < 2**64:
                raise OverflowError(f"the kernel's argument {value} does not fit 64 bits")
            narrow = -(2**31) <= value < 2**31
            return _scalar(value, tl.int32 if narrow else tl.int64 if value < 2**63 else tl.uint64)
        if isinstance(value, float):
            return _scalar(value, tl.float32)
        return original(value)

    return convert


_builtins: dict[Any, list[str]] = {}
"""Names of the builtins in each module and class of the language."""


def _patch_builtin(place: Any, *rest: Any) -> None:
    """As Triton's own, which looks through the whole language at every call of a function from within a kernel."""
    if place not in _builtins:
        _builtins[place] = [name for name, member in inspect.getmembers(place) if tl.core.is_builtin(member)]
    for name in _builtins[place]:
        member = getattr(place, name, None)
        # One that was replaced by an earlier call is none any more.
        if tl.core.is_builtin(member):
            triton_interpreter._patch_attr(place, name, member, *rest)


def _prepared(original: Callable[..., Any]) -> Callable[..., Any]:
    """A launch whose grid is known, and not too large."""

    def launch(self: Any, *args: Any, **named: Any) -> Any:
        declared = self.grid
        self.grid = _grid(declared, self.fn, args, named)
        programs = math.prod(self.grid)
        try:
            if programs > PROGRAM_LIMIT:
                shape = " x ".join(map(str, self.grid))
                raise unsupported(
                    f"{self.fn.__name__} is launched with {programs} programs ({shape}); Triton's interpreter takes "
                    f"about 1 ms for each, so that a launch of more than {PROGRAM_LIMIT} is not run. "
                    "Mark a smaller case with 'small': True, or check this one on a GPU"
                )
            interpreter_memory.forget()
            return original(self, *args, **named)
        finally:
            self.grid = declared

    return launch


def _grid(grid: Any, function: Any, args: Any, named: dict[str, Any]) -> tuple[int, ...]:
    """The numbers of programs; a function of the arguments gets them as they were passed, as on a GPU."""
    if callable(grid):
        signature = inspect.signature(function)
        known = {name: value for name, value in named.items() if name in signature.parameters}
        bound = signature.bind(*args, **known)
        bound.apply_defaults()
        grid = grid(dict(bound.arguments))
    return tuple(int(getattr(size, "value", size)) for size in grid)
