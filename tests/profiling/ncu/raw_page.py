"""Reads the raw page that `ncu --import REPORT --csv --page raw --print-units base` prints, to compare readers with."""

import csv
import io
import math
import re

_GROUPED = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")
_PLAIN = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)


def raw_page(csv_text: str) -> list[dict[str, float | str]]:
    """The launches in order: column -> number, rounded by ncu, or text. Lines around the table are passed over."""
    lines = [line for line in csv_text.splitlines(keepends=True) if not line.startswith("==")]
    start = next(i for i, line in enumerate(lines) if line.startswith(('"ID",', "ID,")))
    header, *rows = csv.reader(io.StringIO("".join(lines[start:])))
    # The row of units has no number in front; other lines are chatter.
    launches = [row for row in rows if len(row) == len(header) and row[0].isdecimal()]
    return [{name: _value(text) for name, text in zip(header, row, strict=True)} for row in launches]


def _value(text: str) -> float | str:
    """A number, thousands separators removed, or the text as it is."""
    stripped = text.strip()
    if _GROUPED.fullmatch(stripped):
        return float(stripped.replace(",", ""))
    if _PLAIN.fullmatch(stripped) and math.isfinite(float(stripped)):
        return float(stripped)
    return text
