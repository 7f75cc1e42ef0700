"""Which shapes a winner is tried on that it was not optimized for."""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Final, NamedTuple

from pydantic import JsonValue

from ...sandbox.source import Source
from ...sandbox.task import Case, Task
from ..runs.hidden import EVEN, SEED, SIZE_FROM, derived, of_task, sizes_of
from ..runs.record import HiddenCases

SPARES: Final = 2
"""So many times the cases that are wanted are chosen: the baseline can't do all shapes."""
INPUT_BYTES: Final = 4 << 30
"""Of one case's inputs, unless a case of the task has more: checking takes copies of them."""
SMALL: Final = "small"

FITTING: Final = f'''
import math

import torch


class _Generator(torch.Generator):
    """On the CPU: a device without memory has none."""

    def __new__(cls, device="cpu"):
        return super().__new__(cls)


def _input_bytes(parameters):
    def tensors(value):
        if isinstance(value, torch.Tensor):
            return [value]
        if isinstance(value, dict):
            value = list(value.values())
        return [tensor for item in value for tensor in tensors(item)] if isinstance(value, (list, tuple)) else []

    made = make_inputs(**parameters, device="meta")
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors(made))


def _sizes(parameters):
    sizes = [value for name, value in parameters.items() if type(value) is int and name != {SEED!r}]
    return math.prod(size for size in sizes if size >= {SIZE_FROM})


def _fitting(cases):
    def measured(case):
        parameters = {{name: value for name, value in case.items() if name not in ("weight", "small")}}
        return measure(parameters)

    made, measure, limit = torch.Generator, _input_bytes, {INPUT_BYTES}
    torch.Generator = _Generator
    try:
        try:
            limit = max(limit, *[measured(case) for case in CASES.values()])
        except Exception:
            # Not everything can be made without its contents: then no more is asked for than by the task itself.
            measure = _sizes
            limit = max(measured(case) for case in CASES.values())
        kept = {{}}
        for name, case in cases.items():
            try:
                if measured(case) <= limit:
                    kept[name] = case
            except Exception:
                continue
        return kept
    finally:
        torch.Generator = made


'''


class Chosen(NamedTuple):
    """Cases, the likeliest to tell something first."""

    cases: HiddenCases
    own: bool = False
    """Whether they are the task's hidden cases: not optimized for, and checked before the winner was accepted."""


def unseen_cases(
    spec: Task,
    further: Mapping[str, Case],
    *,
    limit: int,
    seed: str,
    on_gpu: bool,
    checked: Iterable[Mapping[str, JsonValue]] = (),
) -> Chosen:
    """Shapes for a winner: further sizes of the artefact, else neighbours of the task's, else its hidden cases.

    Args:
        spec: the task.
        further: sizes that the artefact has beyond the task's, the smallest first.
        limit: how many are wanted; up to `SPARES` times as many are chosen.
        seed: decides the neighbours; the same seed gives the same cases.
        on_gpu: whether they are run there; the interpreter takes small ones.
        checked: parameters of other cases that the winner was checked on.
    """
    count = SPARES * limit
    usable = [(name, case) for name, case in further.items() if on_gpu or case.small]
    if usable:
        first = _spread(usable, limit)
        rest = _spread([each for each in usable if each not in first], count - len(first))
        return Chosen({name: _fields(case) for name, case in (*first, *rest)})
    known = [case.parameters for case in (*spec.cases.values(), *spec.hidden_cases.values())]
    known += [{name: value for name, value in one.items() if name != SMALL} for one in checked]
    found = _neighbours(spec, known, seed, on_gpu=on_gpu)
    if found:
        small: dict[str, JsonValue] = {} if on_gpu else {SMALL: True}
        return Chosen({f"unseen-{number}": {**one, **small} for number, one in enumerate(found[:count], 1)})
    return hidden_of(spec, limit)


def hidden_of(spec: Task, limit: int) -> Chosen:
    """The task's own hidden cases, for where there are no others, or none that the baseline can do."""
    own = of_task(spec)
    return Chosen({name: own[name] for name in list(own)[: SPARES * limit]}, own=True)


def with_fitting(task: Source, cases: HiddenCases) -> Source:
    """The task, with those of the cases as its hidden ones whose inputs are not too large, as a worker finds out."""
    return task._replace(text=f"{task.text}\n{FITTING}HIDDEN_CASES = _fitting({cases!r})\n")


def _neighbours(
    spec: Task, known: Sequence[Mapping[str, JsonValue]], seed: str, *, on_gpu: bool
) -> list[dict[str, JsonValue]]:
    """On a GPU, cases with a size doubled or halved in turn with ragged, somewhat larger and turned ones."""
    near = [
        {name: value for name, value in case.items() if name != SMALL}
        for case in derived(spec.cases, seed, on_gpu=on_gpu).values()
    ]
    if not on_gpu:
        return _without(near, known)
    turn = random.Random(f"{seed} scaled").randrange(1 << 16)
    bases = [case for case in spec.cases.values() if not case.small] or list(spec.cases.values())
    series = [_scaled(case, turn + place) for place, case in enumerate(bases)]
    scaled = _without([one for group in zip_longest(*series) for one in group if one is not None], known)
    near = _without(near, [*known, *scaled])
    return [one for pair in zip_longest(scaled, near) for one in pair if one is not None]


def _without(
    cases: Iterable[dict[str, JsonValue]], known: Sequence[Mapping[str, JsonValue]]
) -> list[dict[str, JsonValue]]:
    """Those that are not known, each once."""
    found: list[dict[str, JsonValue]] = []
    for parameters in cases:
        if not any(_same(parameters, one) for one in (*known, *found)):
            found.append(parameters)
    return found


def _scaled(case: Case, turn: int) -> Iterator[dict[str, JsonValue]]:
    """One size doubled, the next one halved, and so on, then three quarters of each, for tasks whose cases double.

    Multiples of 16 stay so, and their times say something.
    """
    sizes = sizes_of(case)
    names = list(sizes)
    start = turn % len(names) if names else 0
    names = names[start:] + names[:start]
    for number, name in enumerate(names):
        other = names[(number + 1) % len(names)]
        doubled: dict[str, JsonValue] = {**case.parameters, name: 2 * sizes[name]}
        half = _share(sizes[other], 1, 2)
        halved: list[dict[str, JsonValue]] = [] if half is None else [{**case.parameters, other: half}]
        # Another one first in each case: few of them are tried.
        yield from (*halved, doubled) if turn % 2 else (doubled, *halved)
    for name in names:
        if (share := _share(sizes[name], 3, 4)) is not None:
            yield {**case.parameters, name: share}


def _share(size: int, of: int, parts: int) -> int | None:
    share = size * of // parts
    share = share if size % EVEN else share // EVEN * EVEN
    return share if share >= SIZE_FROM else None


def _same(one: Mapping[str, JsonValue], other: Mapping[str, JsonValue]) -> bool:
    """Equal but for what decides about contents."""
    left, right = ({name: value for name, value in each.items() if name != SEED} for each in (one, other))
    return left == right


def _fields(case: Case) -> dict[str, JsonValue]:
    return {**case.parameters, SMALL: True} if case.small else dict(case.parameters)


def _spread(cases: Sequence[tuple[str, Case]], count: int) -> list[tuple[str, Case]]:
    """So many of them, from the first to the last."""
    if len(cases) <= count:
        return list(cases)
    if count <= 1:
        return list(cases[-1:] if count else [])
    places = [place * (len(cases) - 1) // (count - 1) for place in range(count)]
    return [cases[place] for place in dict.fromkeys(places)]
