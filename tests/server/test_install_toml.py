"""TOML files that people keep: one table changes; comments and everything else stay."""

import tomllib

import pytest

from tritonforge.server.install.toml_text import with_table, without_table

PATH = ("servers", "ours")
VALUES = {"command": "/bin/server", "args": ["--fast", 'a "b"\\'], "limit_s": 60}
OURS = '[servers.ours]\ncommand = "/bin/server"\nargs = ["--fast", "a \\"b\\"\\\\"]\nlimit_s = 60\n'
THEIRS = """# Mine.
model = "o3"   # the best one
text = '''
[servers.ours]
'''
list = [
  "[servers.ours]", # no header
  ["]"],
]

[servers.theirs]
command = "npx"

[[many]]
# about the first one
a = 1
"""


@pytest.mark.parametrize("text", ["", THEIRS, THEIRS.replace("\n", "\r\n"), THEIRS + "\n\n"])
def test_a_table_that_comes_and_goes_leaves_the_text_as_it_was(text: str) -> None:
    changed = with_table(text, PATH, VALUES)
    before = tomllib.loads(text)
    assert tomllib.loads(changed) == {**before, "servers": {**before.get("servers", {}), "ours": VALUES}}
    assert changed.startswith(text)
    assert without_table(changed, PATH) == text


@pytest.mark.parametrize("text", ["", THEIRS, "a = 1"])
def test_setting_a_table_twice_changes_nothing_more(text: str) -> None:
    changed = with_table(text, PATH, VALUES)
    assert with_table(changed, PATH, VALUES) == changed


def test_a_new_table_comes_last_after_an_empty_line() -> None:
    assert with_table(THEIRS, PATH, VALUES) == f"{THEIRS}\n{OURS}"
    assert with_table("a = 1", PATH, VALUES) == f"a = 1\n\n{OURS}"


def test_only_values_that_differ_are_written_and_their_comments_stay() -> None:
    text = """[servers.ours] # by hand
  command = "/old"  # where it was
args = [
  "--slow", # why
]
enabled = false
limit_s = 60 # enough

[servers.ours.env]
A = "1"

# about b
[b]
"""
    assert (
        with_table(text, PATH, {**VALUES, "more": 1})
        == """[servers.ours] # by hand
  command = "/bin/server"  # where it was
args = ["--fast", "a \\"b\\"\\\\"]
enabled = false
limit_s = 60 # enough
more = 1

[servers.ours.env]
A = "1"

# about b
[b]
"""
    )


def test_a_table_goes_with_those_below_it_and_without_the_comment_on_the_next() -> None:
    text = f'a = 1\n\n{OURS}\n[servers.ours.env]\nA = "1"\n\n# about b\n[b]\n'
    assert without_table(text, PATH) == "a = 1\n\n# about b\n[b]\n"


def test_a_quoted_header_is_the_same_table() -> None:
    text = '[ servers . "ours" ]\ncommand = "old"\n'
    assert with_table(text, PATH, {"command": "new"}) == '[ servers . "ours" ]\ncommand = "new"\n'
    assert without_table(text, PATH) == ""


@pytest.mark.parametrize("text", ["", THEIRS, "[servers]\n"])
def test_removing_what_is_not_there_changes_nothing(text: str) -> None:
    assert without_table(text, PATH) == text


@pytest.mark.parametrize("text", ['servers.ours.command = "x"\n', 'servers = {ours = {command = "x"}}\n'])
def test_a_table_in_another_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="in another form than under"):
        with_table(text, PATH, VALUES)
    with pytest.raises(ValueError, match="in another form than under"):
        without_table(text, PATH)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = ", "is not TOML"),
        ("servers = 1", "something else than a table in servers"),
        ("a = 1\na = 2", "is not TOML"),
    ],
)
def test_broken_files_are_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        with_table(text, PATH, VALUES)
