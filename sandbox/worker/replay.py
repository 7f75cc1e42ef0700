# pyright: basic
# torch ships incomplete types.
"""Carries out a recorded call: allocations, fills and launches, without the file that they came from.

The plan has been checked above. Nothing of it is executed on the host: it is numbers, and machine code for the GPU.
"""

from __future__ import annotations

import ctypes
import inspect
import struct
from collections.abc import Callable
from typing import Any

import torch

from . import cuda_driver, values
from .cuda_driver import Attribute, Config, Driver
from .failures import Refused
from .plan_form import children, references, storages, views

ALIGNMENT = 128
"""Of tensor maps."""
POINTER_BYTES = 8
NUMBER_BYTES = {
    "i1": 1, "u1": 1, "i8": 1, "u8": 1, "i16": 2, "u16": 2, "i32": 4, "u32": 4, "i64": 8, "u64": 8,
    "fp16": 2, "bf16": 2, "fp32": 4, "f32": 4, "fp64": 8,
}  # fmt: skip

Places = list["torch.Tensor | None"]
"""The inputs' tensors, then memory of the call: None before it is allocated, and after its last use."""


class Replayer:
    """A plan that is ready to be carried out, any number of times, on inputs of one form.

    Attributes:
        entry: takes the inputs as the recorded entry did; gives back what its call gave, or the arguments changed in
            place by name, where the task names them.
    """

    def __init__(self, plan: dict[str, Any], blobs: list[Any], device: str, driver: Driver | None = None) -> None:
        """
        Args:
            plan: as `replay_plan.Recorded.fields` gives it.
            blobs: machine code of its kernels.
            device: such as ``cuda:0``.
            driver: another one than CUDA's, for tests.
        """
        self._device = torch.device(device)
        self._form = plan["inputs"]
        self._inputs = _count(plan["inputs"])
        self._outputs = plan["outputs"]
        # The context that the driver loads into is there once torch has allocated.
        torch.empty(1, device=self._device)
        self._driver = driver or Driver()
        functions = [self._function(kernel, blobs) for kernel in plan["kernels"]]
        self._count = self._inputs + len(plan["storages"])
        self._steps = self._prepared(plan, functions)
        self._build = self._builder(plan["outputs"])
        self.entry = self._entry(plan["parameters"])

    def differs(self, inputs: Any) -> str | None:
        """In what these inputs are of another form than those of the recorded call, in a line; None: in nothing."""
        return _differs(self._form, inputs, "the inputs")

    def _entry(self, parameters: list[str]) -> Callable[..., Any]:
        def entry(*args: Any, **kwargs: Any) -> Any:
            tensors = values.tensors((args, kwargs))
            if len(tensors) != self._inputs:
                raise TypeError(f"{len(tensors)} tensors where the recorded call was given {self._inputs}")
            places: Places = [*tensors, *[None] * (self._count - self._inputs)]
            for step in self._steps:
                step(places)
            return self._build(places)

        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        # Whoever looks for the arguments that are changed in place asks for their names.
        entry.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in parameters])  # pyright: ignore[reportFunctionMemberAccess]
        return entry

    def _function(self, kernel: dict[str, Any], blobs: list[Any]) -> int:
        function = self._driver.load(bytes(blobs[kernel["blob"]]), kernel["symbol"])
        index = self._device.index or 0
        self._driver.allow(function, kernel["shared_bytes"], kernel["cluster"], index)
        return function

    def _prepared(self, plan: dict[str, Any], functions: list[int]) -> list[Callable[[Places], None]]:
        operations, outputs = plan["operations"], storages(views(plan["outputs"]))
        last = {place: index for index, operation in enumerate(operations) for place in storages(references(operation))}
        whole = [view for view in views(plan["outputs"]) if _is_whole(view, plan["storages"])]
        forms = {view["storage"]: view for view in whole}
        steps: list[Callable[[Places], None]] = []
        for index, operation in enumerate(operations):
            match operation["op"]:
                case "allocate":
                    number = operation["storage"]
                    steps.append(self._allocation(number, plan["storages"][number], forms.get(number)))
                case "launch":
                    number = operation["kernel"]
                    steps.append(_Launch(self, plan["kernels"][number], functions[number], operation))
                case _:
                    steps.append(self._fill(operation))
            # Memory that nothing needs any more is there for the next allocation.
            ended = [place for place, use in last.items() if use == index and place not in outputs]
            if ended:
                steps.append(self._end(ended))
        return steps

    def _allocation(self, number: int, size: int, view: dict[str, Any] | None) -> Callable[[Places], None]:
        place, device = self._inputs + number, self._device
        if view is None:

            def allocate(places: Places) -> None:
                places[place] = torch.empty(size, dtype=torch.uint8, device=device)

            return allocate
        shape, stride, dtype = view["shape"], view["stride"], getattr(torch, view["dtype"])

        def allocate_whole(places: Places) -> None:
            places[place] = torch.empty_strided(shape, stride, dtype=dtype, device=device)

        return allocate_whole

    def _end(self, ended: list[int]) -> Callable[[Places], None]:
        indices = [self._inputs + number for number in ended]

        def end(places: Places) -> None:
            for index in indices:
                places[index] = None

        return end

    def _fill(self, operation: dict[str, Any]) -> Callable[[Places], None]:
        view = self.view(operation["view"])
        if operation["op"] == "zero":

            def zero(places: Places) -> None:
                view(places).zero_()

            return zero
        value = values.decode(operation["value"], [], "cpu")

        def fill(places: Places) -> None:
            view(places).fill_(value)

        return fill

    def place(self, reference: dict[str, Any]) -> int | None:
        """Where among the places a reference points to; None: nowhere."""
        if reference.get("input") is not None:
            return reference["input"]
        return self._inputs + reference["storage"] if reference.get("storage") is not None else None

    def view(self, view: dict[str, Any]) -> Callable[[Places], torch.Tensor]:
        """What makes a view's tensor of the places."""
        shape, stride, dtype = tuple(view["shape"]), tuple(view["stride"]), getattr(torch, view["dtype"])
        place, device = self.place(view), self._device
        if place is None:
            return lambda places: torch.empty_strided(shape, stride, dtype=dtype, device=device)
        offset = view["offset"]

        def make(places: Places) -> torch.Tensor:
            memory = places[place]
            assert memory is not None
            if offset == 0 and memory.dtype == dtype and memory.shape == shape and memory.stride() == stride:
                return memory
            storage = memory.untyped_storage()
            start = memory.data_ptr() - storage.data_ptr() + offset
            return torch.empty(0, dtype=dtype, device=device).set_(storage, start // dtype.itemsize, shape, stride)

        return make

    def _builder(self, node: dict[str, Any]) -> Callable[[Places], Any]:
        """What makes the result's tree of the places."""
        if "view" in node:
            return self.view(node["view"])
        if "list" in node or "tuple" in node:
            kind = list if "list" in node else tuple
            items = [self._builder(child) for child in children(node)]
            return lambda places: kind(item(places) for item in items)
        if "dict" in node:
            pairs = [(key, self._builder(child)) for key, child in node["dict"]]
            return lambda places: {key: child(places) for key, child in pairs}
        value = values.decode(node, [], "cpu")
        return lambda places: value

    def stream(self) -> int:
        """The current one."""
        return 0 if self._device.type == "cpu" else torch._C._cuda_getCurrentRawStream(self._device.index or 0)

    @property
    def driver(self) -> Driver:
        return self._driver


class _Launch:
    """One launch, packed as far as can be: a call writes addresses into it and hands it to the driver."""

    def __init__(self, replayer: Replayer, kernel: dict[str, Any], function: int, launch: dict[str, Any]) -> None:
        self._replayer, self._driver = replayer, replayer.driver
        self._function, self._symbol = function, kernel["symbol"]
        arguments = launch["arguments"]
        _check_sizes(self._driver.parameter_sizes(function, len(arguments) + 1), arguments, self._symbol)
        cluster = kernel["cluster"]
        self._attributes: Any = cuda_driver.attributes(cluster, cooperative=kernel["cooperative"], pdl=kernel["pdl"])
        self._config = Config(
            (ctypes.c_uint * 3)(*(extent * size for extent, size in zip(launch["grid"], cluster, strict=True))),
            (ctypes.c_uint * 3)(32 * kernel["num_warps"], 1, 1),
            kernel["shared_bytes"],
            None,
            ctypes.cast(self._attributes, ctypes.POINTER(Attribute)),
            len(self._attributes),
        )
        self._config_at = ctypes.addressof(self._config)
        maps = [argument["map"] for argument in arguments if "map" in argument]
        self._map_memory = ctypes.create_string_buffer((len(maps) + 1) * ALIGNMENT)
        aligned = -(-ctypes.addressof(self._map_memory) // ALIGNMENT) * ALIGNMENT
        self._slots = (ctypes.c_uint64 * max(len(arguments), 1))()
        self._pointers: list[tuple[int, int, int]] = []
        """Slot, place and offset."""
        self._maps: list[list[Any]] = []
        """Where it is encoded, place, offset, what is encoded, and the address that was last."""
        addresses: list[int] = []
        first = ctypes.addressof(self._slots)
        for slot, argument in enumerate(arguments):
            at = first + slot * POINTER_BYTES
            if "map" in argument:
                at = aligned + len(self._maps) * ALIGNMENT
                self._maps.append(
                    [at, replayer.place(argument["map"]), argument["map"]["offset"], argument["map"], None]
                )
            elif "bits" in argument:
                self._slots[slot] = argument["bits"]
            elif "null" not in argument:
                place = replayer.place(argument)
                assert place is not None
                self._pointers.append((slot, place, argument["offset"]))
            addresses.append(at)
        self._addresses = (ctypes.c_void_p * max(len(addresses), 1))(*addresses)
        self._addresses_at = ctypes.addressof(self._addresses)

    def __call__(self, places: Places) -> None:
        slots = self._slots
        for slot, place, offset in self._pointers:
            slots[slot] = places[place].data_ptr() + offset  # type: ignore[union-attr]
        for one in self._maps:
            at, place, offset, tensor_map, before = one
            address = places[place].data_ptr() + offset  # type: ignore[union-attr]
            if address != before:
                self._driver.encode(at, address, tensor_map)
                one[4] = address
        self._config.stream = self._replayer.stream()
        code = self._driver.launch_kernel(self._config_at, self._function, self._addresses_at, None)
        if code:
            self._driver.check(code, f"the launch of {self._symbol}")


def _is_whole(view: dict[str, Any], storages: list[int]) -> bool:
    """Whether an output fills an allocation: it can be allocated in its form."""
    if view.get("storage") is None or view["offset"]:
        return False
    size = getattr(torch, view["dtype"]).itemsize
    return _span(view) * size == storages[view["storage"]]


def _check_sizes(sizes: list[int], arguments: list[dict[str, Any]], symbol: str) -> None:
    """The driver reads as much memory for each parameter as the machine code says, whatever was put there."""
    given = [
        cuda_driver.TENSOR_MAP_BYTES if "map" in one else NUMBER_BYTES[one["type"]] if "bits" in one else POINTER_BYTES
        for one in arguments
    ]
    if sizes != given:
        message = f"the recorded launch of {symbol} passes parameters of {given} bytes; the kernel takes {sizes}"
        raise Refused("unsupported", "replay", message[:300])


def _count(node: dict[str, Any]) -> int:
    """Tensors in a tree of forms."""
    return 1 if "tensor" in node else sum(_count(child) for child in children(node))


def _span(form: dict[str, Any]) -> int:
    """Elements of storage from the first to the last."""
    if 0 in form["shape"]:
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(form["shape"], form["stride"], strict=True))


def _differs(form: dict[str, Any], value: Any, where: str) -> str | None:
    if "tensor" in form:
        return _differs_tensor(form["tensor"], value, where)
    if "list" in form or "tuple" in form:
        kind, items = (list, form["list"]) if "list" in form else (tuple, form["tuple"])
        if not isinstance(value, kind) or len(value) != len(items):
            return f"{where} is not what it was: a {kind.__name__} of {len(items)}"
        pairs = [(child, item, f"{where}[{i}]") for i, (child, item) in enumerate(zip(items, value, strict=True))]
    elif "dict" in form:
        if not isinstance(value, dict) or list(value) != [key for key, _ in form["dict"]]:
            return f"{where} has other keys than the recorded call's"
        pairs = [(child, value[key], f"{where}[{key!r}]") for key, child in form["dict"]]
    else:
        known = values.decode(form, [], "cpu")
        same = type(known) is type(value) and _same(known, value)
        return None if same else f"{where} is {value!r}; the call was recorded with {known!r}"
    return next((found for one in pairs if (found := _differs(*one)) is not None), None)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float):
        return struct.pack("<d", one) == struct.pack("<d", other)
    return bool(one == other)


def _differs_tensor(form: dict[str, Any], value: Any, where: str) -> str | None:
    if not isinstance(value, torch.Tensor):
        return f"{where} is no tensor"
    found = (str(value.dtype).removeprefix("torch."), list(value.shape), list(value.stride()), value.data_ptr() % 16)
    known = (form["dtype"], form["shape"], form["stride"], form["residue"])
    if found == known:
        return None
    return f"{where} has dtype, shape, strides and alignment {found}; the call was recorded with {known}"
