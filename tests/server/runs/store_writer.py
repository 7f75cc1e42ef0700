"""Writers of a store: each works until it is killed, and tells every transaction that returned."""

import hashlib
import itertools
import random
from pathlib import Path
from typing import Final

from tests.server.runs.in_store import begun, claimed, finished, lesson
from tests.server.runs.nursery import serve, tell
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
        taught=lambda before, after, attempts: [lesson(run_id, runs=[run_id])],
    )  # fmt: skip
    assert kept
    return over


def write(folder: Path, seed: int) -> None:
    """Work on one store, in no foreseeable order, until killed."""
    chance = random.Random(seed)
    store = Store(folder)
    for run in itertools.count():
        run_id = f"run-{seed}-{run}"
        begun(store, run_id, budget=BUDGET)
        tell("create", run_id)
        left: list[Attempt] = []
        for turn in range(chance.randint(1, 12)):
            text = f"{run_id} {turn}\n" * (LONG_CHARACTERS // 16 if chance.random() < 0.1 else 1)
            tell("file", store.put_file(text))
            left.append(claimed(store, run_id, text))
            tell("claim", run_id, left[-1].number)
            if chance.random() < 0.3:
                tell("change", run_id, steps(store.change(run_id, stepped)))
            # Several are under way at once, and not the first one ends first.
            while left and chance.random() < 0.6:
                attempt = left.pop(chance.randrange(len(left)))
                if chance.random() < 0.1:
                    store.abandon(run_id, attempt.number, "cancelled")
                    tell("cancel", run_id, attempt.number)
                else:
                    tell("finish", run_id, attempt.number, fingerprint(evaluate(store, run_id, attempt)))
        if not left and chance.random() < 0.3:
            store.delete(run_id)
            tell("delete", run_id)


if __name__ == "__main__":
    serve(write)
