"""Resources of one kernel, from logs of the real `ptxas -v`."""

from collections.abc import Callable

from tritonforge.profiling.compiler.ptxas import PtxasUsage, parse_log

SHARED = """\
ptxas info    : Compiling entry function 'k' for 'sm_90a'
ptxas info    : Function properties for k
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 40 registers, used 2 barriers, 4096 bytes smem, 400 bytes cmem[0]
"""


def test_stack_is_told_apart_from_spills(recorded: Callable[[str], str]) -> None:
    assert parse_log(recorded("sin_candidate.ptxas"), "sin_kernel") == PtxasUsage(
        registers=22,
        stack_bytes=32,
        spill_store_bytes=0,
        spill_load_bytes=0,
        barriers=0,
        static_shared_bytes=0,
        notes=(),
    )


def test_spills_come_with_the_assemblers_remark(recorded: Callable[[str], str]) -> None:
    usage = parse_log(recorded("matmul_spilling.ptxas"), "matmul_kernel")
    assert usage is not None
    assert (usage.registers, usage.stack_bytes) == (255, 2936)
    assert (usage.spill_store_bytes, usage.spill_load_bytes) == (7028, 5492)
    (note,) = usage.notes
    assert note.startswith("(C7511) Potential Performance Loss: wgmma.mma_async instructions are serialized")


def test_each_kernel_of_a_log_has_its_own_numbers(recorded: Callable[[str], str]) -> None:
    log = recorded("two_kernels.ptxas")
    softmax, atomic = parse_log(log, "softmax_kernel"), parse_log(log, "atomic_kernel")
    assert softmax is not None
    assert atomic is not None
    assert (softmax.registers, softmax.stack_bytes) == (32, 0)
    assert (atomic.registers, atomic.stack_bytes) == (26, 32)


def test_a_device_functions_frame_is_not_its_kernels(recorded: Callable[[str], str]) -> None:
    log = recorded("atomics.ptxas").replace("    0 bytes stack frame", "    64 bytes stack frame")
    usage = parse_log(log, "atomic_kernel")
    assert usage is not None
    assert usage.stack_bytes == 32


def test_a_remark_on_another_kernel_is_left_out(recorded: Callable[[str], str]) -> None:
    remark = "ptxas info    : (C7514) Potential Performance Loss: waits are injected in the function 'other'\n"
    usage = parse_log(remark + recorded("two_kernels.ptxas"), "softmax_kernel")
    assert usage is not None
    assert usage.notes == ()


def test_static_shared_memory_and_barriers_are_read() -> None:
    usage = parse_log(SHARED, "k")
    assert usage is not None
    assert (usage.static_shared_bytes, usage.barriers) == (4096, 2)


def test_a_log_without_the_kernel_gives_nothing(recorded: Callable[[str], str]) -> None:
    assert parse_log(recorded("two_kernels.ptxas"), "softmax") is None
    assert parse_log("ptxas fatal   : Ptx assembly aborted due to errors\n", "k") is None
    assert parse_log("", "k") is None
