"""Launches on AMD's GPUs in the record that they share with NVIDIA's."""

from collections.abc import Callable

import pytest

from tritonforge.profiling.compiler.amd import build
from tritonforge.profiling.compiler.launch import LaunchFacts
from tritonforge.profiling.hardware.catalog import resolve_target
from tritonforge.profiling.hardware.model import Target
from tritonforge.sandbox.facts import CapturedLaunch

MI300X = resolve_target("mi300x")
GFX942 = resolve_target("gfx942")
Recorded = Callable[[str], str]
NVIDIAS = {
    "async_copies",
    "tma_copies",
    "sync_loads_beside_dots",
    "layout_conversions_in_loops",
    "acq_rel_atomics",
}


Matmul = Callable[..., LaunchFacts]
"""The recorded matmul, launched as told."""


def launched(**changed: object) -> CapturedLaunch:
    """A launch of 4 waves and 8 KiB on a grid of 4,096 workgroups."""
    fields: dict[str, object] = {
        "kernel": "kernel", "symbol": "kernel", "grid": (4096, 1, 1), "count": 1, "tuning": False, "num_warps": 4,
        "num_stages": 2, "num_ctas": 1, "shared_bytes": 8192, "constexprs": {}, "signature": {}, "divisible_by_16": [],
        "line": None, "ptxas_log": None, "assembly": {},
    }  # fmt: skip
    return CapturedLaunch.model_validate({**fields, **changed})


@pytest.fixture
def matmul(recorded: Recorded) -> Matmul:
    def launch(**changed: object) -> LaunchFacts:
        code, ir = recorded("matmul_gfx942.amdgcn"), recorded("matmul_gfx942.ttgir")
        return build(launched(**changed), code, ir, MI300X)

    return launch


def test_a_matmul_is_described_from_end_to_end(matmul: Matmul) -> None:
    facts = matmul()
    assert (facts.registers, facts.spill_bytes, facts.stack_bytes, facts.shared_bytes) == (68, 0, 0, 8192)
    # 68 registers take 72 of 512: 7 waves on each of 4 SIMDs, of 8.
    assert (facts.blocks_per_sm, facts.occupancy_limiter, facts.theoretical_occupancy_pct) == (7, "registers", 87.5)
    assert (facts.registers_for_next_block, facts.shared_bytes_for_next_block) == (64, 8192)
    assert facts.waves == round(4096 / (304 * 7), 3)
    assert facts.mma == "mfma"
    assert [(dot.m, dot.n, dot.k) for dot in facts.dots] == [(64, 64, 32)] * 2
    assert (facts.load_widths_bytes, facts.store_widths_bytes) == ([16], [8])
    assert (facts.elements_per_program_max, facts.element_bytes) == (64 * 64, 2)
    assert (facts.load_tile_bytes, facts.store_tile_bytes) == (64 * 32 * 2, 64 * 64 * 2)
    assert (facts.warp_specialized, facts.pipeline_buffers) == (False, 1)
    assert facts.amd is not None
    assert facts.amd.sgprs == 32
    assert set(facts.amd.mfma) == {"v_mfma_f32_32x32x8_f16"}


def test_what_only_nvidia_has_is_null_and_says_so(matmul: Matmul) -> None:
    facts = matmul()
    assert {name for name, value in facts.model_dump().items() if value is None} == NVIDIAS
    assert set(facts.absent) == NVIDIAS
    assert all(reason.startswith("an NVIDIA fact: ") for reason in facts.absent.values())


@pytest.mark.parametrize("target", [MI300X, GFX942])
@pytest.mark.parametrize("name", ["matmul", "atomics", "scalars", "softmax"])
def test_each_null_has_its_reason_and_each_reason_its_null(recorded: Recorded, name: str, target: Target) -> None:
    ir = recorded("matmul_gfx942.ttgir")
    for code, text in ((recorded(f"{name}_gfx942.amdgcn"), ir), ("", ""), (recorded(f"{name}_gfx942.amdgcn"), "")):
        for shared_bytes in (0, 8192, 1 << 20):
            facts = build(launched(shared_bytes=shared_bytes), code, text, target)
            assert {field for field, value in facts.model_dump().items() if value is None} == set(facts.absent)


def test_code_without_its_metadata_has_no_resources(recorded: Recorded) -> None:
    facts = build(launched(), "\tv_mfma_f32_32x32x8_f16 a, b\n", "", MI300X)
    assert (facts.registers, facts.spill_bytes, facts.theoretical_occupancy_pct, facts.amd) == (None,) * 4
    assert facts.absent["registers"] == "the amdgcn does not hold this kernel's metadata"
    assert facts.mma == "mfma"


def test_spills_scratch_and_static_lds_are_the_kernels(recorded: Recorded) -> None:
    code = recorded("softmax_gfx942.amdgcn")
    for name, value in (
        ("vgpr_spill_count:", 2),
        ("sgpr_spill_count:", 3),
        ("private_segment_fixed_size:", 24),
        ("group_segment_fixed_size:", 512),
        ("agpr_count:    ", 8),
    ):
        assert f".{name} 0" in code
        code = code.replace(f".{name} 0", f".{name} {value}")
    code = code.replace("\ts_endpgm", "\tscratch_store_dwordx2 off, v[0:1], off ; 8-byte Folded Spill\n\ts_endpgm")
    facts = build(launched(), code, "", MI300X)
    assert (facts.spill_bytes, facts.stack_bytes, facts.shared_bytes) == (8, 24, 8192 + 512)
    assert facts.amd is not None
    assert (facts.amd.vgpr_spills, facts.amd.sgpr_spills, facts.amd.agprs) == (2, 3, 8)


def test_atomics_are_told_with_their_fences(recorded: Recorded) -> None:
    facts = build(launched(), recorded("atomics_gfx942.amdgcn"), "", MI300X)
    assert facts.amd is not None
    assert (facts.atomics, facts.amd.cache_fences, facts.acq_rel_atomics) == (5, 2, None)


def test_blocks_of_one_wave_need_no_barrier(recorded: Recorded) -> None:
    code = recorded("softmax_gfx942.amdgcn")
    one, two = (build(launched(num_warps=warps, shared_bytes=0), code, "", MI300X) for warps in (1, 2))
    assert (one.blocks_per_sm, one.theoretical_occupancy_pct) == (32, 100)
    assert (two.blocks_per_sm, two.theoretical_occupancy_pct) == (16, 100)


def test_scalar_registers_limit_by_the_compilers_own_count(recorded: Recorded) -> None:
    facts = build(launched(num_warps=1, shared_bytes=0), recorded("scalars_gfx942.amdgcn"), "", MI300X)
    assert (facts.blocks_per_sm, facts.occupancy_limiter) == (28, "registers")
    # Fewer vector registers would not help.
    assert facts.registers_for_next_block is None


def test_lds_limits_the_blocks(matmul: Matmul) -> None:
    facts = matmul(shared_bytes=32_768)
    assert (facts.blocks_per_sm, facts.occupancy_limiter, facts.theoretical_occupancy_pct) == (2, "shared_memory", 25)
    assert facts.shared_bytes_for_next_block == 21_504
    assert matmul(shared_bytes=65_537).blocks_per_sm == 0


def test_an_architecture_has_no_number_of_compute_units(recorded: Recorded) -> None:
    facts = build(launched(), recorded("matmul_gfx942.amdgcn"), "", GFX942)
    assert facts.blocks_per_sm == 7
    assert "gfx942 is an architecture" in facts.absent["waves"]


@pytest.mark.parametrize("dialect", ["amdg", "amdgpu"])
@pytest.mark.parametrize("types", [": tensor<64x32xbf16, #b>", ": !tt.ptr<bf16> -> tensor<64x32xbf16, #b>"])
def test_loads_and_stores_of_amds_own_dialect_are_seen(dialect: str, types: str) -> None:
    ir = (
        f"%x = {dialect}.buffer_load %a[%o] {{contiguity = 8 : i32}} {types}\n{dialect}.buffer_store %x, %a[%o] {types}"
    )
    facts = build(launched(), "", ir, MI300X)
    assert (facts.elements_per_program_max, facts.element_bytes) == (64 * 32, 2)
    assert facts.load_tile_bytes == facts.store_tile_bytes == 64 * 32 * 2


def test_why_nothing_was_linked_is_told_on_one_line(recorded: Recorded) -> None:
    code = recorded("softmax_gfx942.amdgcn")
    assert "hsaco" not in build(launched(), code, "", MI300X).absent
    facts = build(launched(ptxas_log="not linked:\n" + "x" * 10_000), code, "", MI300X)
    assert facts.absent["hsaco"].startswith("not linked:?xxx")
    assert len(facts.absent["hsaco"]) == 400


def test_the_record_survives_the_wire(matmul: Matmul) -> None:
    facts = matmul()
    assert LaunchFacts.model_validate_json(facts.model_dump_json()) == facts
