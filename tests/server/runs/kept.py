"""Runs put straight into a store, as if they had been measured."""

import json
from pathlib import Path
from typing import Any

from tests.profiling.optimization.made_up import case_timing, confirmation, evidence, timing
from tritonforge.profiling.optimization.model import BASELINE, Budget, Evidence, Limits, Verdict
from tritonforge.server.runs.admission import Claim
from tritonforge.server.runs.memory import changed, now
from tritonforge.server.runs.record import Frozen, Run
from tritonforge.server.runs.store import Store

RUN_ID = "softmax-1a2b3c"
GPU = "NVIDIA H200"
SECRET = "hidden-neighbour"
"""Name of a hidden case."""
BASELINE_TEXT = "def entry(x):\n    return x\n"
TASK_TEXT = 'ENTRY = "entry"\nCASES = {"a": {}}\n'


class Kept:
    """One run of a store, with an attempt 0 that is measured."""

    def __init__(
        self,
        store: Store,
        run_id: str = RUN_ID,
        *,
        baseline: str = BASELINE_TEXT,
        task: str = TASK_TEXT,
        its: Evidence | None = None,
        **frozen: Any,
    ) -> None:
        self.store, self.run_id = store, run_id
        hidden = store.put_file(json.dumps({SECRET: {"n": 7}}))
        fields: dict[str, Any] = {
            "run_id": run_id, "created_at": now(), "title": "Row-wise softmax.", "entry": "entry",
            "kernel_sha256": store.put_file(baseline), "task_sha256": store.put_file(task),
            "kernel_shown_as": "baseline.py", "task_shown_as": "task.py", "kernel_origin": None, "task_origin": None,
            "cases": ["a"], "hidden_sha256": hidden, "hidden_from": "derived", "hidden_count": 1, "target": "h200",
            "gpu": GPU, "torch": "2.11.0", "triton": "3.6.0", "budget": Budget(), "limits": Limits(),
        }  # fmt: skip
        self.frozen = Frozen.model_validate({**fields, **frozen})
        store.create(Run(frozen=self.frozen, state="measuring", updated_at=now()))
        self._add(baseline, its or evidence(), "the baseline", None, {})
        store.change(run_id, lambda run: changed(run, state="open"))

    def attempt(
        self, text: str, its: Evidence | None = None, *, strategy: str = "one pass", parent: int = BASELINE,
        accepted: bool = False, **fields: Any,
    ) -> int:  # fmt: skip
        """Add a finished attempt; its number. An accepted one is the incumbent from then on."""
        verdict = Verdict(
            verdict="accept" if accepted else "continue",
            accepted=accepted,
            reasons=["1.3x beyond the noise" if accepted else "no faster"],
        )
        return self._add(
            text, its or evidence(), strategy, parent, {"verdict": verdict, "accepted": accepted, **fields}
        )

    def left_behind(self, text: str, strategy: str = "half done") -> int:
        """Add an attempt that is still being evaluated; its number."""
        return self._claim(text, strategy, BASELINE, counts=True).number

    def _add(self, text: str, its: Evidence, strategy: str, parent: int | None, fields: dict[str, Any]) -> int:
        claimed = self._claim(text, strategy, parent, counts=parent is not None)
        update = {"state": "finished", "finished_at": now(), "evidence": its, "counted": parent is not None, **fields}
        attempt = claimed.model_copy(update=update)
        better = attempt.number if attempt.accepted else None
        assert self.store.finish(
            self.run_id, attempt, expected_incumbent=None, run=lambda run: changed(run, incumbent=better)
        )
        return attempt.number

    def _claim(self, text: str, strategy: str, parent: int | None, *, counts: bool) -> Any:
        sha256 = self.store.put_file(text)
        return self.store.claim(self.run_id, Claim(parent, strategy, sha256, sha256, counts))


def measured(ratio: float, against: int = BASELINE, to_baseline: float | None = None) -> Evidence:
    """A candidate that passed everything, with a hidden case in both of its measurements."""
    secret = case_timing(SECRET, ratio, hidden=True)
    first = [timing(to_baseline or ratio, cases=[case_timing("a", to_baseline or ratio), secret])]
    if against != BASELINE:
        first.append(timing(ratio, against, cases=[case_timing("a", ratio), secret]))
    second = timing(ratio, against, cases=[case_timing("a", ratio), secret])
    return evidence(ratio, timings=first, confirmation=confirmation(ratio, against, timing=second))


def store_in(state_dir: Path) -> Store:
    """The store of a server with that state folder."""
    return Store(state_dir / "runs")
