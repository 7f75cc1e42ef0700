"""Whether two launches run the same code: a hash that ignores names, comments and source positions."""

import hashlib
import re

from .ptx import strip_debug

_FUNCTION = re.compile(r"\.(?:entry|func)\s+(?:\([^()]{0,500}\)\s*)?([A-Za-z_$][\w$]*)")
# Neither a register nor part of an instruction's name: a kernel may be called "add".
_SYMBOL = re.compile(r"(?<![%.\w$])[A-Za-z_$][\w$]*(?![.\w$])")
# Positions in the source: they move with every blank line and change nothing.
_POSITION = re.compile(r"\.(?:loc|file|version|address_size)\b|\$L__(?:tmp|func_)\w*:\s*$")
_HASH_DIGITS = 16


def code_hash(ptx: str, num_warps: int, shared_bytes: int) -> str:
    """Hashes what a launch executes.

    Renaming the kernel or its helpers, or adding comments and blank lines to the source, keeps the hash; another
    block size, data type or number of warps changes it.

    Args:
        ptx: the kernel's PTX as the compiler wrote it.
        num_warps: warps of a block.
        shared_bytes: dynamic shared memory of a block.

    Returns:
        16 hexadecimal digits.
    """
    text = f"{num_warps} {shared_bytes}\n{_normalize(ptx)}"
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_DIGITS]


def _normalize(ptx: str) -> str:
    lines = (line.strip() for line in strip_debug(ptx).splitlines())
    code = "\n".join(line for line in lines if not _POSITION.match(line))
    functions: dict[str, str] = {}
    for match in _FUNCTION.finditer(code):
        functions.setdefault(match[1], f"function_{len(functions)}")
    return " ".join(_SYMBOL.sub(lambda match: _neutral(match[0], functions), code).split())


def _neutral(symbol: str, functions: dict[str, str]) -> str:
    """A function's name, alone or at the start of its parameters' names, becomes its number."""
    if symbol in functions:
        return functions[symbol]
    name, separator, parameter = symbol.rpartition("_param_")
    return f"{functions[name]}{separator}{parameter}" if name in functions else symbol
