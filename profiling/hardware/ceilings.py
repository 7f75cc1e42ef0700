"""Measured ceilings of one device beside its data sheet: what simple operations reach, kept from run to run."""

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
MOST_L2_BYTES_PER_CYCLE: Final = 64
"""Of one SM. More came from L1, which gives 128; L2 gives 47 (A100 architecture paper: 5,120 a cycle for 108 SMs)."""
DIGITS: Final = 4
"""Of a rate, that mean something: two measurements differ in the third."""
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
    fields = {field: None if value is None else float(f"{value:.{DIGITS}g}") for field, value in fields.items()}
    for field, kind, sheet in _sheet(gpu):
        rate: float | None = fields[field]
        if rate is None or sheet is None:
            continue
        if rate > MOST_OF_SHEET[kind] * sheet:
            fields[field], absent[field] = None, f"{rate:.4g} a second were measured, more than the GPU can do"
        elif kind == "memory" and rate < LEAST_OF_MEMORY * sheet:
            share = 100 * rate / sheet
            fields[field], absent[field] = None, f"only {share:.0f} % of the data sheet: others used the GPU meanwhile"
    if (doubt := _doubt_of_l2(fields["l2_read_bytes_per_s"], gpu)) is not None:
        fields["l2_read_bytes_per_s"], absent["l2_read_bytes_per_s"] = None, doubt
    for field, value in fields.items():
        if value is None:
            absent.setdefault(field, "the worker did not tell it")
    return Ceilings(**fields, absent=absent, uuid=uuid, torch=torch, measured_at=measured_at)


def shares_pct(ceilings: Ceilings, gpu: Gpu) -> dict[str, float]:
    """Field -> its share of the data sheet's value, for those that the sheet has."""
    measured = ceilings.model_dump()
    return {
        field: round(100 * measured[field] / sheet, 1)
        for field, _, sheet in _sheet(gpu)
        if sheet is not None and measured[field] is not None
    }


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
    if kept is None or kept.uuid != uuid:
        return None
    # A field that is null without a reason is newer than the file.
    unknown = {field for field in CeilingFacts.model_fields if getattr(kept, field) is None}
    return kept if unknown <= kept.absent.keys() else None


def _path(folder: Path, uuid: str) -> Path:
    if not _UUID.fullmatch(uuid):
        raise ValueError(f"{uuid!r} is no device's uuid")
    return folder / f"{uuid}.json"


def _doubt_of_l2(rate: float | None, gpu: Gpu | None) -> str | None:
    """Why a rate can't be that of L2; no data sheet states it."""
    if rate is None or gpu is None:
        return None
    if gpu.memory_bytes_per_s is not None and rate <= gpu.memory_bytes_per_s:
        return f"{rate:.4g} a second were measured, no more than device memory gives: others used the GPU meanwhile"
    if gpu.boost_clock_hz is not None and rate > MOST_L2_BYTES_PER_CYCLE * gpu.sm_count * gpu.boost_clock_hz:
        return f"{rate:.4g} a second were measured, more than the SMs can take from L2"
    return None


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
