"""Samples by source line, planted into the machine code of a kernel that a worker compiles for an H100."""

import hashlib
import sys
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any

import pytest

from tests.sandbox.conftest import H100
from tritonforge.profiling.compiler import sass
from tritonforge.profiling.compiler.join import CompiledCode
from tritonforge.profiling.ncu.hotspots import Excess, Hotspot, HotspotReport, hotspots, text
from tritonforge.sandbox.executors.host import Host
from tritonforge.sandbox.executors.local import LocalExecutor
from tritonforge.sandbox.limits import Limits
from tritonforge.sandbox.profile_facts import InstructionTable, ReportedLaunch, ReportedMetric
from tritonforge.sandbox.source import Source
from tritonforge.sandbox.workers import capture_worker

SOURCE = """\
import torch, triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, out_ptr, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        x = tl.load(x_ptr + row * stride + start + offsets)
        y = tl.load(y_ptr + row * stride + start + offsets)
        z = x * 3.0
        total += tl.exp(z) / (y + 1.0)
    largest = tl.max(total, axis=0)
    smallest = tl.min(total, axis=0)
    tl.store(out_ptr + row, largest + smallest)


x = torch.empty(4096, device="cuda")
kernel[(4,)](x, x.clone(), torch.empty_like(x), 1024, 1024, BLOCK=256)
"""
X, Y, SCALE, EXP, MAX, MIN, STORE = 11, 12, 13, 14, 15, 16, 17
FILES = ["/opt/triton/language/standard.py", "/tmp/work/kernel.py"]
NAMES = {"kernel.py"}
Counts = dict[str, float]
Plants = dict[tuple[int, str], Counts]
"""Line and opcode, up to the first dot, of the instruction -> its counts, by the short names of stalls."""


@pytest.fixture(scope="module")
async def compiled(warm: None, anyio_backend: str) -> CompiledCode:
    """The kernel's texts, as the server gets them from a worker."""
    async with (
        LocalExecutor(Host(sys.executable, Limits()), spares=1) as executor,
        capture_worker(executor, target=H100) as worker,
    ):
        await worker.run_file(Source(SOURCE, "kernel.py", None), limit_s=60.0)
        capture = await worker.captured()
        (launch,) = capture.launches
        code = hashlib.sha256(capture.blobs[launch.assembly["cubin"]]).hexdigest()
        explanation = (await worker.explain([code]))[code]
        assert explanation.sass is not None
        return CompiledCode(explanation.sass, capture.text(launch, "ptx"), capture.text(launch, "ttgir"))


def metric_of(name: str) -> str:
    stalled = "smsp__pcsamp_warps_issue_stalled_"
    return {"samples": "smsp__pcsamp_sample_count", "executed": "inst_executed"}.get(name, stalled + name)


def launch_of(table: InstructionTable | None, **metrics: float) -> ReportedLaunch:
    return ReportedLaunch(
        kernel="kernel",
        metrics={name: ReportedMetric(value=value, unit="") for name, value in metrics.items()},
        rules=[],
        files=FILES,
        instructions=table,
    )


def planted(
    compiled: CompiledCode, plants: Plants, more: dict[str, Plants] | None = None, *, last: bool = False
) -> InstructionTable:
    """The table that a report would have: text as ncu prints it, the innermost function's line, and without the jump
    to itself at the end, which nothing executes. Counts fall on the first instruction of their kind on the line, or
    on the last; `more` are metrics by their whole name."""
    code = sass.parse(compiled.sass, compiled.ptx).instructions[:-1]
    found: dict[tuple[int, str], int] = {}
    for number, each in enumerate(code):
        if each.origin.line is not None and (last or (each.origin.line, each.root) not in found):
            found[each.origin.line, each.root] = number
    columns: dict[str, list[float]] = {}
    for at, counts in plants.items():
        for name, count in ({"samples": sum(counts.values())} | counts).items():
            columns.setdefault(metric_of(name), [0.0] * len(code))[found[at]] = count
    for name, those in (more or {}).items():
        columns[name] = [0.0] * len(code)
        for at, counts in those.items():
            columns[name][found[at]] = counts["count"]
    library = [each.origin.library for each in code]
    return InstructionTable(
        offset=[each.offset for each in code],
        sass=[f"{'@' + each.guard if each.guard else '':6} {each.opcode} {each.operands}" for each in code],
        file=[0 if place else 1 for place in library],
        line=[
            int(place.rpartition(":")[2]) if place else each.origin.line or 0
            for place, each in zip(library, code, strict=True)
        ],
        counts=columns,
    )


PLANTS: Plants = {
    (SCALE, "FMUL"): {"long_scoreboard": 330, "wait": 110, "selected": 20},
    (EXP, "FADD"): {"long_scoreboard": 100},
    (EXP, "MUFU"): {"wait": 60, "selected": 90},
    (MAX, "FMNMX"): {"short_scoreboard": 120, "not_selected": 30},
    (MIN, "BAR"): {"barrier": 80},
    (STORE, "STG"): {"lg_throttle": 45, "selected": 3},
    (X, "LDG"): {"wait": 12},
}
"""A thousand samples."""


def report_of(compiled: CompiledCode, plants: Plants = PLANTS, **metrics: float) -> HotspotReport:
    return hotspots(launch_of(planted(compiled, plants), **metrics), SOURCE, NAMES, compiled)


def test_texts_that_the_report_does_not_tell_are_the_compilers(compiled: CompiledCode) -> None:
    table = planted(compiled, PLANTS)
    silent = table.model_copy(update={"sass": [""] * len(table.sass)})
    assert hotspots(launch_of(silent), SOURCE, NAMES, compiled) == report_of(compiled)
    moved = silent.model_copy(update={"line": [line + 1 for line in silent.line]})
    assert hotspots(launch_of(moved), SOURCE, NAMES, compiled).lines_from == "report"


def test_the_hottest_lines_come_with_what_they_wait_for_and_where_that_is_made(compiled: CompiledCode) -> None:
    report = report_of(compiled)
    assert (report.samples, report.doubt, report.lines_from, report.lines_reason) == (1000, None, "compiler", None)
    assert [(spot.line, spot.pct, spot.samples, spot.hot) for spot in report.hotspots] == [
        (SCALE, 46.0, 460, True),
        (EXP, 25.0, 250, True),
        (MAX, 15.0, 150, True),
        (MIN, 8.0, 80, False),
        (STORE, 4.8, 48, False),
    ]
    assert report.rest_pct == 1.2
    assert [(spot.stall, spot.stall_pct) for spot in report.hotspots] == [
        ("long_scoreboard", 71.7),
        # Those that issue, 90, wait for nothing.
        ("long_scoreboard", 40.0),
        ("short_scoreboard", 80.0),
        ("barrier", 100.0),
        ("lg_throttle", 93.8),
    ]
    assert [(spot.waits_for_line, spot.waits_for) for spot in report.hotspots[:2]] == [(X, "LDG.E.64"), (Y, "LDG.E.64")]
    assert [spot.operations for spot in report.hotspots] == [
        ["arith.mulf"],
        ["math.exp", "arith.addf", "arith.divf"],
        ["tt.reduce"],
        ["tt.reduce"],
        ["tt.store"],
    ]
    assert [spot.source for spot in report.hotspots][1:3] == [
        "total += tl.exp(z) / (y + 1.0)",
        "largest = tl.max(total, axis=0)",
    ]
    exp = report.hotspots[1]
    assert (exp.instruction.split()[0], exp.instruction_pct) == ("MUFU.EX2", 60.0)


def test_inlined_code_counts_at_its_caller_with_its_own_place_beside(compiled: CompiledCode) -> None:
    plants: Plants = {(MAX, "FMNMX"): {"short_scoreboard": 200}, (MAX, "SHFL"): {"short_scoreboard": 100}}
    table = planted(compiled, plants, last=True)
    place = next(
        f"standard.py:{line}"
        for line, count in zip(table.line, table.counts[metric_of("samples")], strict=True)
        if count == 200
    )
    (spot,) = hotspots(launch_of(table), SOURCE, NAMES, compiled).hotspots
    assert (spot.line, spot.library, spot.samples) == (MAX, place, 300)
    assert (spot.waits_for_line, spot.waits_for) == (MAX, "SHFL.BFLY")


def test_five_lines_are_shown(compiled: CompiledCode) -> None:
    report = report_of(compiled, {at: {"wait": 100 + at[0]} for at in PLANTS if at != (EXP, "MUFU")})
    assert [spot.line for spot in report.hotspots] == [STORE, MIN, MAX, EXP, SCALE]
    assert report.rest_pct == round(11100 / 686, 1)


def test_a_table_of_sampled_instructions_alone_is_joined_as_well(compiled: CompiledCode) -> None:
    whole = planted(compiled, PLANTS)
    chosen = [number for number, count in enumerate(whole.counts[metric_of("samples")]) if count]
    part = InstructionTable(
        offset=[whole.offset[each] for each in chosen],
        sass=[whole.sass[each] for each in chosen],
        file=[whole.file[each] for each in chosen],
        line=[whole.line[each] for each in chosen],
        counts={name: [column[each] for each in chosen] for name, column in whole.counts.items()},
    )
    assert hotspots(launch_of(part), SOURCE, NAMES, compiled) == report_of(compiled)


def other_code(table: InstructionTable) -> InstructionTable:
    return table.model_copy(update={"sass": ["      S2R R0, SR_TID.X", *table.sass[1:]]})


def same_code(table: InstructionTable) -> InstructionTable:
    return table


@pytest.mark.parametrize(
    ("change", "beside", "reason"),
    [
        (other_code, True, "at 0x0 the compiled launch has LDC, and the measured one S2R"),
        (same_code, False, "the launch was not compiled beside the profile"),
    ],
)
def test_lines_are_the_reports_where_the_compilers_code_is_not_that(
    compiled: CompiledCode, change: Callable[[InstructionTable], InstructionTable], beside: bool, reason: str
) -> None:
    table = change(planted(compiled, PLANTS))
    report = hotspots(launch_of(table), SOURCE, NAMES, compiled if beside else None)
    assert (report.lines_from, report.lines_reason) == ("report", reason)
    assert [(spot.line, spot.pct) for spot in report.hotspots] == [
        (SCALE, 46.0),
        (EXP, 25.0),
        (None, 15.0),
        (None, 8.0),
        (STORE, 4.8),
    ]
    assert all((spot.library or "").startswith("standard.py:") == (spot.line is None) for spot in report.hotspots)
    assert {(spot.waits_for_line, tuple(spot.operations)) for spot in report.hotspots} == {(None, ())}
    assert report.absent["waits_for_line"] == f"only known from the compiler: {reason}"
    assert text(report).splitlines()[2].startswith("hot triton library standard.py:")
    assert text(report).endswith(f"lines are those of the report: {reason}")


def test_files_of_another_name_are_not_the_kernels(compiled: CompiledCode) -> None:
    report = hotspots(launch_of(planted(compiled, PLANTS)), SOURCE, {"candidate.py"}, None)
    assert report.hotspots[0].library == f"{PurePosixPath(FILES[1]).name}:{SCALE}"
    assert report.hotspots[0].line is None


@pytest.mark.parametrize(
    ("waits", "rest", "hot"), [(31, 0, True), (30, 0, False), (31, 10_000, False)], ids=["hot", "stall", "line"]
)
def test_a_line_is_hot_by_nvidias_rule(compiled: CompiledCode, waits: int, rest: int, hot: bool) -> None:
    plants: Plants = {(SCALE, "FMUL"): {"wait": waits, "selected": 100 - waits}, (X, "LDG"): {"selected": 100 + rest}}
    spots = {spot.line: spot for spot in report_of(compiled, plants).hotspots}
    assert (spots[SCALE].hot if SCALE in spots else False) == hot
    assert spots[X].stall is None


def test_a_tenth_of_the_samples_is_not_yet_hot(compiled: CompiledCode) -> None:
    (spot,) = report_of(compiled, {(SCALE, "FMUL"): {"wait": 100}, (X, "LDG"): {"selected": 900}}).hotspots[1:]
    assert (spot.pct, spot.stall_pct, spot.hot) == (10.0, 100.0, False)


def test_memory_traffic_in_excess_and_executions_are_shares(compiled: CompiledCode) -> None:
    sectors, wavefronts = "memory_l2_theoretical_sectors_global", "memory_l1_wavefronts_shared"
    store, load, shared = (STORE, "STG"), (X, "LDG"), (MIN, "STS")
    more: dict[str, Plants] = {
        "inst_executed": {load: {"count": 30}, store: {"count": 10}},
        # What a load falls short of its ideal makes up for nothing.
        sectors: {load: {"count": 64}, store: {"count": 32}},
        f"{sectors}_ideal": {load: {"count": 16}, store: {"count": 40}},
        wavefronts: {shared: {"count": 8}},
        f"{wavefronts}_ideal": {shared: {"count": 4}},
    }
    plants: Plants = {load: {"wait": 50}, store: {"drain": 40}, shared: {"wait": 20}}
    report = hotspots(launch_of(planted(compiled, plants, more)), SOURCE, NAMES, compiled)
    assert [(spot.line, spot.executed_pct, spot.l2_excess, spot.shared_excess) for spot in report.hotspots] == [
        (X, 75.0, Excess(count=48, pct=75.0), None),
        (STORE, 25.0, Excess(count=0, pct=0.0), None),
        (MIN, 0.0, None, Excess(count=4, pct=50.0)),
    ]
    assert report.absent == {}
    rows = text(report).splitlines()
    assert "wait 100 % (fixed latency" in rows[0]
    assert "75 % of its L2 sectors are in excess" in rows[0]
    assert "excess" not in rows[1]
    assert "50 % of its shared wavefronts are in excess" in rows[2]


def test_columns_that_were_not_collected_are_absent(compiled: CompiledCode) -> None:
    report = report_of(compiled)
    assert set(report.absent) == {"executed_pct", "l2_excess", "shared_excess"}
    assert report.absent["executed_pct"] == "the report does not count inst_executed at each instruction"
    assert report.hotspots[0].executed_pct is None


def test_reasons_have_one_name_in_samples_and_averages(compiled: CompiledCode) -> None:
    plants: Plants = {(SCALE, "FMUL"): {"warpgroup_arrive": 200}, (EXP, "FADD"): {"no_instructions": 100}}
    assert [spot.stall for spot in report_of(compiled, plants).hotspots] == ["gmma", "no_instruction"]


def test_the_text_has_one_line_for_each_hotspot(compiled: CompiledCode) -> None:
    rows = text(report_of(compiled)).splitlines()
    assert len(rows) == 5
    assert rows[0] == (
        "hot line 13: 46 % of samples, long_scoreboard 72 % (waits for LDG.E.64 of line 11): "
        "z = x * 3.0  [arith.mulf; FMUL]"
    )
    assert rows[3].startswith(f"line {MIN} (standard.py:")
    assert "barrier 100 % (waits for the other warps of the block at a barrier)" in rows[3]


def spot_of(report: HotspotReport) -> Hotspot:
    return report.hotspots[0]


def test_few_samples_are_given_with_a_doubt(compiled: CompiledCode) -> None:
    interval: dict[str, Any] = {"smsp__pcsamp_interval_cycles": 2048.0, "gpc__cycles_elapsed.max": 4096.0}
    report = report_of(compiled, {(SCALE, "FMUL"): {"wait": 99}}, **interval)
    assert spot_of(report).line == SCALE
    assert report.doubt == (
        "only 99 samples, below 100: the launch lasted 2 sampling intervals of 2048 cycles; profile a larger case"
    )
    assert text(report).splitlines()[0] == f"doubtful: {report.doubt}"
    assert report_of(compiled, {(SCALE, "FMUL"): {"wait": 100}}, **interval).doubt is None
    assert "dropped" in (report_of(compiled, smsp__pcsamp_dropped_bytes=4096.0).doubt or "")


def test_without_samples_there_are_no_hotspots(compiled: CompiledCode) -> None:
    interval: dict[str, Any] = {"smsp__pcsamp_interval_cycles": 2048.0, "gpc__cycles_elapsed.max": 1024.0}
    none = report_of(compiled, {(SCALE, "FMUL"): {"wait": 0}}, **interval)
    assert (none.hotspots, none.samples) == ([], 0)
    assert text(none) == ("no hotspots: no warp was sampled: the launch lasted 0.5 sampling intervals of 2048 cycles")
    for table in (None, planted(compiled, {})):
        report = hotspots(launch_of(table), SOURCE, NAMES, compiled)
        assert (report.hotspots, report.samples) == ([], None)
        assert "SourceCounters" in text(report)


SMALL: dict[str, Any] = {
    "offset": [0, 16],
    "sass": ["FADD R1, R1, R1", "EXIT"],
    "file": [1, 1],
    "line": [13, 17],
    "counts": {"smsp__pcsamp_sample_count": [200.0, 100.0]},
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"offset": [-16, 0]}, "not within a function"),
        ({"offset": [0, 16 * 10**30]}, "not within a function"),
        ({"counts": {**SMALL["counts"], "inst_executed": [-1.0, 0.0]}}, "inst_executed that can't be one"),
        ({"counts": {**SMALL["counts"], metric_of("wait"): [0.0, -1.0]}}, "wait that can't be one"),
        ({"counts": {"smsp__pcsamp_sample_count": [1e300, 0.0]}}, "can't be one"),
        ({"counts": {"smsp__pcsamp_sample_count": [float("nan"), 0.0]}}, "finite number"),
        ({"counts": {"smsp__pcsamp_sample_count": [1.0]}}, "differ in length"),
        ({"line": [1, 2, 3]}, "differ in length"),
        ({"offset": [16, 0]}, "not in the order"),
        ({"file": [7, 7]}, "not listed"),
    ],
)
def test_a_table_of_impossible_entries_is_not_believed(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        hotspots(launch_of(InstructionTable.model_validate({**SMALL, **change})), SOURCE, NAMES, None)


@pytest.mark.parametrize(
    ("change", "line", "library"),
    [
        ({"file": [-1, -1]}, None, None),
        ({"line": [0, 0]}, None, None),
        ({"line": [10**9, 10**9]}, None, None),
        ({"line": [999_999, 17]}, 999_999, None),
        ({"file": [0, 0]}, None, "standard.py:13"),
        ({"sass": ["\n\0ignore all\x1b[2J" * 1000, ""]}, SCALE, None),
        ({"counts": {**SMALL["counts"], metric_of("wait"): [500.0, 0.0]}}, SCALE, None),
        ({"counts": {**SMALL["counts"], metric_of("nonsense"): [-1.0, 0.0]}}, SCALE, None),
    ],
)
def test_odd_places_and_texts_are_left_out(change: dict[str, Any], line: int | None, library: str | None) -> None:
    table = InstructionTable.model_validate({**SMALL, **change})
    spot = spot_of(hotspots(launch_of(table), SOURCE, NAMES, None))
    assert (spot.line, spot.library) == (line, library)
    assert (spot.stall_pct or 100.0) == 100.0
    assert len(spot.instruction) <= 60
    assert spot.instruction.isprintable()


def test_a_source_line_is_counted_as_python_counts_and_cut() -> None:
    source = "\f\n" * 12 + f"    z = '{'x' * 200}'\t# \x1b\u2028\n" + "\n" * 9
    table = InstructionTable.model_validate(SMALL)
    spot = spot_of(hotspots(launch_of(table), source, NAMES, None))
    assert spot.source == "z = '" + "x" * 92 + "..."
    assert spot_of(hotspots(launch_of(table), "\x1b\u2028;\n" * 13, NAMES, None)).source == "??;"
