"""What Compute Sanitizer's logs say: recorded ones (an H200, version 2025.3.1), and forms that its manual shows."""

from pathlib import Path

import pytest

from tritonforge.profiling.sanitizer.command import Tool
from tritonforge.profiling.sanitizer.report import (
    GROUPS_LIMIT,
    TEXT_LIMIT,
    Finding,
    parse,
    printable,
    ranked,
    sentence,
)

RECORDINGS = Path(__file__).parents[2] / "recordings" / "sanitizer"
OWN = "/tmp/tritonforge-z70anzni/kernel.py"


def log(*messages: str, summary: str = "ERROR SUMMARY: 1 error") -> str:
    """A log of these messages, each with its further lines indented by four spaces."""
    lines = ["COMPUTE-SANITIZER"]
    for message in messages:
        lines += [*message.splitlines(), ""]
    return "".join(f"========= {line}\n" for line in [*lines, summary])


def finding(message: str, tool: Tool = "memcheck") -> Finding:
    (only,) = parse(log(message), tool).findings
    return only


def recorded(tool: Tool) -> tuple[Finding, int | None]:
    report = parse((RECORDINGS / f"{tool}.txt").read_text(), tool)
    assert (report.elsewhere, report.trouble) == (0, None)
    (only,) = report.findings
    return only, report.total


# Recorded.


def test_an_access_outside_is_told_with_its_line_and_how_far_outside():
    found, total = recorded("memcheck")
    assert found == Finding(
        tool="memcheck",
        kind="invalid read",
        kernel="bad_kernel",
        file="kernel.py",
        line=22,
        size_bytes=4,
        detail="1 bytes after the nearest allocation of size 4,096 bytes",
        block=(2, 0, 0),
        count=3,
    )
    assert total == 3


def test_reads_of_what_nothing_has_written_are_merged_and_counted():
    found, total = recorded("initcheck")
    assert (found.kind, found.kernel, found.line, found.size_bytes) == ("uninitialized read", "uninit_kernel", 31, 16)
    assert (found.block, found.count) == ((1, 0, 0), 10)
    # Those that were not printed are in the total alone.
    assert total == 768


def test_a_race_without_line_information_names_its_kernel():
    found, total = recorded("racecheck")
    assert (found.kind, found.kernel, found.file, found.line, found.severity) == ("race", "race", None, None, "error")
    assert found.detail == "write at an unknown line and read at an unknown line, 256 hazards"
    assert (found.count, total) == (3, 3)


def test_a_barrier_that_some_threads_miss_is_told():
    found, total = recorded("synccheck")
    assert (found.kind, found.kernel, found.line) == ("barrier", "halfsync", None)
    assert (found.detail, found.count, total) == ("Divergent thread(s) in warp", 10, 48)


# Other forms.


def test_a_misaligned_access_has_a_kind_of_its_own():
    found = finding(
        "Invalid __global__ write of size 16 bytes\n"
        f"    at store_kernel+0x50 in {OWN}:9\n"
        "    by thread (0,0,0) in block (0,0,0)\n"
        "    Address 0x710fdca00001 is misaligned\n"
        "    and is inside the nearest allocation at 0x710fdca00000 of size 4 bytes"
    )
    assert (found.kind, found.size_bytes, found.line) == ("misaligned write", 16, 9)
    assert found.detail == "inside the nearest allocation of size 4 bytes"


def test_an_access_far_from_every_allocation_is_told_without_its_address():
    found = finding("Invalid __global__ atomic of size 4 bytes\n    at k+0x20\n    Address 0x87654320 is out of bounds")
    assert (found.kind, found.detail) == ("invalid atomic", "out of bounds")


def test_other_memory_than_global_is_named():
    shared = finding("Invalid __shared__ write of size 4 bytes\n    at k+0x20\n    Address 0x400 is out of bounds")
    assert (shared.kind, shared.detail) == ("invalid write", "shared memory, out of bounds")
    late = (
        "Potential invalid __shared__ read of size 4 bytes\n    at RemoteAccess(int *, int)+0x170 in RaceCluster.cu:10"
    )
    late += "\n    Address 0x1000400 is located in a block that might not have entered yet"
    found = finding(late, "racecheck")
    assert (found.kind, found.kernel) == ("invalid read", "RemoteAccess")
    assert found.detail == "shared memory, located in a block that might not have entered yet, in RaceCluster.cu:10"
    unwritten = finding("Uninitialized __shared__ memory read of size 4 bytes\n    at k+0x1a0\n    Address 0x0")
    assert (unwritten.kind, unwritten.detail) == ("uninitialized read", "shared memory")


def test_a_race_between_lines_names_both():
    found = finding(
        f"Error: Race reported between Write access at scan_kernel+0xf0 in {OWN}:40\n"
        f"    and Read access at scan_kernel+0x280 in {OWN}:46 [1,024 hazards]\n"
        f"    and Write access at scan_kernel+0x2a0 in /opt/triton/language/standard.py:290 [8 hazards]",
        "racecheck",
    )
    assert (found.kind, found.kernel, found.line, found.file) == ("race", "scan_kernel", 40, "kernel.py")
    assert found.detail == "write at line 40 and read at line 46 and write at standard.py:290, 1,032 hazards"


def test_a_race_is_told_at_the_line_that_is_the_candidate_s_own():
    found = finding(
        "Error: Race reported between Write access at scan_kernel+0xf0 in /opt/triton/language/standard.py:290\n"
        f"    and Read access at scan_kernel+0x280 in {OWN}:46 [4 hazards]",
        "racecheck",
    )
    assert (found.line, found.file) == (46, "kernel.py")


@pytest.mark.parametrize("word", ["Warning", "WARNING", "WARN"])
def test_a_race_within_a_warp_is_a_warning(word: str):
    found = finding(
        f"{word}: Race reported between Write access at k()+0xf0\n    and Read access at k()+0x1", "racecheck"
    )
    assert (found.severity, found.kernel) == ("warning", "k")


def test_single_hazards_are_races():
    found = finding(
        "Warning: (Warp Level Programming) Potential RAW hazard detected at __shared__ 0x8c in block (3,0,0) :\n"
        "    Write Thread (35,0,0) at sumKernel(int *, int *)+0x90 in /a/warp_error.cu:44\n"
        "    Read Thread (32,0,0) at sumKernel(int *, int *)+0x120 in /a/warp_error.cu:56\n"
        "    Current Value : 35",
        "racecheck",
    )
    assert (found.kind, found.severity, found.kernel, found.block) == ("race", "warning", "sumKernel", (3, 0, 0))
    assert found.detail == "write at warp_error.cu:44 and read at warp_error.cu:56"
    assert (found.file, found.line) == ("warp_error.cu", None)


def test_places_of_older_versions_are_read():
    found = finding(
        f"Error: Race reported between Write access at 0x278 in {OWN}:113:MatMulKernel(Matrix, Matrix)\n"
        f"    and Read access at 0x298 in {OWN}:121:MatMulKernel(Matrix, Matrix) [6144 hazards]",
        "racecheck",
    )
    assert (found.kernel, found.line) == ("MatMulKernel", 113)
    bare = finding("Invalid __global__ read of size 4\n    at 0x1b8 in kernel(float *, float *)")
    assert (bare.kernel, bare.size_bytes) == ("kernel", 4)
    colon = finding(f"Invalid __global__ write of size 4 bytes\n    at unaligned_kernel():0x160 in {OWN}:6")
    assert colon.line == 6


def test_further_errors_of_barriers_and_matrix_instructions_are_told():
    missing = finding("Barrier error detected. Missing wait.\n    at k+0x1b90\n    by thread (0,0,0) in block (7,0,0)")
    assert (missing.kind, missing.detail, missing.block) == ("barrier", "Missing wait", (7, 0, 0))
    assert finding("Warpgroup MMA sequence error detected. Divergent.\n    at k+0x1b").kind == "warpgroup mma"


def test_an_error_of_an_unknown_form_is_told_as_it_stands():
    head = "Tensor Memory column 32 being accessed by instruction tcgen05.ld is not allocated."
    found = finding(f"{head}\n    at k+0x1250 in {OWN}:99\n    by thread (0,0,0) in block (0,0,0)")
    assert (found.kind, found.detail, found.line) == ("error", head, 99)


def test_code_from_another_file_has_no_line_of_the_candidate_s():
    for path in ("/opt/triton/language/standard.py", "/home/me/kernel.py", "/tmp/tritonforge-x/sub/kernel.py"):
        found = finding(f"Uninitialized __global__ memory read of size 4 bytes\n    at k+0x10 in {path}:7")
        assert (found.line, found.file) == (None, Path(path).name)
        assert found.detail == f"in {Path(path).name}:7"


def test_different_lines_kinds_and_kernels_are_different_findings():
    def invalid(what: str, kernel: str, line: int) -> str:
        return f"Invalid __global__ {what} of size 4 bytes\n    at {kernel}+0x10 in {OWN}:{line}"

    messages = [invalid("read", "a", 1), invalid("write", "a", 1), invalid("read", "b", 1), invalid("read", "a", 2)]
    report = parse(log(*messages, *messages), "memcheck")
    assert [found.count for found in report.findings] == [2] * 4


# What the candidate is not blamed for.


@pytest.mark.parametrize(
    "kernel",
    [
        "void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<float>>(int, T2, T3)",
        "void <unnamed>::softmax_warp_forward<at::native::Half, (int)4>(T1 *, const T2 *)",
        "void cub::CUB_200700_900_NS::DeviceScanKernel<int>(T1)",
        "void cublasLt::splitKreduce_kernel<(int)32, float>(T1)",
        "nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_NNT",
        "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8",
        "ampere_sgemm_128x64_nn",
    ],
)
def test_kernels_of_torch_and_libraries_are_only_counted(kernel: str):
    report = parse(log(f"Uninitialized __global__ memory read of size 4 bytes\n    at {kernel}+0x10"), "initcheck")
    assert (report.findings, report.elsewhere) == ([], 1)


@pytest.mark.parametrize("kernel", ["attention_kernel", "cubic_kernel", "format_kernel", "thrust_kernel"])
def test_a_kernel_whose_name_only_begins_alike_is_the_candidate_s(kernel: str):
    assert finding(f"Uninitialized __global__ memory read of size 4 bytes\n    at {kernel}+0x10").kernel == kernel


def test_a_name_like_a_library_s_hides_no_code_of_the_candidate_s():
    for path in (OWN, "/opt/triton/language/standard.py"):
        assert (
            finding(f"Invalid __global__ write of size 4 bytes\n    at gemv_mine+0x10 in {path}:3").kernel
            == "gemv_mine"
        )


def test_failed_calls_from_the_host_are_only_counted():
    report = parse(
        log(
            'Program hit CUDA_ERROR_LAUNCH_FAILED (error 719) due to "unspecified launch failure" on CUDA API call to'
            " cuStreamSynchronize.",
            "Host API memory access error at host access to 0x7f00 of size 8 bytes\n"
            "    Uninitialized access at 0x7f00 on access by cudaMemcpy source.",
            summary="ERROR SUMMARY: 2 errors",
        ),
        "memcheck",
    )
    assert (report.findings, report.elsewhere, report.total) == ([], 2, 2)


# Whether the tool has checked everything.


def test_no_errors_are_a_total_of_zero_and_no_summary_is_none():
    assert parse(log(summary="ERROR SUMMARY: 0 errors"), "memcheck").total == 0
    summary = "RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)"
    assert parse(log(summary=summary), "racecheck").total == 0
    assert parse("========= COMPUTE-SANITIZER\n", "memcheck").total is None
    assert parse("", "memcheck").total is None


@pytest.mark.parametrize(
    "message",
    [
        "Error: Target application terminated before first instrumented API call",
        "Error: No attachable process found. compute-sanitizer timed-out.",
        'Error: Device not supported. Please refer to the "Supported Devices" section',
        "Unable to find injection library libsanitizer-collection.so",
        "Internal Sanitizer Error: The Sanitizer encountered an error while launching k and didn't track the launch.",
        "Warning: Detected overflow of tracked cuda::barrier structures. Results might be incorrect.",
    ],
)
def test_what_kept_a_tool_from_checking_is_told(message: str):
    report = parse(log(message), "memcheck")
    assert report.trouble == message
    assert report.elsewhere == 0


def test_the_end_of_the_program_itself_is_no_trouble_of_the_tool():
    text = log("Error: process didn't terminate successfully\nTarget application returned an error")
    report = parse(text, "memcheck")
    assert (report.trouble, report.elsewhere, report.total) == (None, 0, 1)


# Whatever a log holds.


def test_hostile_text_comes_out_short_and_printable():
    kernel = "k\x1b[31m\u202e" + "x" * 5000
    found = finding(
        f"Invalid __global__ write of size 99999999999999999999\n    at {kernel}\n    and is \x07{'y' * 5000}"
    )
    for text in (found.kernel, found.detail or "", sentence(found)):
        assert text.isprintable()
    assert len(found.kernel) <= TEXT_LIMIT
    assert len(found.detail or "") <= TEXT_LIMIT


def test_only_so_many_findings_are_kept():
    many = [f"Invalid __global__ write of size 4 bytes\n    at k{number}+0x10" for number in range(GROUPS_LIMIT + 50)]
    assert len(parse(log(*many), "memcheck").findings) == GROUPS_LIMIT


@pytest.mark.parametrize(
    "line",
    [
        "(" * 5000,
        "0x" * 3000,
        " in " * 2000,
        "+0x" * 2000,
        ":1" * 3000,
        "[" + "9," * 3000,
        "at ",
        "at +0x",
        "at 0x1 in ",
    ],
)
def test_no_line_breaks_the_reader(line: str):
    heads = (
        "Invalid __a__ b of size ,",
        "Error: Race reported between Write access at ",
        "Barrier error detected",
        "?",
    )
    for head in heads:
        parse(log(f"{head}{line}\n    at {line}\n    and is {line}\n    {line}"), "racecheck")
    parse("=========    " + line, "memcheck")


# Telling.


def test_the_worst_comes_first():
    def of(kind: str, **more: object) -> Finding:
        return Finding.model_validate({"tool": "memcheck", "kind": kind, "kernel": "k", **more})

    kinds = ["uninitialized read", "race", "misaligned read", "invalid read", "invalid write", "barrier"]
    findings = [of("race", severity="warning"), *map(of, kinds), of("invalid read", count=9)]
    assert [(found.kind, found.count) for found in ranked(findings)] == [
        ("invalid write", 1),
        ("invalid read", 9),
        ("invalid read", 1),
        ("misaligned read", 1),
        ("race", 1),
        ("barrier", 1),
        ("uninitialized read", 1),
        ("race", 1),
    ]
    assert ranked(findings)[-1].severity == "warning"


def test_a_finding_is_told_in_one_sentence():
    assert sentence(recorded("memcheck")[0]) == (
        "memcheck: invalid read of 4 bytes in bad_kernel at line 22 (3 times), first in program (2, 0, 0): "
        "1 bytes after the nearest allocation of size 4,096 bytes"
    )
    assert sentence(Finding(tool="racecheck", kind="race", kernel="k")) == "racecheck: race in k"


def test_a_long_text_is_cut():
    assert printable("a\nb\x00c") == "a b c"
    assert printable("x" * 11, 10) == "x" * 7 + "..."
    assert printable("x" * 10, 10) == "x" * 10
