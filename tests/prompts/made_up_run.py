"""A run as prompts know it, in which every field has a value of its own."""

from typing import Any

from tritonforge.prompts.run_facts import (
    AttemptFacts,
    CaseFact,
    FindingFact,
    HintFact,
    LaunchFact,
    LessonFact,
    ProfileFact,
    Ratio,
    RunFacts,
    TriedFact,
)
from tritonforge.sandbox.outcome import Kind, Problem


def ratio(middle: float) -> Ratio:
    return Ratio(middle=middle, low=middle - 0.125, high=middle + 0.125)


def focus(**changed: Any) -> AttemptFacts:
    fields: dict[str, Any] = {
        "number": 31, "strategy": "<strategy>", "shown_as": "<focus.py>", "source": "def focus_source(): pass\n",
        "kind": Kind.WRONG, "verdict": "continue", "reasons": ["<reason>"], "ratio": ratio(1.501),
        "problem": Problem(
            stage="<stage>", message="<message>", file="<file>", line=77, excerpt="<excerpt>", likely_cause="<cause>",
            likely_fix="<fix>", output="<output>",
        ),
        "cases": [
            CaseFact(
                case="<case>", device_us=66.25, ratio=ratio(1.502), comparison="<comparison>", speed_of_light_pct=41.5
            )
        ],
        "diagnosed": 30, "diagnosed_case": "<diagnosed case>",
        "findings": [FindingFact(id="V99", title="<finding>", line=78, expected_pct=23.0, recipe="<recipe>")],
        "done": "<done>", "hints": [HintFact(attempt=29, text="<hint>", because=["<because>"])],
        "launches": [
            LaunchFact(
                case="<launch case>", kernel="<launched>", num_warps=16, num_stages=5, registers=201, spill_bytes=304,
                mma="wgmma", async_copies=17, load_widths_bytes=[12],
            )
        ],
        "profiles": [
            ProfileFact(
                kernel="<profiled>", duration_us=65.75, memory_pct=71.5, compute_pct=18.5, stalls=["<stall> 61 %"]
            )
        ],
    }  # fmt: skip
    return AttemptFacts.model_validate({**fields, **changed})


def tried(number: int = 28, **changed: Any) -> TriedFact:
    fields: dict[str, Any] = {
        "number": number, "parent": 27, "strategy": f"<tried {number}>", "kind": Kind.TIMEOUT, "ratio": ratio(1.503),
        "accepted": True, "why": "<why>",
    }  # fmt: skip
    return TriedFact.model_validate({**fields, **changed})


def run(**changed: Any) -> RunFacts:
    fields: dict[str, Any] = {
        "run_id": "run-1a2b3c", "title": "<title>", "state": "finished", "ended_by": "<ended>", "entry": "<entry>",
        "target": "<target>", "device": "<device>", "gpu": "<gpu>", "kernel": "<baseline.py>", "task": "<task.py>",
        "attempts": 55, "attempts_left": 26, "elapsed_s": 1234.5, "wall_s": 6543.0, "target_pct": 96.5,
        "target_ratio": 2.25, "incumbent": 25, "incumbent_shown_as": "<incumbent.py>", "incumbent_ratio": ratio(1.504),
        "parent": 24, "parent_why": "<parent why>", "tried": [tried()], "tried_omitted": 23,
        "lessons": [
            LessonFact(
                finding="T98", strategy="<lesson>", helped=21, tried=22, gain_pct=20.5, gain_low_pct=19.5,
                gain_high_pct=21.5, why="<lesson why>", stale="<stale>",
            )
        ],
        "focus": focus(),
    }  # fmt: skip
    return RunFacts.model_validate({**fields, **changed})
