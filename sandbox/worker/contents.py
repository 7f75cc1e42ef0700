# pyright: basic
# torch ships incomplete types.
"""Contents of inputs that differ from call to call, and that another process can make alike.

What has once been computed is worth nothing to a kernel then. The floating-point elements are multiplied by noise
between 0.75 and 1: the same seed gives the same noise on the same device. A content is an integer: its lower part
chooses where in the noise it begins, its upper part is a seed that nobody knows before.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from . import reference, values
from .variants import is_changed, memory

LOWEST = 0.75
"""Elements become smaller by up to a quarter: what was bounded stays so, and a result of other contents is far off."""
CHUNK = 1 << 24
"""Elements multiplied at a time: so long is the noise."""
STEP = 8
"""Elements by which one content's noise lies later than that of the one before: 16 bytes or more, for wide loads."""
COUNT = 1 << 13
"""Contents of one seed."""


class Alternatives(NamedTuple):
    """Values under other seeds."""

    whole: bool
    """Of all tensors: noise changes none. Where results are indices or roundings, it would make ties."""
    sets: list[list[torch.Tensor]]


NONE = Alternatives(whole=False, sets=[])


class Contents:
    """Variations of one set of inputs.

    Attributes:
        varies: whether any tensor differs between contents.
        constant: how many tensors never do: integers and booleans.
    """

    def __init__(self, inputs: Any, seed: int | None, alternatives: Alternatives = NONE) -> None:
        """
        Args:
            inputs: what `values.decode` or a task's ``make_inputs`` gave; stays as it is.
            seed: of the noise; None: all contents are the inputs themselves.
            alternatives: other values of the tensors that noise does not change.
        """
        self._inputs = inputs
        self._bases = [memory(tensor) for tensor in values.tensors(inputs)]
        noisy = seed is not None and not alternatives.whole
        changed = [noisy and is_changed(tensor) for tensor in values.tensors(inputs)]
        sets = [] if seed is None else alternatives.sets
        self._alternatives = [[memory(tensor) for tensor in others] for others in sets]
        self.constant = 0 if self._alternatives else changed.count(False)
        self.varies = any(changed) or bool(self._alternatives)
        self._seed, self._drawn_for = seed or 0, 0
        self._noise: dict[tuple[torch.dtype, torch.device], torch.Tensor] = {}
        self._wide: list[torch.Tensor | None] = []
        for base, change in zip(self._bases, changed, strict=True):
            wide = None
            if change:
                # There is no arithmetic of one byte.
                wide = base.to(torch.float32) if base.element_size() == 1 else base
                self._make_room(wide)
            self._wide.append(wide)
        self._draw()

    def make(self, content: int) -> Any:
        """New inputs with a content."""
        made = values.copy(self._inputs)
        self.write(made, content)
        return made

    def get_ready(self, content: int) -> None:
        """Draw the noise of a content and all others of its seed, which `write` does otherwise."""
        seed = content // COUNT
        if seed != self._drawn_for:
            self._drawn_for = seed
            self._draw()

    def write(self, target: Any, content: int, *, restore: bool = False) -> None:
        """Give another copy of the inputs a content.

        Args:
            target: tensors of the same forms.
            content: a seed times `COUNT`, and a number below that.
            restore: copy what does not vary, too: something has written to it.
        """
        self.get_ready(content)
        start = content % COUNT * STEP
        choice = content % (1 + len(self._alternatives))
        others = iter(self._alternatives[choice - 1]) if choice else None
        with torch.no_grad():
            for base, wide, tensor in zip(self._bases, self._wide, values.tensors(target), strict=True):
                flat = memory(tensor)
                if wide is not None:
                    self._vary(wide, flat, start)
                elif others is not None:
                    flat.copy_(next(others))
                elif restore or self._alternatives:
                    flat.copy_(base)

    def _vary(self, base: torch.Tensor, target: torch.Tensor, start: int) -> None:
        noise = self._noise[_noise_type(base.dtype), base.device]
        for first in range(0, base.numel(), CHUNK):
            part = base[first : first + CHUNK]
            factors = noise[start : start + part.numel()]
            if part.dtype == target.dtype:
                torch.mul(part, factors, out=target[first : first + CHUNK])
            else:
                target[first : first + CHUNK].copy_(part * factors)

    def _make_room(self, base: torch.Tensor) -> None:
        dtype = _noise_type(base.dtype)
        length = min(CHUNK, base.numel()) + COUNT * STEP
        known = self._noise.get((dtype, base.device))
        if known is None or known.numel() < length:
            self._noise[dtype, base.device] = torch.empty(length, dtype=dtype, device=base.device)

    def _draw(self) -> None:
        for noise in self._noise.values():
            generator = torch.Generator(noise.device).manual_seed((self._seed + self._drawn_for) % (1 << 62))
            noise.uniform_(LOWEST, 1.0, generator=generator)


def constants(inputs: Any, *, whole: bool) -> list[torch.Tensor]:
    """The tensors whose contents noise does not change: integers and booleans, or all."""
    return [tensor for tensor in values.tensors(inputs) if whole or not is_changed(tensor)]


def alternative(inputs: Any, other: Any, *, whole: bool) -> list[torch.Tensor] | None:
    """The constants of another set of inputs, to put in place of one's own; None where the two are not alike.

    They are alike where all but the tensors' elements is equal: a length beside its tensor must not be another's.
    """
    mine, its = (reference.mapped(tree, _form) for tree in (inputs, other))
    return constants(other, whole=whole) if mine == its else None


def _form(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.device


def _noise_type(dtype: torch.dtype) -> torch.dtype:
    """Complex numbers are multiplied by real ones."""
    return {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}.get(
        dtype, dtype
    )
