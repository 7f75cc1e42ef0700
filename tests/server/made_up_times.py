"""Measured cases made up for tests: times that scatter a little, and what else belongs to them."""

import random
from typing import Any

from tritonforge.profiling.times import Times, pairs
from tritonforge.sandbox.conditions import Conditions
from tritonforge.sandbox.timing_facts import FirstCall, Sample
from tritonforge.server.timed_result import Against, Reference, TimedCase

BLOCKS = 20
COOL = Conditions(
    sm_clock_hz=1_980_000_000, memory_clock_hz=3_201_000_000, temperature_c=40, power_w=300.0, power_limit_w=700.0,
    throttle_reasons=[],
)  # fmt: skip


def times(
    us: float,
    *,
    noise: float = 0.0005,
    call_us: float | None = None,
    blocks: int = BLOCKS,
    event_us: float | None = None,
    clock_hz: float = 1.98e9,
    seed: int = 0,
) -> Times:
    """Times of one side whose blocks scatter by ``noise``, relatively."""
    drawn = random.Random(f"{us} {seed}")
    middles = [us * (1 + drawn.gauss(0, noise)) for _ in range(blocks)]

    def sample(one: float) -> Sample:
        return Sample(kernel_us=one, device_us=one, activities=1, event_us=one + 0.5 if event_us is None else event_us)

    return Times(
        blocks=[[sample(one * (1 + drawn.gauss(0, noise))) for _ in range(18)] for one in middles],
        call_us=[[(us + 20.0 if call_us is None else call_us) + drawn.random() for _ in range(8)] for _ in range(6)],
        kernels={"softmax_kernel": [us] * 2 * blocks},
        sm_clock_hz=[clock_hz] * blocks,
        visits=2 * blocks,
        wall_us=[us + 300.0] * 2 * blocks,
    )


def timed_case(
    case: str = "train", candidate: Times | float = 100.0, baseline: float | None = 100.0, **more: Any
) -> TimedCase:
    """A case as `CaseTimer.time` gives it."""
    mine = candidate if isinstance(candidate, Times) else times(candidate, seed=1)
    its = None if baseline is None else times(baseline, seed=2, blocks=len(mine.blocks))
    fields: dict[str, Any] = {
        "case": case, "how": "replayed", "how_reason": None, "candidate": mine, "baseline": its,
        "groups": [] if its is None else [pairs(mine, its)],
        "first": FirstCall(first_call_s=0.8, second_call_us=120.0, results_bytes=4096, varies=True),
        "tuned": [], "baseline_tuned": [], "dtypes": {"float32"}, "input_bytes": 4096, "results_bytes": 4096,
        "varies": True, "checked": 6, "repeated": 0, "replay_ratio": 1.0, "conditions": [COOL] * 3,
    }  # fmt: skip
    return TimedCase(**{**fields, **more})


def against(name: Reference, us: float) -> Against:
    return Against(name, times=times(us, seed=3), first_call_s=2.0)
