"""What diagnose_kernel returns: its models, and the same in words."""

from collections.abc import Set
from typing import Final, Literal

from ...profiling.diagnosis.model import Diagnosis, Evidence, Finding, Level, Scalar
from ...sandbox.facts import line
from ...sandbox.wire import Wire
from ..probing import ProbeResult
from ..results import Result
from .diagnose_case import Diagnosed, Ladder, Step

FINDINGS_IN_FULL: Final = 3
OF_OTHERS: Final = 1
"""Of launches behind the first."""
BRIEF: Final = 3
HYPOTHESES: Final = 3
EVIDENCE: Final = 4
EVIDENCE_OF_OTHERS: Final = 2
TEXT_CHARACTERS: Final = 300
DIFF_CHARACTERS: Final = 1500
EXAMPLE_CHARACTERS: Final = 500
UNKNOWN: Final = 3
NOTES: Final = 6
NAMED: Final = 8

Name = Literal["source", "profile", "code", "compiler"]
NAMES: Final[dict[Level, Name]] = {
    Level.SOURCE: "source",
    Level.PROFILE: "profile",
    Level.CODE: "code",
    Level.COMPILER: "compiler",
}


class LevelRun(Wire):
    """One level of the ladder: what it cost, or why it was left out."""

    level: Name
    ran: bool
    seconds: float
    why: str


class Predicted(Wire):
    """How a fact changes if the finding is right and the edit is made."""

    fact: str
    now: Scalar | None
    expected: Literal["becomes", "falls", "rises"]
    to: Scalar | None


class FindingShown(Wire):
    """One inefficiency, with what shows it and the edit."""

    id: str
    title: str
    level: Name
    """Of the deepest evidence."""
    line: int | None
    """In the kernel file."""
    excerpt: str | None
    evidence: list[str]
    cause: str
    """The compiler's pass and its condition, where they are known."""
    recipe: str
    diff: str | None
    """A unified diff of the kernel file; null where none can be written from the source."""
    example: str | None
    """A worked one where there is no diff; of launches behind the first, the artifact has it."""
    applies_if: str | None
    """What has to be true and can't be seen in the source."""
    expected_pct: float | None
    """Of the launch's time that the edit is expected to save; null: nothing that was measured tells it."""
    at_most_pct: float | None
    gain_why: str
    predicted: list[Predicted]
    falsified_by: str
    risks: list[str]
    """To results."""
    explains: list[str]
    """Symptoms that go with it."""


class Brief(Wire):
    """A finding in one line."""

    id: str
    title: str
    line: int | None
    recipe: str


class LaunchDiagnosis(Wire):
    """One launch."""

    kernel: str
    grid: tuple[int, int, int]
    duration_us: float | None
    """Under the profiler; null: not profiled."""
    floor_us: float | None
    """The least time that its work takes on this device."""
    floor_pct: float | None
    """Of its duration: at 85 nothing is left to win."""
    limits: list[str]
    """What the profile says that it waits for."""
    done: str | None
    """Why nothing is left to win, as far as that is known; null where findings are."""
    findings: list[FindingShown]
    """What the code confirms, by expected gain."""
    more: list[Brief]
    """Further ones."""
    hypotheses: list[Brief]
    """What only the source suggests, or what has not been seen to pay: check before acting."""
    unknown: list[str]
    """What was not looked at, and what that leaves open."""
    not_looked_for: list[str] = []
    """Ids of the catalogue that need it; of launches behind the first, the artifact has them."""


class CheckedPrediction(Predicted):
    """A prediction beside what the other file's code shows."""

    id: str
    kernel: str
    after: Scalar | None
    holds: bool | None
    """Null: can't be told."""


class Appeared(Wire):
    """A finding that only the other file has."""

    id: str
    title: str
    line: int | None
    """In the other file."""
    matters: str
    """Whether it costs time, as far as the code alone tells."""


class Verification(Wire):
    """Whether another kernel file's code is what the findings predicted. Nothing was timed."""

    file: str
    verdict: Literal["as_predicted", "not_as_predicted", "nothing_changed", "unknown"]
    """By the first finding whose prediction can be told."""
    predictions: list[CheckedPrediction]
    gone: list[str]
    """Findings that the other file does not have any more, such as `V1 line 12`."""
    left: list[str]
    appeared: list[Appeared]


class DiagnosisResult(Result):
    """What `diagnose_kernel` returns."""

    target: str | None = None
    gpu: str | None = None
    """That it was profiled on; null: not profiled."""
    case: str | None = None
    compile_s: float | None = None
    """Workers, inputs and Triton's own compilation; the levels come on top."""
    levels: list[LevelRun] = []
    launches: list[LaunchDiagnosis] = []
    launches_omitted: int = 0
    verification: Verification | None = None
    probes: ProbeResult | None = None
    """With probes: where the time of a call goes."""
    notes: list[str] = []


def level_of(step: Step) -> LevelRun:
    """A step of the ladder, as it is shown."""
    return LevelRun(level=NAMES[step.level], ran=step.ran, seconds=round(step.seconds, 2), why=line(step.why))


def launch_of(found: Diagnosed, *, first: bool) -> LaunchDiagnosis:
    """A launch, as it is shown; all of it is an artifact."""
    told, profile, floor = found.told, found.profile, found.facts.floor
    shown = FINDINGS_IN_FULL if first else OF_OTHERS
    return LaunchDiagnosis(
        kernel=told.kernel,
        grid=found.facts.captured.grid,
        duration_us=None if profile is None or profile.duration_us is None else round(profile.duration_us, 2),
        floor_us=None if floor is None else round(floor.us, 2),
        floor_pct=None if floor is None else round(floor.share_pct, 1),
        limits=[_cut(cause.text) for cause in found.facts.causes[: 2 if first else 1]],
        done=told.done,
        findings=[_full(finding, first=first) for finding in told.findings[:shown]],
        more=[_brief(finding) for finding in told.findings[shown : shown + BRIEF]],
        hypotheses=[_brief(finding) for finding in told.hypotheses[: HYPOTHESES if first else OF_OTHERS]],
        unknown=[_cut(text) for text in told.unknown[:UNKNOWN]] if first else [],
        not_looked_for=told.not_looked_for if first else [],
    )


def named(finding: Finding) -> str:
    """Such as `V1 line 12`."""
    return _placed(finding)


def appeared(told: Diagnosis, finding: Finding) -> Appeared:
    """A finding of a diagnosis without a profile, as new in that file."""
    if finding in told.findings:
        matters = f"the code shows it; its cost is unknown ({finding.gain.why})"
    elif finding.level is Level.SOURCE:
        matters = "only the source suggests it: check it before acting"
    elif finding.gain.why.startswith("for information"):
        matters = finding.gain.why
    else:
        matters = "it matters only where a profile shows that it costs time"
    return Appeared(id=finding.id, title=finding.title, line=finding.line, matters=_cut(matters, 200))


def summary(result: DiagnosisResult, ladder: Ladder) -> str:
    """The result in words."""
    where = f"on {result.gpu}" if result.gpu is not None else f"for {result.target}, without a profile"
    ran = ", ".join(f"{level.level} {level.seconds:.1f} s" for level in result.levels if level.ran)
    head = f"Diagnosed case {ladder.case} {where}. Levels: {ran}; compiling took {result.compile_s or 0:.1f} s."
    parts = [head]
    parts += [f"Left out: {level.level} ({level.why})." for level in result.levels if not level.ran]
    # What is longest comes last: a text that is too long is cut at its end.
    parts += [f"Note: {note}" for note in result.notes]
    if result.verification is not None:
        parts += _verification_lines(result.verification)
    if result.probes is not None:
        parts += [f"Probe: {text}" for text in (*result.probes.says, *result.probes.notes)]
        missing = [one for one in result.probes.probes if one.not_measured is not None]
        parts += [f"Probe {one.name} was not timed: {_cut(one.not_measured or '', 160)}" for one in missing]
    gone = set(result.verification.gone) if result.verification is not None else set[str]()
    for launch in result.launches:
        parts += _launch_lines(launch, gone)
    if result.launches_omitted:
        parts.append(f"{result.launches_omitted} more launch(es) not shown.")
    return "\n".join(parts)


def next_step(result: DiagnosisResult) -> str:
    """What to do with it."""
    verification = result.verification
    if verification is not None:
        match verification.verdict:
            case "as_predicted":
                return "The code changed as predicted: run_correctness on it, then benchmark it against this kernel."
            case "nothing_changed":
                return "No predicted fact changed: the edit did not reach the compiler. Look at it before you time it."
            case "not_as_predicted":
                return "The code did not change as predicted: mend the edit, or drop the finding. Don't time it yet."
            case "unknown":
                return "What was predicted can't be seen in the code: run_correctness, then benchmark."
    first = next((finding for launch in result.launches for finding in launch.findings), None)
    if first is not None:
        return (
            f"Make the edit of {first.id} alone, then call diagnose_kernel on this kernel with verify_with=the edited "
            "file: it tells whether the code changed as predicted. Then run_correctness and benchmark."
        )
    if any(launch.hypotheses for launch in result.launches):
        return "Nothing is certain. Check the first hypothesis against the source before you act on it."
    if result.gpu is None:
        return "Only a profile tells whether time is left to win: call it on a machine with a GPU, or benchmark."
    return "Nothing to change was found: stop, or change the algorithm so that there is less to do."


def _full(finding: Finding, *, first: bool) -> FindingShown:
    rewrite = finding.rewrite
    diff = rewrite.diff if rewrite.diff is not None and _fits(rewrite.diff) else None
    return FindingShown(
        id=finding.id,
        title=finding.title,
        level=NAMES[finding.level],
        line=finding.line,
        excerpt=None if finding.excerpt is None else line(finding.excerpt)[:160],
        evidence=[_evidence(each) for each in finding.evidence[: EVIDENCE if first else EVIDENCE_OF_OTHERS]],
        cause=_cut(finding.cause),
        recipe=_cut(rewrite.recipe, 400),
        diff=diff,
        example=None if diff is not None or not first else rewrite.example[:EXAMPLE_CHARACTERS],
        applies_if=None if rewrite.applies_if is None else _cut(rewrite.applies_if),
        expected_pct=finding.gain.expected_pct,
        at_most_pct=finding.gain.at_most_pct,
        gain_why=_cut(finding.gain.why),
        predicted=[Predicted(**each.model_dump()) for each in finding.predicted],
        falsified_by=_cut(finding.falsified_by),
        risks=[_cut(risk) for risk in finding.risks],
        explains=[
            f"{each.id} {each.title}" + (f" (line {each.line})" if each.line else "") for each in finding.explains
        ],
    )


def _fits(diff: str) -> bool:
    """Whether it is short, and can be shown as it is: anything but printable text would have to be changed."""
    return len(diff) <= DIFF_CHARACTERS and diff.replace("\n", "").replace("\t", "").isprintable()


def _brief(finding: Finding) -> Brief:
    return Brief(id=finding.id, title=finding.title, line=finding.line, recipe=_cut(finding.rewrite.recipe, 160))


def _evidence(each: Evidence) -> str:
    where = f" (line {each.line})" if each.line is not None else ""
    name = NAMES[each.level]
    return _cut(f"{name}: {line(each.text).removeprefix(f'{name}: ')}{where}")


def _placed(found: Finding | FindingShown | Brief) -> str:
    return found.id if found.line is None else f"{found.id} line {found.line}"


def _launch_lines(launch: LaunchDiagnosis, gone: Set[str]) -> list[str]:
    """What the kernel has; of what the verified file does not have any more, only that."""
    time = "" if launch.duration_us is None else f", {launch.duration_us:.1f} us"
    if launch.floor_us is not None and launch.floor_pct is not None:
        time += f" (floor {launch.floor_us:.1f} us: {launch.floor_pct:.0f} % reached)"
    told = [f"- {launch.kernel} grid {'x'.join(map(str, launch.grid))}{time}"]
    told += [f"  limit: {text}" for text in launch.limits]
    if launch.done is not None:
        told.append(f"  {launch.done}")
    for number, finding in enumerate(launch.findings, 1):
        if _placed(finding) in gone:
            told.append(f"  {number}. {_short(finding)}: gone in the other file")
        else:
            told += _finding_lines(number, finding)
    told += [f"  also {_short(brief)}" for brief in launch.more if _placed(brief) not in gone]
    told += [
        f"  hypothesis {_short(brief)} -> {brief.recipe}" for brief in launch.hypotheses if _placed(brief) not in gone
    ]
    told += [f"  unknown: {text}" for text in launch.unknown]
    return told


def _finding_lines(number: int, finding: FindingShown) -> list[str]:
    where = "" if finding.line is None else f" line {finding.line}: `{finding.excerpt}`"
    told = [f"  {number}. {finding.id} {finding.title}{where}"]
    told += [f"     {text}" for text in finding.evidence]
    told.append(f"     cause: {finding.cause}")
    told.append(f"     edit: {finding.recipe}")
    if finding.diff is not None:
        told += [f"     | {text}" for text in finding.diff.splitlines()]
    if finding.applies_if is not None:
        told.append(f"     only if {finding.applies_if}")
    gain = "unknown" if finding.expected_pct is None else f"{finding.expected_pct:.0f} % of the time"
    bound = "" if finding.at_most_pct is None else f", at most {finding.at_most_pct:.0f} %"
    told.append(f"     expected gain: {gain}{bound} ({finding.gain_why})")
    if finding.predicted:
        told.append(f"     predicted: {'; '.join(map(_prediction, finding.predicted))}")
    told.append(f"     wrong if: {finding.falsified_by}")
    if finding.risks:
        told.append(f"     risk: {'; '.join(finding.risks)}")
    if finding.explains:
        told.append(f"     explains: {'; '.join(finding.explains[:BRIEF])}")
    return told


def _verification_lines(found: Verification) -> list[str]:
    told = [f"{found.file}: {found.verdict.replace('_', ' ')}."]
    for each in found.predictions:
        held = {True: "as predicted", False: "NOT as predicted", None: "can't be told"}[each.holds]
        held = "unchanged" if each.after == each.now else held
        told.append(f"  {each.id} {each.kernel}: {each.fact} {each.now} -> {each.after}: {held}")
    for what, names in (("gone", found.gone), ("left", found.left)):
        if names:
            told.append(f"  {what}: {', '.join(names[:NAMED])}")
    told += [f"  new: {_short(each)}: {each.matters}" for each in found.appeared[:NAMED]]
    return told


def _prediction(each: Predicted) -> str:
    to = "" if each.to is None else f" {'to' if each.expected != 'becomes' else ''} {each.to}".replace("  ", " ")
    return f"{each.fact} (now {each.now}) {each.expected}{to}"


def _short(brief: Brief | FindingShown | Appeared) -> str:
    return f"{brief.id} {brief.title}" + ("" if brief.line is None else f" (line {brief.line})")


def _cut(text: str, limit: int = TEXT_CHARACTERS) -> str:
    text = "".join(each if each.isprintable() else "?" for each in " ".join(text[: 4 * limit].split()))
    return text if len(text) <= limit else f"{text[:limit].rsplit(' ', 1)[0]} ..."
