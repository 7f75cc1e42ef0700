"""Public reports of slow and failing kernels: without a GPU, the diagnosis names the cause of most that a kernel shows.

Each is a launch in a small form. What is planted already is proved by `test_planted.py`, and not compiled again.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.profiling.compiler.signatures.shown import TRITON, Compiled
from tritonforge.profiling.diagnosis.engine import diagnose
from tritonforge.profiling.diagnosis.facts import Facts
from tritonforge.profiling.diagnosis.model import Diagnosis
from tritonforge.profiling.diagnosis.rules import RULES
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.outcome import Kind
from tritonforge.server.services import Services
from tritonforge.server.settings import Settings
from tritonforge.server.tools.diagnose_kernel import diagnose_kernel

from .conftest import CHOSEN, compile_some, kernel_file, read
from .made_up import profile
from .planted import PLANTED

pytestmark = pytest.mark.skipif(TRITON != (3, 7), reason="the kernels were chosen for the compiler of Triton 3.7")
NAMED_PCT = 80
"""Of the reports that a kernel shows: how many causes have to be named."""


class Report(NamedTuple):
    """One thread in public, or several of one cause."""

    number: int
    threads: str
    symptom: str
    cause: str
    """As the thread says, or as its numbers show."""
    ids: tuple[str, ...]
    """Findings that name the cause: one of them has to be told, itself or folded into another."""
    file: str
    """Of the kernels."""
    launch: str
    mark: str = ""
    """A part of the finding's line; not looked at where it is empty."""


REPORTS: Final = (
    Report(
        3, "triton-lang/triton#7108, #7136", "warp specialization does nothing on Hopper",
        "eight warps: only loops of four are specialized", ("W1",), "descriptors", "specialized_eight_warps",
    ),
    Report(
        5, "triton-lang/triton#1397", "a product with int8 weights is slow",
        "the converted operand goes through registers", ("T10",), "dots", "weights_second",
    ),
    Report(
        8, "triton-lang/triton#7786", "a descriptor made in a loop is slow or refused",
        "it is written to global memory again in each step", ("W5",), "grids", "described_in_loop",
    ),
    Report(
        9, "NVIDIA/cutlass#1840, NVIDIA/TensorRT-LLM#2116, sgl-project/sglang#6453", "ptxas: wgmma is serialized",
        "too few registers for the accumulator", ("T13",), "dots", "wide_tile",
    ),
    Report(
        9, "the same", "ptxas: waits are injected into wgmma",
        "other instructions change the accumulator", ("T14", "T8"), "dots", "scaled",
    ),
    Report(
        10, "pytorch/helion#2426", "do_not_specialize halves the bandwidth",
        "divisibility is lost", ("V5",), "accesses", "unspecialized_stride",
    ),
    Report(
        11, "triton-lang/triton#4227, pytorch/ao#3945, stackav-oss/conch#42", "atomics are slow",
        "by default they order all memory", ("A1",), "arithmetic", "default_atomic",
    ),
    Report(
        12, "triton-lang/triton#4276", "atomics to global memory are too slow",
        "many go to few addresses", ("A2",), "arithmetic", "atomics_to_few",
    ),
    Report(
        12, "triton-lang/triton#8424, #4316", "sums by atomics differ from run to run",
        "the order of additions does", ("A6",), "values", "split_needlessly",
    ),
    Report(
        15, "triton-lang/triton#1101", "a huge block is 10 times slower",
        "the row does not fit registers", ("R2",), "arithmetic", "long_row",
    ),
    Report(
        16, "triton-lang/triton#8908", "a kernel compiles for two minutes, then is slow",
        "hundreds of elements a thread in each operation", ("R2",), "reports", "rows_at_once", "y = tl.load(",
    ),
    Report(
        17, "facebookexperimental/triton#2717", "local memory beside few accesses to global memory",
        "parts are kept until the last one, and then summed", ("R1",), "reports", "held_parts",
    ),
    Report(
        18, "triton-lang/triton#1756", "sine seems to spill",
        "its slow path uses the stack", ("R5",), "arithmetic", "sine",
    ),
    Report(
        21, "sgl-project/sglang#39130", "ported kernels are 10 times slower",
        "the autotuner got lost, blocks stay at their default of 16", ("U16",), "reports", "chunk_states",
        "BLOCK_M: tl.constexpr = 16",
    ),
    Report(
        22, "hao-ai-lab/FastVideo#1706", "a tuned kernel is not the best",
        "the list of stages leaves out the best number", ("U15",), "reports", "staged", "@triton.autotune(",
    ),
    Report(
        23, "ServiceNow/Fast-LLM#497", "blocks of 32768 elements are 3 times slower",
        "registers", ("R2",), "arithmetic", "long_row",
    ),
    Report(
        24, "linkedin/Liger-Kernel#266", "32 warps are written into the launch",
        "tuned for one width", ("V6",), "reports", "gated", "a = tl.load(",
    ),
    Report(
        26, "fla-org/flash-linear-attention#640, #826", "wrong results on Hopper",
        "tl.trans of a product", ("L4",), "dots", "transposed_result",
    ),
    Report(
        27, "triton-lang/triton#1840", "tl.trans and tl.dot together are wrong",
        "a layout of the transposed product", ("L4",), "reports", "transposed_scores", "tl.trans(scores)",
    ),
    Report(
        30, "vllm-project/vllm#42545, #42849", "descriptors made in the loop fail, or are slow with one stage",
        "they are made again in each step", ("W5",), "reports", "remade_descriptors", "tl.make_tensor_descriptor(",
    ),
    Report(
        34, "triton-lang/triton#5569", "lines of inlined library code are not the kernel's",
        "the place within Triton's own file is told", ("L7",), "accesses", "sums_in_loop",
    ),
)  # fmt: skip


CONFLICTS: Final = Report(
    14, "triton-lang/triton#7815, #3059", "shared memory has bank conflicts",
    "a tile changes its layout on the way", ("L2", "V12"), "accesses", "transposed_copy",
)  # fmt: skip
"""Only counters tell it."""


class Refused(NamedTuple):
    """A report of a launch that can't be made, so that there is nothing to diagnose: what the tool tells instead."""

    number: int
    threads: str
    file: str
    launch: str
    kind: Kind
    told: str
    """Names the cause, in the message or in what the compiler put out."""


REFUSED: Final = (
    Refused(
        1, "triton-lang/triton#9728: warp specialization of loads through pointers breaks the compiler",
        "failing", "specialized_pointers", Kind.COMPILE_ERROR, "NVGPUWarpSpecialization",
    ),
    Refused(
        19, "triton-lang/triton#8182, #2596, pytorch/pytorch#133254, state-spaces/mamba#387: too many stages",
        "dots", "eight_stages", Kind.LAUNCH_ERROR, "shared memory, Required: 262144, Hardware limit: 232448",
    ),
)  # fmt: skip


class Missed(NamedTuple):
    """A report whose cause no rule looks for."""

    threads: str
    id: str
    """Of the catalogue."""
    why: str


MISSED: Final = {
    20: Missed(
        "pytorch/pytorch#119634", "U4",
        "pruning what spills loses the best configuration: only compiling and timing all of them tells",
    ),
    28: Missed(
        "triton-lang/triton#1058, #6748, #5022, #832, fla-org/flash-linear-attention#818, #1082", "C1",
        "offsets of 32 bits overflow: a wrong result or an illegal access, which run_correctness tells",
    ),
    29: Missed(
        "triton-lang/triton#8654, #1800, #6192, #5895, #10176", "C6",
        "fp32 is multiplied as tf32 by default: no fault, and run_correctness tells the difference",
    ),
}  # fmt: skip
"""By number."""
NOT_BUILT: Final[dict[int, str]] = {
    2: "a fault of one version's compiler: a wrong result, which run_correctness finds",
    4: "the compiler decides differently from version to version: nothing in the kernel is at fault",
    6: "slower after an upgrade: needs two compilers in one environment",
    7: "slower after an upgrade: needs two compilers in one environment",
    13: "wrong results of duplicate indices: which values collide is in the data, not in the code",
    25: "a fault of one version's ptxas: a wrong result, which run_correctness finds",
    31: "options of the profiler, which profile_ncu sets itself",
    32: "how time is measured, not a kernel: benchmark measures the GPU's own time",
    33: "how time is measured, not a kernel: benchmark measures all versions alike",
}
"""Why there is no kernel for a report, by number."""

Show = Callable[[Report], Facts]


def planted(report: Report) -> bool:
    """Whether `test_planted.py` proves that the cause is named, on top and on its line."""
    return any((each.file, each.faulty) == (report.file, report.launch) and each.id in report.ids for each in PLANTED)


def named(report: Report) -> str:
    return f"{report.number}-{report.launch}"


COMPILED: Final = [report for report in (*REPORTS, CONFLICTS) if not planted(report)]
NAMED: Final = {report.number for report in (*REPORTS, *REFUSED, CONFLICTS)}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def show(tmp_path_factory: pytest.TempPathFactory) -> Show:
    """What is known of a report's launch without a GPU."""
    folder = tmp_path_factory.mktemp("reported")
    file = folder / "reported.py"
    file.write_text(in_one_file(COMPILED))
    compile_some(file, [report.launch for report in COMPILED], folder / "out")

    def one(report: Report) -> Facts:
        left = folder / "out" / f"{report.launch}.json"
        return read(kernel_file(report.file).read_text(), without_tuning(left))

    return one


def in_one_file(reports: list[Report]) -> str:
    """Launches of several files, for one process."""
    parts = ["ALL = {}\n"]
    for file in sorted({report.file for report in reports}):
        names = [report.launch for report in reports if report.file == file]
        parts += [CHOSEN.format(stem=file, path=str(kernel_file(file)), names=names), "ALL |= LAUNCHES\n"]
    return "".join([*parts, "LAUNCHES = ALL\n"])


def without_tuning(left: Path) -> Path:
    """What an autotuner launches only to time it is left out."""
    compiled = Compiled.model_validate_json(left.read_bytes())
    kept = [launch for launch in compiled.launches if not launch.tuning]
    one = left.with_suffix(".one.json")
    one.write_text(compiled.model_copy(update={"launches": kept}).model_dump_json())
    return one


def ids(told: Diagnosis) -> set[str]:
    """All that is named, folded symptoms among them."""
    findings = told.findings + told.hypotheses
    return {finding.id for finding in findings} | {each.id for finding in findings for each in finding.explains}


@pytest.mark.parametrize("report", [each for each in COMPILED if each is not CONFLICTS], ids=named)
def test_the_cause_of_a_report_is_named(show: Show, report: Report) -> None:
    told = diagnose(show(report))
    assert set(report.ids) & ids(told)
    if report.mark:
        found = [each for each in told.findings + told.hypotheses if each.id in report.ids]
        assert any(report.mark in (each.excerpt or "") for each in found)


def test_bank_conflicts_are_told_if_they_were_counted(show: Show) -> None:
    facts = show(CONFLICTS)
    assert not set(CONFLICTS.ids) & ids(diagnose(facts))
    counted = replace(facts, profile=profile(bank_conflict_pct=40.0))
    assert set(CONFLICTS.ids) & ids(diagnose(counted))


def test_no_rule_looks_for_what_is_said_to_be_missed() -> None:
    assert {missed.id for missed in MISSED.values()}.isdisjoint(rule.id for rule in RULES)


def test_a_stack_without_spills_is_not_called_spilling() -> None:
    (sine,) = (report for report in REPORTS if report.launch == "sine")
    assert planted(sine)  # and no other finding of weight is beside it


def test_most_causes_are_named_and_every_report_is_accounted_for() -> None:
    assert sorted([*NAMED, *MISSED, *NOT_BUILT]) == list(range(1, 35))
    assert 100 * len(NAMED) >= NAMED_PCT * (len(NAMED) + len(MISSED))


@pytest.mark.anyio
async def test_a_launch_that_can_not_be_made_is_told_with_the_cause(tmp_path: Path) -> None:
    async with Services(Settings(state_dir=tmp_path, spares=1)) as services:
        for refused in REFUSED:
            text = kernel_file(refused.file).read_text() + f"\n\nLAUNCHES[{refused.launch!r}]()\n"
            with pytest.raises(Stopped) as stopped:
                await diagnose_kernel(services, _quietly, kernel=text, target="h100")
            problem = stopped.value.problem
            assert stopped.value.kind is refused.kind, refused.launch
            assert refused.told in f"{problem.message}\n{problem.output}", refused.launch


async def _quietly(done: float, total: float, message: str) -> None:
    """Nobody waits for progress."""
