"""The edit that gives full blocks a path without a mask: correct whatever the limit is."""

import ast
from collections.abc import Iterator
from typing import Final

from .edits import Edit, diff
from .source.kernel import Access, LiveKernel
from .source.syntax import KernelFile, calls, keyword, language

STATEMENTS_LIMIT: Final = 12
_SIMPLE: Final = (ast.Assign, ast.AugAssign, ast.Expr, ast.AnnAssign)


def full_blocks_apart(file: KernelFile, kernel: LiveKernel, access: Access) -> str | None:
    """A diff, where the access stands in straight-line code of one lane axis with one mask; None elsewhere."""
    try:
        return _divided(file, kernel, access)
    except RecursionError:
        return None  # an expression too deep to compare or to write


def _divided(file: KernelFile, kernel: LiveKernel, access: Access) -> str | None:
    block = _block_of(kernel.function.node, access.place.statement)
    mask = keyword(access.call, "mask", 1 if access.kind == "load" else 2)
    if block is None or mask is None or access.place.loops:
        return None
    compare = _definition(kernel, mask)
    if not isinstance(compare, ast.Compare) or len(compare.ops) != 1 or not isinstance(compare.ops[0], ast.Lt):
        return None
    last = _end_of(kernel, compare.left)
    if last is None:
        return None
    first = next((n for n, each in enumerate(block) if _masks(each)), None)
    if first is None:
        return None
    rest = block[first:]
    if len(rest) > STATEMENTS_LIMIT or not all(isinstance(each, _SIMPLE) for each in rest):
        return None
    wanted = {ast.dump(mask), ast.dump(compare)}
    if any(ast.dump(each) not in wanted for statement in rest for each in _masks(statement)):
        return None
    start, end = rest[0], rest[-1]
    lines = file.lines[start.lineno - 1 : end.end_lineno]
    margin = " " * start.col_offset
    if any(line and not line.startswith(margin) for line in lines):
        return None
    plain = [f"{margin}    {ast.unparse(_Unmasked().visit(_copy(each)))}" for each in rest]
    text = "\n".join(
        [
            f"if {last} <= {ast.unparse(compare.comparators[0])}:",
            *plain,
            f"{margin}else:",
            *(f"    {line}" if line else line for line in lines),
        ]
    )
    width = len(lines[-1].encode())
    return diff(file, [Edit(start.lineno, start.col_offset, end.end_lineno or end.lineno, width, text)])


def _definition(kernel: LiveKernel, node: ast.expr) -> ast.expr:
    """What a name was given, if only once."""
    if isinstance(node, ast.Name):
        given = kernel.definitions.get(node.id, [])
        return given[0] if len(given) == 1 else node
    return node


def _end_of(kernel: LiveKernel, offsets: ast.expr) -> str | None:
    """One past the last lane's offset, as text: `tl.arange(0, B)` becomes `B`."""
    whole = _definition(kernel, offsets)
    ranges = [each for each in ast.walk(whole) if isinstance(each, ast.Call) and language(each) == "arange"]
    names = [each for each in ast.walk(whole) if isinstance(each, ast.Name) and each.id in kernel.definitions]
    lanes = [name for name in names if any(language(call) == "arange" for call in _calls(kernel.definitions[name.id]))]
    if len(ranges) + len(lanes) != 1 or not _added(whole, ranges[0] if ranges else lanes[0]):
        return None
    found = ranges[0] if ranges else _definition(kernel, lanes[0])
    if not isinstance(found, ast.Call) or language(found) != "arange" or len(found.args) != 2:
        return None
    place = ranges[0] if ranges else lanes[0]
    return ast.unparse(_Put(place, found.args[1]).visit(whole))


def _calls(values: list[ast.expr]) -> Iterator[ast.Call]:
    return (each for value in values for each in ast.walk(value) if isinstance(each, ast.Call))


def _added(whole: ast.expr, lanes: ast.expr) -> bool:
    """Whether the lanes are a summand of the whole, not a factor."""
    if whole is lanes:
        return True
    if isinstance(whole, ast.BinOp) and isinstance(whole.op, ast.Add):
        return _added(whole.left, lanes) or _added(whole.right, lanes)
    return False


def _masks(statement: ast.stmt) -> list[ast.expr]:
    """Of its loads and stores."""
    found: list[ast.expr] = []
    for call in calls(statement):
        if language(call) in ("load", "store"):
            mask = keyword(call, "mask", 1 if language(call) == "load" else 2)
            if mask is not None:
                found.append(mask)
    return found


def _block_of(function: ast.FunctionDef, statement: ast.stmt) -> list[ast.stmt] | None:
    for node in ast.walk(function):
        for _, value in ast.iter_fields(node):
            if isinstance(value, list) and any(each is statement for each in value):  # pyright: ignore[reportUnknownVariableType]  fields of a node
                return [each for each in value if isinstance(each, ast.stmt)]  # pyright: ignore[reportUnknownVariableType]  as above
    return None


def _copy(node: ast.stmt) -> ast.stmt:
    return ast.parse(ast.unparse(node)).body[0]


class _Put(ast.NodeTransformer):
    """Puts an expression in a node's place, and leaves the original tree alone."""

    def __init__(self, place: ast.expr, value: ast.expr) -> None:
        self._place, self._value = place, value

    def visit(self, node: ast.AST) -> ast.AST:
        if node is self._place:
            return self._value
        if isinstance(node, ast.BinOp):
            left, right = self.visit(node.left), self.visit(node.right)
            assert isinstance(left, ast.expr)
            assert isinstance(right, ast.expr)
            return ast.BinOp(left=left, op=node.op, right=right)
        return node


class _Unmasked(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if language(node) in ("load", "store"):
            node.keywords = [each for each in node.keywords if each.arg not in ("mask", "other")]
            node.args = node.args[: 1 if language(node) == "load" else 2]
        return node
