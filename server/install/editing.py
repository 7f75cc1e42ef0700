"""A client's configuration with our entry in it, or without: texts in, texts out, and nothing else in them changes."""

import json
from collections.abc import Container
from itertools import count
from typing import Any, cast

from . import json_text, toml_text
from .clients import Client, Entry, Server, is_ours

_MARK = "\ufeff"
"""Some editors put it at the beginning of UTF-8 files."""


class NameTaken(ValueError):
    """Another server has the name; `free` is one that none has."""

    def __init__(self, message: str, free: str) -> None:
        super().__init__(message)
        self.free = free


def installed(text: str, client: Client, name: str, server: Server) -> str:
    """The text with our entry in it; what its user added to that entry stays.

    Raises:
        NameTaken: another server has that name.
        ValueError: it can't be read, or can't be changed without harm.
    """
    mark, body = _unmarked(text)
    values = _read(body, client)
    before = _entry(values, client, name)
    if before is not None and not is_ours(before):
        free = _free(name, _servers(values, client))
        raise NameTaken(f"has another server under the name {name!r} already; take another one: --name {free}", free)
    entry = client.complete(server, before)
    if client.form == "toml":
        changed = {
            key: value for key, value in entry.items() if before is None or key not in before or before[key] != value
        }
        after = toml_text.with_table(body, (client.table, name), changed)
    else:
        after = json_text.with_member(body, (client.table, name), entry)
    expected = {**values, client.table: {**_servers(values, client), name: entry}}
    return mark + _checked(after, client, expected)


def uninstalled(text: str, client: Client, name: str) -> str:
    """The text without our entry; the same text where it has none.

    Raises:
        ValueError: as `installed`.
    """
    mark, body = _unmarked(text)
    values = _read(body, client)
    before = _entry(values, client, name)
    if before is None:
        return text
    if not is_ours(before):
        raise ValueError(f"has a server under the name {name!r} that does not start tritonforge-mcp; remove it by hand")
    others = {other: entry for other, entry in _servers(values, client).items() if other != name}
    expected = {**values, client.table: others}
    if client.form == "toml":
        after = toml_text.without_table(body, (client.table, name))
        if not others and client.table not in _read(after, client):
            del expected[client.table]
    else:
        after = json_text.without_member(body, (client.table, name))
    return mark + _checked(after, client, expected)


def holds_ours(text: str, client: Client) -> bool:
    """Whether this server is among the client's servers, under any name.

    Raises:
        ValueError: it can't be read.
    """
    values = _read(_unmarked(text)[1], client)
    return any(is_ours(cast(Entry, entry)) for entry in _servers(values, client).values() if isinstance(entry, dict))


def snippet(client: Client, name: str, server: Server) -> str:
    """What to write into an empty file, to be added by hand."""
    if client.form == "toml":
        return toml_text.with_table("", (client.table, name), client.complete(server))
    return json.dumps({client.table: {name: client.complete(server)}}, indent=2, ensure_ascii=False) + "\n"


def _free(name: str, taken: Container[str]) -> str:
    """A name that none has, with a number."""
    return next(free for number in count(2) if (free := f"{name[:36]}-{number}") not in taken)


def _unmarked(text: str) -> tuple[str, str]:
    return (_MARK, text[1:]) if text.startswith(_MARK) else ("", text)


def _read(text: str, client: Client) -> dict[str, Any]:
    return toml_text.read(text) if client.form == "toml" else json_text.read(text)


def _servers(values: dict[str, Any], client: Client) -> dict[str, Any]:
    servers: object = values.get(client.table, {})
    if not isinstance(servers, dict):
        raise ValueError(f"holds something else than servers in {client.table!r}")
    return cast(dict[str, Any], servers)


def _entry(values: dict[str, Any], client: Client, name: str) -> dict[str, Any] | None:
    entry: object = _servers(values, client).get(name)
    if entry is not None and not isinstance(entry, dict):
        raise ValueError(f"holds something else than a server in {client.table}.{name}")
    return cast(dict[str, Any] | None, entry)


def _checked(after: str, client: Client, expected: dict[str, Any]) -> str:
    """The text, once it is known to hold exactly what it should.

    Raises:
        ValueError: it does not.
    """
    try:
        right = _canonical(_read(after, client)) == _canonical(expected)
    except ValueError:
        right = False
    if not right:
        raise ValueError("is written in a way that can't be changed here without touching what else it holds")
    return after


def _canonical(values: dict[str, Any]) -> str:
    """Same for the same values: unlike ``==`` also for those that hold a NaN, and never for 1 and true."""
    return json.dumps(values, sort_keys=True, default=repr)
