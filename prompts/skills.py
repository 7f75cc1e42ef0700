"""Skills and commands for clients without prompts, made of the same texts: ``python -m tritonforge.prompts.skills``."""

import argparse
import sys
from pathlib import Path
from typing import Final

from .render import generic
from .roles import PROMPTS, PromptDescription

SKILL_FOLDERS: Final = ("claude/skills", "codex/skills")
COMMAND_FOLDER: Final = "gemini/commands/tritonforge"
"""Its name is the namespace: `/tritonforge:optimize-kernel`."""


def files() -> dict[str, str]:
    """All texts by path, relative to the folder of clients."""
    made: dict[str, str] = {}
    for prompt in PROMPTS:
        name = _dashed(prompt)
        made |= {f"{folder}/{name}/SKILL.md": skill(prompt) for folder in SKILL_FOLDERS}
        made[f"{COMMAND_FOLDER}/{name}.toml"] = command(prompt)
    return made


def skill(prompt: PromptDescription) -> str:
    """A role as a skill of Claude Code or Codex: front matter, then its text."""
    front = f"---\nname: {_dashed(prompt)}\ndescription: {_yaml(f'{prompt.description} {prompt.when}')}\n---\n"
    return f"{front}\n{_about(prompt)}\n\n{generic(prompt)}"


def command(prompt: PromptDescription) -> str:
    """A role as a custom command of Gemini CLI, which puts the user's words in the place of ``{{args}}``.

    Raises:
        ValueError: the text holds what Gemini CLI or TOML would take for more than text.
    """
    text = f"{_about(prompt)}\n\nWhat the user said: {{{{args}}}}\n\n{generic(prompt)}"
    for special in ("'''", "!{", "@{"):
        if special in text:
            raise ValueError(f"{prompt.template}: {special} means something in a command; write it differently")
    # A literal string: backslashes are text.
    return f"description = \"{prompt.description}\"\nprompt = '''\n{text}'''\n"


def _about(prompt: PromptDescription) -> str:
    return (
        "The tools are those of the MCP server tritonforge. Where a run is at hand, "
        f"`get_playbook(role='{prompt.name}', run_id=...)` gives this text with what the run knows."
    )


def _dashed(prompt: PromptDescription) -> str:
    return prompt.name.replace("_", "-")


def _yaml(text: str) -> str:
    """A double-quoted scalar."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def write(folder: Path) -> list[Path]:
    """Write all files below a folder; the paths of those that changed. What no role stands for any more is removed."""
    made = {folder / name: text for name, text in files().items()}
    changed: list[Path] = []
    for owned in (*SKILL_FOLDERS, COMMAND_FOLDER):
        for path in sorted((folder / owned).rglob("*")):
            if path.is_file() and path not in made:
                path.unlink()
                changed.append(path)
    for path, text in made.items():
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        changed.append(path)
    return changed


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", metavar="FOLDER", type=Path, required=True, help="the folder of clients")
    for path in write(parser.parse_args().write):
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
