"""TOML files that people keep: one table is set or removed, the rest of the text stays as it is, comments included."""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeGuard

_OPENING: Final = re.compile(r'"""|\'\'\'|["\'#\[\]{}\n]')
"""Where something begins or ends that decides whether a line break ends a statement."""
_CLOSING: Final = {
    '"""': re.compile(r'(?:[^"\\]|\\.|"(?!""))*"{3,5}', re.DOTALL),
    "'''": re.compile(r"(?:[^']|'(?!''))*'{3,5}", re.DOTALL),
    '"': re.compile(r'(?:[^"\\\n]|\\.)*"'),
    "'": re.compile(r"[^'\n]*'"),
}

Scalar = str | int | Sequence[str]


def read(text: str) -> dict[str, Any]:
    """
    Raises:
        ValueError: it is not TOML.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"is not TOML: {error}") from None


def with_table(text: str, path: Sequence[str], values: Mapping[str, Scalar]) -> str:
    """The text with these keys set in the table at `path`; other keys and tables below it stay.

    Raises:
        ValueError: it is not TOML, or holds the table in another form than under a ``[header]``.
    """
    held = _held(read(text), path)
    newline = "\r\n" if "\r\n" in text else "\n"
    statements = _statements(text)
    head = next((at for at, statement in enumerate(statements) if statement.header == tuple(path)), None)
    if head is None:
        if held is not None and any(not isinstance(value, dict) for value in held.values()):
            raise ValueError(f"holds {_dotted(path)} in another form than under [{_dotted(path)}]")
        lines = [f"[{_dotted(path)}]", *(f"{name} = {_written(value)}" for name, value in values.items())]
        gap = "" if not text else newline if text.endswith("\n") else newline * 2
        return text + gap + newline.join(lines) + newline
    body = statements[head + 1 : _end(statements, head)]
    last = max([head, *(head + 1 + at for at, statement in enumerate(body) if statement.keys)])
    edits: list[tuple[int, int, str]] = []
    added = ""
    for name, value in values.items():
        if held is not None and name in held and held[name] == value:
            continue
        line = f"{name} = {_written(value)}"
        found = next((statement for statement in body if statement.keys == (name,)), None)
        if found is None:
            added += line + newline
        else:
            shown = text[found.start : found.value_end].lstrip()
            edits.append((found.value_end - len(shown), found.value_end, line))
    if added:
        end = statements[last].end
        edits.append((end, end, added if text[:end].endswith("\n") else newline + added))
    for start, end, line in sorted(edits, reverse=True):
        text = text[:start] + line + text[end:]
    return text


def without_table(text: str, path: Sequence[str]) -> str:
    """The text without the table at `path`, without those below it, and without the empty line before each.

    Comments that stand before the next table's header stay: they belong to it.

    Raises:
        ValueError: it is not TOML, or holds the table in another form than under a ``[header]``.
    """
    if _held(read(text), path) is None:
        return text
    statements = _statements(text)
    removed: list[tuple[int, int]] = []
    for at, statement in enumerate(statements):
        if statement.header is not None and statement.header[: len(path)] == tuple(path):
            body = range(at + 1, _end(statements, at))
            last = max([at, *(inner for inner in body if statements[inner].keys)])
            before = statements[at - 1] if at else None
            blank = before is not None and not text[before.start : before.end].strip()
            removed.append((before.start if before and blank else statement.start, statements[last].end))
    if not removed:
        raise ValueError(f"holds {_dotted(path)} in another form than under [{_dotted(path)}]")
    for start, end in reversed(removed):
        text = text[:start] + text[end:]
    return text


class _Statement(NamedTuple):
    """A header, a key with its value, a comment or an empty line, with the line break that ends it."""

    start: int
    value_end: int
    """Where its value ends, before a comment on the same line."""
    end: int
    header: tuple[str, ...] | None
    keys: tuple[str, ...]
    """The dotted key; empty for what is no value."""


def _statements(text: str) -> list[_Statement]:
    """The statements of a text that is known to be TOML."""
    statements: list[_Statement] = []
    start = at = 0
    depth = 0
    value_end: int | None = None
    while start < len(text):
        found = _OPENING.search(text, at)
        if found is None:
            found_text, at, depth = "\n", len(text), 0
        else:
            found_text, at = found[0], found.end()
        if closing := _CLOSING.get(found_text):
            closed = closing.match(text, at)
            at = closed.end() if closed else len(text)
        elif found_text == "#":
            if depth == 0:
                value_end = at - 1
            line_end = text.find("\n", at)
            at = len(text) if line_end < 0 else line_end
        elif found_text in "[{":
            depth += 1
        elif found_text in "]}":
            depth -= 1
        elif depth == 0:
            value_end = at if value_end is None else value_end
            shown = text[start:value_end].rstrip()
            statements.append(_Statement(start, start + len(shown), at, *_named(shown)))
            start, value_end = at, None
    return statements


def _named(statement: str) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """The header that a statement is, or the key that it gives a value to."""
    statement = statement.strip()
    names = _way(tomllib.loads(statement))
    return (names, ()) if statement.startswith("[") else (None, names)


def _way(value: object) -> tuple[str, ...]:
    """The names down to what is no table of one member."""
    if _is_list(value) and value:
        return _way(value[0])
    if _is_table(value) and len(value) == 1:
        [(name, below)] = value.items()
        return name, *_way(below)
    return ()


def _end(statements: Sequence[_Statement], head: int) -> int:
    """The place of the first statement after a table."""
    return next((at for at in range(head + 1, len(statements)) if statements[at].header is not None), len(statements))


def _held(values: dict[str, Any], path: Sequence[str]) -> dict[str, Any] | None:
    held: object = values
    for depth, name in enumerate(path):
        if not _is_table(held):
            raise ValueError(f"holds something else than a table in {_dotted(path[:depth])}")
        if name not in held:
            return None
        held = held[name]
    if not _is_table(held):
        raise ValueError(f"holds something else than a table in {_dotted(path)}")
    return held


def _is_table(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def _is_list(value: object) -> TypeGuard[list[object]]:
    return isinstance(value, list)


def _dotted(path: Sequence[str]) -> str:
    return ".".join(name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _written(name) for name in path)


def _written(value: Scalar) -> str:
    """A value as TOML: strings and lists of them are written as in JSON."""
    return json.dumps(value, ensure_ascii=False)
