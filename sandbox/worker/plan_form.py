# pyright: basic
# torch ships incomplete types.
"""The JSON of a recorded call: forms of tensors, its trees, and what in it refers to memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from . import values


class Place(NamedTuple):
    """Memory that a plan can name."""

    start: int
    size: int
    name: str
    """``input`` or ``storage``."""
    number: int

    def reference(self, address: int) -> dict[str, Any]:
        """An address in it, as it stands in a plan."""
        return {self.name: self.number, "offset": address - self.start}


class Memory:
    """The inputs, and what a call allocates."""

    def __init__(self) -> None:
        self._places: dict[int, list[Place]] = {}
        # While it is held, nothing else gets its address.
        self._held: list[torch.Tensor] = []

    def add(self, tensor: torch.Tensor, place: Place) -> None:
        """Know a tensor's storage by this name."""
        self._held.append(tensor)
        self._places.setdefault(tensor.untyped_storage().data_ptr(), []).append(place)

    def of(self, tensor: torch.Tensor) -> Place | None:
        """Where a tensor starts."""
        return _at(tensor.data_ptr(), self._places.get(tensor.untyped_storage().data_ptr(), ()))

    def at(self, address: int) -> Place | None:
        """Where an address lies."""
        return _at(address, [place for places in self._places.values() for place in places])


def _at(address: int, places: Sequence[Place]) -> Place | None:
    for place in places:
        if place.start <= address < place.start + place.size:
            return place
    # A view without elements may start where the memory ends.
    return next((place for place in places if address == place.start + place.size), None)


def tensor_form(tensor: torch.Tensor) -> dict[str, Any]:
    """Element type, shape and strides."""
    return {
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "shape": list(tensor.shape),
        "stride": list(tensor.stride()),
    }


def inputs_form(value: Any) -> dict[str, Any]:
    """The inputs' tree: forms of tensors, and everything else as it is."""
    if isinstance(value, torch.Tensor):
        # Kernels are compiled for addresses that are divisible by 16, or for others.
        return {"tensor": {**tensor_form(value), "residue": value.data_ptr() % 16}}
    if isinstance(value, list | tuple):
        return {"list" if isinstance(value, list) else "tuple": [inputs_form(item) for item in value]}
    if isinstance(value, dict):
        return {"dict": [[key, inputs_form(item)] for key, item in value.items()]}
    return values.encode(value, [], stage="record", where="the inputs")


def children(node: dict[str, Any]) -> list[dict[str, Any]]:
    """Of a node of a tree."""
    return node.get("list") or node.get("tuple") or [item for _, item in node.get("dict", ())]


def views(node: dict[str, Any]) -> list[dict[str, Any]]:
    """All views in a tree of outputs."""
    return [node["view"]] if "view" in node else [view for child in children(node) for view in views(child)]


def references(operation: dict[str, Any]) -> list[dict[str, Any]]:
    """What an operation refers to: arguments (of a tensor map the map itself), what is filled, what is allocated."""
    found = [argument.get("map", argument) for argument in operation.get("arguments", ())]
    found += [operation["view"]] if "view" in operation else []
    return found + ([operation] if operation["op"] == "allocate" else [])


def storages(items: list[dict[str, Any]]) -> list[int]:
    """Numbers of the storages that are referred to."""
    return [item["storage"] for item in items if item.get("storage") is not None]


def keep_used(
    operations: list[dict[str, Any]], outputs: dict[str, Any], sizes: list[int]
) -> tuple[list[dict[str, Any]], list[int]]:
    """Operations and storages without memory that no launch and no output uses; the rest is numbered anew."""
    launches = [item for operation in operations if operation["op"] == "launch" for item in references(operation)]
    used = {*storages(launches), *storages(views(outputs))}
    kept = [one for one in operations if one["op"] == "launch" or used.issuperset(storages(references(one)))]
    numbers = {old: new for new, old in enumerate(sorted(used))}
    for item in (*(item for operation in kept for item in references(operation)), *views(outputs)):
        if item.get("storage") is not None:
            item["storage"] = numbers[item["storage"]]
    return kept, [sizes[old] for old in sorted(used)]
