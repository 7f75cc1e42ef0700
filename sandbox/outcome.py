"""The one vocabulary of outcomes, and the remediation data that a failing one carries."""

from enum import StrEnum

from .wire import Wire


class Kind(StrEnum):
    """How an evaluation ended."""

    OK = "ok"
    REJECTED = "rejected"
    """Malformed input, degenerate task or static refusal: nothing ran, or nothing that counts."""
    RUNNING = "running"
    CANCELLED = "cancelled"
    UNSUPPORTED = "unsupported"
    """Something that capture or the interpreter can't do."""
    COMPILE_ERROR = "compile_error"
    LAUNCH_ERROR = "launch_error"
    """The kernel compiled and can't be launched: out of shared memory, registers or threads."""
    RUNTIME_ERROR = "runtime_error"
    WRONG = "wrong"
    """It ran and the numbers are wrong."""
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    CHEATING = "cheating"
    UNAVAILABLE = "unavailable"
    """This machine can't do it: no GPU, no counters, no profiler, no usable interpreter."""


class Problem(Wire):
    """Why an evaluation did not end in ``ok``, with what is needed to mend it."""

    stage: str
    """Where it happened: environment, source, task, inputs, load, capture, compile, launch, run, compare,
    benchmark, profile or worker."""
    message: str
    """What went wrong, in one or a few lines."""
    file: str | None = None
    """The file at fault as the caller named it, or `<source>` for source text."""
    line: int | None = None
    """1-based line in `file`."""
    excerpt: str | None = None
    """The line with its neighbours, numbered."""
    likely_cause: str | None = None
    likely_fix: str | None = None
    output: str | None = None
    """End of what the code printed, where that helps."""
