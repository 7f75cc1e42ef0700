"""A GPU in a few lines, for prompts and summaries: what a kernel's author has to know of it."""

from typing import Final, NamedTuple

from ...sandbox.facts import Vendor
from .ceilings import Ceilings
from .model import Gpu, Target


class _Words(NamedTuple):
    """What a vendor calls the parts of its GPUs."""

    sm: str
    shared: str
    warps: str


_WORDS: Final[dict[Vendor, _Words]] = {
    "nvidia": _Words("SM", "shared memory", "warps"),
    "amd": _Words("compute unit", "LDS", "waves of 64 threads"),
}


def short_form(target: Target, measured: Ceilings | None = None) -> str:
    """The target in at most five lines, some 250 tokens.

    Args:
        target: what is compiled for.
        measured: of a device of that product, where there is one.
    """
    gpu, limits = target.gpu, target.limits
    words = _WORDS[limits.vendor]
    compute_capability = f"compute capability {target.capability / 10:.1f}"
    architecture = compute_capability if limits.vendor == "nvidia" else f"AMD {limits.architecture}"
    if gpu is None:
        lines = [f"Target {target.name}: {architecture}; name a GPU for its peaks."]
    else:
        lines = [
            f"Target {gpu.name} ({gpu.product}), {architecture}: {gpu.sm_count} {words.sm}s, "
            f"memory {scaled(gpu.memory_bytes_per_s, 1e12, 'TB/s')}, L2 {scaled(gpu.l2_bytes, 1 << 20, 'MiB')}. "
            f"{_peaks(gpu)}"
        ]
        if (ridge := gpu.ridge_flops_per_byte) is not None:
            lines.append(f"Below {ridge:.0f} bf16 operations a byte of device memory a kernel is memory-bound.")
    if measured is not None:
        lines.append(reached(measured))
    lines.append(
        f"One {words.sm}: {limits.registers_per_sm:,} registers ({limits.registers_per_thread} a thread at most), "
        f"{limits.shared_bytes_per_block:,} B {words.shared} a block of {limits.shared_bytes_per_sm:,} B, "
        f"{limits.warps_per_sm} {words.warps}, {limits.blocks_per_sm} blocks."
    )
    return "\n".join(lines)


def scaled(value: float | None, unit: float, name: str) -> str:
    """A value in a unit, with four digits."""
    return "unknown" if value is None else f"{value / unit:.4g} {name}"


def _peaks(gpu: Gpu) -> str:
    peaks = {
        "bf16/fp16": gpu.peak_bf16_dense_flops_per_s,
        "fp8": gpu.peak_fp8_dense_flops_per_s,
        "tf32": gpu.peak_tf32_dense_flops_per_s,
        "fp32": gpu.peak_fp32_flops_per_s,
    }
    known = ", ".join(f"{name} {peak / 1e12:.4g}" for name, peak in peaks.items() if peak is not None)
    return f"Data-sheet peaks, dense, in TFLOP/s: {known}."


def reached(measured: Ceilings) -> str:
    """What the device reached, without what it did not tell."""
    rates = [
        ("read", measured.read_bytes_per_s, "TB/s"),
        ("copy", measured.copy_bytes_per_s, "TB/s"),
        ("write", measured.write_bytes_per_s, "TB/s"),
        ("L2 read", measured.l2_read_bytes_per_s, "TB/s"),
        ("bf16", measured.bf16_flops_per_s, "TFLOP/s"),
        ("fp8", measured.fp8_flops_per_s, "TFLOP/s"),
        ("tf32", measured.tf32_flops_per_s, "TFLOP/s"),
        ("fp32", measured.fp32_flops_per_s, "TFLOP/s"),
    ]
    told = [f"{name} {scaled(rate, 1e12, unit)}" for name, rate, unit in rates if rate is not None]
    if measured.launch_us is not None:
        told.append(f"shortest kernel {measured.launch_us:.3g} us")
    return f"Reached here ({measured.measured_at:%Y-%m-%d}): {', '.join(told) or 'nothing that could be measured'}."
