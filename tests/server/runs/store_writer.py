"""A process that forks writers of a store: each works until it is killed, and tells every transaction that returned.

Started once and warm, it makes a writer in milliseconds. One line of its input, a folder and a seed, makes one; that
one's lines and, when it has ended, `ended` come out.
"""

import hashlib
import itertools
import os
import random
import sys
from pathlib import Path
from typing import Final

from tests.server.runs.in_store import begun, claimed, finished, lesson
from tritonforge.profiling.optimization.model import Attempt
from tritonforge.server.runs.record import Run
from tritonforge.server.runs.store import Store

LONG_CHARACTERS: Final = 300_000
"""Of some files: so many that writing them takes a while in which a writer can be killed."""
BUDGET: Final = 1000


def fingerprint(attempt: Attempt) -> str:
    return hashlib.sha256(attempt.model_dump_json().encode()).hexdigest()


def better(run: Run, number: int) -> Run:
    """A run after an attempt was accepted; `ended_by` is made a counter of its changes."""
    return stepped(run).model_copy(update={"incumbent": number})


def stepped(run: Run) -> Run:
    return run.model_copy(update={"ended_by": str(steps(run) + 1)})


def steps(run: Run) -> int:
    return int(run.ended_by or 0)


def evaluate(store: Store, run_id: str, attempt: Attempt) -> Attempt:
    """Finish an attempt in the one way that is checked: it becomes the incumbent, and its run's lesson counts it."""
    over = finished(attempt, accepted=True, counted=True)
    kept = store.finish(
        run_id, over, expected_incumbent=store.run(run_id).incumbent, run=lambda run: better(run, attempt.number),
        lessons=[lesson(run_id, runs=[run_id])],
    )  # fmt: skip
    assert kept
    return over


def _tell(*words: object) -> None:
    # Short enough to be written whole or not at all.
    os.write(sys.stdout.fileno(), (" ".join(map(str, words)) + "\n").encode())


def write(folder: Path, seed: int) -> None:
    """Work on one store, in no foreseeable order, until killed."""
    chance = random.Random(seed)
    store = Store(folder)
    _tell("pid", os.getpid())
    for run in itertools.count():
        run_id = f"run-{seed}-{run}"
        begun(store, run_id, budget=BUDGET)
        _tell("create", run_id)
        left: list[Attempt] = []
        for turn in range(chance.randint(1, 12)):
            text = f"{run_id} {turn}\n" * (LONG_CHARACTERS // 16 if chance.random() < 0.1 else 1)
            _tell("file", store.put_file(text))
            left.append(claimed(store, run_id, text))
            _tell("claim", run_id, left[-1].number)
            if chance.random() < 0.3:
                _tell("change", run_id, steps(store.change(run_id, stepped)))
            # Several are under way at once, and not the first one ends first.
            while left and chance.random() < 0.6:
                attempt = left.pop(chance.randrange(len(left)))
                if chance.random() < 0.1:
                    store.abandon(run_id, attempt.number, "cancelled")
                    _tell("cancel", run_id, attempt.number)
                else:
                    _tell("finish", run_id, attempt.number, fingerprint(evaluate(store, run_id, attempt)))
        if not left and chance.random() < 0.3:
            store.delete(run_id)
            _tell("delete", run_id)


def serve() -> None:
    """Make writers, one after the other."""
    for line in sys.stdin:
        folder, seed = line.rsplit(maxsplit=1)
        child = os.fork()
        if child == 0:
            try:
                write(Path(folder), int(seed))
            finally:
                # Not killed: it failed, or nobody reads any more.
                os._exit(1)
        _, status = os.waitpid(child, 0)
        _tell("ended", os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    serve()
