# pyright: basic
# The worker's modules have no name that a type checker could resolve: they are loaded from their folder.
"""What a worker tells of the GPU that torch sees, by a made-up device."""

from types import SimpleNamespace

import pytest
import torch

from tritonforge.sandbox.facts import GpuFacts

H200 = {
    "name": "NVIDIA H200",
    "major": 9,
    "minor": 0,
    "multi_processor_count": 132,
    "total_memory": 143_771 << 20,
    "L2_cache_size": 60 << 20,
}
SM = {
    "shared_memory_per_multiprocessor": 233_472,
    "shared_memory_per_block_optin": 232_448,
    "regs_per_multiprocessor": 65_536,
    "max_threads_per_multi_processor": 2048,
    "warp_size": 32,
}


def described(worker, monkeypatch: pytest.MonkeyPatch, properties: dict[str, object]) -> GpuFacts:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(**properties))
    return GpuFacts.model_validate(worker.environment.describe_gpu()["gpu"])


def test_the_limits_of_an_sm_are_those_that_torch_tells(worker, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = described(worker, monkeypatch, {**H200, **SM})
    assert (gpu.name, gpu.capability, gpu.sm_count, gpu.l2_bytes) == ("NVIDIA H200", 90, 132, 60 << 20)
    assert (gpu.shared_bytes_per_sm, gpu.shared_bytes_per_block) == (233_472, 232_448)
    assert (gpu.registers_per_sm, gpu.threads_per_sm, gpu.warp_threads) == (65_536, 2048, 32)


def test_what_a_build_of_torch_does_not_tell_is_null(worker, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = described(worker, monkeypatch, H200)
    assert (gpu.shared_bytes_per_sm, gpu.shared_bytes_per_block) == (None, None)
    assert (gpu.registers_per_sm, gpu.threads_per_sm, gpu.warp_threads) == (None, None, None)


def test_without_a_gpu_there_is_a_problem_with_its_fix(worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    problem = worker.environment.describe_gpu()["problem"]
    assert "torch" in problem["message"]
    assert "NVIDIA GPU" in problem["fix"]
