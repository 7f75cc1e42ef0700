"""The least time that the useful work can take on the hardware: the speed of light.

Two questions, held apart. How near is a time to what kernels reach on this device? That is told against measured
ceilings, with all bytes, and may honestly be more than 100 %. Can the time be true at all? That is told against what
nothing on this GPU exceeds, with every allowance that physics makes, so that the best honest kernel never is accused.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Literal

from ..sandbox.wire import Wire
from .hardware.ceilings import Ceilings, Rate
from .hardware.model import Gpu

TIMER_US: Final = 0.5
"""By so much a time may be too short: start and end stamps of the device's activity records."""
PEAK_SLACK: Final = 0.05
"""By so much a rate may exceed what is computed from the data sheet. The H200's 3,201 MHz on 6,144 bits of memory are
4.917 TB/s, 2.4 % more than its sheet says; SM clocks above the catalogue's highest have been measured, by 1.6 %."""
CEILING_SLACK: Final = 0.05
"""By so much a measured bandwidth may be too low without a time beyond it being suspect."""
SUSPECT_SHARE: Final = 0.95
"""Of the data sheet's bandwidth: below it no time is suspect, however slow the device was when ceilings were measured.
Refresh and turnarounds take more than that from every memory of the catalogue; 91 % is the highest seen (H200)."""

HOPPER: Final = 90
HOPPER_CLOCK_HZ: Final = 1_980_000_000
"""The highest SM clock of any Hopper product of the catalogue: stands in where a product's isn't known."""
HOPPER_FLOPS_PER_CLOCK: Final[dict[Rate, int]] = {"bf16": 4096, "fp8": 8192}
"""Dense, of the tensor cores of one SM (Hopper architecture white paper)."""
BESIDE_TENSOR_CORES: Final = 512
"""Per SM and clock, what its other units can do meanwhile: packed halves, twice its 256 in FP32."""
PLAIN_TYPES: Final = frozenset({"float64", "float32", "float16", "bfloat16", "bool"})
"""Each element is one number."""

Bound = Literal["memory", "compute", "launch"]
Verdict = Literal["plausible", "suspect", "impossible"]


@dataclass(frozen=True, slots=True)
class Work:
    """What a call must at least do, as its task states it, and what is known of its tensors."""

    bytes: float | None
    """Least bytes that it must move to and from device memory."""
    flops: float | None
    """Least floating-point operations, of the kind that the tensor cores count."""
    dtypes: Collection[str] = ()
    """Of the input tensors, as torch names them: `bfloat16`."""
    input_bytes: float | None = None
    """All that the input tensors hold."""
    output_bytes: float | None = None
    """All that the output tensors hold, arguments that are written to among them."""
    l2_warm: bool = False
    """L2 isn't emptied before each call."""


class SpeedOfLight(Wire):
    """How far a time is from the hardware's limit, and whether it can be true. None: see `absent`."""

    floor_us: float | None
    """The least time for the work that is in reach: the largest of the floors that are known."""
    memory_floor_us: float | None
    """Bytes over the bandwidth."""
    compute_floor_us: float | None
    """Operations over the highest rate that the inputs' types allow."""
    bound: Bound | None
    """Which of the known floors is the largest; `launch`: that of a kernel which does nothing."""
    against: Literal["measured", "data_sheet"] | None
    """Where the rate of that floor comes from: this device with torch's operations, or its data sheet."""
    pct: float | None
    """The floor as a share of the time. More than 100 is possible: results may still lie in L2 when a kernel ends, and
    clocks are higher where less power is drawn than at the ceilings' measurement."""
    headroom: float | None
    """How many times faster it could get at most; 1: nothing is left."""
    limit_us: float | None
    """The least time that physics allow: bytes that must reach memory at the data sheet's bandwidth, operations at the
    rate of the fastest unit at the highest clock. No honest kernel is faster, but for what timer and data sheet are
    unsure of, or a task that states too much work."""
    verdict: Verdict
    """`impossible`: below that limit by more than timer and data sheet are unsure of. `suspect`: faster than anything
    that this device was seen to reach, or than 16-bit numbers can be multiplied."""
    beyond: Literal["memory", "compute"] | None
    """Which limit the time breaks, where it isn't plausible. That of memory is the firmer: tensors show that the bytes
    are there, while operations can be left out where a task overlooked it."""
    explanation: str | None
    """Where it isn't plausible, the arithmetic in one line."""
    notes: list[str]
    """What a reader of `pct` must know."""
    absent: dict[str, str]
    """Field -> why it isn't known."""


def speed_of_light(
    work: Work,
    *,
    duration_us: float,
    gpu: Gpu | None,
    l2_bytes: int | None = None,
    ceilings: Ceilings | None = None,
) -> SpeedOfLight:
    """Holds a time against the roofline. Source: Williams, Waterman, Patterson, CACM 52 (2009).

    With only one of the two floors known that one still is a lower bound, so it is used, and `absent` tells
    about the other.

    Args:
        work: of one call.
        duration_us: The time that it took, from the first start to the last end on the device: a typical one, not the
            shortest of many.
        gpu: the catalogue's entry of the device; without it every time is plausible.
        l2_bytes: as the device reports it. Where it isn't known here nor in the catalogue, all results may stay in L2.
        ceilings: of the device, where they have been measured.

    Raises:
        ValueError: an amount of work that is negative or not finite, or a duration that isn't positive and finite.
    """
    if not (math.isfinite(duration_us) and duration_us > 0):
        raise ValueError("duration_us must be positive and finite")
    for unit, amount in (
        ("bytes", work.bytes), ("flops", work.flops), ("bytes", work.input_bytes), ("bytes", work.output_bytes),
    ):  # fmt: skip
        if amount is not None and not (math.isfinite(amount) and amount >= 0):
            raise ValueError(f"work in {unit} must be zero or more and finite")
    notes: list[str] = []
    traffic = _traffic(work, notes)
    floors, absent = _floors(work, traffic, gpu, ceilings)
    limits = _limits(work, traffic, gpu, l2_bytes, ceilings)
    broken = next((limit for limit in limits if limit.broken(duration_us)), None)
    limit_us = max((limit.us for limit in limits if limit.verdict == "impossible"), default=None)
    if limit_us is None:
        absent["limit_us"] = "the device is not in the catalogue of GPUs" if gpu is None else _joined(absent)
    bound = max(floors, key=lambda name: floors[name].us, default=None)
    floor = floors[bound] if bound is not None else None
    if floor is None or floor.us == 0:
        reason = _joined(absent) or "the work is zero bytes and zero flops"
        absent |= dict.fromkeys(("floor_us", "bound", "against", "pct", "headroom"), reason)
        bound = floor = None
    elif floor.us > duration_us and broken is None:
        notes.append(_above_100(bound, floor.against, work.l2_warm))
    return SpeedOfLight(
        floor_us=floor.us if floor is not None else None,
        memory_floor_us=floors["memory"].us if "memory" in floors else None,
        compute_floor_us=floors["compute"].us if "compute" in floors else None,
        bound=bound,
        against=floor.against if floor is not None else None,
        pct=100 * floor.us / duration_us if floor is not None else None,
        headroom=max(1.0, duration_us / floor.us) if floor is not None else None,
        limit_us=limit_us,
        verdict=broken.verdict if broken is not None else "plausible",
        beyond=broken.kind if broken is not None else None,
        explanation=_arithmetic(broken, duration_us) if broken is not None else None,
        notes=notes,
        absent=absent,
    )


def peak_flops_per_s(gpu: Gpu, dtypes: Collection[str]) -> float | None:
    """The data sheet's highest rate that the inputs' types allow, so that the floor is a true lower bound.

    Args:
        gpu: whose peak.
        dtypes: of the input tensors, as torch names them.
    """
    match _rate(dtypes):
        case "fp8":
            return gpu.peak_fp8_dense_flops_per_s
        case "bf16":
            return gpu.peak_bf16_dense_flops_per_s
        case "tf32":
            return gpu.peak_tf32_dense_flops_per_s
        case None:
            return None


@dataclass(frozen=True, slots=True)
class _Floor:
    us: float
    against: Literal["measured", "data_sheet"]


@dataclass(frozen=True, slots=True)
class _Limit:
    """A time that an honest kernel isn't below, and what it means if one is."""

    us: float
    kind: Literal["memory", "compute"]
    verdict: Verdict
    text: str
    """How it comes about."""
    slack: float = 0.0
    """Share by which the rate may be higher."""

    def broken(self, duration_us: float) -> bool:
        return (duration_us + TIMER_US) * (1 + self.slack) < self.us


def _rate(dtypes: Collection[str]) -> Rate | None:
    """The fastest tensor-core type that inputs of these types can be multiplied in as they are."""
    # Products of 8-bit integers are as fast as FP8's on every GPU that has both.
    if any(name.startswith("float8") for name in dtypes) or not {"int8", "uint8"}.isdisjoint(dtypes):
        return "fp8"
    if not {"float16", "bfloat16"}.isdisjoint(dtypes):
        return "bf16"
    return "tf32" if "float32" in dtypes else None


def _traffic(work: Work, notes: list[str]) -> float | None:
    """Bytes that must move: never more than the tensors hold, whatever the task says."""
    if work.bytes is None or work.input_bytes is None or work.output_bytes is None:
        return work.bytes
    held = work.input_bytes + work.output_bytes
    if work.bytes > held:
        notes.append(
            f"work() states {work.bytes:,.0f} bytes, but inputs and outputs hold only {held:,.0f}: these count"
        )
    return min(work.bytes, held)


def _floors(
    work: Work, traffic: float | None, gpu: Gpu | None, ceilings: Ceilings | None
) -> tuple[dict[Bound, _Floor], dict[str, str]]:
    """The floors in reach, and why there is none."""
    floors: dict[Bound, _Floor] = {}
    absent: dict[str, str] = {}
    share = None if not traffic or work.output_bytes is None else min(1.0, work.output_bytes / traffic)
    rate = _rate(work.dtypes)
    amounts: list[tuple[Literal["memory", "compute"], str, float | None, float | None, float | None]] = [
        (
            "memory",
            "bytes",
            traffic,
            ceilings.memory_bytes_per_s(share) if ceilings is not None else None,
            gpu.memory_bytes_per_s if gpu is not None else None,
        ),
        (
            "compute",
            "flops",
            work.flops,
            ceilings.flops_per_s(rate) if ceilings is not None and rate is not None else None,
            peak_flops_per_s(gpu, work.dtypes) if gpu is not None else None,
        ),
    ]
    for name, unit, amount, measured, sheet in amounts:
        per_s = measured or sheet
        if amount is None:
            absent[f"{name}_floor_us"] = f"the task doesn't state its work in {unit}"
        elif per_s is None:
            absent[f"{name}_floor_us"] = f"the peak in {unit} per second is not known for this hardware and these types"
        else:
            floors[name] = _Floor(amount / per_s * 1e6, "measured" if measured else "data_sheet")
    # Alone it would say nothing of the work.
    if any(floor.us > 0 for floor in floors.values()) and ceilings is not None and ceilings.launch_us is not None:
        floors["launch"] = _Floor(ceilings.launch_us, "measured")
    return floors, absent


def _limits(
    work: Work, traffic: float | None, gpu: Gpu | None, l2_bytes: int | None, ceilings: Ceilings | None
) -> list[_Limit]:
    """What a time is held against, the gravest first."""
    if gpu is None:
        return []
    limits: list[_Limit] = []
    if traffic is not None and gpu.memory_bytes_per_s is not None:
        limits += _memory_limits(traffic, _stays(work, traffic, gpu, l2_bytes), gpu.memory_bytes_per_s, ceilings)
    if work.flops is not None:
        limits += _compute_limits(work.flops, work.dtypes, gpu)
    return sorted(limits, key=lambda limit: limit.verdict != "impossible")


def _memory_limits(traffic: float, stays: float, sheet: float, ceilings: Ceilings | None) -> list[_Limit]:
    moved = traffic - stays
    amount = f"{traffic:,.0f} bytes"
    if stays:
        amount += f" - {stays:,.0f} that can stay in L2 = {moved:,.0f}"
    text = f"{amount} at {sheet / 1e12:.2f} TB/s"
    limits = [_Limit(moved / sheet * 1e6, "memory", "impossible", text, PEAK_SLACK)]
    # The best of them, whatever this work's mix of reads and writes.
    reached = ceilings.memory_bytes_per_s(None) if ceilings is not None else None
    if reached is not None:
        fastest = max(reached * (1 + CEILING_SLACK), sheet * SUSPECT_SHARE)
        text = f"{amount} at {fastest / 1e12:.2f} TB/s, more than this GPU was seen to reach,"
        limits.append(_Limit(moved / fastest * 1e6, "memory", "suspect", text))
    return limits


def _stays(work: Work, traffic: float, gpu: Gpu, l2_bytes: int | None) -> float:
    """Bytes that need not have gone to or from memory when the kernel ends."""
    l2 = max((size for size in (l2_bytes, gpu.l2_bytes) if size is not None), default=math.inf)
    written = traffic if work.output_bytes is None else work.output_bytes
    # Inputs that were there may make room for results as they are used: each can have all of L2.
    found = min(traffic, l2) if work.l2_warm else 0.0
    return min(traffic, min(written, l2) + found)


def _compute_limits(flops: float, dtypes: Collection[str], gpu: Gpu) -> list[_Limit]:
    """By the architecture, since data sheets state peaks for clocks below the highest; known for Hopper alone.

    None where an input holds integers: they may be packed numbers of few bits, which are multiplied many at a time.
    """
    rate = _rate(dtypes)
    plain = all(name.startswith("float8") or name in PLAIN_TYPES for name in dtypes)
    if gpu.capability != HOPPER or rate is None or not plain:
        return []
    clock_hz = gpu.boost_clock_hz or HOPPER_CLOCK_HZ

    def per_s(rate: Rate) -> float:
        return gpu.sm_count * clock_hz * (HOPPER_FLOPS_PER_CLOCK[rate] + BESIDE_TENSOR_CORES)

    eight, sixteen = per_s("fp8"), per_s("bf16")
    text = f"{flops:,.0f} flops at {eight / 1e12:,.0f} TFLOP/s, which no unit of this GPU exceeds,"
    limits = [_Limit(flops / eight * 1e6, "compute", "impossible", text, PEAK_SLACK)]
    if rate != "fp8":
        # Wider inputs too may honestly be multiplied in 16 bits: a task's reference can do so itself.
        text = f"{flops:,.0f} flops at {sixteen / 1e12:,.0f} TFLOP/s, the most in 16 bits,"
        limits.append(_Limit(flops / sixteen * 1e6, "compute", "suspect", text, PEAK_SLACK))
    return limits


def _above_100(bound: Bound | None, against: Literal["measured", "data_sheet"], l2_warm: bool) -> str:
    """Why a time that is true may be below its floor."""
    if bound == "launch":
        return "as short as the shortest kernel that was measured"
    ceiling = "what torch's own operations reach" if against == "measured" else "the data sheet's rate"
    if bound == "compute":
        why = "clocks are higher where less power is drawn"
    elif l2_warm:
        why = "inputs and results may have been in L2"
    else:
        why = "results that fit in L2 need not have reached memory when the kernel ends"
    return f"faster than {ceiling}: {why}"


def _joined(absent: dict[str, str]) -> str:
    return "; ".join(dict.fromkeys(absent.values()))


def _arithmetic(limit: _Limit, duration_us: float) -> str:
    return f"{limit.text} take {limit.us:.1f} us at least; measured {duration_us:.1f} us"
