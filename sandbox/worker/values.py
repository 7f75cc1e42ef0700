# pyright: basic
# torch ships incomplete types.
"""Arguments and results as JSON trees with raw tensor bytes beside them; never pickle.

A tree node is ``{"tensor": {...}, "blob": i}``, ``{"list"|"tuple": [...]}``, ``{"dict": [[key, node], ...]}``,
``{"dtype": "float16"}``, ``{"number": "nan"|"inf"|"-inf"}`` or ``{"value": scalar}``.
"""

from __future__ import annotations

import ctypes
import math
from typing import Any

import torch

from . import share
from .failures import Refused
from .frames import DESCRIPTORS_LIMIT

ALLOWED = "tensors, numbers, strings, booleans, None, torch dtypes, and lists, tuples and dicts of these"


def encode(value: Any, blobs: list[Any], *, stage: str, where: str) -> dict[str, Any]:
    """Encode ``value``; the bytes of its tensors are appended to ``blobs``.

    Raises:
        Refused: a value that is not data; the message names its place and type.
    """
    if isinstance(value, torch.Tensor):
        return {"tensor": _tensor_fields(value, blobs, stage=stage, where=where), "blob": len(blobs) - 1}
    if isinstance(value, bool | str) or value is None:
        return {"value": value}
    if isinstance(value, int):
        return {"value": value}
    if isinstance(value, float):
        return {"value": value} if math.isfinite(value) else {"number": repr(value)}
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if isinstance(value, list | tuple):
        nodes = [encode(item, blobs, stage=stage, where=f"{where}[{i}]") for i, item in enumerate(value)]
        return {"list" if isinstance(value, list) else "tuple": nodes}
    if isinstance(value, dict):
        pairs: list[list[Any]] = []
        for key, item in value.items():
            _check_key(key, stage=stage, where=where)
            pairs.append([key, encode(item, blobs, stage=stage, where=f"{where}[{key!r}]")])
        return {"dict": pairs}
    raise _not_data(value, stage=stage, where=where)


def check(value: Any, *, stage: str, where: str) -> None:
    """See that a value is one that `encode` takes, before anything is done with it.

    Raises:
        Refused: it is not; the message names its place and type.
    """
    if isinstance(value, torch.Tensor):
        _check_tensor(value, stage=stage, where=where)
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            check(item, stage=stage, where=f"{where}[{i}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            _check_key(key, stage=stage, where=where)
            check(item, stage=stage, where=f"{where}[{key!r}]")
    elif not (value is None or isinstance(value, bool | int | float | str | torch.dtype)):
        raise _not_data(value, stage=stage, where=where)


def decode(node: dict[str, Any], blobs: list[Any], device: str) -> Any:
    """Rebuild what `encode` described, tensors on ``device`` with their own storage, shape and strides."""
    if "tensor" in node:
        return _decode_tensor(node["tensor"], blobs[node["blob"]], device)
    if "value" in node:
        return node["value"]
    if "number" in node:
        return float(node["number"])
    if "dtype" in node:
        return _dtype(node["dtype"])
    if "list" in node:
        return [decode(item, blobs, device) for item in node["list"]]
    if "tuple" in node:
        return tuple(decode(item, blobs, device) for item in node["tuple"])
    return {key: decode(item, blobs, device) for key, item in node["dict"]}


def tensors(value: Any) -> list[torch.Tensor]:
    """All tensors in ``value``, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in tensors(item)]
    if isinstance(value, dict):
        return [tensor for item in value.values() for tensor in tensors(item)]
    return []


def copy(value: Any) -> Any:
    """The same tree with every tensor in new storage, strides kept."""
    if isinstance(value, torch.Tensor):
        span = _span(value)
        fresh = torch.empty(span, dtype=value.dtype, device=value.device)
        fresh.copy_(value.detach().as_strided((span,), (1,), value.storage_offset()))
        return fresh.as_strided(value.shape, value.stride()).requires_grad_(value.requires_grad)
    if isinstance(value, list | tuple):
        # Named tuples become plain ones, as they do on the wire.
        return [copy(item) for item in value] if isinstance(value, list) else tuple(copy(item) for item in value)
    if isinstance(value, dict):
        return {key: copy(item) for key, item in value.items()}
    return value


def size_bytes(value: Any) -> int:
    """Bytes that the tensors in ``value`` span."""
    return sum(_span(tensor) * tensor.element_size() for tensor in tensors(value))


def strays(node: dict[str, Any], device_type: str) -> int:
    """How many tensors of an encoded tree came from another kind of device."""
    if "tensor" in node:
        return int(node["tensor"]["device"] != device_type)
    children = node.get("list") or node.get("tuple") or [item for _, item in node.get("dict", ())]
    return sum(strays(child, device_type) for child in children)


def _tensor_fields(tensor: torch.Tensor, blobs: list[Any], *, stage: str, where: str) -> dict[str, Any]:
    _check_tensor(tensor, stage=stage, where=where)
    # Conjugation and negation that torch has put off are not in the bytes yet.
    plain = tensor.detach().resolve_conj().resolve_neg()
    span = _span(plain)
    # The storage behind the view goes across as it lies, so that strides (and broadcasts) survive.
    flat = plain.as_strided((span,), (1,), plain.storage_offset())
    # Only so many descriptors go with a frame.
    shared = sum(isinstance(blob, share.Shared) for blob in blobs) < DESCRIPTORS_LIMIT
    blobs.append(_blob(flat, shared=shared))
    return {
        "dtype": str(plain.dtype).removeprefix("torch."),
        "shape": list(plain.shape),
        "stride": list(plain.stride()),
        "device": plain.device.type,
        "requires_grad": tensor.requires_grad,
    }


def _check_key(key: Any, *, stage: str, where: str) -> None:
    if not isinstance(key, str | int):
        message = f"{where} has a key of type {type(key).__name__}; keys are strings or integers"
        raise Refused("rejected", stage, message)


def _not_data(value: Any, *, stage: str, where: str) -> Refused:
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    return Refused("rejected", stage, f"{where} is a {kind}; allowed are {ALLOWED}")


def _check_tensor(tensor: torch.Tensor, *, stage: str, where: str) -> None:
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise Refused(
            "rejected",
            stage,
            f"{where} is a {tensor.layout} tensor; only dense strided tensors are supported",
        )
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        raise Refused(
            "rejected",
            stage,
            f"{where} is a {type(tensor).__qualname__}; only plain torch.Tensor is supported",
        )


def _span(tensor: torch.Tensor) -> int:
    """Elements of storage from the first to the last that the view touches."""
    if tensor.numel() == 0:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def _blob(flat: torch.Tensor, *, shared: bool) -> Any:
    if not shared or flat.numel() * flat.element_size() < share.INLINE_BYTES:
        return _bytes(flat.cpu().contiguous())
    data = flat.contiguous().view(torch.uint8)
    return share.to_device(data) if data.is_cuda else share.to_memory(data)


def _bytes(flat: torch.Tensor) -> memoryview:
    size = flat.numel() * flat.element_size()
    if size == 0:
        return memoryview(b"")
    view = memoryview((ctypes.c_char * size).from_address(flat.data_ptr())).cast("B")
    _KEEP_ALIVE[id(view.obj)] = flat
    return view


# The views above borrow a tensor's memory: the tensors live until the frame is sent.
_KEEP_ALIVE: dict[int, torch.Tensor] = {}


def release() -> None:
    """Let go of the tensors whose bytes have been sent."""
    _KEEP_ALIVE.clear()


def _decode_tensor(fields: dict[str, Any], blob: Any, device: str) -> torch.Tensor:
    dtype, shape, stride = _dtype(fields["dtype"]), fields["shape"], fields["stride"]
    differentiable = dtype.is_floating_point or dtype.is_complex
    size = blob.size_bytes if isinstance(blob, share.Shared) else len(blob)
    elements = math.prod(shape)
    span = 1 + sum((n - 1) * step for n, step in zip(shape, stride, strict=False)) if elements else 0
    fits = len(shape) == len(stride) and elements < 2**63 and size == span * dtype.itemsize
    if not fits or (fields["requires_grad"] and not differentiable):
        raise _forged(f"{size} bytes for a tensor of {fields['dtype']}, shape {shape} and strides {stride}")
    tensor = _flat(blob, device).view(dtype).as_strided(shape, stride)
    return tensor.requires_grad_(True) if fields["requires_grad"] else tensor


def _dtype(name: str) -> torch.dtype:
    # Not getattr: torch imports some of its modules where they are asked for.
    dtype = vars(torch).get(name)
    if not isinstance(dtype, torch.dtype):
        raise _forged(f"a dtype {name!r}")
    return dtype


def _forged(what: str) -> Refused:
    return Refused("cheating", "worker", f"a worker sent what `encode` makes of no value: {what}"[:300])


def _flat(blob: Any, device: str) -> torch.Tensor:
    """A blob's bytes as a flat uint8 tensor with storage of its own."""
    if isinstance(blob, share.Shared):
        if blob.kind == "memory":
            return share.from_memory(blob, device)
        if device == "cpu":
            raise Refused("rejected", "inputs", "a tensor came as GPU memory to a worker without a GPU")
        return share.from_device(blob, device)
    # torch.frombuffer refuses an empty buffer.
    if not blob:
        return torch.empty(0, dtype=torch.uint8, device=device)
    return torch.frombuffer(blob, dtype=torch.uint8).to(device, copy=True)
