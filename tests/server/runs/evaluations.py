"""What an evaluation is given by its run, made up."""

from dataclasses import dataclass, field
from typing import Any

from tritonforge.profiling.optimization.model import Budget, Limits
from tritonforge.server.runs.record import Frozen


def frozen(**more: Any) -> Frozen:
    """A run without a GPU, of which nothing was kept."""
    fields: dict[str, Any] = {
        "run_id": "double-1", "created_at": "", "title": "double", "kernel_sha256": "", "task_sha256": "",
        "kernel_shown_as": "", "task_shown_as": "", "kernel_origin": None, "task_origin": None, "entry": "double",
        "cases": ["large"], "hidden_sha256": None, "hidden_from": "file", "hidden_count": 0, "target": "h100-sxm",
        "gpu": None, "torch": None, "triton": None, "budget": Budget(), "limits": Limits(),
    }  # fmt: skip
    return Frozen.model_validate({**fields, **more})


@dataclass
class Watched:
    """Progress, as a client sees it."""

    told: list[tuple[float, float, str]] = field(default_factory=list[tuple[float, float, str]])

    async def __call__(self, done: float, total: float, message: str) -> None:
        self.told.append((done, total, message))
