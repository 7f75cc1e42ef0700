"""One thing that the tools need, and whether it is here."""

from typing import Literal

from ..sandbox.wire import Wire

Status = Literal["ok", "limited", "missing"]


class Check(Wire):
    """One thing that the tools need."""

    name: str
    status: Status
    detail: str
    remedy: str | None = None
    required: bool = False
    """Without it not even compiling and checking on the CPU work."""
