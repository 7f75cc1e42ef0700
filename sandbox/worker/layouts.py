# pyright: basic
# torch ships incomplete types.
"""Places in memory that timed calls rotate over: where a buffer lies changes the time of short kernels by percents."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Generator
from typing import Any

import torch

from . import values

LIMIT_BYTES = 4 << 30
"""What all layouts of a process may take together, unless one alone takes more: seven processes share a GPU."""
MOST = 8
PADDING_MIB = 64


class Layout:
    """One set of input buffers, and memory of its own for what the entry allocates meanwhile."""

    def __init__(self, inputs: Any) -> None:
        self._padding = torch.empty(random.randrange(1, PADDING_MIB) << 20, dtype=torch.uint8, device="cuda")
        self._pool = torch.cuda.MemPool()
        self.held: list[Any] = []
        """Results of the visit's calls: while they live, each call's lie elsewhere."""
        with self.used():
            self.inputs = values.copy(inputs)

    @contextlib.contextmanager
    def used(self) -> Generator[None]:
        """What is allocated in here by this thread comes from this layout's memory."""
        with torch.cuda.use_mem_pool(self._pool):
            yield


def count(size_bytes: int) -> int:
    """How many layouts there is room for, each of which takes so much: inputs, results that are held, temporaries."""
    return max(1, min(MOST, LIMIT_BYTES // max(size_bytes, 1)))


def calls_that_fit(wanted: int, results_bytes: int) -> int:
    """Of a visit's calls, how many results may be held in half of the limit; one at least."""
    return max(1, min(wanted, LIMIT_BYTES // 2 // max(results_bytes, 1)))
