"""Skills and commands: the texts of the prompts, in the forms of the clients, as committed."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tritonforge.prompts.render import generic
from tritonforge.prompts.roles import PROMPTS, PromptDescription
from tritonforge.prompts.skills import COMMAND_FOLDER, SKILL_FOLDERS, command, files, skill, write

CLIENTS = Path(__file__).parents[2] / "clients"
REFRESH = "write them anew: python -m tritonforge.prompts.skills --write clients"

every_prompt = pytest.mark.parametrize("prompt", PROMPTS, ids=lambda prompt: prompt.name)


def test_what_is_committed_is_what_is_made() -> None:
    made = files()
    for name, text in made.items():
        path = CLIENTS / name
        assert path.is_file(), f"{name} is missing; {REFRESH}"
        assert path.read_text(encoding="utf-8") == text, f"{name} differs; {REFRESH}"
    owned = [CLIENTS / folder for folder in (*SKILL_FOLDERS, COMMAND_FOLDER)]
    committed = {str(path.relative_to(CLIENTS)) for folder in owned for path in folder.rglob("*") if path.is_file()}
    assert committed == set(made), REFRESH


@every_prompt
def test_a_skill_has_the_front_matter_that_clients_ask_for_and_the_text_of_the_prompt(
    prompt: PromptDescription,
) -> None:
    text = skill(prompt)
    front = re.match(r'---\nname: ([a-z-]+)\ndescription: "([^"\n]+)"\n---\n', text)
    assert front
    assert front[1] == prompt.name.replace("_", "-")
    assert len(front[1]) <= 64
    assert len(front[2]) <= 1024
    assert "Use when" in front[2]
    assert text.endswith(generic(prompt))
    assert f"get_playbook(role='{prompt.name}'" in text


@every_prompt
def test_a_command_is_toml_with_the_text_of_the_prompt_and_a_place_for_the_users_words(
    prompt: PromptDescription,
) -> None:
    read = tomllib.loads(command(prompt))
    assert read["description"] == prompt.description
    assert read["prompt"].endswith(generic(prompt))
    assert read["prompt"].count("{{args}}") == 1
    assert "!{" not in read["prompt"]
    assert "@{" not in read["prompt"]


def test_writing_changes_only_what_differs_and_removes_what_no_role_stands_for(tmp_path: Path) -> None:
    other = tmp_path / "claude" / ".mcp.json"
    other.parent.mkdir()
    other.write_text("{}")
    assert len(write(tmp_path)) == len(files())
    assert write(tmp_path) == []
    old = tmp_path / SKILL_FOLDERS[0] / "old-role" / "SKILL.md"
    old.parent.mkdir()
    old.write_text("old")
    edited = tmp_path / COMMAND_FOLDER / "parametrize.toml"
    edited.write_text("edited")
    assert write(tmp_path) == [old, edited]
    assert not old.exists()
    assert other.read_text() == "{}"


def test_the_script_writes_into_the_folder_that_it_is_given(tmp_path: Path) -> None:
    script = [sys.executable, "-m", "tritonforge.prompts.skills", "--write", str(tmp_path)]
    done = subprocess.run(script, capture_output=True, text=True, check=True)
    assert len(done.stdout.splitlines()) == len(files())
    assert (tmp_path / "claude/skills/optimize-kernel/SKILL.md").is_file()
