"""Kernels that cheat, in Triton's interpreter: each is caught, its honest twin passes, and so does it, defenceless."""

import pytest

from tests.cheats.cheat import Cheat
from tests.cheats.checking import Checker
from tests.cheats.switches import PLANS, SWITCHES
from tests.cheats.table import CHEATS, on

pytestmark = pytest.mark.anyio

HERE = on("cpu")


def named(cheats: list[Cheat]) -> list[str]:
    return [cheat.id for cheat in cheats]


@pytest.mark.parametrize("cheat", HERE, ids=named(HERE))
async def test_a_cheat_is_caught(checker: Checker, cheat: Cheat) -> None:
    await checker.is_caught(cheat)


@pytest.mark.parametrize("cheat", HERE, ids=named(HERE))
async def test_its_honest_twin_is_right(checker: Checker, cheat: Cheat) -> None:
    await checker.honest_twin_is_right(cheat)


SWITCHED = [cheat for cheat in HERE if cheat.off]


@pytest.mark.parametrize("cheat", SWITCHED, ids=named(SWITCHED))
async def test_a_cheat_passes_without_its_defence(
    checker: Checker, cheat: Cheat, monkeypatch: pytest.MonkeyPatch
) -> None:
    await checker.passes_without_its_defence(cheat, monkeypatch)


def test_every_cheat_says_what_is_switched_off_or_why_nothing_is() -> None:
    assert len({cheat.id for cheat in CHEATS}) == len(CHEATS)
    for cheat in CHEATS:
        assert bool(cheat.off) != bool(cheat.no_switch), cheat.id
        assert set(cheat.off) <= {*PLANS, *SWITCHES}, cheat.id
        assert (cheat.hostile, cheat.task) != (cheat.honest, cheat.honest_task or cheat.task), cheat.id
    correctness_rows = {3, 6, 7, 8, 9, 10, *range(13, 20), *range(21, 39)} - {16, 20, 35, 36}
    assert {cheat.row for cheat in CHEATS} == correctness_rows
