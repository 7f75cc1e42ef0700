"""What kind of strategy an attempt followed, which finding it was aimed at, and what kind of kernel it is. Pure."""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from ..diagnosis.rules import RULES
from .hint_context import Beside, Pair, settings
from .model import CaseLaunch, Diagnosed

OTHER: Final = "other"

FINDINGS: Final = frozenset(rule.id for rule in RULES)
"""Ids of the catalogue."""
_CACHE: Final = r"(?![\s-]*(?:cache|hit|miss|reuse|traffic|sector|bandwidth|locality|resid|swizzl))"
"""L1 and L2 are caches too."""
_ID: Final = re.compile(rf"\b(L[12]\b{_CACHE}|[A-KM-Z]\d{{1,2}}\b|L(?:[3-9]|\d\d)\b)")


class Strategy(NamedTuple):
    """One kind of strategy."""

    name: str
    words: str
    """A regular expression of what it is called."""


STRATEGIES: Final[tuple[Strategy, ...]] = (
    Strategy("tensor_cores", r"tensor[ -]?cores?|wgmma|\bmma\b|tl\.dot|input_precision|tf32|warp[ -]?group"),
    Strategy("stages", r"num_stages|\bstages?\b|pipelin\w*|prefetch\w*|async\w*|\btma\b|double[ -]?buffer\w*"),
    Strategy("warps", r"num_warps|\bwarps?\b|occupancy|maxnreg"),
    Strategy("vectorization", r"vector\w*|widen\w*|wider|wide (?:loads?|stores?)|16[ -]byte\w*|align\w*|multiple_of"
             r"|divisib\w*|contiguous|coalesc\w*"),
    Strategy("masks", r"\bmask\w*|unmask\w*|boundary|bounds?[ -]check\w*|\btail\b"),
    Strategy("fusion", r"\bfus(?:e|ed|es|ing|ion)\b|single[ -]pass|one[ -]pass|one kernel|single kernel"),
    Strategy("reduction", r"reduc(?:e|es|ed|ing|tion|tions)\b|split[ -]?k\b|\bsums?\b|online softmax|atomics?|welford"),
    Strategy("memory_layout", r"layouts?|transpos\w*|swizzl\w*|strides?|shared memory|bank conflicts?|k-major"),
    Strategy("launch_grid", r"\bgrid\b|persistent|program order|group_m|grouped|waves?|programs? per"),
    Strategy("host", r"\bhost\b|python|launch overhead|\bcopies\b|contiguous\(\)|cuda graph|allocation\w*|cache the"),
    Strategy("tiling", r"\btil(?:e|es|ed|ing)\b|block[ _]?(?:size|[mnk])?\b|block size|chunks?|rows? per program"),
    Strategy("algorithm", r"algorithm\w*|exp2|rewrit\w*|approximat\w*|recomput\w*|hoist\w*|precomput\w*|formula"),
)  # fmt: skip
"""By how telling their words are: of a text that names several, the first that the compiled code confirms counts."""
KINDS: Final = (*(strategy.name for strategy in STRATEGIES), OTHER)

_PATTERNS: Final = {strategy.name: re.compile(strategy.words, re.IGNORECASE) for strategy in STRATEGIES}


def kind_of(strategy: str, beside: Beside) -> str:
    """What kind of strategy it was: what its words say and the compiled code confirms, else what its words say first,
    else what changed in the code.

    Args:
        strategy: in the submitter's words.
        beside: the attempt's launches beside its parent's.
    """
    found = [(match.start(), name) for name, pattern in _PATTERNS.items() if (match := pattern.search(strategy))]
    named = [name for _, name in sorted(found)]
    changed = changes_of(beside)
    confirmed = [name for name in named if name in changed]
    return next(iter([*confirmed, *named, *changed]), OTHER)


def changes_of(beside: Beside) -> list[str]:
    """Kinds of strategy whose mark the compiled code bears, the most special first."""
    if beside.pairs and not beside.gone and not beside.new and all(pair.same for pair in beside.pairs):
        return ["host"]
    found = {name for pair in beside.pairs for name in _changed(pair)}
    if beside.gone:
        found.add("fusion")
    return [name for name in KINDS if name in found]


def _changed(pair: Pair) -> list[str]:
    before, after = pair.before, pair.after
    chosen = settings(before, after)
    marks = {
        "tensor_cores": before.mma != after.mma,
        "stages": "num_stages" in chosen or bool(before.pipeline_buffers) != bool(after.pipeline_buffers),
        "warps": "num_warps" in chosen,
        "vectorization": before.load_widths_bytes[:1] != after.load_widths_bytes[:1]
        or before.store_widths_bytes[:1] != after.store_widths_bytes[:1],
        "reduction": before.atomics != after.atomics or before.acq_rel_atomics != after.acq_rel_atomics,
        "memory_layout": before.layout_conversions_in_loops != after.layout_conversions_in_loops,
        "launch_grid": before.grid != after.grid and "tiling" not in chosen,
        "tiling": "tiling" in chosen,
    }
    return [name for name, marked in marks.items() if marked]


def finding_of(strategy: str, before: Diagnosed | None, after: Diagnosed | None) -> str | None:
    """The finding that an attempt was aimed at: the first that its text names, those of its parent before others of
    the catalogue; else the weightiest of its parent's that is gone.

    Args:
        strategy: in the submitter's words.
        before: the parent's diagnosis.
        after: the attempt's own.
    """
    known = [] if before is None else [finding.id for finding in before.findings]
    named = named_findings(strategy)
    for id in named:
        if id in known:
            return id
    if named:
        return named[0]
    if before is None or after is None or before.case != after.case:
        return None
    left = {finding.id for finding in after.findings}
    return next((id for id in known if id not in left), None)


def named_findings(text: str) -> list[str]:
    """Ids of the catalogue in a text, in order."""
    return [id for id in dict.fromkeys(_ID.findall(text)) if id in FINDINGS]


def kernel_kind(launches: Sequence[CaseLaunch]) -> str:
    """What kind of work a kernel does, by its compiled code."""
    facts = [launch.facts for launch in launches]
    if not facts:
        return "unknown"
    if any(one.dots for one in facts):
        return "products"
    if any(one.atomics for one in facts):
        return "atomics"
    if any(one.loops for one in facts):
        return "loops"
    # Threads of a block that wait for one another outside of a loop exchange what they reduce.
    return "rows" if any(one.barriers for one in facts) else "elementwise"
