"""Kernel files with knobs set: text whose literals were replaced where they stand. What doesn't parse is not made."""

import ast
import difflib
from collections.abc import Mapping, Sequence
from typing import Final

from ..diagnosis.edits import CONTEXT_LINES, SHOWN_AS, Edit
from ..diagnosis.source.syntax import split_lines
from .knobs import OPTIONS, Value
from .space import Knob, Point, Space

KEYS_LIMIT: Final = 4


def variant(text: str, space: Space, first: Point, *others: Point) -> str | None:
    """The file at a point; autotuners' lists hold it, and other points where they are given.

    None where the edited file would be no Python, which a file that is stranger than it looks may lead to.
    """
    chosen = [first, *others]
    edits = [
        Edit(slot.line, slot.column, slot.end_line, slot.end_column, f"{slot.before}{value!r}{slot.after}")
        for knob, value in zip(space.knobs, first, strict=True)
        for slot in knob.slots
        if value != knob.present
    ]
    for listing in space.listings:
        # Also at the file's own point: the file as it stands tries its whole list.
        slot = listing.slot
        base = listing.configurations[0]
        configs = dict.fromkeys(
            _config({**base, **_of_kernel(space, point, listing.kernel)}, listing.names) for point in chosen
        )
        edits.append(Edit(slot.line, slot.column, slot.end_line, slot.end_column, f"[{', '.join(configs)}]"))
    return edited(text, edits)


def _of_kernel(space: Space, point: Point, kernel: str) -> dict[str, int | bool]:
    """What a point sets in an autotuner's list."""
    return {
        knob.parameter: value
        for knob, value in zip(space.knobs, point, strict=True)
        if knob.kernel == kernel and not knob.slots and value is not None
    }


def _config(values: Mapping[str, Value], names: Sequence[str]) -> str:
    """`triton.Config(...)` in words."""
    kwargs = ", ".join(f"{name!r}: {values[name]!r}" for name in names)
    options = "".join(f", {name}={values[name]!r}" for name in OPTIONS if values.get(name) is not None)
    return f"triton.Config({{{kwargs}}}{options})"


def autotune_list(space: Space, kernel: str, points: Sequence[Point], key: Sequence[str]) -> str:
    """`@triton.autotune(...)` with these points, for a kernel.

    Args:
        space: that they are from.
        kernel: its function's name.
        points: without repetition, the best first.
        key: arguments on which the choice depends.
    """
    own = [knob for knob in space.knobs if knob.kernel == kernel and knob.role != "grid"]
    names = [knob.parameter for knob in own if knob.parameter not in OPTIONS]
    listed = [each.configurations[0] for each in space.listings if each.kernel == kernel]
    base = listed[0] if listed else {}
    names = list(dict.fromkeys([*names, *(name for name in base if name not in OPTIONS)]))
    configs: dict[str, None] = {}
    for point in points:
        values = {**base, **{knob.parameter: _said(knob, space, point) for knob in own}}
        configs[_config(values, names)] = None
    lines = "".join(f"        {config},\n" for config in configs)
    keys = ", ".join(repr(name) for name in key[:KEYS_LIMIT])
    return f"@triton.autotune(\n    configs=[\n{lines}    ],\n    key=[{keys}],\n)"


def _said(knob: Knob, space: Space, point: Point) -> Value:
    value = point[space.knobs.index(knob)]
    # A limit that is not reached is no length.
    return knob.assumed if value is None or (value == knob.present and knob.assumed is not None) else value


def diff(before: str, after: str) -> str:
    """The unified diff of two texts."""
    lines = difflib.unified_diff(
        split_lines(before), split_lines(after), f"a/{SHOWN_AS}", f"b/{SHOWN_AS}", n=CONTEXT_LINES
    )
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def edited(text: str, edits: Sequence[Edit]) -> str | None:
    """A text with parts replaced; None where it would be no Python."""
    lines = [line.encode() for line in split_lines(text)]
    after: tuple[int, int] | None = None
    # Two edits at one place are insertions: those that were made first stand first.
    for _, edit in sorted(enumerate(edits), key=lambda one: (one[1].line, one[1].column, one[0]), reverse=True):
        if (
            edit.line < 1
            or edit.end_line > len(lines)
            or (after is not None and (edit.end_line, edit.end_column) > after)
        ):
            return None
        after = edit.line, edit.column
        whole = lines[edit.line - 1][: edit.column] + edit.text.encode() + lines[edit.end_line - 1][edit.end_column :]
        lines[edit.line - 1 : edit.end_line] = [whole]
    edited = b"".join(lines).decode(errors="replace")
    try:
        ast.parse(edited)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return edited
