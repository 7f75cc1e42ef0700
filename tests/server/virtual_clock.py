"""An event loop whose clock jumps to whatever is due next: what would take seconds takes none, and always as long."""

import asyncio
import functools
import selectors
from collections.abc import Awaitable, Callable
from typing import Any

import anyio


class _Jumping(selectors.DefaultSelector):
    """Never waits."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if not found and timeout is None:
            raise RuntimeError("nothing will ever happen any more")
        if not found and timeout is not None:
            self.now += max(0.0, timeout)
        return found


class VirtualLoop(asyncio.SelectorEventLoop):
    """For code that sleeps and waits on its own events, and nothing else: no threads, no processes."""

    def __init__(self, **_: Any) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def virtual(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """A test in such a loop of its own: pytest's runner keeps the loop that other fixtures have begun."""

    @functools.wraps(test)
    def run(**fixtures: Any) -> None:
        anyio.run(functools.partial(test, **fixtures), backend_options={"loop_factory": VirtualLoop})

    return run
