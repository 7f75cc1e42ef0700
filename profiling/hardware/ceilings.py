"""Measured ceilings of one device beside its data sheet: what torch's own operations reach, kept from run to run."""

import itertools
import re
import secrets
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final, Literal

from pydantic import AwareDatetime

from ...sandbox.ceiling_facts import CeilingFacts
from .model import Gpu

Rate = Literal["tf32", "bf16", "fp8"]
"""Which peak of the tensor cores."""

MOST_OF_SHEET: Final = {"memory": 1.1, "compute": 1.25}
"""A rate beyond that share of the data sheet's was not measured right. Sheets state tensor peaks for clocks below the
highest (Hopper SXM: 1.83 of 1.98 GHz), and the H200's memory is 2.4 % faster than its sheet says."""
LEAST_OF_MEMORY: Final = 0.7
"""A bandwidth below that share of the data sheet's was measured while others used the device: an undisturbed copy
reaches about 90 % (H200)."""
FILE_BYTES_LIMIT: Final = 64 << 10
_UUID: Final = re.compile(r"[A-Za-z0-9-]{1,80}")


class Ceilings(CeilingFacts):
    """What one device reached; null: see `absent`."""

    uuid: str
    """Of the device, as the driver tells."""
    torch: str | None
    """Version of torch, whose operations these are."""
    measured_at: AwareDatetime

    @property
    def undisturbed(self) -> bool:
        """Whether every bandwidth is known: others on the device make them too low to be believed."""
        return None not in (self.read_bytes_per_s, self.copy_bytes_per_s, self.write_bytes_per_s)

    def memory_bytes_per_s(self, write_share: float | None) -> float | None:
        """The bandwidth for a mix of reads and writes; None where none was measured.

        Times of one byte are interpolated between reading, copying and writing.

        Args:
            write_share: of the bytes; None where it isn't known: the mix of the best of the three.
        """
        points = [
            (share, 1 / rate)
            for share, rate in (
                (0.0, self.read_bytes_per_s),
                (0.5, self.copy_bytes_per_s),
                (1.0, self.write_bytes_per_s),
            )
            if rate is not None
        ]
        if not points:
            return None
        return 1 / (min(time for _, time in points) if write_share is None else _interpolated(points, write_share))

    def flops_per_s(self, rate: Rate) -> float | None:
        """The rate of matrix products of a type."""
        match rate:
            case "tf32":
                return self.tf32_flops_per_s
            case "bf16":
                return self.bf16_flops_per_s
            case "fp8":
                return self.fp8_flops_per_s


def known(facts: CeilingFacts, gpu: Gpu | None, *, uuid: str, torch: str | None, measured_at: datetime) -> Ceilings:
    """Ceilings from what a worker measured; rates that can't be right for the product are left out, with the reason."""
    fields = facts.model_dump()
    absent: dict[str, str] = fields.pop("absent")
    for field, kind, sheet in _sheet(gpu):
        rate: float | None = fields[field]
        if rate is None or sheet is None:
            continue
        if rate > MOST_OF_SHEET[kind] * sheet:
            fields[field], absent[field] = None, f"{rate:.4g} a second were measured, more than the GPU can do"
        elif kind == "memory" and rate < LEAST_OF_MEMORY * sheet:
            share = 100 * rate / sheet
            fields[field], absent[field] = None, f"only {share:.0f} % of the data sheet: others used the GPU meanwhile"
    for field, value in fields.items():
        if value is None:
            absent.setdefault(field, "the worker did not tell it")
    return Ceilings(**fields, absent=absent, uuid=uuid, torch=torch, measured_at=measured_at)


def store(folder: Path, ceilings: Ceilings) -> None:
    """Keep what was measured of a device, in place of what was kept before.

    Raises:
        OSError: the folder can't be written.
        ValueError: a uuid that is none.
    """
    path = _path(folder, ceilings.uuid)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Written aside and renamed: a reader never sees half a file.
    partial = path.with_name(f"{secrets.token_hex(8)}.partial")
    try:
        partial.write_text(ceilings.model_dump_json(indent=2) + "\n", encoding="utf-8")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def load(folder: Path, uuid: str) -> Ceilings | None:
    """What is kept of a device; None where nothing is, or nothing that can be read: then it is to be measured.

    Raises:
        ValueError: a uuid that is none.
    """
    path = _path(folder, uuid)
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_LIMIT + 1)
        # pydantic's error is a ValueError.
        kept = Ceilings.model_validate_json(data) if len(data) <= FILE_BYTES_LIMIT else None
    except (OSError, ValueError):
        return None
    return kept if kept is not None and kept.uuid == uuid else None


def _path(folder: Path, uuid: str) -> Path:
    if not _UUID.fullmatch(uuid):
        raise ValueError(f"{uuid!r} is no device's uuid")
    return folder / f"{uuid}.json"


def _sheet(gpu: Gpu | None) -> list[tuple[str, Literal["memory", "compute"], float | None]]:
    """Fields with the data sheet's values for them."""
    if gpu is None:
        return []
    return [
        ("read_bytes_per_s", "memory", gpu.memory_bytes_per_s),
        ("copy_bytes_per_s", "memory", gpu.memory_bytes_per_s),
        ("write_bytes_per_s", "memory", gpu.memory_bytes_per_s),
        ("fp32_flops_per_s", "compute", gpu.peak_fp32_flops_per_s),
        ("tf32_flops_per_s", "compute", gpu.peak_tf32_dense_flops_per_s),
        ("bf16_flops_per_s", "compute", gpu.peak_bf16_dense_flops_per_s),
        ("fp8_flops_per_s", "compute", gpu.peak_fp8_dense_flops_per_s),
    ]


def _interpolated(points: Sequence[tuple[float, float]], at: float) -> float:
    """Piecewise linear between points in rising order, constant outside."""
    if at <= points[0][0]:
        return points[0][1]
    for (left, low), (right, high) in itertools.pairwise(points):
        if at <= right:
            return low + (high - low) * (at - left) / (right - left)
    return points[-1][1]
