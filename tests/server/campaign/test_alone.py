"""A baseline timed beside nothing: in the cases in which it runs."""

from types import SimpleNamespace
from typing import Any

import pytest

from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.outcome import Kind, Problem
from tritonforge.sandbox.source import Source
from tritonforge.server.campaign.alone import timed_alone

pytestmark = pytest.mark.anyio

KERNEL = Source("def entry(x): ...", "kernel.py", None)
CASES = {"large": {"n": 9}, "medium": {"n": 5, "weight": 2}, "tiny": {"n": 1, "small": True}}
TASK = f'"""CASES"""\nCASES = {{}}\nCASES = {{\n    {str(CASES)[1:-1]}\n}}\n'


class Device:
    """Times the cases of a task, unless the kernel does not run in one of them."""

    def __init__(self, *crashing: str, kind: Kind = Kind.RUNTIME_ERROR) -> None:
        self.crashing, self.kind = crashing, kind
        self.seen: list[list[str] | None] = []

    async def __call__(self, kernel: Source, task: Source, cases: list[str] | None) -> Any:
        assert kernel is KERNEL
        self.seen.append(cases)
        timed = cases or ["large", "medium"]
        for name in timed:
            if name in self.crashing:
                raise Stopped(self.kind, Problem(stage="run", message=f"{name} is illegal"))
        return SimpleNamespace(
            cases=[SimpleNamespace(case=name, device_us=2.0, speed_of_light_pct=None) for name in timed]
        )


async def timed(device: Device, text: str = TASK) -> tuple[list[str], list[str]]:
    times, left_out = await timed_alone(device, KERNEL, Source(text, "task.py", None))
    return [each.case for each in times], left_out


async def test_all_cases_are_timed_at_once_where_it_runs_in_them() -> None:
    device = Device()
    assert await timed(device) == (["large", "medium"], [])
    assert device.seen == [None]


async def test_where_it_does_not_run_in_one_the_others_are_timed() -> None:
    device = Device("large")
    assert await timed(device) == (["medium"], ["case large is not timed: runtime_error: large is illegal"])
    assert device.seen[1:] == [["large"], ["medium"]]


async def test_where_it_runs_in_none_the_small_ones_are_timed() -> None:
    device = Device("large", "medium")
    times, left_out = await timed(device)
    assert (times, len(left_out)) == (["tiny"], 2)
    assert device.seen[-1] == ["tiny"]


async def test_where_it_runs_nowhere_the_first_failure_is_told() -> None:
    with pytest.raises(Stopped, match="large is illegal"):
        await timed(Device("large", "medium", "tiny"))


@pytest.mark.parametrize(
    "text",
    [
        "CASES = dict(large={'n': 9}, medium={'n': 5})\n",
        "CASES = {'large': {'n': 9}}\n",
    ],
    ids=["made when it is loaded", "there is no other"],
)
async def test_cases_that_can_not_be_told_apart_are_not_tried_one_by_one(text: str) -> None:
    device = Device("large")
    with pytest.raises(Stopped, match="large is illegal"):
        await timed(device, text)
    assert len(device.seen) == 1


@pytest.mark.parametrize("kind", [Kind.UNAVAILABLE, Kind.CANCELLED])
async def test_what_no_kernel_can_help_ends_it(kind: Kind) -> None:
    device = Device("large", kind=kind)
    with pytest.raises(Stopped) as caught:
        await timed(device)
    assert (caught.value.kind, len(device.seen)) == (kind, 1)


async def test_a_single_small_case_is_timed_where_there_is_no_other() -> None:
    device = Device("large")
    assert await timed(device, "CASES = {'tiny': {'n': 1, 'small': True}}\n") == (["tiny"], [])
    assert device.seen == [None, ["tiny"]]
