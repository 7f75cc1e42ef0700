"""Runs the catalogue over the facts of one launch: roots before symptoms, by expected gain."""

import ast
from collections.abc import Sequence
from typing import Final, NamedTuple

from ..ncu.cause import LIMIT_PCT
from .facts import Facts, Need, at_first_lines
from .floor import DONE_PCT
from .gains import MODELS
from .model import Diagnosis, Evidence, Finding, Folded, Gain, Level
from .rule import Hit, Rule
from .rules import RULES

FINDINGS_SHOWN: Final = 8
HYPOTHESES_SHOWN: Final = 5
EVIDENCE_SHOWN: Final = 6
BUSY_PCT: Final = 60.0
"""HighPipeUtilization and IssueSlotUtilization of Nsight Compute 2025.3.1."""
WORTH_PCT: Final = 5.0
"""Own: an expected gain that comes before findings of which nothing is known but that they save no more than all."""

_WITHOUT: Final[dict[Need, tuple[str, str]]] = {
    "source": (
        "The kernel's source was not read or not found: causes in the source can't be named",
        "It is looked for in the kernel file.",
    ),
    "code": (
        "The compiled code was not looked at: only hypotheses from the source are left",
        "depth='compiler' looks at it.",
    ),
    "lines": (
        "The compiled code was not read by line: findings that need a line are missing",
        "depth='compiler' reads it.",
    ),
    "remarks": (
        "The compiler's passes were not asked for their remarks: refusals that only they tell are missing",
        "depth='compiler' asks them.",
    ),
    "profile": (
        "The launch was not profiled: what each finding costs, cache behaviour, bank conflicts, contention and whether "
        "a roof is reached are unknown",
        "A profile needs a GPU and Nsight Compute.",
    ),
}
"""What is not known without each, and what would provide it."""


class _Found(NamedTuple):
    rule: Rule
    hit: Hit


def diagnose(facts: Facts, rules: Sequence[Rule] = RULES) -> Diagnosis:
    """Names what makes a launch slow, as far as the facts go."""
    facts = at_first_lines(facts)
    usable = [rule for rule in rules if all(facts.has(need) for need in rule.needs)]
    found = [_Found(rule, hit) for rule in usable for hit in rule.detect(facts)]
    found = [one for one in found if not one.rule.if_busy or _busy(facts) is not False]
    if at_roof(facts):
        found = [one for one in found if one.rule.relieves != "time"]
    roots = _fold(found)
    sharing = _sharing(facts, [root for root, _ in roots if not root.rule.demoted])
    told = [_finding(facts, one, symptoms, sharing) for one, symptoms in roots]
    order = {id(finding): _rank(facts, one, finding) for (one, _), finding in zip(roots, told, strict=True)}
    unsure = {rule.id for rule, hit in found if hit.unsure or rule.demoted or (rule.if_busy and _busy(facts) is None)}
    sure = {id(finding) for (one, _), finding in zip(roots, [*told], strict=True) if _confirmed(one)}
    told.sort(key=lambda finding: order[id(finding)])
    confirmed = [finding for finding in told if finding.id not in unsure and id(finding) in sure]
    return Diagnosis(
        kernel=facts.captured.kernel,
        findings=confirmed[:FINDINGS_SHOWN],
        hypotheses=[finding for finding in told if finding not in confirmed][:HYPOTHESES_SHOWN],
        done=None if confirmed else _done(facts),
        unknown=_unknown(facts, rules),
        not_looked_for=sorted(rule.id for rule in rules if rule not in usable),
    )


def at_roof(facts: Facts) -> bool:
    """Whether the launch is as fast as its work can be done, or a roof is reached that nothing fills in vain."""
    if facts.floor is not None and facts.floor.reached:
        return True
    # Named first and not at its limit, it is only the busiest part.
    first = facts.causes[0] if facts.causes else None
    if first is None or facts.profile is None:
        return False
    shares = first.evidence.get("achieved_share_pct"), first.evidence.get("dram_pct")
    achieved, busy = (share if isinstance(share, int | float) else 0.0 for share in shares)
    return first.id == "dram_bound" and (achieved >= DONE_PCT or busy >= LIMIT_PCT)


def _busy(facts: Facts) -> bool | None:
    """Whether instructions are what the launch spends its time on; None where nobody counted."""
    if facts.profile is None:
        return None
    shares = [share for share in (facts.profile.issue_slot_pct, facts.profile.compute_pct) if share is not None]
    return max(shares) >= BUSY_PCT if shares else None


def _fold(found: Sequence[_Found]) -> list[tuple[_Found, list[_Found]]]:
    """Roots, each with the symptoms that vanish with it."""
    parents = [
        next((n for n, root in enumerate(found) if n != m and _explains(root, one)), None)
        for m, one in enumerate(found)
    ]
    symptoms: dict[int, list[_Found]] = {n: [] for n, parent in enumerate(parents) if parent is None}
    for number, one in enumerate(found):
        root, seen = number, {number}
        while (parent := parents[root]) is not None:
            if parent in seen:
                break  # two that explain each other: the first one stays
            seen.add(parent)
            root = parent
        if root != number:
            symptoms.setdefault(root, []).append(one)
    return [(found[root], those) for root, those in symptoms.items()]


def _explains(root: _Found, symptom: _Found) -> bool:
    if root.rule.demoted:
        return False  # what does not pay hides nothing that may
    if symptom.rule.id in root.rule.explains:
        return True
    return (
        symptom.rule.id in root.rule.explains_here and root.hit.line is not None and symptom.hit.line == root.hit.line
    )


def _finding(facts: Facts, one: _Found, symptoms: Sequence[_Found], sharing: int) -> Finding:
    rule, hit = one
    evidence = sorted(hit.evidence, key=lambda each: each.level)
    measured = _measured(facts, hit)
    if measured is not None:
        evidence.append(measured)
    rewrite = rule.rewrite(facts, hit)
    return Finding(
        id=rule.id,
        title=rule.name,
        level=max(each.level for each in evidence),
        kernel=facts.captured.kernel,
        line=hit.line,
        excerpt=facts.file.excerpt(hit.line) if facts.file is not None else None,
        evidence=evidence[:EVIDENCE_SHOWN],
        cause=rule.explain(facts, hit),
        rewrite=rewrite if rewrite.example else rewrite.model_copy(update={"example": rule.example}),
        predicted=rule.predicts(facts, hit),
        gain=_gain(facts, one, sharing),
        falsified_by=rule.falsified_by,
        risks=list(rule.risks),
        explains=[
            Folded(id=id, title=title, line=line)
            for id, title, line in dict.fromkeys((each.rule.id, each.rule.name, each.hit.line) for each in symptoms)
        ],
    )


def _measured(facts: Facts, hit: Hit) -> Evidence | None:
    """What the profile says of the line."""
    spot = next((spot for spot in facts.hotspots if spot.line == hit.line), None) if hit.line is not None else None
    if spot is None:
        return None
    waiting = f", {spot.stall_pct:.0f} % of them in {spot.stall}" if spot.stall and spot.stall_pct is not None else ""
    return Evidence(
        level=Level.PROFILE,
        text=f"{spot.pct:.0f} % of the warps' samples are on the line{waiting}",
        line=hit.line,
        fact="samples_pct",
        value=round(spot.pct, 1),
    )


def _gain(facts: Facts, one: _Found, sharing: int) -> Gain:
    """What is expected, and what nothing exceeds.

    Args:
        facts: of the launch.
        one: whose gain it is.
        sharing: how many causes keep the launch from the same roof. None tells which of them costs what: each is
            taken to make the launch longer by the same factor.
    """
    if one.rule.demoted:
        return Gain(at_most_pct=None, why=f"for information: {one.rule.demoted}")
    bounds = [(one.hit.bound_pct, one.hit.bound_why)] if one.hit.bound_pct is not None else []
    if facts.floor is not None and one.rule.relieves != "call":
        bounds.append((100 - facts.floor.share_pct, f"the floor is {facts.floor.us:.1f} us: {facts.floor.why}"))
    bound, why = min(bounds, default=(None, ""))
    model = MODELS.get(one.rule.id)
    if one.hit.expected_pct is not None:
        expected = one.hit.expected_pct if bound is None else min(one.hit.expected_pct, bound)
        return Gain(expected_pct=_rounded(expected), at_most_pct=_rounded(bound), why=one.hit.bound_why or why)
    left = None if model is None else model.left(facts, one.hit.line)
    if left is not None:
        share, told = left.share, left.why
        if left.shared and sharing > 1:
            share, told = share ** (1 / sharing), f"{told}; {sharing} causes share that"
        expected = 100 * (1 - share)
        expected = expected if bound is None else min(expected, bound)
        return Gain(expected_pct=round(expected, 1), at_most_pct=_rounded(bound), why=told)
    if bound is not None:
        return Gain(at_most_pct=_rounded(bound), why=why)
    if not facts.has("profile"):
        return Gain(at_most_pct=None, why="not profiled: nothing tells how long the launch spends here")
    return Gain(at_most_pct=None, why="nothing that was measured bounds it; time both versions")


def _sharing(facts: Facts, found: Sequence[_Found]) -> int:
    """How many distinct causes are expected to win the way to the same roof."""
    lines = {one.rule.id: one.hit.line for one in found if one.rule.id in MODELS}
    lefts = [MODELS[id].left(facts, line) for id, line in lines.items()]
    return sum(left is not None and left.shared for left in lefts)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def _rank(facts: Facts, one: _Found, finding: Finding) -> tuple[int, int, int, float, float, int]:
    """Certain ones first, demoted ones last; then by weight, but no more than what can be won.

    What is expected to win something comes before what only might: of that nothing is known but the rule's weight and
    a bound, mostly that of all that can be won. What a call does beside the launch has no expectation of the launch. A
    line without samples counts a tenth.
    """
    weight = float(one.rule.weight)
    gains = [gain for gain in (finding.gain.expected_pct, one.hit.bound_pct) if gain is not None]
    worth = min([weight, *gains])
    if facts.hotspots and finding.line is not None and _cold(facts, finding.line):
        worth /= 10
    told = one.rule.relieves == "call" or (finding.gain.expected_pct is not None and worth >= WORTH_PCT)
    return int(bool(one.rule.demoted)), -int(_confirmed(one)), -int(told), -worth, -weight, finding.line or 0


def _confirmed(one: _Found) -> bool:
    """Whether a measurement or the code shows it: that a suspected line is hot, doesn't."""
    return max(each.level for each in one.hit.evidence) >= Level.PROFILE


def _cold(facts: Facts, line: int) -> bool:
    """Whether samples could be on a line, or in the loop that begins there, and none is."""
    node = facts.source.function.node if facts.source is not None else None
    if node is not None and not node.lineno <= line <= (node.end_lineno or node.lineno):
        return False  # lines of the host and of decorators have none
    inside = [] if node is None else [each for each in ast.walk(node) if isinstance(each, ast.stmt)]
    last = max((each.end_lineno or line for each in inside if each.lineno == line), default=line)
    return all(spot.line is None or not line <= spot.line <= last for spot in facts.hotspots)


def _done(facts: Facts) -> str | None:
    if facts.floor is not None and facts.floor.reached:
        return (
            f"Nothing to win: at {facts.floor.share_pct:.0f} % of what this device can do "
            f"({facts.floor.why}: {facts.floor.us:.1f} us). Only less work helps: fewer bytes, or narrower types."
        )
    if at_roof(facts):
        return f"Device memory is the limit: {facts.causes[0].text}. Only fewer bytes help."
    if not facts.has("code"):
        return None
    if facts.has("profile"):
        return "Nothing that the catalogue knows shows in the source, the code or the profile."
    return (
        "Nothing that the catalogue knows shows in the source or the compiled code. Whether the launch is at its roof "
        "only a profile tells."
    )


def _unknown(facts: Facts, rules: Sequence[Rule]) -> list[str]:
    told: list[str] = []
    for need, (without, remedy) in _WITHOUT.items():
        if facts.has(need):
            continue
        missing = sum(need in rule.needs for rule in rules)
        causes = f"; {missing} of {len(rules)} known causes were not looked for" if missing else ""
        told.append(f"{without}{causes}. {remedy}")
    return told
