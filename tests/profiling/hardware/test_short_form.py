"""A GPU in a few lines: what is known of it, in its vendor's words, and nothing that is not known."""

from datetime import UTC, datetime

import pytest

from tritonforge.profiling.hardware.catalog import resolve_target, target_names
from tritonforge.profiling.hardware.ceilings import Ceilings
from tritonforge.profiling.hardware.short_form import short_form

CHARACTERS_LIMIT = 250 * 3
"""250 tokens: texts full of numbers have some 3 characters a token."""
MEASURED = Ceilings(
    read_bytes_per_s=4.417e12,
    copy_bytes_per_s=4.2e12,
    write_bytes_per_s=4.0e12,
    l2_read_bytes_per_s=6.5e12,
    fp32_flops_per_s=60e12,
    tf32_flops_per_s=350e12,
    bf16_flops_per_s=760e12,
    fp8_flops_per_s=1300e12,
    launch_us=1.234,
    uuid="GPU-1",
    torch="2.11.0",
    measured_at=datetime(2026, 11, 30, 12, tzinfo=UTC),
)


def test_a_product_is_told_with_its_peaks_its_ridge_and_the_limits_of_an_sm() -> None:
    assert short_form(resolve_target("h100")).splitlines() == [
        "Target h100-sxm (H100 SXM5 80 GB), compute capability 9.0: 132 SMs, memory 3.35 TB/s, L2 50 MiB. "
        "Data-sheet peaks, dense, in TFLOP/s: bf16/fp16 989.4, fp8 1979, tf32 494.7, fp32 66.9.",
        "Below 295 bf16 operations a byte of device memory a kernel is memory-bound.",
        "One SM: 65,536 registers (255 a thread at most), 232,448 B shared memory a block of 233,472 B, 64 warps, "
        "32 blocks.",
    ]


def test_what_was_measured_stands_beside_the_data_sheet() -> None:
    (line,) = [line for line in short_form(resolve_target("h200"), MEASURED).splitlines() if "Reached" in line]
    assert line == (
        "Reached here (2026-11-30): read 4.417 TB/s, copy 4.2 TB/s, write 4 TB/s, L2 read 6.5 TB/s, bf16 760 TFLOP/s, "
        "fp8 1300 TFLOP/s, tf32 350 TFLOP/s, fp32 60 TFLOP/s, shortest kernel 1.23 us."
    )


def test_what_is_not_known_is_left_out_or_unknown_and_never_zero() -> None:
    text = short_form(resolve_target("h200-nvl"), MEASURED.model_copy(update={"fp8_flops_per_s": None}))
    assert "L2 unknown" in text
    assert "fp8 1671" in text
    assert "fp8 1300" not in text
    assert "fp8" not in short_form(resolve_target("a100"))
    nothing = MEASURED.model_copy(update=dict.fromkeys(MEASURED.model_fields_set - {"uuid", "torch", "measured_at"}))
    assert "Reached here (2026-11-30): nothing that could be measured." in short_form(resolve_target("h200"), nothing)


def test_a_bare_architecture_has_no_peaks() -> None:
    text = short_form(resolve_target("sm_90"))
    assert text.startswith("Target sm_90: compute capability 9.0; name a GPU for its peaks.")
    assert "TFLOP/s" not in text


def test_amds_gpus_are_told_in_amds_words() -> None:
    text = short_form(resolve_target("mi300x"))
    assert "AMD gfx942: 304 compute units" in text
    assert "65,536 B LDS a block" in text


@pytest.mark.parametrize("name", target_names())
def test_it_is_short_enough_for_every_prompt(name: str) -> None:
    assert len(short_form(resolve_target(name), MEASURED)) <= CHARACTERS_LIMIT
