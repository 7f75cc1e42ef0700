"""Reads the CSV pages that ncu exports from a report. Pure: text in, models out."""

import csv
import io
import math
import re
from typing import Final

from . import metrics
from .metrics import Metric
from .model import LaunchProfile, RawLaunchMetrics, Rule, Stall

TOP_STALLS: Final = 5

_GROUPED: Final = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")
_PLAIN: Final = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
_US_PER_UNIT: Final = {
    **dict.fromkeys(("ns", "nsecond"), 1e-3),
    **dict.fromkeys(("us", "usecond"), 1.0),
    **dict.fromkeys(("ms", "msecond"), 1e3),
    **dict.fromkeys(("s", "second"), 1e6),
}
# Units in which a count needs no scaling, beside the one that `Metric` names: spellings of other versions.
_SAME_UNIT: Final = {"byte/s": ("byte/second",), "hz": ("cycle/second", "cycle/s"), "%": ("pct",)}


def parse_raw(csv_text: str) -> list[RawLaunchMetrics]:
    """The launches in the output of `ncu --import … --csv --page raw`, in order.

    Lines that ncu or the program printed around the table are passed over.

    Raises:
        ValueError: There is no table, or a row is cut short.
    """
    header, rows = _table(csv_text)
    launches: list[RawLaunchMetrics] = []
    units = dict.fromkeys(header, "")
    for row in rows:
        if len(row) != len(header):
            raise ValueError(f"a row has {len(row)} columns and the header {len(header)}: the report is cut short")
        cells = dict(zip(header, row, strict=True))
        if not cells["ID"]:  # The row under the header, which holds the units.
            units = cells
            continue
        values = {name: _value(text) for name, text in cells.items()}
        launches.append(RawLaunchMetrics(cells.get("Kernel Name", ""), values, units))
    return launches


def summarize(row: RawLaunchMetrics) -> LaunchProfile:
    """The facts of one launch that judgements rest on, with reasons for those that the report lacks."""
    reader = _Reader(row)
    duration_us = reader.duration_us()
    cycles = reader.number("cycles", metrics.CYCLES)
    limits = reader.limits()
    fewest = min(limits.values(), default=None)
    return LaunchProfile(
        kernel=row.kernel,
        duration_us=duration_us,
        sm_clock_hz=reader.sm_clock_hz(cycles, duration_us),
        cycles=cycles,
        memory_pct=reader.number("memory_pct", metrics.MEMORY),
        compute_pct=reader.number("compute_pct", metrics.COMPUTE),
        dram_pct=reader.number("dram_pct", metrics.DRAM),
        l1_pct=reader.number("l1_pct", metrics.L1),
        l2_pct=reader.number("l2_pct", metrics.L2),
        dram_bytes=reader.dram_bytes(duration_us),
        achieved_occupancy_pct=reader.number("achieved_occupancy_pct", metrics.ACHIEVED_OCCUPANCY),
        theoretical_occupancy_pct=reader.number("theoretical_occupancy_pct", metrics.THEORETICAL_OCCUPANCY),
        occupancy_limiter=" and ".join(resource for resource in limits if limits[resource] == fewest) or None,
        occupancy_limits=limits,
        registers=_whole(reader.number("registers", metrics.REGISTERS)),
        shared_bytes=reader.shared_bytes(),
        grid=reader.extent("grid", "Grid Size"),
        block=reader.extent("block", "Block Size"),
        waves_per_sm=reader.number("waves_per_sm", metrics.WAVES),
        stalls=reader.stalls(),
        absent=reader.absent,
    )


def parse_rules(csv_text: str) -> list[Rule]:
    """What ncu's rules found, from the output of `ncu --import … --csv --page details`.

    Rows may end early and columns may be missing: older versions have no speedup columns, and a report of
    bare metrics has no rules at all.

    Raises:
        ValueError: There is no table.
    """
    header, rows = _table(csv_text)
    found: list[Rule] = []
    for row in rows:
        cells = dict(zip(header, row, strict=False))
        if not cells.get("Rule Name"):
            continue
        launch, speedup = _value(cells["ID"]), _value(cells.get("Estimated Speedup", ""))
        found.append(
            Rule(
                launch=int(launch) if isinstance(launch, float) else None,
                kernel=cells.get("Kernel Name", ""),
                section=cells.get("Section Name", ""),
                name=cells["Rule Name"],
                type=cells.get("Rule Type", ""),
                description=cells.get("Rule Description", ""),
                speedup_type=cells.get("Estimated Speedup Type") or None,
                speedup_pct=speedup if isinstance(speedup, float) else None,
            )
        )
    return found


class _Reader:
    """Looks quantities up in one launch and notes which are absent, and why."""

    def __init__(self, row: RawLaunchMetrics) -> None:
        self.row = row
        self.absent: dict[str, str] = {}

    def look_up(self, metric: Metric) -> tuple[float, str] | str:
        """Number and unit, or why there is none."""
        reason = f"not collected: {metric.names[0]}"
        for name in metric.names:
            value = self.row.values.get(name)
            if isinstance(value, float):
                return value, self.row.units.get(name, "")
            if value is not None:
                reason = f"{name} has no value ({value or 'empty'})"
        return reason

    def number(self, field: str, metric: Metric) -> float | None:
        match self.look_up(metric):
            case (value, unit) if unit in ("", metric.unit, *_SAME_UNIT.get(metric.unit, ())):
                return value
            case (_, unit):
                self.absent[field] = f"{metric.names[0]} is in {unit}, not in {metric.unit or 'pure numbers'}"
            case str() as reason:
                self.absent[field] = reason
        return None

    def duration_us(self) -> float | None:
        match self.look_up(metrics.DURATION):
            case (value, unit) if unit in _US_PER_UNIT:
                return value * _US_PER_UNIT[unit]
            case (_, unit):
                self.absent["duration_us"] = f"{metrics.DURATION.names[0]} has the unknown unit {unit!r}"
            case str() as reason:
                self.absent["duration_us"] = reason
        return None

    def sm_clock_hz(self, cycles: float | None, duration_us: float | None) -> float | None:
        reported = self.number("sm_clock_hz", metrics.SM_CLOCK)
        if reported is None and cycles and duration_us:
            self.absent.pop("sm_clock_hz")
            return cycles / (duration_us * 1e-6)
        return reported

    def dram_bytes(self, duration_us: float | None) -> float | None:
        """The sum as counted, or reads and writes, or the rate times the duration: the same quantity."""
        total = self.number("dram_bytes", metrics.DRAM_BYTES)
        if total is None:
            read = self.number("dram_bytes", metrics.DRAM_READ_BYTES)
            written = self.number("dram_bytes", metrics.DRAM_WRITTEN_BYTES)
            total = None if read is None or written is None else read + written
        if total is None and duration_us is not None:
            rate = self.number("dram_bytes", metrics.DRAM_BYTES_PER_S)
            total = None if rate is None else rate * duration_us * 1e-6
        if total is not None:
            self.absent.pop("dram_bytes", None)
        return total

    def shared_bytes(self) -> int | None:
        static = self.number("shared_bytes", metrics.SHARED_STATIC)
        dynamic = self.number("shared_bytes", metrics.SHARED_DYNAMIC)
        return None if static is None or dynamic is None else round(static + dynamic)

    def limits(self) -> dict[str, int]:
        found = {
            resource: round(value)
            for resource, name in metrics.OCCUPANCY_LIMITS.items()
            if isinstance(value := self.row.values.get(name), float)
        }
        if not found:
            reason = f"not collected: {metrics.OCCUPANCY_LIMITS['registers']}"
            self.absent |= {"occupancy_limiter": reason, "occupancy_limits": reason}
        return found

    def extent(self, field: str, column: str) -> tuple[int, int, int] | None:
        numbers = [int(number) for number in re.findall(r"\d+", str(self.row.values.get(column, "")))]
        if len(numbers) != 3:
            self.absent[field] = f"no column {column!r} with three numbers"
            return None
        return numbers[0], numbers[1], numbers[2]

    def stalls(self) -> tuple[Stall, ...]:
        latency = self.number("stalls", metrics.WARP_LATENCY)
        ratios = {
            name.removeprefix(metrics.STALL_PREFIX).removesuffix(metrics.STALL_SUFFIX): value
            for name, value in self.row.values.items()
            if name.startswith(metrics.STALL_PREFIX)
            and name.endswith(metrics.STALL_SUFFIX)
            and isinstance(value, float)
        }
        ratios.pop(metrics.ISSUING, None)
        if not ratios:
            self.absent["stalls"] = f"not collected: {metrics.stall_metric('*')}"
        if not ratios or not latency:
            self.absent.setdefault("stalls", "no warp issued an instruction")
            return ()
        ranked = sorted(((value, reason) for reason, value in ratios.items() if value > 0), reverse=True)
        return tuple(
            Stall(
                reason=reason,
                pct=100 * value / latency,
                meaning=metrics.STALL_REASONS.get(reason, "a reason that this version of the table lacks"),
            )
            for value, reason in ranked[:TOP_STALLS]
        )


def _table(csv_text: str) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the table in `csv_text`, without the lines around it."""
    lines = [line for line in csv_text.splitlines(keepends=True) if not line.startswith("==")]
    start = next((i for i, line in enumerate(lines) if line.startswith(('"ID",', "ID,"))), None)
    if start is None:
        raise ValueError("no CSV table: expected the output of `ncu --import REPORT --csv --page …`")
    header, *rows = csv.reader(io.StringIO("".join(lines[start:])))
    # A row begins with the launch's number, or with nothing (the units); other lines are chatter.
    return header, [row for row in rows if len(row) > 1 and (not row[0] or row[0].isdecimal())]


def _value(text: str) -> float | str:
    """A number, thousands separators removed, or the text as it is."""
    stripped = text.strip()
    if _GROUPED.fullmatch(stripped):
        return float(stripped.replace(",", ""))
    if _PLAIN.fullmatch(stripped) and math.isfinite(float(stripped)):
        return float(stripped)
    return text


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
