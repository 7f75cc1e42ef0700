"""What became of each claim of an export's record where it was looked at again, and what that comes to."""

from typing import Final, Literal

from ...profiling.comparison import MARGIN, Score
from ...profiling.optimization.model import Timing
from ...sandbox.wire import Wire
from ..tools.compile_report import CompileResult
from ..tools.run_correctness import CorrectnessResult
from ..tools.run_shown import words
from .verification import VerificationRecord, in_words

DETAIL_CHARACTERS: Final = 600


class Claim(Wire):
    """One thing that the record says, and what became of it here."""

    claim: Literal["files", "compiles", "same_code", "correct", "hidden", "faster", "ratio"]
    """`files`: they are those that were exported; `same_code`: the compiler makes of it what was measured; `hidden`:
    right on the task's hidden cases too; `ratio`: it gains no less than recorded."""
    holds: bool | None
    """Null: this machine can't tell."""
    detail: str


class Here(Wire):
    """What it was verified with."""

    gpu: str | None
    driver: str | None
    torch: str | None
    triton: str | None
    device: str | None = None
    """Where results were compared: `cuda:0` or `interpreter`."""


class VerificationResult(Wire):
    """What came of verifying an export."""

    outcome: Literal["holds", "fails", "undecided"]
    """`holds`: all that could be checked here; `not_checked` tells the rest."""
    summary: str
    run_id: str
    attempt: int
    entry: str
    here: Here | None
    """Null: the files are others, so nothing was run."""
    claims: list[Claim]
    recorded: Timing | None
    """The first measurement of the record against the baseline."""
    ratio: float | None = None
    """The baseline's time over the kernel's, now: above 1 the kernel is faster. Null: nothing was timed."""
    ratio_low: float | None = None
    ratio_high: float | None = None
    overlaps: bool | None = None
    """Whether this interval and the recorded one have values in common."""
    not_checked: list[str]


def judge_ratio(record: VerificationRecord, score: Score, differs: list[str]) -> tuple[list[Claim], list[str]]:
    """What a new measurement makes of the recorded one.

    Args:
        record: of the export.
        score: the kernel beside the baseline, now.
        differs: what is not as it was when it was recorded.

    Returns:
        The claims, and what stays open.
    """
    now = f"{score.ratio:.4g}x now (95 % interval {score.ratio_low:.4g} to {score.ratio_high:.4g})"
    then = record.timing()
    if then is None or then.comparison != "faster":
        return [], [f"The record claims no gain over the baseline; it is {score.comparison}: {now}."]
    told, verdict = {
        "faster": (True, "faster than the baseline"),
        "slower": (False, "slower than the baseline"),
        "same": (False, "as fast as the baseline"),
        "ambiguous": (None, "whether it is faster than the baseline can't be told"),
    }[score.comparison]
    slower = f"; slower in {', '.join(score.slower_cases)}" if score.slower_cases else ""
    claims = [Claim(claim="faster", holds=told, detail=f"{verdict}: {now}{slower}")]
    recorded = f"recorded {then.ratio:.4g}x ({then.ratio_low:.4g} to {then.ratio_high:.4g})"
    if differs:
        return claims, [f"The recorded ratio is that of another setting ({'; '.join(differs)}): {recorded}, {now}."]
    if not told:
        return claims, [f"{recorded[0].upper()}{recorded[1:]}."]
    # Changes within the margin count as the same everywhere else too.
    kept = score.ratio_high * (1 + MARGIN) >= then.ratio_low
    return [*claims, Claim(claim="ratio", holds=kept, detail=f"{recorded}, {now}")], []


def interpreted(right: CorrectnessResult) -> str:
    """What a comparison in Triton's interpreter leaves open."""
    smaller = " (made smaller)" if right.made_smaller else ""
    cases = ", ".join(case.case for case in right.cases)
    return (
        f"Results were compared in Triton's interpreter, on {cases}{smaller}: it checks the arithmetic, not races or "
        "the compiler."
    )


def same_code(record: VerificationRecord, found: CompileResult) -> Claim:
    """Whether the compiler makes the recorded machine code."""
    known = {(code.case, code.kernel, code.code_hash) for code in record.code}
    other = [
        f"{launch.kernel} in case {launch.case}"
        for launch in found.launches
        if (launch.case, launch.kernel, launch.code_hash) not in known
    ]
    detail = f"other code than recorded: {', '.join(other)}" if other else f"as recorded, with Triton {record.triton}"
    return Claim(claim="same_code", holds=not other, detail=detail)


def differences(record: VerificationRecord, here: Here) -> list[str]:
    """What a recorded time depends on and is otherwise here."""
    pairs = (("GPU", record.gpu, here.gpu), ("torch", record.torch, here.torch), ("Triton", record.triton, here.triton))
    return [f"{name} {now}, recorded with {then}" for name, then, now in pairs if then != now]


def concluded(
    record: VerificationRecord,
    here: Here | None,
    claims: list[Claim],
    not_checked: list[str],
    score: Score | None = None,
) -> VerificationResult:
    """What the claims come to."""
    told = [claim.holds for claim in claims]
    outcome = "fails" if False in told else "undecided" if None in told else "holds"
    recorded = record.timing()
    overlaps = None
    if score is not None and recorded is not None:
        overlaps = score.ratio_low <= recorded.ratio_high and recorded.ratio_low <= score.ratio_high
    where = "" if here is None else f" on {here.gpu or 'this machine, which has no GPU that can be used'}"
    said = {"holds": "holds", "fails": "does NOT hold", "undecided": "can't be decided"}[outcome]
    claimed = f" It claims {in_words(recorded)}." if recorded is not None else " It claims no times."
    return VerificationResult(
        outcome=outcome,
        summary=f"The record of {record.entry} (run {record.run_id}, attempt {record.attempt}) {said}{where}.{claimed}",
        run_id=record.run_id,
        attempt=record.attempt,
        entry=record.entry,
        here=here,
        claims=claims,
        recorded=recorded,
        ratio=score.ratio if score is not None else None,
        ratio_low=score.ratio_low if score is not None else None,
        ratio_high=score.ratio_high if score is not None else None,
        overlaps=overlaps,
        not_checked=not_checked,
    )


def text(result: VerificationResult) -> str:
    """The same facts for a reader."""
    marks = {True: "ok    ", False: "FAILS ", None: "open  "}
    lines = [result.summary]
    lines += [
        f"{marks[claim.holds]} {claim.claim}: {words(claim.detail, DETAIL_CHARACTERS)}" for claim in result.claims
    ]
    lines += [f"       {words(note, DETAIL_CHARACTERS)}" for note in result.not_checked]
    return "\n".join(lines)
