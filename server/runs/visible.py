"""A file without its hidden cases, for whoever makes candidates; or the reason why they can't be taken out for sure."""

import ast
from collections.abc import Iterator
from itertools import chain
from typing import Final, cast

from ...sandbox.errors import Stopped, rejected
from ...sandbox.source import INLINE, Source
from .hidden import NAME

VISIBLE: Final = "CASES"
_READ: Final = frozenset({
    "ENTRY", VISIBLE, "make_inputs", "reference", "work", "reduction", "setup", "TOLERANCE", "ERROR_FACTOR", "IN_PLACE",
    "GRAD", "SPECIAL_VALUES", "VIEWS", "STRIDES", "NONDETERMINISTIC",
})  # fmt: skip
"""What is read of a task, whether or not the task itself uses it."""
_DYNAMIC: Final = frozenset({"globals", "locals", "vars", "exec", "eval", "setattr", "__import__"})
"""What may set or read names that no statement shows."""
_PLACEHOLDER: Final = f"# {NAME}: known to the server alone."
_FIX: Final = (
    f"Write them as one assignment of plain values at the beginning of a line, {NAME} = "
    "{'ragged': {'rows': 1823}}, of which nothing else in the file makes use; or take them out and give them in a file "
    "of their own: --hidden-cases FILE (hidden_cases of start_optimization)."
)


def visible(text: str, shown_as: str = INLINE) -> str:
    """A file's text without the statements that make its hidden cases, and without the comments directly above these.

    What only such a statement uses goes with it, and what only that uses, and so on.

    Args:
        text: the file; one that is no Python has no hidden cases, and stays as it is.
        shown_as: its name in messages.

    Raises:
        Stopped: ``rejected``: something else may tell them.
    """
    if NAME not in text:
        return text
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return text
    found = _Cases(body, shown_as)
    return found.cut(text)


def visible_kernel(text: str) -> str:
    """The same of a kernel: where that is no task, nothing has to be taken out, and nothing is refused."""
    try:
        return visible(text)
    except Stopped:
        return text


def require_separable(task: Source, kernel: Source, *, own: bool) -> None:
    """Refuse a task whose hidden cases agents would see.

    Args:
        task: the task.
        kernel: the kernel; one file may be both.
        own: whether the task has hidden cases of its own, as it was loaded.

    Raises:
        Stopped: ``rejected``: as of `visible`, or nothing in the task shows where its hidden cases come from.
    """
    shown = visible(task.text, task.shown_as)
    visible(kernel.text, kernel.shown_as)
    if own and shown == task.text:
        raise rejected(
            "task",
            f"the hidden cases can't be kept from agents: nothing in {task.shown_as} shows where {NAME} come from",
            file=task.shown_as,
            fix=_FIX,
        )


class _Cases:
    """The statements of a module that make its hidden cases."""

    def __init__(self, body: list[ast.stmt], shown_as: str) -> None:
        self._body, self._shown_as = body, shown_as
        self._names = [set(_names(statement)) for statement in body]
        self._sets = [_set_by(statement) for statement in body]
        self._removed = {at for at, name in enumerate(self._sets) if name == NAME}
        self._own = set(self._removed)
        if self._own:
            self._take_what_only_they_use()
        self._require_sure()

    def cut(self, text: str) -> str:
        """The text without them."""
        lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")  # as the parser counts them
        for at in sorted(self._removed, reverse=True):
            statement = self._body[at]
            first = statement.lineno - 1
            if isinstance(statement, ast.FunctionDef | ast.ClassDef) and statement.decorator_list:
                first = min(each.lineno for each in statement.decorator_list) - 1
            above = (self._body[at - 1].end_lineno or 0) if at else 0
            while first > above and lines[first - 1].lstrip().startswith("#"):
                first -= 1
            lines[first : statement.end_lineno] = [_PLACEHOLDER] if at in self._own else []
        return "\n".join(lines)

    def _take_what_only_they_use(self) -> None:
        grown = True
        while grown:
            grown = False
            for name in set(chain.from_iterable(self._names[at] for at in self._removed)) - {NAME}:
                users = {at for at, names in enumerate(self._names) if name in names}
                left = users - self._removed
                if left and name not in _READ and all(self._sets[at] == name for at in left):
                    self._removed |= left
                    grown = True

    def _require_sure(self) -> None:
        """
        Raises:
            Stopped: hidden cases may be told by what is left.
        """
        ends = [0, *(statement.end_lineno or 0 for statement in self._body)]
        for at, statement in enumerate(self._body):
            if at in self._removed:
                following = self._body[at + 1].lineno if at + 1 < len(self._body) else None
                if statement.lineno == ends[at] or statement.end_lineno == following:
                    raise self._unsure(statement, "another statement stands on the same line")
                continue
            if any(NAME in word for word in _words(statement)):
                raise self._unsure(statement, f"this statement names {NAME} and is no assignment of it")
        for name in sorted(set(chain.from_iterable(self._names[at] for at in self._removed)) - {NAME, VISIBLE}):
            whole = all(_is_spread(self._body[at], name) for at in self._removed)
            for at, statement in enumerate(self._body):
                if at not in self._removed and name in _bound(statement) and not _tells_nothing(statement, whole):
                    raise self._unsure(statement, f"{NAME} are made of {name}, which is used elsewhere too")
        for at in self._removed:
            if dynamic := sorted(self._names[at] & _DYNAMIC):
                raise self._unsure(self._body[at], f"they are made with {dynamic[0]}")

    def _unsure(self, statement: ast.stmt, why: str) -> Stopped:
        return rejected(
            "task",
            f"the hidden cases can't be kept from agents: line {statement.lineno} of {self._shown_as}: {why}",
            file=self._shown_as,
            fix=_FIX,
        )


def _set_by(statement: ast.stmt) -> str | None:
    """The one name that a statement sets, changes or defines, and does nothing else."""
    match statement:
        case (
            ast.Assign(targets=[target])
            | ast.AnnAssign(target=target)
            | ast.AugAssign(target=target)
            | ast.Expr(value=ast.Call(func=ast.Attribute(value=target)))
        ):
            while isinstance(target, ast.Subscript | ast.Attribute):
                target = target.value
            return target.id if isinstance(target, ast.Name) else None
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case ast.Import(names=[alias]) | ast.ImportFrom(names=[alias]):
            return (alias.asname or alias.name).partition(".")[0]
        case _:
            return None


def _tells_nothing(statement: ast.stmt, whole: bool) -> bool:
    """Whether the value that a statement gives to a name can't hold a hidden case: a single number or word, what is
    imported, or a dict of single ones that goes into cases as a whole."""
    match statement:
        case ast.Import() | ast.ImportFrom():
            return True
        case ast.Assign(targets=[ast.Name()], value=value) | ast.AnnAssign(target=ast.Name(), value=value):
            return value is not None and (_is_single(value) or (whole and _is_flat(value)))
        case _:
            return False


def _is_single(value: ast.expr) -> bool:
    single = (
        ast.Constant, ast.BinOp, ast.UnaryOp, ast.Name, ast.Attribute, ast.operator, ast.unaryop, ast.expr_context,
    )  # fmt: skip
    return all(isinstance(node, single) for node in ast.walk(value))


def _is_flat(value: ast.expr) -> bool:
    return isinstance(value, ast.Dict) and all(
        key is not None and _is_single(key) and _is_single(each)
        for key, each in zip(value.keys, value.values, strict=True)
    )


def _is_spread(statement: ast.stmt, name: str) -> bool:
    """Whether a statement uses a name as ``{**name}`` alone."""
    nodes = list(ast.walk(statement))
    uses = sum(isinstance(node, ast.Name) and node.id == name for node in nodes)
    spread = sum(
        key is None and isinstance(value, ast.Name) and value.id == name
        for node in nodes
        if isinstance(node, ast.Dict)
        for key, value in zip(node.keys, node.values, strict=True)
    )
    return uses == spread


def _bound(statement: ast.stmt) -> set[str]:
    """Names that a statement of a module may bind there."""
    return set(_stored(statement))


def _stored(node: ast.AST) -> Iterator[str]:
    """Names that are bound in the scope that a node stands in."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
            # What it declares as global it binds outside.
            yield from (each for inner in ast.walk(node) if isinstance(inner, ast.Global) for each in inner.names)
            return
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            yield name
        case ast.alias(name=name, asname=asname):
            yield (asname or name).partition(".")[0]
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            yield name
        case ast.MatchMapping(rest=str(name)):
            yield name
        case ast.Lambda():
            return
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            # Its own variables are no others'; what `:=` binds in it is.
            for inner in ast.walk(node):
                if isinstance(inner, ast.NamedExpr):
                    yield inner.target.id
            return
        case _:
            pass
    for child in ast.iter_child_nodes(node):
        yield from _stored(child)


def _names(node: ast.AST) -> Iterator[str]:
    """Names of the module that a node uses or binds."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
            arguments = node.args
            for outside in (*arguments.defaults, *(each for each in arguments.kw_defaults if each is not None)):
                yield from _names(outside)
            body: list[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else [*node.body]
            if not isinstance(node, ast.Lambda):
                yield node.name
                for outside in node.decorator_list:
                    yield from _names(outside)
            own = {each.arg for each in ast.walk(arguments) if isinstance(each, ast.arg)}
            declared = {name for inner in body for each in ast.walk(inner) if isinstance(each, ast.Global)
                        for name in each.names}  # fmt: skip
            own |= {name for inner in body for name in _stored(inner)} - declared
            yield from declared
            for inner in body:
                yield from (name for name in _names(inner) if name not in own)
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            # The first iterable is evaluated outside.
            yield from _names(node.generators[0].iter)
            own = {name for each in node.generators for name in _stored(each.target)}
            for child in ast.iter_child_nodes(node):
                yield from (name for name in _names(child) if name not in own)
            yield from _stored(node)
        case ast.Name(id=name):
            yield name
        case _:
            yield from (name for name in _stored(node) if not isinstance(node, ast.Name))
            for child in ast.iter_child_nodes(node):
                yield from _names(child)


def _words(node: ast.AST) -> Iterator[str]:
    """All words of a statement, those of texts too; a text that stands alone is a comment."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return
    for _, value in ast.iter_fields(node):
        for each in cast(list[object], value) if isinstance(value, list) else [value]:
            if isinstance(each, str):
                yield each
            elif isinstance(each, ast.AST):
                yield from _words(each)
