"""Facts and identity of recorded amdgcn."""

from collections.abc import Callable

import pytest

from tritonforge.profiling.compiler.amdgcn import AmdgcnUsage, code_hash, parse

Recorded = Callable[[str], str]


def test_a_matmul_shows_what_it_takes_and_its_matrix_instructions(recorded: Recorded) -> None:
    facts = parse(recorded("matmul_gfx942.amdgcn"))
    assert facts.entry == "matmul_kernel"
    assert facts.usage == AmdgcnUsage(
        vgprs=68, agprs=0, sgprs=32, vgpr_spills=0, sgpr_spills=0, scratch_bytes=0, lds_bytes=0
    )
    assert facts.waves_per_simd == 7
    assert set(facts.mfma) == {"v_mfma_f32_32x32x8_f16"}
    assert (set(facts.load_widths_bytes), set(facts.store_widths_bytes)) == ({16}, {8})
    assert facts.barriers > 0
    assert (facts.atomics, facts.cache_fences, facts.loads_to_lds) == (0, 0, 0)


def test_atomics_are_counted_with_the_fences_of_those_that_order_memory(recorded: Recorded) -> None:
    facts = parse(recorded("atomics_gfx942.amdgcn"))
    assert facts.entry == "atomic_kernel"
    # Four relaxed ones of a lane's elements, and one that orders: a write-back before it, an invalidation behind.
    assert (facts.atomics, facts.cache_fences) == (5, 2)
    assert facts.usage is not None
    assert facts.usage.vgprs == 23


def test_scalar_loads_are_none_of_a_lane(recorded: Recorded) -> None:
    text = recorded("scalars_gfx942.amdgcn")
    facts = parse(text)
    assert "s_load_dword" in text
    assert facts.load_widths_bytes == {4: text.count("\tglobal_load_dword ")}
    assert facts.store_widths_bytes == {4: 60}
    assert facts.usage is not None
    assert (facts.usage.vgprs < 16, facts.usage.sgprs > 100, facts.waves_per_simd) == (True, True, 7)


@pytest.mark.parametrize(
    ("instruction", "width"),
    [
        ("global_load_dwordx4 v[0:3], v4, s[0:1]", 16),
        ("global_load_dwordx3 v[0:2], v4, s[0:1]", 12),
        ("buffer_load_dwordx2 v[0:1], v4, s[0:3], 0 offen", 8),
        ("flat_load_dword v0, v[1:2]", 4),
        ("global_load_ushort v0, v4, s[0:1]", 2),
        ("global_load_short_d16_hi v0, v4, s[0:1]", 2),
        ("buffer_load_sbyte v0, v4, s[0:3], 0 offen", 1),
        ("global_load_ubyte_d16 v0, v4, s[0:1]", 1),
    ],
)
def test_an_access_has_the_width_of_its_name(instruction: str, width: int) -> None:
    assert parse(f"\t{instruction}\n").load_widths_bytes == {width: 1}
    assert parse(f"\t{instruction.replace('load_u', 'load_').replace('load', 'store')}\n").store_widths_bytes == {
        width: 1
    }


def test_loads_to_lds_pass_no_registers() -> None:
    facts = parse("\tglobal_load_lds_dword v[0:1], off\n\tbuffer_load_dword v0, s[0:3], 0 offen lds\n")
    assert (facts.loads_to_lds, facts.load_widths_bytes) == (2, {4: 2})


def test_spills_are_those_that_the_compiler_marks() -> None:
    facts = parse(
        "\tscratch_store_dwordx4 off, v[0:3], off offset:16 ; 16-byte Folded Spill\n"
        "\tscratch_store_dword off, v4, off ; 4-byte Folded Spill\n"
        "\tscratch_store_dword off, v4, off offset:4\n"
        "\tv_writelane_b32 v5, s30, 0 ; 4-byte Folded Spill\n"
        "\tscratch_load_dword v4, off, off ; 4-byte Folded Reload\n"
        "\tbuffer_store_dword v4, off, s[0:3], 0 ; 4-byte Folded Spill\n"
        "\tbuffer_load_dword v4, off, s[0:3], 0 ; 4-byte Folded Reload\n"
    )
    assert facts.spill_store_bytes == 24
    assert (facts.load_widths_bytes, facts.store_widths_bytes) == ({}, {})


def test_metadata_of_another_kernel_or_of_several_is_not_taken(recorded: Recorded) -> None:
    text = recorded("softmax_gfx942.amdgcn")
    assert parse(text).usage is not None
    assert parse(text.replace(".name:           softmax_kernel", ".name:           other")).usage is None
    assert parse(text.replace(".vgpr_count:", ".vgprs:")).usage is None
    start, end = text.index("  - .agpr_count"), text.index("amdhsa.target:")
    assert parse(text[:end] + text[start:end].replace("softmax_kernel", "other") + text[end:]).usage is None


def test_names_comments_and_positions_do_not_change_the_hash(recorded: Recorded) -> None:
    code = code_hash(recorded("softmax_gfx942.amdgcn"), 4, 16)
    assert code == code_hash(recorded("softmax_renamed_gfx942.amdgcn"), 4, 16)
    assert recorded("softmax_gfx942.amdgcn") != recorded("softmax_renamed_gfx942.amdgcn")
    text = recorded("atomics_gfx942.amdgcn")
    renamed = text.replace("shifted_sin", "moved").replace("atomic_kernel", "one")
    assert code_hash(text, 4, 16) == code_hash(renamed, 4, 16)
    moved = text.replace("\t.loc\t1 ", "\t.loc\t1 1").replace("; @", "; of @")
    assert code_hash(text, 4, 16) == code_hash(moved, 4, 16)


def test_other_code_warps_or_shared_memory_change_the_hash(recorded: Recorded) -> None:
    text = recorded("softmax_gfx942.amdgcn")
    hashes = {
        code_hash(text, 4, 16),
        code_hash(text, 8, 16),
        code_hash(text, 4, 32),
        code_hash(text.replace("v_max_f32", "v_min_f32", 1), 4, 16),
        code_hash(text.replace(".amdhsa_next_free_vgpr ", ".amdhsa_next_free_vgpr 1"), 4, 16),
        code_hash(recorded("matmul_gfx942.amdgcn"), 4, 16),
    }
    assert len(hashes) == 6


@pytest.mark.parametrize(
    "text",
    [
        "\tglobal_load_" * 20_000,
        " " * 100_000,
        "\tv_mfma_x\n" * 20_000,
        "".join(f"\tv_mfma_{number} v0\n" for number in range(5_000)),
        ".amdgpu_metadata\n" * 20_000,
        ".amdgpu_metadata\n.name: " + "x" * 100_000,
        ".amdgpu_metadata\n.vgpr_count: " + "9" * 9_000,
        "; Occupancy: " + "9" * 9_000,
        "\t.type x,@function\n" * 20_000,
        "\t.section .debug_info\n" * 20_000,
    ],
)
def test_hostile_text_is_read_in_passing_and_without_an_error(text: str) -> None:
    facts = parse(text)
    assert facts.usage is None
    assert len(facts.mfma) <= 16
    assert len(code_hash(text, 4, 0)) == 16
