"""Values that a worker passes on have a known form, or go no further."""

from typing import Any

import pytest

from tritonforge.sandbox.errors import ProtocolViolation
from tritonforge.sandbox.trees import DEPTH_LIMIT, NODES_LIMIT, check_tree

TENSOR = {"dtype": "float16", "shape": [2, 3], "stride": [3, 1], "device": "cpu", "requires_grad": False}

MALFORMED: list[Any] = [
        None, 3, [], {}, {"value": []}, {"value": {}}, {"number": "1"}, {"number": []}, {"dtype": 3}, {"list": {}},
        {"tuple": None}, {"dict": [["a"]]}, {"dict": [[[], {"value": 1}]]}, {"dict": {"a": {"value": 1}}},
        {"list": [3]}, {"dict": [["a", None]]}, {"pickle": "x"}, {"value": 1, "dtype": "float16"},
        {"tensor": TENSOR}, {"tensor": TENSOR, "blob": 2}, {"tensor": TENSOR, "blob": -1},
        {"tensor": TENSOR, "blob": True}, {"tensor": TENSOR, "blob": "0"}, {"tensor": None, "blob": 0},
        {"tensor": TENSOR | {"shape": [2]}, "blob": 0}, {"tensor": TENSOR | {"shape": [2, -3]}, "blob": 0},
        {"tensor": TENSOR | {"stride": [3, 1.0]}, "blob": 0}, {"tensor": TENSOR | {"dtype": None}, "blob": 0},
        {"tensor": TENSOR | {"device": 0}, "blob": 0}, {"tensor": TENSOR | {"requires_grad": 1}, "blob": 0},
        {"tensor": TENSOR | {"more": 1}, "blob": 0}, {"tensor": {"dtype": "float16"}, "blob": 0},
        {"tensor": TENSOR | {"shape": [2, 1 << 63]}, "blob": 0}, {"tensor": TENSOR | {"dtype": "__dict__"}, "blob": 0},
        {"dtype": "_dynamo"}, {"dtype": "a" * 50}, {"list": [{"tensor": TENSOR, "blob": 0}] * 2},]  # fmt: skip


@pytest.mark.parametrize(
    "tree",
    [
        {"value": None}, {"value": True}, {"value": 3}, {"value": 0.5}, {"value": "text"}, {"number": "-inf"},
        {"dtype": "bfloat16"}, {"list": []}, {"tuple": [{"value": 1}, {"list": [{"number": "nan"}]}]},
        {"dict": [["a", {"value": 1}], [2, {"tensor": TENSOR, "blob": 0}]]}, {"tensor": TENSOR, "blob": 1},
        {"tensor": TENSOR | {"shape": [], "stride": []}, "blob": 0},
    ],
)  # fmt: skip
def test_what_workers_make_is_passed_on(tree: Any) -> None:
    check_tree(tree, 2)


@pytest.mark.parametrize("tree", MALFORMED)
def test_anything_else_is_refused(tree: Any) -> None:
    with pytest.raises(ProtocolViolation, match="the worker's values have"):
        check_tree(tree, 2)


def test_nesting_has_an_end() -> None:
    tree: dict[str, Any] = {"value": 1}
    for _ in range(DEPTH_LIMIT):
        tree = {"list": [tree]}
    check_tree(tree, 0)
    with pytest.raises(ProtocolViolation, match="too deeply"):
        check_tree({"list": [tree]}, 0)


def test_there_are_not_too_many_values() -> None:
    check_tree({"list": [{"value": 1}] * (NODES_LIMIT - 1)}, 0)
    with pytest.raises(ProtocolViolation, match="too many"):
        check_tree({"list": [{"value": 1}] * NODES_LIMIT}, 0)
