"""Planted defects: kernel files of realistic size with one fault each, which are their own tasks, and their rewrites.

A file of `defects/` ends with two constants, which are read and never run: `DEFECT`, the id of the finding that has to
be on top with a part of its line, and `EDITS`, the rewrite as pairs of texts, each of which occurs once above them.
"""

import ast
from pathlib import Path
from typing import Any, Final, NamedTuple

FOLDER: Final = Path(__file__).parent / "defects"
CASE: Final = "large"
"""The case of realistic size: every file has it."""
SMALL: Final = "small"
"""The one for the interpreter: every file has it as well."""


class Defect(NamedTuple):
    """One of them."""

    name: str
    id: str
    """Of the finding, such as `T1`."""
    line: int
    """With the fault."""
    text: str
    """Of the file."""
    fixed: str
    """The same after the rewrite."""


def names() -> list[str]:
    """Of all files."""
    return sorted(path.stem for path in FOLDER.glob("*.py"))


def read_defect(name: str) -> Defect:
    """One file."""
    text = (FOLDER / f"{name}.py").read_text()
    constants = _constants(ast.parse(text))
    above = text.index("\nDEFECT = ") + 1
    code, rest = text[:above], text[above:]
    mark = constants["DEFECT"]["mark"]
    assert code.count(mark) == 1, f"{name}: the mark occurs {code.count(mark)} times"
    fixed = code
    for old, new in constants["EDITS"]:
        assert fixed.count(old) == 1, f"{name}: {old!r} occurs {fixed.count(old)} times"
        fixed = fixed.replace(old, new)
    line = code.count("\n", 0, code.index(mark)) + 1
    return Defect(name, constants["DEFECT"]["id"], line, text, fixed + rest)


def _constants(tree: ast.Module) -> dict[str, Any]:
    return {
        target.id: ast.literal_eval(statement.value)
        for statement in tree.body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name) and target.id in ("DEFECT", "EDITS")
    }
