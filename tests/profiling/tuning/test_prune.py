"""What is not run, for what its compiler's output says; and what that output lets one expect."""

from typing import Any

import pytest

from tests.diagnosis.made_up import H200
from tests.profiling.tuning.facts import dot, launch
from tritonforge.profiling.tuning.prune import Best, best_of, counted, prune, refused
from tritonforge.sandbox.outcome import Kind, Problem

LIMITS = H200.limits


@pytest.mark.parametrize(
    ("changed", "best", "reason"),
    [
        ({}, Best(), None),
        ({"shared_bytes": 300_000}, Best(), "shared memory"),
        ({"blocks_per_sm": 0}, Best(), "registers"),
        ({"blocks_per_sm": None}, Best(), None),
        ({"spill_bytes": 128, "loops": 1}, Best(0, 0), "spills in a loop"),
        ({"spill_bytes": 128, "loops": 0}, Best(0, 0), None),
        ({"spill_bytes": 16, "loops": 1}, Best(0, 0), None),
        # The best found so far spills as well.
        ({"spill_bytes": 128, "loops": 1}, Best(0, 96), None),
        ({"elements_per_program_max": 32, "num_warps": 4}, Best(), "idle threads"),
        ({"elements_per_program_max": 64, "num_warps": 4}, Best(), None),
        ({"elements_per_program_max": None}, Best(), None),
        ({"dots": [dot()], "mma": "mma"}, Best(2), "tensor cores lost"),
        ({"dots": [dot()], "mma": "wgmma"}, Best(2), None),
        # Few rows: the larger instruction would leave most of its own empty.
        ({"dots": [dot(m=16)], "mma": "mma"}, Best(2), None),
        ({"dots": [dot(m=16)], "mma": "none"}, Best(1), "tensor cores lost"),
    ],
)
def test_a_variant_is_ruled_out_for_one_reason(changed: dict[str, Any], best: Best, reason: str | None) -> None:
    found = prune([launch(), launch(**changed)], LIMITS, best)
    assert (None if found is None else found.reason) == reason
    assert found is None or found.why


def test_the_best_of_some_variants_is_what_others_are_held_against() -> None:
    best = best_of([[launch(spill_bytes=8, dots=[dot()], mma="mma")], [launch(dots=[dot()], mma="wgmma")], []])
    assert best == Best(tensor_rank=2, spill_bytes=0)


@pytest.mark.parametrize(
    ("kind", "message", "reason"),
    [
        (Kind.LAUNCH_ERROR, "out of resource: shared memory, required 300000", "shared memory"),
        (Kind.LAUNCH_ERROR, "too many registers", "registers"),
        (Kind.COMPILE_ERROR, "arange's range must be a power of 2", "does not compile"),
        (Kind.TIMEOUT, "its compilation was ended", "slow to compile"),
        (Kind.RUNTIME_ERROR, "assertion failed", "unusable"),
    ],
)
def test_what_does_not_compile_has_a_reason_too(kind: Kind, message: str, reason: str) -> None:
    found = refused(kind, Problem(stage="compile", message=message))
    assert (found.reason, found.why) == (reason, message)


def test_reasons_are_counted() -> None:
    some = [refused(Kind.TIMEOUT, Problem(stage="compile", message="late"))] * 2
    assert counted([*some, refused(Kind.COMPILE_ERROR, Problem(stage="compile", message="bad"))]) == {
        "slow to compile": 2,
        "does not compile": 1,
    }
