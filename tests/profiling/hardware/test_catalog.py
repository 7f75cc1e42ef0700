"""From names to numbers: targets that people write, and devices that call themselves something."""

from pathlib import Path

import pytest

from tritonforge.profiling.hardware import catalog
from tritonforge.profiling.hardware.catalog import UnknownTarget, find_gpu, resolve_target, target_names

MIB = 1 << 20


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("h100-sxm", "h100-sxm"),
        ("h100", "h100-sxm"),
        ("H100 SXM", "h100-sxm"),
        ("h100_pcie", "h100-pcie"),
        ("NVIDIA H200", "h200"),
        (" H200-SXM ", "h200"),
        ("gh200", "gh200-96"),
        ("RTX 4090", "rtx-4090"),
        ("b200", "b200"),
    ],
)
def test_a_product_is_found_however_it_is_spelled(given: str, found: str) -> None:
    target = resolve_target(given)
    assert target.name == found
    assert target.gpu is not None
    assert target.gpu.name == found


@pytest.mark.parametrize("given", ["sm_90", "sm_90a", "sm90", "SM-90", "sm_90 "])
def test_a_bare_architecture_has_limits_and_no_product(given: str) -> None:
    target = resolve_target(given)
    assert (target.name, target.capability, target.gpu) == ("sm_90", 90, None)
    assert target.limits.shared_bytes_per_block == 232_448


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("gfx942", "gfx942"),
        ("GFX942", "gfx942"),
        ("cdna3", "gfx942"),
        ("AMD CDNA3", "gfx942"),
        ("mi300x", "mi300x"),
        ("AMD Instinct MI325X", "mi325x"),
    ],
)
def test_amds_targets_are_found_too(given: str, name: str) -> None:
    target = resolve_target(given)
    assert target.name == name
    assert (target.gpu.name if target.gpu else "gfx942") == name
    limits = target.limits
    assert (limits.vendor, limits.architecture, limits.warp_threads) == ("amd", "gfx942", 64)
    assert limits.shared_bytes_per_block == 65_536


def test_an_architecture_has_the_name_that_its_vendor_gave_it() -> None:
    for gpu in catalog.gpus():
        limits = resolve_target(gpu.name).limits
        assert limits.vendor == ("amd" if gpu.product.startswith("AMD") else "nvidia")
        if limits.vendor == "nvidia":
            assert (limits.architecture, limits.warp_threads) == (f"sm_{gpu.capability}", 32)


def test_an_unknown_target_is_answered_with_the_nearest_and_all_names() -> None:
    with pytest.raises(UnknownTarget) as raised:
        resolve_target("h100-sxn")
    assert raised.value.nearest == "h100-sxm"
    message = str(raised.value)
    assert "'h100-sxn'" in message
    assert all(name in message for name in ("Nearest: h100-sxm", "h200", "h100,", "sm_90"))


@pytest.mark.parametrize("given", ["", "sm_", "sm_75", "sm_900", "sm_94", "gfx90a", "tpu", "sm_90x"])
def test_what_the_catalogue_does_not_hold_is_refused(given: str) -> None:
    with pytest.raises(UnknownTarget):
        resolve_target(given)


def test_a_mistyped_architecture_is_answered_with_its_usual_spelling() -> None:
    with pytest.raises(UnknownTarget) as raised:
        resolve_target("sm_91")
    assert raised.value.nearest == "sm_90"


def test_every_name_resolves_and_no_two_products_share_one() -> None:
    names = target_names()
    assert len(names) == len(set(names))
    assert len(names) > len(catalog.gpus())
    for name in names:
        assert resolve_target(name)
    aliases = [alias for gpu in catalog.gpus() for alias in (gpu.name, *gpu.aliases)]
    assert len(aliases) == len(set(aliases))


@pytest.mark.parametrize(
    ("device", "mib", "sms", "found"),
    [
        ("NVIDIA H200", 143_771, 132, "h200"),
        ("NVIDIA H100 80GB HBM3", 81_559, 132, "h100-sxm"),
        ("NVIDIA H100 PCIe", 81_559, 114, "h100-pcie"),
        ("NVIDIA H100 NVL", 95_830, None, "h100-nvl"),
        ("NVIDIA GH200 480GB", 97_871, None, "gh200-96"),
        ("NVIDIA A100-SXM4-80GB", 81_920, 108, "a100-sxm"),
        ("NVIDIA A100-SXM4-40GB", 40_960, 108, "a100-sxm-40gb"),
        ("NVIDIA L4", 23_034, 58, "l4"),
        ("NVIDIA GeForce RTX 4090", 24_564, 128, "rtx-4090"),
    ],
)
def test_a_device_is_found_by_what_it_calls_itself(device: str, mib: int, sms: int | None, found: str) -> None:
    gpu = find_gpu(device, mib * MIB, sms)
    assert gpu is not None
    assert gpu.name == found


@pytest.mark.parametrize(
    ("device", "mib", "sms"),
    [
        ("NVIDIA H200", 143_771, 114),
        ("NVIDIA H200", 18_000, 132),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 9_984, 16),
        ("NVIDIA GeForce RTX 4090 D", 24_564, 114),
        ("NVIDIA H20", 143_771, 78),
        ("Tesla T4", None, None),
    ],
)
def test_a_slice_or_an_unlisted_variant_is_not_taken_for_the_product(
    device: str, mib: int | None, sms: int | None
) -> None:
    assert find_gpu(device, mib * MIB if mib else None, sms) is None


def test_a_device_is_found_by_its_name_alone_where_nothing_more_is_known() -> None:
    gpu = find_gpu("NVIDIA H200", None, None)
    assert gpu is not None
    assert gpu.name == "h200"


def test_peaks_are_dense_and_in_plain_units() -> None:
    gpu = resolve_target("h100").gpu
    assert gpu is not None
    assert gpu.peak_bf16_dense_flops_per_s == 989.4e12
    assert gpu.memory_bytes_per_s == 3.35e12
    assert gpu.peak_fp8_dense_flops_per_s == pytest.approx(2 * 989.4e12, rel=1e-3)


def test_what_is_not_known_is_null_and_every_entry_names_its_source() -> None:
    h100_nvl = resolve_target("h100-nvl").gpu
    assert h100_nvl is not None
    assert h100_nvl.boost_clock_hz is None
    a100 = resolve_target("a100-sxm").gpu
    assert a100 is not None
    assert a100.peak_fp8_dense_flops_per_s is None
    assert all(gpu.source for gpu in catalog.gpus())
    assert resolve_target("sm_80").limits.source


def test_tensor_peaks_of_every_product_keep_their_usual_proportions() -> None:
    for gpu in catalog.gpus():
        assert gpu.peak_bf16_dense_flops_per_s is not None
        assert gpu.peak_tf32_dense_flops_per_s is not None
        assert gpu.peak_bf16_dense_flops_per_s == pytest.approx(2 * gpu.peak_tf32_dense_flops_per_s, rel=0.02)
        if gpu.peak_fp8_dense_flops_per_s is not None:
            assert gpu.peak_fp8_dense_flops_per_s == pytest.approx(2 * gpu.peak_bf16_dense_flops_per_s, rel=0.02)


def test_limits_leave_a_kibibyte_of_shared_memory_to_the_system() -> None:
    for name in target_names():
        limits = resolve_target(name).limits
        reserved = limits.shared_bytes_per_sm - limits.shared_bytes_per_block
        assert reserved == limits.shared_bytes_reserved_per_block


def test_the_catalogue_lies_beside_its_module() -> None:
    assert Path(catalog.__file__).with_name("catalog.toml").is_file()
