import random
import re

import pytest

from tritonforge.profiling.optimization.model import Attempt
from tritonforge.profiling.optimization.novelty import (
    constants_changed,
    near,
    remarks,
    repeated,
    text_identity,
    untried,
)

from .made_up import attempt, baseline, diagnosed, evidence, failed, finding

KERNEL = '''"""Row-wise softmax."""
import torch
import triton
import triton.language as tl

ROWS: tl.constexpr = 4


@triton.autotune([triton.Config({"BLOCK": 128}, num_warps=4, num_stages=3)], key=["n"])
@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr = 64):
    """Each program takes one row."""
    row = tl.program_id(0)
    offsets = row * n + tl.arange(0, BLOCK)  # one row
    mask = tl.arange(0, BLOCK) < n
    x = tl.load(x_ptr + offsets, mask=mask, other=-float("inf"))
    top = tl.exp(x - tl.max(x, 0))
    tl.store(y_ptr + offsets, top / tl.sum(top, 0), mask=mask)


def softmax(x):
    y = torch.empty_like(x)
    kernel[(x.shape[0],)](x, y, x.shape[1])
    return y
'''

LOAD = 'tl.load(x_ptr + offsets, mask=mask, other=-float("inf"))'
LONG_LOAD = """tl.load(
        (x_ptr + offsets),  # in order
        mask=mask,
        other=-float('inf'),
    )"""
REFORMATTED = (
    KERNEL.replace('"""Row-wise softmax."""\n', "# Softmax, again.\n")
    .replace('    """Each program takes one row."""\n', "")
    .replace(LOAD, LONG_LOAD)
    .replace("constexpr = 4", "constexpr = 0x4")
)
RENAMED = re.sub(r"\btop\b", "numerator", re.sub(r"\boffsets\b", "places", KERNEL))
OTHER = KERNEL.replace("tl.max(x, 0)", "tl.max(x, 1)").replace("tl.exp", "tl.exp2")


# Identity of files


def test_comments_docstrings_and_formatting_make_no_other_file() -> None:
    assert REFORMATTED != KERNEL
    assert text_identity(REFORMATTED) == text_identity(KERNEL)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("num_stages=3", "num_stages=4"),
        ("num_stages=3", "num_stages=3.0"),
        ("other=-float", "other=float"),
        ("x - tl.max", "x + tl.max"),
        ("mask = tl.arange(0, BLOCK) < n", "mask: tl.constexpr = tl.arange(0, BLOCK) < n"),
        ("tl.exp(", "tl.exp2("),
        ("top = ", "best = "),
        ("import torch", "import torch as t"),
        ("key=['n']", "key=[]"),
        ("    return y\n", ""),
    ],
)
def test_anything_that_means_something_makes_another(before: str, after: str) -> None:
    text = KERNEL.replace('["n"]', "['n']")
    assert before in text
    assert text_identity(text.replace(before, after)) != text_identity(text)


HOSTILE = {
    "no Python": "def (",
    "a null": "x = 1\x00",
    "half a character": "x = '\ud800'",
    "deep brackets": "(" * 5000,
    "many minus signs": "-" * 100_000 + "1",
    "long sums": "x = " + "1 + " * 40_000 + "1",
    "long chains": "a" + ".b" * 60_000,
    "calls of calls": "f" + "()" * 60_000,
    "deep blocks": "".join(" " * depth + "if x:\n" for depth in range(90)) + " " * 90 + "pass",
    "huge numbers": f"x = 0x{'f' * 10_000}",
    "many nodes": "-x," * 40_000,
    "a megabyte": "x = 1\n" * 170_000,
    "nothing": "",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_text_has_an_identity_and_can_be_compared(text: str) -> None:
    assert re.fullmatch(r"[0-9a-f]{64}", text_identity(text))
    assert text_identity(text) == text_identity(text)
    assert text_identity(text) != text_identity(f"{text}\ny = 2")
    again = near(text, {1: KERNEL, 2: text})
    assert again is not None
    assert (again.number, again.likeness) == (2, "same")
    assert constants_changed(KERNEL, text) is None


def test_a_file_that_is_too_large_to_be_read_is_its_text() -> None:
    for text in (HOSTILE["many nodes"], HOSTILE["a megabyte"]):
        assert text_identity(f"{text}\n# more") != text_identity(text)


def test_cut_and_scrambled_files_have_identities() -> None:
    drawn = random.Random(2)
    for _ in range(100):
        letters = list(KERNEL)
        for _ in range(drawn.randint(1, 5)):
            letters[drawn.randrange(len(letters))] = drawn.choice(["\n", "(", '"', "\t", "é", "\\", "9", " "])
        text = "".join(letters)[: drawn.randrange(len(letters))]
        assert len(text_identity(text)) == 64
        near(text, {1: KERNEL})
        constants_changed(KERNEL, text)


# Files that are close


def test_changed_constants_are_told_by_what_they_are_called() -> None:
    changed = KERNEL.replace("num_stages=3", "num_stages=4").replace('"BLOCK": 128', '"BLOCK": 256')
    assert constants_changed(KERNEL, changed) == ["BLOCK 128 -> 256", "num_stages 3 -> 4"]
    assert constants_changed(KERNEL, KERNEL.replace("= 64)", "= 32)")) == ["BLOCK 64 -> 32"]
    assert constants_changed(KERNEL, KERNEL.replace("constexpr = 4", "constexpr = 8")) == ["ROWS 4 -> 8"]
    assert constants_changed("A, B = 1, 2\nC = tl.constexpr(3)", "A, B = 1, 5\nC = tl.constexpr(4)") == [
        "B 2 -> 5",
        "C 3 -> 4",
    ]


def test_constants_without_a_name_are_told_by_their_line() -> None:
    changed = KERNEL.replace("tl.sum(top, 0)", "tl.sum(top, 1)")
    assert constants_changed(KERNEL, changed) == ["line 18: 0 -> 1"]


def test_equal_changes_are_counted_and_long_values_cut() -> None:
    assert constants_changed("f(a=1)\nf(a=1)", "f(a=2)\nf(a=2)") == ["a 1 -> 2 (2 times)"]
    changes = constants_changed("x = 1", f"x = '{'y' * 1000}'")
    assert changes is not None
    assert len(changes[0]) < 60
    changes = constants_changed(f"{'x' * 1000} = 1", f"{'x' * 1000} = 2")
    assert changes is not None
    assert len(changes[0]) < 60


def test_where_more_than_constants_changed_no_constants_are_told() -> None:
    assert constants_changed(KERNEL, OTHER) is None
    assert constants_changed(KERNEL, KERNEL.replace("num_stages=3", "num_stages=3, maxnreg=128")) is None
    assert constants_changed(KERNEL, REFORMATTED) == []


@pytest.mark.parametrize(
    ("text", "likeness", "differs"),
    [
        (REFORMATTED, "same", "is attempt 3 again, apart from comments, docstrings and formatting"),
        (RENAMED, "names", "differs from attempt 3 only in names"),
        (KERNEL.replace("stages=3", "stages=4"), "constants", "differs from attempt 3 only in num_stages 3 -> 4"),
        (
            RENAMED.replace("num_warps=4", "num_warps=8"),
            "names_and_constants",
            "differs from attempt 3 only in names and num_warps 4 -> 8",
        ),
        (KERNEL.replace("tl.exp(", "tl.exp2("), "statements", "differs from attempt 3 in 1 of 15 statements"),
    ],
)  # fmt: skip
def test_what_a_close_file_differs_in_is_said(text: str, likeness: str, differs: str) -> None:
    found = near(text, {0: "x = 1", 3: KERNEL})
    assert found is not None
    assert (found.number, found.likeness) == (3, likeness)
    assert found.differs.startswith(differs)


def test_of_close_files_the_closest_is_named_and_of_equally_close_ones_the_last() -> None:
    constants = KERNEL.replace("num_stages=3", "num_stages=4")
    found = near(KERNEL, {1: constants, 2: RENAMED, 3: OTHER})
    assert found is not None
    assert found.number == 2
    found = near(KERNEL, {1: constants, 2: KERNEL.replace("num_stages=3", "num_stages=2")})
    assert found is not None
    assert found.number == 2


def test_names_that_are_pythons_or_a_librarys_are_no_names_to_change() -> None:
    assert near("def f(a, b):\n    return min(a, b)", {1: "def f(a, b):\n    return max(a, b)"}) is None
    assert near("def f(a):\n    return tl.max(a)", {1: "def f(a):\n    return tl.min(a)"}) is None


def test_names_that_changed_places_are_no_renaming() -> None:
    found = near("def f(a, b):\n    return a - b", {1: "def f(a, b):\n    return b - a"})
    assert found is not None
    assert found.likeness == "statements"
    assert "only in where names and constants stand" in found.differs


def test_another_kernel_is_not_close() -> None:
    assert near("def f(x):\n    return x + 1\n", {1: KERNEL}) is None
    assert near(KERNEL, {}) is None


# Strategies


@pytest.mark.parametrize(
    ("strategy", "again"),
    [
        ("num_stages 3 -> 4", True),
        ("Increased num_stages", True),
        ("num_stages=2", True),
        ("bigger tiles", False),
        ("split-K", False),
        ("", False),
    ],
)
def test_a_strategy_with_the_same_words_is_a_repetition_whatever_its_numbers(strategy: str, again: bool) -> None:
    earlier = [baseline(), attempt(1, evidence(0.9), strategy="num_stages: 3 to 5")]
    assert [each.number for each in repeated(strategy, earlier)] == ([1] if again else [])


def test_repetitions_are_told_last_first_and_endings_of_words_do_not_matter() -> None:
    earlier = [
        attempt(number, failed(), strategy=each)
        for number, each in enumerate(["vectorize the loads", "split the reduction", "vectorized load"], 1)
    ]
    assert [each.number for each in repeated("vectorizing loads", earlier)] == [3, 1]


def found() -> Attempt:
    titles = {"V1": "narrow loads", "P1": "loads without a pipeline", "G1": "uneven last wave"}
    return baseline(diagnosed=diagnosed(*(finding(id, title) for id, title in titles.items())))


@pytest.mark.parametrize(
    ("strategy", "left"),
    [
        ("something else", ["V1", "P1", "G1"]),
        ("V1: widen them", ["P1", "G1"]),
        ("v1 of a new tiling", ["V1", "P1", "G1"]),
        ("pipeline the loads", ["V1", "G1"]),
        ("loads", ["V1", "P1", "G1"]),
    ],
)
def test_a_finding_is_tried_where_a_strategy_names_it_or_has_its_words(strategy: str, left: list[str]) -> None:
    assert [each.id for each in untried([found(), attempt(1, evidence(0.9), strategy=strategy)])] == left


def test_findings_are_those_of_the_nearest_that_was_diagnosed() -> None:
    own = attempt(1, evidence(1.2, diagnosed=diagnosed(finding("R1", "registers spill"))))
    attempts = [found(), own, attempt(2, evidence(1.3), parent=1), attempt(3, evidence(1.0))]
    assert [each.id for each in untried(attempts, 2)] == ["R1"]
    assert [each.id for each in untried(attempts, 3)] == ["V1", "P1", "G1"]
    assert untried(attempts, 9) == []


def test_a_duplicate_has_tried_nothing() -> None:
    assert len(untried([found(), attempt(1, None, strategy="V1 P1 G1")])) == 3


# Remarks


def test_a_remark_names_the_like_what_came_of_it_and_what_was_not_tried() -> None:
    attempts = [found(), attempt(1, evidence(0.9), strategy="V1: num_stages 4"), attempt(2, failed(), strategy="tiles")]
    texts = {0: KERNEL, 1: KERNEL.replace("num_stages=3", "num_stages=4"), 2: OTHER}
    said = remarks(KERNEL.replace("num_stages=3", "num_stages=5"), "num_stages 5, V1", attempts, texts)
    assert said == [
        "the file differs from attempt 1 only in num_stages 4 -> 5, which was not accepted at 0.900x (0.896 to 0.904) "
        "beside the baseline",
        "attempt 1 tried the like, 'V1: num_stages 4', which was not accepted at 0.900x (0.896 to 0.904) beside the "
        "baseline",
        "nothing was tried yet for P1 loads without a pipeline, G1 uneven last wave",
    ]
    assert remarks(OTHER.replace("x_ptr", "a_ptr"), "tiling", attempts, texts)[0].endswith("which ended as wrong")


def test_what_is_being_tried_is_not_remarked_as_untried() -> None:
    attempts = [found(), attempt(1, evidence(0.9), strategy="V1: num_stages 4")]
    said = remarks(KERNEL.replace("num_stages=3", "num_stages=5"), "P1, V1", attempts, {0: KERNEL})
    assert said[-1] == "nothing was tried yet for G1 uneven last wave"
    assert [each.id for each in untried(attempts, strategy="G1: whole waves")] == ["P1"]


def test_of_something_new_nothing_is_remarked() -> None:
    attempts = [found(), attempt(1, evidence(0.9), strategy="bigger tiles")]
    assert remarks(KERNEL.replace("tl.exp(", "tl.exp2("), "exp2", attempts, {0: KERNEL, 1: KERNEL}) == []


def test_remarks_are_short_whatever_a_file_or_a_strategy_holds() -> None:
    attempts = [found(), attempt(1, failed(), strategy="tiles " * 500)]
    long = "a" * 50_000
    said = remarks(f"f({long}='{long}')", "tiles\n" * 5000, attempts, {1: f"f({long}='b')"})
    assert len(said) == 3
    assert all(len(each) < 200 and "\n" not in each for each in said)
