"""What is seen of a campaign while it runs."""

import io
import os
import re
from typing import Any

import pytest

from tests.server.campaign.made_up_records import gained, made
from tritonforge.server.campaign.table import Live, columns, duration


class Terminal(io.StringIO):
    """A terminal that shows what is on it."""

    encoding = "utf-8"  # pyright: ignore[reportAssignmentType, reportIncompatibleVariableOverride]

    def isatty(self) -> bool:
        return True

    @property
    def screen(self) -> list[str]:
        lines, row = [""], 0
        for part in re.split(r"(\x1b\[\d*[A-Z]|\n)", self.getvalue()):
            if part == "\n":
                row += 1
                lines += [""] if row == len(lines) else []
            elif part == "\x1b[J":
                lines[row:] = [""]
            elif up := re.fullmatch(r"\x1b\[(\d+)F", part):
                row -= int(up[1])
                assert row >= 0, "above the first line"
            elif part:
                assert part.isprintable()
                lines[row] += part
        return lines


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def a_capable_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")


def live(terminal: io.StringIO, total: int = 4, *, width: int = 100, height: int = 30, **given: Any) -> Live:
    given = {"records": [], "parallel": 1, "say": lambda line: None, "clock": Clock(), **given}  # pyright: ignore[reportUnknownLambdaType]
    return Live(total=total, terminal=terminal, size=lambda: os.terminal_size((width, height)), **given)


def test_a_terminal_shows_what_is_worked_on_and_what_is_through() -> None:
    terminal, clock = Terminal(), Clock()
    with live(terminal, clock=clock) as table:
        table.started("softmax", "NVIDIA H200")
        clock.now += 5
        table.staged("softmax", "measuring the baseline")
        clock.now += 65
        table.finished(gained("sin", 2.0, attempts=3, seconds={"total": 62.0}))
        assert terminal.screen == [
            "sin      1 min 02 s  gained 2.000x (1.980 to 2.020), 3 candidates",
            "softmax  1 min 10 s  NVIDIA H200: measuring the baseline, 1 min 05 s",
            "1/4 through, 1 measured, 1 sped up by 5 % or more, 0 failed, geometric mean 2.000x of 1",
            "1 min 10 s so far, about 2 min 04 s left",
            "",
        ]
        table.finished(made("softmax", "no_gain", why="nothing was faster", seconds={"total": 70.0}))
    assert terminal.screen[1] == "softmax  1 min 10 s  no gain: nothing was faster"
    assert terminal.screen[2].startswith(
        "2/4 through, 2 measured, 1 sped up by 5 % or more, 0 failed, geometric mean 1.414x of 2"
    )


def test_it_is_drawn_in_place() -> None:
    terminal = Terminal()
    with live(terminal) as table:
        for number in range(40):
            table.started(f"k{number}", None)
            table.finished(made(f"k{number}", "no_gain"))
    # The last eight, two lines of totals, and the cursor's.
    assert len(terminal.screen) == 8 + 2 + 1
    assert terminal.screen[0].startswith("k32 ")


@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 5), (20, 3), (5, 2), (1, 1), (200, 4)])
def test_it_fits_whatever_the_terminal_is(width: int, height: int) -> None:
    terminal = Terminal()
    with live(terminal, width=width, height=height) as table:
        for number in range(6):
            table.started(f"{number}" + "宽" * 30, "NVIDIA H200")
            table.finished(made(f"{number}" * 50, "baseline_failed", failure_kind="wrong", why="long " * 50))
        for lines in (table.lines(width, height), terminal.screen[:-1]):
            assert len(lines) <= max(1, height)
            assert all(columns(line) <= width for line in lines)


def test_what_is_cut_says_so() -> None:
    with live(Terminal()) as table:
        table.finished(made("k" * 40, "failed", why="long " * 50))
        (line, *_) = table.lines(60, 5)
    assert line.startswith("k" * 29 + "...  ")
    assert len(line) <= 60
    assert line.endswith("...")


@pytest.mark.parametrize(("text", "width"), [("abc", 3), ("宽", 2), ("e\u0301", 1), ("", 0)])
def test_letters_take_as_many_columns_as_terminals_give_them(text: str, width: int) -> None:
    assert columns(text) == width


def test_what_is_worked_on_is_shown_rather_than_what_is_through() -> None:
    terminal = Terminal()
    with live(terminal) as table:
        for name in "abc":
            table.finished(made(name, "no_gain"))
        for name in "xy":
            table.started(name, "H200")
        assert [line[0] for line in table.lines(80, 5)] == ["c", "x", "y", "3", "0"]
        assert [line[0] for line in table.lines(80, 3)] == ["x", "3", "0"]


def test_names_stages_and_reasons_are_printed_and_not_obeyed() -> None:
    terminal, said, hostile = Terminal(), list[str](), "evil\x1b[2J\nname\u202e\x07"
    with live(terminal) as table:
        table.started(hostile, hostile)
        table.staged(hostile, hostile)
        table.halted(hostile, hostile)
        table.finished(made("k", "failed", failure_kind=hostile, why=hostile))
        assert any(line.startswith("evil?[2J name??") for line in terminal.screen)
    with live(io.StringIO(), say=said.append) as table:
        table.finished(made(hostile, "failed", failure_kind=hostile, why=hostile))
        table.halted(hostile, hostile)
    assert len(said) == 3
    assert all(line.isprintable() for line in said)


def test_a_terminal_that_lacks_letters_gets_others() -> None:
    class Plain(Terminal):
        encoding = "ascii"  # pyright: ignore[reportAssignmentType]

    terminal = Plain()
    with live(terminal) as table:
        table.finished(made("größe", "no_gain"))
    assert terminal.getvalue().isascii()


def test_without_a_terminal_each_kernel_has_one_line_and_stages_none() -> None:
    stream, said = io.StringIO(), list[str]()
    with live(stream, total=2, say=said.append, clock=Clock()) as table:
        table.started("sin", "H200")
        table.staged("sin", "measuring the baseline")
        assert said == []
        table.finished(gained("sin", 2.0, attempts=1, seconds={"total": 62.0}))
        table.finished(made("cos", "not_loaded", failure_kind="no_entry", why="it launches nothing"))
    assert said == [
        "[1/2] sin: gained 2.000x (1.980 to 2.020), 1 candidate, 1 min 02 s",
        "[2/2] cos: not loaded (no_entry): it launches nothing",
        "2/2 through, 1 measured, 1 sped up by 5 % or more, 1 failed, geometric mean 2.000x of 1, 0 s so far",
    ]
    assert stream.getvalue() == ""


def test_a_terminal_without_a_movable_cursor_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    terminal, said = Terminal(), list[str]()
    with live(terminal, say=said.append) as table:
        table.finished(made("a", "no_gain"))
    assert terminal.getvalue() == ""
    assert said[0] == "[1/4] a: no gain"


def test_a_process_that_ends_is_told_above_the_table_once() -> None:
    terminal = Terminal()
    with live(terminal) as table:
        table.started("a", "H200")
        table.halted("GPU 0", "its process ended with code 1")
        table.staged("a", "again")
    assert [line.split(":")[0] for line in terminal.screen[:2]] == ["GPU 0", "a  0 s  H200"]
    assert sum("code 1" in line for line in terminal.screen) == 1


def test_kernels_whose_process_ended_are_worked_on_no_more() -> None:
    terminal = Terminal()
    with live(terminal, parallel=2) as table:
        table.started("a", "GPU 0")
        table.started("b", "GPU 1")
        table.halted("GPU 0", "its process was ended by SIGKILL", ["a"])
        table.staged("a", "again")
        assert [line[0] for line in table.lines(80, 5)] == ["b", "0", "0"]
    assert terminal.screen[0] == "GPU 0: its process was ended by SIGKILL (it worked on a)"
    assert terminal.screen[1].startswith("b  0 s  GPU 1: begun")


def test_where_tasks_alone_are_made_these_are_counted() -> None:
    said = list[str]()
    with live(io.StringIO(), total=3, say=said.append, only_tasks=True, records=[made("x", "not_loaded")]) as table:
        table.prepared("a", 2)
        table.prepared("a", 2)
        table.finished(made("b", "not_loaded", why="it launches nothing"))
    assert said == [
        "[2/3] a: a task with 2 cases",
        "[2/3] a: a task with 2 cases",
        "[3/3] b: not loaded: it launches nothing",
        "3/3 looked at, 1 with a task, 2 without, 0 s so far",
    ]
    terminal = Terminal()
    with live(terminal, total=3, only_tasks=True) as table:
        table.prepared("a", 2)
        assert terminal.screen[0] == "1/3 looked at, 1 with a task, 0 without"


def test_tasks_are_not_told_of_where_more_is_done() -> None:
    said = list[str]()
    with live(io.StringIO(), say=said.append) as table:
        table.prepared("a", 2)
        assert said == []


def test_tasks_that_are_being_made_are_shown_and_counted() -> None:
    terminal, clock = Terminal(), Clock()
    with live(terminal, total=6, width=200, clock=clock, records=[made("x", "not_loaded")]) as table:
        for name in "abc":
            table.preparing(name, "GPU 0")
        clock.now += 30
        table.prepared("a", 2)
        assert terminal.screen == [
            "b  30 s  GPU 0: making its task, 30 s",
            "c  30 s  GPU 0: making its task, 30 s",
            "1/6 through, 1 more have a task, 0 measured, 0 sped up by 5 % or more, 1 failed, no speed-up known",
            "30 s so far, about 30 s left for tasks, then unknown",
            "",
        ]
        table.finished(made("b", "not_loaded", why="it launches nothing"))
        table.prepared("c", 1)
        table.started("a", "GPU 0")
        assert terminal.screen[:2] == ["b       not loaded: it launches nothing", "a  0 s  GPU 0: begun, 0 s"]
        # None is being made any more.
        assert terminal.screen[2].startswith("2/6 through, 0 measured")
        for name in "defghijklm":
            table.preparing(name, "GPU 1")
        assert sum("making its task" in line for line in terminal.screen) == 8
        table.halted("GPU 1", "its process ended", [])
        assert not any("making its task" in line for line in terminal.screen)
        assert any(line.startswith("a  0 s  GPU 0") for line in terminal.screen)


def test_while_tasks_are_made_what_is_left_is_theirs_and_then_the_kernels_without_it() -> None:
    clock, worked = Clock(), {"adapt": 100.0, "total": 160.0}
    before = [made("a", "no_gain", cases=1, seconds=worked), made("b", "not_loaded", seconds={"adapt": 5.0})]
    table = live(io.StringIO(), total=12, records=before, parallel=2, clock=clock)
    # Ten kernels of 60 s: the making of tasks is not in it.
    assert table.left_s() == pytest.approx(300)
    for name in "cd":
        table.preparing(name, "H200")
    assert table.left_s() is None
    table.prepared("c", 1)
    # It was there, which says nothing of the others.
    assert table.left_s() is None
    table.preparing("e", "H200")
    clock.now += 20
    table.prepared("d", 1)
    table.preparing("f", "H200")
    # Six tasks of 20 s, and f's, two at a time; two kernels have a task, of eight more one in four will have none.
    assert table.left_s() == pytest.approx((6 * 20 + 20) / 2 + (2 + 8 * 0.75) * 60 / 2)
    table.prepared("e", 1)
    table.prepared("f", 1)
    assert table.left_s() == pytest.approx(300)


def test_where_tasks_alone_are_made_the_time_that_they_take_is_left() -> None:
    clock = Clock()
    table = live(io.StringIO(), total=5, clock=clock, only_tasks=True)
    table.preparing("a", None)
    table.preparing("b", None)
    assert table.totals()[1] == "0 s so far, time left unknown"
    clock.now += 40
    table.finished(made("a", "not_loaded", seconds={"adapt": 40.0}))
    table.preparing("c", None)
    assert table.totals() == ["1/5 looked at, 0 with a task, 1 without", "40 s so far, about 1 min 00 s left"]


def test_what_is_left_is_the_median_of_what_is_through_shared_by_the_gpus() -> None:
    clock = Clock()
    before = [
        made(name, "no_gain", seconds={"total": total}) for name, total in [("a", 10.0), ("b", 60.0), ("c", 900.0)]
    ]
    table = live(io.StringIO(), total=10, records=before, parallel=2, clock=clock)
    # Seven of 60 s each, two at a time.
    assert table.left_s() == pytest.approx(210)
    table.started("d", "H200")
    clock.now += 40
    # Six of 60 s, and 20 s of one.
    assert table.left_s() == pytest.approx(190)
    assert "about 3 min 10 s left" in table.totals()[1]
    clock.now += 400
    assert table.left_s() == pytest.approx(180)


def test_the_last_kernel_takes_as_long_as_it_takes_however_many_gpus_there_are() -> None:
    table = live(io.StringIO(), total=2, records=[made("a", "no_gain", seconds={"total": 60.0})], parallel=8)
    table.started("b", "H200")
    assert table.left_s() == pytest.approx(60)


def test_nothing_is_estimated_of_nothing() -> None:
    table = live(io.StringIO(), total=2, records=[made("a", "no_gain")])
    assert table.left_s() is None
    assert "time left unknown" in table.totals()[1]
    assert "no speed-up known" in live(io.StringIO()).totals()[0]


def test_earlier_sittings_and_repeated_kernels_count_once() -> None:
    table = live(io.StringIO(), total=3, records=[gained("a", 4.0), made("b", "failed")])
    assert (
        table.totals()[0] == "2/3 through, 1 measured, 1 sped up by 5 % or more, 1 failed, geometric mean 4.000x of 1"
    )
    table.started("b", "H200")
    assert (
        table.totals()[0] == "1/3 through, 1 measured, 1 sped up by 5 % or more, 0 failed, geometric mean 4.000x of 1"
    )
    table.finished(gained("b", 1.0))
    assert (
        table.totals()[0] == "2/3 through, 2 measured, 1 sped up by 5 % or more, 0 failed, geometric mean 2.000x of 2"
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.4, "59 s"), (59.6, "1 min 00 s"), (185, "3 min 05 s"), (3600, "1 h 00 min"), (7650, "2 h 07 min")],
)
def test_durations_are_told_in_two_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text
