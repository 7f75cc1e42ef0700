"""hardware_spec: the GPU that is optimized for, and what works on this machine."""

from typing import Final, NamedTuple

from mcp_types import ToolAnnotations

from ...profiling.hardware.detect import DetectedGpu, detect
from ...profiling.hardware.model import Target
from ...sandbox.facts import Vendor
from ...sandbox.outcome import Kind
from ..machine import Check, inspect
from ..results import Result
from ..services import Services
from .parameters import Progress

NAME: Final = "hardware_spec"
TITLE: Final = "Describe the GPU and what works here"
DESCRIPTION: Final = """\
Data-sheet numbers of the target GPU (SMs, memory bandwidth, dense peaks by type, L2, with their source), the \
limits of one SM (registers, shared memory, warps), the GPUs that this machine really has with their clocks and \
load, and which tools work here: checks[] say ok, limited or missing, with the remedy. Peaks are data-sheet \
values, not measurements; null means unknown. Call it once at the start."""
ANNOTATIONS: Final = ToolAnnotations(
    title=TITLE, read_only_hint=True, idempotent_hint=True, destructive_hint=False, open_world_hint=False
)


class _Words(NamedTuple):
    """What a vendor calls the parts of its GPUs."""

    sm: str
    shared: str
    warps: str


_WORDS: Final[dict[Vendor, _Words]] = {
    "nvidia": _Words("SM", "shared memory", "warps"),
    "amd": _Words("compute unit", "LDS", "waves of 64 threads"),
}


class HardwareResult(Result):
    """What `hardware_spec` returns."""

    target: Target | None = None
    """What is compiled for: catalogue entry and SM limits."""
    ridge_flops_per_byte: float | None = None
    """Dense bf16 operations a byte of device memory at which the target turns from memory-bound to compute-bound."""
    gpus: list[DetectedGpu] = []
    """GPUs of this machine, live values."""
    checks: list[Check] = []
    """What works here."""


async def hardware_spec(services: Services, progress: Progress, *, target: str | None = None) -> HardwareResult:
    """Describe a target and this machine.

    Raises:
        Stopped: ``rejected``, for a name that is no target.
    """
    await progress(0, 1, "looking at this machine")
    goal = await services.target(target)
    detection = await detect()
    checks = await inspect(services)
    gpu = goal.gpu
    ridge = None
    if gpu is not None and gpu.peak_bf16_dense_flops_per_s and gpu.memory_bytes_per_s:
        ridge = gpu.peak_bf16_dense_flops_per_s / gpu.memory_bytes_per_s
    return HardwareResult(
        kind=Kind.OK,
        summary=_summary(goal, ridge, detection.gpus, checks),
        next_step=next(
            (check.remedy for check in checks if check.required and check.status == "missing"),
            "compile_kernel with the kernel and its task.",
        ),
        target=goal,
        ridge_flops_per_byte=ridge,
        gpus=detection.gpus,
        checks=checks,
    )


def _summary(goal: Target, ridge: float | None, gpus: list[DetectedGpu], checks: list[Check]) -> str:
    lines: list[str] = []
    gpu, limits = goal.gpu, goal.limits
    words = _WORDS[limits.vendor]
    compute_capability = f"compute capability {goal.capability / 10:.1f}"
    architecture = compute_capability if limits.vendor == "nvidia" else f"AMD {limits.architecture}"
    if gpu is None:
        lines.append(f"Target {goal.name}: {architecture}; name a GPU for its peaks.")
    else:
        lines.append(
            f"Target {gpu.name} ({gpu.product}), {architecture}: {gpu.sm_count} {words.sm}s, "
            f"memory {_scaled(gpu.memory_bytes_per_s, 1e12, 'TB/s')}, L2 {_scaled(gpu.l2_bytes, 1 << 20, 'MiB')}, "
            f"dense peaks bf16/fp16 {_scaled(gpu.peak_bf16_dense_flops_per_s, 1e12, 'TFLOP/s')}, "
            f"tf32 {_scaled(gpu.peak_tf32_dense_flops_per_s, 1e12, 'TFLOP/s')}, "
            f"fp8 {_scaled(gpu.peak_fp8_dense_flops_per_s, 1e12, 'TFLOP/s')}, "
            f"fp32 {_scaled(gpu.peak_fp32_flops_per_s, 1e12, 'TFLOP/s')}."
        )
        if ridge is not None:
            lines.append(f"Below {ridge:.0f} bf16 operations a byte of device memory a kernel is memory-bound.")
    lines.append(
        f"One {words.sm}: {limits.registers_per_sm:,} registers ({limits.registers_per_thread} a thread at most), "
        f"{limits.shared_bytes_per_block:,} B {words.shared} a block of {limits.shared_bytes_per_sm:,} B, "
        f"{limits.warps_per_sm} {words.warps}, {limits.blocks_per_sm} blocks."
    )
    for found in gpus:
        clock = _scaled(found.sm_clock_hz, 1e6, "MHz")
        lines.append(f"Here: GPU {found.index} {found.name}, driver {found.driver_version}, SM clock now {clock}.")
    for check in checks:
        remedy = f" -> {check.remedy}" if check.remedy is not None else ""
        lines.append(f"{check.status}: {check.name}: {check.detail}{remedy}")
    return "\n".join(lines)


def _scaled(value: float | None, unit: float, name: str) -> str:
    return "unknown" if value is None else f"{value / unit:.4g} {name}"
