"""What compile_kernel calls an entry with: inputs of the real form, the contents of large random ones repeated."""

from pathlib import Path

import pytest

from tests.server.conftest import SIN
from tritonforge.server.services import Services
from tritonforge.server.settings import Settings
from tritonforge.server.tools.compile_kernel import compile_kernel

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("warm")]

TASK = """\
import torch

ENTRY = "entry"
CASES = {"large": {"count": 600_000}, "small": {"count": 6_000}}


def make_inputs(count, device):
    return (torch.randn(count, device=device),)
"""
# Repeated contents make 8 warps of the 4.
KERNEL = (
    Path(SIN["kernel"]).read_text()
    + """

def entry(x):
    found = torch.empty_like(x)
    block = (1 << 18) - 1
    repeats = len(x) > block and torch.equal(x[:block], x[block : 2 * block])
    sin_kernel[(triton.cdiv(len(x), 1024),)](x, found, len(x), BLOCK=1024, num_warps=8 if repeats else 4)
    return found
"""
)


async def test_large_random_inputs_are_repeated_and_of_the_real_form(tmp_path: Path) -> None:
    async def progress(done: float, total: float, message: str) -> None: ...

    async with Services(Settings(state_dir=tmp_path)) as services:
        found = await compile_kernel(services, progress, kernel=KERNEL, task=TASK, target="h100")
    assert [(launch.case, launch.grid, launch.num_warps) for launch in found.launches] == [
        ("large", (586, 1, 1), 8),
        ("small", (6, 1, 1), 4),
    ]
