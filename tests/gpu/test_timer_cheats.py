"""Kernels that cheat while they are timed, on the GPU: each is caught or gains nothing; honest twins are timed."""

from collections.abc import AsyncGenerator

import pytest

from tests.cheats.checking import checking
from tests.cheats.timers import CHEATS, TimerChecker
from tests.cheats.timers_base import TimerCheat
from tritonforge.sandbox.limits import Limits

pytestmark = [pytest.mark.gpu, pytest.mark.anyio]

NAMES = [cheat.id for cheat in CHEATS]


@pytest.fixture(scope="module")
async def checker(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TimerChecker]:
    limits = Limits(request_s=30.0, gpu_memory_bytes=24 << 30)
    async with checking(tmp_path_factory.mktemp("state"), limits, gpu_spares=6) as checker:
        yield TimerChecker(checker)


@pytest.mark.parametrize("cheat", CHEATS, ids=NAMES)
async def test_a_cheat_is_caught_or_gains_nothing(checker: TimerChecker, cheat: TimerCheat) -> None:
    await checker.is_caught(cheat)


@pytest.mark.parametrize("cheat", CHEATS, ids=NAMES)
async def test_its_honest_twin_is_timed(checker: TimerChecker, cheat: TimerCheat) -> None:
    await checker.honest_twin_is_timed(cheat)
