"""As much YAML as the cases of a task.yml need: flow mappings in a list, one a line; anything else is left alone."""

import re
from typing import Final, TypeAlias

Value: TypeAlias = str | int | float | bool | None
Case: TypeAlias = dict[str, "Value | list[Value]"]

ITEM: Final = re.compile(r"^\s*-\s*\{(.*)\}\s*(?:#.*)?$")
PAIR: Final = re.compile(r"""\s*["']?([\w.-]+)["']?\s*:\s*(\[[^\]]*\]|"[^"]*"|'[^']*'|[^,]*)\s*(?:,|$)""")
WORDS: Final[dict[str, bool | None]] = {"true": True, "false": False, "null": None, "none": None, "~": None, "": None}


def listed_cases(text: str, key: str) -> list[Case]:
    """The mappings that are listed under a key at the left margin."""
    return [{name: _typed(value) for name, value in pairs} for pairs in _items(text, key)]


def file_sources(text: str) -> dict[str, str]:
    """The files of a task: by name, where each comes from."""
    found = [dict(pairs) for pairs in _items(text, "files")]
    return {_plain(each["name"]): _plain(each["source"]) for each in found if each.keys() >= {"name", "source"}}


def _items(text: str, key: str) -> list[list[tuple[str, str]]]:
    items: list[list[tuple[str, str]]] = []
    inside = False
    for line in text.splitlines():
        if line[:1].strip() and not line.startswith(("-", "#")):
            inside = line.partition(":")[0].strip() == key
        elif inside and (found := ITEM.match(line)):
            items.append([(pair[1], pair[2].strip()) for pair in PAIR.finditer(found[1])])
    return items


def _typed(value: str) -> "Value | list[Value]":
    if value.startswith("["):
        return [_scalar(part.strip()) for part in value[1:-1].split(",") if part.strip()]
    return _scalar(value)


def _scalar(value: str) -> Value:
    if value[:1] in ("'", '"'):
        return _plain(value)
    if value.lower() in WORDS:
        return WORDS[value.lower()]
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value


def _plain(value: str) -> str:
    return value.strip("'\"")
