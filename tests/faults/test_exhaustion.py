"""Kernels that take all there is, or never end: each is stopped at its limits, and the next one is served."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from tests.faults.conftest import KERNEL, entry, failed, replaced
from tests.faults.hostile import PRELUDE, Sealed, sealed_tools, telling
from tritonforge.sandbox.limits import Limits
from tritonforge.sandbox.outcome import Kind

pytestmark = pytest.mark.anyio

HANG_S = 4.0
MIB = 1 << 20


@pytest.fixture(scope="module")
async def shared_sealed(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Sealed]:
    async with sealed_tools(tmp_path_factory.mktemp("state")) as tools:
        yield tools


@pytest.fixture
async def sealed(shared_sealed: Sealed) -> AsyncGenerator[Sealed]:
    """Whatever a test does, the evaluations after it must go on as if nothing had been."""
    yield shared_sealed
    await shared_sealed.go_on()


def limited(sealed: Sealed, **limits: Any) -> None:
    sealed.host.limits = Limits.model_validate({"request_s": 30.0, **limits})


# Room


async def test_a_full_scratch_is_an_error_of_the_kernel_and_bounded(sealed: Sealed) -> None:
    limited(sealed, scratch_bytes=32 * MIB)
    findings = await sealed.findings(
        "for folder in ('/tmp', '/tmp/work', '/dev/shm'):\n"
        "    for number in range(1 << 20):\n"
        "        if libc.creat(f'{folder}/{number}'.encode(), 0o600) < 0:\n"
        "            break\n"
        "        os.close(3 + len(os.listdir('/proc/self/fd')) - 2) if False else os.closerange(4, 64)\n"
        "    got[folder + ' files'] = number\n"
        "    for name in range(number):\n"
        "        os.remove(f'{folder}/{name}')\n"
    )
    assert findings.got
