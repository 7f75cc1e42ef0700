"""The entry of an adapted kernel file: the function that is called, or a wrapper around what is called instead."""

import ast
from dataclasses import dataclass, replace
from typing import Final

from .facts import Facts, Function, parameters_of
from .random_numbers import draws
from .written import Writes, kernel_writes, unreturned, writes_of

SWITCHES: Final = frozenset({"inplace", "in_place", "inplace_backward", "overwrite"})
"""Parameters that say whether an argument is written to."""
MADE: Final = """
import types


# Arguments that are no data come as a description, {"made": class, "args": ..., "kwargs": ...}.
def _real(value):
    if isinstance(value, dict):
        if set(value) == {"made", "args", "kwargs"}:
            made = types.SimpleNamespace if value["made"] == "SimpleNamespace" else globals()[value["made"]]
            return made(*_real(value["args"]), **_real(value["kwargs"]))
        return {key: _real(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_real(item) for item in value)
    return value

"""


SEED: Final = "harness_seed"
"""Parameter of an entry that was appended, where the function that it calls draws its inputs itself."""


@dataclass(frozen=True, slots=True)
class Entry:
    """How a kernel file is called."""

    path: str
    """What the test calls: ``f``, ``Cls.apply``, ``kernel[]``, ``Cls()`` for an instance, ``Cls().method``."""
    name: str
    """Of the host function."""
    parameters: list[str]
    leading: int
    """How many of them come before the arguments of the call."""
    written: list[str]
    """Arguments that are the outputs."""
    avoided: list[str]
    """Arguments that are written to beside what is returned: calls without them are preferred."""
    flags: dict[str, bool]
    """Switches that decide whether something is written to: calls with another value are left out."""
    wrapper: str
    """To be appended to the kernel file; empty where the function is there."""
    assumptions: tuple[str, ...]
    added: tuple[int, str] = (0, "")
    """A line to be added to the kernel file, after the line of that number; empty where there is none."""


def entry_at(path: str, facts: Facts, calls: list[ast.Call], *, makes: bool) -> Entry | None:
    """The entry for what a test calls; None where the source does not show what that takes.

    Args:
        path: see `Entry.path`.
        facts: of the kernel file.
        calls: those of the test.
        makes: whether arguments may be instances of the kernel file's classes.
    """
    if path.endswith("[]"):
        return _launched(path, facts)
    owner, _, method = path.partition(".")
    if owner.endswith("()"):
        return _instance(path, owner.removesuffix("()"), method or "forward", facts)
    dotted = facts.aliases.get(path, path) if not method else path
    owner, _, method = dotted.partition(".")
    if method:
        function = _method(facts, owner, "forward" if method == "apply" else method)
        if function is None:
            return None
        name = f"{owner}_{method}".lower().strip("_")
        return _wrapped(path, dotted, name, function, facts, drop=int(method == "apply"), makes=makes)
    function = facts.functions.get(owner)
    if function is None:
        return None
    found = _plain(path, owner, function, facts, calls, makes=makes)
    # What stands on one line with its head has no end of its own.
    results = unreturned(function, facts) if function.body[0].lineno > function.lineno else []
    if found is None or found.written or found.avoided or not results:
        return found
    said = f"{owner} returns nothing: `return {', '.join(results)}`, what its kernels write, was added at its end"
    line = f"{' ' * function.body[0].col_offset}return {', '.join(results)}\n"
    return replace(found, added=(function.end_lineno or 0, line), assumptions=(*found.assumptions, said))


def _plain(
    path: str, owner: str, function: Function, facts: Facts, calls: list[ast.Call], *, makes: bool
) -> Entry | None:
    seeded = _seeded(path, owner, function, facts, makes=makes) if draws(function, facts) else None
    if seeded is not None:
        return seeded
    if makes or function.args.posonlyargs:
        # A task hands arguments over by place or by name, never some of both.
        return _wrapped(path, owner, f"call_{owner}".replace("__", "_"), function, facts, drop=0, makes=makes)
    flags = _flags(function, calls)
    writes = writes_of(function, facts, _passed(function, calls), fixed=flags)
    words = [*_words(owner, writes), *[f"only calls with {name}={value} are cases" for name, value in flags.items()]]
    return Entry(path, owner, _positional(function), 0, *_outputs(writes), flags, "", tuple(words))


def _flags(function: Function, calls: list[ast.Call]) -> dict[str, bool]:
    """Switches such as ``inplace``: the value that they have by default, or that all calls give."""
    spec = function.args
    positional = [*spec.posonlyargs, *spec.args]
    defaults = dict(zip([each.arg for each in positional[::-1]], spec.defaults[::-1], strict=False))
    defaults |= {each.arg: value for each, value in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if value}
    found: dict[str, bool] = {}
    for name in SWITCHES & defaults.keys():
        default = defaults[name]
        if isinstance(default, ast.Constant) and isinstance(default.value, bool):
            given = [[each.value for each in call.keywords if each.arg == name] for call in calls]
            other = [bool(value) and ast.unparse(value[0]) == str(not default.value) for value in given]
            found[name] = default.value != (bool(other) and all(other))
    return found


def _passed(function: Function, calls: list[ast.Call]) -> set[str]:
    names = parameters_of(function)
    given = {name for call in calls for name, _ in zip(names, call.args, strict=False)}
    if any(isinstance(arg, ast.Starred) for call in calls for arg in call.args):
        given |= set(names)
    if any(each.arg is None for call in calls for each in call.keywords):
        given |= set(names)
    return given | {each.arg for call in calls for each in call.keywords if each.arg is not None}


def _positional(function: Function) -> list[str]:
    """Parameters by their places; none where a call's extra arguments have no name."""
    return [] if function.args.vararg or function.args.posonlyargs else parameters_of(function)


def _outputs(writes: Writes) -> tuple[list[str], list[str]]:
    """Those that are the outputs, and those that are written to beside what is returned."""
    return ([], sorted(writes.written)) if writes.fresh else (sorted(writes.written), [])


def _words(name: str, writes: Writes) -> list[str]:
    if writes.written and writes.fresh:
        return [
            f"{name} returns its outputs, and by its source also writes to {', '.join(sorted(writes.written))}: calls "
            "that hand these over are left out; if there are no others, they are the outputs instead"
        ]
    if writes.written:
        return [
            f"the outputs are the arguments that {name} writes to, by its source: {', '.join(sorted(writes.written))}"
        ]
    return []


def _method(facts: Facts, owner: str, name: str) -> ast.FunctionDef | None:
    node = facts.classes.get(owner)
    found = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == name] if node else []
    return found[0] if found else None


def _wrapped(
    path: str, called: str, name: str, function: Function, facts: Facts, *, drop: int, makes: bool
) -> Entry | None:
    """A function of the same parameters that calls a static method, or a function whose arguments have to be made."""
    spec = function.args
    if spec.vararg or spec.kwarg:
        return None
    kept = ast.arguments(
        posonlyargs=[],
        args=[ast.arg(each.arg) for each in [*spec.posonlyargs, *spec.args][drop:]],
        kwonlyargs=[ast.arg(each.arg) for each in spec.kwonlyargs],
        kw_defaults=spec.kw_defaults,
        defaults=spec.defaults,
    )
    parameters = [each.arg for each in [*kept.args, *kept.kwonlyargs]]
    real = "_real({})" if makes else "{}"
    passed = [real.format(each.arg) for each in kept.args]
    passed += [f"{each.arg}={real.format(each.arg)}" for each in kept.kwonlyargs]
    wrapper = f"\n\n{MADE if makes else ''}def {name}({ast.unparse(kept)}):\n    return {called}({', '.join(passed)})\n"
    writes = writes_of(function, facts)
    if drop:
        # What is kept for the backward pass is no output.
        writes.written -= {parameters_of(function)[0]}
    words = (f"the entry {name} was appended to the kernel file: it calls {called}", *_words(called, writes))
    return Entry(path, name, parameters, 0, *_outputs(writes), {}, wrapper, words)


def _seeded(path: str, owner: str, function: Function, facts: Facts, *, makes: bool) -> Entry | None:
    """A function that draws random numbers at every call: these are drawn from a seed that the task hands over."""
    name = f"seeded_{owner}".replace("__", "_")
    found = _wrapped(path, owner, name, function, facts, drop=0, makes=makes)
    if found is None:
        return None
    head = f"def {name}("
    wrapper = found.wrapper.replace(head, f"{head}{SEED}, " if found.parameters else f"{head}{SEED}")
    before, returns, after = wrapper.rpartition("    return ")
    wrapper = f"{before}    torch.manual_seed({SEED})\n{returns}{after}"
    said = f"{owner} draws random numbers itself: {name} seeds them by {SEED}, which the task hands over"
    return replace(
        found,
        parameters=[SEED, *found.parameters],
        leading=1,
        wrapper=f"\n\nimport torch\n{wrapper}",
        assumptions=(*found.assumptions, said),
    )


def _launched(path: str, facts: Facts) -> Entry | None:
    kernel = path.removesuffix("[]")
    function = facts.functions.get(kernel)
    if function is None:
        return None
    name = f"launch_{kernel}".replace("__", "_")
    wrapper = f"\n\ndef {name}(grid, **arguments):\n    {kernel}[grid](**arguments)\n"
    words = (
        f"the entry {name} was appended to the kernel file: it launches {kernel} on the grid that the test gives, a "
        "function of it called beforehand",
    )
    return Entry(
        path,
        name,
        ["grid", *parameters_of(function)],
        1,
        sorted(kernel_writes(function, facts)),
        [],
        {},
        wrapper,
        words,
    )


def _instance(path: str, owner: str, method: str, facts: Facts) -> Entry | None:
    function = _method(facts, owner, method) or (_method(facts, owner, "__call__") if method == "forward" else None)
    if function is None or function.args.vararg:
        return None
    parameters = parameters_of(function)[1:]
    name = f"call_{owner}".lower()
    call = "" if method == "forward" else f".{method}"
    wrapper = (
        f"\n\n{MADE}def {name}(made, *args, **kwargs):\n    instance = _real(made)\n"
        '    if hasattr(instance, "cuda"):\n        instance = instance.cuda()\n'
        f"    return instance{call}(*_real(args), **_real(kwargs))\n"
    )
    words = (
        f"the entry {name} was appended to the kernel file: it makes an instance of {owner} at each call and calls it; "
        "weights that the instance draws itself are those of the harness's seed",
    )
    return Entry(path, name, ["made", *parameters], 1, [], [], {}, wrapper, words)
