# pyright: basic
# A loaded task has whatever names it has.
"""Sizes of a performance file that a task makes no cases of, found in the task itself."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.server.adapters.files import SCALE, SPEED, TEST, bench_file, inputs_of, loaded
from tritonforge.sandbox.source import Source
from tritonforge.server.adapters.find import choices
from tritonforge.server.adapters.further import has_sizes, with_sizes
from tritonforge.server.adapters.model import Adapted


def timed(folder: Path, speed: str = SPEED, **more: str) -> tuple[Adapted, Adapted]:
    """The task with a performance file's sizes, and the one without."""
    file = folder / "scale_perf.py"
    file.write_text(speed)
    with_speed, *_, without = choices(bench_file(folder, **more), performance=file)
    return with_speed, without


def source(adapted: Adapted) -> Source:
    return Source(adapted.task_text, "task.py", None)


def further(adapted: Adapted) -> Any:
    """The task with its further sizes, executed as a worker does."""
    whole = with_sizes(source(adapted)).text
    return loaded(replace(adapted, task=whole, assumptions=()))


def test_further_sizes_reach_from_the_smallest_to_the_limits_and_are_no_cases(tmp_path: Path) -> None:
    adapted, _ = timed(tmp_path)
    task = further(adapted)
    shown = [case["inputs"] for case in task.HIDDEN_CASES.values()]
    # Those beyond 128 MiB are left out, and those that are cases.
    powers = [int(each.split()[1]).bit_length() - 1 for each in shown]
    assert powers == [power for power in range(6, 25) if power != 21]
    assert inputs_of(loaded(adapted), "speed_large")[0].numel() == 2**25
    assert [bool(case.get("small")) for case in task.HIDDEN_CASES.values()] == [power <= 15 for power in powers]
    name = next(iter(task.HIDDEN_CASES))
    assert task.make_inputs(task.HIDDEN_CASES[name]["call"], shown[0], "cpu")[0].numel() == 2**6


def test_the_cases_of_the_task_stay_as_they_are(tmp_path: Path) -> None:
    adapted, _ = timed(tmp_path)
    assert further(adapted).CASES == loaded(adapted).CASES


def test_sizes_that_are_written_to_otherwise_than_the_cases_are_left_out(tmp_path: Path) -> None:
    kernel = f"{SCALE}\n\ndef maybe(x, out=None):\n    scale_into(x, out)\n    return out\n"
    call = "return maybe(input_tensor, torch.empty_like(input_tensor) if input_tensor.numel() > 1024 else None)"
    speed = SPEED.replace("return scaled(input_tensor)", call).replace("scale import scaled", "scale import maybe")
    test = 'import torch\nx = torch.ones(16, device="cuda")\nmaybe(x, torch.empty_like(x))\n'
    adapted, _ = timed(tmp_path, speed, test=test, kernel=kernel)
    task = further(adapted)
    assert task.IN_PLACE == ("out",)
    assert task.HIDDEN_CASES
    assert all("None" not in case["inputs"] for case in task.HIDDEN_CASES.values())


def test_sizes_with_a_switch_that_decides_about_the_outputs_are_left_out(tmp_path: Path) -> None:
    kernel = f"{SCALE}\n\ndef maybe(x, inplace=False):\n    out = x if inplace else torch.empty_like(x)\n"
    kernel += "    scale_into(x, out)\n    return out\n"
    call = "return maybe(input_tensor, inplace=input_tensor.numel() <= 1024)"
    speed = SPEED.replace("return scaled(input_tensor)", call).replace("scale import scaled", "scale import maybe")
    test = 'import torch\nx = torch.ones(16, device="cuda")\nmaybe(x)\n'
    task = further(timed(tmp_path, speed, test=test, kernel=kernel)[0])
    assert next(iter(task.HIDDEN_CASES.values()))["inputs"] == "x 2048 float32, inplace False"


@pytest.mark.parametrize("text", ["ENTRY = 'x'", "SPEED = 'x'", "def (:", "def _speed_sizes(): ...\nSPEED = 'x'\n"])
def test_other_tasks_have_no_sizes(text: str) -> None:
    assert not has_sizes(Source(text, "task.py", None))


def test_a_task_without_a_performance_file_has_no_sizes(tmp_path: Path) -> None:
    adapted, without = timed(tmp_path)
    assert has_sizes(source(adapted))
    assert not has_sizes(source(without))
    (alone,) = choices(bench_file(tmp_path, TEST))
    assert not has_sizes(source(alone))
