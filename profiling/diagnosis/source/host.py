"""What the Python around a kernel does: the functions that launch it, what they hand over, and what tunes it."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Final, NamedTuple

from .kernel import LiveKernel
from .syntax import HostFunction, KernelFile, KernelFunction, calls, dotted, keyword

CONFIGS_LIMIT: Final = 512
"""`Config` calls of one tuner that are read."""
LAUNCHES_LIMIT: Final = 32
"""Of one kernel in the source that are looked at: each is compared with all calls of its function."""
_OPTIONS: Final = {"num_warps": (1, 4), "num_stages": (2, 3)}
"""Of `triton.Config`: place, and what it is where nobody says it (Triton 3.7.1, `runtime/autotuner.py`)."""
_GUARDS: Final = ("reset_to_zero", "restore_value")
_CASTS: Final = frozenset({"float", "half", "bfloat16", "double"})
_DTYPES: Final = frozenset({"float", "float16", "float32", "float64", "bfloat16", "half", "double"})
_FRESH: Final = frozenset({"empty", "empty_like", "new_empty", "zeros", "zeros_like", "new_zeros"})


@dataclass(frozen=True, slots=True)
class Launch:
    """`kernel[grid](...)` in a function of the host."""

    function: HostFunction
    call: ast.Call
    given: dict[str, ast.expr]
    """What it hands over, by the kernel's parameter."""

    def meant(self, node: ast.expr) -> ast.expr:
        """What a name was given in the function, if only once; the node itself otherwise."""
        found = self.function.assigned(node.id) if isinstance(node, ast.Name) else []
        return found[0] if len(found) == 1 else node

    def variables(self) -> dict[str, str]:
        """Names that it hands over, by parameter."""
        return {parameter: node.id for parameter, node in self.given.items() if isinstance(node, ast.Name)}


@dataclass(frozen=True, slots=True)
class Tuner:
    """`@triton.autotune(...)` of a kernel."""

    call: ast.Call
    key: tuple[str, ...] | None
    """None where it isn't a list of texts."""
    choices: tuple[dict[str, tuple[int, ...]], ...]
    """One for each `Config(...)` in the source: its numbers by name, several where a comprehension makes them."""
    count: int | None
    """Configurations; None where not all of them stand there with numbers."""
    guarded: frozenset[str]
    """Arguments that are reset or restored between runs."""
    hooked: bool
    """Whether a hook, or a list that can't be read, may protect others."""

    @property
    def line(self) -> int:
        return self.call.lineno

    def values(self, name: str) -> list[int]:
        """All that the configurations try for a name."""
        return sorted({value for each in self.choices for value in each.get(name, ())})


def launches(file: KernelFile, kernel: str) -> Iterator[Launch]:
    """Launches of a kernel by its name."""
    function = file.kernels.get(kernel)
    parameters = function.parameters if function is not None else ()
    for host, call in file.launches.get(kernel, [])[:LAUNCHES_LIMIT]:
        yield Launch(host, call, _given(call, parameters))


def _given(call: ast.Call, parameters: tuple[str, ...]) -> dict[str, ast.expr]:
    found: dict[str, ast.expr] = {}
    for parameter, value in zip(parameters, call.args, strict=False):
        if isinstance(value, ast.Starred):
            break
        found[parameter] = value
    return found | {each.arg: each.value for each in call.keywords if each.arg in parameters}


class Output(NamedTuple):
    """A tensor that the host allocates and the kernel stores to."""

    launch: Launch
    parameter: str
    name: str
    """Of the host's variable."""


def outputs(file: KernelFile, kernel: LiveKernel) -> Iterator[Output]:
    """All outputs of a kernel's launches."""
    stored = {access.pointer for access in kernel.accesses if access.kind == "store"}
    for launch in launches(file, kernel.function.node.name):
        for parameter, name in launch.variables().items():
            made = next(iter(launch.function.assigned(name)), None)
            fresh = isinstance(made, ast.Call) and dotted(made.func).rpartition(".")[2] in _FRESH
            if fresh and parameter in stored:
                yield Output(launch, parameter, name)


def shown(file: KernelFile, node: ast.expr | ast.stmt) -> str:
    """A node's text, or what stands of it on its first line."""
    return file.shown(node)


def values(call: ast.Call) -> list[ast.expr]:
    """All arguments."""
    return [*call.args, *(each.value for each in call.keywords)]


def is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def is_cast(node: ast.expr) -> bool:
    """Whether it is `x.float()` or `x.to(torch.bfloat16)` and its like."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    if node.func.attr in _CASTS:
        return not node.args
    to = keyword(node, "dtype", 0)
    return node.func.attr in ("to", "type") and to is not None and _is_dtype(to)


def _is_dtype(node: ast.expr) -> bool:
    root, _, name = dotted(node).rpartition(".")
    return name == "dtype" or (root == "torch" and name in _DTYPES)


def is_first_size(node: ast.expr) -> bool:
    """Whether it is a tensor's first size or count of elements: what differs from call to call, if anything does."""
    match node:
        case ast.Subscript(value=ast.Attribute(value=on, attr="shape"), slice=ast.Constant(value=0)):
            return _is_data(on)
        case ast.Subscript(value=ast.Call(func=ast.Attribute(value=on, attr="size")), slice=ast.Constant(value=0)):
            return _is_data(on)
        case ast.Call(func=ast.Attribute(value=on, attr="size"), args=[ast.Constant(value=0)]):
            return _is_data(on)
        case ast.Call(func=ast.Attribute(value=on, attr="numel"), args=[]):
            return _is_data(on)
        case _:
            return False


def _is_data(node: ast.expr) -> bool:
    """Whether it isn't called a weight, whose sizes stay."""
    name = dotted(node).rpartition(".")[2].lower()
    return "weight" not in name and name not in ("w", "bias")


def tuner(file: KernelFile, function: KernelFunction) -> Tuner | None:
    """A kernel's autotuner."""
    call = next(
        (
            each
            for each in function.node.decorator_list
            if isinstance(each, ast.Call) and dotted(each.func).rpartition(".")[2] == "autotune"
        ),
        None,
    )
    if call is None:
        return None
    key, configs = keyword(call, "key", 1), keyword(call, "configs", 0)
    listed = _resolved(file, configs) if configs is not None else None
    choices, count = _choices(listed) if listed is not None else ((), None)
    guards = [_texts(value) for value in (keyword(call, name) for name in _GUARDS) if value is not None]
    config_calls = [] if listed is None else [each for each in calls(listed) if _is_config(each)]
    hooks = [keyword(each, "pre_hook", 5) for each in config_calls] + [keyword(call, "pre_hook")]
    return Tuner(
        call=call,
        key=_texts(key) if key is not None else None,
        choices=choices,
        count=count,
        guarded=frozenset(name for each in guards for name in each or ()),
        hooked=not config_calls or None in guards or any(each is not None for each in hooks),
    )


def _resolved(file: KernelFile, node: ast.expr) -> ast.expr:
    """A list by its name in the module, or what a function without arguments returns."""
    match node:
        case ast.Name(id=name):
            return file.assigned.get(name, node)
        case ast.Call(func=ast.Name(id=name), args=[], keywords=[]) if name in file.host:
            returned = [
                each.value for each in file.host[name].nodes if isinstance(each, ast.Return) and each.value is not None
            ]
            return returned[0] if len(returned) == 1 else node
        case _:
            return node


def _is_config(call: ast.Call) -> bool:
    return dotted(call.func).rpartition(".")[2] == "Config"


def _choices(listed: ast.expr) -> tuple[tuple[dict[str, tuple[int, ...]], ...], int | None]:
    """What each `Config(...)` tries, and how many there are."""
    bound: dict[int, dict[str, tuple[int, ...]]] = {}
    certain = isinstance(listed, ast.List | ast.Tuple | ast.ListComp)
    for node in ast.walk(listed):
        if isinstance(node, ast.ListComp | ast.GeneratorExp):
            names: dict[str, tuple[int, ...]] = {}
            for generator in node.generators:
                values = _numbers(generator.iter)
                certain &= not generator.ifs and values is not None and isinstance(generator.target, ast.Name)
                if isinstance(generator.target, ast.Name) and values is not None:
                    names[generator.target.id] = values
            bound |= {id(each): names for each in calls(node.elt)}
    found = [each for each in calls(listed) if _is_config(each)][:CONFIGS_LIMIT]
    if isinstance(listed, ast.List | ast.Tuple):
        certain &= len(found) == len(listed.elts)
    read = [_choice(each, bound.get(id(each), {})) for each in found]
    total = sum(prod(len(values) for values in bound.get(id(each), {}).values()) for each in found)
    return tuple(each for each, _ in read), total if certain and all(whole for _, whole in read) else None


def _choice(config: ast.Call, bound: dict[str, tuple[int, ...]]) -> tuple[dict[str, tuple[int, ...]], bool]:
    whole, found = True, dict[str, tuple[int, ...]]()
    given: list[tuple[str, ast.expr]] = []
    match keyword(config, "kwargs", 0):
        case ast.Dict(keys=keys, values=values):
            for name, value in zip(keys, values, strict=True):
                if isinstance(name, ast.Constant) and isinstance(name.value, str):
                    given.append((name.value, value))
                else:
                    whole = False
        case _:
            whole = False
    for option, (place, default) in _OPTIONS.items():
        value = keyword(config, option, place)
        if value is None:
            found[option] = (default,)
        else:
            given.append((option, value))
    for name, value in given:
        match value:
            case ast.Constant(value=int(number)):
                found[name] = (number,)
            case ast.Name(id=variable) if variable in bound:
                found[name] = bound[variable]
            case _:
                found[name] = ()
                whole = False
    return found, whole


def _numbers(node: ast.expr) -> tuple[int, ...] | None:
    """Integers of a list of them."""
    if not isinstance(node, ast.List | ast.Tuple):
        return None
    found = [each.value for each in node.elts if isinstance(each, ast.Constant) and isinstance(each.value, int)]
    return tuple(found) if len(found) == len(node.elts) and found else None


def _texts(node: ast.expr) -> tuple[str, ...] | None:
    """Texts of a list of them."""
    if not isinstance(node, ast.List | ast.Tuple):
        return None
    found = [each.value for each in node.elts if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return tuple(found) if len(found) == len(node.elts) else None
