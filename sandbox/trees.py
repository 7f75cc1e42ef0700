"""The form of values on their way between workers (see `worker/values.py`): checked before they are passed on."""

import re
from typing import Any, Final, cast

from .errors import ProtocolViolation

DEPTH_LIMIT: Final = 100
NODES_LIMIT: Final = 100_000
SCALARS: Final = (bool, int, float, str, type(None))
SIZE_LIMIT: Final = 2**63
"""Of a dimension or a stride: torch has no larger ones."""
DTYPE: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")
NUMBERS: Final = frozenset({"nan", "inf", "-inf"})
TENSOR_FIELDS: Final = frozenset({"dtype", "shape", "stride", "device", "requires_grad"})


def check_tree(tree: Any, blobs: int) -> None:
    """Check a tree and that it refers to blobs that came along.

    Raises:
        ProtocolViolation: it is nothing that a worker of ours makes.
    """
    open_nodes: list[tuple[Any, int]] = [(tree, 0)]
    used: set[int] = set()
    for seen, (node, depth) in enumerate(_each(open_nodes)):
        if depth > DEPTH_LIMIT or seen >= NODES_LIMIT:
            raise ProtocolViolation("the worker's values are nested too deeply or too many")
        if isinstance(node, dict) and type(blob := cast(dict[str, Any], node).get("blob")) is int:
            # Whoever decodes it copies each tensor's bytes: the same ones a thousand times would fill its memory.
            if blob in used:
                raise _malformed("two tensors in the same blob")
            used.add(blob)
        open_nodes += [(child, depth + 1) for child in _children(node, blobs)]


def _each(nodes: list[tuple[Any, int]]) -> Any:
    while nodes:
        yield nodes.pop()


def _children(node: Any, blobs: int) -> list[Any]:
    if not isinstance(node, dict):
        raise _malformed("a node that is no object")
    fields = cast(dict[str, Any], node)
    match list(fields):
        case ["value"] if isinstance(fields["value"], SCALARS):
            return []
        case ["number"] if isinstance(fields["number"], str) and fields["number"] in NUMBERS:
            return []
        case ["dtype"] if _is_dtype(fields["dtype"]):
            return []
        case ["list"] | ["tuple"]:
            (children,) = fields.values()
            if isinstance(children, list):
                return cast(list[Any], children)
        case ["dict"] if isinstance(fields["dict"], list):
            pairs = cast(list[Any], fields["dict"])
            if all(_is_pair(pair) for pair in pairs):
                return [pair[1] for pair in pairs]
        case ["tensor", "blob"] if type(fields["blob"]) is int and 0 <= fields["blob"] < blobs:
            if _is_tensor(fields["tensor"]):
                return []
        case _:
            pass
    raise _malformed(f"a malformed node with {', '.join(sorted(map(str, fields)))[:80] or 'nothing'}")


def _is_pair(pair: Any) -> bool:
    if not isinstance(pair, list):
        return False
    parts = cast(list[Any], pair)
    return len(parts) == 2 and isinstance(parts[0], str | int)


def _is_tensor(tensor: Any) -> bool:
    if not isinstance(tensor, dict):
        return False
    fields = cast(dict[str, Any], tensor)
    if fields.keys() != TENSOR_FIELDS:
        return False
    shape, stride = fields["shape"], fields["stride"]
    return (
        _is_dtype(fields["dtype"])
        and isinstance(fields["device"], str)
        and isinstance(fields["requires_grad"], bool)
        and _are_sizes(shape)
        and _are_sizes(stride)
        and len(shape) == len(stride)
    )


def _is_dtype(name: Any) -> bool:
    """Whether it may be the name of a torch dtype, such as ``float8_e4m3fn``."""
    return isinstance(name, str) and DTYPE.fullmatch(name) is not None


def _are_sizes(sizes: Any) -> bool:
    return isinstance(sizes, list) and all(
        type(size) is int and 0 <= size < SIZE_LIMIT for size in cast(list[Any], sizes)
    )


def _malformed(what: str) -> ProtocolViolation:
    return ProtocolViolation(f"the worker's values have {what}")
