# pyright: basic
# triton ships incomplete types.
"""Kernels that were captured, looked at again: the compiler's words, and machine code as text."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable
from typing import Any

from . import disassemble, remarks


def report(kernels: Iterable[Any], codes: list[str], blobs: list[Any]) -> list[dict[str, Any]]:
    """One record for each of the kernels that is asked for; texts go to ``blobs``.

    Args:
        kernels: as Triton compiled them.
        codes: SHA-256 of the machine code of those that are wanted.
        blobs: gets the machine codes' texts.
    """
    wanted = {}
    for kernel in kernels:
        binary = kernel.asm.get("cubin")
        if binary is not None and (code := hashlib.sha256(binary).hexdigest()) in codes:
            wanted.setdefault(code, kernel)
    records = []
    with contextlib.ExitStack() as running:
        reason, disassemblies = None, []
        try:
            disassemblies = running.enter_context(
                disassemble.started([kernel.asm["cubin"] for kernel in wanted.values()])
            )
        except (RuntimeError, OSError) as error:
            reason = f"nvdisasm can't be run: {error}"
        # Meanwhile the disassembler works: its start alone takes half a second.
        said = [remarks.said_of(kernel) for kernel in wanted.values()]
        for number, code in enumerate(wanted):
            text, why = disassemblies[number].result() if disassemblies else (None, reason)
            if text is not None:
                blobs.append(text)
            sass = None if text is None else len(blobs) - 1
            records.append({"code": code, "said": said[number], "sass": sass, "reason": why})
    return records
