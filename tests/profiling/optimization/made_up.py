"""Attempts, measurements and histories made up for tests; each says only what it is about."""

from collections.abc import Sequence
from typing import Any

from tritonforge.profiling.comparison import Outcome
from tritonforge.profiling.compiler.launch import LaunchFacts
from tritonforge.profiling.optimization.model import (
    Attempt,
    Budget,
    CaseLaunch,
    CaseTime,
    CaseTiming,
    Confirmation,
    Diagnosed,
    Evidence,
    FindingNote,
    Limits,
    Memory,
    Timing,
)
from tritonforge.sandbox.outcome import Kind, Problem

BASELINE_US = 100.0
"""Device time of every case of the made-up baseline."""


def launch(case: str = "a", **changed: Any) -> CaseLaunch:
    fields: dict[str, Any] = {
        "kernel": "kernel", "grid": (64, 1, 1), "num_warps": 4, "num_stages": 3, "num_ctas": 1, "registers": 64,
        "stack_bytes": 0, "spill_bytes": 0, "shared_bytes": 1024, "theoretical_occupancy_pct": 50.0, "blocks_per_sm": 8,
        "occupancy_limiter": "registers", "registers_for_next_block": 56, "shared_bytes_for_next_block": None,
        "waves": 0.1, "last_wave_filled_pct": 10.0, "tail_lost_pct_at_most": 0.0, "mma": "none", "dots": [], "loops": 1,
        "async_copies": 0, "tma_copies": 0, "barriers": 0, "warp_specialized": False, "pipeline_buffers": 0,
        "sync_loads_beside_dots": 0, "layout_conversions_in_loops": 0, "load_widths_bytes": [16],
        "store_widths_bytes": [16], "atomics": 0, "acq_rel_atomics": 0, "elements_per_program_max": 1024,
        "element_bytes": 4, "load_tile_bytes": 4096, "store_tile_bytes": 4096, "code_hash": "0" * 16,
        "ptxas_notes": [], "amd": None, "absent": {},
    }  # fmt: skip
    return CaseLaunch(case=case, facts=LaunchFacts.model_validate({**fields, **changed}))


def outcome(ratio: float, width: float) -> Outcome:
    """What a benchmark would make of a ratio whose interval goes `width` to each side."""
    if ratio - width > 1:
        return "faster"
    if ratio + width < 1:
        return "slower"
    return "same" if width <= 0.005 else "ambiguous"


def case_time(case: str = "a", device_us: float = BASELINE_US, **changed: Any) -> CaseTime:
    """One case by itself."""
    fields: dict[str, Any] = {
        "case": case, "weight": 1.0, "device_us": device_us, "call_us": device_us + 10, "first_call_s": 1.0,
    }  # fmt: skip
    return CaseTime.model_validate({**fields, **changed})


def case_timing(case: str = "a", ratio: float = 1.0, width: float = 0.004, **changed: Any) -> CaseTiming:
    """One case beside another attempt. Whole calls show the same ratio, where nothing else is said."""
    other_us = BASELINE_US
    fields: dict[str, Any] = {
        "case": case, "weight": 1.0, "device_us": other_us / ratio, "call_us": other_us / ratio + 10,
        "other_device_us": other_us, "ratio": ratio, "ratio_low": ratio - width, "ratio_high": ratio + width,
        "comparison": outcome(ratio, width), "min_detectable_pct": 100 * width, "call_ratio": ratio,
        "call_ratio_low": ratio - width, "call_ratio_high": ratio + width, "first_call_s": 1.0,
    }  # fmt: skip
    return CaseTiming.model_validate({**fields, **changed})


def timing(
    ratio: float = 1.0,
    against: int = 0,
    width: float = 0.004,
    cases: Sequence[CaseTiming] | None = None,
    **changed: Any,
) -> Timing:
    """A candidate beside another attempt; without `cases` in one case `a`."""
    fields: dict[str, Any] = {
        "against": against, "ratio": ratio, "ratio_low": ratio - width, "ratio_high": ratio + width,
        "comparison": outcome(ratio, width), "cases": list(cases or [case_timing("a", ratio, width)]),
    }  # fmt: skip
    return Timing.model_validate({**fields, **changed})


def confirmation(ratio: float = 1.0, against: int = 0, width: float = 0.004, **changed: Any) -> Confirmation:
    """A second look that found the same."""
    fields: dict[str, Any] = {"kind": Kind.OK, "hidden_checked": 2, "timing": timing(ratio, against, width)}
    return Confirmation.model_validate({**fields, **changed})


def problem(message: str = "it is wrong", **changed: Any) -> Problem:
    return Problem.model_validate({"stage": "compare", "message": message, **changed})


def finding(id: str = "V1", title: str = "narrow loads", **changed: Any) -> FindingNote:
    fields: dict[str, Any] = {
        "id": id, "title": title, "kernel": "kernel", "line": 12, "recipe": f"mend {title}", "expected_pct": 20.0,
        "at_most_pct": 40.0,
    }  # fmt: skip
    return FindingNote.model_validate({**fields, **changed})


def diagnosed(*findings: FindingNote, **changed: Any) -> Diagnosed:
    return Diagnosed.model_validate({"case": "a", "findings": list(findings), **changed})


def evidence(
    ratio: float | None = None, against: int = 0, *, to_baseline: float | None = None, **changed: Any
) -> Evidence:
    """A right candidate.

    Args:
        ratio: beside attempt `against`; None: nothing was timed, because there is no GPU.
        against: the incumbent.
        to_baseline: the ratio beside the baseline, where the incumbent is another attempt.
        changed: fields that differ.
    """
    fields: dict[str, Any] = {"kind": Kind.OK, "stage": "done", "launches": [launch()], "device": "cuda:0"}
    if ratio is None:
        fields |= {"untimed": "there is no GPU", "device": "interpreter"}
    else:
        overall = ratio if against == 0 else to_baseline or ratio
        fields |= {
            "own": [case_time("a", BASELINE_US / overall)],
            "timings": [timing(overall), *([timing(ratio, against)] if against else [])],
        }
    return Evidence.model_validate({**fields, **changed})


def failed(kind: Kind = Kind.WRONG, **changed: Any) -> Evidence:
    """A candidate that failed."""
    fields: dict[str, Any] = {"kind": kind, "stage": "correctness", "problem": problem()}
    return Evidence.model_validate({**fields, **changed})


def attempt(number: int, its: Evidence | None = None, parent: int | None = 0, **changed: Any) -> Attempt:
    """A finished attempt; without evidence a duplicate of the baseline."""
    fields: dict[str, Any] = {
        "number": number, "state": "finished", "parent": parent if number else None, "strategy": f"idea {number}",
        "kernel_sha256": f"{number:064x}", "text_identity": f"{number:064x}", "submitted_at": "2026-11-30T12:00:00Z",
        "finished_at": "2026-11-30T12:00:30Z", "counted": its is not None and number > 0, "evidence": its,
        "duplicate_of": None if its is not None else 0,
    }  # fmt: skip
    return Attempt.model_validate({**fields, **changed})


def baseline(*cases: CaseTime, **changed: Any) -> Attempt:
    """Attempt 0; without `cases` with one case `a`."""
    fields: dict[str, Any] = {
        "kind": Kind.OK, "stage": "done", "device": "cuda:0", "own": list(cases or [case_time()]),
        "launches": [launch()],
    }  # fmt: skip
    return attempt(0, Evidence.model_validate({**fields, **changed}), strategy="baseline")


def memory(*attempts: Attempt, incumbent: int = 0, **changed: Any) -> Memory:
    """What is known of a run; without attempts only its baseline."""
    fields: dict[str, Any] = {
        "attempts": list(attempts or [baseline()]), "incumbent": incumbent, "budget": Budget(), "limits": Limits(),
        "elapsed_s": 60.0,
    }  # fmt: skip
    return Memory.model_validate({**fields, **changed})
