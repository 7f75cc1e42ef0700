"""What rules ask of a kernel's expressions, with local names followed to what they were assigned."""

import ast
from collections.abc import Iterator
from typing import Final

from .facts import Facts
from .source import form
from .source.evaluate import Evaluator
from .source.form import Form
from .source.kernel import LiveKernel
from .source.syntax import language

NODES_LIMIT: Final = 2_000
"""Of one expression with all that it is made of: ours have some ten."""


def reached(kernel: LiveKernel, *expressions: ast.expr | None) -> list[ast.AST]:
    """Everything within some expressions and within what their local names were ever assigned."""
    found: list[ast.AST] = []
    waiting: list[ast.expr] = [each for each in expressions if each is not None]
    known: set[str] = set()
    while waiting:
        for node in ast.walk(waiting.pop()):
            if len(found) == NODES_LIMIT:
                return found
            found.append(node)
            if isinstance(node, ast.Name) and node.id not in known:
                known.add(node.id)
                waiting += kernel.definitions.get(node.id, [])
    return found


def calls_of(nodes: list[ast.AST], *names: str) -> list[ast.Call]:
    """Calls of some functions of the language among nodes."""
    return [node for node in nodes if isinstance(node, ast.Call) and language(node) in names]


def computed(kernel: LiveKernel) -> Iterator[ast.BinOp]:
    """All operations of two operands in the kernel's statements."""
    for statement, _ in kernel.statements:
        for node in ast.walk(statement):
            if isinstance(node, ast.BinOp):
                yield node


def form_of(facts: Facts, node: ast.expr) -> Form:
    """What an expression consists of, by what local names are at the kernel's end."""
    if facts.file is None or facts.source is None:
        return form.unknown("a kernel without a source")
    evaluator = Evaluator(facts.file, facts.source.function, facts.captured)
    evaluator.values = facts.source.values
    try:
        return evaluator.form(node)
    except RecursionError:
        return form.unknown("a deep expression")


def unit_axis(address: Form) -> tuple[int, int] | None:
    """The axis along which neighbours lie side by side, and how many axes there are; None where there is none."""
    for term in address:
        lanes = form.lanes_of(term)
        if lanes is not None and form.is_unit(term):
            return lanes.axis or (0, 1)
    return None


def own_axes(nodes: list[ast.AST]) -> set[int] | None:
    """Axes of the grid that `tl.program_id` names among nodes; None where one can't be read."""
    found: set[int] = set()
    for call in calls_of(nodes, "program_id"):
        given = call.args[0] if call.args else next((each.value for each in call.keywords if each.arg == "axis"), None)
        if not isinstance(given, ast.Constant) or given.value not in (0, 1, 2):
            return None
        found.add(int(given.value))
    return found
