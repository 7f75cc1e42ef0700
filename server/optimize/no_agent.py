"""The agent that has no ideas, for those who want baselines alone."""

from ...sandbox.errors import rejected
from .model import NONE, AgentEnd, Site, TaskAsked


class NoAgent:
    """Implements `Agent`."""

    def __init__(self) -> None:
        self.ends: list[AgentEnd] = []

    async def write_task(self, asked: TaskAsked) -> str | None:
        """
        Raises:
            Stopped: ``rejected``: it writes none.
        """
        raise rejected("task", f"{NONE} writes no task: it needs one", fix="Give it with --task.")

    async def work(self, site: Site) -> None:
        """Nothing."""
