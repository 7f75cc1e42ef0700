# pyright: basic
# The worker's modules are loaded from their folder, so their types are unknown here.
"""Launches: what ran, whose it is and what memory it was given; and stores past a tensor's end are seen.

Triton decides once in a process whether kernels are interpreted, so each sort has a process of its own, which runs all
entries and tells what it saw.
"""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tritonforge.sandbox.isolation import WORKER_FOLDER

KERNELS = """\
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def double(x_ptr, out_ptr, n, SHIFT: tl.constexpr = 0, BLOCK: tl.constexpr = 32):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at + SHIFT, tl.load(x_ptr + at, mask=at < n) * 2, mask=at < n)


@triton.jit
def named(function, original, executor, seen, BLOCK: tl.constexpr):
    tl.store(executor + tl.arange(0, BLOCK), tl.load(function + tl.arange(0, BLOCK)))


@triton.jit
def described(source, target, BLOCK: tl.constexpr):
    target.store([0], source.load([0]))


@triton.jit
def through(addresses, out_address, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x_ptr = tl.load(addresses).to(tl.pointer_type(tl.float32))
    tl.store(out_address.to(tl.pointer_type(tl.float32)) + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)


def launch(x, out, **options):
    double[(triton.cdiv(x.numel(), 32),)](x, out, x.numel(), **options)
    return out


def honest(x):
    return launch(x, torch.empty_like(x))


def past_output(x):
    return launch(x, torch.empty_like(x), SHIFT=1)


def before_output(x):
    return launch(x, torch.empty_like(x), SHIFT=-1)


def before_input(x):
    launch(x, x, SHIFT=-1)
    return x


def partial(x):
    out = torch.empty_like(x)
    double[(1,)](x, out, 3)
    return out


def keywords(x):
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    double[(4,)](x_ptr=x, n=x.numel(), out_ptr=out)
    return out


def names(x):
    out = torch.empty(16)
    named[(1,)](original=x, function=x, executor=out, seen=x, BLOCK=16)
    return out


def several(x):
    out = launch(x, launch(x, torch.empty_like(x)))
    double[lambda meta: (triton.cdiv(100, meta["BLOCK"]),)](out, out, 100)
    return out


def autotuned(x):
    def bench(call, quantiles):
        call()
        return [float(torch.zeros(3).add(1).sum())] * 3

    configs = [triton.Config({"BLOCK": size}) for size in (32, 64)]
    tuned = triton.autotune(configs, key=["n"], do_bench=bench)(double)
    out = torch.empty_like(x)
    tuned[lambda meta: (triton.cdiv(100, meta["BLOCK"]),)](x, out, 100)
    return out


def guided(x):
    out = torch.empty_like(x)
    triton.heuristics({"BLOCK": lambda arguments: 128})(double)[(1,)](x, out, 100)
    return out


def warmed_up(x):
    double.run(x, x, 100, grid=(4,), warmup=True)
    return x


def empty_grid(x):
    double[(0,)](x, x, 100)
    double[lambda meta: (4, 0)](x, x, 100)
    return x


def grid_that_computes(x):
    out = torch.empty_like(x)
    double[lambda meta: (int(torch.zeros(4).add(1).sum()),)](x, out, 100)
    return out


def descriptors(x):
    out = torch.empty_like(x)
    described[(1,)](TensorDescriptor.from_tensor(x, [16]), TensorDescriptor.from_tensor(out, [16]), BLOCK=16)
    return out


def addresses(x):
    out = torch.zeros_like(x)
    through[(1,)](torch.tensor([x.data_ptr()]), out.data_ptr(), 100, BLOCK=128)
    return out


def reinterpreted(x):
    out = torch.empty_like(x)
    double[(4,)](triton.reinterpret(x, tl.float32), triton.reinterpret(out, tl.float32), 100)
    return out


def foreign(x):
    from installed import double as theirs

    out = torch.empty_like(x)
    theirs[(4,)](x, out, 100)
    return out


def torch_only(x):
    return x * 2


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return launch(x, torch.empty_like(x))

    @staticmethod
    def backward(ctx, grad):
        return launch(grad.contiguous(), torch.empty_like(grad, memory_format=torch.contiguous_format))


def differentiable(x):
    x.requires_grad_()
    Double.apply(x).sum().backward()
    return x.grad


def past_gradient(x):
    class Past(Double):
        @staticmethod
        def backward(ctx, grad):
            return launch(grad.contiguous(), torch.empty(100), SHIFT=2)

    x.requires_grad_()
    Past.apply(x).sum().backward()
    return x.grad


def view_of_view(x):
    return launch(x.view(10, 10)[2:, 1:].t().contiguous(), torch.empty(80)[4:76])
"""

SCRIPT = """\
import importlib.util, json, sys
spec = importlib.util.spec_from_file_location("worker_main", sys.argv[1])
main = importlib.util.module_from_spec(spec)
spec.loader.exec_module(main)
main._load_package()
import torch
import triton
from triton.runtime.interpreter import GridExecutor
from tritonforge_worker import canary, failures, guard, launches, load, remap

if sys.argv[2] == "capture":
    from tritonforge_worker import capture

    capture.install({
        "vendor": "nvidia", "warp_threads": 32, "capability": 90, "sm_count": 132, "registers_per_sm": 65536,
        "shared_bytes_per_block": 232448,
    })
else:
    from tritonforge_worker import interpreter

    interpreter.install()
known = launches.JITFunction.run
launches.watch()
launches.watch()
# Each launch is recorded once.
assert launches.JITFunction.run.__wrapped__ is known
launches.unwatch()
assert launches.JITFunction.run is known
launches.watch()
sources = failures.Sources()
text = open(sys.argv[3]).read()
kernels = load.load_module(text, name="kernel", shown_as="kernel.py", stage="load", origin=None, sources=sources)
key = bytes([7, 201, 33, 94, 150, 61, 240, 18])
seen = {}
for name in sys.argv[4:]:
    guards = guard.Guards("cpu", key, sources)
    x = guards.place((torch.arange(100.0),))[0]
    launches.reset()
    with remap.cuda_on_cpu(90, 132, "h100"), guards.watching():
        out = getattr(kernels, name)(x)
    labels = guards.labels()
    seen[name] = {
        "launched": launches.launched(),
        "touched": [launches.touched(tensor.data_ptr()) for tensor in (x, out)],
        "touched_other": launches.touched(torch.empty(1000).data_ptr()),
        "broken": [
            [labels[each["index"]], each["side"], each["distance"], each["bytes"]]
            for each in canary.broken(guards.margins(), key)
        ],
        "labels": labels,
        "operations": guards.operations,
        "nan": int(out.isnan().sum()),
        "out": out.nan_to_num(-1.0).tolist(),
    }
counts = []
owner, method = (launches.JITFunction, "run") if sys.argv[2] == "capture" else (GridExecutor, "__call__")
inner = getattr(owner, method)
# Another wrapper around ours keeps it from being taken away.
outer = lambda self, /, *args, **kwargs: inner(self, *args, **kwargs)
setattr(owner, method, outer)
for change in (launches.watch, launches.unwatch, launches.watch, launches.unwatch):
    launches.reset()
    change()
    with remap.cuda_on_cpu(90, 132, "h100"):
        kernels.honest(torch.ones(100))
    counts.append(sum(launch["count"] for launch in launches.launched()))
assert counts == [1, 0, 1, 0], counts
assert getattr(owner, method) is outer
print(json.dumps(seen))
"""

DOUBLED = [2.0 * number for number in range(100)]
COPIED = [float(number) for number in range(100)]
HONEST = {
    "honest": DOUBLED,
    "keywords": DOUBLED,
    "names": COPIED[:16],
    "several": [2.0 * number for number in DOUBLED],
    "autotuned": DOUBLED,
    "guided": DOUBLED,
    "grid_that_computes": DOUBLED,
    "addresses": COPIED,
    "reinterpreted": DOUBLED,
    "foreign": DOUBLED,
    "torch_only": DOUBLED,
    "differentiable": [2.0] * 100,
    "warmed_up": COPIED,
    "empty_grid": COPIED,
    "view_of_view": [2.0 * (10 * row + column) for column in range(1, 10) for row in range(2, 10)],
}
OTHERS = ["past_output", "before_output", "before_input", "partial", "past_gradient", "descriptors"]


def line_of(code):
    """Where the only line with ``code`` stands."""
    (line,) = [number for number, text in enumerate(KERNELS.splitlines(), 1) if code in text]
    return f"kernel.py line {line}"


def observe(folder, sort, names):
    file = folder / "kernels.py"
    file.write_text(KERNELS)
    # A package that is installed.
    packages = folder / "lib" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "installed.py").write_text(KERNELS)
    environment = {**os.environ, "PYTHONPATH": str(packages), "TRITON_CACHE_DIR": str(folder / "cache")}
    environment["TRITON_INTERPRET"] = "1" if sort == "interpret" else "0"
    command = [sys.executable, "-c", SCRIPT, str(WORKER_FOLDER / "__main__.py"), sort, str(file), *names]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory):
    """What was seen of each entry in the interpreter."""
    return observe(tmp_path_factory.mktemp("interpret"), "interpret", [*HONEST, *OTHERS])


@pytest.fixture(scope="module")
def captured(tmp_path_factory):
    """What was seen of entries whose kernels are compiled; no GPU runs them."""
    names = ["honest", "several", "autotuned", "guided", "keywords", "names", "warmed_up", "empty_grid", "foreign"]
    names += ["descriptors", "torch_only", "differentiable", "grid_that_computes"]
    return observe(tmp_path_factory.mktemp("capture"), "capture", names)


# Margins.


@pytest.mark.parametrize("name", HONEST)
def test_honest_entries_compute_the_same_and_leave_all_margins_alone(interpreted, name):
    seen = interpreted[name]
    assert seen["out"] == HONEST[name]
    assert seen["broken"] == []


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("past_output", [f"float32 (100,) from torch.empty_like, {line_of('SHIFT=1)')}", "after", 0, 4]),
        ("before_output", [f"float32 (100,) from torch.empty_like, {line_of('_like(x), SHIFT=-1)')}", "before", 0, 4]),
        ("before_input", ["input[0]", "before", 0, 4]),
        ("past_gradient", [f"float32 (100,) from torch.empty, {line_of('SHIFT=2)')}", "after", 0, 8]),
    ],
)
def test_a_store_beside_a_tensor_is_seen(interpreted, name, broken):
    assert interpreted[name]["broken"] == [broken]


def test_what_a_kernel_leaves_unwritten_is_nan(interpreted):
    seen = interpreted["partial"]
    assert seen["nan"] == 97
    assert seen["out"][:3] == [0.0, 2.0, 4.0]


# Launches.


@pytest.mark.parametrize(
    ("name", "kernel", "count"),
    [
        ("honest", "double", 1),
        ("keywords", "double", 1),
        ("names", "named", 1),
        ("several", "double", 3),
        ("guided", "double", 1),
        ("descriptors", "described", 1),
        ("differentiable", "double", 2),
        ("grid_that_computes", "double", 1),
    ],
)
def test_launches_are_counted_by_kernel(interpreted, captured, name, kernel, count):
    for seen in (interpreted[name], captured[name]):
        assert seen["launched"] == [{"kernel": kernel, "symbol": kernel, "own": True, "count": count}]


@pytest.mark.parametrize(("name", "kernel"), [("reinterpreted", "double"), ("addresses", "through")])
def test_launches_with_other_arguments_are_counted(interpreted, name, kernel):
    assert [launch["kernel"] for launch in interpreted[name]["launched"]] == [kernel]


def test_the_autotuners_launches_count(interpreted, captured):
    # Each configuration once to time it.
    for seen in (interpreted["autotuned"], captured["autotuned"]):
        assert [launch["count"] for launch in seen["launched"]] == [3]


@pytest.mark.parametrize("name", ["warmed_up", "empty_grid", "torch_only"])
def test_what_runs_nothing_is_no_launch(interpreted, captured, name):
    for seen in (interpreted[name], captured[name]):
        assert seen["launched"] == []
        assert seen["touched"] == [False, False]


def test_kernels_of_an_installed_package_are_not_the_candidates_own(interpreted, captured):
    for seen in (interpreted["foreign"], captured["foreign"]):
        assert seen["launched"] == [{"kernel": "double", "symbol": "double", "own": False, "count": 1}]
        assert seen["touched"] == [False, False]


@pytest.mark.parametrize(
    "name", ["honest", "keywords", "names", "autotuned", "guided", "descriptors", "reinterpreted", "addresses"]
)
def test_memory_that_a_kernel_was_given_is_touched(interpreted, name):
    seen = interpreted[name]
    assert seen["touched"] == [True, True]
    assert not seen["touched_other"]


@pytest.mark.parametrize("name", ["honest", "keywords", "descriptors", "autotuned"])
def test_memory_that_a_compiled_kernel_was_given_is_touched(captured, name):
    assert captured[name]["touched"] == [True, True]
    assert not captured[name]["touched_other"]


def test_a_view_of_memory_that_a_kernel_was_given_is_touched(interpreted):
    assert interpreted["view_of_view"]["touched"] == [False, True]


def test_the_interpreters_and_the_autotuners_work_is_not_recorded(interpreted, captured):
    for seen in (interpreted["honest"], interpreted["autotuned"], captured["autotuned"]):
        assert seen["operations"] == {}
        assert len(seen["labels"]) == 2


def test_what_the_candidate_computes_in_a_grid_is_recorded(interpreted, captured):
    for seen in (interpreted["grid_that_computes"], captured["grid_that_computes"]):
        assert set(seen["operations"]) == {"aten.add", "aten.sum"}
    assert interpreted["torch_only"]["operations"] == {"aten.mul": 1}


# Whose.


@pytest.mark.parametrize(
    ("file", "own"),
    [
        ("/tmp/scratch/kernel.py", True),
        ("kernel.py", True),
        ("<string>", True),
        ("/usr/lib/python3/dist-packages/flash/kernels.py", False),
        ("/home/me/.venv/lib/python3.12/site-packages/flash/kernels.py", False),
        (f"{sysconfig.get_paths()['stdlib']}/kernels.py", False),
        (str(Path(WORKER_FOLDER) / "warm.py"), False),
    ],
)
def test_a_file_belongs_to_the_candidate_unless_it_is_installed(worker, file, own):
    from importlib import import_module

    launches = import_module("tritonforge_worker.launches")
    space = {}
    exec(compile("def kernel():\n    pass\n", file, "exec"), space)
    assert launches.is_own(space["kernel"]) is own
    assert not launches.is_own(print)
