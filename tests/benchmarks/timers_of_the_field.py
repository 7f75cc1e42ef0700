"""Timers of the field on the kernels of `timed_kernels`: each measures the same kernel twice in a row, ten times.

Run: ``python tests/benchmarks/timers_of_the_field.py [FOLDER_OF_KERNELBENCH]``; one JSON list a line: case, timer,
microseconds, median and largest difference of the two in percent.
"""

import functools
import importlib
import importlib.util
import json
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.benchmarks.peer import kernelbench
from tests.benchmarks.timed_kernels import TASKS, kernel

CASES = [("softmax", "13us"), ("softmax", "70us"), ("add", "120us"), ("matmul", "100us")]
REPEATS = 10


def main() -> None:
    import torch

    testing: Any = importlib.import_module("triton.testing")

    timers: dict[str, Callable[[Callable[[], Any]], float]] = {
        "do_bench": lambda call: float(testing.do_bench(call, return_mode="median")) * 1e3,
        "do_bench_cudagraph": lambda call: float(testing.do_bench_cudagraph(call, return_mode="median")) * 1e3,
    }
    if len(sys.argv) > 1 and sys.argv[1]:
        timers["KernelBench"] = _kernelbench(sys.argv[1])
    for name, case in CASES:
        entry, inputs = _load(name, case, torch)
        call = functools.partial(entry, *inputs)
        for timer, measure in timers.items():
            measure(call)
            pairs = [(measure(call), measure(call)) for _ in range(REPEATS)]
            off = [100 * abs(second / first - 1) for first, second in pairs]
            us = statistics.median(time for pair in pairs for time in pair)
            row = [f"{name} {case}", timer, f"{us:.2f}", f"{statistics.median(off):.3f}", f"{max(off):.3f}"]
            print(json.dumps(row), flush=True)


def _load(name: str, case: str, torch: Any) -> tuple[Any, Any]:
    with tempfile.NamedTemporaryFile("w", suffix=".py", delete=False) as file:
        file.write(kernel(name))
    spec = importlib.util.spec_from_file_location(name, file.name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    task = ModuleType("task")
    exec(TASKS[name], task.__dict__)
    return getattr(module, name), task.make_inputs(**task.CASES[case], device="cuda")


def _kernelbench(folder: str) -> Callable[[Callable[[], Any]], float]:
    timing = kernelbench(folder, "timing")

    def measure(call: Callable[[], Any]) -> float:
        times = timing.time_execution_with_cuda_event(call, [], num_warmup=5, num_trials=100, verbose=False)
        return statistics.median(times) * 1e3

    return measure


if __name__ == "__main__":
    main()
