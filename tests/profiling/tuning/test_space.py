"""Which knobs a file exposes, with which values, and the files at other points."""

import ast
from typing import Any

import pytest

from tests.server.conftest import EXAMPLES
from tritonforge.profiling.tuning.space import POINTS_LIMIT, Space, SpaceError, infer
from tritonforge.profiling.tuning.variant import autotune_list, diff, variant

HEAD = "import torch, triton\nimport triton.language as tl\n"
KERNEL = """
@triton.jit
def kernel(x, n, BLOCK: tl.constexpr, {more}):
    for start in range(0, n, BLOCK):
        tl.store(x + start + tl.arange(0, BLOCK), 1.0)
"""


def source(host: str, more: str = "", kernel: str = KERNEL, above: str = "") -> str:
    body = "\n".join(f"    {line}" for line in host.strip().splitlines())
    return f"{HEAD}{above}{kernel.format(more=more)}\n\ndef entry(x, n):\n{body}\n"


def example(name: str, file: str) -> str:
    return (EXAMPLES / name / f"{file}.py").read_text()


def values(space: Space) -> dict[str, tuple[Any, ...]]:
    return {knob.name: knob.values for knob in space.knobs}


def moved(text: str, **to: Any) -> str:
    """The file with some knobs set."""
    space = infer(text, given={name: [value] for name, value in to.items()})
    point = tuple(to.get(knob.name, knob.present) for knob in space.knobs)
    found = variant(text, space, point)
    assert found is not None
    ast.parse(found)
    return found


def changed_lines(before: str, after: str) -> list[str]:
    return [line[1:].strip() for line in diff(before, after).splitlines() if line.startswith("+") and line[1] != "+"]


def test_the_knobs_of_the_examples_are_found() -> None:
    matmul = infer(example("matmul", "candidate"))
    assert {knob.name: (knob.role, knob.present) for knob in matmul.knobs} == {
        "BLOCK_M": ("tile", 128), "BLOCK_N": ("tile", 256), "BLOCK_K": ("tile", 64), "GROUP_M": ("size", 8),
        "num_warps": ("warps", 8), "num_stages": ("stages", 3),
    }  # fmt: skip
    assert matmul.present == (128, 256, 64, 8, 8, 3)
    assert values(infer(example("softmax", "baseline")))["BLOCK"][0] == 32


def test_a_tuple_of_locals_is_edited_where_its_literals_stand() -> None:
    text = example("matmul", "baseline")
    assert changed_lines(text, moved(text, BLOCK_N=128, num_warps=8)) == [
        "block_m, block_n, block_k = 64, 128, 32",
        "BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k, num_warps=8, num_stages=1,",
    ]


@pytest.mark.parametrize(
    ("host", "above", "line"),
    [
        ("kernel[(1,)](x, n, BLOCK=128)", "", "kernel[(1,)](x, n, BLOCK=256)"),
        ("kernel[(1,)](x, n, 128)", "", "kernel[(1,)](x, n, 256)"),
        ("size = 128\nkernel[(n // size,)](x, n, size)", "", "size = 256"),
        ("kernel[(1,)](x, n, BLOCK=SIZE)", "SIZE = 128\n", "SIZE = 256"),
        ("kernel[(1,)](x, n, BLOCK=SIZE)", "SIZE = tl.constexpr(128)\n", "SIZE = tl.constexpr(256)"),
        ("é = 'ä'; kernel[(1,)](x, n, BLOCK=128)", "", "é = 'ä'; kernel[(1,)](x, n, BLOCK=256)"),
        # The grid must follow, or programs would leave elements out.
        ("kernel[(triton.cdiv(n, 128),)](x, n, BLOCK=128)", "", "kernel[(triton.cdiv(n, 256),)](x, n, BLOCK=256)"),
    ],
)
def test_a_literal_is_found_wherever_it_stands(host: str, above: str, line: str) -> None:
    text = source(host, above=above)
    assert changed_lines(text, moved(text, BLOCK=256)) == [line]


@pytest.mark.parametrize(
    "host",
    [
        "kernel[(1,)](x, n, BLOCK=n)",
        "size = 128\nsize = 256\nkernel[(1,)](x, n, BLOCK=size)",
        "size = triton.next_power_of_2(n)\nkernel[(1,)](x, n, BLOCK=size)",
        "kernel[(1,)](x, n, BLOCK=128.0)",
    ],
)
def test_what_is_no_single_literal_is_no_knob(host: str) -> None:
    assert "BLOCK" not in values(infer(source(host)))


def test_options_that_are_not_given_are_added_and_those_computed_replaced() -> None:
    text = source("kernel[(1,)](x, n, BLOCK=128)")
    assert changed_lines(text, moved(text, num_warps=8, num_stages=2)) == [
        "kernel[(1,)](x, n, BLOCK=128, num_warps=8, num_stages=2)"
    ]
    computed = source("warps = min(n, 4)\nkernel[(1,)](x, n, BLOCK=128, num_warps=warps)")
    assert changed_lines(computed, moved(computed, num_warps=8)) == ["kernel[(1,)](x, n, BLOCK=128, num_warps=8)"]
    assert infer(computed).present[1] is None
    assert None in values(infer(computed))["num_warps"]


def test_the_default_of_an_option_that_is_not_given_is_the_file_as_it_is() -> None:
    space = infer(source("kernel[(1,)](x, n, BLOCK=128)"), launched={"kernel": {"num_warps": 8, "num_stages": 3}})
    assert values(space)["num_warps"] == (1, 2, 4, 16, None)
    assert space.named(space.present) == {"BLOCK": 128, "num_warps": 8, "num_stages": 3}


def test_stages_are_no_knob_without_a_loop() -> None:
    assert "num_stages" not in values(infer(example("sin", "candidate")))


def test_options_that_may_hide_in_keywords_are_left_alone() -> None:
    assert list(values(infer(source("kernel[(1,)](x, n, BLOCK=128, **options)")))) == ["BLOCK"]
    given = infer(source("kernel[(1,)](x, n, BLOCK=128, num_warps=4, **options)"))
    assert list(values(given)) == ["BLOCK", "num_warps"]


@pytest.mark.parametrize(("parameter", "value"), [("IS_CAUSAL", True), ("HEAD_DIM", 64), ("EVEN_K", 1), ("FLAG", 1)])
def test_constants_that_say_what_is_computed_are_left_alone_until_they_are_named(parameter: str, value: object) -> None:
    text = source(f"kernel[(1,)](x, n, BLOCK=128, {parameter}={value})", f"{parameter}: tl.constexpr")
    space = infer(text)
    assert parameter not in values(space)
    assert parameter in space.left
    other = not value if isinstance(value, bool) else 2
    assert f"{parameter}={other}" in moved(text, **{parameter: other})


def test_booleans_stay_booleans() -> None:
    text = source("kernel[(1,)](x, n, BLOCK=128, FLAT=True)", "FLAT: tl.constexpr")
    assert values(infer(text))["FLAT"] == (False, True)
    assert "FLAT=False" in moved(text, FLAT=False)


def test_numbers_of_the_grid_are_knobs_where_the_kernel_asks_for_its_programs() -> None:
    asking = KERNEL.replace("range(0, n, BLOCK)", "range(tl.program_id(0), n, tl.num_programs(0))")
    host = "waves = 4\ngrid = (min(n, waves * 132),)\nkernel[grid](x, n, BLOCK=128)"
    text = source(host, kernel=asking)
    space = infer(text)
    assert {knob.name for knob in space.knobs if knob.role == "grid"} == {"waves", "grid_0"}
    assert "waves = 8" in moved(text, waves=8)
    fixed = infer(source(host))
    assert not [knob for knob in fixed.knobs if knob.role == "grid"]
    assert {"waves", "grid_0"} <= fixed.left.keys()


def test_names_are_unique_among_kernels_and_launches() -> None:
    other = KERNEL.replace("kernel", "second")
    text = source(
        "kernel[(1,)](x, n, BLOCK=128)\nkernel[(1,)](x, n, BLOCK=512)\nsecond[(1,)](x, n, BLOCK=64)",
        above=other.format(more=""),
    )
    names = [knob.name for knob in infer(text).knobs if knob.parameter == "BLOCK"]
    assert len(set(names)) == 3
    assert "second.BLOCK" in names
    assert [name for name in names if name.startswith("kernel.BLOCK:")]
    assert infer(text, launched={"second": {}}).knobs[0].name == "BLOCK"


def test_equal_literals_of_one_kernel_change_together() -> None:
    text = source("if n > 4:\n    kernel[(1,)](x, n, BLOCK=128)\nelse:\n    kernel[(2,)](x, n, BLOCK=128)")
    assert len(changed_lines(text, moved(text, BLOCK=256))) == 2


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"BLOCKS": [64]}, "no knob 'BLOCKS'.*its knobs are: BLOCK, num_warps, num_stages"),
        ({"n": [64]}, "no knob 'n'"),
        ({"BLOCK": list(range(1, 40))}, "39 values of BLOCK.*32 are allowed"),
        ({"num_warps": [0]}, "num_warps must be 1 or more"),
    ],
)
def test_a_space_that_can_not_be_searched_says_why(given: dict[str, list[int | bool]], message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        infer(source("kernel[(1,)](x, n, BLOCK=128)"), given=given)


def test_the_caller_restricts_extends_and_leaves_out() -> None:
    space = infer(source("kernel[(1,)](x, n, BLOCK=128)"), given={"BLOCK": [96, 64], "num_stages": []})
    assert values(space) == {"BLOCK": (64, 96), "num_warps": (1, 2, 8, 16, None)}
    assert space.size == 10


def test_a_large_space_is_sampled_around_the_file() -> None:
    space = infer(example("matmul", "candidate"))
    points = space.points()
    assert space.size > POINTS_LIMIT == len(points) == len(set(points))
    assert set(space.near(space.present)) <= set(points)
    assert all(space.contains(point) for point in points)


def test_a_file_that_is_no_python_is_refused() -> None:
    with pytest.raises(SpaceError, match="can't be parsed"):
        infer("def (")


TUNED = source(
    "kernel[lambda meta: (triton.cdiv(n, meta['BLOCK']),)](x, n)",
    kernel=KERNEL.replace(
        "@triton.jit",
        "@triton.autotune(configs=[triton.Config({{'BLOCK': 64}}, num_warps=2), triton.Config({{'BLOCK': 512}})],"
        " key=['n'])\n@triton.jit",
    ),
)


def test_an_autotuners_list_is_searched_and_written_anew() -> None:
    space = infer(TUNED)
    assert list(values(space)) == ["BLOCK", "num_warps", "num_stages"]
    assert {64, 512} <= set(values(space)["BLOCK"])
    assert space.seeds() == [(64, 2, 3), (512, 4, 3)]
    one = variant(TUNED, space, (128, 8, 2))
    assert one is not None
    assert "configs=[triton.Config({'BLOCK': 128}, num_warps=8, num_stages=2)]" in one
    both = variant(TUNED, space, (128, 8, 2), (64, 2, 3))
    assert both is not None
    assert both.count("triton.Config(") == 2
    # A variant at the first configuration tries that one alone.
    first = variant(TUNED, space, space.present)
    assert first is not None
    assert first.count("triton.Config(") == 1


@pytest.mark.parametrize(
    "configs", ["[triton.Config({{'BLOCK': 64}}, pre_hook=hook)]", "make(3)", "[triton.Config({{'BLOCK': size()}})]"]
)
def test_a_list_with_hooks_or_that_can_not_be_read_is_left_alone(configs: str) -> None:
    kernel = KERNEL.replace("@triton.jit", f"@triton.autotune(configs={configs}, key=['n'])\n@triton.jit")
    space = infer(source("kernel[(1,)](x, n)", kernel=kernel))
    assert "BLOCK" not in values(space)
    assert "kernel's autotuner" in space.left


def test_the_list_of_winners_is_a_decorator() -> None:
    space = infer(example("sin", "candidate"))
    text = autotune_list(space, "sin_kernel", [(2048, 8), (512, 4)], ["n"])
    assert ast.parse(f"{text}\ndef kernel(): ...")
    assert "triton.Config({'BLOCK': 2048}, num_warps=8)" in text
    assert "key=['n']" in text


def test_a_point_of_the_file_is_the_file() -> None:
    for name in ("sin", "softmax", "matmul"):
        text = example(name, "candidate")
        space = infer(text)
        assert variant(text, space, space.present) == text


# Strange files

FREE = "kernel[(triton.cdiv(n, {block}),)](x, n, BLOCK={block})"


def test_a_function_that_hands_its_own_argument_on_to_itself_is_followed_once() -> None:
    again = "def entry(x, n, block=64):\n    if n < 0:\n        return entry(x, -n, block)\n    " + FREE.format(
        block="block"
    )
    assert values(infer(f"{HEAD}{KERNEL.replace(', {more}', '')}\n\n{again}\n")).keys() >= {"num_warps"}


def test_an_expression_that_is_nested_too_deeply_is_refused() -> None:
    with pytest.raises(SpaceError, match=r"nested too deeply|can't be parsed"):
        infer(source(FREE.format(block="a" + ".b" * 2000)))


def test_what_is_too_much_to_be_searched_is_left_as_it_is() -> None:
    names = [f"N{number}" for number in range(20)]
    kernel = KERNEL.replace("1.0)", "1.0)\n" + "".join(f"    o{name} = tl.arange(0, {name})\n" for name in names))
    more = ", ".join(f"{name}: tl.constexpr" for name in names)
    text = source("kernel[(1,)](x, n, BLOCK=64, " + ", ".join(f"{name}=32" for name in names) + ")", more, kernel)
    given = {"num_warps": [2, 8]}
    space = infer(text, given=given)
    assert len(space.knobs) == 16
    assert "num_warps" in values(space)
    left = [name for name, why in space.left.items() if "more than 16 knobs" in why]
    assert left
    assert not set(left) & values(space).keys()


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"def c{i}():\n    return {' + '.join([f'c{i + 1}()'] * 60)}\n" for i in range(6)) + "configs = c0()\n",
        "".join(f"def f{i}(x, n, block):\n" + f"    f{i + 1}(x, n, block)\n" * 9 for i in range(6)),
    ],
    ids=["lists of lists", "callers of callers"],
)
def test_what_multiplies_by_being_followed_is_followed_once(text: str) -> None:
    kernel = KERNEL.replace(", {more}", "")
    if "configs" in text:
        kernel = kernel.replace("@triton.jit", '@triton.autotune(configs=c0(), key=["n"])\n@triton.jit')
    host = f"def f6(x, n, block):\n    {FREE.format(block='block')}\n\n\ndef entry(x, n):\n    f0(x, n, 64)\n"
    assert infer(f"{HEAD}{text}\n{kernel}\n\n{host}") is not None
