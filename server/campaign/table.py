"""How far a campaign is, while it runs: a table that is drawn anew in place on a terminal, else a line a kernel."""

import os
import shutil
import sys
import threading
import time
import unicodedata
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from statistics import median
from types import TracebackType
from typing import Final, Self, TextIO

from ..tools.run_shown import words
from .model import KernelRecord
from .report_numbers import counted, is_loaded, succeeds
from .report_summary import ADAPT, FAILURES, TOTAL
from .statistics import center

RECENT: Final = 8
"""Kernels of those that are through that a table shows."""
PREPARING: Final = 8
"""Of those whose tasks are being made, the first that a table shows."""
SEEN_S: Final = 1.0
"""In less than that a task is not made: it is there from an earlier sitting."""
TICK_S: Final = 1.0
NAME_WIDTH: Final = 32
LINE_CHARACTERS: Final = 400
UP: Final = "\x1b[{}F"
CLEAR: Final = "\x1b[J"


@dataclass
class _Working:
    where: str
    stage: str
    began_at: float
    staged_at: float


class Live:
    """Shows what becomes of a campaign's kernels; entered, it is drawn anew every second, for its clocks.

    Args:
        records: what is there from earlier sittings.
        total: kernels of the campaign.
        parallel: kernels that are worked on at a time.
        only_tasks: whether no more than tasks are made.
        say: takes lines where there is no terminal.
        terminal: where the table is drawn, if it is one; None: standard output.
        clock: seconds, from anywhere.
        size: of the terminal.
    """

    def __init__(
        self,
        records: Sequence[KernelRecord],
        total: int,
        parallel: int,
        *,
        only_tasks: bool = False,
        say: Callable[[str], None],
        terminal: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        size: Callable[[], os.terminal_size] = shutil.get_terminal_size,
    ) -> None:
        stream = terminal or sys.stdout
        self._terminal = stream if is_terminal(stream) else None
        self._records = {record.name: record for record in records}
        self._total, self._parallel, self._say = total, max(1, parallel), say
        self._only_tasks = only_tasks
        self._tasks: set[str] = set()
        """Kernels whose tasks are there, as far as this sitting has looked."""
        self._preparing: dict[str, _Working] = {}
        self._making_s: list[float] = []
        """That tasks took to be made, or to be given up."""
        self._clock, self._size = clock, size
        self._began_at = clock()
        self._working: dict[str, _Working] = {}
        self._recent: deque[KernelRecord] = deque(maxlen=RECENT)
        self._drawn = 0
        """Lines of the table that stand on the terminal, above the cursor."""
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._ticks = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> Self:
        self._draw()
        if self._terminal is not None:
            self._ticks.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The table stays as it is; where there is none, a last line says the totals."""
        self._over.set()
        if self._terminal is None:
            self._say(", ".join(self.totals()))
            return
        self._ticks.join()
        self._draw()

    def preparing(self, name: str, where: str | None) -> None:
        """The task of a kernel is being made, by the process of the GPU that is called so; None: there is none."""
        with self._lock:
            now = self._clock()
            self._preparing[name] = _Working(words(where or "no GPU"), "making its task", now, now)
        self._draw()

    def prepared(self, name: str, cases: int) -> None:
        """The task of a kernel is there, which is told where that is all that is done."""
        with self._lock:
            self._made(name)
            self._tasks.add(name)
            through = len(self._records.keys() | self._tasks)
            line = f"[{through}/{self._total}] {words(name)}: a task with {cases} case{'' if cases == 1 else 's'}"
        if self._terminal is None:
            if self._only_tasks:
                self._say(line)
        else:
            self._draw()

    def started(self, name: str, where: str | None) -> None:
        """A kernel is worked on, on the GPU that is called so; None: on none."""
        with self._lock:
            now = self._clock()
            # One that an earlier sitting was through with is worked on again.
            self._records.pop(name, None)
            self._preparing.pop(name, None)
            self._working[name] = _Working(words(where or "no GPU"), "begun", now, now)
        self._draw()

    def staged(self, name: str, stage: str) -> None:
        """Something else is done with a kernel now."""
        with self._lock:
            if (working := self._working.get(name)) is not None:
                working.stage, working.staged_at = words(stage), self._clock()
        self._draw()

    def finished(self, record: KernelRecord) -> None:
        """A kernel is through."""
        with self._lock:
            self._working.pop(record.name, None)
            self._made(record.name)
            self._records[record.name] = record
            self._recent.append(record)
            through = len(self._records.keys() | (self._tasks if self._only_tasks else set[str]()))
            line = f"[{through}/{self._total}] {words(record.name)}: {became(record)}"
        if self._terminal is None:
            self._say(f"{line}, {took}" if (took := _took(record)) else line)
        else:
            self._draw()

    def halted(self, where: str | None, why: str, kernels: Collection[str] = ()) -> None:
        """The process of a GPU has ended: these kernels are worked on no more."""
        with self._lock:
            for name in kernels:
                self._working.pop(name, None)
            of = words(where or "no GPU")
            self._preparing = {name: at for name, at in self._preparing.items() if at.where != of}
            working = f" (it worked on {', '.join(sorted(kernels))})" if kernels else ""
            line = words(f"{where or 'the process'}: {why}{working}", LINE_CHARACTERS)
        if self._terminal is None:
            self._say(line)
        else:
            self._draw(above=line)

    def totals(self) -> list[str]:
        """All that is known of the whole: what became of kernels, and times."""
        records, so_far = list(self._records.values()), f"{duration(self._clock() - self._began_at)} so far"
        if self._only_tasks:
            made, none = len(self._tasks), len(self._records.keys() - self._tasks)
            counts = f"{made + none}/{self._total} looked at, {made} with a task, {none} without"
            return [counts, ", ".join([so_far, *([self._left_in_words()] if made + none < self._total else [])])]
        ratios = [ratio for record in records if (ratio := record.speedup) is not None]
        mean = center(ratios)
        counts = [
            f"{len(records)}/{self._total} through",
            *([f"{len(self._tasks - self._records.keys())} more have a task"] if self._preparing else []),
            f"{sum(bool(record.baseline) for record in records)} measured",
            f"{sum(map(succeeds, records))} sped up by 5 % or more",
            f"{sum(record.outcome in FAILURES for record in records)} failed",
            "no speed-up known" if mean is None else f"geometric mean {mean:.3f}x of {len(ratios)}",
        ]
        left = [self._left_in_words()] if len(records) < self._total else []
        return [", ".join(counts), ", ".join([so_far, *left])]

    def _left_in_words(self) -> str:
        left, tasks = self.left_s(), self._tasks_left_s()
        if left is not None:
            return f"about {duration(left)} left"
        return f"about {duration(tasks)} left for tasks, then unknown" if tasks else "time left unknown"

    def left_s(self) -> float | None:
        """Seconds that the rest will take; None: nothing tells.

        Tasks that are still to be made take the median of those that were made, several at a time as now. Then each
        kernel takes the median of those that were worked on, without the making of its task, which is done by then;
        the GPUs share them evenly.
        """
        tasks, kernels = self._tasks_left_s(), 0.0 if self._only_tasks else self._kernels_left_s()
        return None if tasks is None or kernels is None else tasks + kernels

    def _tasks_left_s(self) -> float | None:
        looked_at = self._records.keys() | self._tasks | self._preparing.keys()
        waiting = max(0, self._total - len(looked_at))
        if not self._preparing:
            # Those that nobody has looked at are another sitting's.
            return None if self._only_tasks and waiting else 0.0
        if not self._making_s:
            return None
        each, now = median(self._making_s), self._clock()
        begun = [max(0.0, each - (now - at.began_at)) for at in self._preparing.values()]
        return max((waiting * each + sum(begun)) / len(begun), *begun)

    def _kernels_left_s(self) -> float | None:
        records = self._records.values()
        taken = [
            record.seconds[TOTAL] - record.seconds.get(ADAPT, 0.0) for record in records if TOTAL in record.seconds
        ]
        if not taken:
            return None
        each, now = median(taken), self._clock()
        begun = [max(0.0, each - (now - working.began_at)) for working in self._working.values()]
        waiting = max(0, self._total - len(self._records) - len(begun))
        if self._preparing:
            # Of some there will be no task either.
            sure = len(self._tasks - self._records.keys() - self._working.keys())
            without = sum(not is_loaded(record) for record in records)
            share = 1 - without / max(1, len(self._records.keys() | self._tasks))
            waiting = sure + (waiting - sure) * share
        return max((waiting * each + sum(begun)) / self._parallel, *begun, 0.0)

    def _made(self, name: str) -> None:
        """A task is no longer being made."""
        if (at := self._preparing.pop(name, None)) is not None and (took := self._clock() - at.began_at) >= SEEN_S:
            self._making_s.append(took)

    def lines(self, width: int, height: int) -> list[str]:
        """The table: no line of it wider than `width` columns, and not more than `height` of them; 1 or more."""
        now = self._clock()
        working = [
            (_name(name), duration(now - at.began_at), f"{at.where}: {at.stage}, {duration(now - at.staged_at)}")
            for name, at in [*self._working.items(), *list(self._preparing.items())[:PREPARING]]
        ]
        recent = [(_name(record.name), _took(record), became(record)) for record in self._recent]
        totals = self.totals()[:height]
        room = height - len(totals)
        # What is worked on comes before what is through, and of that the latest.
        working = working[:room]
        recent = recent[len(recent) - min(len(recent), room - len(working)) :]
        rows = [*recent, *working]
        names, times = (max((columns(row[column]) for row in rows), default=0) for column in (0, 1))
        shown = [f"{_padded(name, names)}  {time.rjust(times)}  {what}" for name, time, what in rows]
        return [_fit(line, width) for line in [*shown, *totals]]

    def _draw(self, above: str | None = None) -> None:
        if self._terminal is None:
            return
        with self._lock:
            size = self._size()
            # The last column stays free, since some terminals wrap when it is filled; so does the cursor's line.
            lines = self.lines(max(1, size.columns - 1), max(1, size.lines - 1))
            first = [_fit(above, max(1, size.columns - 1))] if above is not None else []
            back = UP.format(self._drawn) if self._drawn else ""
            text = "".join(f"{line}\n" for line in [*first, *lines])
            encoding = self._terminal.encoding or "utf-8"
            self._terminal.write(back + CLEAR + text.encode(encoding, "replace").decode(encoding))
            self._terminal.flush()
            self._drawn = len(lines)

    def _tick(self) -> None:
        while not self._over.wait(TICK_S):
            self._draw()


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a stream is a terminal that can move its cursor."""
    return stream is not None and stream.isatty() and os.environ.get("TERM", "dumb") not in ("", "dumb")


def became(record: KernelRecord) -> str:
    """How a kernel ended, in a line of text."""
    said = record.outcome.replace("_", " ")
    gain = counted(record)
    if gain is not None:
        said += f" {gain.ratio:.3f}x ({gain.ratio_low:.3f} to {gain.ratio_high:.3f})"
    if record.failure_kind is not None:
        said += f" ({words(record.failure_kind)})"
    if record.attempts:
        said += f", {record.attempts} candidate{'' if record.attempts == 1 else 's'}"
    return said if record.outcome == "gained" or not record.why else f"{said}: {words(record.why)}"


def duration(seconds: float) -> str:
    """Such as 42 s, 3 min 05 s, 2 h 07 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def columns(text: str) -> int:
    """How many columns of a terminal a printable text takes."""
    return sum(map(_columns, text))


def _columns(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _fit(text: str, width: int) -> str:
    """The beginning of a printable text that is no wider."""
    if columns(text) <= width:
        return text
    kept, left = "", width - 3
    for character in text:
        left -= _columns(character)
        if left < 0:
            break
        kept += character
    return (kept.rstrip() + "...")[:width]


def _name(name: str) -> str:
    return _fit(words(name), NAME_WIDTH)


def _padded(text: str, width: int) -> str:
    return text + " " * (width - columns(text))


def _took(record: KernelRecord) -> str:
    seconds = record.seconds.get(TOTAL)
    return "" if seconds is None else duration(seconds)
