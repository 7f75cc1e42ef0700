"""The least time that a launch's work can take on the device: what no edit of the kernel gets below."""

from typing import Final, NamedTuple

from ...sandbox.facts import CapturedLaunch
from ..hardware.ceilings import Ceilings
from ..hardware.model import Gpu
from ..ncu.model import LaunchProfile
from ..roofline import Bound, Work, speed_of_light

DONE_PCT: Final = 85.0
"""Of the rates measured on the device: as good as reached."""

_TYPES: Final = {
    "fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64", "fp8e4nv": "float8_e4m3fn",
    "fp8e5": "float8_e5m2", "fp8e4b15": "float8_e4m3fn", "i8": "int8", "u8": "uint8", "i16": "int16", "i32": "int32",
    "i64": "int64", "i1": "bool",
}  # fmt: skip
"""Triton's name of an element -> torch's."""
OPERANDS: Final = 2
"""Of a product."""
_HALVES: Final = frozenset({"float16", "bfloat16"})
_BYTES: Final = frozenset({"float8_e4m3fn", "float8_e5m2", "int8", "uint8"})


class Floor(NamedTuple):
    """Of one launch."""

    us: float
    share_pct: float
    """Of the time that it takes."""
    why: str
    bound: Bound
    """Which of the roofs it is."""

    @property
    def reached(self) -> bool:
        """Whether next to nothing is left to win."""
        return self.share_pct >= DONE_PCT


def floor(
    profile: LaunchProfile, captured: CapturedLaunch, work: Work | None, ceilings: Ceilings | None, gpu: Gpu | None
) -> Floor | None:
    """The roofline's floor; None where nothing that bounds the launch is known.

    Args:
        profile: of the launch.
        captured: for the types of its arguments.
        work: that the task states, where this launch does all of it. Else what the launch moves and multiplies now
            counts: less is possible only where it does more than it has to.
        ceilings: measured on the device.
        gpu: of the catalogue.
    """
    if not profile.duration_us:
        return None
    stated = work is not None and (work.bytes is not None or work.flops is not None)
    counted = Work(profile.dram_bytes, profile.tensor_flops or None, _types(captured))
    if work is not None and stated:
        counted = Work(work.bytes, work.flops, _types(captured))
    found = speed_of_light(counted, duration_us=profile.duration_us, gpu=gpu, ceilings=ceilings)
    if found.floor_us is None or found.pct is None or found.bound is None:
        return None
    of = {"memory": f"{_amount(counted.bytes)}B of device memory", "compute": f"{_amount(counted.flops)}FLOP",
          "launch": "a kernel that does nothing"}[found.bound]  # fmt: skip
    rate = "the rate measured on this device" if found.against == "measured" else "the data sheet's rate"
    needs = "the task needs" if stated else "the launch has now"
    why = f"{of}, which {needs}, at {rate}" if found.bound != "launch" else of
    return Floor(found.floor_us, min(found.pct, 100.0), why, found.bound)


def _types(captured: CapturedLaunch) -> tuple[str, ...]:
    pointed = [kind.lstrip("*k").strip() for kind in captured.signature.values() if kind.startswith("*")]
    found = [_TYPES[kind] for kind in pointed if kind in _TYPES]
    if not _HALVES.isdisjoint(found) and sum(kind in _BYTES for kind in found) < OPERANDS:
        # Weights of 8 bits are multiplied with halves as halves; where both are of 8 bits, halves are the result's.
        found = [kind for kind in found if kind not in _BYTES]
    return tuple(sorted(set(found)))


def _amount(value: float | None) -> str:
    for limit, name in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value is not None and value >= limit:
            return f"{value / limit:.3g} {name}"
    return f"{value or 0:.0f} "
