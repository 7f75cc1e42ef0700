# pyright: basic
# torch ships incomplete types.
"""Calls a task's function: plainly, with gradients, and in double precision."""

from __future__ import annotations

import contextlib
import inspect
import re
import sys
from collections.abc import Callable, Generator, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from . import values
from .failures import Refused

Upstream = Sequence["torch.Tensor | None"]
"""The gradient that flows into each output tensor, in the order of `values.tensors`; None where none does."""

REASON_LIMIT = 300

REFUSALS = (
    RuntimeError, TypeError, ValueError, AttributeError, LookupError, ArithmeticError, AssertionError,
)  # fmt: skip
"""What torch raises for types, values and sizes that it can't work with; torch.OutOfMemoryError and NotImplementedError
are RuntimeErrors."""

_OLD_NAME = re.compile(r"(?:Half|BFloat16|Float)Tensor$")
_CASTS = {
    getattr(torch.Tensor, narrow): getattr(torch.Tensor, wide)
    for narrow, wide in {
        "float": "double", "half": "double", "bfloat16": "double", "cfloat": "cdouble", "chalf": "cdouble",
    }.items()
}  # fmt: skip
"""Methods that name a type, and what stands in for them."""


def call(function: Any, inputs: Any) -> Any:
    """Call with positional (tuple) or keyword (dict) inputs."""
    return function(**inputs) if isinstance(inputs, dict) else function(*inputs)


def pick(returned: Any, inputs: Any, in_place: Sequence[str], function: Any) -> Any:
    """The outputs: what was returned, or the mutated inputs that IN_PLACE names."""
    if not in_place:
        return returned
    named = inputs if isinstance(inputs, dict) else dict(zip(parameter_names(function), inputs, strict=False))
    missing = [name for name in in_place if name not in named]
    if missing:
        raise Refused("rejected", "task", f"IN_PLACE names {missing}; the arguments are {sorted(named)}")
    return {name: named[name] for name in in_place}


def parameter_names(function: Any) -> list[str]:
    """Names of the parameters that take the positional arguments one by one; none where they can't be found out."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        # Built-in functions need not say.
        return []
    single = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [parameter.name for parameter in parameters if parameter.kind in single]


def mapped(tree: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """The same tree with each tensor replaced by what ``change`` makes of it; named tuples become plain ones."""
    if isinstance(tree, torch.Tensor):
        return change(tree)
    if isinstance(tree, list | tuple):
        items = [mapped(item, change) for item in tree]
        return items if isinstance(tree, list) else tuple(items)
    if isinstance(tree, dict):
        return {key: mapped(item, change) for key, item in tree.items()}
    return tree


def is_inexact(tensor: torch.Tensor) -> bool:
    """Whether its elements are floating-point or complex numbers."""
    return tensor.is_floating_point() or tensor.is_complex()


def run(function: Any, inputs: Any, in_place: Sequence[str]) -> Any:
    """The outputs of a function, called without gradients; it may write to ``inputs``."""
    with torch.no_grad():
        return pick(call(function, inputs), inputs, in_place, function)


def draw_upstream(outputs: Any, seed: int) -> list[torch.Tensor | None]:
    """Normally distributed gradients for the floating outputs that carry one, the same for the same seed."""
    generators: dict[torch.device, torch.Generator] = {}

    def draw(output: torch.Tensor) -> torch.Tensor | None:
        if not (is_inexact(output) and output.requires_grad):
            return None
        if output.device not in generators:
            generators[output.device] = torch.Generator(output.device).manual_seed(seed)
        # There are no random numbers of one byte.
        dtype = output.dtype if output.element_size() > 1 else torch.float32
        drawn = torch.randn(output.shape, generator=generators[output.device], dtype=dtype, device=output.device)
        return drawn.to(output.dtype)

    return [draw(output) for output in values.tensors(outputs)]


def gradients(
    function: Any,
    inputs: Any,
    in_place: Sequence[str],
    upstream: Upstream | Callable[[Any], Upstream],
) -> dict[str, Any]:
    """Outputs, and the gradients of the inputs for given gradients of the outputs.

    Args:
        function: the reference or an entry; it may write to ``inputs``.
        inputs: those of its floating tensors that require a gradient get one or, where none does, all of them that are
            not changed in place.
        in_place: names of the arguments that are the outputs.
        upstream: for each output tensor its gradient or None; or a function that makes this list of the outputs.

    Returns:
        ``{"outputs": tree, "gradients": {place: tensor or None}}``. The place is the position of a positional argument
        (``"0"``) or the name of a keyword argument, and goes on inside lists and dicts (``"1[0]"``, ``"1['w']"``): the
        same for every function, whatever it calls its parameters. None: nothing depends on the input.

    Raises:
        Refused: an output with an upstream gradient carries none.
    """
    leaves = _leaves(function, inputs, in_place)
    marked = [tensor for tensor in leaves.values() if not tensor.requires_grad]
    for tensor in marked:
        tensor.requires_grad_(True)
    try:
        with torch.enable_grad():
            outputs = pick(call(function, inputs), inputs, in_place, function)
            given = upstream(outputs) if callable(upstream) else upstream
            found = _backward(values.tensors(outputs), list(leaves.values()), given)
    finally:
        for tensor in marked:
            # What the function changed in place may hang on others by now.
            if tensor.is_leaf:
                tensor.requires_grad_(False)
    detached = mapped(outputs, lambda tensor: tensor.detach())
    return {"outputs": detached, "gradients": dict(zip(leaves, found, strict=True))}


def _leaves(function: Any, inputs: Any, in_place: Sequence[str]) -> dict[str, torch.Tensor]:
    """The tensors whose gradients are asked for, by their place."""
    names = parameter_names(function)
    leaves: dict[str, torch.Tensor] = {}
    for place, name, value in arguments(inputs, names):
        if name not in in_place:
            leaves.update(_floating(value, place))
    asked = {place: tensor for place, tensor in leaves.items() if tensor.requires_grad}
    return asked or leaves


def arguments(inputs: Any, names: Sequence[str]) -> list[tuple[str, str | None, Any]]:
    """Each argument with its place and its name, None where a position has no name."""
    if isinstance(inputs, dict):
        return [(str(name), str(name), value) for name, value in inputs.items()]
    return [(str(i), names[i] if i < len(names) else None, value) for i, value in enumerate(inputs)]


def _floating(value: Any, place: str) -> dict[str, torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return {place: value} if is_inexact(value) else {}
    if isinstance(value, list | tuple):
        pairs = [(f"{place}[{i}]", item) for i, item in enumerate(value)]
    elif isinstance(value, dict):
        pairs = [(f"{place}[{key!r}]", item) for key, item in value.items()]
    else:
        return {}
    return {inner: tensor for name, item in pairs for inner, tensor in _floating(item, name).items()}


def _backward(outputs: list[torch.Tensor], leaves: list[torch.Tensor], upstream: Upstream) -> list[torch.Tensor | None]:
    pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
    for i, (output, gradient) in enumerate(zip(outputs, upstream, strict=False)):
        # Outputs of another form are found when they are compared.
        if gradient is None or output.shape != gradient.shape or output.dtype != gradient.dtype:
            continue
        if not output.requires_grad:
            which = "the output" if len(outputs) == 1 else f"output {i}"
            raise Refused(
                "rejected",
                "run",
                f"{which} does not carry a gradient: wrap the launches in a torch.autograd.Function whose backward "
                "launches the kernels of the gradient",
            )
        pairs.append((output, gradient))
    if not pairs or not leaves:
        return [None] * len(leaves)
    found = torch.autograd.grad(
        [output for output, _ in pairs], leaves, [gradient for _, gradient in pairs], allow_unused=True
    )
    return [None if gradient is None else gradient.detach() for gradient in found]


def exact(
    function: Any, inputs: Any, in_place: Sequence[str], upstream: Upstream | None = None
) -> tuple[Any, str | None]:
    """What a reference returns in double precision; ``inputs`` stay as they are.

    Its floating inputs are converted and each narrower floating type that it names itself, as in
    ``torch.softmax(x.float(), -1).to(x.dtype)``, is taken for float64, complex ones for complex128.

    Args:
        upstream: gradients of the outputs, where gradients are asked for.

    Returns:
        ``(outputs, None)``, or `gradients`' result in their place where ``upstream`` is given; or ``(None, reason)``
        where the reference can't be computed so.
    """
    try:
        with _double_precision():
            wide = mapped_dtypes(mapped(inputs, widened))
            if upstream is None:
                outputs = run(function, wide, in_place)
            else:
                outputs = gradients(function, wide, in_place, [g if g is None else widened(g) for g in upstream])
    except (*REFUSALS, *_triton_errors(), Refused) as error:
        return None, in_words(error, "the reference does not work in float64")
    for tensor in values.tensors(outputs):
        if is_inexact(tensor) and tensor.dtype not in (torch.float64, torch.complex128):
            return None, f"the reference returns {_name(tensor.dtype)} where its inputs are float64"
    return outputs, None


def in_words(error: BaseException, what: str) -> str:
    """A short sentence: what was in the way, by the first line of its message."""
    message = (str(error).strip().splitlines() or [""])[0]
    return f"{what}: {type(error).__name__}: {message}"[:REASON_LIMIT]


def full_precision() -> None:
    """On a GPU, products of float32 matrices are of float32, and half-precision ones are summed up in it."""
    matmul = torch.backends.cuda.matmul
    matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    matmul.allow_fp16_reduced_precision_reduction = False
    matmul.allow_bf16_reduced_precision_reduction = False


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """A copy in float64 or complex128 with the same strides; integers are copied as they are."""
    dtype = _wide(tensor.dtype)
    if dtype is None:
        return values.copy(tensor)
    plain = tensor.detach().resolve_conj().resolve_neg()
    span = values.size_bytes(plain) // plain.element_size()
    flat = plain.as_strided((span,), (1,), plain.storage_offset()).to(dtype, copy=True)
    return flat.as_strided(plain.shape, plain.stride()).requires_grad_(tensor.requires_grad)


def mapped_dtypes(value: Any) -> Any:
    """Each narrower floating dtype in a tree of arguments replaced by the double-precision one."""
    if isinstance(value, torch.dtype):
        return _wide(value) or value
    if isinstance(value, _TENSOR_TYPE):
        return _wide(value.dtype) or value
    if type(value) in (list, tuple):
        return type(value)(mapped_dtypes(item) for item in value)
    if type(value) is dict:
        return {key: mapped_dtypes(item) for key, item in value.items()}
    return value


_TENSOR_TYPE = type(torch.FloatTensor)
"""Of the old names of types, such as torch.FloatTensor."""


def _wide(dtype: torch.dtype) -> torch.dtype | None:
    """The double-precision type in place of a floating one."""
    if dtype.is_complex:
        return torch.complex128
    return torch.float64 if dtype.is_floating_point else None


class _Widening(TorchFunctionMode):
    """Every narrower floating type named in a call of torch's functions is taken for float64."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        function = _CASTS.get(func, func)
        args, named = mapped_dtypes(args), mapped_dtypes(kwargs or {})
        if function is torch.Tensor.view and any(isinstance(item, torch.dtype) for item in (*args, *named.values())):
            raise NotImplementedError("view(dtype) takes bits for another type's")
        if function is torch.Tensor.type:
            args = tuple(_old_name(item) for item in args)
        return function(*args, **named)


def _old_name(name: Any) -> Any:
    """``"torch.cuda.HalfTensor"`` and the like, as `torch.Tensor.type` understands them."""
    return _OLD_NAME.sub("DoubleTensor", name) if isinstance(name, str) else name


@contextlib.contextmanager
def _double_precision() -> Generator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _Widening():
            yield
    finally:
        torch.set_default_dtype(before)


def _triton_errors() -> tuple[type[BaseException], ...]:
    """Triton's own errors, where the task has imported it: a kernel need not be made for float64."""
    errors = sys.modules.get("triton.errors")
    return (errors.TritonError,) if errors is not None else ()


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
