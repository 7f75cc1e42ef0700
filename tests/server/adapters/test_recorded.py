# pyright: basic
# torch ships incomplete types.
"""Files with a test of their own: what it calls becomes the cases, and running it makes the inputs."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.server.adapters.files import LINE, SCALE, SPEED, TEST, bench_file, inputs_of, loaded
from tritonforge.server.adapters.find import adapt, choices
from tritonforge.server.adapters.model import Form

IMPORTING = """\
import pytest
import torch
from scale import scaled


@pytest.fixture
def rows():
    return 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("columns", [16, 32])
def test_scaled(rows, columns, dtype):
    x = torch.randn(rows, columns, dtype=dtype, device="cuda")
    torch.testing.assert_close(scaled(x), x * 2)
"""


def test_each_form_of_arguments_is_a_case_under_the_key_of_its_result(tmp_path: Path) -> None:
    adapted = adapt(bench_file(tmp_path))
    task = loaded(adapted)
    assert (adapted.form, task.ENTRY, task.IN_PLACE) == (Form.TRITONBENCH, "scaled", ())
    # The third call repeats the first one's form, the fourth is empty.
    assert {name: case["inputs"] for name, case in task.CASES.items()} == {
        "plain": "x 4x8 float32",
        "half": "x 64 float16, factor 0.5",
        "other": "x 8x8 float16 strides [1, 8]",
    }


def test_inputs_are_those_of_the_call_fresh_for_each_seed_and_without_history(tmp_path: Path) -> None:
    task = loaded(adapt(bench_file(tmp_path)))
    made = []
    for seed in (1, 2, 1):
        torch.manual_seed(seed)
        made.append(inputs_of(task, "plain")[0])
    assert made[0].shape == (4, 8)
    assert not made[0].requires_grad
    # The test seeds torch itself; that must not make all inputs the same.
    assert not torch.equal(made[0], made[1])
    assert torch.equal(made[0], made[2])
    half = inputs_of(task, "half")
    assert (half["x"].dtype, half["factor"]) == (torch.float16, 0.5)
    assert inputs_of(task, "other")[0].stride() == (1, 8)
    assert torch.manual_seed(3).initial_seed() == 3, "torch is as it was"


def test_what_is_written_to_is_the_output_and_uninitialized_memory_is_zero(tmp_path: Path) -> None:
    test = 'import torch\nx = torch.ones(16, device="cuda")\nout = torch.empty_like(x)\nscale_into(x, out)\n'
    adapted = adapt(bench_file(tmp_path, test))
    task = loaded(adapted)
    assert (task.ENTRY, task.IN_PLACE) == ("scale_into", ("out",))
    assert not inputs_of(task, "call_1")[1].any()
    assert any("the outputs are the arguments" in words for words in adapted.assumptions)


@pytest.mark.parametrize(
    ("call", "entry", "arguments"),
    [
        ("Doubling.apply(x)", "doubling_apply", 1),
        ("double(x, 3.0)", "doubling_apply", 2),
        ("Scaler(4.0)(x)", "call_scaler", 2),
        ("scaled(x, torch.nn.LayerNorm(16, device='cuda'))", "call_scaled", 2),
        ("_scale[lambda meta: (meta['n'] // 16,)](x, x, 16, 2.0, BLOCK=256)", "launch_scale", 6),
    ],
)
def test_what_is_no_function_gets_a_wrapper(tmp_path: Path, call: str, entry: str, arguments: int) -> None:
    adapted = adapt(bench_file(tmp_path, f'import torch\nx = torch.ones(16, device="cuda")\ny = {call}\n'))
    task = loaded(adapted)
    assert adapted.entry == task.ENTRY == entry
    assert f"def {task.ENTRY}(" in adapted.kernel
    assert any(f"the entry {task.ENTRY} was appended" in words for words in adapted.assumptions)
    made = inputs_of(task, "call_1")
    assert len(made) == arguments
    if isinstance(made, dict):
        assert made["grid"] == (1,)


def test_arguments_that_are_no_data_are_made_again_by_the_kernel_file(tmp_path: Path) -> None:
    test = "import torch\nscaled(torch.nn.LayerNorm(8, eps=0.5))\nScaler(4.0)(torch.ones(4))\n"
    adapted = adapt(bench_file(tmp_path, test))
    (described,) = inputs_of(loaded(adapted), "call_1")
    wrapper = adapted.kernel[adapted.kernel.index("import types") :]
    space: dict[str, Any] = {"Scaler": lambda factor: factor * 2}
    exec(compile(wrapper, "kernel", "exec"), space)
    made = space["_real"](described)
    assert (made.eps, made.weight.tolist()) == (0.5, [1.0] * 8)
    assert space["_real"]([{"made": "Scaler", "args": (4.0,), "kwargs": {}}]) == [8.0]


def test_a_switch_that_decides_about_the_outputs_is_the_same_in_all_cases(tmp_path: Path) -> None:
    kernel = f"{SCALE}\n\ndef maybe(x, inplace=False):\n    out = x if inplace else torch.empty_like(x)\n"
    kernel += "    scale_into(x, out)\n    return out\n"
    test = 'import torch\nx = torch.ones(16, device="cuda")\nmaybe(x)\nmaybe(x, inplace=True)\n'
    task = loaded(adapt(bench_file(tmp_path, test, kernel)))
    assert (task.IN_PLACE, list(task.CASES)) == ((), ["call_1"])
    task = loaded(adapt(bench_file(tmp_path, test.replace("maybe(x)\n", ""), kernel)))
    assert (task.IN_PLACE, list(task.CASES)) == (("x",), ["call_1"])


def test_an_argument_that_another_kernel_makes_is_no_case_and_the_other_kernel_comes_next(tmp_path: Path) -> None:
    test = (
        'import torch\nx = torch.ones(16, device="cuda")\ny = scaled(x)\nscale_into(y, x)\nscale_into(scaled(x), x)\n'
    )
    first, second = choices(bench_file(tmp_path, test))
    assert (first.entry, second.entry) == ("scaled", "scale_into")
    assert any("also calls scale_into" in words for words in first.assumptions)
    with pytest.raises(ValueError, match="the result of another kernel of the file"):
        loaded(second)


def test_a_performance_file_gives_the_sizes_and_the_test_is_checked(tmp_path: Path) -> None:
    speed = tmp_path / "scale_perf.py"
    speed.write_text(SPEED)
    with_sizes, others, without = choices(bench_file(tmp_path), performance=speed)
    assert [each.is_spare for each in (with_sizes, others, without)] == [False, True, False]
    task = loaded(with_sizes)
    assert task.CASES["speed_large"]["inputs"] == f"x {2**25} float32"
    assert re.fullmatch(rf"x ({2**21}) float32", task.CASES["speed_medium"]["inputs"])
    assert task.CASES["plain"]["small"] is True
    assert task.HIDDEN_CASES.keys() == {"half", "other"}
    assert inputs_of(task, "speed_medium")[0].numel() == 2**21
    assert loaded(without).CASES.keys() == {"plain", "half", "other"}


def test_other_sizes_are_spread_over_those_that_are_left(tmp_path: Path) -> None:
    speed = tmp_path / "scale_perf.py"
    speed.write_text(SPEED)
    _, others, _ = choices(bench_file(tmp_path), performance=speed)
    task = loaded(others)
    assert [case["inputs"] for case in task.CASES.values()][:-1] == [
        f"x {2**power} float32" for power in (24, 20, 17, 14, 11, 8)
    ]
    assert inputs_of(task, "speed_other_2")[0].numel() == 2**20
    assert task.CASES["plain"]["small"] is True


def test_where_a_performance_file_has_no_other_sizes_that_reading_is_none(tmp_path: Path) -> None:
    speed = tmp_path / "scale_perf.py"
    speed.write_text(SPEED.replace("range(6, 34)", "range(6, 8)"))
    _, others, _ = choices(bench_file(tmp_path), performance=speed)
    with pytest.raises(ValueError, match="no other sizes"):
        loaded(others)


@pytest.mark.parametrize(
    ("drawn", "distinct"),
    [
        ("torch.randint(0, 64, (64,))", True),
        ("torch.randint(64, (3, 8))", True),
        ("torch.randint(low=2, high=40, size=(2, 38), dtype=torch.int32)", True),
        ("torch.randint(5, 9, size=(64,), dtype=torch.int32)", False),
        ("torch.randint(9, (1,))", True),
    ],
)
def test_integers_of_a_performance_file_are_drawn_without_repetition_where_that_is_possible(
    tmp_path: Path, drawn: str, distinct: bool
) -> None:
    speed = tmp_path / "scale_perf.py"
    speed.write_text(SPEED.replace("torch.rand(2**power, dtype=torch.float32)", drawn).replace("34", "8"))
    usual, reading, *_ = choices(bench_file(tmp_path), performance=speed)
    assert reading.is_spare
    assert any("drawn without repetition" in words for words in reading.assumptions)
    torch.manual_seed(3)
    (found,) = inputs_of(loaded(reading), "speed_large")
    torch.manual_seed(3)
    (plain,) = inputs_of(loaded(usual), "speed_large")
    assert (found.shape, found.dtype) == (plain.shape, plain.dtype)
    rows = found.reshape(-1, found.shape[-1]).tolist()
    assert all(len(set(row)) == len(row) for row in rows) is distinct
    many = torch.cat([eval(drawn, {"torch": torch}).flatten() for _ in range(200)])
    assert set(found.flatten().tolist()) <= set(many.tolist())


DRAWING = """

def drawn(n, scale=2.0):
    x = torch.randn(n, device="cuda")
    return scaled(x, scale)
"""


def test_an_entry_that_draws_its_inputs_is_given_a_seed(tmp_path: Path) -> None:
    adapted = adapt(bench_file(tmp_path, "import torch\ndrawn(16)\ndrawn(n=8, scale=3.0)\n", SCALE + DRAWING))
    assert adapted.entry == "seeded_drawn"
    assert "drawn draws random numbers itself" in " ".join(adapted.assumptions)
    task = loaded(adapted)
    assert task.PARAMETERS == ("harness_seed", "n", "scale")
    assert [case["inputs"] for case in task.CASES.values()] == ["n 16", "n 8, scale 3.0"]
    torch.manual_seed(11)
    assert inputs_of(task, "call_1") == (11, 16)
    torch.manual_seed(12)
    assert inputs_of(task, "call_2") == {"harness_seed": 12, "n": 8, "scale": 3.0}
    wrapper = adapted.kernel[adapted.kernel.index("def seeded_drawn") :]
    space: dict[str, Any] = {"torch": torch, "drawn": lambda n, scale: (torch.randn(n), scale)}
    exec(compile(wrapper, "kernel", "exec"), space)
    assert torch.equal(space["seeded_drawn"](5, 4)[0], space["seeded_drawn"](5, 4)[0])
    assert not torch.equal(space["seeded_drawn"](5, 4)[0], space["seeded_drawn"](6, 4)[0])


def test_an_entry_whose_arguments_have_no_names_is_given_none(tmp_path: Path) -> None:
    kernel = f"{SCALE}\n\ndef drawn(*sizes):\n    return scaled(torch.randn(sizes, device='cuda'))\n"
    assert adapt(bench_file(tmp_path, "import torch\ndrawn(16)\n", kernel)).entry == "drawn"


def test_an_entry_that_returns_nothing_of_what_it_made_returns_it(tmp_path: Path) -> None:
    kernel = (
        f"{SCALE}\n\ndef shown(x):\n    y = torch.empty_like(x)\n    scale_into(x, y)\n    print(y)\n\n\nLAST = 1\n"
    )
    adapted = adapt(bench_file(tmp_path, 'import torch\nshown(torch.ones(8, device="cuda"))\n', kernel))
    assert "    print(y)\n    return y\n\n\nLAST = 1\n" in adapted.kernel
    assert any("`return y`" in words for words in adapted.assumptions)


def test_a_test_that_fails_keeps_what_came_before(tmp_path: Path) -> None:
    test = 'import torch\nscaled(torch.ones(8, device="cuda"))\nraise ValueError("no more")\n'
    assert loaded(adapt(bench_file(tmp_path, test))).CASES.keys() == {"call_1"}


def test_kernels_below_the_line_go_to_the_kernel_file(tmp_path: Path) -> None:
    file = tmp_path / "odd.py"
    file.write_text(f"import math\n{LINE}\n{SCALE}\n{LINE}\n{TEST}")
    adapted = adapt(file)
    assert "def _scale(" in adapted.kernel
    assert adapted.entry == "scaled"
    assert "plain" in loaded(adapted).CASES


def test_a_pytest_file_that_imports_its_kernel_is_run_with_its_parameters_and_fixtures(tmp_path: Path) -> None:
    (tmp_path / "scale.py").write_text(SCALE)
    file = tmp_path / "test_scale.py"
    file.write_text(IMPORTING)
    adapted = adapt(file)
    assert adapted.form is Form.PYTEST
    assert adapted.kernel.startswith(SCALE.rstrip())
    shapes = {case["inputs"] for case in loaded(adapted).CASES.values()}
    assert shapes == {f"x 4x{columns} {dtype}" for columns in (16, 32) for dtype in ("float32", "float16")}


def test_a_file_with_kernels_and_tests_is_taken_apart(tmp_path: Path) -> None:
    file = tmp_path / "test_scale.py"
    file.write_text(f"import pytest\n{SCALE}\n\n" + TEST.replace("result_gold = test_scaled()\n", ""))
    adapted = adapt(file)
    assert "def test_scaled" not in adapted.kernel
    assert "import pytest" not in adapted.kernel
    assert "plain" in loaded(adapted).CASES
