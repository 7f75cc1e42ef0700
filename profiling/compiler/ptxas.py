"""What `ptxas -v` says about one kernel: registers, stack, spills, barriers and performance notes."""

import re
from dataclasses import dataclass

# "ptxas info    : Compiling entry function 'k' for 'sm_90a'" opens a kernel's part of the log.
_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_PROPERTIES = re.compile(r"Function properties for '?([\w$.]+)'?")
_FRAME = re.compile(r"(\d{1,9}) bytes stack frame, (\d{1,9}) bytes spill stores, (\d{1,9}) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d{1,9}) registers")
_BARRIERS = re.compile(r"used (\d{1,9}) barriers")
_SHARED = re.compile(r"(\d{1,9}) bytes smem")
_NOTE = re.compile(r"(\(C\d+\) .*\S)")
_NOTE_SUBJECT = re.compile(r"in (?:the )?function '([^']+)'")


@dataclass(frozen=True, slots=True)
class PtxasUsage:
    """Resources of one kernel, for each thread unless it says otherwise."""

    registers: int
    stack_bytes: int
    """Local memory of the kernel itself; it can be above zero without any spill."""
    spill_store_bytes: int
    spill_load_bytes: int
    barriers: int
    """Per block."""
    static_shared_bytes: int
    """Per block, without the dynamic shared memory that Triton asks for at launch."""
    notes: tuple[str, ...]
    """The assembler's numbered remarks, such as `(C7511) Potential Performance Loss: …`."""


def parse_log(text: str, kernel_name: str) -> PtxasUsage | None:
    """Finds one kernel in the log of `ptxas -v`, which can hold several kernels and device functions.

    Returns:
        The kernel's usage, or None where the log does not hold it (the run failed, or was not verbose).
    """
    entry: str | None = None
    subject: str | None = None
    frame: tuple[int, int, int] | None = None
    used: str | None = None
    notes: list[str] = []
    for line in text.splitlines():
        if match := _NOTE.search(line):
            named = _NOTE_SUBJECT.search(match[1])
            if named is None or named[1] == kernel_name:
                notes.append(match[1])
        elif match := _ENTRY.search(line):
            entry = match[1]
        elif match := _PROPERTIES.search(line):
            subject = match[1]
        elif (match := _FRAME.search(line)) and subject == kernel_name and frame is None:
            frame = (int(match[1]), int(match[2]), int(match[3]))
        elif _REGISTERS.search(line) and entry == kernel_name and used is None:
            used = line
    if used is None:
        return None
    stack, stores, loads = frame or (0, 0, 0)
    return PtxasUsage(
        registers=_number(_REGISTERS, used),
        stack_bytes=stack,
        spill_store_bytes=stores,
        spill_load_bytes=loads,
        barriers=_number(_BARRIERS, used),
        static_shared_bytes=_number(_SHARED, used),
        notes=tuple(notes),
    )


def _number(pattern: re.Pattern[str], line: str) -> int:
    match = pattern.search(line)
    return int(match[1]) if match else 0
