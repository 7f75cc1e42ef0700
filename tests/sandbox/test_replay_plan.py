"""Plans from a kernel's worker: whatever is not as a recorder of ours makes it is refused before it is sent on."""

import copy
import struct
from typing import Any

import pytest
from pydantic import ValidationError

from tritonforge.sandbox.cubin import CUDA, HEADER, PROGRAM, SECTION, check_cubin
from tritonforge.sandbox.replay_plan import Recorded, settled

FORM = {"dtype": "float32", "shape": [4, 8], "stride": [8, 1]}
TENSOR_MAP = {
    "input": 0, "offset": 0, "swizzle": 3, "element_bytes": 4, "element_type": 7, "box": [4, 8], "shape": [4, 8],
    "strides": [8, 1], "padding": 0,
}  # fmt: skip


def cubin(*, machine: int = CUDA, section: tuple[int, int] = (0, 64), kind: int = 1) -> bytes:
    """An ELF file with one section, which starts and is as long as said."""
    start = HEADER.size
    head = HEADER.pack(
        b"\x7fELF\x02\x01" + bytes(10), 2, machine, 1, 0, 0, start, 0, HEADER.size, PROGRAM.size, 0, SECTION.size, 1, 0
    )
    return head + SECTION.pack(0, kind, 0, 0, *section, 0, 0, 0, 0)


def plan() -> dict[str, Any]:
    """A call with one of each operation."""
    return {
        "inputs": {"tuple": [{"tensor": {**FORM, "residue": 0}}, {"value": 5}, {"dtype": "float16"}]},
        "parameters": ["x", "n", "dtype"],
        "storages": [128, 1024],
        "kernels": [
            {
                "blob": 0, "symbol": "kernel", "num_warps": 4, "cluster": [2, 1, 1], "shared_bytes": 0,
                "cooperative": False, "pdl": False,
            }
        ],
        "operations": [
            {"op": "allocate", "storage": 0},
            {"op": "zero", "view": {"storage": 0, "offset": 0, **FORM}},
            {"op": "fill", "view": {"input": 0, "offset": 0, **FORM}, "value": {"number": "-inf"}},
            {"op": "allocate", "storage": 1},
            {
                "op": "launch", "kernel": 0, "grid": [8, 1, 1],
                "arguments": [
                    {"input": 0, "offset": 0}, {"storage": 0, "offset": 64}, {"type": "i32", "bits": 2**32 - 1},
                    {"map": TENSOR_MAP}, {"storage": 1, "offset": 0}, {"null": True},
                ],
            },
        ],
        "outputs": {
            "dict": [["y", {"view": {"storage": 0, "offset": 64, **FORM, "shape": [2, 8]}}], ["n", {"value": None}]]
        },
    }  # fmt: skip


def recorded(changed: dict[str, Any] | None = None, blobs: list[bytes] | None = None) -> Recorded:
    fields = {"plan": changed or plan(), "blobs": [cubin()] if blobs is None else blobs}
    return Recorded.model_validate(fields)


def test_a_plan_goes_to_the_replayer_as_it_came() -> None:
    fields = recorded().fields()
    assert fields["operations"][4]["arguments"][2:4] == [
        {"type": "i32", "bits": 2**32 - 1},
        {"map": {"storage": None, **TENSOR_MAP}},
    ]
    for part in ("inputs", "parameters", "storages", "kernels", "outputs"):
        assert fields[part] == plan()[part]
    assert recorded(fields) == recorded()


def test_a_reason_has_no_blobs() -> None:
    assert Recorded(reason="aten.mm computes outside of Triton").plan is None
    for fields in ({}, {"reason": "no", "plan": plan(), "blobs": [cubin()]}, {"reason": "no", "blobs": [cubin()]}):
        with pytest.raises(ValidationError):
            Recorded.model_validate(fields)


def test_a_reason_is_one_line() -> None:
    assert Recorded(reason="a\nb" + "c" * 1000).reason == "a?b" + "c" * 394 + "..."


def test_two_equal_recordings_are_settled_and_others_not() -> None:
    assert settled(recorded(), recorded()) == recorded()
    other = plan()
    other["operations"][4]["arguments"][2]["bits"] = 3
    assert "depend on the contents" in (settled(recorded(), recorded(other)).reason or "")
    code = cubin(kind=2)
    assert settled(recorded(), recorded(blobs=[code])).plan is None
    refused = Recorded(reason="aten.mm computes outside of Triton")
    assert settled(recorded(), refused) == settled(refused, recorded()) == refused


DELETED = object()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        # References.
        (("operations", 4, "arguments", 0, "input"), 1),
        (("operations", 4, "arguments", 0, "input"), -1),
        (("operations", 4, "arguments", 0, "input"), True),
        (("operations", 4, "arguments", 0, "storage"), 0),
        (("operations", 4, "arguments", 0), {"offset": 0}),
        (("operations", 4, "arguments", 0), {}),
        (("operations", 4, "arguments", 0, "offset"), 129),
        (("operations", 4, "arguments", 0, "offset"), -4),
        (("operations", 4, "arguments", 1, "storage"), 2),
        (("operations", 4, "arguments", 1, "offset"), 129),
        (("operations", 4, "arguments", 3, "map", "input"), 7),
        (("operations", 1, "view", "storage"), 1),
        (("operations", 1, "view", "shape"), [5, 8]),
        (("operations", 1, "view", "offset"), 4),
        (("outputs", "dict", 0, 1, "view", "offset"), 62),
        (("operations", 1, "view", "stride"), [8]),
        (("operations", 1, "view", "stride"), [2**48, 1]),
        (("operations", 1, "view"), {"storage": 0, "dtype": "int8", "shape": [2**40, 2], "stride": [0, 0]}),
        (("operations", 1, "view", "dtype"), "float"),
        (("operations", 1, "view", "dtype"), "nn"),
        (("operations", 1, "view"), FORM),
        (("operations", 2, "view", "input"), 1),
        (("outputs", "dict", 0, 1, "view", "shape"), [3, 8]),
        (("outputs", "dict", 0, 1, "view", "storage"), 2),
        (("outputs", "dict", 0, 1, "view"), {"more": 1}),
        # Allocations.
        (("operations", 0, "storage"), 1),
        (("operations", 3, "storage"), 0),
        (("operations", 3, "storage"), 2),
        (("storages",), [128]),
        (("storages",), [128, 1024, 5]),
        (("storages", 0), 0),
        (("storages", 0), 1 << 41),
        # Numbers.
        (("operations", 4, "arguments", 2, "bits"), 2**32),
        (("operations", 4, "arguments", 2, "bits"), -1),
        (("operations", 4, "arguments", 2, "bits"), 1.0),
        (("operations", 4, "arguments", 2, "type"), "nvTmaDesc"),
        (("operations", 2, "value"), {"value": "x"}),
        (("operations", 2, "value"), {"value": None}),
        (("operations", 2, "value"), {"number": "1"}),
        # Launches.
        (("operations", 4, "kernel"), 1),
        (("operations", 4, "grid"), [8, 1]),
        (("operations", 4, "grid"), [0, 1, 1]),
        (("operations", 4, "grid"), [2**30, 1, 1]),
        (("operations", 4, "grid"), [8, 65_536, 1]),
        (("operations", 4, "arguments"), [{"null": True}] * 513),
        (("operations", 4, "op"), "run"),
        (("kernels", 0, "blob"), 1),
        (("kernels", 0, "symbol"), "a b"),
        (("kernels", 0, "symbol"), ""),
        (("kernels", 0, "num_warps"), 64),
        (("kernels", 0, "num_warps"), 0),
        (("kernels", 0, "cluster"), [4, 4, 2]),
        (("kernels", 0, "shared_bytes"), -1),
        (("kernels", 0, "pdl"), 1),
        (("operations", 4, "arguments", 3, "map", "box"), [4, 8, 1]),
        (("operations", 4, "arguments", 3, "map", "box"), []),
        (("operations", 4, "arguments", 3, "map", "shape"), [0, 8]),
        (("operations", 4, "arguments", 3, "map", "swizzle"), 9),
        # Trees and names.
        (("outputs",), {"pickle": "x"}),
        (("outputs",), {"tensor": {**FORM, "residue": 0}}),
        (("outputs",), {"dict": [["y"]]}),
        (("outputs",), {"dict": [[None, {"value": 1}]]}),
        (("outputs",), {"list": [{"value": 1}] * 10_001}),
        (("outputs",), {"value": "x" * 1001}),
        (("outputs",), {"dtype": "nn"}),
        (("outputs",), 5),
        (("inputs", "tuple", 0, "tensor", "residue"), 16),
        (("inputs", "tuple", 0, "tensor", "residue"), DELETED),
        (("parameters", 0), "x y"),
        (("parameters", 0), "class"),
        (("parameters", 0), "n"),
        (("more",), 1),
    ],
)  # fmt: skip
def test_a_forged_plan_is_refused(path: tuple[Any, ...], value: Any) -> None:
    forged: Any = copy.deepcopy(plan())
    inner = forged
    for step in path[:-1]:
        inner = inner[step]
    if value is DELETED:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    with pytest.raises(ValidationError):
        recorded(forged)


def test_memory_is_allocated_before_it_is_used() -> None:
    forged = plan()
    forged["operations"] = forged["operations"][1:] + forged["operations"][:1]
    with pytest.raises(ValidationError, match="not allocated yet"):
        recorded(forged)


def test_memory_is_allocated_once() -> None:
    forged = plan()
    forged["operations"].insert(4, {"op": "allocate", "storage": 1})
    with pytest.raises(ValidationError, match="another storage"):
        recorded(forged)


def test_a_deep_tree_is_refused() -> None:
    forged, tree = plan(), {"value": 1}
    for _ in range(21):
        tree: Any = {"list": [tree]}
    forged["outputs"] = tree
    with pytest.raises(ValidationError, match="too large"):
        recorded(forged)


def test_too_many_operations_and_arguments_are_refused() -> None:
    forged = plan()
    forged["operations"] += [forged["operations"][1]] * 1000
    with pytest.raises(ValidationError):
        recorded(forged)
    forged = plan()
    forged["operations"] += [{**forged["operations"][4], "arguments": [{"null": True}] * 500}] * 33
    with pytest.raises(ValidationError, match="too many arguments"):
        recorded(forged)


def test_a_view_without_elements_needs_no_memory() -> None:
    changed = plan()
    changed["outputs"] = {"view": {"dtype": "float32", "shape": [0, 8], "stride": [8, 1]}}
    assert recorded(changed).plan is not None


@pytest.mark.parametrize(
    "code",
    [
        b"",
        b".version 8.0",
        cubin()[:-1],
        cubin(machine=62),
        cubin(section=(64, 65)),
        cubin(section=(2**64 - 1, 1)),
        struct.pack("<4s", b"\x7fELF") + bytes(200),
        cubin().replace(struct.pack("<HHHHHH", 64, 56, 0, 64, 1, 0), struct.pack("<HHHHHH", 64, 56, 9, 64, 1, 0)),
        cubin().replace(struct.pack("<HHHHHH", 64, 56, 0, 64, 1, 0), struct.pack("<HHHHHH", 64, 56, 0, 64, 1, 1)),
        cubin().replace(struct.pack("<HHHHHH", 64, 56, 0, 64, 1, 0), struct.pack("<HHHHHH", 64, 56, 0, 32, 1, 0)),
    ],
)  # fmt: skip
def test_machine_code_that_the_driver_would_read_past_is_refused(code: bytes) -> None:
    with pytest.raises(ValidationError):
        recorded(blobs=[code])


def test_a_section_without_bytes_may_be_of_any_size() -> None:
    check_cubin(cubin(section=(64, 1 << 20), kind=8))


def test_blobs_that_no_kernel_uses_are_refused() -> None:
    for blobs in ([], [cubin(), cubin()]):
        with pytest.raises(ValidationError, match="without machine code"):
            recorded(blobs=blobs)
