"""Knobs that no literal at a launch gives away: computed lengths, defaults, arguments, tables, heuristics."""

from typing import Any

import pytest

from tests.profiling.tuning.test_space import HEAD, KERNEL, changed_lines, source, values
from tritonforge.profiling.tuning.order import place_of
from tritonforge.profiling.tuning.space import Space, infer
from tritonforge.profiling.tuning.variant import variant

ROWS = """
@triton.jit
def kernel(x, n, BLOCK: tl.constexpr):
    tl.store(x + tl.program_id(0) * n + tl.arange(0, BLOCK), 1.0, mask=tl.arange(0, BLOCK) < n)
"""
"""A program has a row, and its tile the whole of it."""
PAIRS = """
@triton.jit
def kernel(x, n, M: tl.constexpr, N: tl.constexpr):
    rows = {place} * M + tl.arange(0, M)
    for start in range(0, {end}, N):
        tl.store(x + rows[:, None] * n + start + tl.arange(0, N)[None, :], 1.0)
"""
GRID = "grid = (triton.cdiv(n, block),)\n"


def space_of(text: str, kernel: str = "kernel", **known: int) -> Space:
    return infer(text, launched={kernel: {"num_warps": 4, "num_stages": 3, **known}})


def moved(text: str, known: int, **to: Any) -> list[str]:
    """The lines that change where some knobs are set, of a kernel whose constants are all the same."""
    space = space_of(text, BLOCK=known, M=known, N=known)
    assert to.keys() <= values(space).keys(), space.left
    found = variant(text, space, tuple(to.get(knob.name, knob.present) for knob in space.knobs))
    assert found is not None
    return changed_lines(text, found)


@pytest.mark.parametrize(
    ("host", "lines"),
    [
        # What is computed gives way to a number as a whole, wherever it is assigned.
        ("block = triton.next_power_of_2(n)\n", ["block = 512"]),
        ("block = 128 if n > 64 else 64\n", ["block = 512"]),
        ("if n > 64:\n    block = 128\nelse:\n    block = 64\n", ["block = 512", "block = 512"]),
        ("block = 64\nif n > 4096:\n    block = 128\n", ["block = 512", "block = 512"]),
        # Of a limit the number is the knob: the length stays at most what the file computes.
        ("block = min(128, triton.next_power_of_2(n))\n", ["block = min(512, triton.next_power_of_2(n))"]),
        ("block = min(triton.next_power_of_2(n), 2 * 64)\n", ["block = min(triton.next_power_of_2(n), 512)"]),
        ("most = 128\nblock = min(n, most)\n", ["most = 512"]),
        ("block = min(128, n)\nblock = max(block, 16)\n", ["block = min(512, n)"]),
        ("block = 32 * 4\n", ["block = 512"]),
        ("first = 128\nblock = first\n", ["first = 512"]),
    ],
)
def test_a_computed_length_is_a_knob_where_the_grid_makes_up_for_it(host: str, lines: list[str]) -> None:
    text = source(f"{host}{GRID}kernel[grid](x, n, BLOCK=block)", kernel=ROWS)
    assert moved(text, 128, BLOCK=512) == lines


def test_so_it_is_where_a_loop_does() -> None:
    text = source("kernel[(1,)](x, n, BLOCK=triton.next_power_of_2(n))")
    assert moved(text, 128, BLOCK=64) == ["kernel[(1,)](x, n, BLOCK=64)"]


def test_what_stands_in_the_grid_changes_with_it() -> None:
    text = source("kernel[(n // triton.next_power_of_2(n),)](x, n, triton.next_power_of_2(n))", kernel=ROWS)
    assert moved(text, 128, BLOCK=64) == ["kernel[(n // 64,)](x, n, 64)"]


def test_a_grid_may_be_a_function() -> None:
    grid = "def grid(meta):\n    return (triton.cdiv(n, meta['BLOCK']),)\n"
    text = source(f"block = triton.next_power_of_2(n)\n{grid}kernel[grid](x, n, BLOCK=block)", kernel=ROWS)
    assert moved(text, 128, BLOCK=64) == ["block = 64"]


@pytest.mark.parametrize(
    ("host", "why"),
    [
        # A shorter tile would leave the end of each row out.
        ("kernel[(n,)](x, n, BLOCK=triton.next_power_of_2(n))", "neither a loop nor the grid"),
        ("kernel[(n,)](x, n, BLOCK=min(64, triton.next_power_of_2(n)))", "neither a loop nor the grid"),
    ],
)
def test_a_tile_that_holds_all_is_none(host: str, why: str) -> None:
    space = space_of(source(host, kernel=ROWS), BLOCK=128)
    assert "BLOCK" not in values(space)
    assert why in space.left["BLOCK"]


@pytest.mark.parametrize(
    "host",
    [
        "block = x.shape[-1]\n",
        "block = triton.cdiv(n, 4)\n",
        "block = n // 4\n",
        "block, warps = settings(n)\n",
        "block = 64\nblock *= 2\n",
        "for block in (64, 128):\n    pass\n",
    ],
)
def test_sizes_of_the_inputs_and_what_changes_are_none(host: str) -> None:
    assert "BLOCK" not in values(space_of(source(f"{host}{GRID}kernel[grid](x, n, BLOCK=block)"), BLOCK=128))


def test_what_is_computed_is_told_from_what_is_known_of_calls() -> None:
    text = source(f"block = triton.next_power_of_2(n)\n{GRID}kernel[grid](x, n, BLOCK=block)")
    unknown = infer(text)
    assert "BLOCK" not in values(unknown)
    assert unknown.left["BLOCK"] == "it is computed, and not known what it is"
    space = space_of(text, BLOCK=128)
    assert space.present[0] is None
    assert {64, 128, 256, None} <= set(values(space)["BLOCK"])
    near, far = (abs(place_of(space, (None, None, None))[0] - place_of(space, (n, None, None))[0]) for n in (128, 1024))
    assert near < 1 < far


def test_of_a_limit_that_is_not_reached_only_less_is_another_length() -> None:
    text = source(f"block = min(4096, triton.next_power_of_2(n))\n{GRID}kernel[grid](x, n, BLOCK=block)")
    space = space_of(text, BLOCK=256)
    assert values(space)["BLOCK"] == (32, 64, 128, 4096)
    # It is a step from what it comes to, not five.
    assert abs(place_of(space, space.present)[0] - place_of(space, (128, None, None))[0]) < 1.5


def function(head: str, body: str, after: str = "") -> str:
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return f"{HEAD}{KERNEL.format(more='')}\ndef {head}:\n{lines}\n{after}"


LAUNCH = "grid = (triton.cdiv(n, block),)\nkernel[grid](x, n, BLOCK=block)"


def test_a_default_is_a_knob() -> None:
    assert moved(function("entry(x, n, block=128)", LAUNCH), 128, BLOCK=64) == ["def entry(x, n, block=64):"]
    assert moved(function("entry(x, n, *, block=128)", LAUNCH), 128, BLOCK=64) == ["def entry(x, n, *, block=64):"]


def test_what_the_entry_is_handed_gives_way_to_a_number_of_the_files() -> None:
    text = function("entry(x, n, block)", f'"""Text."""\n{LAUNCH}')
    assert moved(text, 128, BLOCK=64) == ["block = 64"]
    applied = function("forward(ctx, x, n, block=128)", LAUNCH)
    assert moved(applied, 128, BLOCK=64) == ["block = 64"]
    # Neither does a default tell what callers hand over.
    assert moved(function("entry(x, n, block=1)", LAUNCH), 128, BLOCK=64) == ["block = 64"]


def test_a_call_within_the_file_is_followed() -> None:
    inner = function(
        "inner(x, n, block)", LAUNCH, "\n\ndef entry(x, n):\n    size = 128\n    inner(x, n, block=size)\n"
    )
    assert moved(inner, 128, BLOCK=64) == ["size = 64"]
    # Of a call that can't be followed nothing is known.
    computed = inner.replace("size = 128", "size = x.shape[0]")
    assert "BLOCK" not in values(space_of(computed, BLOCK=128))


def test_a_table_of_configurations_is_edited_in_all_rows() -> None:
    host = (
        "table = {torch.float16: {'B': 64, 'other': 1}, torch.float32: {'B': 128, 'other': 2}}\n"
        "kernel[(1,)](x, n, BLOCK=table[x.dtype]['B'])"
    )
    assert moved(source(host), 64, BLOCK=256) == [
        "table = {torch.float16: {'B': 256, 'other': 1}, torch.float32: {'B': 256, 'other': 2}}"
    ]


def test_a_global_that_the_launch_falls_back_from_is_a_constant_of_the_module() -> None:
    text = source("global SIZE\nkernel[(1,)](x, n, BLOCK=SIZE)\nSIZE = SIZE // 2", above="SIZE = 128\n")
    assert moved(text, 128, BLOCK=64) == ["SIZE = 64"]


def test_lengths_that_one_name_gives_change_together() -> None:
    host = "block = 64\nkernel[(triton.cdiv(n, block),)](x, n, M=block, N=block)"
    # A loop that goes as far as a program's place tells may rely on both being the same.
    tied = source(host, kernel=PAIRS.replace("{place}", "tl.program_id(0)").replace("{end}", "tl.program_id(0) * N"))
    assert "N" not in values(space_of(tied, M=64, N=64))
    assert moved(tied, 64, M=128) == ["block = 128"]
    # The step of a loop alone need not be.
    apart = source(host, kernel=PAIRS.replace("{place}", "tl.program_id(0)").replace("{end}", "n"))
    assert moved(apart, 64, M=128, N=32) == ["block = 128", "kernel[(triton.cdiv(n, block),)](x, n, M=block, N=32)"]


def test_one_name_for_two_kernels_is_one_knob() -> None:
    text = source(
        "block = 64\nkernel[(1,)](x, n, BLOCK=block)\nsecond[(1,)](x, n, BLOCK=block)",
        above=KERNEL.replace("kernel", "second").format(more=""),
    )
    space = infer(text)
    assert [knob.parameter for knob in space.knobs].count("BLOCK") == 1
    assert all(variant(text, space, point) is not None for point in space.points())


def test_heuristics_give_way_to_numbers() -> None:
    kernel = KERNEL.replace(
        "@triton.jit",
        "@triton.heuristics({{'BLOCK': lambda args: triton.next_power_of_2(args['n']), 'num_warps': warps}})\n"
        "@triton.jit",
    )
    text = source("kernel[(1,)](x, n)", kernel=kernel)
    assert moved(text, 128, BLOCK=64, num_warps=8) == [
        "@triton.heuristics({'BLOCK': lambda *_, **__: 64, 'num_warps': lambda *_, **__: 8})"
    ]


def test_a_constant_may_be_annotated_by_a_text() -> None:
    text = source("kernel[(1,)](x, n, BLOCK=4)", kernel=KERNEL.replace("tl.constexpr", "'tl.constexpr'"))
    assert {4, 1024} <= set(values(infer(text))["BLOCK"])


def test_a_switch_that_the_file_sets_both_ways_says_what_is_computed() -> None:
    host = "kernel[(1,)](x, n, BLOCK=128, FLAT=True)\nkernel[(1,)](x, n, BLOCK=128, FLAT=False)"
    space = infer(source(host, "FLAT: tl.constexpr"))
    assert "FLAT" not in {knob.parameter for knob in space.knobs}
    assert "launches the kernel with either" in space.left["FLAT"]


def test_how_long_tiles_may_be_is_told_by_the_kernel() -> None:
    pairs = PAIRS.replace("{place}", "tl.program_id(0)").replace("{end}", "n")
    moving = infer(source("kernel[(1,)](x, n, M=4, N=1024)", kernel=pairs))
    assert (values(moving)["M"][0], values(moving)["N"][-1]) == (1, 4096)
    product = pairs.replace("tl.store(", "tl.dot(rows, rows)\n        tl.store(")
    multiplying = infer(source("kernel[(1,)](x, n, M=32, N=64)", kernel=product))
    assert values(multiplying)["M"] == values(multiplying)["N"] == (16, 32, 64, 128, 256)


def tuned(configs: str, above: str) -> str:
    kernel = KERNEL.replace("@triton.jit", f"@triton.autotune(configs={configs}, key=['n'])\n@triton.jit")
    return source("kernel[lambda meta: (triton.cdiv(n, meta['BLOCK']),)](x, n)", kernel=kernel, above=above)


MADE = """
def small():
    found = [triton.Config({'BLOCK': size}, num_warps=warps) for size in (64, 128) for warps in (2, 4)]
    return found

def large():
    return [triton.Config({'BLOCK': 512, 'waves_per_eu': 2}, num_warps=8)]

def configs():
    if torch.version.hip:
        return large()
    return small()
"""


def test_a_list_that_functions_make_becomes_the_configuration_that_it_comes_to() -> None:
    text = tuned("configs()", MADE)
    space = space_of(text, BLOCK=128)
    assert space.present == (128, 4, 3)
    found = variant(text, space, (512, 8, 2))
    assert found is not None
    assert "configs=[triton.Config({'BLOCK': 512}, num_warps=8, num_stages=2)]" in found


@pytest.mark.parametrize(
    "above",
    [
        MADE.replace("num_warps=8", "num_warps=8, pre_hook=print"),
        MADE.replace("{'BLOCK': size}", "options(size)"),
        "configs = print\n",
    ],
)
def test_one_with_hooks_or_of_which_nothing_is_known_is_left_alone(above: str) -> None:
    space = space_of(tuned("configs()", above), BLOCK=128)
    assert values(space) == {}
    assert "kernel's autotuner" in space.left
    assert infer(tuned("configs()", MADE)).left.keys() == {"kernel's autotuner"}


def test_the_shape_of_a_whole_tensor_is_no_tiles() -> None:
    kernel = KERNEL.replace(
        "tl.store(", "tl.make_block_ptr(x, (n, ROWS), (ROWS, 1), (start, 0), (BLOCK, BLOCK), (1, 0))\n        tl.store("
    )
    text = source("kernel[(1,)](x, n, BLOCK=128, ROWS=n)", "ROWS: tl.constexpr", kernel)
    space = space_of(text, BLOCK=128, ROWS=64)
    assert "ROWS" not in values(space)
    assert "BLOCK" in values(space)
