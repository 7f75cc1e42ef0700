# pyright: basic
# torch ships incomplete types.
"""KernelBench problems and GPU MODE folders."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.server.adapters.files import inputs_of, loaded
from tritonforge.sandbox.errors import Stopped
from tritonforge.server.adapters.find import adapt
from tritonforge.server.adapters.yaml_cases import listed_cases

PROBLEM = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width, bias=True):
        super().__init__()
        self.linear = nn.Linear(width, 4, bias=bias)

    def forward(self, x, scale):
        return self.linear(x) * scale

rows = 6
width = 8
shape = (rows, width)
unused = 3

def get_inputs():
    return [torch.rand(*shape), 2.0]

def get_init_inputs():
    return [width]
"""

YML = """\
# name: adding
files:
  - {"name": "submission.py", "source": "@SUBMISSION@"}
  - {"name": "task.py", "source": "task.py"}
  - {"name": "utils.py", "source": "../utils.py"}
  - {"name": "reference.py", "source": "reference.py"}

tests:
  - {"size": 4, "seed": 1, "kind": "even", "wide": False}
  - {"size": 5, "seed": 2, "kind": "odd", "wide": True}
benchmarks:
  - {"size": 64, "seed": 3, "kind": "even", "wide": false}   # the large one
ranking_by: "geom"
"""

REFERENCE = """\
from utils import make_match_reference
from task import input_t, output_t
import torch

def ref_kernel(data: input_t) -> output_t:
    x, out = data
    out[...] = x + 1
    return out

def generate_input(size: int, seed: int, kind: str, wide: bool) -> input_t:
    generator = torch.Generator(device="cuda")
    generator.manual_seed(seed)
    x = torch.randn(size, size * (1 + wide), device="cuda", generator=generator)
    return x, torch.empty_like(x)

check_implementation = make_match_reference(ref_kernel, rtol=1e-2, atol=1e-3)
"""

SUBMISSION = """\
from task import input_t, output_t

def custom_kernel(data: input_t) -> output_t:
    x, out = data
    out[...] = x + 1
    return out
"""


def problem(folder: Path) -> Path:
    file = folder / "1_linear.py"
    file.write_text(PROBLEM)
    return file


def gpu_mode(folder: Path, **changed: str) -> Path:
    inner = folder / "adding"
    inner.mkdir()
    files = {
        "task.yml": YML,
        "reference.py": REFERENCE,
        "submission.py": SUBMISSION,
        "task.py": "input_t = output_t = 0\n",
    }
    for name, text in {**files, **changed}.items():
        (inner / name).write_text(text)
    (folder / "utils.py").write_text("def make_match_reference(reference, **limits):\n    return reference\n")
    return inner


def run(text: str, entry: str, arguments: Any) -> Any:
    space: dict[str, Any] = {"__name__": "kernel"}
    exec(compile(text, "kernel", "exec"), space)
    return space[entry](*arguments)


def test_a_problem_has_its_sizes_as_parameters_and_the_weights_as_inputs(tmp_path: Path) -> None:
    adapted = adapt(problem(tmp_path))
    task = loaded(adapted)
    assert task.CASES == {"default": {"rows": 6, "width": 8}}
    inputs, weights, init = task.make_inputs(device="cpu", rows=3, width=5)
    assert (inputs[0].shape, inputs[1], weights["linear.weight"].shape, init) == ((3, 5), 2.0, (4, 5), [5])
    with torch.no_grad():
        expected = task.reference(inputs, weights, init)
        got = run(adapted.kernel, adapted.entry, (inputs, weights, init))
    assert torch.equal(got, torch.nn.functional.linear(inputs[0], weights["linear.weight"], weights["linear.bias"]) * 2)
    assert torch.equal(got, expected)


def test_a_problems_weights_are_fixed_and_its_inputs_are_not(tmp_path: Path) -> None:
    task = loaded(adapt(problem(tmp_path)))
    torch.manual_seed(1)
    first = inputs_of(task, "default")
    torch.manual_seed(2)
    second = inputs_of(task, "default")
    assert torch.equal(first[1]["linear.weight"], second[1]["linear.weight"])
    assert not torch.equal(first[0][0], second[0][0])


def test_a_candidate_brings_a_new_model(tmp_path: Path) -> None:
    adapted = adapt(problem(tmp_path))
    inputs, weights, init = inputs_of(loaded(adapted), "default")
    half = "class ModelNew(Model):\n    def forward(self, x, scale):\n        return super().forward(x, scale) / 2\n"
    candidate = adapted.kernel.replace("ModelNew = Model\n", half)
    with torch.no_grad():
        whole = run(adapted.kernel, adapted.entry, (inputs, weights, init))
        assert torch.allclose(run(candidate, adapted.entry, (inputs, weights, init)) * 2, whole)


def test_a_folder_has_its_benchmarks_timed_and_its_tests_checked(tmp_path: Path) -> None:
    adapted = adapt(gpu_mode(tmp_path))
    task = loaded(adapted)
    assert list(task.CASES) == ["benchmark_1", "test_1"]
    assert list(task.HIDDEN_CASES) == ["test_2"]
    assert task.CASES["benchmark_1"] == {"size": 64, "seed": 3, "kind": "even", "wide": False}
    assert task.CASES["test_1"]["small"] is True
    assert task.IN_PLACE == ("data",)
    assert task.TOLERANCE["float32"] == {"rtol": 1e-2, "atol": 1e-3}
    torch.manual_seed(1)
    (first,) = inputs_of(task, "test_1")
    torch.manual_seed(2)
    (second,) = inputs_of(task, "test_1")
    assert first[0].shape == (4, 4)
    assert not torch.equal(first[0], second[0])
    assert torch.equal(run(adapted.kernel, "custom_kernel", (first,)), first[0] + 1)
    assert torch.equal(task.reference(second), second[0] + 1)


def test_a_submission_that_needs_more_than_torch_gives_way_to_the_reference(tmp_path: Path) -> None:
    folder = gpu_mode(tmp_path, **{"submission.py": f"import helion\n{SUBMISSION}"})
    adapted = adapt(folder)
    (data,) = inputs_of(loaded(adapted), "test_1")
    assert any("the baseline is the reference itself" in words for words in adapted.assumptions)
    assert torch.equal(run(adapted.kernel, "custom_kernel", (data,)), data[0] + 1)


def test_cases_are_read_from_flow_mappings_with_their_types() -> None:
    text = 'tests:\n  - {"a": 1, b: 2.5, c: "x, y", d: [1, 2], e: True, f: null}\n# a: b\n\nother:\n  - {"a": 2}\n'
    assert listed_cases(text, "tests") == [{"a": 1, "b": 2.5, "c": "x, y", "d": [1, 2], "e": True, "f": None}]
    assert listed_cases(text, "missing") == []


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"reference.py": "x = 1\n"}, "defines no generate_input and no ref_kernel"),
        (
            {"task.yml": 'files:\n  - {"name": "reference.py", "source": "reference.py"}\n'},
            "neither benchmarks nor tests",
        ),
        ({"reference.py": REFERENCE.replace("size: int,", "rank: int, size: int,")}, "generate_input needs rank"),
    ],
)
def test_a_folder_that_lacks_something_says_what(tmp_path: Path, changed: dict[str, str], message: str) -> None:
    with pytest.raises(Stopped, match=message):
        adapt(gpu_mode(tmp_path, **changed))
