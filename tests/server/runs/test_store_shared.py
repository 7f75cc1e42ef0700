"""Several threads and processes use one store at once, and what a process leaves behind is taken up once."""

import subprocess
import sys
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Barrier
from typing import Final

import pytest

from tests.server.runs.in_store import RUN_ID, begun, claimed, files_in, finished, lesson, made_up_run, opened
from tritonforge.profiling.optimization.model import Attempt
from tritonforge.sandbox.errors import Stopped
from tritonforge.server.runs.record import Run
from tritonforge.server.runs.store import Store

ROOT: Final = Path(__file__).parents[3]
CLAIM_AND_WAIT: Final = """
import sys
from pathlib import Path
from tests.server.runs.in_store import claimed
from tritonforge.sandbox.errors import Stopped
from tritonforge.server.runs.store import Store

store = Store(Path(sys.argv[1]))
numbers = []
store.runs()
print("ready", flush=True)
sys.stdin.readline()
try:
    while len(numbers) < int(sys.argv[2]):
        numbers.append(claimed(store).number)
except Stopped:
    pass
print(*numbers, flush=True)
sys.stdin.readline()
"""
FORKED: Final = """
import os
import sys
from pathlib import Path
from tests.server.runs.in_store import RUN_ID, claimed
from tritonforge.server.runs.store import Store

store, other = Store(Path(sys.argv[1])), Store(Path(sys.argv[1]))
claimed(store)
asks, answers = os.pipe(), os.pipe()

child = os.fork()
if child == 0:
    # Whatever happens to it: the parent must not wait in vain.
    try:
        while os.read(asks[0], 1) == b"1":
            os.write(answers[1], str(store.adopt(RUN_ID, 1) is not None).encode())
    finally:
        os.write(answers[1], b"over")
        os._exit(0)

def ask():
    os.write(asks[1], b"1")
    print("the child adopts:", os.read(answers[0], 5).decode())

def look():
    print("orphans:", len(other.orphans()))

ask()
look()
store.close()
look()
ask()
look()
os.write(asks[1], b"0")
os.waitpid(child, 0)
look()
"""
FORKED_AND_KILLED: Final = """
import os
import sys
from pathlib import Path
from tests.server.runs.in_store import claimed
from tritonforge.server.runs.store import Store

store = Store(Path(sys.argv[1]))
claimed(store)
# The child says so: it has left the lock to its parent then.
if os.fork() == 0:
    print("claimed", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def store(tmp_path: Path) -> Generator[Store]:
    with closing(Store(tmp_path)) as store:
        yield store


@pytest.fixture
def other(tmp_path: Path) -> Generator[Store]:
    """Another server's: it is another owner, though it is of this process."""
    with closing(Store(tmp_path)) as store:
        yield store


class Elsewhere:
    """A process that claims attempts when it is told to, and holds them until it ends."""

    def __init__(self, folder: Path, at_most: int) -> None:
        command = [sys.executable, "-c", CLAIM_AND_WAIT, str(folder), str(at_most)]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        assert self._said() == "ready\n"

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def numbers(self) -> list[int]:
        return [int(word) for word in self._said().split()]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()

    def _said(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()


def at_once(count: int, work: Callable[[int], object]) -> None:
    """Do the same in many threads, as nearly at once as can be."""
    barrier = Barrier(count)

    def one(number: int) -> object:
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(one, range(count)))


def test_threads_that_claim_at_once_get_different_numbers_and_no_more_than_the_budget(
    store: Store, other: Store
) -> None:
    begun(store, budget=10)
    numbers: list[int] = []
    refused: list[str] = []

    def claim(at: int) -> None:
        for _ in range(3):
            try:
                numbers.append(claimed((store, other)[at % 2], text=f"{at}\n").number)
            except Stopped as stopped:
                refused.append(stopped.problem.message)

    at_once(8, claim)
    assert sorted(numbers) == list(range(1, 11))
    assert len(refused) == 14
    assert all("budget" in message for message in refused)
    assert store.check() == []


def test_processes_that_claim_at_once_get_different_numbers_and_no_more_than_the_budget(store: Store) -> None:
    begun(store, budget=20)
    processes = [Elsewhere(store.folder, 100) for _ in range(2)]
    for process in processes:
        process.go()
    numbers = [number for process in processes for number in process.numbers()]
    assert sorted(numbers) == list(range(1, 21))
    assert store.orphans() == []
    for process in processes:
        process.kill()
    assert [attempt.number for _, attempt in store.orphans()] == list(range(1, 21))


def test_new_stores_of_one_folder_may_be_opened_at_once(tmp_path: Path) -> None:
    stores = [Store(tmp_path) for _ in range(8)]
    at_once(8, lambda at: begun(stores[at], f"run-{at}"))
    assert len(stores[0].runs()) == 8
    assert stores[0].check() == []
    for each in stores:
        each.close()


def test_one_of_those_who_are_accepted_at_once_wins_and_the_others_are_told(store: Store, other: Store) -> None:
    begun(store)
    pairs = [(each, claimed(each)) for each in (store, other) * 4]
    kept: list[int] = []

    def accept(at: int) -> None:
        mine, attempt = pairs[at]

        def better(run: Run) -> Run:
            return run.model_copy(update={"incumbent": attempt.number})

        if mine.finish(
            RUN_ID,
            finished(attempt),
            expected_incumbent=0,
            run=better,
            taught=lambda before, after, attempts: [lesson()],
        ):
            kept.append(attempt.number)

    at_once(8, accept)
    assert [store.run(RUN_ID).incumbent] == kept
    assert store.lessons()[0].tried == 1
    assert sum(attempt.state == "running" for attempt in store.attempts(RUN_ID)) == 7


def test_changes_of_one_run_at_once_are_all_made(store: Store, other: Store) -> None:
    begun(store)

    def change(at: int) -> None:
        for _ in range(5):
            (store, other)[at % 2].change(RUN_ID, lambda run: run.model_copy(update={"incumbent": run.incumbent + 1}))

    at_once(8, change)
    assert store.run(RUN_ID).incumbent == 40


def test_the_same_text_may_be_put_at_once(store: Store, other: Store) -> None:
    text = "x" * 100_000
    at_once(8, lambda at: (store, other)[at % 2].put_file(text))
    (sha256,) = files_in(store.folder)
    assert other.file(sha256) == text


def test_what_a_live_server_evaluates_is_its_own(store: Store, other: Store) -> None:
    begun(store)
    attempt = claimed(store)
    assert other.orphans() == []
    assert other.adopt(RUN_ID, 1) is None
    with pytest.raises(Stopped, match="another process evaluates it now"):
        other.finish(RUN_ID, finished(attempt), expected_incumbent=None)
    other.abandon(RUN_ID, 1, "cancelled")
    assert store.attempt(RUN_ID, 1) == attempt
    assert store.adopt(RUN_ID, 1) is None
    assert store.finish(RUN_ID, finished(attempt), expected_incumbent=None)


def test_what_a_server_that_ended_has_left_is_taken_up_by_one(store: Store, other: Store) -> None:
    begun(store)
    attempt = claimed(store)
    store.close()
    assert other.orphans() == other.orphans(RUN_ID) == [(RUN_ID, attempt)]
    # It comes back as another owner, and has to take up its own, too.
    with pytest.raises(Stopped, match="is not kept"):
        store.finish(RUN_ID, finished(attempt), expected_incumbent=None)
    taken: list[Attempt | None] = []
    at_once(8, lambda at: taken.append((store, other)[at % 2].adopt(RUN_ID, 1)))
    assert [each for each in taken if each is not None] == [attempt]
    assert store.orphans() == other.orphans() == []


@pytest.mark.parametrize("state", ["interrupted", "cancelled"])
def test_what_was_interrupted_is_taken_up_and_what_was_cancelled_is_not(store: Store, other: Store, state: str) -> None:
    begun(store)
    attempt = claimed(store)
    store.abandon(RUN_ID, 1, "interrupted")
    if state == "cancelled":
        store.abandon(RUN_ID, 1, "cancelled")
    left = store.attempt(RUN_ID, 1)
    assert (left.state, left.counted) == (state, False)
    assert store.check() == []
    taken = other.adopt(RUN_ID, 1)
    assert taken == (attempt if state == "interrupted" else None)
    assert other.attempt(RUN_ID, 1).state == ("running" if state == "interrupted" else "cancelled")


def test_interrupted_attempts_are_left_behind_while_their_run_goes_on(store: Store) -> None:
    begun(store)
    claimed(store)
    store.abandon(RUN_ID, 1, "interrupted")
    assert [attempt.number for _, attempt in store.orphans()] == [1]
    store.change(RUN_ID, lambda run: run.model_copy(update={"state": "finished"}))
    assert store.orphans() == []
    assert store.adopt(RUN_ID, 1) is None


def test_an_interrupted_attempt_is_taken_up_where_the_budget_has_room(store: Store) -> None:
    begun(store, budget=1)
    claimed(store)
    store.abandon(RUN_ID, 1, "interrupted")
    second = claimed(store)
    assert store.adopt(RUN_ID, 1) is None
    assert store.finish(RUN_ID, finished(second, counted=False), expected_incumbent=None)
    assert store.adopt(RUN_ID, 1) is not None
    with pytest.raises(Stopped, match="budget"):
        claimed(store)


def test_a_baseline_that_was_left_behind_is_measured_by_another(store: Store, other: Store) -> None:
    store.create(made_up_run(store))
    claimed(store, parent=None, counts=False)
    store.close()
    baseline = other.adopt(RUN_ID, 0)
    assert baseline is not None
    assert other.finish(RUN_ID, finished(baseline), expected_incumbent=None, run=opened)
    assert other.run(RUN_ID).state == "open"


def test_files_of_owners_that_are_gone_are_removed(store: Store, other: Store) -> None:
    begun(store)
    process = Elsewhere(store.folder, 1)
    process.go()
    assert process.numbers() == [1]
    owners = store.folder / "owners"
    assert len(list(owners.iterdir())) == 2
    process.kill()
    claimed(other)
    # This one's, the other's; and the killed one's attempt is an orphan without its file, too.
    assert len(list(owners.iterdir())) == 2
    assert [attempt.number for _, attempt in store.orphans()] == [1]
    store.close()
    other.close()
    assert list(owners.iterdir()) == []


def test_a_forked_child_neither_keeps_an_owner_alive_nor_ends_it(store: Store) -> None:
    begun(store)
    done = subprocess.run(
        [sys.executable, "-c", FORKED, str(store.folder)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [
        "the child adopts: False", "orphans: 0", "orphans: 1", "the child adopts: True", "orphans: 0", "orphans: 1",
    ]  # fmt: skip


def test_what_a_killed_process_has_left_is_not_kept_by_its_children(store: Store) -> None:
    begun(store)
    process = subprocess.Popen(
        [sys.executable, "-c", FORKED_AND_KILLED, str(store.folder)], cwd=ROOT, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin, process.stdout:
        assert process.stdout.readline() == "claimed\n"
        assert store.orphans() == []
        process.kill()
        process.wait()
        # Its child goes on: it waits for the end of its input.
        assert [attempt.number for _, attempt in store.orphans()] == [1]
