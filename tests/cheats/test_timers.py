"""Kernels that cheat while they are timed: without a GPU, whether each loads and is what it says until then."""

from collections.abc import Sequence
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

import tritonforge.sandbox
from tests.cheats.checking import Checker
from tests.cheats.timers import CHEATS, TWINS, TimerChecker, gain_of
from tests.cheats.timers_base import EQUAL, TimerCheat
from tritonforge.sandbox.outcome import Kind, Problem
from tritonforge.server.tools.benchmark_report import BenchmarkResult, CaseTimes

HERE = [cheat for cheat in CHEATS if cheat.untimed is not None]
FIRST = {cheat.twin: cheat for cheat in reversed(CHEATS) if cheat.honest_untimed is not None}
BASELINES = list(dict.fromkeys((cheat.baseline, cheat.task) for cheat in CHEATS))
ROWS = {*range(1, 6), 8, 9, *range(11, 22)}


@pytest.mark.anyio
@pytest.mark.parametrize("cheat", HERE, ids=[cheat.id for cheat in HERE])
async def test_a_cheat_is_what_it_says_until_it_is_timed(checker: Checker, cheat: TimerCheat) -> None:
    result = await checker.check(cheat.hostile, cheat.task)
    assert result.kind is cheat.untimed, result.summary


@pytest.mark.anyio
@pytest.mark.parametrize("cheat", FIRST.values(), ids=[cheat.id for cheat in FIRST.values()])
async def test_its_honest_twin_is_right(checker: Checker, cheat: TimerCheat) -> None:
    result = await checker.check(*cheat.twin[:2])
    assert result.kind is cheat.honest_untimed, result.summary


@pytest.mark.anyio
@pytest.mark.parametrize(("baseline", "task"), BASELINES)
async def test_what_it_is_timed_beside_is_right(checker: Checker, baseline: str, task: str) -> None:
    result = await checker.check(baseline, task)
    assert result.kind is Kind.OK, result.summary


@pytest.mark.parametrize("cheat", CHEATS, ids=[cheat.id for cheat in CHEATS])
def test_every_file_is_python(cheat: TimerCheat) -> None:
    for source in (cheat.hostile, cheat.honest, cheat.task, cheat.baseline):
        compile(source, "<source>", "exec")


def test_every_row_has_a_cheat_and_all_fit_into_a_run() -> None:
    assert {cheat.row for cheat in CHEATS} - {35} == ROWS
    assert len({cheat.id for cheat in CHEATS}) == len(CHEATS)
    assert len(CHEATS) + len(TWINS) <= 45


def test_every_cheat_says_what_becomes_of_it() -> None:
    for cheat in CHEATS:
        assert cheat.gains_nothing or cheat.found, cheat.id
        assert cheat.hostile not in (cheat.honest, cheat.baseline), cheat.id
        assert all(kind is not Kind.OK for kind, _ in cheat.found), cheat.id


# What cheats look for: under another name they would not find it, and look caught

WORKER = Path(tritonforge.sandbox.__file__).parent / "worker"


def names(file: str) -> dict[str, set[str]]:
    """Functions of a file of the worker, with the names of what is local to them."""
    found: dict[str, set[str]] = {}
    codes = [compile((WORKER / f"{file}.py").read_text(), file, "exec")]
    while codes:
        code = codes.pop()
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        found.setdefault(code.co_name, set()).update(code.co_varnames)
    return found


def test_what_cheats_look_for_is_there() -> None:
    measure = names("measure")
    assert {"visit", "first_call", "call_times", "_get_ready", "_sample"} <= set(measure)
    assert {"self", "layout", "contents", "number"} <= measure["_visit"]
    assert {"layout", "number"} <= measure["_get_ready"]
    assert {"make", "write"} <= set(names("contents"))
    assert "read" in names("cupti")
    assert "do_call" in names("kernel_side")
    text = {file: (WORKER / f"{file}.py").read_text() for file in ("measure", "contents", "layouts")}
    for told in ("self._mark_bytes = ", "self._contents = ", "torch.sum(self._buffer", " synchronize()\n"):
        assert told in text["measure"], told
    assert "COUNT = 1 << 13" in text["contents"]
    assert "torch.mul(part, factors, out=" in text["contents"]
    assert "self.held" in text["layouts"]


# What the checker takes for caught


def result(kind: Kind = Kind.OK, message: str = "", **case: Any) -> BenchmarkResult:
    problem = None if kind is Kind.OK else Problem(stage="benchmark", message=message)
    cases = [CaseTimes.model_construct(case="large", **case)] if case else []
    return BenchmarkResult.model_construct(kind=kind, summary=message, problem=problem, cases=cases)


class Told(TimerChecker):
    """Is told what `benchmark` says."""

    def __init__(self, found: Sequence[BenchmarkResult]) -> None:
        self._found = list(found)
        self._known = {}

    async def time(self, kernel: str, task: str, baseline: str) -> BenchmarkResult:
        return self._found.pop(0)


def cheat(**more: Any) -> TimerCheat:
    return TimerCheat(1, "made up", "hostile", "honest", "nothing", **more)


SAME = result(comparison="same", call_ratio_low=0.9)
UNSURE = result(comparison="same", call_ratio=1.9, call_ratio_low=1.1)
FASTER = result(comparison="faster", call_ratio_low=0.9)
FASTER_CALLS = result(comparison="same", call_ratio_low=1.9)
STALE = result(Kind.WRONG, "a timed call's results are wrong")


@pytest.mark.parametrize(
    ("found", "gain"), [(SAME, None), (UNSURE, None), (FASTER, "device time"), (FASTER_CALLS, "time of whole calls")]
)
def test_a_gain_is_either_time(found: BenchmarkResult, gain: str | None) -> None:
    assert gain_of(found) == gain


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("found", "more"),
    [(SAME, {"gains_nothing": True}), (STALE, {"found": ((Kind.WRONG, "are wrong"),)})],
)
async def test_it_is_caught_where_that_was_expected(found: BenchmarkResult, more: dict[str, Any]) -> None:
    await Told([found]).is_caught(cheat(**more))


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("found", "more"),
    [
        (SAME, {"found": ((Kind.WRONG, ""),)}),
        (FASTER, {"gains_nothing": True}),
        (FASTER_CALLS, {"gains_nothing": True}),
        (STALE, {"gains_nothing": True}),
        (STALE, {"found": ((Kind.WRONG, "other words"), (Kind.CHEATING, ""))}),
    ],
)
async def test_else_it_is_not(found: BenchmarkResult, more: dict[str, Any]) -> None:
    with pytest.raises(AssertionError):
        await Told([found]).is_caught(cheat(**more))


@pytest.mark.anyio
async def test_a_twin_is_timed_once() -> None:
    told = Told([SAME])
    for _ in range(2):
        await told.honest_twin_is_timed(cheat())


@pytest.mark.anyio
@pytest.mark.parametrize("found", [FASTER, STALE])
async def test_a_twin_must_be_timed_as_what_it_is(found: BenchmarkResult) -> None:
    assert cheat().honest_is == EQUAL
    with pytest.raises(AssertionError):
        await Told([found]).honest_twin_is_timed(cheat())
