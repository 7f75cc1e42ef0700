"""A kernel file's syntax tree as a stream of what it consists of, for telling files from one another.

The file is hostile: it is parsed, never imported, and what can't be parsed or is too large isn't read.
"""

import ast
import warnings
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from typing import Final, NamedTuple, cast

from ..diagnosis.source.syntax import CHARACTERS_LIMIT, NODES_LIMIT


class Stream(NamedTuple):
    """A syntax tree, read from top to bottom without docstrings."""

    tokens: list[str]
    """Kinds of nodes and what they hold; a name is `=`, a constant `#`."""
    names: list[str]
    """What stands for `=`, in order."""
    places: list[int]
    """Where in `tokens`."""
    constants: list[ast.Constant]
    """What stands for `#`, in order."""
    given: set[str]
    """Names that the file gives; the others are Python's."""
    starts: list[int]
    """Where statements start in `tokens`."""
    holders: list[ast.AST]
    """What may give constants a label."""


@lru_cache(maxsize=1)
def read(text: str) -> Stream | None:
    """Reads a file; None where it can't be read, or is too long. The last one is kept: it is asked for again."""
    if len(text) > CHARACTERS_LIMIT:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a file's own escapes are none of our business
            return _stream(ast.parse(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


class _Kind(NamedTuple):
    """How a kind of node is read."""

    name: str
    statement: bool
    holder: bool
    naming: str | None
    fields: tuple[str, ...]
    """The others that mean something, last first."""


_NAMING: Final[dict[type[ast.AST], str]] = {
    ast.Name: "id", ast.arg: "arg", ast.keyword: "arg", ast.FunctionDef: "name", ast.AsyncFunctionDef: "name",
    ast.ClassDef: "name", ast.alias: "asname", ast.ExceptHandler: "name", ast.MatchAs: "name", ast.MatchStar: "name",
    ast.MatchMapping: "rest",
}  # fmt: skip
"""Where a node holds a name that the file may have given. What is imported, and attributes, are not its to rename."""
_IGNORED: Final = ("ctx", "type_comment", "kind", "type_ignores")
_HOLDERS: Final = (ast.keyword, ast.Assign, ast.AnnAssign, ast.arguments, ast.Dict)


@cache
def _kind(kind: type[ast.AST]) -> _Kind:
    naming = _NAMING.get(kind)
    fields = tuple(field for field in reversed(kind._fields) if field not in _IGNORED and field != naming)
    return _Kind(kind.__name__, issubclass(kind, ast.stmt), issubclass(kind, _HOLDERS), naming, fields)


def _stream(tree: ast.Module) -> Stream | None:
    """None of a tree with too many nodes."""
    found = Stream([], [], [], [], set(), [], [])
    tokens, names, nodes = found.tokens, found.names, 0
    waiting: list[object] = [tree]
    while waiting:
        item = waiting.pop()
        if isinstance(item, ast.Constant):
            tokens.append("#")
            found.constants.append(item)
        elif isinstance(item, ast.AST):
            nodes += 1
            kind = _kind(item.__class__)
            if kind.statement:
                found.starts.append(len(tokens))
            if kind.holder:
                found.holders.append(item)
            tokens.append(kind.name)
            if kind.naming is not None:
                name: str | None = getattr(item, kind.naming)
                tokens.append("~" if name is None else "=")
                if name is not None:
                    names.append(name)
                    found.places.append(len(tokens) - 1)
                    if _gives(item):
                        found.given.add(name)
            waiting.extend([getattr(item, field, None) for field in kind.fields])
        elif isinstance(item, list):
            kept = [each for each in cast(list[object], item) if not _is_text(each)]
            tokens.append(f"[{len(kept)}")
            waiting.extend(reversed(kept))
        else:
            tokens.append("~" if item is None else f"'{item}")
        if nodes + len(found.constants) > NODES_LIMIT:
            return None
    return found


def _gives(node: ast.AST) -> bool:
    """Whether a node that holds a name gives it."""
    return not isinstance(node, ast.keyword) and not (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load))


def _is_text(node: object) -> bool:
    """Whether it is a docstring, or any other string that stands alone: it does nothing."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def labels(holders: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """What constants are called, by the identity of their nodes: a keyword, a variable, a parameter or a key."""
    for node in holders:
        match node:
            case ast.keyword(arg=str(name), value=value):
                yield id(value), name
            case ast.Assign(targets=[target], value=value) | ast.AnnAssign(target=target, value=value):
                yield from _assigned(target, value)
            case ast.arguments():
                positional = [*node.posonlyargs, *node.args]
                defaults = positional[len(positional) - len(node.defaults) :]
                for argument, default in [
                    *zip(defaults, node.defaults, strict=True),
                    *zip(node.kwonlyargs, node.kw_defaults, strict=True),
                ]:
                    yield id(default), argument.arg
            case ast.Dict(keys=keys, values=values):
                for key, value in zip(keys, values, strict=True):
                    if isinstance(key, ast.Constant) and isinstance(key.value, str) and key.value.isidentifier():
                        yield id(value), key.value
            case _:
                pass


def _assigned(target: ast.expr, value: ast.expr | None) -> Iterator[tuple[int, str]]:
    match target, value:
        case ast.Name(id=name), ast.Call(args=[ast.Constant() as constant]):  # tl.constexpr(64)
            yield id(constant), name
        case ast.Name(id=name), ast.Constant():
            yield id(value), name
        case ast.Tuple(elts=targets), ast.Tuple(elts=values) if len(targets) == len(values):
            for one, whole in zip(targets, values, strict=True):
                yield from _assigned(one, whole)
        case _:
            pass
