"""A clock that is set back, or ahead, changes no run: not its time, not its order."""

from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.server.runs.in_store import RUN_ID, begun, claimed, finished, made_up_run
from tritonforge.profiling.optimization.arbiter import ends
from tritonforge.profiling.optimization.model import Budget
from tritonforge.server.runs import admission, memory
from tritonforge.server.runs.evaluating import duplicate
from tritonforge.server.runs.memory import changed, elapsed_s, memory_of
from tritonforge.server.runs.record import Frozen
from tritonforge.server.runs.store import Store

START = datetime(2026, 11, 30, 12, tzinfo=UTC)


class Clocks:
    """The clock of the wall, which anybody may set, and the one that only goes on."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.wall, self.spent_s = START, 0.0
        fake = SimpleNamespace(now=self.now, fromisoformat=datetime.fromisoformat)
        patch.setattr(memory, "datetime", fake)
        patch.setattr(admission, "datetime", fake)
        patch.setattr(memory, "time", SimpleNamespace(monotonic=lambda: self.spent_s))
        # As in a process that has not seen any run.
        memory._first_look.cache_clear()  # pyright: ignore[reportPrivateUsage]

    def now(self, zone: tzinfo) -> datetime:
        return self.wall.astimezone(zone)

    def spend(self, seconds: float) -> None:
        self.wall += timedelta(seconds=seconds)
        self.spent_s += seconds


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    return Clocks(monkeypatch)


@pytest.fixture
def frozen(clocks: Clocks, tmp_path: Path) -> Frozen:
    store = Store(tmp_path)
    made = made_up_run(store, created_at=START.isoformat(timespec="milliseconds")).frozen
    store.close()
    return made


def test_a_run_takes_the_time_that_passes_whatever_the_clock_is_set_to(clocks: Clocks, frozen: Frozen) -> None:
    assert elapsed_s(frozen) == 0
    clocks.spend(10)
    assert elapsed_s(frozen) == 10
    clocks.wall -= timedelta(hours=1)
    clocks.spend(5)
    assert elapsed_s(frozen) == 15
    clocks.wall += timedelta(days=1)
    assert elapsed_s(frozen) == 15


def test_a_process_that_finds_a_run_from_the_future_counts_from_0(clocks: Clocks, frozen: Frozen) -> None:
    clocks.wall -= timedelta(hours=1)
    assert elapsed_s(frozen) == 0
    clocks.spend(20)
    assert elapsed_s(frozen) == 20


def test_a_process_that_comes_later_counts_what_has_passed(clocks: Clocks, frozen: Frozen) -> None:
    clocks.spend(30)
    assert elapsed_s(frozen) == 30


def test_the_wall_time_ends_a_run_although_the_clock_was_set_back(clocks: Clocks, tmp_path: Path) -> None:
    store = Store(tmp_path)
    begun(store, created_at=START.isoformat(timespec="milliseconds"))
    update = {"frozen": store.run(RUN_ID).frozen.model_copy(update={"budget": Budget(wall_s=60)})}
    run = store.run(RUN_ID).model_copy(update=update)
    assert ends(memory_of(run, store.attempts(RUN_ID))) is None
    clocks.wall -= timedelta(hours=1)
    clocks.spend(61)
    assert ends(memory_of(run, store.attempts(RUN_ID))) == "wall_time"
    store.close()


def test_nothing_that_is_kept_comes_before_what_it_follows(clocks: Clocks, tmp_path: Path) -> None:
    store = Store(tmp_path)
    begun(store, created_at=START.isoformat(timespec="milliseconds"))
    started = store.run(RUN_ID)
    clocks.wall -= timedelta(hours=1)
    attempt = claimed(store)
    assert attempt.submitted_at >= started.frozen.created_at
    assert (duplicate(attempt, finished(attempt)).finished_at or "") >= attempt.submitted_at
    assert changed(started).updated_at >= started.updated_at
    later = claimed(store, text="another\n")
    assert [each.number for each in store.attempts(RUN_ID)] == [0, attempt.number, later.number]
    store.close()
