"""Variants of kernel files without one kind of work, as text; they are compiled in test_probes_compiled.py."""

import ast
from typing import get_args

import pytest

from tritonforge.profiling.diagnosis import probe_code
from tritonforge.profiling.diagnosis.probes import ProbeName, ProbeVariant, Unmade, variant

NAMES: tuple[ProbeName, ...] = get_args(ProbeName)
HEAD = "import triton\nimport triton.language as tl\n\n"
KERNEL = (
    HEAD
    + '''@triton.jit
def kernel(x, y, n, B: tl.constexpr):
    at = tl.arange(0, B)
    for k in range(0, n, B):
        """ä"""; value = tl.load(x + at, mask=(at < n))
        tl.store(
            y + at, tl.exp(value),
        )


def run(x, y):
    kernel[(1,)](x, y, 3, B=4)
'''
)


def made(text: str, name: ProbeName, launched: dict[str, int] | None = None) -> ProbeVariant:
    found = variant(text, name, launched)
    assert isinstance(found, ProbeVariant), found
    return found


def unmade(text: str, name: ProbeName, launched: dict[str, int] | None = None) -> str:
    found = variant(text, name, launched)
    assert isinstance(found, Unmade), found
    assert found.name == name
    return found.reason


def body(lines: str) -> str:
    """A file of one kernel that is launched."""
    indented = "".join(f"    {line}\n" for line in lines.splitlines())
    return f"{HEAD}@triton.jit\ndef kernel(x, y, n, B: tl.constexpr):\n{indented}\n\ndef run(x):\n    kernel[(1,)](x)\n"


def changed(text: str, found: ProbeVariant) -> list[str]:
    """Lines that differ, of those that both have."""
    pairs = zip(text.splitlines(), found.text.splitlines(), strict=False)
    return [after.strip() for before, after in pairs if before != after]


def test_a_call_gets_another_name_and_lines_keep_their_numbers() -> None:
    found = made(KERNEL, "no_loads")
    assert changed(KERNEL, found) == ['"""ä"""; value = _probe_load(x + at, mask=(at < n))']
    assert found.lines == (8,)
    assert "def _probe_load(" in found.text.split("def run(", 1)[1]
    assert changed(KERNEL, made(KERNEL, "no_stores")) == ["_probe_store("]
    assert changed(KERNEL, made(KERNEL, "no_math")) == ["y + at, _probe_same(value),"]
    assert made(KERNEL, "neither").lines == (8, 10)


def test_idle_loads_differ_from_no_loads_in_what_stands_for_a_load() -> None:
    idle, gone = made(KERNEL, "idle_loads"), made(KERNEL, "no_loads")
    assert changed(KERNEL, idle) == changed(KERNEL, gone)
    assert "def _probe_value(" in gone.text
    assert "def _probe_value(" not in idle.text


@pytest.mark.parametrize(
    ("loop", "halved"),
    [
        ("range(n)", "range(((n) + 1) // 2)"),
        ("range(2, n)", "range(2, (2) + ((n) - (2) + 1) // 2)"),
        ("tl.range(0, n, B, num_stages=3)", "(0) + (((n) - (0) + (B) - 1) // (B) + 1) // 2 * (B), B, num_stages=3)"),
        ("tl.static_range(B)", "tl.static_range(((B) + 1) // 2)"),
    ],
)
def test_a_range_ends_after_half_of_it(loop: str, halved: str) -> None:
    text = body(f"for k in {loop}:\n    for j in range(3):\n        tl.load(x + k)\nfor k in range(n):\n    pass")
    (line,) = changed(text, made(text, "half_trips"))
    assert line.endswith(f"{halved}:")


@pytest.mark.parametrize(
    "loop", ["range(n, 0, -1)", "range(*n)", "tl.range(0, n, step=B)", "pairs", "range(0, n, B +\n    1)"]
)
def test_a_range_that_cannot_be_read_stays_whole(loop: str) -> None:
    text = body(f"for k in {loop}:\n    tl.load(x + k)")
    assert "all iterations of the loop of line 6" in unmade(text, "half_trips")


def test_loops_count_that_load_in_a_function_they_call() -> None:
    text = body("for k in range(n):\n    inner(x)") + "\n\n@triton.jit\ndef inner(x):\n    tl.load(x)\n"
    assert made(text, "half_trips").lines == (6,)


def test_only_kernels_that_are_launched_and_what_they_call_are_changed() -> None:
    text = (
        f"{HEAD}@triton.jit\ndef inner(x):\n    return tl.load(x)\n\n\n@triton.jit\ndef other(x):\n    tl.load(x)\n\n\n"
        "@triton.autotune([triton.Config({})], key=[])\n@triton.jit\ndef kernel(x):\n    inner(x)\n\n\n"
        "def run(x):\n    kernel[(1,)](x)\n"
    )
    assert made(text, "idle_loads").lines == (6,)
    assert made(text, "idle_loads", {"other": 3}).lines == (11,)
    assert "no kernel of this file is launched" in unmade(text, "idle_loads", {"missing": 3})
    nobody = text.replace("kernel[(1,)](x)", "pass")
    assert made(nobody, "idle_loads").lines == (6, 11)


def test_all_functions_of_a_name_are_changed() -> None:
    one = "    @triton.jit\n    def kernel(x):\n        tl.load(x)\n"
    text = f"{HEAD}if A:\n{one}else:\n{one}\n\ndef run(x):\n    kernel[(1,)](x)\n"
    assert made(text, "idle_loads").lines == (7, 11)


@pytest.mark.parametrize(
    ("imports", "call"),
    [
        ("import triton.language as T", "T.load(x)"),
        ("from triton import language as T", "T.load(x)"),
        ("from triton.language import load", "load(x)"),
        ("from triton.language import load as fetch", "fetch(x)"),
        ("import triton.language", "triton.language.load(x)"),
    ],
)
def test_the_language_is_known_by_whatever_name(imports: str, call: str) -> None:
    text = (
        f"import triton\n{imports}\n\n@triton.jit\ndef kernel(x):\n    {call}\n\n\ndef run(x):\n    kernel[(1,)](x)\n"
    )
    assert changed(text, made(text, "no_loads")) == ["_probe_load(x)"]


def test_a_descriptors_block_is_moved_out_of_its_tensor() -> None:
    text = body("d = tl.make_tensor_descriptor(x, [n], [1], [B])\nv = d.load([n * 2])\nd.store([tl.load(y)], v)")
    assert changed(text, made(text, "idle_loads")) == [
        "v = d.load([(n * 2) + _probe_far()])",
        "d.store([_probe_load(y)], v)",
    ]
    assert changed(text, made(text, "no_stores")) == ["d.store([(tl.load(y)) + _probe_far()], v)"]
    hidden = body("v = d.load(where)")
    assert "an access whose offsets are no list (line 6)" in unmade(hidden, "idle_loads")


@pytest.mark.parametrize(
    ("call", "masked"),
    [
        ("tl.atomic_add(x, n)", "tl.atomic_add(x, n, mask=_probe_off())"),
        ("tl.atomic_add(x, n, sem='relaxed')", "tl.atomic_add(x, n, sem='relaxed', mask=_probe_off())"),
        ("tl.atomic_max(x, n, mask=n < 3)", "tl.atomic_max(x, n, mask=(n < 3) & _probe_off())"),
        ("tl.atomic_max(x, n, None)", "tl.atomic_max(x, n, _probe_off())"),
    ],
)
def test_an_atomic_whose_result_nobody_uses_writes_nothing(call: str, masked: str) -> None:
    text = body(call)
    assert changed(text, made(text, "no_stores")) == [masked]
    assert "whose result is used" in unmade(body(f"n = {call}"), "no_stores")


def test_what_stays_is_told() -> None:
    text = body("tl.load(x)\nother_file(x)\ntl.inline_asm_elementwise('', '', [x], tl.int32, True, 1)")
    left = made(text, "idle_loads").left
    assert left[0] == "what other_file, defined elsewhere, does (line 7)"
    assert left[1] == "what inline_asm_elementwise reads (line 8)"
    assert "integers" in left[2]
    many = body("tl.load(x)\n" + "\n".join(f"other_{number}(x)" for number in range(20)))
    assert made(many, "idle_loads").left[-1] == "and 15 more"


def test_stages_keep_loads_of_a_product_ahead_and_are_asked_for() -> None:
    text = body("for k in range(n):\n    v = tl.dot(tl.load(x), tl.load(y), v)")
    found = made(text, "no_math", {"kernel": 3})
    assert changed(text, found)[0] == "for k in _probe_tl.range(n, num_stages=3):"
    assert "ahead" not in found.adds
    unknown = made(text, "no_math")
    assert unknown.lines == (7,)
    assert unknown.adds.endswith("loads that were copied ahead for a product no longer are")
    assert made(text, "no_math", {"kernel": 1}).lines == (7,)
    told = text.replace("range(n)", "tl.range(n, num_stages=2)")
    assert made(told, "no_math", {"kernel": 3}).lines == (7,)


@pytest.mark.parametrize(
    "loop",
    [
        "while tl.load(x, volatile=True) == 0:\n    pass",
        "while tl.atomic_cas(x, 0, 1) == 1:\n    pass",
        "ready = 0\nwhile ready == 0:\n    ready = tl.atomic_add(x, 0)",
    ],
)
def test_no_variant_waits_for_what_is_never_written(loop: str) -> None:
    text = body(f"{loop}\nfor k in range(n):\n    tl.store(y, tl.load(x))")
    for name in ("no_stores", "half_trips"):
        assert "waits for what another program writes" in unmade(text, name)
    assert isinstance(variant(text, "idle_loads"), ProbeVariant)


def test_a_loop_that_draws_its_tiles_is_no_wait() -> None:
    text = body("t = 0\nwhile t < n:\n    v = tl.load(x + t)\n    tl.store(y + t, v)\n    t = tl.atomic_add(y, 1)")
    assert made(text, "no_stores").lines == (9,)


def test_neither_needs_both() -> None:
    assert "another probe does the same" in unmade(body("tl.store(y, tl.load(x))"), "neither")
    assert "another probe does the same" in unmade(body("tl.store(y, tl.exp(n))"), "neither")


def test_names_are_told_in_bounds() -> None:
    long = "k" * 5000
    assert len(unmade(body("pass").replace("kernel", long), "no_loads")) < 200
    (stays, _) = made(body(f"tl.load(x)\n{long}(x)\n"), "no_loads").left
    assert len(stays) < 150
    assert len(made(body(f"tl.load(x)\ntl.atomic_{long}(x)\n"), "no_loads").left[0]) < 150


@pytest.mark.parametrize("name", NAMES)
def test_what_gives_no_variant_has_a_reason(name: ProbeName) -> None:
    assert "nothing to take away in kernel" in unmade(body("pass"), name)
    assert "can't be parsed" in unmade("def f(:\n", name)
    assert "can't be parsed" in unmade("x = " + "(" * 5000, name)
    assert "can't be parsed" in unmade("#" * 300_000, name)
    assert "no kernel of this file is launched" in unmade("x = 1\n", name)
    assert "prefix" in unmade(KERNEL + "# _probe_ " + " ".join(f"_probe{n}_" for n in range(2, 10)), name)


def test_too_many_places_are_not_edited() -> None:
    assert "are the most" in unmade(body("tl.load(x)\n" * 201), "idle_loads")
    assert "too long" in unmade(body("tl.load(x)\n" * 5000), "idle_loads")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_every_variant_is_python_whatever_ends_its_lines(name: ProbeName, newline: str) -> None:
    text = KERNEL.replace("\n", newline).replace("def run", "\x0cdef run")
    found = made(text, name)
    ast.parse(found.text)
    assert found.lines == made(KERNEL, name).lines
    assert "PROBE" not in found.text


def test_names_that_the_file_has_are_not_taken() -> None:
    assert "= _probe2_load(" in made(KERNEL + "_probe_load = 1\n", "no_loads").text


def test_a_name_that_is_not_where_the_tree_says_is_left_alone() -> None:
    text = body("tl . load(x)")
    assert "a load whose name can't be read (line 6)" in unmade(text, "no_loads")
    nested = body("tl.atomic_add(x, (n))\nfor k in range((n)):\n    v = tl.dot(x, y)")
    assert "an atomic whose mask can't be read (line 6)" in unmade(nested, "no_stores")
    assert made(nested, "no_math", {"kernel": 3}).lines == (8,)


@pytest.mark.parametrize("part", [probe_code.HEAD, probe_code.VALUE_LOAD, probe_code.IDLE_LOAD, probe_code.STORE])
def test_functions_that_are_added_have_no_bare_texts_and_tuples_as_defaults(part: str) -> None:
    # Triton 3.6 can't call such functions from kernels.
    for node in ast.walk(ast.parse(part)):
        if isinstance(node, ast.FunctionDef):
            texts = [ast.unparse(each) for each in node.args.defaults]
            assert not {"()", "''"} & set(texts), node.name
