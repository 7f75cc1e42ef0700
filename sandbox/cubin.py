"""The outer form of machine code for the GPU: the driver reads it without being told how long it is."""

import struct
from typing import Final

HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
PROGRAM: Final = struct.Struct("<IIQQQQQQ")
SECTION: Final = struct.Struct("<IIQQQQIIQQ")
MAGIC: Final = b"\x7fELF\x02\x01"
"""64 bits, little endian."""
CUDA: Final = 190
"""EM_CUDA."""
NO_BITS: Final = 8
"""A section that takes no room in the file."""


def check_cubin(code: bytes) -> None:
    """See that it is an ELF file for CUDA whose headers, sections and segments lie inside it.

    Raises:
        ValueError: it is not.
    """
    if len(code) < HEADER.size or not code.startswith(MAGIC):
        raise ValueError("machine code that is no 64-bit ELF file")
    (_, _, machine, _, _, programs_at, sections_at, _, header, program, programs, section, sections, names) = (
        HEADER.unpack_from(code)
    )
    if machine != CUDA or header != HEADER.size:
        raise ValueError("machine code that is not for CUDA")
    if (programs and program != PROGRAM.size) or (sections and section != SECTION.size) or names >= max(sections, 1):
        raise ValueError("machine code with headers of another form")
    for at, size, count in ((programs_at, PROGRAM.size, programs), (sections_at, SECTION.size, sections)):
        if at + size * count > len(code):
            raise ValueError("machine code whose headers lie outside of it")
    for index in range(programs):
        _, _, start, _, _, length, _, _ = PROGRAM.unpack_from(code, programs_at + index * PROGRAM.size)
        _inside(start, length, code)
    for index in range(sections):
        _, kind, _, _, start, length, *_ = SECTION.unpack_from(code, sections_at + index * SECTION.size)
        if kind != NO_BITS:
            _inside(start, length, code)


def _inside(start: int, length: int, code: bytes) -> None:
    if start + length > len(code):
        raise ValueError("machine code with a part outside of it")
