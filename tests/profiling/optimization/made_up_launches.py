"""Evidence that nobody measured: launches as they were recorded, with made-up changes, times and profiles."""

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from tests.diagnosis.made_up import profile, recorded
from tritonforge.profiling.comparison import Outcome
from tritonforge.profiling.compiler.launch import LaunchFacts
from tritonforge.profiling.ncu.model import LaunchProfile, Stall
from tritonforge.profiling.optimization.hints import hints
from tritonforge.profiling.optimization.model import (
    Attempt,
    Budget,
    CaseLaunch,
    CaseTime,
    CaseTiming,
    Diagnosed,
    Evidence,
    FindingNote,
    Hint,
    Limits,
    Memory,
    Timing,
)
from tritonforge.sandbox.outcome import Kind, Problem

AT = "2026-11-30T12:00:00+00:00"


@lru_cache
def _recorded(name: str) -> LaunchFacts:
    facts = recorded(name).launch
    assert facts is not None
    return facts


def facts(name: str = "matmul_candidate", **changed: Any) -> LaunchFacts:
    """A recorded launch; code that differs in some fact has another hash."""
    known = _recorded(name)
    changed.setdefault("code_hash", known.code_hash)
    if set(changed) - {"code_hash", "grid", "kernel"}:
        changed["code_hash"] = hashlib.sha256(f"{name}{sorted(changed.items(), key=str)}".encode()).hexdigest()
    return known.model_copy(update=changed)


def product(m: int, n: int, k: int, **changed: Any) -> list[Any]:
    """The one dot of a matmul, of another tile."""
    return [_recorded("matmul_candidate").dots[0].model_copy(update={"m": m, "n": n, "k": k, **changed})]


def launched(*launches: LaunchFacts, case: str = "main") -> list[CaseLaunch]:
    return [CaseLaunch(case=case, facts=each) for each in launches]


def timing(
    ratio: float,
    against: int = 0,
    *,
    width: float = 0.005,
    cases: Sequence[CaseTiming] = (),
    outcome: str | None = None,
) -> Timing:
    """A comparison whose interval reaches `width` to either side."""
    told: Outcome = "faster" if ratio - width > 1 else "slower" if ratio + width < 1 else "same"
    fields: dict[str, Any] = {"against": against, "ratio": ratio, "comparison": outcome or told, "cases": list(cases)}
    return Timing(ratio_low=ratio - width, ratio_high=ratio + width, **fields)


def case_timing(case: str, ratio: float, *, width: float = 0.005, **changed: Any) -> CaseTiming:
    whole = timing(ratio, width=width)
    given: dict[str, Any] = {
        "case": case, "weight": 1.0, "device_us": 100.0 / ratio, "call_us": 110.0, "other_device_us": 100.0,
        "ratio": ratio, "ratio_low": whole.ratio_low, "ratio_high": whole.ratio_high,
        "comparison": whole.comparison, "first_call_s": 1.0,
    }  # fmt: skip
    return CaseTiming.model_validate(given | changed)


def own(case: str, device_us: float = 100.0, **changed: Any) -> CaseTime:
    given: dict[str, Any] = {
        "case": case, "weight": 1.0, "device_us": device_us, "call_us": device_us + 5, "first_call_s": 1.0,
    }  # fmt: skip
    return CaseTime.model_validate(given | changed)


def finding(id: str, **changed: Any) -> FindingNote:
    given: dict[str, Any] = {
        "id": id, "title": f"Title of {id}", "kernel": "kernel", "line": 12, "recipe": f"Do what mends {id}.",
        "expected_pct": 31.0, "at_most_pct": 40.0,
    }  # fmt: skip
    return FindingNote.model_validate(given | changed)


def diagnosed(*findings: FindingNote, profiles: Sequence[LaunchProfile] = (), **changed: Any) -> Diagnosed:
    given: dict[str, Any] = {"case": "main", "findings": list(findings), "profiles": list(profiles)}
    return Diagnosed(**given | changed)


def profiled(duration_us: float = 100.0, stalls: dict[str, tuple[float, float]] | None = None, **fields: Any) -> Any:
    """A profile; `stalls` are percent and cycles by reason."""
    told = [
        Stall(reason=reason, pct=pct, cycles=cycles, meaning="") for reason, (pct, cycles) in (stalls or {}).items()
    ]
    return profile(
        kernel="kernel", duration_us=duration_us, stalls=tuple(told), stalls_from="counted" if told else None, **fields
    )


def right(*launches: LaunchFacts, **changed: Any) -> Evidence:
    """A right candidate; without `timings` nothing says how fast."""
    given: dict[str, Any] = {"kind": Kind.OK, "stage": "done", "launches": launched(*launches), "device": "cuda:0"}
    return Evidence(**given | changed)


def failed(kind: Kind, message: str, *launches: LaunchFacts, **of_the_problem: Any) -> Evidence:
    problem = Problem(stage="run", message=message, **of_the_problem)
    return Evidence(kind=kind, stage="correctness", problem=problem, launches=launched(*launches))


def attempt(number: int, evidence: Evidence | None, strategy: str = "an edit", **changed: Any) -> Attempt:
    given: dict[str, Any] = {
        "number": number, "state": "finished", "parent": None if number == 0 else 0, "strategy": strategy,
        "kernel_sha256": f"sha{number}", "text_identity": f"text{number}", "submitted_at": AT, "finished_at": AT,
        "evidence": evidence,
    }  # fmt: skip
    return Attempt(**given | changed)


def memory(*evidence: Evidence, incumbent: int = 0) -> Memory:
    """A run whose attempts so far found this, the baseline first."""
    attempts = [attempt(number, each) for number, each in enumerate(evidence)]
    return Memory(attempts=attempts, incumbent=incumbent, budget=Budget(), limits=Limits(), elapsed_s=1.0)


def advised(
    evidence: Evidence, parent: Evidence | None = None, strategy: str = "an edit", *, incumbent: int = 0
) -> list[Hint]:
    """Hints of the first candidate of a run whose baseline found what `parent` says."""
    its = right(facts()) if parent is None else parent
    return hints(evidence, its, memory(its, incumbent=incumbent), strategy)
