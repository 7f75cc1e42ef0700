# pyright: basic
# torch ships incomplete types.
"""Margins around tensors, filled with a known pattern: a store that misses its tensor changes them.

The kernel's worker lays them and hands their bytes out; whether they still hold is decided in the task's worker.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

MARGIN = 16384
"""Bytes of pattern on each side of a tensor: a multiple of 256, so that tensors stay as aligned as they were."""
KEY_BYTES = 8
TENSORS_LIMIT = 8192
"""What a frame's inputs and a call's guarded allocations come to at most is less: 256 MiB of margins."""
_WORD = torch.int64
"""As wide as a key."""


def fill(flat: torch.Tensor, key: bytes) -> None:
    """Write ``key`` over and over into a uint8 vector, from its first byte on.

    Raises:
        ValueError: a key that is not `KEY_BYTES` long.
    """
    flat.copy_(_pattern(key, flat.device).repeat(-(-len(flat) // KEY_BYTES))[: len(flat)])


def broken(margins: torch.Tensor, key: bytes) -> list[dict[str, Any]]:
    """Which margins no longer hold what `fill` wrote.

    One round trip to the device where all hold, three otherwise.

    Args:
        margins: uint8 ``[tensors, 2, MARGIN]``: the bytes before and after each tensor.
        key: what they were filled with.

    Returns:
        For each changed margin ``index`` (of the tensor), ``side`` (``before`` or ``after``), ``bytes`` (how many
        changed), and ``distance``: bytes between the tensor's edge and the nearest changed one, 0 right beside it.

    Raises:
        ValueError: ``margins`` of another dtype or shape, or too many: the other worker's doing.
    """
    if margins.dtype != torch.uint8 or margins.dim() != 3 or tuple(margins.shape[1:]) != (2, MARGIN):
        raise ValueError(f"margins are uint8 of shape (n, 2, {MARGIN}), not {margins.dtype} {tuple(margins.shape)}")
    if len(margins) > TENSORS_LIMIT:
        # A tensor that is one byte, expanded, may claim any number.
        raise ValueError(f"margins of {len(margins)} tensors, more than the {TENSORS_LIMIT} that there can be")
    flat = margins.contiguous().view(-1)
    # Whole keys, compared with a number: where all hold, as nearly always, nothing else is sent to the device.
    if not (flat.view(_WORD) != _number(key)).any():
        return []
    words = flat.view(-1, MARGIN // KEY_BYTES, KEY_BYTES)
    changed = (words != _pattern(key, margins.device)).reshape(-1, MARGIN)
    rows = changed.any(dim=1).nonzero().flatten()
    bad = changed[rows]
    at = torch.arange(MARGIN, dtype=torch.int16, device=margins.device)
    first = torch.where(bad, at, MARGIN).amin(dim=1)
    last = torch.where(bad, at, -1).amax(dim=1)
    table = torch.stack([rows, bad.sum(dim=1), first, MARGIN - 1 - last], dim=1).tolist()
    return [
        {
            "index": row // 2,
            "side": "after" if row % 2 else "before",
            "bytes": count,
            "distance": from_start if row % 2 else from_end,
        }
        for row, count, from_start, from_end in table
    ]


def _number(key: bytes) -> int:
    if len(key) != KEY_BYTES:
        raise ValueError(f"a key is {KEY_BYTES} bytes, not {len(key)}")
    return int.from_bytes(key, sys.byteorder, signed=True)


def _pattern(key: bytes, device: torch.device) -> torch.Tensor:
    _number(key)
    return torch.tensor(list(key), dtype=torch.uint8, device=device)
