"""Made-up TritonBench files whose kernels write through a helper, and what becomes of them on a GPU."""

from pathlib import Path

from tests.server.adapters.files import LINE
from tritonforge.server.adapters.find import choices
from tritonforge.server.adapters.ground import Grounded, ground
from tritonforge.server.services import Services

HEAD = """\
import torch
import triton
import triton.language as tl


@triton.jit
def _double(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, 2 * tl.load(x_ptr + at, mask=at < n), mask=at < n)


def _into(x, out, n=None):
    n = x.numel() if n is None else n
    _double[(triton.cdiv(n, 64),)](x, out, n, BLOCK=64)


"""
INTO = '{"way": _into}["way"]'
"""A helper that cannot be seen from the source."""
WRITES = f"def entry(x, out):\n    {INTO}(x, out)\n"
ONE = "entry(x(96), torch.zeros(96, device='cuda'))\n"
TEST = "import torch\n\ndef x(n):\n    return torch.randn(n, device='cuda')\n\n"


async def grounded(services: Services, folder: Path, kernel: str, calls: str) -> Grounded:
    file = folder / "made_up.py"
    file.write_text(f"{HEAD}{kernel}\n{LINE}\n\n{TEST}{calls}")
    return await ground(services, choices(file), target="h100")
