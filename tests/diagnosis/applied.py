"""Applies a unified diff, strictly: context that differs is an error."""

import re

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+\d+(?:,\d+)? @@")


def applied(text: str, diff: str) -> str:
    """The text after the diff."""
    lines, out, at = text.splitlines(keepends=True), list[str](), 0
    for line in diff.splitlines(keepends=True)[2:]:
        hunk = _HUNK.match(line)
        if hunk is not None:
            start = int(hunk[1]) - (hunk[2] != "0")
            out += lines[at:start]
            at = start
        elif line.startswith("+"):
            out.append(line[1:])
        else:
            assert lines[at] == line[1:], f"line {at + 1}"
            at += 1
            if line.startswith(" "):
                out.append(line[1:])
    return "".join(out + lines[at:])
