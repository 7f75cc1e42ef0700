"""An autotuner's list of configurations, as far as it can be written anew."""

import ast
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from ..diagnosis.source import host
from ..diagnosis.source.syntax import KernelFile, KernelFunction, dotted, keyword
from .origin import Slot, slot_of

OPTION_NAMES: Final = ("num_warps", "num_stages")
HOOK_PLACE: Final = 5
"""Of `pre_hook` among the arguments of `triton.Config` (Triton 3.7.1, `runtime/autotuner.py`)."""


class Listing(NamedTuple):
    """An autotuner's list of configurations."""

    kernel: str
    slot: Slot
    names: tuple[str, ...]
    """Of its configurations' own parameters."""
    configurations: tuple[dict[str, int | bool], ...]
    """Those that could be read, options included."""


def listed(
    file: KernelFile, function: KernelFunction, tuner: host.Tuner, known: Mapping[str, int]
) -> tuple[Listing | str, set[str]]:
    """An autotuner's list, or why it is left alone; and the names that it sets.

    Args:
        file: the kernel file.
        function: the kernel.
        tuner: its autotuner.
        known: options and constants of the kernel, as it is launched: of a list that functions make, the
            configuration that it comes to.
    """
    name, configs = function.node.name, keyword(tuner.call, "configs", 0)
    own = {key for each in tuner.choices for key in each if key not in OPTION_NAMES}
    if configs is None:
        return "it has no list", own
    # Of values that a comprehension makes only the first of each is a configuration known to be meant.
    read = [{key: value[0] for key, value in each.items()} for each in tuner.choices if all(map(len, each.values()))]
    if not tuner.hooked and read and len(read) == len(tuner.choices):
        if any(set(each) != set(read[0]) for each in read):
            return "its configurations set different parameters", own
        names = [key for key in read[0] if key in own]
        options = [key for key in OPTION_NAMES if key in read[0]]
        ordered = [{key: each[key] for key in (*names, *options)} for each in read]
        return Listing(name, slot_of(configs), tuple(names), tuple(ordered)), own
    made = list(_made(file, configs))
    own |= {key for each in made for key in _keys(each) or ()}
    if not made or any(keyword(each, "pre_hook", HOOK_PLACE) is not None or _keys(each) is None for each in made):
        return "its list has hooks, or can't be read", own
    # Others are options of a backend.
    names = [parameter for parameter in function.parameters if parameter in own]
    if not {*names, *OPTION_NAMES} <= known.keys():
        return "its list can't be read, and not all that it sets is known", own
    return Listing(name, slot_of(configs), tuple(names), ({key: known[key] for key in (*names, *OPTION_NAMES)},)), own


def _made(file: KernelFile, node: ast.AST) -> Iterator[ast.Call]:
    """All `Config(...)` that an expression can come to, through names of the module and functions of the file."""
    waiting, seen = [node], set[str]()
    while waiting:
        for each in ast.walk(waiting.pop()):
            match each:
                case ast.Call(func=called) if dotted(called).rpartition(".")[2] == "Config":
                    yield each
                case ast.Name(id=name) if name not in seen:
                    seen.add(name)
                    waiting += [file.host[name].node] if name in file.host else []
                    waiting += [file.assigned[name]] if name in file.assigned else []
                case _:
                    pass


def _keys(config: ast.Call) -> list[str] | None:
    """What a configuration sets; None where that can't be read."""
    given = keyword(config, "kwargs", 0)
    if not isinstance(given, ast.Dict):
        return None
    keys = [each.value for each in given.keys if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return keys if len(keys) == len(given.keys) else None
