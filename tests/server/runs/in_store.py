"""Runs, attempts and lessons made up for tests of the store; each says only what it is about."""

from pathlib import Path
from typing import Any, Final

from tritonforge.profiling.optimization.lesson import Lesson
from tritonforge.profiling.optimization.model import BASELINE, Attempt, Budget, Evidence, Limits
from tritonforge.sandbox.outcome import Kind
from tritonforge.server.runs.admission import Claim
from tritonforge.server.runs.record import Frozen, Run
from tritonforge.server.runs.store import Store

RUN_ID: Final = "sin-1a2b3c"
BASELINE_TEXT: Final = "def entry(x):\n    return x\n"
TASK_TEXT: Final = 'ENTRY = "entry"\n'
AT: Final = "2026-11-30T12:00:00.000+00:00"


def made_up_run(store: Store, run_id: str = RUN_ID, *, budget: int = 8, state: str = "measuring", **frozen: Any) -> Run:
    """A run whose files are kept; itself it is not stored."""
    fields: dict[str, Any] = {
        "run_id": run_id, "created_at": AT, "title": "Sine.", "kernel_sha256": store.put_file(BASELINE_TEXT),
        "task_sha256": store.put_file(TASK_TEXT), "kernel_shown_as": "baseline.py", "task_shown_as": "task.py",
        "kernel_origin": None, "task_origin": None, "entry": "entry", "cases": ["a"], "hidden_sha256": None,
        "hidden_from": "none", "hidden_count": 0, "target": "h200", "gpu": None, "torch": None, "triton": None,
        "budget": Budget(attempts=budget), "limits": Limits(),
    }  # fmt: skip
    run = {"frozen": Frozen.model_validate({**fields, **frozen}), "state": state, "updated_at": AT}
    return Run.model_validate(run)


def begun(store: Store, run_id: str = RUN_ID, *, budget: int = 8, **frozen: Any) -> str:
    """An open run with a measured baseline, stored; its id."""
    store.create(made_up_run(store, run_id, budget=budget, **frozen))
    baseline = claimed(store, run_id, BASELINE_TEXT, parent=None, counts=False)
    store.finish(run_id, finished(baseline), expected_incumbent=None, run=opened)
    return run_id


def opened(run: Run) -> Run:
    return run.model_copy(update={"state": "open"})


def claimed(
    store: Store, run_id: str = RUN_ID, text: str = "pass\n", *, parent: int | None = BASELINE, counts: bool = True,
    text_identity: str | None = None,
) -> Attempt:  # fmt: skip
    """An attempt that is being evaluated."""
    sha256 = store.put_file(text)
    return store.claim(run_id, Claim(parent, "another block", sha256, text_identity or sha256, counts))


def finished(attempt: Attempt, *, identity: str | None = None, **changed: Any) -> Attempt:
    """The same attempt, evaluated."""
    evidence = Evidence(kind=Kind.OK, stage="done", identity=identity, notes=["made up"])
    return attempt.model_copy(update={"state": "finished", "finished_at": AT, "evidence": evidence, **changed})


def lesson(key: str = "0a1b", **changed: Any) -> Lesson:
    fields: dict[str, Any] = {
        "key": key, "finding": "V1", "strategy": "tiling", "device": "NVIDIA H200", "triton": "3.6.0",
        "torch": "2.11.0", "tried": 1, "helped": 0, "gain_pct": None, "gain_low_pct": None, "gain_high_pct": None,
        "why": "It compiled to the same.", "kernels": ["Sine."], "runs": [RUN_ID], "updated_at": AT,
    }  # fmt: skip
    return Lesson.model_validate({**fields, **changed})


def files_in(folder: Path) -> set[str]:
    """Hashes of the files that a store keeps."""
    return {path.name for path in (folder / "files").rglob("*") if path.is_file()}
