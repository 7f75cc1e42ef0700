"""Values from elsewhere, as Markdown that they can't break out of."""

import re


def literal(value: str, language: str = "") -> str:
    """`value` as Markdown code that it can't break out of: a code span, or a fenced block for many lines."""
    body = value.strip("\r\n")
    if len(body.splitlines()) > 1:
        return f"\n\n{fenced(body, language)}\n"
    delimiter = "`" * (_longest_run(value) + 1)
    body = body.strip()
    # A space keeps the value's own backticks apart from the delimiter; Markdown strips it again.
    padding = " " if body.startswith("`") or body.endswith("`") else ""
    return f"{delimiter}{padding}{body}{padding}{delimiter}"


def fenced(value: str, language: str = "") -> str:
    """`value` as a fenced block whose fence is longer than any run of backticks in it."""
    fence = "`" * max(_longest_run(value) + 1, 3)
    body = value.strip("\r\n")
    return f"{fence}{language}\n{body}\n{fence}"


def _longest_run(value: str) -> int:
    """Of backticks."""
    return max((len(run) for run in re.findall("`+", value)), default=0)
