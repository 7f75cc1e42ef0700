"""What an adapter makes of an existing artefact."""

from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path


class Form(StrEnum):
    """A kind of artefact that there is an adapter for."""

    TRITONBENCH = "tritonbench"
    KERNELBENCH = "kernelbench"
    GPU_MODE = "gpu-mode"
    PYTEST = "pytest"


ASSUMED = "Assumed:"


@dataclass(frozen=True, slots=True)
class Adapted:
    """A kernel file and a task file, and what was assumed to get there."""

    form: Form
    path: Path
    """Of the artefact."""
    entry: str
    kernel: str
    """Text of the kernel file."""
    task: str
    """Text of the task file, without its docstring."""
    assumptions: tuple[str, ...]
    has_launches: bool = True
    """Whether the kernel file launches Triton kernels; a reference in plain torch does not."""
    is_spare: bool = False
    """Whether it is the reading before it with other inputs, to be tried where those fail on a GPU."""

    @property
    def name(self) -> str:
        """Of the artefact, without its ending."""
        return self.path.name.removesuffix(".py")

    @property
    def task_text(self) -> str:
        """The task file, with the assumptions in its docstring."""
        lines = [f"{self.name}, adapted from {self.form} ({self.path.name}).", "", ASSUMED]
        lines += [f"- {assumption}" for assumption in self.assumptions]
        text = "\n".join(lines).replace("\\", "\\\\").replace('"""', "'''")
        return f'"""{text}\n"""\n\n{self.task}'

    def assuming(self, *more: str) -> "Adapted":
        """The same with further assumptions."""
        return replace(self, assumptions=(*self.assumptions, *more))
