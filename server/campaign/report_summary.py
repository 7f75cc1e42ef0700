"""A campaign's results in numbers: what is written as JSON beside the report, and what the report is made of."""

from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import Final

from ...sandbox.outcome import Kind
from ...sandbox.wire import Wire
from .model import SUCCESS_RATIO, KernelRecord, Outcome, Unseen
from .report_numbers import Numbers, no_rate, numbers
from .statistics import BUCKETS, GeometricMean, bucket_of, by_length, center, geometric_mean

FAILURES: Final[tuple[Outcome, ...]] = ("not_loaded", "baseline_failed", "unjudged", "failed")
ADAPT: Final = "adapt"
STAGES: Final = (ADAPT, "task", "baseline", "agent", "finish", "unseen")
TOTAL: Final = "total"
NO_KIND: Final = "not told"
NO_REASON: Final = "no reason was kept"


class LengthGroup(Wire):
    """Kernels of similar length."""

    quantile: str
    lines_low: int | None
    lines_high: int | None
    numbers: Numbers


class BucketCount(Wire):
    """How many speed-ups are from `low` (null: any) to below `high` (null: any)."""

    low: float | None
    high: float | None
    kernels: int
    unchanged: int
    """Of them, those whose baseline stays."""


class StageTime(Wire):
    """What a stage took, over the kernels that came to it."""

    stage: str
    kernels: int
    median_s: float
    most_s: float
    total_s: float


class Failure(Wire):
    """How many artefacts failed in one way."""

    outcome: Outcome
    kind: str
    count: int


class Winner(Wire):
    """A winner on the shapes that it was not optimized for."""

    name: str
    shapes: int
    right: int
    faster: int
    slower: int
    same: int
    ambiguous: int
    untimed: int
    """Right, and not timed."""
    wrong: int
    failed: dict[str, int]
    """What was neither right nor wrong, by kind."""
    geometric_mean: float | None
    """Of the speed-ups of the shapes that were timed."""
    worst_case: str | None
    """The case of the least speed-up."""
    worst_ratio: float | None

    @property
    def keeps(self) -> bool:
        """Whether it is right in all shapes and, in the geometric mean of them, at least 1.05 times as fast."""
        return self.right == self.shapes and (self.geometric_mean or 0.0) >= SUCCESS_RATIO


class UnseenTotal(Wire):
    """All winners on the shapes that they were not optimized for."""

    winners: int
    tried: int
    """Winners that were run on such shapes."""
    absent: dict[str, int]
    """Why the others were not, by reason."""
    shapes: int
    right: int
    keep: int
    """Winners that are right in all of them and at least 1.05 times as fast in their geometric mean."""
    regress: int
    """Winners that are slower than the baseline in at least one."""
    wrong: int
    """Winners that are wrong in at least one."""
    fail: int
    """Winners that end otherwise than right or wrong in at least one."""
    geometric_mean: GeometricMean | None
    """Of the winners' geometric means."""


class Summary(Wire):
    """What became of all kernels of a campaign."""

    gpus: list[str]
    all: Numbers
    by_length: list[LengthGroup]
    outcomes: dict[str, int]
    speedups: list[BucketCount]
    stages: list[StageTime]
    candidates: dict[str, int]
    """How all candidates ended."""
    failures: list[Failure]
    verified: int
    """Winners that were measured once more at the end, with fresh inputs."""
    hidden_checked: int
    """Winners that were compared in hidden cases."""
    unseen: UnseenTotal
    winners: list[Winner]

    def in_words(self) -> str:
        """The essentials in a line or two."""
        found, of_runnable = self.all, self.all.success_of_runnable
        said = f"{found.artefacts} artefacts, {found.loaded} loaded, {found.runnable} runnable"
        if of_runnable is None:
            return f"{said}; no success rate: {no_rate(found)}."
        said += (
            f"; {of_runnable.count} became at least {SUCCESS_RATIO:g} times as fast: {of_runnable.pct:.1f} % of the "
            f"runnable ones ({of_runnable.low_pct:.1f} to {of_runnable.high_pct:.1f})"
        )
        if found.mean_speedup is not None:
            said += f", {found.mean_speedup:.3f} times in the mean"
        if found.geometric_mean is not None:
            said += f"; geometric mean of all {found.geometric_mean.value:.3f}"
        return f"{said}."


def summary(records: Sequence[KernelRecord]) -> Summary:
    """What the records of a campaign come to.

    Args:
        records: one for each artefact, of which names are unique.
    """
    won = winners(records)
    gained = [record for record in records if record.outcome == "gained"]
    known = [(ratio, record) for record in records if (ratio := record.speedup) is not None]
    buckets = [(bucket_of(ratio), record.outcome == "no_gain") for ratio, record in known]
    return Summary(
        gpus=sorted({record.gpu for record in records if record.gpu is not None}),
        all=numbers(records),
        by_length=_length_groups(records),
        outcomes=_sorted(Counter(record.outcome for record in records)),
        speedups=[
            BucketCount(
                low=bucket.low,
                high=bucket.high,
                kernels=sum(found == bucket for found, _ in buckets),
                unchanged=sum(found == bucket and stays for found, stays in buckets),
            )
            for bucket in BUCKETS
        ],
        stages=_stages(records),
        candidates=_candidates(records),
        failures=_failures(records),
        verified=sum(record.verified is not None for record in gained),
        hidden_checked=sum(record.hidden_checked > 0 for record in gained),
        unseen=_unseen(gained, won),
        winners=won,
    )


def winners(records: Sequence[KernelRecord]) -> list[Winner]:
    """Each winner that was run on shapes that it was not optimized for, in the order of the records."""
    return [_winner(record.name, record.unseen) for record in records if record.outcome == "gained" and record.unseen]


def _winner(name: str, shapes: Sequence[Unseen]) -> Winner:
    right = [shape for shape in shapes if shape.kind == Kind.OK]
    timed = [(gain.ratio, shape.case) for shape in right if (gain := shape.gain) is not None]
    worst = min(timed, default=None)
    comparisons = Counter(shape.gain.comparison for shape in right if shape.gain is not None)
    return Winner(
        name=name,
        shapes=len(shapes),
        right=len(right),
        faster=comparisons["faster"],
        slower=comparisons["slower"],
        same=comparisons["same"],
        ambiguous=comparisons["ambiguous"],
        untimed=len(right) - len(timed),
        wrong=sum(shape.kind == Kind.WRONG for shape in shapes),
        failed=_sorted(Counter(shape.kind for shape in shapes if shape.kind not in (Kind.OK, Kind.WRONG))),
        geometric_mean=center([ratio for ratio, _ in timed]),
        worst_case=None if worst is None else worst[1],
        worst_ratio=None if worst is None else worst[0],
    )


def _unseen(gained: Sequence[KernelRecord], won: Sequence[Winner]) -> UnseenTotal:
    return UnseenTotal(
        winners=len(gained),
        tried=len(won),
        absent=_sorted(Counter(record.unseen_absent or NO_REASON for record in gained if not record.unseen)),
        shapes=sum(winner.shapes for winner in won),
        right=sum(winner.right for winner in won),
        keep=sum(winner.keeps for winner in won),
        regress=sum(winner.slower > 0 for winner in won),
        wrong=sum(winner.wrong > 0 for winner in won),
        fail=sum(bool(winner.failed) for winner in won),
        geometric_mean=geometric_mean([each for winner in won if (each := winner.geometric_mean) is not None]),
    )


def _length_groups(records: Sequence[KernelRecord]) -> list[LengthGroup]:
    groups = by_length(records)
    lines = [[record.lines for record in group] for group in groups]
    step = 100 // len(groups)
    return [
        LengthGroup(
            quantile=f"{place * step} to {(place + 1) * step} %",
            lines_low=min(lines[place], default=None),
            lines_high=max(lines[place], default=None),
            numbers=numbers(group),
        )
        for place, group in enumerate(groups)
    ]


def _stages(records: Sequence[KernelRecord]) -> list[StageTime]:
    """Known stages in their order, then others, the total last."""
    named = {stage for record in records for stage in record.seconds}
    others = sorted(named - {*STAGES, TOTAL})
    taken = {stage: [record.seconds[stage] for record in records if stage in record.seconds] for stage in named}
    return [
        StageTime(stage=stage, kernels=len(each), median_s=median(each), most_s=max(each), total_s=sum(each))
        for stage in (*STAGES, *others, TOTAL)
        if (each := taken.get(stage))
    ]


def _candidates(records: Sequence[KernelRecord]) -> dict[str, int]:
    kinds: Counter[str] = Counter()
    for record in records:
        kinds.update(record.attempt_kinds)
        kinds[NO_KIND] += max(0, record.attempts - sum(record.attempt_kinds.values()))
    return _sorted(+kinds)


def _failures(records: Sequence[KernelRecord]) -> list[Failure]:
    return [
        Failure(outcome=outcome, kind=kind, count=count)
        for outcome in FAILURES
        for kind, count in _sorted(
            Counter(record.failure_kind or NO_KIND for record in records if record.outcome == outcome)
        ).items()
    ]


def _sorted(counts: Counter[str]) -> dict[str, int]:
    """Most first."""
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
