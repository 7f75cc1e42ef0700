"""What an autotuner tells, references through torch.compile and entries as CUDA graphs, on a real GPU.

Each test has a process of its own: compilers and captures leave traces in theirs.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tritonforge.sandbox.isolation import WORKER_FOLDER

pytestmark = pytest.mark.gpu

HEAD = """\
import importlib.util, json, sys, tempfile
spec = importlib.util.spec_from_file_location("worker_main", sys.argv[1])
main = importlib.util.module_from_spec(spec)
spec.loader.exec_module(main)
main._load_package()
import torch
import triton
import triton.language as tl
from tritonforge_worker import compiled, failures, graphs, launches, measure, tuning

tempfile.tempdir = sys.argv[2]
launches.watch()
tuning.watch()


@triton.jit
def double_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n) * 2, mask=at < n)


def double(x):
    out = torch.empty_like(x)
    double_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out


def device_us(entry, x):
    timed = measure.Measurement(entry, (x,), [], flush_bytes=0, seed=None)
    timed.first_call()
    calls = timed.lay_out(10)["calls"]
    samples = timed.visit(0, [0] * calls)["samples"][1:]
    return sorted(sample["device_us"] for sample in samples)[len(samples) // 2]


found = {}
"""


def observe(folder: Path, body: str) -> dict[str, Any]:
    """What this code puts into `found`."""
    script = folder / "script.py"
    # Triton reads a kernel's source from its file.
    script.write_text(f"{HEAD}\n{body}\nprint()\nprint(json.dumps(found))\n")
    environment = {**os.environ, "TRITON_CACHE_DIR": str(folder / "triton-cache")}
    command = [sys.executable, str(script), str(WORKER_FOLDER / "__main__.py"), str(folder)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_an_autotuner_tells_what_it_chose_and_what_that_took(tmp_path: Path) -> None:
    found = observe(
        tmp_path,
        """
configs = [triton.Config({"BLOCK": block}, num_warps=warps) for block in (64, 1024) for warps in (1, 4)]
tuned = triton.autotune(configs, key=["n"])(double_kernel)
guided = triton.heuristics({"BLOCK": lambda arguments: triton.next_power_of_2(arguments["n"])})(double_kernel)
for size in (1 << 20, 1 << 22):
    x = torch.randn(size, device="cuda")
    for _ in range(2):
        out = torch.empty_like(x)
        tuned[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
        assert torch.equal(out, 2 * x)
guided[(1,)](x, out, 1000)
launches.unwatch()
tuning.unwatch()
found["tuned"] = tuning.report()
found["best"] = str(tuned.best_config)
found["bench_s"] = tuned.bench_time
""",
    )
    first, second, guided = found["tuned"]
    for entry, size in ((first, 1 << 20), (second, 1 << 22)):
        assert entry["kernel"] == "double_kernel"
        assert entry["configuration"].startswith("BLOCK: ")
        assert f"[n: {size}, float32" in entry["configuration"]
        assert entry["configurations"] == 4
    assert second["configuration"].partition(",")[0] in found["best"]
    assert second["tuning_s"] == pytest.approx(found["bench_s"], rel=0.1)
    assert guided == {
        "kernel": "double_kernel", "configuration": "BLOCK: 1024", "configurations": 1, "tuning_s": None,
    }  # fmt: skip


def test_a_compiled_reference_is_right_and_faster_than_its_parts(tmp_path: Path) -> None:
    found = observe(
        tmp_path,
        """
def reference(x):
    return torch.nn.functional.gelu(x * 2 + 1).tanh() * x

x = torch.randn(1 << 24, device="cuda")
entry = compiled.compiled(reference, (x,))
torch.testing.assert_close(entry(x), reference(x))
found["eager_us"], found["compiled_us"] = device_us(reference, x), device_us(entry, x)
""",
    )
    assert found["compiled_us"] < 0.6 * found["eager_us"]
    assert (tmp_path / "inductor-cache").is_dir()


def test_a_scratch_folder_that_takes_nothing_is_told_in_one_line(tmp_path: Path) -> None:
    found = observe(
        tmp_path,
        """
tempfile.tempdir = "/proc/nowhere"
try:
    compiled.compiled(lambda x: x * 2, (torch.ones(4, device="cuda"),))
except failures.Refused as error:
    found["message"] = str(error)
""",
    )
    assert "\n" not in found["message"]
    assert found["message"].startswith("torch.compile can't compile the reference: ")


def test_a_replayed_graph_takes_the_device_as_long_and_the_host_less(tmp_path: Path) -> None:
    found = observe(
        tmp_path,
        """
def entry(x):
    for _ in range(8):
        x = double(x)
    return x

x = torch.randn(1 << 20, device="cuda")
timed = measure.Measurement(entry, (x,), [], flush_bytes=0, seed=None)
timed.first_call()
timed.lay_out(10)
found["call_us"] = sorted(timed.call_times(11))[5]
launches.unwatch()
found["graph"] = graphs.floor(entry, (x,), 21)
flush = measure.L2Flush(512 << 20)
found["flushed"] = graphs.floor(entry, (x,), 21, flush)
y = double(x)
assert torch.equal(y, 2 * x)
""",
    )
    assert found["graph"].keys() == found["flushed"].keys() == {"graph_call_us", "graph_device_us"}
    assert 1 < found["graph"]["graph_device_us"] < found["graph"]["graph_call_us"] < found["call_us"]
    assert found["flushed"]["graph_device_us"] > found["graph"]["graph_device_us"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("    return x * float(x.sum())", "the entry can't be captured into a CUDA graph: "),
        ("    torch.cuda.synchronize()\n    return double(x)", "the entry can't be captured into a CUDA graph: "),
        (
            "    with torch.cuda.stream(beside):\n        double(x)\n    return double(x)",
            "the entry can't be captured into a CUDA graph: ",
        ),
        (
            "    with torch.cuda.stream(beside):\n        kept.add_(1)\n    return double(x)",
            "its graph does 1 of the 2 ",
        ),
        ("    return x", "a call puts nothing on the device"),
    ],
)
def test_what_cannot_be_captured_whole_is_told(tmp_path: Path, body: str, reason: str) -> None:
    found = observe(
        tmp_path,
        f"""
beside = torch.cuda.Stream()
kept = torch.zeros(1 << 16, device="cuda")

def entry(x):
{body}

found.update(graphs.floor(entry, (torch.randn(1 << 16, device="cuda"),), 5))
""",
    )
    assert found["reason"].startswith(reason)


def test_results_that_a_graph_holds_and_fills_are_no_kernels_only(tmp_path: Path) -> None:
    found = observe(
        tmp_path,
        """
def entry(x):
    out = torch.zeros(1 << 20, device="cuda")
    out.copy_(x)
    return double(out), out.clone()

found.update(graphs.floor(entry, (torch.randn(1 << 20, device="cuda"),), 5))
""",
    )
    assert found["graph_device_us"] > 0
