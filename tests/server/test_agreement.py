"""Whether replayed calls stand for ordinary ones: a process in which the file ran is not believed to be faster."""

from typing import cast

import pytest

from tests.server.made_up_times import times
from tritonforge.profiling.times import Side
from tritonforge.sandbox.replay_plan import Recorded
from tritonforge.sandbox.timed import TimedWorker
from tritonforge.server.agreement import disagreement, ratio_of, why_not


def sides(*us: float) -> list[Side]:
    names = ("candidate", "baseline")
    return [Side(name, cast(TimedWorker, None), times=times(one)) for name, one in zip(names, us, strict=False)]


@pytest.mark.parametrize(
    ("ordinary", "replayed", "reason", "doubt"),
    [
        ((100, 200), (100, 200), None, None),
        ((102, 204), (100, 200), None, None),
        # Half a microsecond is nothing.
        ((5.4, 5.4), (5, 5), None, None),
        ((110, 200), (100, 200), "candidate: an ordinary call takes", None),
        ((100, 250), (100, 200), "baseline: an ordinary call takes", None),
        ((60, 200), (100, 200), None, "candidate: an ordinary call takes"),
        # Not even where the baseline could not be replayed.
        ((60, 250), (100, 200), None, "candidate: an ordinary call takes"),
        ((100, 120), (100, 200), None, "baseline: an ordinary call takes"),
        ((110, 120), (100, 200), "candidate: an ordinary call takes", None),
        ((60,), (100,), None, "the latter counts"),
    ],
)
def test_ordinary_calls_are_timed_where_they_are_slower_and_not_believed_where_they_are_faster(
    ordinary: tuple[float, ...], replayed: tuple[float, ...], reason: str | None, doubt: str | None
) -> None:
    for found, words in zip(disagreement(sides(*ordinary), sides(*replayed)), (reason, doubt), strict=True):
        assert (found is None) == (words is None)
        assert words is None or words in (found or "")


def test_the_ratio_is_that_of_a_typical_call() -> None:
    one, other = sides(60, 100)
    assert ratio_of(one, other) == pytest.approx(0.6, rel=0.01)


def test_the_first_kernel_that_cannot_be_replayed_is_named() -> None:
    assert why_not([Recorded(reason="it computes"), Recorded(reason="it copies")]) == (
        "the kernel can't be replayed: it computes"
    )
