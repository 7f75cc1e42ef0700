"""Turns what was read out of a report into the facts that judgements rest on. Pure."""

from collections.abc import Sequence
from typing import Final, Literal

from ...sandbox.profile_facts import ReportedLaunch
from . import metrics
from .metrics import Metric
from .model import LaunchProfile, Pipe, Stall

TOP_PIPES: Final = 5
STALL_FLOOR_PCT: Final = 1.0
"""Less is left out of `stalls`: no reason that small is worth a reader's time."""

_US_PER_UNIT: Final = {
    **dict.fromkeys(("ns", "nsecond"), 1e-3),
    **dict.fromkeys(("us", "usecond"), 1.0),
    **dict.fromkeys(("ms", "msecond"), 1e3),
    **dict.fromkeys(("s", "second"), 1e6),
}
# Units in which a count needs no scaling, beside the one that `Metric` names: spellings of other versions.
_SAME_UNIT: Final = {"byte/s": ("byte/second",), "%": ("pct",), "block": ("thread",), "sectors": ("sector",)}

LEAST_US: Final = 1e-3
"""The resolution of the timer."""


def summarize(launch: ReportedLaunch) -> LaunchProfile:
    """The facts of one launch, with reasons for those that the report lacks.

    Raises:
        ValueError: The report has numbers that no profiler counts: their ratio is beyond all bounds.
    """
    reader = _Reader(launch)
    duration_us = reader.duration_us()
    limits = reader.limits()
    fewest = min(limits.values(), default=None)
    dram_bytes = reader.dram_bytes(duration_us)
    flops = reader.operations("flops", (*metrics.FP32_FLOPS, *metrics.FP64_FLOPS, *_TENSOR))
    stalls, stalls_from = reader.stalls()
    return LaunchProfile(
        kernel=launch.kernel,
        duration_us=duration_us,
        sm_clock_hz=reader.sm_clock_hz(duration_us),
        cycles=reader.number("cycles", metrics.CYCLES),
        memory_pct=reader.number("memory_pct", metrics.MEMORY),
        compute_pct=reader.number("compute_pct", metrics.COMPUTE),
        dram_pct=reader.number("dram_pct", metrics.DRAM),
        l1_pct=reader.number("l1_pct", metrics.L1),
        l2_pct=reader.number("l2_pct", metrics.L2),
        dram_bytes=dram_bytes,
        l1_hit_pct=reader.number("l1_hit_pct", metrics.L1_HIT),
        l2_hit_pct=reader.number("l2_hit_pct", metrics.L2_HIT),
        flops=flops,
        tensor_flops=reader.operations("tensor_flops", _TENSOR),
        half_flops=reader.operations("half_flops", metrics.HALF_FLOPS),
        flops_per_dram_byte=reader.intensity(flops, dram_bytes),
        tensor_pct=reader.number("tensor_pct", metrics.TENSOR),
        mma=reader.mma(),
        issue_slot_pct=_times(reader.number("issue_slot_pct", metrics.ISSUE), 100),
        eligible_warps=reader.number("eligible_warps", metrics.ELIGIBLE),
        load_sectors_per_request=reader.ratio(
            "load_sectors_per_request", metrics.LOAD_SECTORS, metrics.LOAD_REQUESTS, "it loads nothing globally"
        ),
        store_sectors_per_request=reader.ratio(
            "store_sectors_per_request", metrics.STORE_SECTORS, metrics.STORE_REQUESTS, "it stores nothing globally"
        ),
        load_bytes_per_sector=reader.bytes_per_sector("load_bytes_per_sector", metrics.LOAD_BYTES_PER_SECTOR),
        store_bytes_per_sector=reader.bytes_per_sector("store_bytes_per_sector", metrics.STORE_BYTES_PER_SECTOR),
        needed_sectors_pct=_times(
            reader.ratio(
                "needed_sectors_pct",
                metrics.GLOBAL_SECTORS_NEEDED,
                metrics.GLOBAL_SECTORS,
                "no load or store with addresses of threads reaches global memory",
            ),
            100,
        ),
        bank_conflict_pct=_times(
            reader.ratio(
                "bank_conflict_pct", metrics.BANK_CONFLICTS, metrics.SHARED_WAVEFRONTS, "it uses no shared memory"
            ),
            100,
        ),
        local_requests=reader.total("local_requests", (metrics.LOCAL_LOADS, metrics.LOCAL_STORES)),
        pipes=reader.pipes(),
        sm_imbalance=reader.ratio("sm_imbalance", metrics.CYCLES_ACTIVE_MAX, metrics.CYCLES_ACTIVE, "no SM had a warp"),
        achieved_occupancy_pct=reader.number("achieved_occupancy_pct", metrics.ACHIEVED_OCCUPANCY),
        theoretical_occupancy_pct=reader.number("theoretical_occupancy_pct", metrics.THEORETICAL_OCCUPANCY),
        occupancy_limiter=" and ".join(resource for resource in limits if limits[resource] == fewest) or None,
        occupancy_limits=limits,
        registers=_whole(reader.number("registers", metrics.REGISTERS)),
        shared_bytes=_whole(reader.total("shared_bytes", (metrics.SHARED_STATIC, metrics.SHARED_DYNAMIC))),
        grid=reader.extent("grid", metrics.GRID),
        block=reader.extent("block", metrics.BLOCK),
        waves_per_sm=reader.number("waves_per_sm", metrics.WAVES),
        stalls=stalls,
        stalls_from=stalls_from,
        absent=reader.absent,
    )


def traffic_ratio(profile: LaunchProfile, compulsory_bytes: float) -> float | None:
    """Device memory traffic over what the work has to move at least; None where either is not known.

    Less than 1 where data was found in L2, or stays there when the launch ends.
    """
    if profile.dram_bytes is None or compulsory_bytes <= 0:
        return None
    return profile.dram_bytes / compulsory_bytes


_TENSOR: Final = tuple((metric, 1) for metric in metrics.TENSOR_FLOPS)


class _Reader:
    """Looks quantities up in one launch and notes which are absent, and why."""

    def __init__(self, launch: ReportedLaunch) -> None:
        self.metrics = launch.metrics
        self.absent: dict[str, str] = {}

    def look_up(self, metric: Metric) -> tuple[float, str] | str:
        """Number and unit, or why there is none."""
        reason = f"not collected: {metric.names[0]}"
        for name in metric.names:
            if (found := self.metrics.get(name)) is None:
                continue
            if not isinstance(found.value, str):
                return float(found.value), found.unit
            reason = f"{name} has no number ({found.value or 'empty'})"
        return reason

    def number(self, field: str, metric: Metric) -> float | None:
        match self.look_up(metric):
            case (value, unit) if unit in ("", metric.unit, *_SAME_UNIT.get(metric.unit, ())):
                return value
            case (_, unit):
                reason = f"{metric.names[0]} is in {unit}, not in {metric.unit or 'pure numbers'}"
            case str() as reason:
                pass
        self.absent.setdefault(field, reason)
        return None

    def total(self, field: str, parts: Sequence[Metric]) -> float | None:
        numbers = [self.number(field, part) for part in parts]
        known = [number for number in numbers if number is not None]
        return sum(known) if len(known) == len(numbers) else None

    def operations(self, field: str, weighted: Sequence[tuple[Metric, int]]) -> float | None:
        numbers = [_times(self.number(field, metric), weight) for metric, weight in weighted]
        known = [number for number in numbers if number is not None]
        return sum(known) if len(known) == len(numbers) else None

    def ratio(self, field: str, above: Metric, below: Metric, reason: str) -> float | None:
        """One count over another; `reason` says why there is none where the other is zero."""
        numerator, denominator = self.number(field, above), self.number(field, below)
        if numerator is None or denominator is None:
            return None
        if not denominator:
            self.absent[field] = reason
            return None
        return numerator / denominator

    def intensity(self, flops: float | None, dram_bytes: float | None) -> float | None:
        if flops is None or not dram_bytes:
            missing = "flops" if flops is None else "dram_bytes"
            self.absent["flops_per_dram_byte"] = self.absent.get(missing, "no device memory was touched")
            return None
        return flops / dram_bytes

    def bytes_per_sector(self, field: str, metric: Metric) -> float | None:
        value = self.number(field, metric)
        if value == 0:  # What ncu reports where there is no such instruction.
            self.absent[field] = "no instruction of this kind ran (copies through cp.async and TMA are other kinds)"
            return None
        return value

    def mma(self) -> Literal["gmma", "hmma", "imma", "dmma", "none"] | None:
        gmma = self.number("mma", metrics.GMMA)
        if gmma:
            self.absent.pop("mma", None)
            return "gmma"
        hmma, constants = self.number("mma", metrics.HMMA), self.number("mma", metrics.HFMA2)
        imma, dmma = self.number("mma", metrics.IMMA), self.number("mma", metrics.DMMA)
        if gmma is None or hmma is None or constants is None or imma is None or dmma is None:
            return None
        # HFMA2.MMA is no matrix product, but runs where they do and is counted with HMMA.
        return "hmma" if hmma > constants else "imma" if imma else "dmma" if dmma else "none"

    def pipes(self) -> tuple[Pipe, ...]:
        used = {name: self.number("pipes", metric) for name, metric in metrics.PIPE_METRICS.items()}
        ranked = sorted(((pct, name) for name, pct in used.items() if pct is not None), reverse=True)
        if ranked:
            self.absent.pop("pipes", None)
        return tuple(Pipe(name=name, pct=pct) for pct, name in ranked[:TOP_PIPES])

    def duration_us(self) -> float | None:
        match self.look_up(metrics.DURATION):
            case (value, unit) if unit in _US_PER_UNIT:
                if value * _US_PER_UNIT[unit] >= LEAST_US:
                    return value * _US_PER_UNIT[unit]
                self.absent["duration_us"] = f"{metrics.DURATION.names[0]} is {value:g} {unit}: no launch is so short"
            case (_, unit):
                self.absent["duration_us"] = f"{metrics.DURATION.names[0]} has the unknown unit {unit!r}"
            case str() as reason:
                self.absent["duration_us"] = reason
        return None

    def sm_clock_hz(self, duration_us: float | None) -> float | None:
        """Mean cycles over the duration: what ncu shows as the SM frequency, which not every report holds."""
        cycles = self.number("sm_clock_hz", metrics.CYCLES_AVERAGE)
        if cycles is None or not duration_us:
            self.absent["sm_clock_hz"] = self.absent.get(
                "sm_clock_hz", self.absent.get("duration_us", "it took no time")
            )
            return None
        return cycles / (duration_us * 1e-6)

    def dram_bytes(self, duration_us: float | None) -> float | None:
        """The sum as counted, or reads and writes, or the rate times the duration: the same quantity."""
        total = self.number("dram_bytes", metrics.DRAM_BYTES)
        if total is None:
            total = self.total("dram_bytes", (metrics.DRAM_READ_BYTES, metrics.DRAM_WRITTEN_BYTES))
        if total is None and duration_us is not None:
            total = _times(self.number("dram_bytes", metrics.DRAM_BYTES_PER_S), duration_us * 1e-6)
        if total is not None:
            self.absent.pop("dram_bytes", None)
        return total

    def limits(self) -> dict[str, int]:
        found = {
            resource: round(value)
            for resource, metric in metrics.OCCUPANCY_LIMITS.items()
            if (value := self.number("occupancy_limits", metric)) is not None
        }
        if found:
            self.absent.pop("occupancy_limits", None)
        else:
            self.absent["occupancy_limiter"] = self.absent["occupancy_limits"]
        return found

    def extent(self, field: str, axes: tuple[Metric, ...]) -> tuple[int, int, int] | None:
        x, y, z = (_whole(self.number(field, axis)) for axis in axes)
        return None if x is None or y is None or z is None else (x, y, z)

    def stalls(self) -> tuple[tuple[Stall, ...], Literal["counted", "sampled"] | None]:
        counted = self.by_reason({reason: metrics.stall_metric(reason) for reason in metrics.STALL_REASONS})
        sampled = self.by_reason({reason: metrics.sampled_stall_metric(reason) for reason in metrics.STALL_REASONS})
        latency, samples = self.look_up(metrics.WARP_LATENCY), self.look_up(metrics.SAMPLES)
        if counted and not isinstance(latency, str) and latency[0]:
            return _ranked(counted, latency[0], "counted"), "counted"
        if sampled and not isinstance(samples, str) and samples[0]:
            return _ranked(sampled, samples[0], "sampled"), "sampled"
        reason = (
            "no warp issued an instruction" if counted or sampled else f"not collected: {metrics.stall_metric('*')}"
        )
        self.absent |= {"stalls": reason, "stalls_from": reason}
        return (), None

    def by_reason(self, names: dict[str, str]) -> dict[str, float]:
        found = {reason: self.metrics[name].value for reason, name in names.items() if name in self.metrics}
        return {reason: value for reason, value in found.items() if not isinstance(value, str)}


def _ranked(waiting: dict[str, float], whole: float, how: Literal["counted", "sampled"]) -> tuple[Stall, ...]:
    ranked = sorted(((value, reason) for reason, value in waiting.items()), reverse=True)
    return tuple(
        Stall(
            reason=reason,
            pct=100 * value / whole,
            cycles=value if how == "counted" else None,
            meaning=metrics.STALL_REASONS[reason],
        )
        for value, reason in ranked
        if 100 * value / whole >= STALL_FLOOR_PCT
    )


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
