"""hardware_spec: the GPU that is optimized for, what this machine's reaches, and what works here."""

from typing import Final

from mcp_types import ToolAnnotations

from ...profiling.hardware.ceilings import Ceilings, shares_pct
from ...profiling.hardware.detect import DetectedGpu, detect
from ...profiling.hardware.model import Gpu, SmLimits, Target
from ...profiling.hardware.short_form import reached, scaled, short_form
from ...sandbox.facts import GpuFacts
from ...sandbox.outcome import Kind
from ...sandbox.wire import Wire
from .. import ceilings, nvidia_tools
from ..check import Check
from ..machine import inspect
from ..results import Result
from ..services import Services
from .parameters import Progress

NAME: Final = "hardware_spec"
TITLE: Final = "Describe the GPU and what works here"
DESCRIPTION: Final = """\
The target GPU in short: SMs, memory bandwidth, dense peaks by type, L2, ridge, and the limits of one SM (registers, \
shared memory, warps), from data sheets; measured: what this machine's GPU really reaches, once that was measured; \
and what is limited or missing here, each with its remedy (checks[]). null means unknown. measure=true measures all \
ceilings anew: bandwidths of device memory and L2, tensor and FMA rates, the shortest kernel; under 20 s, needs a GPU. \
detail=true adds the whole data sheet with its source, the limits, the GPUs with clocks, power, link and load, and \
the checks that are ok. Call it once at the start."""
ANNOTATIONS: Final = ToolAnnotations(
    # Measuring keeps its results in the server's own folder: nothing of the caller's changes.
    title=TITLE,
    read_only_hint=True,
    idempotent_hint=True,
    destructive_hint=False,
    open_world_hint=False,
)
MEASURING: Final = "hardware_spec with measure=true tells what this GPU really reaches (under 20 s)."


class TargetSpec(Wire):
    """What is compiled for. Peaks are dense, from the data sheet; null: not known, or a bare architecture."""

    name: str
    product: str | None
    architecture: str
    """As the vendor's compiler calls it: `sm_90`, `gfx942`."""
    sm_count: int | None
    memory_bytes_per_s: float | None
    l2_bytes: int | None
    peak_bf16_dense_flops_per_s: float | None
    """The same for FP16."""
    peak_fp8_dense_flops_per_s: float | None
    peak_tf32_dense_flops_per_s: float | None
    peak_fp32_flops_per_s: float | None
    ridge_flops_per_byte: float | None
    """Dense bf16 operations a byte of device memory at which the target turns from memory-bound to compute-bound."""
    registers_per_sm: int
    registers_per_thread: int
    """At most."""
    shared_bytes_per_sm: int
    shared_bytes_per_block: int
    """At most, static and dynamic together."""
    warps_per_sm: int
    blocks_per_sm: int


class GpuHere(Wire):
    """A GPU of this machine, live; null where the driver does not say. More of it is in the details."""

    index: int
    name: str
    sm_clock_hz: int | None
    max_sm_clock_hz: int | None
    throttle_reasons: list[str] | None
    """What holds the SM clock down; empty: nothing does."""


class HardwareDetails(Wire):
    """What is rarely needed."""

    data_sheet: Gpu | None
    """The target's catalogue entry, with its source; null for a bare architecture."""
    limits: SmLimits
    """Of one SM of the target."""
    gpus: list[DetectedGpu]
    """GPUs of this machine, live values."""
    torch_gpu: GpuFacts | None
    """The GPU as torch sees it."""


class HardwareResult(Result):
    """What `hardware_spec` returns."""

    target: TargetSpec | None = None
    measured: Ceilings | None = None
    """What this machine's GPU reached; null: never measured, see `measure`."""
    measured_pct: dict[str, float] | None = None
    """Field of `measured` -> its share of this GPU's data sheet, in percent."""
    gpus: list[GpuHere] = []
    """Of this machine."""
    checks: list[Check] = []
    """What is limited or missing here; with `detail` also what is ok, and without a GPU what its tools lack."""
    details: HardwareDetails | None = None
    """With `detail`: data sheet, limits, live values."""


async def hardware_spec(
    services: Services,
    progress: Progress,
    *,
    target: str | None = None,
    measure: bool = False,
    detail: bool = False,
) -> HardwareResult:
    """Describe a target and this machine.

    Raises:
        Stopped: ``rejected``, for a name that is no target; ``unavailable``, where nothing can be measured.
    """
    await progress(0, 2, "looking at this machine")
    goal = await services.target(target)
    note = None
    if measure:
        await progress(1, 2, "measuring what this GPU reaches")
        measured, note = await ceilings.measure(services)
    else:
        measured = await ceilings.kept(services)
    own, detection, checks = await services.gpu(), await detect(), await inspect(services)
    environment = await services.environment()
    has_gpu = environment.gpu is not None
    # Without a GPU, what else its tools lack is no news.
    news = [check for check in checks if check.status != "ok" and (has_gpu or check.name not in nvidia_tools.NAMES)]
    shown = checks if detail else news
    details = HardwareDetails(data_sheet=goal.gpu, limits=goal.limits, gpus=detection.gpus, torch_gpu=environment.gpu)
    summary = _summary(goal, own, measured, note, detection.gpus, shown)
    return HardwareResult(
        kind=Kind.OK,
        summary="\n".join([summary, *_told(details)]) if detail else summary,
        next_step=_next_step(checks, has_gpu=has_gpu, measured=measured is not None),
        target=_spec(goal),
        measured=measured,
        measured_pct=shares_pct(measured, own) if measured is not None and own is not None else None,
        gpus=[GpuHere(**{name: getattr(gpu, name) for name in GpuHere.model_fields}) for gpu in detection.gpus],
        checks=shown,
        details=details if detail else None,
    )


def _told(details: HardwareDetails) -> list[str]:
    """Every value that is known, in words of the fields: each form of a result stands alone."""
    parts: dict[str, Wire | None] = {"data sheet": details.data_sheet, "SM limits": details.limits}
    parts |= {f"GPU {gpu.index}": gpu for gpu in details.gpus} | {"GPU in torch": details.torch_gpu}
    lines: list[str] = []
    for name, part in parts.items():
        if part is not None:
            known = {field: value for field, value in part.model_dump().items() if value not in (None, ())}
            lines.append(f"{name}: {', '.join(f'{field} {value}' for field, value in known.items())}")
    return lines


def _spec(goal: Target) -> TargetSpec:
    gpu, limits = goal.gpu, goal.limits
    ridge = gpu.ridge_flops_per_byte if gpu is not None else None
    return TargetSpec(
        name=goal.name,
        product=gpu.product if gpu is not None else None,
        architecture=limits.architecture,
        sm_count=gpu.sm_count if gpu is not None else None,
        memory_bytes_per_s=gpu.memory_bytes_per_s if gpu is not None else None,
        l2_bytes=gpu.l2_bytes if gpu is not None else None,
        peak_bf16_dense_flops_per_s=gpu.peak_bf16_dense_flops_per_s if gpu is not None else None,
        peak_fp8_dense_flops_per_s=gpu.peak_fp8_dense_flops_per_s if gpu is not None else None,
        peak_tf32_dense_flops_per_s=gpu.peak_tf32_dense_flops_per_s if gpu is not None else None,
        peak_fp32_flops_per_s=gpu.peak_fp32_flops_per_s if gpu is not None else None,
        ridge_flops_per_byte=None if ridge is None else round(ridge, 1),
        registers_per_sm=limits.registers_per_sm,
        registers_per_thread=limits.registers_per_thread,
        shared_bytes_per_sm=limits.shared_bytes_per_sm,
        shared_bytes_per_block=limits.shared_bytes_per_block,
        warps_per_sm=limits.warps_per_sm,
        blocks_per_sm=limits.blocks_per_sm,
    )


def _next_step(checks: list[Check], *, has_gpu: bool, measured: bool) -> str:
    for check in checks:
        if check.required and check.status == "missing" and check.remedy is not None:
            return check.remedy
    then = "compile_kernel with the kernel and its task."
    return f"{MEASURING} Then {then}" if has_gpu and not measured else then


def _summary(
    goal: Target,
    own: Gpu | None,
    measured: Ceilings | None,
    note: str | None,
    gpus: list[DetectedGpu],
    checks: list[Check],
) -> str:
    same = own is not None and own == goal.gpu
    lines = [short_form(goal, measured if same else None)]
    if measured is not None and not same:
        lines.append(f"This machine's GPU is another. {reached(measured)}")
    if measured is not None and measured.absent:
        lines.append("Not measured: " + "; ".join(f"{field}: {why}" for field, why in measured.absent.items()))
    if note is not None:
        lines.append(f"Note: {note}.")
    lines += map(_here, gpus)
    for check in checks:
        remedy = f" -> {check.remedy}" if check.remedy is not None else ""
        lines.append(f"{check.status}: {check.name}: {check.detail}{remedy}")
    return "\n".join(lines)


def _here(gpu: DetectedGpu) -> str:
    """A GPU of this machine, in a line."""
    held = f", held down by {', '.join(gpu.throttle_reasons)}" if gpu.throttle_reasons else ""
    return (
        f"Here: GPU {gpu.index} {gpu.name}, SM clock {scaled(gpu.sm_clock_hz, 1e6, 'MHz')} of "
        f"{scaled(gpu.max_sm_clock_hz, 1e6, 'MHz')}{held}."
    )
