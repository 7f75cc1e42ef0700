# pyright: basic
# torch and triton ship incomplete types.
"""One call of an entry as a plan that another process can carry out without the kernel file.

An entry qualifies if all that it puts on the device are launches of Triton kernels that are given its inputs, memory
that it allocates in the call, constant fills of both, and numbers. What else the host does in Python leaves no trace in
the plan; whatever computes, copies or reads elsewhere than in a Triton kernel disqualifies, and the reason is told.
The form of a plan is checked above by `replay_plan`.
"""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Callable, Generator, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from triton.compiler import CompiledKernel
from triton.runtime.autotuner import Autotuner
from triton.runtime.driver import driver

from . import guard, plan_form, reference, values, versions
from .guard import NO_COMPUTATION, UNINITIALISED
from .parameters import TENSOR_MAP, Parameter, TensorMap, Unpackable, bits, parameters
from .plan_form import Memory, Place

OPERATIONS_LIMIT = 1000
"""Allocations, fills and launches of one call."""
ARGUMENTS_LIMIT = 16_000
"""Of all launches of one call: a plan has to fit into a frame's header."""
REASON_LIMIT = 300
LOWEST_ADDRESS = 1 << 32
"""A smaller number is none."""
ATTEMPTS = 3
"""Recordings of one entry: the first may compile and tune."""

ZEROS = {"zeros", "zeros_like", "new_zeros"}
FILLED = {
    "ones": 1, "ones_like": 1, "new_ones": 1, "full": "fill_value", "full_like": "fill_value", "new_full": "fill_value",
    "scalar_tensor": "s",
}  # fmt: skip
"""Factories, with the value or the name of the argument that holds it."""
HARMLESS = NO_COMPUTATION - {"_local_scalar_dense", "resize_", "resize_as_"}
COPIES = {"clone", "copy_", "_to_copy"}
DISPATCHED = {"aten", "prims", "prim"}
"""Namespaces whose operators are torch's own."""


def record(
    entry: Callable[..., Any], inputs: Any, in_place: Sequence[str], device: str
) -> tuple[dict[str, Any], list[bytes]]:
    """Run the entry on ``inputs``, which it may write to, and give back ``{"plan": ...}`` or ``{"reason": line}``.

    Args:
        entry: the kernel file's host function.
        inputs: a tuple or dict of arguments, every tensor with storage of its own.
        in_place: the arguments that are the outputs, where the task names them.
        device: where the tensors lie: ``cpu`` under the capturing driver.

    Returns:
        The plan, and the machine code of its kernels, which it refers to by number.
    """
    recording = _Recording(inputs, device)
    for _ in range(ATTEMPTS):
        recording = _Recording(inputs, device)
        with recording.listening():
            outputs = reference.run(entry, inputs, in_place)
        if not recording.tuned:
            break
    tree = recording.told(outputs, "the result")
    if recording.reason is not None:
        return {"reason": recording.reason[:REASON_LIMIT]}, []
    names = [] if isinstance(inputs, dict) else reference.parameter_names(entry)
    return {"plan": recording.plan(inputs, names, tree)}, list(recording.blobs)


class _Recording(TorchDispatchMode):
    """What one call puts on the device, in order, and the first thing that a plan can't say.

    Attributes:
        reason: that thing, in a line.
        blobs: machine code of the kernels.
        tuned: an autotuner timed configurations meanwhile, which a later call does not.
    """

    supports_higher_order_operators = True

    def __init__(self, inputs: Any, device: str) -> None:
        super().__init__()
        self.reason: str | None = None
        self.blobs: dict[bytes, int] = {}
        self.tuned = False
        self._device = torch.device(device).type
        self._kernels: dict[str, int] = {}
        self._described: list[dict[str, Any]] = []
        self._operations: list[dict[str, Any]] = []
        self._sizes: list[int] = []
        self._arguments = 0
        self._unannounced = 0
        self._memory = Memory()
        self._stream: Any = None
        for number, tensor in enumerate(values.tensors(inputs)):
            start, stop = guard.extent(tensor)
            self._memory.add(tensor, Place(start, stop - start, "input", number))

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Otherwise the first operation imports torch._dynamo, which takes seconds."""
        return False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """torch.compile works on what it traces undisturbed."""
        return True

    @contextlib.contextmanager
    def listening(self) -> Generator[None]:
        """Within this context, operations of torch and launches are recorded."""
        active: Any = driver.active
        kernels: Any = CompiledKernel
        tuners: Any = Autotuner
        launchers: Any = active.launcher_cls
        self._stream = active.get_current_stream(active.get_current_device())
        metadata, bench, run = kernels.launch_metadata, tuners._bench, launchers.__call__

        # Every version calls this right before the launch, with all arguments.
        def launch_metadata(kernel: Any, grid: Any, stream: Any, *arguments: Any) -> Any:
            if guard.is_on():
                self._unannounced -= 1
                self._launched(kernel, grid, stream, arguments)
            return metadata(kernel, grid, stream, *arguments)

        def tune(tuner: Any, *args: Any, **kwargs: Any) -> Any:
            self.tuned = True
            return bench(tuner, *args, **kwargs)

        # A compiled kernel can be asked to run directly, too.
        def call(launcher: Any, *args: Any) -> Any:
            if guard.is_on():
                self._unannounced += 1
            return run(launcher, *args)

        kernels.launch_metadata, tuners._bench, launchers.__call__ = launch_metadata, tune, call
        try:
            with self:
                yield
        finally:
            kernels.launch_metadata, tuners._bench, launchers.__call__ = metadata, bench, run
        if self._unannounced > 0:
            self._refuse("it launches a kernel past Triton's own way to launch")

    def plan(self, inputs: Any, names: list[str], outputs: dict[str, Any]) -> dict[str, Any]:
        """The recorded call. What no launch and no output uses is left out."""
        operations, sizes = plan_form.keep_used(self._operations, outputs, self._sizes)
        return {
            "inputs": plan_form.inputs_form(inputs),
            "parameters": names,
            "storages": sizes,
            "kernels": self._described,
            "operations": operations,
            "outputs": outputs,
        }

    def told(self, value: Any, where: str) -> dict[str, Any]:
        """An output as a node of the plan's tree."""
        if isinstance(value, torch.Tensor):
            return {"view": self._view(value, where)}
        if isinstance(value, list | tuple):
            nodes = [self.told(item, f"{where}[{i}]") for i, item in enumerate(value)]
            return {"list" if isinstance(value, list) else "tuple": nodes}
        if isinstance(value, dict):
            return {"dict": [[key, self.told(item, f"{where}[{key!r}]")] for key, item in value.items()]}
        if value is None or isinstance(value, bool | int | float | str | torch.dtype):
            return values.encode(value, [], stage="record", where=where)
        self._refuse(f"{where} is a {type(value).__name__}")
        return {"value": None}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not guard.is_on() or self.reason is not None:
            return func(*args, **kwargs)
        if not isinstance(func, torch._ops.OpOverload):
            result = func(*args, **kwargs)
            # A Triton kernel wrapped for torch.compile is a launch.
            if not str(func).startswith("triton_kernel_wrapper"):
                self._refuse(f"{func} computes outside of Triton")
            return result
        if func.namespace not in DISPATCHED:
            return self._custom(func, args, kwargs)
        result = func(*args, **kwargs)
        if any(tensor.device.type == self._device for tensor in values.tensors((args, kwargs, result))):
            self._ran(func, args, kwargs, result)
        return result

    def _custom(self, func: Any, args: Any, kwargs: Any) -> Any:
        """An operator written in Python: what it does in turn is recorded."""
        before = len(self._operations)
        key = torch._C.DispatchKey.CPU if self._device == "cpu" else torch._C.DispatchKey.CUDA
        with self:
            result = func.redispatch(torch._C.DispatchKeySet(key), *args, **kwargs)
        if len(self._operations) == before:
            self._refuse(f"{func.overloadpacket} computes outside of Triton")
        return result

    def _ran(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        name, mutable = func._schema.name.removeprefix("aten::"), func._schema.is_mutable
        if func.is_view or name in HARMLESS:
            return
        if not mutable and name in UNINITIALISED:
            self._allocated(result)
        elif not mutable and name in ZEROS:
            self._allocated(result)
            self._filled(result, None)
        elif not mutable and name in FILLED:
            self._allocated(result)
            value = FILLED[name]
            self._filled(result, _argument(func, args, kwargs, value) if isinstance(value, str) else value)
        elif name == "zero_":
            self._filled(args[0], None)
        elif name == "fill_" and not isinstance(args[1], torch.Tensor):
            self._filled(args[0], args[1])
        elif name in {"fill_", "copy_"} and self._is_constant(args[1]):
            self._filled(args[0], args[1].item())
        elif name == "resize_" and self._memory.of(result) is not None:
            return
        elif not mutable and (made := values.tensors(result)) and all(tensor.numel() == 0 for tensor in made):
            # Nothing of it reaches the device.
            return
        else:
            self._refuse(f"{func.overloadpacket} {_does(name)}")

    def _is_constant(self, source: Any) -> bool:
        """``x[:] = 0`` makes a tensor of the number on the host; under the capturing driver everything lies there."""
        return source.dim() == 0 and source.device.type == "cpu" and self._memory.of(source) is None

    def _allocated(self, tensor: torch.Tensor) -> None:
        if tensor.layout is not torch.strided or tensor.is_quantized:
            self._refuse(f"it allocates a {tensor.layout} tensor")
            return
        storage = tensor.untyped_storage()
        if storage.nbytes():
            self._memory.add(tensor, self._new(storage.nbytes(), storage.data_ptr()))

    def _new(self, size: int, start: int) -> Place:
        place = Place(start, size, "storage", len(self._sizes))
        self._sizes.append(size)
        self._did({"op": "allocate", "storage": place.number})
        return place

    def _filled(self, tensor: torch.Tensor, value: Any) -> None:
        if not tensor.numel():
            return
        view = self._view(tensor, "what is filled")
        if value is None:
            self._did({"op": "zero", "view": view})
        elif isinstance(value, bool | int | float):
            finite = not isinstance(value, float) or math.isfinite(value)
            self._did({"op": "fill", "view": view, "value": {"value": value} if finite else {"number": repr(value)}})
        else:
            self._refuse(f"it fills memory with a {type(value).__name__}")

    def _view(self, tensor: torch.Tensor, what: str) -> dict[str, Any]:
        form = plan_form.tensor_form(tensor)
        if not tensor.numel():
            return form
        if tensor.is_conj() or tensor.is_neg() or tensor.layout is not torch.strided:
            self._refuse(f"{what} is no plain tensor")
            return form
        place = self._memory.of(tensor)
        start, stop = guard.extent(tensor)
        if place is None or stop > place.start + place.size:
            self._refuse(f"{what} lies in memory that was not allocated in this call")
            return form
        return {**place.reference(start), **form}

    def _launched(self, kernel: Any, grid: Any, stream: Any, arguments: Sequence[Any]) -> None:
        if self.reason is not None:
            return
        try:
            self._launch(kernel, grid, stream, arguments)
        except Unpackable as unpackable:
            self._refuse(f"{kernel.src.fn.__name__} is given {unpackable}")

    def _launch(self, kernel: Any, grid: Any, stream: Any, arguments: Sequence[Any]) -> None:
        extents = [operator.index(extent) for extent in (*grid, 1, 1)[:3]]
        if 0 in extents:
            # Triton launches nothing.
            return
        metadata, name = kernel.metadata, kernel.src.fn.__name__
        if stream != self._stream:
            self._refuse(f"{name} is launched on another stream than the current one")
        profiler_bytes = versions.profiler_bytes(metadata)
        if profiler_bytes:
            self._refuse(f"{name} is compiled for a profiler")
        given = [self._given(parameter) for parameter in parameters(kernel, arguments)]
        number = self._number(kernel)
        x, y, z = self._described[number]["cluster"]
        scratch = metadata.global_scratch_size * math.prod(extents) * x * y * z
        # Triton asks for it at each launch. Its own place is nowhere: the launcher allocates after this.
        given.append({"storage": self._new(scratch, 0).number, "offset": 0} if scratch else {"null": True})
        if profiler_bytes is not None:
            given.append({"null": True})
        self._arguments += len(given)
        if self._arguments > ARGUMENTS_LIMIT:
            self._refuse(f"its launches have more than {ARGUMENTS_LIMIT} arguments together")
        self._did({"op": "launch", "kernel": number, "grid": extents, "arguments": given})

    def _number(self, kernel: Any) -> int:
        """Of a kernel among those of the plan."""
        if kernel.hash in self._kernels:
            return self._kernels[kernel.hash]
        metadata, code = kernel.metadata, kernel.asm["cubin"]
        number = self._kernels[kernel.hash] = len(self._described)
        self._described.append(
            {
                "blob": self.blobs.setdefault(code, len(self.blobs)),
                "symbol": kernel.name,
                "num_warps": metadata.num_warps,
                "cluster": list(versions.cluster(metadata)),
                "shared_bytes": metadata.shared,
                "cooperative": bool(metadata.launch_cooperative_grid),
                "pdl": bool(metadata.launch_pdl),
            }
        )
        return number

    def _given(self, parameter: Parameter) -> dict[str, Any]:
        kind, value = parameter
        if kind == TENSOR_MAP:
            return {"map": self._map(value)}
        if kind.startswith("*"):
            return self._pointer(value)
        # It may be the address of a tensor, for the kernel to make a pointer of.
        number = isinstance(value, int) and kind in {"i64", "u64"} and value >= LOWEST_ADDRESS
        if number and (place := self._memory.at(value)) is not None:
            return place.reference(value)
        packed, pattern = bits(parameter)
        return {"type": packed, "bits": pattern}

    def _pointer(self, value: Any) -> dict[str, Any]:
        # What triton.reinterpret returns stands for a tensor.
        tensor = value if isinstance(value, torch.Tensor) else getattr(value, "base", None)
        address = value if isinstance(value, int) else 0 if value is None else value.data_ptr()
        if address == 0:
            return {"null": True}
        place = self._memory.of(tensor) if isinstance(tensor, torch.Tensor) else None
        if place is None:
            raise Unpackable("memory that was not allocated in this call")
        return place.reference(address)

    def _map(self, asked: TensorMap) -> dict[str, Any]:
        place = self._memory.at(asked.address)
        if place is None:
            raise Unpackable("a descriptor of memory that was not allocated in this call")
        fields = {name: value for name, value in asked._asdict().items() if name != "address"}
        return {**place.reference(asked.address), **fields}

    def _did(self, operation: dict[str, Any]) -> None:
        if self.reason is not None:
            return
        self._operations.append(operation)
        if len(self._operations) > OPERATIONS_LIMIT:
            self._refuse(f"it makes more than {OPERATIONS_LIMIT} allocations, fills and launches")

    def _refuse(self, reason: str) -> None:
        if self.reason is None:
            self.reason = reason


def _does(name: str) -> str:
    if name == "_local_scalar_dense":
        return "reads an element on the host"
    return "copies outside of Triton" if name in COPIES else "computes outside of Triton"


def _argument(func: Any, args: Any, kwargs: Any, name: str) -> Any:
    index = [argument.name for argument in func._schema.arguments].index(name)
    return args[index] if index < len(args) else kwargs[name]
