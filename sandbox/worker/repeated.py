# pyright: basic
# torch ships incomplete types.
"""Inputs for a capture: it needs their form, and some contents, but nobody reads 16 million random numbers.

Drawing these takes most of the time that inputs take. Here a large tensor holds a block of them over and over; host
code that looks at contents finds values of the distribution that the task asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

BLOCK_ELEMENTS = (1 << 18) - 1
"""Tensors with more repeat their contents. Odd, so that rows whose length is a power of two differ from one another."""

_aten: Any = torch.ops.aten
_FILLS = frozenset(
    {
        _aten.normal_.default,
        _aten.uniform_.default,
        _aten.random_.default,
        _aten.random_.to,
        getattr(_aten.random_, "from"),
        _aten.bernoulli_.float,
        _aten.exponential_.default,
        _aten.geometric_.default,
        _aten.cauchy_.default,
        _aten.log_normal_.default,
    }
)
"""What draws each element of a tensor from one distribution, in place."""
_FACTORIES = frozenset(
    {
        _aten.randn.default,
        _aten.randn.generator,
        _aten.rand.default,
        _aten.rand.generator,
        _aten.randint.default,
        _aten.randint.generator,
        _aten.randint.low,
        _aten.randint.low_generator,
        _aten.normal.float_float,
    }
)
"""What makes such a tensor of an argument ``size``."""
_LIKE = frozenset(
    {_aten.randn_like.default, _aten.rand_like.default, _aten.randint_like.default, _aten.randint_like.low_dtype}
)
"""What makes such a tensor of the form of its first argument."""


class Repeated(TorchDispatchMode):
    """Within this context, large tensors on the CPU get a block of random elements over and over.

    All else stays as it is, permutations and distributions whose parameters are tensors among it. Fewer numbers are
    drawn: what a seed gives behind the first large tensor is other than without this, if the same each time.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Nothing is compiled here, and torch would import its compiler to be told so: two seconds.
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _FILLS and _is_large(args[0].shape) and _is_flat(args[0]):
            _repeat(args[0], lambda block: func(block, *args[1:], **kwargs))
            return args[0]
        if func in _LIKE and _is_large(args[0].shape) and _is_flat(args[0]) and _is_like_it(kwargs):
            form = {name: value for name, value in kwargs.items() if name != "memory_format"}
            block = func(args[0].new_empty(BLOCK_ELEMENTS), *args[1:], **form)
            return _of_block(torch.empty_like(args[0], dtype=block.dtype), block)
        if func in _FACTORIES:
            place = [argument.name for argument in func._schema.arguments].index("size")
            size = args[place]
            if _is_large(size):
                block = func(*args[:place], [BLOCK_ELEMENTS], *args[place + 1 :], **kwargs)
                return _of_block(torch.empty(size, dtype=block.dtype, device=block.device), block)
        return func(*args, **kwargs)


def _is_large(size: Any) -> bool:
    return math.prod(size) > BLOCK_ELEMENTS


def _is_like_it(asked: dict[str, Any]) -> bool:
    """Whether it is made in the same place and of the same form."""
    return asked.get("device") is None and asked.get("memory_format") in {
        None, torch.preserve_format, torch.contiguous_format,
    }  # fmt: skip


def _is_flat(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu" and tensor.is_contiguous()


def _repeat(tensor: torch.Tensor, fill: Callable[[torch.Tensor], object]) -> None:
    block = tensor.new_empty(BLOCK_ELEMENTS)
    fill(block)
    _of_block(tensor, block)


def _of_block(tensor: torch.Tensor, block: torch.Tensor) -> torch.Tensor:
    flat = tensor.detach().view(-1)
    whole = flat.numel() // len(block) * len(block)
    flat[:whole].view(-1, len(block)).copy_(block)
    flat[whole:].copy_(block[: flat.numel() - whole])
    return tensor
