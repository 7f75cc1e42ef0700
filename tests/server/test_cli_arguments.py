"""Arguments of a tool on the command line, read as its schema says."""

import re
from typing import Any

import pytest

from tritonforge.server.cli import parse_arguments

SCHEMA: dict[str, Any] = {
    "properties": {
        "kernel": {"type": "string"},
        "target": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "cases": {"anyOf": [{"items": {"type": "string"}, "type": "array"}, {"type": "null"}]},
        "seeds": {"type": "integer"},
        "explain": {"type": "boolean"},
        "wait_s": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    },
    "required": ["kernel"],
}


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        (["--kernel", "k.py"], {"kernel": "k.py"}),
        (["--kernel=k.py"], {"kernel": "k.py"}),
        (["--kernel=a=b"], {"kernel": "a=b"}),
        (["--kernel="], {"kernel": ""}),
        (["--kernel", "--strange"], {"kernel": "--strange"}),
        (["--kernel", "def f():\n    pass\n"], {"kernel": "def f():\n    pass\n"}),
        (["--kernel", "k.py", "--target", "h100"], {"kernel": "k.py", "target": "h100"}),
        (["--kernel", "k", "--cases", "a,b"], {"kernel": "k", "cases": ["a", "b"]}),
        (["--kernel", "k", "--cases", "a", "--cases", "b,c"], {"kernel": "k", "cases": ["a", "b", "c"]}),
        (["--kernel", "k", "--cases="], {"kernel": "k", "cases": []}),
        (["--kernel", "k", "--explain"], {"kernel": "k", "explain": "true"}),
        (["--explain", "--kernel", "k"], {"kernel": "k", "explain": "true"}),
        (["--kernel", "k", "--seeds", "5"], {"kernel": "k", "seeds": 5}),
        (["--kernel", "k", "--seeds=-1"], {"kernel": "k", "seeds": -1}),
        (["--kernel", "k", "--wait-s", "5"], {"kernel": "k", "wait_s": 5}),
        (["--kernel", "k", "--wait_s", "5"], {"kernel": "k", "wait_s": 5}),
    ],
)
def test_pairs_of_key_and_value_become_arguments(words: list[str], arguments: dict[str, Any]) -> None:
    assert parse_arguments(words, SCHEMA) == arguments


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "missing: --kernel"),
        (["--kernel"], "--kernel needs a value"),
        (["k.py"], "'k.py' stands alone"),
        (["--kernel", "k.py", "stray"], "'stray' stands alone"),
        (["-k", "k.py"], "'-k' stands alone"),
        (["--kernl", "k.py"], "there is no argument --kernl; there are --kernel, --target"),
        (["--", "k.py"], "there is no argument --;"),
        (["--kernel", "k", "--kernel", "k"], "--kernel is given twice"),
        (["--kernel", "k", "--seeds", "1", "--seeds", "2"], "--seeds is given twice"),
        (["--kernel", "k", "--seeds", "many"], "--seeds must be a whole number, not 'many'"),
        (["--kernel", "k", "--wait-s", "1.5"], "--wait-s must be a whole number"),
    ],
)
def test_words_that_are_no_arguments_are_refused_with_what_is_allowed(words: list[str], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        parse_arguments(words, SCHEMA)


def test_a_tool_without_arguments_takes_none() -> None:
    assert parse_arguments([], {"type": "object"}) == {}
