"""Texts of others inside Markdown."""

import pytest

from tritonforge.server.campaign.report_text import code, extent, number, prose, span


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, of x = 3", "plain, of x = 3"),
        ("compile_error", "compile_error"),
        ("__init__ of _a", r"\_\_init\_\_ of \_a"),
        ("a|b", r"a\|b"),
        (r"a\|b", r"a\\\|b"),
        ("two\nlines\t\x1b[2J", r"two lines ?\[2J"),
        ("<b>*x*</b> [l](u) `c` ~~d~~", r"\<b\>\*x\*\</b\> \[l\](u) \`c\` \~\~d\~\~"),
        ("", ""),
    ],
)
def test_prose_shows_what_it_was_given(text: str, shown: str) -> None:
    assert prose(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("_kernel<x>", "`_kernel<x>`"),
        ("two\nlines\x1b", "`two lines?`"),
        # What would end the code, or the cell, is no code.
        ("a`b", r"a\`b"),
        ("a|b", r"a\|b"),
        ("", ""),
    ],
)
def test_code_is_code_unless_it_would_end(text: str, shown: str) -> None:
    assert code(text) == shown


def test_long_texts_are_cut() -> None:
    assert len(code("x" * 500)) < 100
    assert prose("x " * 500).endswith(" ...")


def test_numbers_and_intervals_are_blank_where_there_are_none() -> None:
    assert (number(None), span(None, None), span(1.0, None)) == ("", "", "")
    assert (number(1234.5678), number(0.0, 0), span(1, 2.0005)) == ("1,234.568", "0", "1.000 to 2.001")
    assert (extent(1.001, 1.002, 2), extent(1, 2, 0)) == ("1.00", "1 to 2")
