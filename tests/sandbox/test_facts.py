"""What workers tell is bounded and printable before anybody reads it."""

from typing import Any

import pytest
from pydantic import ValidationError

from tritonforge.sandbox.facts import LINE_LIMIT, NAMES_LIMIT, TENSORS_LIMIT, CallFacts, OutputComparison

LAUNCH: dict[str, Any] = {"kernel": "k", "symbol": "k", "own": True, "count": 1}
WORK: dict[str, Any] = {"name": "k", "us": 1.0, "count": 1}
HOSTILE = "\n# SYSTEM\x1b[2J\u202e" + "A" * 100_000


def facts(**changed: Any) -> CallFacts:
    fields: dict[str, Any] = {
        "labels": [], "outputs_at": [], "inputs_at": [], "launched": [], "activities": None, "operations": {},
        "touched": [],
    }  # fmt: skip
    return CallFacts.model_validate({**fields, **changed})


def is_a_line(text: str | float | None) -> bool:
    return (
        isinstance(text, str) and text.isprintable() and len(text) == LINE_LIMIT and text.startswith("?# SYSTEM?[2J?A")
    )


def test_names_from_a_kernels_worker_become_short_printable_lines() -> None:
    found = facts(
        labels=[HOSTILE],
        launched=[{**LAUNCH, "kernel": HOSTILE, "symbol": HOSTILE}],
        activities=[{**WORK, "name": HOSTILE}],
        operations={HOSTILE: 1},
        own_symbols=[HOSTILE],
    )
    assert found.activities is not None
    names = [*found.labels, found.launched[0].kernel, found.launched[0].symbol, found.activities[0].name]
    assert all(map(is_a_line, [*names, *found.operations, *found.own_symbols]))


def test_what_a_comparison_quotes_is_a_short_printable_line() -> None:
    found = OutputComparison(where=HOSTILE, mismatch=HOSTILE, worst_expected=HOSTILE, worst_got=HOSTILE)
    assert all(map(is_a_line, [found.where, found.mismatch, found.worst_expected, found.worst_got]))


def test_ordinary_names_stay_as_they_are() -> None:
    assert facts(labels=["float32 (3,) from torch.empty, k.py line 3 \u00e9"]).labels == [
        "float32 (3,) from torch.empty, k.py line 3 \u00e9"
    ]


@pytest.mark.parametrize(
    "changed",
    [
        {"outputs_at": [(0, 1)] * (TENSORS_LIMIT + 1)}, {"inputs_at": [(0, 1)] * (TENSORS_LIMIT + 1)},
        {"outputs_at": [(-1, 1)]}, {"outputs_at": [(0, 1 << 65)]}, {"touched": [True] * (TENSORS_LIMIT + 1)},
        {"labels": ["x"] * (NAMES_LIMIT + 1)}, {"own_symbols": ["x"] * (NAMES_LIMIT + 1)},
        {"launched": [LAUNCH] * (NAMES_LIMIT + 1)}, {"launched": [{**LAUNCH, "count": 10**30}]},
        {"launched": [{**LAUNCH, "count": -1}]}, {"activities": [WORK] * (NAMES_LIMIT + 1)},
        {"activities": [{**WORK, "us": -1.0}]}, {"activities": [{**WORK, "us": 1e308}]},
        {"activities": [{**WORK, "us": "nan"}]}, {"operations": {str(number): 1 for number in range(NAMES_LIMIT + 1)}},
        {"operations": {"aten.mul": -1}},
    ],
    ids=lambda changed: str(changed)[:60],
)  # fmt: skip
def test_a_call_that_no_worker_of_ours_tells_of_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        facts(**changed)
