"""What a run of the store gives to a prompt: only what the run tools tell of it, in bounds."""

from collections.abc import Sequence
from typing import Final

from ..profiling.hardware.catalog import UnknownTarget, resolve_target
from ..profiling.hardware.short_form import short_form
from ..profiling.optimization.lessons import recall
from ..profiling.optimization.model import BASELINE, Attempt, Diagnosed, Memory
from ..profiling.optimization.population import suggest_parent
from ..profiling.optimization.scores import score_of
from ..prompts.roles import Focus
from ..prompts.run_facts import (
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
from ..sandbox.errors import rejected
from ..sandbox.outcome import Kind
from .results import readable
from .runs import hidden
from .runs.answer import Answer, answer_of
from .runs.memory import memory_of, source_of, spent_s
from .runs.record import Run
from .runs.store import Store
from .tools.lesson_report import lesson_shown
from .tools.run_report import REASONS, attempts_left, best, outcome_of, tell
from .tools.run_shown import CaseShown, Score, words

SOURCE_CHARACTERS: Final = 12_000
"""Of a source that goes into a prompt whole; longer ones are asked for."""
TRIED: Final = 10
BEST: Final = 3
"""Of the attempts shown, the ones that are the best; the others are the newest."""
STRATEGY_CHARACTERS: Final = 160
PATH_CHARACTERS: Final = 300
CASES: Final = 6
FINDINGS: Final = 3
RECIPE_CHARACTERS: Final = 160
HINTS: Final = 3
LAUNCHES: Final = 3
PROFILES: Final = 2
STALLS: Final = 3
FAILURES: Final = frozenset(Kind) - {Kind.OK, Kind.RUNNING, Kind.CANCELLED}


def facts_of(store: Store, run_id: str, focus: Focus, attempt: int | None = None) -> RunFacts:
    """A run, for a role.

    Args:
        store: where runs are kept.
        run_id: the run.
        focus: which attempt the role is about.
        attempt: its number, where the caller says.

    Raises:
        Stopped: ``rejected``: there is no such run or attempt; ``unavailable``: the store can't be read.
    """
    run, attempts = store.run(run_id), store.attempts(run_id)
    memory = memory_of(run, attempts)
    suggestion = suggest_parent(memory) if run.state == "open" else None
    parent = run.incumbent if suggestion is None else suggestion.number
    chosen = _chosen(attempts, focus, run, parent) if attempt is None else attempt
    of = {each.number: each for each in attempts}
    if chosen not in of:
        raise rejected(
            "run",
            f"run {run_id} has no attempt {chosen}; it has {', '.join(map(str, list(of)[-20:])) or 'none'}",
            fix=f"Call get_run(run_id='{run_id}') for its attempts.",
        )
    answer = answer_of(run, of[chosen], attempts)
    frozen, incumbent = run.frozen, best(answer)
    shown = _shown_attempts(attempts, run.incumbent)
    return RunFacts(
        run_id=run_id,
        title=words(frozen.title, 80),
        state=run.state,
        ended_by=None if run.ended_by is None else words(run.ended_by, 40),
        entry=words(frozen.entry, 60),
        target=frozen.target,
        device=_device(frozen.target),
        gpu=None if frozen.gpu is None else words(frozen.gpu, 60),
        kernel=words(frozen.kernel_shown_as, PATH_CHARACTERS),
        task=words(frozen.task_shown_as, PATH_CHARACTERS),
        attempts=frozen.budget.attempts,
        attempts_left=attempts_left(answer),
        elapsed_s=round(spent_s(run), 1),
        wall_s=frozen.budget.wall_s,
        target_pct=frozen.budget.target_pct,
        target_ratio=frozen.budget.target_ratio,
        incumbent=run.incumbent,
        incumbent_shown_as=words(of[run.incumbent].kernel_shown_as, PATH_CHARACTERS),
        incumbent_ratio=None
        if incumbent.ratio is None or incumbent.ratio_low is None or incumbent.ratio_high is None
        else Ratio(middle=incumbent.ratio, low=incumbent.ratio_low, high=incumbent.ratio_high),
        parent=parent,
        parent_why=None if suggestion is None else words(suggestion.why),
        tried=[_tried(each) for each in shown],
        tried_omitted=sum(each.number != BASELINE for each in attempts) - len(shown),
        lessons=_lessons(store, run, memory),
        focus=_focus(store, answer),
    )


def _chosen(attempts: Sequence[Attempt], focus: Focus, run: Run, parent: int) -> int:
    candidates = [each for each in attempts if each.number != BASELINE and each.duplicate_of is None]
    finished = [each.number for each in candidates if each.state == "finished"]
    match focus:
        case "baseline":
            return BASELINE
        case "incumbent":
            return run.incumbent
        case "parent":
            return parent
        case "newest":
            return finished[-1] if finished else run.incumbent
        case "failed":
            failed = [each.number for each in attempts if outcome_of(each) in FAILURES and each.duplicate_of is None]
            return failed[-1] if failed else (finished[-1] if finished else run.incumbent)


def _shown_attempts(attempts: Sequence[Attempt], incumbent: int) -> list[Attempt]:
    """The best and the newest, by number."""
    candidates = [each for each in attempts if each.number != BASELINE]
    scored = [(score.ratio, each.number) for each in candidates if (score := score_of(each)) is not None]
    by_score = [number for _, number in sorted(scored, reverse=True)][:BEST]
    newest = [each.number for each in reversed(candidates)]
    chosen = set(list(dict.fromkeys([incumbent, *by_score, *newest]))[: TRIED + (incumbent == BASELINE)])
    return [each for each in candidates if each.number in chosen]


def _tried(attempt: Attempt) -> TriedFact:
    score, evidence = score_of(attempt), attempt.evidence
    kind = outcome_of(attempt)
    why = attempt.verdict.reasons[0] if attempt.verdict is not None and attempt.verdict.reasons else None
    if attempt.duplicate_of is not None:
        why = f"same as attempt {attempt.duplicate_of}"
    elif kind is not Kind.OK and evidence is not None and evidence.problem is not None:
        why = evidence.problem.message
    return TriedFact(
        number=attempt.number,
        parent=attempt.parent,
        strategy=words(attempt.strategy, STRATEGY_CHARACTERS),
        kind=kind,
        ratio=None if score is None else Ratio(middle=score.ratio, low=score.low, high=score.high),
        accepted=attempt.accepted,
        why=None if why is None else words(why, 120),
    )


def _lessons(store: Store, run: Run, memory: Memory) -> list[LessonFact]:
    """The best one of earlier runs for each of the first findings."""
    baseline = next((each for each in memory.attempts if each.number == BASELINE), None)
    evidence = None if baseline is None else baseline.evidence
    if evidence is None or evidence.diagnosed is None:
        return []
    known, frozen = store.lessons(), run.frozen
    ids = list(dict.fromkeys(note.id for note in evidence.diagnosed.findings))[:FINDINGS]
    recalled = [
        lesson_shown(each)
        for finding in ids
        for each in recall(known, finding=finding, device=frozen.gpu, triton=frozen.triton)[:1]
    ]
    return [
        LessonFact(
            finding=each.finding,
            strategy=each.strategy,
            helped=each.helped,
            tried=each.tried,
            gain_pct=each.gain_pct,
            gain_low_pct=each.gain_low_pct,
            gain_high_pct=each.gain_high_pct,
            why=each.why,
            stale=each.stale,
        )
        for each in recalled
    ]


def _focus(store: Store, answer: Answer) -> AttemptFacts:
    attempt, visible = answer.attempt, set(answer.run.frozen.cases)
    # All that a detailed answer of get_run has of it, and it leaves out hidden cases.
    told = tell(answer, detail=True)
    shown = told.shown
    source = readable(source_of(store, attempt).text, SOURCE_CHARACTERS + 1)
    # A file may be kernel and task at once.
    whole = len(source) <= SOURCE_CHARACTERS and hidden.NAME not in source
    own = None if attempt.evidence is None else attempt.evidence.diagnosed
    diagnosed = own if own is not None and own.case in visible else None
    whose, nearest = _diagnosis(answer)
    return AttemptFacts(
        number=attempt.number,
        strategy=words(attempt.strategy, 4 * STRATEGY_CHARACTERS),
        shown_as=words(attempt.kernel_shown_as, PATH_CHARACTERS),
        source=source if whole else None,
        kind=told.kind,
        problem=told.problem,
        verdict=shown.verdict,
        reasons=shown.reasons[:REASONS],
        ratio=None if shown.score is None else _ratio(shown.score),
        cases=[_case(each) for each in shown.cases if each.case in {words(case, 40) for case in visible}][:CASES],
        diagnosed=whose,
        diagnosed_case=None if diagnosed is None else words(diagnosed.case, 40),
        findings=_findings(nearest),
        done=None if nearest is None or nearest.done is None else words(nearest.done),
        hints=_hints(answer),
        launches=_launches(attempt, visible),
        profiles=[] if diagnosed is None else [
            ProfileFact(
                kernel=words(each.kernel, 60),
                duration_us=each.duration_us,
                memory_pct=each.memory_pct,
                compute_pct=each.compute_pct,
                stalls=[f"{words(stall.reason, 30)} {stall.pct:.0f} %" for stall in each.stalls[:STALLS]],
            )
            for each in diagnosed.profiles[:PROFILES]
        ],
    )  # fmt: skip


def _diagnosis(answer: Answer) -> tuple[int | None, Diagnosed | None]:
    """Of the attempt, or of the nearest that it was made from: not each is diagnosed."""
    of = {each.number: each for each in answer.memory.attempts}
    attempt: Attempt | None = answer.attempt
    seen: set[int] = set()
    while attempt is not None and attempt.number not in seen:
        seen.add(attempt.number)
        if attempt.evidence is not None and (found := attempt.evidence.diagnosed) is not None:
            return attempt.number, found
        attempt = None if attempt.parent is None else of.get(attempt.parent)
    return None, None


def _findings(diagnosed: Diagnosed | None) -> list[FindingFact]:
    notes = [] if diagnosed is None else diagnosed.findings
    return [
        FindingFact(
            id=words(each.id, 16),
            title=words(each.title, 60),
            line=each.line,
            expected_pct=each.expected_pct,
            recipe=words(each.recipe, RECIPE_CHARACTERS),
        )
        for each in notes[:FINDINGS]
    ]


def _hints(answer: Answer) -> list[HintFact]:
    """Of the attempt and of the newest one: what was tried last says most of what to try next."""
    newest = [each for each in answer.memory.attempts if each.hints][-1:]
    told = {hint.text: (each.number, hint) for each in [*newest, answer.attempt] for hint in each.hints}
    return [
        HintFact(attempt=number, text=words(hint.text), because=[words(each, 60) for each in hint.because[:2]])
        for number, hint in list(told.values())[:HINTS]
    ]


def _launches(attempt: Attempt, visible: set[str]) -> list[LaunchFact]:
    """Distinct ones of the visible cases."""
    launches = [] if attempt.evidence is None else attempt.evidence.launches
    distinct = {each.facts.code_hash: each for each in reversed(launches) if each.case in visible}
    return [
        LaunchFact(
            case=words(each.case, 40),
            kernel=words(each.facts.kernel, 60),
            num_warps=each.facts.num_warps,
            num_stages=each.facts.num_stages,
            registers=each.facts.registers,
            spill_bytes=each.facts.spill_bytes,
            mma=each.facts.mma,
            async_copies=each.facts.async_copies,
            load_widths_bytes=each.facts.load_widths_bytes,
        )
        for each in list(reversed(distinct.values()))[:LAUNCHES]
    ]


def _case(shown: CaseShown) -> CaseFact:
    ratio = None
    if shown.ratio is not None and shown.low is not None and shown.high is not None:
        ratio = Ratio(middle=shown.ratio, low=shown.low, high=shown.high)
    return CaseFact(
        case=shown.case,
        device_us=shown.device_us,
        ratio=ratio,
        comparison=shown.comparison,
        speed_of_light_pct=shown.speed_of_light_pct,
    )


def _ratio(score: Score) -> Ratio:
    return Ratio(middle=score.ratio, low=score.ratio_low, high=score.ratio_high)


def _device(target: str) -> str:
    try:
        return short_form(resolve_target(target))
    except UnknownTarget:
        return "It is not in this server's catalogue."
