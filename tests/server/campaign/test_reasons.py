"""Reasons as they are kept: in a line, and without the paths of this machine."""

import pytest

from tritonforge.server.campaign.reasons import CHARACTERS, line, without_paths


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("no task can be made of /home/me/kernels/sin.py: it has f", "no task can be made of sin.py: it has f"),
        ('File "/usr/lib/python3.11/ast.py", line 3', 'File "ast.py", line 3'),
        ("in ~/kernels/sub/a_b-c.py.", "in a_b-c.py."),
        ("the folder /home/me/kernels/ is empty", "the folder kernels is empty"),
        ("python /opt/agent.py --out=/tmp/x/y", "python agent.py --out=y"),
        ("100 GB/s, 1/2/3, and/or, x = a / b / c", "100 GB/s, 1/2/3, and/or, x = a / b / c"),
        ("see https://example.org/a/b.html", "see https://example.org/a/b.html"),
        ("sub/kernels/a.py stays, and /tmp too", "sub/kernels/a.py stays, and /tmp too"),
    ],
)
def test_of_paths_the_names_are_left(text: str, told: str) -> None:
    assert without_paths(text) == told


def test_a_reason_is_one_printable_line() -> None:
    assert line("two\n  lines\x1b[2J \udc80") == "two lines?[2J ?"
    assert len(line("long " * 1000)) <= CHARACTERS
