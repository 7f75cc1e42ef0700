"""JSON files that other programs and people keep: one member is set or removed, the rest of the text stays as it is."""

import json
import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeGuard

DEFAULT_INDENT: Final = "  "

_DECODER: Final = json.JSONDecoder()
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_COMMENT: Final = re.compile(r"//|/\*")


def read(text: str) -> dict[str, Any]:
    """The object that a file holds; an empty file holds an empty one.

    Raises:
        ValueError: it is not JSON, holds something else than an object, or one name twice.
    """
    if not text.strip():
        return {}
    try:
        value = json.loads(text, object_pairs_hook=_each_once)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        if _COMMENT.match(text, error.pos) or (error.msg.startswith("Expecting") and _COMMENT.search(text)):
            raise ValueError(f"has comments or other extensions of JSON ({place})") from None
        raise ValueError(f"is not JSON: {error.msg} at {place}") from None
    if not _is_object(value):
        raise ValueError("holds no JSON object")
    return value


def with_member(text: str, path: Sequence[str], value: object) -> str:
    """The text with the member at `path` set; objects on the way are made where they are missing.

    Raises:
        ValueError: as `read`, or something on the way is not an object.
    """
    held: object = read(text)
    if not text.strip():
        text = "{}\n"
    indent = _indent(text)
    start = _after_space(text, 0)
    for depth, name in enumerate(path):
        if not _is_object(held):
            raise ValueError(f"holds something else than an object in {'.'.join(path[:depth])}")
        members = _members(text, start)
        last = depth == len(path) - 1
        if name not in held:
            missing = value if last else _nested(path[depth + 1 :], value)
            return _inserted(text, start, members, f"{json.dumps(name)}: ", missing, indent)
        found = next(member for member in members if member.name == name)
        held = held[name]
        if last:
            if held == value:
                return text
            # What stands on one line goes on doing so.
            within = indent if "\n" in text[start : found.key] else None
            written = _written(value, within, _margin(text, found.key), _newline(text))
            return text[: found.start] + written + text[found.end :]
        start = found.start
    return text


def without_member(text: str, path: Sequence[str]) -> str:
    """The text without the member at `path`, and its comma; objects around it stay, even if empty.

    Raises:
        ValueError: as `read`.
    """
    held: object = read(text)
    start = _after_space(text, 0)
    for depth, name in enumerate(path):
        if not _is_object(held) or name not in held:
            return text
        members = _members(text, start)
        place = next(at for at, member in enumerate(members) if member.name == name)
        found = members[place]
        if depth == len(path) - 1:
            if len(members) == 1:
                return text[: start + 1] + text[_after_space(text, found.end) :]
            if place == 0:
                return text[: found.key] + text[members[1].key :]
            return text[: members[place - 1].end] + text[found.end :]
        held, start = held[name], found.start
    return text


class _Member(NamedTuple):
    name: str
    key: int
    """Where its name begins."""
    start: int
    """Where its value begins and ends."""
    end: int


def _members(text: str, start: int) -> list[_Member]:
    """Members of the object that begins at `start`, in a text that is known to be JSON."""
    members: list[_Member] = []
    at = _after_space(text, start + 1)
    while text[at] != "}":
        name, after = _DECODER.raw_decode(text, at)
        value = _after_space(text, _after_space(text, after) + 1)
        _, end = _DECODER.raw_decode(text, value)
        members.append(_Member(name, at, value, end))
        at = _after_space(text, end)
        if text[at] == ",":
            at = _after_space(text, at + 1)
    return members


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _inserted(text: str, start: int, members: list[_Member], key: str, value: object, indent: str | None) -> str:
    """The text with one more member, the last one of the object that begins at `start`."""
    if members:
        last = members[-1]
        if indent is None or "\n" not in text[start : last.key]:
            return f"{text[: last.end]}, {key}{json.dumps(value, ensure_ascii=False)}{text[last.end :]}"
        margin, newline = _margin(text, last.key), _newline(text)
        written = _written(value, indent, margin, newline)
        return f"{text[: last.end]},{newline}{margin}{key}{written}{text[last.end :]}"
    closing = _after_space(text, start + 1)
    if indent is None:
        return f"{text[: start + 1]}{key}{json.dumps(value, ensure_ascii=False)}{text[closing:]}"
    outer = _margin(text, start)
    margin, newline = outer + indent, _newline(text)
    written = _written(value, indent, margin, newline)
    return f"{text[: start + 1]}{newline}{margin}{key}{written}{newline}{outer}{text[closing:]}"


def _written(value: object, indent: str | None, margin: str, newline: str) -> str:
    written = json.dumps(value, ensure_ascii=False, indent=indent)
    return written.replace("\n", newline + margin)


def _indent(text: str) -> str | None:
    """What one level is indented by; None where all stands on one line."""
    if found := re.match(r"\s*\{[ \t]*\r?\n(?:[ \t]*\r?\n)*([ \t]+)\"", text):
        return found[1]
    return DEFAULT_INDENT if re.match(r"\s*\{\s*\}", text) or "\n" in text.strip() else None


def _margin(text: str, at: int) -> str:
    """What the line of this place is indented by."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _nested(path: Sequence[str], value: object) -> object:
    for name in reversed(path):
        value = {name: value}
    return value


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"has the name {twice!r} twice in one object")
    return members


def _is_object(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)
