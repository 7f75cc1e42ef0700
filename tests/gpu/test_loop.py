"""The five tools on a real GPU."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.conftest import Call, example

pytestmark = [pytest.mark.gpu, pytest.mark.anyio]


def sin(part: str) -> str:
    return example("sin", part)


async def test_compiled_facts_are_those_of_the_launch_that_the_profiler_sees(call: Call) -> None:
    compiled = await call("compile_kernel", kernel=sin("candidate"), task=sin("task"), cases=["large"])
    profiled = await call("profile_ncu", kernel=sin("candidate"), task=sin("task"))
    assert profiled["kind"] == "ok", profiled
    facts, launch = compiled["launches"][0], profiled["launches"][0]
    assert launch["kernel"] == facts["kernel"] == "sin_kernel"
    assert launch["registers"] == facts["registers"]
    assert launch["grid"] == facts["grid"]
    assert launch["theoretical_occupancy_pct"] == pytest.approx(facts["theoretical_occupancy_pct"])
    assert launch["duration_us"] > 0
    assert 0 < launch["achieved_occupancy_pct"] <= 100
    assert launch["stalls"][0]["pct"] > 0
    assert profiled["artifacts"][0].endswith(".ncu-rep")


async def test_correctness_runs_on_the_gpu_on_every_case(call: Call) -> None:
    result = await call("run_correctness", kernel=sin("candidate"), task=sin("task"), seeds=2)
    assert (result["kind"], result["device"]) == ("ok", "cuda:0")
    assert [case["case"] for case in result["cases"]] == ["large", "small"]


async def test_the_better_candidate_is_measured_as_faster(call: Call) -> None:
    result = await call("benchmark", kernel=sin("candidate"), task=sin("task"), baseline=sin("baseline"))
    assert result["kind"] == "ok", result
    (case,) = result["cases"]
    assert case["comparison"] == result["score"]["comparison"] == "faster"
    assert case["ratio_low"] <= case["ratio"] <= case["ratio_high"]
    assert case["ratio"] > 20
    assert case["kernel_us"] <= case["device_us"] < case["call_us"]
    assert case["kernels"][0]["name"] == "sin_kernel"


async def test_a_kernel_against_itself_is_neither_faster_nor_slower(call: Call) -> None:
    softmax = {part: example("softmax", part) for part in ("candidate", "task")}
    result = await call(
        "benchmark", kernel=softmax["candidate"], task=softmax["task"], baseline=softmax["candidate"], cases=["train"]
    )
    assert result["cases"][0]["comparison"] in {"same", "ambiguous"}, result["summary"]


async def test_a_benchmark_without_a_baseline_compares_nothing(call: Call) -> None:
    result = await call("benchmark", kernel=sin("candidate"), task=sin("task"))
    assert result["kind"] == "ok"
    assert result["score"] is None
    assert result["cases"][0]["ratio"] is None


TASK = """
import torch

ENTRY = "double"
CASES = {"only": {"n": 1 << 20}}


def make_inputs(n, device):
    return (torch.randn(n, device=device),)


def reference(x):
    return 2 * x
"""

KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def double_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    {body}


def double(x):
    out = torch.empty_like(x)
    double_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out
"""
GOOD = KERNEL.format(body="tl.store(out_ptr + offsets, 2 * tl.load(x_ptr + offsets))")


async def evaluate(call: Call, body: str) -> dict[str, Any]:
    """Check a faulty kernel, then see that the next evaluation is not touched by it."""
    result = await call("run_correctness", kernel=KERNEL.format(body=body), task=TASK, seeds=1)
    assert (await call("run_correctness", kernel=GOOD, task=TASK, seeds=1))["kind"] == "ok"
    return result


async def test_an_illegal_address_is_a_runtime_error_and_leaves_the_gpu_usable(call: Call) -> None:
    result = await evaluate(call, "tl.store(out_ptr + (offsets.to(tl.int64) << 40), 1.0)")
    assert result["kind"] == "runtime_error"
    assert "illegal memory access" in result["problem"]["message"]
    assert result["problem"]["likely_fix"]


async def test_a_kernel_that_never_ends_is_killed_at_the_time_limit(call: Call) -> None:
    body = (
        # Volatile, or the compiler may take it that the loop ends.
        "while tl.load(x_ptr, volatile=True) < 1e30:\n        pass\n    tl.store(out_ptr + offsets, 1.0)"
    )
    result = await evaluate(call, body)
    assert result["kind"] == "timeout"


async def test_too_much_shared_memory_is_a_launch_error(call: Call) -> None:
    body = (
        "wide = tl.arange(0, 512)[:, None] * 512 + tl.arange(0, 512)[None, :]\n"
        "    a = tl.load(x_ptr + wide)\n"
        "    tl.store(out_ptr + wide, tl.dot(a, tl.trans(a)))"
    )
    result = await evaluate(call, body)
    assert result["kind"] in {"launch_error", "compile_error", "timeout"}, result
    assert result["problem"]["likely_fix"]


async def test_a_wrong_kernel_is_not_timed(call: Call) -> None:
    wrong = KERNEL.format(body="tl.store(out_ptr + offsets, 2.01 * tl.load(x_ptr + offsets))")
    result = await call("benchmark", kernel=wrong, task=TASK, baseline=GOOD)
    assert result["kind"] == "wrong"
    assert "nothing was timed" in result["summary"]


async def test_a_cached_result_is_refused_by_the_benchmark(call: Call) -> None:
    caching = GOOD + (
        "\n\n_first = double\n_cache = {}\n\n\ndef double(x):\n"
        "    if x.numel() not in _cache:\n        _cache[x.numel()] = _first(x)\n    return _cache[x.numel()]\n"
    )
    result = await call("benchmark", kernel=caching, task=TASK, baseline=GOOD)
    assert result["kind"] in {"rejected", "wrong"}
    assert result["cases"] == []


async def test_an_entry_without_a_launch_has_nothing_to_profile(call: Call, tmp_path: Path) -> None:
    torch_only = "import torch\n\n\ndef double(x):\n    return x\n"
    result = await call("profile_ncu", kernel=torch_only, task=TASK)
    assert result["kind"] == "rejected", result


async def test_restricted_counters_are_told_with_the_remedy(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Also for a worker that is nobody.
    os.chmod(tmp_path, 0o755)
    ncu = tmp_path / "ncu"
    ncu.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = --version ]; then echo "Version 2025.3.1.0 (build 1)"; exit; fi\n'
        'echo "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance '
        'Counters on the target device 0."\nexit 1\n'
    )
    ncu.chmod(0o755)
    monkeypatch.setenv("TRITONFORGE_NCU", str(ncu))
    result = await call("profile_ncu", kernel=sin("candidate"), task=sin("task"))
    assert result["kind"] == "unavailable"
    assert "NVreg_RestrictProfilingToAdminUsers=0" in result["problem"]["likely_fix"]


async def test_a_task_without_a_reference_takes_the_baseline_as_one(call: Call) -> None:
    task = TASK.replace("def reference", "def unused")
    right = await call("run_correctness", kernel=GOOD, task=task, baseline=GOOD, seeds=1)
    assert (right["kind"], right["reference"]) == ("ok", "baseline")
    wrong = KERNEL.format(body="tl.store(out_ptr + offsets, 3 * tl.load(x_ptr + offsets))")
    assert (await call("run_correctness", kernel=wrong, task=task, baseline=GOOD, seeds=1))["kind"] == "wrong"
