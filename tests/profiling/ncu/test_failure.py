"""What ncu's messages mean. The wordings are those that ncu prints."""

import pytest

from tritonforge.profiling.ncu.failure import explain

FORBIDDEN = """\
==PROF== Connected to process 87374 (/usr/bin/python3.12)
==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on \
the target device 0. For instructions on enabling permissions and to get more information see \
https://developer.nvidia.com/ERR_NVGPUCTRPERM
==PROF== Disconnected from process 87374
==WARNING== No kernels were profiled.
"""
SANDBOXED = """\
==PROF== Connected to process 162 (/usr/bin/python3.13)

==ERROR== An error was reported by the counter measurement library:
==ERROR== Failed to initialize the profiler: LibraryNotLoaded. Check that a compatible driver library is loaded.
==PROF== Trying to shutdown target application
==ERROR== The application returned an error code (9).
"""
BUSY = """\
==ERROR== An error was reported by the driver

==ERROR== Profiling failed because a driver resource was unavailable. Ensure that no other tool (like DCGM) is \
concurrently collecting profiling data. See https://docs.nvidia.com/nsight-compute/ProfilingGuide/index.html#faq \
for more details.
==ERROR== Failed to profile "softmax_kernel" in process 7508
==PROF== Trying to shutdown target application
==ERROR== The application returned an error code (9).
==ERROR== An error occurred while trying to profile.
==WARNING== No kernels were profiled.
"""
OLD_GPU = """\
==ERROR== Profiling is not supported on device 0. To find out supported GPUs refer --list-chips option.
==PROF== Disconnected from process 4613
==WARNING== No kernels were profiled.
"""
WSL = "==ERROR== Profiling is not supported on device 0 as it uses the Windows Subsystem for Linux (WSL).\n"
OLD_DRIVER = """\
==ERROR== Cuda driver is not compatible with Nsight Compute.
==ERROR== The application returned an error code (1).
"""
LOCK = """\
==ERROR== Failed to open/create lock file /tmp/nsight-compute-lock. Please check that this process has write \
permissions on this file. See https://docs.nvidia.com/nsight-compute/ProfilingGuide/index.html#faq for more details.
==ERROR== Failed to profile "softmax_kernel" in process 31
"""
STUB = """\
==ERROR== Nsight Compute failed to connect to the CUDA driver (stub libcuda.so[.1] on path?).
==ERROR== The application returned an error code (1).
==WARNING== No kernels were profiled.
"""
NO_GPU = """\
==PROF== Connected to process 5 (/usr/bin/python3.12)
RuntimeError: CUDA error: no CUDA-capable device is detected
==ERROR== The application returned an error code (1).
==WARNING== No kernels were profiled.
"""
DISK = """\
==PROF== Profiling "matmul_kernel" - 0: 0%....50%....100% - 23 passes
OSError: [Errno 28] No space left on device
==ERROR== The application returned an error code (1).
"""
SECTION = "==ERROR== Option '--section Nothing' did not match any section.\n"
METRIC = "==ERROR== Failed to find metric smsp__inst_executed_op_tma.sum\n"
CRASHED = """\
==PROF== Connected to process 55916 (/usr/bin/python3.12)
==PROF== Disconnected from process 55916
==ERROR== The application returned an error code (1).
==WARNING== No kernels were profiled.
"""
LAUNCH = """\
==PROF== Connected to process 26 (/usr/bin/python3.12)
==PROF== Profiling "rotary_kernel": 0%....50%....100% - 4 passes
==PROF== Profiling "fused_kernel": 0%....50%....100% - 1 pass

==ERROR== LaunchFailed
==PROF== Trying to shutdown target application
==ERROR== The application returned an error code (9).
"""
NOTHING = """\
==PROF== Connected to process 706 (/usr/bin/python3.12)
==PROF== Disconnected from process 706
==WARNING== No kernels were profiled.
Available Kernels:
1. softmax_kernel
"""
FINE = """\
==WARNING== Note: Running with unmodified GPU clocks. If not controlled otherwise, profiling results may be \
inconsistent.
==PROF== Connected to process 773 (/usr/bin/python3.12)
==PROF== Profiling "matmul_kernel" - 0: 0%....50%....100% - 23 passes
==PROF== Disconnected from process 773
==PROF== Report: matmul.ncu-rep
"""


@pytest.mark.parametrize(
    ("log", "returncode", "code"),
    [
        (FORBIDDEN, 1, "counters_forbidden"),
        (FORBIDDEN, 0, "counters_forbidden"),
        (SANDBOXED, 9, "sandboxed_runtime"),
        (BUSY, 9, "counters_busy"),
        (OLD_GPU, 1, "unsupported_gpu"),
        (WSL, 1, "wsl_unsupported"),
        (OLD_DRIVER, 1, "driver_too_old"),
        (LOCK, 1, "lock_file"),
        (STUB, 1, "stub_driver"),
        (NO_GPU, 1, "no_gpu"),
        (DISK, 1, "disk_full"),
        (SECTION, 1, "unknown_metric"),
        (METRIC, 1, "unknown_metric"),
        (CRASHED, 1, "target_failed"),
        (LAUNCH, 9, "launch_failed"),
        (NOTHING, 0, "nothing_profiled"),
    ],
)
def test_the_cause_is_named_even_where_its_consequences_are_printed_too(log: str, returncode: int, code: str):
    failure = explain(log, returncode)
    assert failure is not None
    assert failure.code == code
    assert failure.remedy
    assert failure.evidence in log
    assert failure.evidence


def test_a_kernel_that_fails_while_it_is_profiled_is_named():
    failure = explain(LAUNCH, 9)
    assert failure is not None
    assert failure.message == "kernel fused_kernel failed on the GPU while it was profiled (ncu: LaunchFailed)"


def test_forbidden_counters_come_with_the_exact_remedies():
    failure = explain(FORBIDDEN, 1)
    assert failure is not None
    for remedy in ("NVreg_RestrictProfilingToAdminUsers=0", "/etc/modprobe.d", "sealed workers have no privileges"):
        assert remedy in failure.remedy
    assert "--cap-add" not in failure.remedy
    assert failure.evidence.startswith("==ERROR== ERR_NVGPUCTRPERM")


def test_a_clean_run_with_its_usual_warning_is_no_failure():
    assert explain(FINE, 0) is None


def test_what_the_program_prints_does_not_make_a_good_run_fail():
    assert explain(FINE + "No space left on device\nERR_NVGPUCTRPERM\nNo kernels were profiled.\n", 0) is None


def test_a_warning_beside_a_finished_profile_is_no_failure():
    warning = "==WARNING== Failed to access the following 2 metrics: pcie__read_bytes.sum, pcie__write_bytes.sum.\n"
    assert explain(warning + FINE, 0) is None


def test_the_programs_words_explain_nothing_while_it_succeeds():
    failure = explain("no CUDA-capable device is detected\n" + NOTHING, 0)
    assert failure is not None
    assert failure.code == "nothing_profiled"


def test_the_program_cannot_pass_its_own_crash_off_as_forbidden_counters():
    failure = explain("ERR_NVGPUCTRPERM\n" + CRASHED, 1)
    assert failure is not None
    assert failure.code == "target_failed"


def test_a_signal_is_told_apart_from_an_error():
    failure = explain("==PROF== Connected to process 1 (python)\n", -9)
    assert failure is not None
    assert failure.code == "killed"
    assert "signal 9" in failure.message


def test_an_unknown_error_is_quoted():
    failure = explain("==PROF== x\n==ERROR== Unknown Error on device 0.\n", 1)
    assert failure is not None
    assert failure.code == "other"
    assert "Unknown Error on device 0" in failure.message


def test_a_silent_failure_is_still_a_failure():
    failure = explain("", 3)
    assert failure is not None
    assert failure.code == "other"
    assert "exit status 3" in failure.message
