"""The record that goes out with an exported kernel: what it was measured to be, by whom, and how to look again."""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from pydantic import Field

from ... import __version__
from ...profiling.optimization.model import BASELINE, Attempt, Budget, Confirmation, Evidence, Limits, Timing
from ...sandbox.outcome import Kind
from ...sandbox.wire import Wire
from .memory import now
from .record import Frozen, Run

FORMAT: Final = "tritonforge-verification"
VERSION: Final = 1
"""Of the record's form. Raised when a reader of the one before would take something wrong."""
INTERPRETER: Final = "interpreter"


class RecordedFile(Wire):
    """One file of an export."""

    name: str = Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$", max_length=200)
    """Beside the record."""
    sha256: str
    """Of its bytes."""


class HiddenFacts(Wire):
    """What may be told of hidden cases."""

    sha256: str | None
    """Of the cases as the run keeps them; null: there are none."""
    count: int
    source: Literal["task", "file", "derived", "none"]
    """Where they came from."""


class RecordedCode(Wire):
    """What one launch of the kernel executed."""

    case: str
    kernel: str
    code_hash: str
    """Equal hashes: the same machine code, warps and shared memory."""


class Step(Wire):
    """One attempt on the way from the baseline to the kernel."""

    number: int
    parent: int | None
    strategy: str
    kernel_sha256: str
    accepted: bool
    ratio: float | None
    """The baseline's time over its own; null: it was not timed, or is the baseline."""
    ratio_low: float | None
    ratio_high: float | None


class VerificationRecord(Wire):
    """An exported kernel's papers: `tritonforge-mcp verify` holds another machine against them."""

    format: Literal["tritonforge-verification"] = FORMAT
    version: Literal[1] = VERSION
    tool_version: str
    """Of tritonforge-mcp that wrote the record."""
    created_at: str
    """ISO 8601, UTC."""
    run_id: str
    title: str
    entry: str
    """The function that callers use."""
    attempt: int
    duplicate_of: int | None
    """The attempt whose measurements these are, where this one is that one over again."""
    accepted: bool
    """Whether the run accepted it: all checks, hidden cases and a second measurement passed."""
    ended_by: str | None
    """Why the run ended; null: it goes on."""
    kernel: RecordedFile
    baseline: RecordedFile
    task: RecordedFile
    patch: RecordedFile | None
    """From the baseline to the kernel; null: their texts are equal."""
    hidden: HiddenFacts
    target: str
    gpu: str | None
    """That times were taken on; null: nothing was timed."""
    torch: str | None
    triton: str | None
    device: str | None
    """Where results were compared: `cuda:0` or `interpreter`."""
    cases: list[str]
    """Visible cases."""
    code: list[RecordedCode]
    timings: list[Timing]
    """The first measurement: against the baseline (0) and, where that was another, the incumbent of that time."""
    confirmation: Confirmation | None
    """The second look, with the second measurement; null: there was none."""
    budget: Budget
    limits: Limits
    lineage: list[Step]
    """From the baseline to the kernel."""
    checked: list[str]
    """What was checked, in sentences."""
    not_checked: list[str]
    """What was not, and why."""

    def timing(self, against: int = BASELINE) -> Timing | None:
        """The first measurement against an attempt."""
        return next((timing for timing in self.timings if timing.against == against), None)

    def files(self) -> list[RecordedFile]:
        """All that belongs to the export beside the record."""
        return [self.kernel, self.baseline, self.task, *([self.patch] if self.patch is not None else [])]


class Files(NamedTuple):
    """The files that a record is about."""

    kernel: RecordedFile
    baseline: RecordedFile
    task: RecordedFile
    patch: RecordedFile | None


def record(
    run: Run, attempts: Sequence[Attempt], number: int, files: Files, missing: Sequence[str]
) -> VerificationRecord:
    """The record of a finished attempt.

    Args:
        run: the run.
        attempts: all of its attempts.
        number: which of them.
        files: what is exported.
        missing: what the files need and the export does not hold, in sentences.
    """
    frozen = run.frozen
    known = {attempt.number: attempt for attempt in attempts}
    attempt = known[number]
    evidence = attempt.evidence
    assert evidence is not None
    # A duplicate was never judged: what it is the same as was.
    judged = attempt if attempt.duplicate_of is None else known.get(attempt.duplicate_of, attempt)
    return VerificationRecord(
        tool_version=__version__,
        created_at=now(),
        run_id=frozen.run_id,
        title=frozen.title,
        entry=frozen.entry,
        attempt=number,
        duplicate_of=attempt.duplicate_of,
        accepted=judged.accepted,
        ended_by=run.ended_by,
        kernel=files.kernel,
        baseline=files.baseline,
        task=files.task,
        patch=files.patch,
        hidden=HiddenFacts(sha256=frozen.hidden_sha256, count=frozen.hidden_count, source=frozen.hidden_from),
        target=frozen.target,
        gpu=frozen.gpu if evidence.timings else None,
        torch=frozen.torch,
        triton=frozen.triton,
        device=evidence.device,
        cases=frozen.cases,
        code=[
            RecordedCode(case=launch.case, kernel=launch.facts.kernel, code_hash=launch.facts.code_hash)
            for launch in evidence.launches
            if launch.case in frozen.cases
        ],
        timings=[without_hidden(timing) for timing in evidence.timings],
        confirmation=_confirmation(evidence.confirmation),
        budget=frozen.budget,
        limits=frozen.limits,
        lineage=lineage(known, number),
        checked=_checked(frozen, judged, evidence),
        not_checked=[*_not_checked(frozen, judged, evidence), *missing],
    )


def without_hidden(timing: Timing) -> Timing:
    """A measurement without the cases that are nobody's to see."""
    return timing.model_copy(update={"cases": [case for case in timing.cases if not case.hidden]})


def run_shown(run: Run) -> Run:
    """A run without the names of the hidden cases that were dropped, and the times of those that were kept."""
    frozen = run.frozen.model_copy(update={"hidden_dropped": {}})
    return run.model_copy(update={"frozen": frozen, "verified": _confirmation(run.verified)})


def shown(attempt: Attempt) -> Attempt:
    """An attempt without the times of hidden cases."""
    if attempt.evidence is None:
        return attempt
    update = {
        "timings": [without_hidden(timing) for timing in attempt.evidence.timings],
        "confirmation": _confirmation(attempt.evidence.confirmation),
    }
    return attempt.model_copy(update={"evidence": attempt.evidence.model_copy(update=update)})


def lineage(known: dict[int, Attempt], number: int) -> list[Step]:
    """The attempts from the baseline to one of them, by their parents."""
    steps: list[Step] = []
    at: int | None = number
    while at is not None and at in known and all(step.number != at for step in steps):
        attempt = known[at]
        timing = attempt.evidence.timing(BASELINE) if attempt.evidence is not None else None
        steps.append(
            Step(
                number=at,
                parent=attempt.parent,
                strategy=attempt.strategy,
                kernel_sha256=attempt.kernel_sha256,
                accepted=attempt.accepted,
                ratio=timing.ratio if timing is not None else None,
                ratio_low=timing.ratio_low if timing is not None else None,
                ratio_high=timing.ratio_high if timing is not None else None,
            )
        )
        at = attempt.parent
    return steps[::-1]


def in_words(timing: Timing) -> str:
    """A measurement, such as `1.31x the speed of the baseline (95 % interval 1.29 to 1.33)`."""
    other = "the baseline" if timing.against == BASELINE else f"attempt {timing.against}"
    return f"{timing.ratio:.4g}x the speed of {other} (95 % interval {timing.ratio_low:.4g} to {timing.ratio_high:.4g})"


def _confirmation(confirmation: Confirmation | None) -> Confirmation | None:
    if confirmation is None or confirmation.timing is None:
        return confirmation
    return confirmation.model_copy(update={"timing": without_hidden(confirmation.timing)})


def _checked(frozen: Frozen, judged: Attempt, evidence: Evidence) -> list[str]:
    said: list[str] = []
    if evidence.device is not None and (evidence.kind is Kind.OK or evidence.stage in ("benchmark", "acceptance")):
        where = "in Triton's interpreter" if evidence.device == INTERPRETER else f"on {frozen.gpu or evidence.device}"
        said.append(f"Every output element was compared with what is expected, {where}.")
    said += [f"Timed in interleaved blocks: {in_words(timing)}." for timing in evidence.timings]
    confirmation = evidence.confirmation
    if confirmation is not None and confirmation.kind is Kind.OK:
        hidden = f", and on {count} hidden case(s)" if (count := confirmation.hidden_checked) else ""
        said.append(f"Checked again in fresh processes with fresh seeds{hidden}.")
        if confirmation.timing is not None:
            said.append(f"Timed a second time: {in_words(confirmation.timing)}.")
    if judged.accepted and judged.verdict is not None:
        said.append(f"Accepted: {'; '.join(judged.verdict.reasons) or 'no reasons were kept'}.")
    return said


def _not_checked(frozen: Frozen, judged: Attempt, evidence: Evidence) -> list[str]:
    said: list[str] = []
    if not judged.accepted:
        reasons = judged.verdict.reasons if judged.verdict is not None else []
        said.append(f"The run did not accept this attempt: {'; '.join(reasons) or 'no reasons were kept'}.")
    if evidence.kind is not Kind.OK:
        message = "" if evidence.problem is None else f": {evidence.problem.message}"
        said.append(f"Its evaluation ended in {evidence.kind}{message}.")
    if evidence.device == INTERPRETER:
        said.append("Triton's interpreter checks the arithmetic, not races or the compiler.")
    if not evidence.timings:
        said.append(f"Nothing was timed: {evidence.untimed or 'its evaluation ended before that'}.")
    confirmation = evidence.confirmation
    if confirmation is None:
        said.append("There was no second look with fresh seeds and hidden cases.")
    elif confirmation.kind is not Kind.OK:
        message = "" if confirmation.problem is None else f": {confirmation.problem.message}"
        said.append(f"The second look ended in {confirmation.kind}{message}.")
    elif frozen.hidden_count == 0:
        said.append("The run has no hidden cases.")
    return said
