"""What the sandbox raises.

Exception
└── SandboxError
    ├── Stopped             an evaluation ended early: an outcome kind and a problem, ordinary data for the caller
    │   └── Unfit           a source was found and is no text of a Python file
    ├── ProtocolViolation   a worker sent what no worker of ours sends
    └── NvmlUnavailable     the driver's management library can't tell (in `nvml.py`)
"""

from .outcome import Kind, Problem


class SandboxError(Exception):
    """Root of what this package raises."""


class Stopped(SandboxError):
    """An evaluation ended before its result: one outcome of the common vocabulary.

    Raised where the evaluation stops and turned into a result in one place, by the tool that was asked.
    """

    def __init__(self, kind: Kind, problem: Problem) -> None:
        super().__init__(f"{kind}: {problem.message}")
        self.kind = kind
        self.problem = problem


class Unfit(Stopped):
    """A source was found, and what it holds can't be the text of a Python file: whoever wrote it is at fault, and not
    whoever named it."""

    def __init__(self, message: str, *, file: str | None = None, fix: str | None = None) -> None:
        super().__init__(Kind.REJECTED, Problem(stage="source", message=message, file=file, likely_fix=fix))


class ProtocolViolation(SandboxError):
    """A frame that is malformed, oversized or not of the expected form: the worker is hostile or broken."""


def rejected(stage: str, message: str, *, file: str | None = None, fix: str | None = None) -> Stopped:
    """Input that can't be used."""
    return Stopped(Kind.REJECTED, Problem(stage=stage, message=message, file=file, likely_fix=fix))


def lacks_memory(stopped: Stopped) -> bool:
    """Whether there was too little memory: for the evaluation, or for a worker that was to be made for it."""
    said = f"{stopped.problem.message} {stopped.problem.output or ''}".lower()
    return stopped.kind is Kind.OUT_OF_MEMORY or (stopped.kind is Kind.UNAVAILABLE and "out of memory" in said)
