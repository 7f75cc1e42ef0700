"""Made-up artefacts in the shapes of the benchmarks, and what a task file says once it is loaded."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tritonforge.server.adapters.model import Adapted

LINE = "#" * 120

SCALE = """\
import torch
import triton
import triton.language as tl

SCALES = {"half": 0.5}


@triton.jit
def _scale(x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) * factor, mask=at < n)


def scaled(x, factor=2.0):
    y = torch.empty_like(x)
    _scale[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), factor, BLOCK=256)
    return y


def scale_into(x, out):
    _scale[(1,)](x, out, x.numel(), 3.0, BLOCK=256)


def doubled_rows(rows):
    return rows * 2


class Doubling(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor=2.0):
        return scaled(x, factor)


class Scaler:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, x):
        return scaled(x, self.factor)


double = Doubling.apply
"""

TEST = """\
import torch

def test_scaled():
    torch.manual_seed(7)
    results = {}
    x = torch.randn(doubled_rows(2), 8, device="cuda", requires_grad=True)
    y, _ = scaled(x), None
    y.sum().backward()
    results["plain"] = x.grad.clone()
    z = torch.empty(64, dtype=torch.float16, device="cuda").normal_()
    results["half"] = scaled(z, factor=SCALES["half"])
    again = scaled(torch.randn(4, 8).cuda())
    nothing = scaled(torch.empty(0, device="cuda"))
    if y.shape[0] > 3 and torch.allclose(y, again):
        results["other"] = scaled(z.view(8, 8).t())
    return results

result_gold = test_scaled()
"""

SPEED = """\
from TritonBench_v1.scale import scaled
from performance_utils import Performance_Metrics
import torch

class performance_metrics(Performance_Metrics):
    def __init__(self, dtype=None, is_backward=False, **kwargs):
        super().__init__("scale", dtype=dtype, is_backward=is_backward, **kwargs)

    def get_input_tensors(self):
        self.input_tensors = []
        for power in range(6, 34):
            self.input_tensors.append(torch.rand(2**power, dtype=torch.float32))

    def to_cuda(self, input_tensor):
        return input_tensor.cuda()

    def call_op(self, input_tensor):
        return scaled(input_tensor)

    def get_tflops(self, input_tensor, runtime):
        return input_tensor.numel() / (runtime / 1000) / 1e12

if __name__ == "__main__":
    performance_metrics().get_input_tensors()
"""


def bench_file(folder: Path, test: str = TEST, kernel: str = SCALE) -> Path:
    """A file with kernels above the line and a test below."""
    file = folder / "scale.py"
    file.write_text(f"{kernel}\n{LINE}\n\n{test}")
    return file


def loaded(adapted: Adapted) -> Any:
    """The names of the task file, executed as a task worker does."""
    space: dict[str, Any] = {"__name__": "task"}
    exec(compile(adapted.task_text, "task", "exec"), space)
    return SimpleNamespace(**space)


def inputs_of(task: Any, case: str, device: str = "cpu") -> Any:
    """What the task makes for one of its cases."""
    fields = {name: value for name, value in task.CASES[case].items() if name not in ("weight", "small")}
    return task.make_inputs(**fields, device=device)
