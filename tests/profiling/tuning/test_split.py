"""Files that choose between two points by the size of their inputs."""

import math
from typing import Any

import pytest

from tests.diagnosis.made_up import H200
from tests.profiling.tuning.facts import launch
from tritonforge.profiling.tuning.search import Search
from tritonforge.profiling.tuning.space import Point, infer
from tritonforge.profiling.tuning.split import conditions, sizes_of, splits
from tritonforge.sandbox.outcome import Kind

KERNEL = """\
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, 2 * tl.load(x_ptr + at, mask=at < n), mask=at < n)


def scale(x, y, n, times=1):
    {body}
"""
LAUNCH = "scale_kernel[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)"
PLAIN = KERNEL.format(body=LAUNCH)
CASES = ("small", "large")
SIZES = {"small": {"x.numel()": 4096}, "large": {"x.numel()": 1 << 24}}


def tensor(*shape: int) -> dict[str, Any]:
    return {"tensor": {"shape": list(shape)}, "blob": 0}


def call(*nodes: dict[str, Any]) -> dict[str, Any]:
    return {"tuple": list(nodes)}


def searched(text: str, values: dict[Point, tuple[float, float]]) -> Search:
    """A search that has measured these ratios in the small case and in the large one."""
    space = infer(text, launched={"scale_kernel": {"num_warps": 4, "num_stages": 3, "BLOCK": 1024}})
    search = Search(space, dict.fromkeys(CASES, 0.5), H200)
    search.baseline({case: [launch(code_hash="as it is")] for case in CASES})
    for point, ratios in values.items():
        search.compiled(point, {case: [launch(code_hash=str(point))] for case in CASES})
        for case, ratio in zip(CASES, ratios, strict=True):
            search.measured(case, point, math.log(ratio))
    return search


def point(text: str, **values: int) -> Point:
    space = infer(text, launched={"scale_kernel": {"num_warps": 4, "num_stages": 3, "BLOCK": 1024}})
    assert all(name in [knob.name for knob in space.knobs] for name in values)
    return tuple(values.get(knob.name, knob.present) for knob in space.knobs)


# What arguments come to


def test_tensors_and_integers_of_the_entry_are_asked() -> None:
    inputs = {"one": call(tensor(4, 8), tensor(32), {"value": 32}, {"value": True})}
    assert sizes_of(PLAIN, "scale", inputs) == {"one": {"x.numel()": 32, "y.numel()": 32, "n": 32}}


def test_arguments_given_by_name_are_asked_too() -> None:
    inputs = {"one": {"dict": [["x", tensor(4)], ["n", {"value": 4}], ["unknown", {"value": 1}]]}}
    assert sizes_of(PLAIN, "scale", inputs) == {"one": {"x.numel()": 4, "n": 4}}


def test_what_stands_for_something_else_later_is_not_asked() -> None:
    text = KERNEL.format(body=f"x = x.contiguous()\n    n += 0\n    {LAUNCH}")
    inputs = {"one": call(tensor(4), tensor(4), {"value": 4})}
    assert sizes_of(text, "scale", inputs) == {"one": {"y.numel()": 4}}


@pytest.mark.parametrize("text", ["scale = print", "class scale:\n    pass", "def scale(*x):\n    pass", "def ("])
def test_of_what_is_no_plain_function_nothing_is_known(text: str) -> None:
    assert sizes_of(text, "scale", {"one": call(tensor(4))}) == {}


# What parts the cases


def test_each_parting_is_asked_once_and_lies_between() -> None:
    sizes = {
        "a": {"x.numel()": 1000, "y.numel()": 10, "n": 7},
        "b": {"x.numel()": 1000, "y.numel()": 20, "n": 7},
        "c": {"x.numel()": 900_000, "y.numel()": 30, "n": 7},
    }
    assert [(one.expression, sorted(one.above)) for one in conditions(sizes)] == [
        ("x.numel() >= 16384", ["c"]),
        ("y.numel() >= 16", ["b", "c"]),
    ]


@pytest.mark.parametrize(("low", "high"), [(-9, -2), (0, 1), (6, 7), (7, 8), (8, 9), (1, 1 << 40), (10**160, 10**170)])
def test_a_bound_parts_even_what_lies_close(low: int, high: int) -> None:
    (one,) = conditions({"a": {"n": low}, "b": {"n": high}})
    bound = int(one.expression.removeprefix("n >= "))
    assert low < bound <= high


def test_what_is_not_known_in_all_cases_parts_none() -> None:
    assert conditions({"a": {"n": 1}, "b": {}}) == []
    assert conditions({"a": {"n": 1}}) == []


# Files


def test_each_part_gets_its_best_and_the_file_says_when() -> None:
    wide, narrow = point(PLAIN, num_warps=8), point(PLAIN, num_warps=2)
    (one,) = splits(searched(PLAIN, {wide: (0.9, 1.3), narrow: (1.2, 0.7)}), PLAIN, "scale", SIZES)
    assert (one.above, one.below) == (wide, narrow)
    assert math.isclose(one.value, (math.log(1.3) + math.log(1.2)) / 2)
    assert "num_warps=(8 if x.numel() >= 262144 else 2))" in one.text


def test_where_nothing_is_better_the_file_stays_as_it_is() -> None:
    wide = point(PLAIN, num_warps=8)
    (one,) = splits(searched(PLAIN, {wide: (0.9, 1.3)}), PLAIN, "scale", SIZES)
    assert (one.above, one.below) == (wide, point(PLAIN))
    assert "num_warps=(8 if x.numel() >= 262144 else 4))" in one.text


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        ((1.1, 1.3), (1.05, 0.7)),  # one is the best in both
        ((1.295, 1.3), (1.3, 0.7)),  # two are hardly better
        ((0.9, 1.002), (1.0, 0.9)),  # hardly faster than the file as it is
    ],
)
def test_two_points_are_for_where_one_does_not_do(wide: tuple[float, float], narrow: tuple[float, float]) -> None:
    search = searched(PLAIN, {point(PLAIN, num_warps=8): wide, point(PLAIN, num_warps=2): narrow})
    assert splits(search, PLAIN, "scale", SIZES) == []


def test_a_point_that_failed_in_a_part_is_not_taken_there() -> None:
    wide, narrow = point(PLAIN, num_warps=8), point(PLAIN, num_warps=2)
    search = searched(PLAIN, {wide: (0.9, 1.3), narrow: (1.2, 0.7)})
    search.failed("small", narrow, Kind.WRONG)
    (one,) = splits(search, PLAIN, "scale", SIZES)
    assert (one.above, one.below) == (wide, point(PLAIN))


def test_a_value_that_stands_elsewhere_can_not_depend_on_the_entrys_arguments() -> None:
    helper = "def _launch(x, y, n):\n    " + LAUNCH
    text = KERNEL.format(body="_launch(x, y, n)") + "\n\n" + helper + "\n"
    inner = KERNEL.format(body=f"def launch(x, n):\n        {LAUNCH}\n    launch(x, n)")
    for each in (text, inner):
        search = searched(each, {point(each, num_warps=8): (0.9, 1.3), point(each, num_warps=2): (1.2, 0.7)})
        assert splits(search, each, "scale", SIZES) == []


def test_a_default_of_the_entry_is_none_of_its_body() -> None:
    text = PLAIN.replace("times=1", "block=1024").replace("BLOCK=1024", "BLOCK=block").replace("n, 1024", "n, block")
    wide, narrow = point(text, BLOCK=2048), point(text, BLOCK=256)
    assert splits(searched(text, {wide: (0.9, 1.3), narrow: (1.2, 0.7)}), text, "scale", SIZES) == []


def test_a_condition_that_stands_there_already_is_put_in_brackets() -> None:
    text = KERNEL.format(body=LAUNCH.replace("BLOCK=1024)", "BLOCK=1024, num_warps=4 if n < 1024 else 8)"))
    (one,) = splits(searched(text, {point(text, num_warps=1): (1.2, 0.7)}), text, "scale", SIZES)
    assert "num_warps=((4 if n < 1024 else 8) if x.numel() >= 262144 else 1))" in one.text


HANDED = KERNEL.format(body="scale_kernel[(triton.cdiv(n, block),)](x, y, n, BLOCK=block)").replace("times=1", "block")


def test_a_length_that_is_handed_in_stays_what_it_is_where_the_file_stays() -> None:
    (one,) = splits(searched(HANDED, {point(HANDED, BLOCK=2048): (0.9, 1.3)}), HANDED, "scale", SIZES)
    assert "    block = (2048 if x.numel() >= 262144 else block)\n    scale_kernel" in one.text


def test_an_argument_that_is_set_is_not_asked() -> None:
    sizes = {"small": {"block": 128}, "large": {"block": 8192}}
    search = searched(HANDED, {point(HANDED, BLOCK=2048): (0.9, 1.3)})
    assert splits(search, HANDED, "scale", sizes) == []


def test_where_several_launches_say_nothing_what_each_means_is_not_told() -> None:
    text = KERNEL.format(body=f"{LAUNCH}\n    {LAUNCH}")
    search = searched(text, {point(text, num_warps=8): (0.9, 1.3)})
    assert splits(search, text, "scale", SIZES) == []
