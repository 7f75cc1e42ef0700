"""Schemas as they are sent: smaller than the SDK makes them, and they take the same values."""

import json
from typing import Any

import jsonschema
import pytest
from mcp.client import Client

from tests.server.conftest import tools_of
from tritonforge.server.app import build_server
from tritonforge.server.schemas import shorter
from tritonforge.server.settings import Settings

NESTED: dict[str, Any] = {
    "title": "Result",
    "type": "object",
    "required": ["title"],
    "properties": {
        "title": {"title": "Title", "type": "string", "description": "The task's."},
        "default": {"title": "Default", "anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
        "why": {"anyOf": [{"$ref": "#/$defs/Why"}, {"type": "null"}], "default": None},
        "state": {"enum": [{"title": "a value"}], "title": "State"},
        "few": {"items": {"title": "One", "type": "number"}, "maxItems": 2, "type": "array"},
    },
    "$defs": {"Why": {"title": "Why", "type": "object", "properties": {"title": {"title": "T", "type": "null"}}}},
}
SHORT: dict[str, Any] = {
    "type": "object",
    "required": ["title"],
    "properties": {
        "title": {"type": "string", "description": "The task's."},
        "default": {"type": ["integer", "null"]},
        "why": {"anyOf": [{"$ref": "#/$defs/Why"}, {"type": "null"}]},
        "state": {"enum": [{"title": "a value"}]},
        "few": {"items": {"type": "number"}, "maxItems": 2, "type": "array"},
    },
    "$defs": {"Why": {"type": "object", "properties": {"title": {"type": "null"}}}},
}


def test_annotations_are_left_out_and_names_and_values_stay() -> None:
    assert shorter(NESTED, frozenset({"title", "default"}), types_together=True) == SHORT


@pytest.mark.parametrize(
    "value",
    [
        {"title": "t"},
        {"title": 1},
        {"title": "t", "default": None, "why": {"title": None}},
        {"title": "t", "default": "x"},
        {"title": "t", "why": {"title": 1}},
        {"title": "t", "state": {"title": "a value"}, "few": [1.5, 2]},
        {"title": "t", "state": {}},
        {"title": "t", "few": [1, 2, 3]},
        {},
    ],
)
def test_the_same_values_are_taken(value: dict[str, Any]) -> None:
    # The types that jsonschema ships are incomplete.
    before: Any = jsonschema.Draft202012Validator(NESTED)
    after: Any = jsonschema.Draft202012Validator(SHORT)
    assert before.is_valid(value) is after.is_valid(value)


@pytest.mark.anyio
async def test_clients_are_sent_no_titles_of_fields_and_all_descriptions(settings: Settings) -> None:
    server = build_server(settings)
    async with Client(server) as client:
        sent = await tools_of(client)
    for tool in await server.list_tools():
        small, whole = sent[tool.name], tool
        assert (small.name, small.title, small.description) == (whole.name, whole.title, whole.description)
        for ours, theirs in ((small.input_schema, whole.input_schema), (small.output_schema, whole.output_schema)):
            assert ours is not None
            assert theirs is not None
            texts = [json.dumps(schema) for schema in (ours, theirs)]
            assert len(texts[0]) < len(texts[1])
            assert texts[0].count('"description": "') == texts[1].count('"description": "')
        assert all("title" not in argument for argument in small.input_schema["properties"].values())
        assert {name: argument.get("default") for name, argument in small.input_schema["properties"].items()} == {
            name: argument.get("default") for name, argument in whole.input_schema["properties"].items()
        }
