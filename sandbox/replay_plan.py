"""A recorded call of an entry on its way from the kernel's worker to a replayer: its form, checked before it is sent.

What a kernel's worker says is not believed: every number is bounded, and whatever a plan refers to is there and
large enough. A plan that is well-formed and a lie computes something else than its outputs should be.
"""

import keyword
import math
from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal, Self, cast

from pydantic import AfterValidator, Discriminator, Field, FiniteFloat, JsonValue, Tag, model_validator

from .cubin import check_cubin
from .facts import Line
from .wire import Wire

OPERATIONS_LIMIT: Final = 1000
ARGUMENTS_LIMIT: Final = 16_100
"""Of all launches together."""
KERNEL_ARGUMENTS_LIMIT: Final = 512
KERNELS_LIMIT: Final = 256
NODES_LIMIT: Final = 10_000
DEPTH_LIMIT: Final = 20
DIMENSIONS_LIMIT: Final = 64
"""Of a tensor in torch."""
CUBIN_LIMIT_BYTES: Final = 32 << 20
STORAGE_LIMIT_BYTES: Final = 1 << 40
SHARED_LIMIT_BYTES: Final = 1 << 20
GRID_LIMITS: Final = (2**31 - 1, 65_535, 65_535)
WARPS_LIMIT: Final = 32
"""1,024 threads."""
CLUSTER_LIMIT: Final = 16

ITEM_BYTES: Final = {
    "bool": 1, "uint8": 1, "int8": 1, "uint16": 2, "int16": 2, "uint32": 4, "int32": 4, "uint64": 8, "int64": 8,
    "float8_e4m3fn": 1, "float8_e4m3fnuz": 1, "float8_e5m2": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
    "float4_e2m1fn_x2": 1, "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8,
    "complex32": 4, "complex64": 8, "complex128": 16,
}  # fmt: skip
"""Element types that a plan can name."""
NUMBER_BYTES: Final = {
    "i1": 1, "u1": 1, "i8": 1, "u8": 1, "i16": 2, "u16": 2, "i32": 4, "u32": 4, "i64": 8, "u64": 8,
    "fp16": 2, "bf16": 2, "fp32": 4, "f32": 4, "fp64": 8,
}  # fmt: skip
"""Types of numbers that kernels take."""


def _require(true: bool, otherwise: str) -> None:
    if not true:
        raise ValueError(otherwise)


def _known_element(name: str) -> str:
    _require(name in ITEM_BYTES, "no element type")
    return name


def _known_number(name: str) -> str:
    _require(name in NUMBER_BYTES, "no type of a number")
    return name


def _parameter(name: str) -> str:
    _require(name.isidentifier() and not keyword.iskeyword(name), "no name of a parameter")
    return name


Element = Annotated[str, AfterValidator(_known_element)]
Index = Annotated[int, Field(ge=0, lt=NODES_LIMIT, strict=True)]
Size = Annotated[int, Field(ge=0, lt=2**48, strict=True)]
Sizes = Annotated[list[Size], Field(max_length=DIMENSIONS_LIMIT)]
Bytes = Annotated[int, Field(ge=1, le=STORAGE_LIMIT_BYTES, strict=True)]
Extents = Annotated[list[Annotated[int, Field(ge=1, lt=2**31, strict=True)]], Field(min_length=3, max_length=3)]
Scalar = bool | Annotated[int, Field(ge=-(2**63), lt=2**64)] | FiniteFloat
Text = Annotated[str, Field(max_length=1000)]
TmaSizes = Annotated[list[Size], Field(min_length=1, max_length=5)]
Flag = Annotated[bool, Field(strict=True)]


class Value(Wire):
    """A number, text or nothing, as it is."""

    value: Scalar | Text | None


class Number(Wire):
    """A floating-point number that JSON lacks."""

    number: Literal["nan", "inf", "-inf"]


class ElementType(Wire):
    """A torch dtype, by its name."""

    dtype: Element


class Form(Wire):
    """Element type, shape and strides of a tensor."""

    dtype: Element
    shape: Sizes
    stride: Sizes

    @property
    def span_bytes(self) -> int:
        """Bytes from the first to the last element."""
        if 0 in self.shape:
            return 0
        last = sum((size - 1) * step for size, step in zip(self.shape, self.stride, strict=True))
        return (1 + last) * ITEM_BYTES[self.dtype]

    @model_validator(mode="after")
    def _rank(self) -> Self:
        _require(len(self.shape) == len(self.stride), "shape and strides of different length")
        _require(math.prod(self.shape) <= STORAGE_LIMIT_BYTES, "too many elements")
        return self


class InputForm(Form):
    """A tensor among the inputs."""

    residue: int = Field(ge=0, lt=16)
    """Of its address, divided by 16."""


class Place(Wire):
    """So many bytes into an input or into memory that the call allocates; neither: nowhere."""

    input: Index | None = None
    storage: Index | None = None
    offset: Size = 0

    @model_validator(mode="after")
    def _one(self) -> Self:
        _require(self.input is None or self.storage is None, "an input that is a storage")
        return self

    @property
    def nowhere(self) -> bool:
        return self.input is None and self.storage is None


class View(Form, Place):
    """A tensor that lies in an input or in memory of the call."""

    @model_validator(mode="after")
    def _somewhere(self) -> Self:
        _require(not self.nowhere or not self.span_bytes, "a view of nothing")
        _require(self.offset % ITEM_BYTES[self.dtype] == 0, "a view between elements")
        return self


class Pointer(Place):
    """The address of a place."""

    @model_validator(mode="after")
    def _somewhere(self) -> Self:
        _require(not self.nowhere, "a pointer to nothing")
        return self


class Null(Wire):
    """No address."""

    null: Literal[True]


class Bits(Wire):
    """A number as the kernel gets it."""

    type: Annotated[str, AfterValidator(_known_number)]
    bits: int = Field(ge=0, lt=2**64, strict=True)

    @model_validator(mode="after")
    def _fit(self) -> Self:
        _require(self.bits < 1 << 8 * NUMBER_BYTES[self.type], "a number that is larger than its type")
        return self


class TensorMap(Pointer):
    """What cuTensorMapEncodeTiled is asked for, the innermost dimension last."""

    swizzle: int = Field(ge=0, le=6, strict=True)
    element_bytes: int = Field(ge=1, le=16, strict=True)
    element_type: int = Field(ge=0, le=15, strict=True)
    box: TmaSizes
    shape: TmaSizes
    strides: TmaSizes
    padding: int = Field(ge=0, le=1, strict=True)

    @model_validator(mode="after")
    def _rank(self) -> Self:
        _require(len(self.box) == len(self.shape) == len(self.strides), "dimensions of a tensor map")
        _require(all(0 < size < 2**32 for size in (*self.box, *self.shape)), "sizes of a tensor map")
        return self


class Map(Wire):
    """A host-side TMA descriptor."""

    map: TensorMap


def _which_argument(value: Any) -> str:
    # It is asked for what is read and for what is written.
    names = ("bits", "null", "map")
    if isinstance(value, Wire):
        return next((name for name in names if name in type(value).model_fields), "pointer")
    fields = cast(dict[str, Any], value) if isinstance(value, dict) else {}
    return next((name for name in names if name in fields), "pointer")


Argument = Annotated[
    Annotated[Pointer, Tag("pointer")]
    | Annotated[Bits, Tag("bits")]
    | Annotated[Null, Tag("null")]
    | Annotated[Map, Tag("map")],
    Discriminator(_which_argument),
]


class Allocate(Wire):
    """Memory without values yet."""

    op: Literal["allocate"]
    storage: Index


class Zero(Wire):
    """Set to zero, as torch.zeros does it."""

    op: Literal["zero"]
    view: View


class Fill(Wire):
    """Filled with a number, as torch.full does it."""

    op: Literal["fill"]
    view: View
    value: Value | Number

    @model_validator(mode="after")
    def _number(self) -> Self:
        known = isinstance(self.value, Number) or isinstance(self.value.value, int | float)
        _require(known, "a fill with something other than a number")
        return self


class Launch(Wire):
    """A kernel's launch."""

    op: Literal["launch"]
    kernel: Index
    grid: Extents
    """In clusters, where there are any: Triton's grid."""
    arguments: Annotated[list[Argument], Field(max_length=KERNEL_ARGUMENTS_LIMIT)]


class Kernel(Wire):
    """A compiled kernel and how all of its launches are made."""

    blob: Index
    symbol: Annotated[str, Field(min_length=1, max_length=4000, pattern=r"^[\w.$@]+$")]
    num_warps: int = Field(ge=1, le=WARPS_LIMIT, strict=True)
    cluster: Extents
    shared_bytes: int = Field(ge=0, le=SHARED_LIMIT_BYTES, strict=True)
    cooperative: Flag
    pdl: Flag

    @model_validator(mode="after")
    def _cluster(self) -> Self:
        _require(math.prod(self.cluster) <= CLUSTER_LIMIT, "a cluster that is too large")
        return self


Operation = Annotated[Allocate | Zero | Fill | Launch, Discriminator("op")]


class Plan(Wire):
    """One call of an entry: what it puts on the device, in order."""

    inputs: JsonValue
    """The arguments' tree, as in worker/values.py, with `InputForm` leaves ``{"tensor": ...}``."""
    parameters: Annotated[list[Annotated[Text, AfterValidator(_parameter)]], Field(max_length=256)]
    """Names of the positional arguments, where they are known."""
    storages: Annotated[list[Bytes], Field(max_length=OPERATIONS_LIMIT)]
    """Bytes of each allocation."""
    kernels: Annotated[list[Kernel], Field(max_length=KERNELS_LIMIT)]
    operations: Annotated[list[Operation], Field(max_length=OPERATIONS_LIMIT)]
    outputs: JsonValue
    """The result's tree, with `View` leaves ``{"view": ...}``."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        _require(len(set(self.parameters)) == len(self.parameters), "two parameters of one name")
        inputs = [InputForm.model_validate(leaf).span_bytes for leaf in _leaves(self.inputs, "tensor")]
        launches = [operation for operation in self.operations if isinstance(operation, Launch)]
        _require(sum(len(launch.arguments) for launch in launches) <= ARGUMENTS_LIMIT, "too many arguments")
        made: set[int] = set()
        for operation in self.operations:
            match operation:
                case Allocate(storage=storage):
                    _require(storage < len(self.storages) and storage not in made, "an allocation of another storage")
                    made.add(storage)
                case Launch():
                    self._check_launch(operation)
                    for argument in operation.arguments:
                        place = argument.map if isinstance(argument, Map) else argument
                        if isinstance(place, Place):
                            self._check_place(place, 0, inputs, made)
                case Zero(view=view) | Fill(view=view):
                    self._check_place(view, view.span_bytes, inputs, made)
        _require(len(made) == len(self.storages), "a storage that is never allocated")
        for leaf in _leaves(self.outputs, "view"):
            view = View.model_validate(leaf)
            self._check_place(view, view.span_bytes, inputs, made)
        return self

    def _check_launch(self, launch: Launch) -> None:
        _require(launch.kernel < len(self.kernels), "a launch of no kernel")
        cluster = self.kernels[launch.kernel].cluster
        blocks = [extent * size for extent, size in zip(launch.grid, cluster, strict=True)]
        _require(all(map(int.__le__, blocks, GRID_LIMITS)), "a grid that is too large")

    def _check_place(self, place: Place, size: int, inputs: list[int], made: set[int]) -> None:
        if place.input is not None:
            _require(place.input < len(inputs), "a reference to no input")
            _require(place.offset + size <= inputs[place.input], "a reference past the end of an input")
        elif place.storage is not None:
            _require(place.storage in made, "a reference to memory that is not allocated yet")
            _require(place.offset + size <= self.storages[place.storage], "a reference past the end of a storage")


def _leaves(tree: JsonValue, name: str) -> Iterator[JsonValue]:
    """The leaves of this name, in order; everything else in the tree is checked."""
    nodes: list[tuple[JsonValue, int]] = [(tree, 0)]
    seen = 0
    while nodes:
        node, depth = nodes.pop()
        seen += 1
        _require(depth <= DEPTH_LIMIT and seen <= NODES_LIMIT, "a tree that is too large")
        if not isinstance(node, dict) or len(node) != 1:
            raise ValueError("a malformed node")
        ((kind, content),) = node.items()
        if kind == name:
            yield content
        elif kind in ("list", "tuple") and isinstance(content, list):
            nodes += [(child, depth + 1) for child in reversed(content)]
        elif kind == "dict" and isinstance(content, list):
            nodes += [(_item(pair), depth + 1) for pair in reversed(content)]
        else:
            _check_leaf(kind, node)


def _item(pair: JsonValue) -> JsonValue:
    if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str | int):
        raise ValueError("a malformed pair")
    return pair[1]


def _check_leaf(kind: str, node: JsonValue) -> None:
    forms: dict[str, type[Wire]] = {"value": Value, "number": Number, "dtype": ElementType}
    _require(kind in forms, "a node of another kind")
    forms[kind].model_validate(node)


class Recorded(Wire):
    """What a kernel's worker made of a call: a plan, or why there is none."""

    plan: Plan | None = None
    reason: Line | None = None
    blobs: Annotated[list[Annotated[bytes, Field(max_length=CUBIN_LIMIT_BYTES)]], Field(max_length=KERNELS_LIMIT)] = []
    """Machine code of the plan's kernels."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        _require((self.plan is None) != (self.reason is None), "neither a plan nor a reason")
        kernels = [] if self.plan is None else self.plan.kernels
        _require({kernel.blob for kernel in kernels} == set(range(len(self.blobs))), "kernels without machine code")
        for blob in self.blobs:
            check_cubin(blob)
        return self

    def fields(self) -> dict[str, Any]:
        """The plan as a replayer takes it."""
        assert self.plan is not None
        return self.plan.model_dump(mode="json")


def settled(first: Recorded, second: Recorded) -> Recorded:
    """One of two recordings of an entry on different contents, or why it can't be replayed."""
    if first.plan is None or second.plan is None:
        return first if first.plan is None else second
    if first != second:
        return Recorded(reason="its launches depend on the contents of its inputs, or change from call to call")
    return first
