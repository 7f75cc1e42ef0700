# pyright: basic
# The worker's modules have no name that a type checker could resolve: they are loaded from their folder.
"""How a worker finds its device's ceilings: the fastest call counts, and what can't be measured has a reason."""

import importlib
import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from tritonforge.profiling.hardware.catalog import resolve_target
from tritonforge.profiling.hardware.ceilings import known
from tritonforge.sandbox.ceiling_facts import CeilingFacts
from tritonforge.sandbox.isolation import WORKER_FOLDER


class FakeRecorder:
    """Stands for CUPTI: each call takes what it is told to take."""

    def __init__(self, activity: Any) -> None:
        self._activity = activity
        self._now_ns = 1_000
        self._found: list[Any] = []
        self.on = False

    def start(self) -> None:
        self.on = True

    def stop(self) -> None:
        self.on = False

    def ran(self, *durations_us: float) -> None:
        for duration_us in durations_us:
            stop_ns = self._now_ns + int(duration_us * 1e3)
            self._found.append(self._activity("kernel", self._now_ns, stop_ns, len(self._found), None))
            self._now_ns = stop_ns + 100

    def read(self) -> list[Any]:
        found, self._found = self._found, []
        return found


@pytest.fixture(scope="module")
def worker(worker: ModuleType) -> ModuleType:
    """The module that measures; not the whole package."""
    return importlib.import_module(f"{worker.__name__}.ceilings")


@pytest.fixture
def device(worker: Any, monkeypatch: pytest.MonkeyPatch) -> FakeRecorder:
    """A device that only its records know of."""
    fake = FakeRecorder(importlib.import_module("tritonforge_worker.cupti").Activity)
    monkeypatch.setattr(worker, "recorder", lambda: fake)
    monkeypatch.setattr(worker.torch.cuda, "synchronize", lambda: None)
    return fake


FAR = 1e12
"""A deadline that no test meets."""


def taking(device: FakeRecorder, *calls: tuple[float, ...]) -> Callable[[], None]:
    """Something that takes the next of these durations each time, then always the last."""
    left = list(calls)
    return lambda: device.ran(*(left.pop(0) if len(left) > 1 else left[0]))


def test_the_fastest_call_of_the_fastest_way_counts_from_first_start_to_last_end(worker, device) -> None:
    slow = taking(device, (1.0,), (9.0, 3.0), (8.0, 3.0), (9.0, 3.0))
    slower = taking(device, (20.0,))
    # The first of each way loads what it needs and is not counted, even where it is the shortest.
    assert worker.shortest_us([slow, slower], FAR) == pytest.approx(8.0 + 3.0 + 0.1)


def test_after_the_deadline_a_ceiling_rests_on_what_there_is(worker, device) -> None:
    calls = []

    def way() -> None:
        calls.append(1)
        device.ran(5.0)

    assert worker.shortest_us([way, way], 0.0) == pytest.approx(5.0)
    assert len(calls) == 2


def test_a_call_that_leaves_no_record_is_no_ceiling(worker, device) -> None:
    with pytest.raises(RuntimeError, match="no device time"):
        worker.shortest_us([lambda: None], FAR)


def test_all_ceilings_are_told_or_absent_with_a_reason(worker, device, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: float) -> float:
        raise RuntimeError("CUBLAS_STATUS_NOT_SUPPORTED\nC++ stack trace")

    monkeypatch.setattr(worker, "ATTEMPTS", {"launch_us": lambda _: 1.2, "fp8_flops_per_s": refuse})
    found = worker.measure(3.0)
    assert found == {"launch_us": 1.2, "absent": {"fp8_flops_per_s": "CUBLAS_STATUS_NOT_SUPPORTED"}}
    assert CeilingFacts.model_validate(found).launch_us == 1.2
    assert not device.on


def test_when_time_is_over_the_rest_is_absent(worker, device) -> None:
    found = worker.measure(0.0)
    assert set(found) == {"absent"}
    facts = CeilingFacts.model_validate(found)
    assert facts.absent.keys() == CeilingFacts.model_fields.keys() - {"absent"}
    assert "before its turn" in facts.absent["launch_us"]


def test_every_field_has_its_attempt(worker) -> None:
    assert worker.ATTEMPTS.keys() == CeilingFacts.model_fields.keys() - {"absent"}


@pytest.fixture
def properties(worker: Any, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What torch says of a made-up device; its tensors lie on the CPU."""
    found = SimpleNamespace(multi_processor_count=132, L2_cache_size=60 << 20)
    monkeypatch.setattr(worker.torch.cuda, "get_device_properties", lambda _: found)
    for make in ("rand", "empty"):
        on_cpu = getattr(worker.torch, make)
        monkeypatch.setattr(worker.torch, make, lambda *size, device, on_cpu=on_cpu: on_cpu(*size))
    return found


class FakeKernel:
    """Stands for a Triton kernel that takes a while, or can't be built."""

    def __init__(self, device: FakeRecorder, us: float, error: Exception | None = None) -> None:
        self._device, self._us, self._error = device, us, error
        self.launches: list[tuple[tuple[int], tuple[Any, ...], dict[str, Any]]] = []

    def __getitem__(self, grid: tuple[int]) -> Callable[..., None]:
        def launch(*arguments: Any, **options: Any) -> None:
            if self._error is not None:
                raise self._error
            self.launches.append((grid, arguments, options))
            self._device.ran(self._us)

        return launch


def test_l2_is_read_from_a_set_that_each_of_its_halves_can_hold(worker, device, properties, monkeypatch) -> None:
    kernel = FakeKernel(device, 1500.0)
    monkeypatch.setattr(worker, "read_kernel", kernel)
    rate = worker.ATTEMPTS["l2_read_bytes_per_s"](FAR)
    (programs,), (source, sums, tiles, rounds), options = kernel.launches[0]
    assert source.numel() == tiles * options["TILE"]
    assert 8 << 20 < source.numel() * 4 <= properties.L2_cache_size // 4
    assert sums.numel() == programs >= properties.multi_processor_count
    assert rate == pytest.approx(programs * rounds * options["TILE"] * 4 / 1.5e-3)


def test_without_the_size_of_l2_it_is_not_read(worker, device, properties) -> None:
    properties.L2_cache_size = 0
    with pytest.raises(RuntimeError, match="how large"):
        worker.ATTEMPTS["l2_read_bytes_per_s"](FAR)


@pytest.mark.parametrize(
    ("us", "error", "share"),
    [(1000.0, None, 1.0), (1e6, None, None), (1.0, triton.TritonError("no"), None), (1.0, OSError("no gcc"), None)],
)
def test_fp32_is_the_higher_of_products_and_multiply_adds(
    worker, device, properties, monkeypatch, us: float, error: Exception | None, share: float | None
) -> None:
    kernel = FakeKernel(device, us, error)
    monkeypatch.setattr(worker, "fma_kernel", kernel)
    monkeypatch.setattr(worker, "_float32_flops_per_s", lambda _, tensor_cores: 9e12)
    rate = worker.ATTEMPTS["fp32_flops_per_s"](FAR)
    if share is None:
        assert rate == 9e12
    else:
        (_, (out, *_, rounds), options) = kernel.launches[0]
        assert rate == pytest.approx(2 * out.numel() * rounds * options["UNROLLED"] / 1e-3)
        assert rate > 9e12


def test_a_kernel_that_cannot_be_built_is_absent_with_the_reason(worker, device, properties, monkeypatch) -> None:
    monkeypatch.setattr(worker, "read_kernel", FakeKernel(device, 1.0, triton.TritonError("ptxas failed")))
    attempt = worker.ATTEMPTS["l2_read_bytes_per_s"]
    monkeypatch.setattr(worker, "ATTEMPTS", {"l2_read_bytes_per_s": attempt})
    assert worker.measure(3.0) == {"absent": {"l2_read_bytes_per_s": "ptxas failed"}}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing compiled here stays."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


def compiled(kernel: Any, signature: dict[str, str], constants: dict[str, int], **options: int) -> str:
    """PTX for Hopper."""
    names = list(signature)
    source = ASTSource(
        fn=kernel,
        signature=signature,
        constexprs={(names.index(name),): value for name, value in constants.items()},
        attrs={
            (place,): [["tt.divisibility", 16]] for place, kind in enumerate(signature.values()) if kind.startswith("*")
        },
    )
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm["ptx"]


@pytest.mark.usefixtures("cache")
def test_l2_is_read_past_l1_in_full_width_and_not_through_shared_memory(worker) -> None:
    signature = {"source": "*fp32", "sums": "*fp32", "tiles": "i32", "rounds": "i32", "TILE": "constexpr"}
    ptx = compiled(worker.read_kernel, signature, {"TILE": worker.READ_TILE}, num_stages=1)
    loads = re.findall(r"ld\.global\S*", ptx)
    assert loads
    assert set(loads) == {"ld.global.cg.v4.b32"}
    assert "cp.async" not in ptx


@pytest.mark.usefixtures("cache")
def test_the_chains_are_multiply_adds_and_nothing_else(worker) -> None:
    signature = {"out": "*fp32", "factor": "fp32", "summand": "fp32", "rounds": "i32"}
    signature |= {"TILE": "constexpr", "UNROLLED": "constexpr"}
    constants = {"TILE": worker.FMA_TILE, "UNROLLED": worker.FMA_UNROLLED}
    ptx = compiled(worker.fma_kernel, signature, constants)
    assert ptx.count("fma.rn.f32") == worker.FMA_TILE // 128 * worker.FMA_UNROLLED
    assert not re.search(r"(mul|add)\.(rn\.)?f32", ptx)


@pytest.mark.gpu
def test_a_real_gpu_reaches_what_can_be_believed_of_it() -> None:
    program = (
        "import importlib, importlib.util, json, sys, time\n"
        "spec = importlib.util.spec_from_file_location('main', sys.argv[1])\n"
        "main = importlib.util.module_from_spec(spec); spec.loader.exec_module(main); main._load_package()\n"
        "ceilings = importlib.import_module('tritonforge_worker.ceilings')\n"
        "import torch\n"
        "torch.zeros(1, device='cuda'); torch.cuda.synchronize()\n"
        "started = time.perf_counter(); found = ceilings.measure(10.0)\n"
        "print(json.dumps([found, time.perf_counter() - started, torch.cuda.get_device_name()]))\n"
    )
    command = [sys.executable, "-c", program, str(WORKER_FOLDER / "__main__.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    found, seconds, name = json.loads(done.stdout.splitlines()[-1])
    # hardware_spec promises 20 s for all, with the start of a worker.
    assert seconds < 15
    facts = CeilingFacts.model_validate(found)
    gpu = resolve_target("h200").gpu if name == "NVIDIA H200" else None
    believed = known(facts, gpu, uuid="GPU-0", torch=None, measured_at=datetime.now(UTC))
    assert believed.absent == {}, (facts, believed)
