"""The catalogue as a page: how it works, each rule with its worked example, what was measured, what was dropped."""

from collections.abc import Sequence
from typing import Final

from .gains import MODELS
from .measured import MEASURED, NOTES, WAITING, WHERE
from .rule import Rule
from .rules import DROPPED, RULES

_FAMILIES: Final = {
    "T": "Tensor cores",
    "V": "Width of accesses",
    "P": "Pipelining of loads",
    "R": "Registers and local memory",
    "L": "Layouts and reductions",
    "A": "Atomics",
    "M": "Memory traffic",
    "W": "Warp specialization",
    "G": "Grid",
    "I": "Instructions",
    "H": "Host",
    "U": "Tuning",
    "C": "Correctness",
}
_HEAD: Final = """# What diagnose_kernel knows

This page is written from `profiling/diagnosis/` by `python -m tritonforge.profiling.diagnosis.catalogue >
docs/diagnosis.md`.

## How it works

1. **Source**: the kernel file's syntax tree, as this launch compiles it (its constants, its arguments' types and
   divisibility). Hypotheses only.
2. **Profile**: which resource is short, what the floor of the launch's work is, and whether anything is left to win
   at all. At 85 % of what was measured on the device the answer is "nothing to win", and only rules that save bytes
   speak. Needs a GPU.
3. **Code**: PTX and TTGIR by line: which line made the costly instructions.
4. **Compiler**: the remarks of its passes and ptxas, or the condition of a pass, evaluated.

With `depth="auto"` a level is left out where those before have answered: 3 and 4 at the floor, 4 where findings
explain 60 % of what can be won. Each level's cost is in the result. A finding's level says how deep its evidence
goes; what rests on the source alone is a hypothesis, and so is what saves instructions only, until a profile shows a
busy SM. So is, without a gain and last, what a demoted rule tells: its rewrite did not pay when it was measured.
*Needs* is what a rule can't do without: where it is missing, `unknown` says how many rules were not looked for and
what it takes to look, and `not_looked_for` lists them.
Symptoms are folded into the root that makes them vanish.

## What is expected of an edit

`expected_pct` comes from one of these models (`profiling/diagnosis/gains.py` says what each rests on), and is null
where none applies, nothing was profiled, or the edit gives up as much as it may win:

- *floor*: the launch takes what good kernels take for its work (90 % of the measured bandwidth, 75 % of the measured
  rate of products); several such causes share it. *One block on an SM*: only where no other hides the waiting.
- *turns*: what converts an operand and what multiplies it take turns, and their pipes' times add up.
- *spills*: spilled bytes go, and device memory gets no faster.
- *stall*: the waiting for one thing goes.
- *line*: a part of the warps' time on the line and waiting for it goes, as far as the SM is busy.
- *instructions*: a share of them goes, as far as the SM is busy.

`at_most_pct` is what the floor, or the rule's own arithmetic, leaves at most. Findings are told by what is expected of
them; those without an expectation come after those with one, whatever their bound.

A new rule: declare a `Rule` in its family's module under `rules/`, plant a kernel with the fault and a clean twin in
`tests/diagnosis/`, write this page anew.
"""


_DROPPED_HEAD: Final = "Known causes that are no rules here."


def render(rules: Sequence[Rule] = RULES) -> str:
    """The page as Markdown."""
    parts = [_HEAD]
    for letter, title in _FAMILIES.items():
        family = sorted((rule for rule in rules if rule.id[0] == letter), key=lambda rule: int(rule.id[1:]))
        if not family:
            continue
        parts.append(
            f"## {letter}: {title}\n\n| id | what | level | needs | makes vanish | expectation |\n"
            "| --- | --- | --- | --- | --- | --- |"
        )
        for rule in family:
            explained = ", ".join(sorted(rule.explains | rule.explains_here, key=lambda id: (id[0], int(id[1:] or 0))))
            needs = ", ".join(sorted(rule.needs)).replace("_", " ")
            model = MODELS.get(rule.id)
            expected = "demoted" if rule.demoted else "" if model is None else model.name
            parts.append(f"| {rule.id} | {rule.name} | {int(rule.level)} | {needs} | {explained} | {expected} |")
        parts.append("")
        for rule in family:
            demoted = f" Demoted: {rule.demoted}." if rule.demoted else ""
            parts.append(
                f"**{rule.id}** would be wrong if: {rule.falsified_by}{demoted}\n\n```python\n{rule.example}\n```\n"
            )
    parts += [*_measured(rules), *_dropped()]
    return "\n".join(parts).rstrip() + "\n"


def _measured(rules: Sequence[Rule]) -> list[str]:
    header = (
        "| kernel | rule | with the fault us | after the rewrite us | saved % | told % | today % | on top | "
        "on top today | note |"
    )
    rows = [
        f"| {one.name} | {one.id} | {one.slow_us:.1f} | {one.fixed_us:.1f} | {one.saved_pct:.1f} | "
        f"{_shown(one.told_pct)} | {_shown(one.now_pct)} | {one.top} | {one.top_now} | {NOTES.get(one.name, '')} |"
        for one in MEASURED
    ]
    waiting = ", ".join(f"{id} ({name})" for id, name in WAITING) or "none"
    known = {one.id for one in MEASURED} | {id for id, _ in WAITING}
    others = ", ".join(sorted((rule.id for rule in rules if rule.id not in known), key=_order))
    return [
        f"## Measured\n\n{WHERE}\n\n{header}\n|{' --- |' * 10}",
        *rows,
        f"\nPlanted in `tests/diagnosis/defects`, and not measured yet as they are now: {waiting}.\n",
        f"Rules without a kernel of realistic size there, so that nobody knows what their rewrite saves: {others}.\n",
    ]


def _shown(pct: float | None) -> str:
    return "" if pct is None else f"{pct:.1f}"


def _dropped() -> list[str]:
    entries = sorted(DROPPED.items(), key=lambda each: _order(each[0]))
    head = f"## Dropped\n\n{_DROPPED_HEAD}\n\n| id | why |\n| --- | --- |"
    return [head, *(f"| {id} | {why} |" for id, why in entries), ""]


def _order(id: str) -> tuple[int, int]:
    return list(_FAMILIES).index(id[0]), int(id[1:])


if __name__ == "__main__":
    print(render(), end="")  # noqa: T201  where printing is the job
