"""Edits of a kernel file as unified diffs. One is only offered where the edited file still parses."""

import ast
import difflib
from collections.abc import Sequence
from typing import Final, NamedTuple

from .source.syntax import KernelFile, KernelFunction, keyword, split_lines

CONTEXT_LINES: Final = 2
SHOWN_AS: Final = "kernel.py"


class Edit(NamedTuple):
    """Text that takes the place of other text."""

    line: int
    column: int
    """In bytes of UTF-8, as the syntax tree counts."""
    end_line: int
    end_column: int
    text: str


def diff(file: KernelFile, edits: Sequence[Edit]) -> str | None:
    """The unified diff of some edits; None where they overlap or leave what is no Python."""
    lines = [line.encode() for line in split_lines(file.text)]
    after: tuple[int, int] | None = None
    for edit in sorted(edits, key=lambda one: (one.line, one.column), reverse=True):
        end = edit.end_line, edit.end_column
        if edit.line < 1 or edit.end_line > len(lines) or (after is not None and end > after):
            return None
        after = edit.line, edit.column
        first, last = lines[edit.line - 1], lines[edit.end_line - 1]
        whole = first[: edit.column] + edit.text.encode() + last[edit.end_column :]
        lines[edit.line - 1 : edit.end_line] = [whole]
    edited = b"".join(lines).decode(errors="replace")
    try:
        ast.parse(edited)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    found = difflib.unified_diff(
        split_lines(file.text),
        split_lines(edited),
        f"a/{SHOWN_AS}",
        f"b/{SHOWN_AS}",
        n=CONTEXT_LINES,
    )
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in found) or None


def replaced(node: ast.expr, text: str) -> Edit:
    """Another expression in a node's place."""
    return Edit(node.lineno, node.col_offset, node.end_lineno or node.lineno, node.end_col_offset or 0, text)


def with_argument(file: KernelFile, call: ast.Call, argument: str) -> Edit | None:
    """One more keyword argument at a call's end; None where its end can't be read."""
    line, column = call.end_lineno or call.lineno, (call.end_col_offset or 1) - 1
    if not call.args and not call.keywords:
        return Edit(line, column, line, column, argument)
    last = max(
        (*call.args, *(each.value for each in call.keywords)), key=lambda one: (one.end_lineno, one.end_col_offset)
    )
    at, place = last.end_lineno or line, last.end_col_offset or column
    between = file.lines[at - 1].encode()[place:].decode(errors="replace")
    if at == line:
        between = file.lines[at - 1].encode()[place:column].decode(errors="replace")
    if between.strip(" ,)") or (")" in between and at == line):
        return None  # a comment or parentheses around the last argument
    return Edit(at, place, at, place, f", {argument}")


def annotated(function: KernelFunction, names: Sequence[str]) -> list[Edit]:
    """Arguments turned into constants of the compilation."""
    arguments = [*function.node.args.posonlyargs, *function.node.args.args, *function.node.args.kwonlyargs]
    found = {argument.arg: argument for argument in arguments}
    edits: list[Edit] = []
    for name in names:
        argument = found.get(name)
        if argument is None:
            return []
        end = argument.end_lineno or argument.lineno, argument.end_col_offset or 0
        edits.append(Edit(argument.lineno, argument.col_offset, *end, f"{name}: tl.constexpr"))
    return edits


def launch_option(file: KernelFile, kernel: str, option: str, now: int) -> ast.expr | None:
    """Where the file says `option=now` for a kernel, if it says so exactly once."""
    found: list[ast.expr] = []
    function = file.kernels.get(kernel)
    for config in function.configs if function is not None else ():
        value = keyword(config, option)
        if value is not None:
            found.append(value)
    for call in file.calls:
        if isinstance(call.func, ast.Subscript) and isinstance(call.func.value, ast.Name):
            value = keyword(call, option) if call.func.value.id == kernel else None
            if value is not None:
                found.append(value)
    if len(found) == 1 and isinstance(found[0], ast.Constant) and found[0].value == now:
        return found[0]
    return None
