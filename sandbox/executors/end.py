"""How everything ends when there is no time to wait for anything."""

from .. import scratch
from ..rehearsal import kill_asked
from ..spares import kill_preloaders
from .cold import kill_cold


def abandon() -> None:
    """Kill every worker with all that it started and remove all scratch: for a server that must end at once."""
    kill_preloaders()
    kill_cold()
    kill_asked()
    scratch.remove_all()
