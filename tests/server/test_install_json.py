"""JSON files of other programs: one member changes, and not one character beside it."""

import json

import pytest

from tritonforge.server.install.json_text import read, with_member, without_member

ENTRY = {"command": "/bin/server", "args": ["--fast"]}
PATH = ("servers", "ours")
FOUR = """{
    "theme": "dark",
    "servers": {
        "theirs": {"command": "npx", "args": [ "-y", "x" ]}
    },
    "last":   1.0
}
"""
STYLES = [
    pytest.param(FOUR, id="four spaces"),
    pytest.param(FOUR.replace("    ", "\t"), id="tabs"),
    pytest.param(FOUR.replace("\n", "\r\n"), id="line breaks of Windows"),
    pytest.param('{"theme": "dark", "servers": {"theirs": {"args": []}}, "last": "\\"}{, \\u00e9"}', id="one line"),
    pytest.param('{\n  "servers": {}\n}', id="no line break at the end"),
    pytest.param('{"servers":{},"é":"☃"}\n', id="other letters"),
]


@pytest.mark.parametrize("text", STYLES)
def test_a_member_that_comes_and_goes_leaves_the_text_as_it_was(text: str) -> None:
    changed = with_member(text, PATH, ENTRY)
    before = read(text)
    assert json.loads(changed) == {**before, "servers": {**before["servers"], "ours": ENTRY}}
    assert without_member(changed, PATH) == text


@pytest.mark.parametrize("text", STYLES)
def test_setting_a_member_twice_changes_nothing_more(text: str) -> None:
    changed = with_member(text, PATH, ENTRY)
    assert with_member(changed, PATH, ENTRY) == changed


def test_a_new_member_is_indented_as_its_neighbours_are() -> None:
    assert with_member(FOUR, PATH, ENTRY) == FOUR.replace(
        '"x" ]}\n',
        """"x" ]},
        "ours": {
            "command": "/bin/server",
            "args": [
                "--fast"
            ]
        }
""",
    )


def test_line_breaks_of_windows_are_used_where_the_file_has_them() -> None:
    changed = with_member(FOUR.replace("\n", "\r\n"), PATH, ENTRY)
    assert "\n" not in changed.replace("\r\n", "")


def test_a_replaced_member_stays_in_its_place() -> None:
    text = '{\n  "servers": {\n    "ours": {\n      "command": "old"\n    },\n    "theirs": 1\n  }\n}\n'
    changed = with_member(text, PATH, ENTRY)
    assert list(json.loads(changed)["servers"]) == ["ours", "theirs"]
    assert without_member(changed, PATH) == '{\n  "servers": {\n    "theirs": 1\n  }\n}\n'


def test_a_member_that_says_the_same_in_another_form_stays_as_it_is_written() -> None:
    text = '{\n  "servers": {"ours": {"args": [ "--fast" ],\n "command": "/bin/server"}}\n}\n'
    assert with_member(text, PATH, ENTRY) == text


def test_a_replaced_member_stays_on_the_line_that_its_object_is_on() -> None:
    text = '{\n  "servers": {"ours": 1, "theirs": 2}\n}\n'
    assert with_member(text, PATH, [3, 4]) == text.replace("1", "[3, 4]")


@pytest.mark.parametrize("text", ["", " \n", "{}", "{ }\n"])
def test_an_empty_file_gets_two_spaces_an_indent(text: str) -> None:
    assert with_member(text, ("servers", "ours"), 1).strip() == '{\n  "servers": {\n    "ours": 1\n  }\n}'


@pytest.mark.parametrize("text", ["{}", '{"servers": {}}', '{"servers": {"theirs": 1}}', '{"servers": 5}', ""])
def test_removing_what_is_not_there_changes_nothing(text: str) -> None:
    assert without_member(text, PATH) == text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{\n  // mine\n  "servers": {}\n}', "comments"),
        ('{\n  "servers": {} /* mine */\n}', "comments"),
        ('{"servers": {},}', "is not JSON"),
        ("{", "is not JSON"),
        ("[]", "holds no JSON object"),
        ('{"servers": {}, "servers": {}}', "'servers' twice"),
        ('{"servers": []}', "something else than an object in servers"),
    ],
)
def test_what_is_no_plain_json_object_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        with_member(text, PATH, ENTRY)
