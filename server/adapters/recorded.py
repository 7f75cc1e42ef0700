"""A task out of a test: the test is run with the kernels replaced by recorders, which is how inputs are made."""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from .entries import SEED, Entry, entry_at
from .facts import Facts, defined_by, dotted_name, facts_of, is_main, names_in, needed, root_name, segments
from .model import Adapted, Form

CASES_LIMIT: Final = 12
"""Of the distinct calls that a test makes."""
MODULE: Final = re.compile(r"(torch\.)?nn\.(?!Parameter$)[A-Z]\w*")
"""What makes a module of torch."""
RUNTIME: Final = Path(__file__).parent / "templates" / "recorded.py.txt"
TWO_SIZES: Final = "two sizes of the performance file"
FORM_OF_TEST: Final = "defaults by dtype: the test states no tolerance that could be read"


@dataclass(frozen=True, slots=True)
class Tested:
    """A kernel file and a test that calls it."""

    form: Form
    path: Path
    kernel: str
    test: str
    """Without what imports the kernel file."""
    names: dict[str, str]
    """By a name of the test, that of the kernel file."""
    speed: str = ""
    """A performance file without what imports the kernel file, or nothing."""
    speed_names: dict[str, str] = field(default_factory=dict[str, str])
    assumptions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reading:
    """Which inputs a task has of those that a test and a performance file make."""

    with_speed: bool
    distinct: bool = False
    """Whether integers are drawn without repetition where that is possible."""
    other_sizes: bool = False
    """Whether the sizes of the performance file are others than the two likeliest."""


def adaptations(tested: Tested) -> Iterator[Adapted]:
    """Tasks for the functions that the test calls: the likeliest entry first, with the performance file first."""
    kernel_tree, test = ast.parse(tested.kernel), ast.parse(tested.test)
    facts = facts_of(kernel_tree)
    speed = ast.parse(tested.speed)
    stand_ins = _stand_ins(facts, tested)
    timed = _called_paths(speed, stand_ins, facts)
    called = _called_paths(test, stand_ins, facts)
    order = sorted(called | timed, key=lambda path: (-(timed[path] > 0), -called[path], [*called, *timed].index(path)))
    for path in order:
        entry = entry_at(
            path, facts, _given(path, [test, speed], stand_ins), makes=_makes(facts, stand_ins, test, speed)
        )
        if entry is None:
            continue
        others = [each for each in order if each != path]
        given = (tested, kernel_tree, facts, entry, stand_ins, others)
        if timed[path]:
            yield _task(*given, Reading(with_speed=True))
            if "randint" in tested.speed:
                yield _task(*given, Reading(with_speed=True, distinct=True))
            yield _task(*given, Reading(with_speed=True, other_sizes=True))
        if called[path]:
            yield _task(*given, Reading(with_speed=False))


def _stand_ins(facts: Facts, tested: Tested) -> dict[str, str]:
    """By a name of the test, the name of the kernel file that a recorder stands for."""
    own = {name for node in ast.parse(tested.test).body for name in defined_by(node)}
    launching = facts.launching | facts.kernels | facts.classes.keys()
    pairs = {**tested.names, **tested.speed_names}
    return {name: of for name, of in pairs.items() if of in launching and name not in own}


def _called_paths(tree: ast.Module, stand_ins: dict[str, str], facts: Facts) -> Counter[str]:
    """How often each thing that launches is called in a source, by its path."""
    objects = _objects(tree, stand_ins, facts)
    found: Counter[str] = Counter()
    for call in [node for node in ast.walk(tree) if isinstance(node, ast.Call)]:
        path = _path(call.func, {**stand_ins, **objects}, facts)
        if path is not None:
            found[path] += 1
    return found


def _objects(tree: ast.Module, stand_ins: dict[str, str], facts: Facts) -> dict[str, str]:
    """Names that are assigned instances of the kernel file's classes."""
    return {
        name: f"{stand_ins[root]}()"
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        for name in [target.id for target in node.targets if isinstance(target, ast.Name)]
        for root in [root_name(node.value.func)]
        if root is not None and stand_ins.get(root) in facts.classes and isinstance(_inner(node.value), ast.Name)
    }


def _inner(call: ast.Call) -> ast.expr:
    """What is called at first in a chain such as ``Norm(w).cuda()``."""
    function = call.func
    while isinstance(function, ast.Attribute) and isinstance(function.value, ast.Call):
        function = function.value.func
    return function


def _path(function: ast.expr, roots: dict[str, str], facts: Facts) -> str | None:
    """Where a call leads: ``f``, ``Cls.apply``, ``kernel[]``, ``Cls()`` for an instance, ``Cls().method``."""
    match function:
        case ast.Name(id=name) if name in roots:
            # An instance is made of a class by calling it, which launches nothing.
            return None if roots[name] in facts.classes or roots[name] in facts.kernels else roots[name]
        case ast.Subscript(value=ast.Name(id=name)) if roots.get(name) in facts.kernels:
            return f"{roots[name]}[]"
        case ast.Call(func=ast.Name(id=name)) if roots.get(name) in facts.classes:
            return f"{roots[name]}()"
        case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name in roots and _has(
            roots[name], attribute, facts
        ):
            return f"{roots[name]}.{attribute}"
        case _:
            return None


def _has(path: str, attribute: str, facts: Facts) -> bool:
    node = facts.classes.get(path.removesuffix("()"))
    if node is None:
        return False
    names = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
    return attribute in names or (attribute == "apply" and "forward" in names)


def _given(path: str, trees: list[ast.Module], stand_ins: dict[str, str]) -> list[ast.Call]:
    """The calls of an entry, to see which of its parameters are given."""
    name = path.partition(".")[0].removesuffix("[]").removesuffix("()")
    calls = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [call for call in calls if stand_ins.get(root_name(call.func) or "") == name]


def _makes(facts: Facts, stand_ins: dict[str, str], *trees: ast.Module) -> bool:
    """Whether a test makes instances of the kernel file's classes, or modules of torch."""
    return any(
        isinstance(node, ast.Call)
        and (
            (isinstance(node.func, ast.Name) and stand_ins.get(node.func.id) in facts.classes)
            or MODULE.fullmatch(dotted_name(node.func) or "") is not None
        )
        for tree in trees
        for node in ast.walk(tree)
    )


def _task(
    tested: Tested,
    kernel: ast.Module,
    facts: Facts,
    entry: Entry,
    stand_ins: dict[str, str],
    others: list[str],
    reading: Reading,
) -> Adapted:
    with_speed = reading.with_speed
    wanted = names_in(ast.parse(tested.test)) | (names_in(ast.parse(tested.speed)) if with_speed else set[str]())
    setup = segments(tested.kernel, needed(kernel, wanted, stand_ins))
    speed = tested.speed if with_speed else ""
    classes = sorted(facts.classes.keys() & set(stand_ins.values()))
    constants = [
        ("ENTRY", repr(entry.name)),
        ("TARGET", repr(entry.path)),
        ("PARAMETERS", repr(tuple(entry.parameters))),
        ("LEADING", repr(entry.leading)),
        ("SEED", repr(SEED if SEED in entry.parameters else "")),
        ("WRITTEN", repr(tuple(entry.written))),
        ("AVOIDED", repr(tuple(entry.avoided))),
        ("FLAGS", repr(entry.flags)),
        ("NAMES", repr(stand_ins)),
        ("CLASSES", repr(tuple(classes))),
        ("LIMIT", repr(CASES_LIMIT)),
        ("DISTINCT", repr(reading.distinct)),
        ("OTHER_SIZES", repr(reading.other_sizes)),
        ("LINES", repr(_keys_by_line(ast.parse(tested.test), entry, stand_ins, facts))),
    ]
    imports = "contextlib\nimport dis\nimport inspect\nimport io\nimport random\nimport re\nimport sys\nimport types"
    task = (
        f"import {imports}\n\nimport torch\nfrom torch.overrides import TorchFunctionMode\n\n"
        + "\n".join(f"{name} = {value}" for name, value in constants)
        + f"\n\n# What the test needs of the kernel file beside what launches.\nSETUP = {quoted(setup)}\n"
        + f"\n# The test, as it was.\nTEST = {quoted(tested.test)}\n"
        + f"\n# The performance file, if there is one.\nSPEED = {quoted(speed)}\n\n"
        + RUNTIME.read_text(encoding="utf-8")
    )
    lines = tested.kernel.rstrip().splitlines(keepends=True)
    at, added = entry.added
    if added:
        lines[at - 1] = f"{lines[at - 1].rstrip()}\n"
        lines.insert(at, added)
    adapted = Adapted(
        tested.form,
        tested.path,
        entry.name,
        f"{''.join(lines).rstrip()}\n{entry.wrapper}",
        task,
        tested.assumptions,
        is_spare=reading.distinct or reading.other_sizes,
    )
    return adapted.assuming(*entry.assumptions, *_words(tested, entry, others, reading))


def _words(tested: Tested, entry: Entry, others: list[str], reading: Reading) -> Iterator[str]:
    yield "one case a distinct call of the test, by the form of its arguments; calls with an empty tensor are left out"
    if others:
        yield f"the test also calls {', '.join(others)}: not judged here; what they return is not known to the task"
    if reading.with_speed:
        which = "other sizes of the performance file than are usual" if reading.other_sizes else TWO_SIZES
        yield (
            f"timed on {which} (at most 128 MiB of inputs and 1e12 operations by its own count); the test's calls are "
            "checked before a candidate is accepted, and the first one is the small case"
        )
    else:
        yield "timed on the test's own sizes, which may be so small that a launch takes longer than the kernel"
    if reading.distinct:
        yield (
            "integers are drawn without repetition wherever their range has as many: of what is written to one place "
            "twice, chance would decide what stays"
        )
    yield "seeds that the test sets are left out, so that each seed of the harness gives other inputs"
    yield "memory that the test leaves uninitialized holds zeros; gradients are not judged"
    yield "the baseline is the reference; tolerances are the " + FORM_OF_TEST


def _keys_by_line(tree: ast.Module, entry: Entry, stand_ins: dict[str, str], facts: Facts) -> dict[int, str]:
    """By the line of a call, the key under which the test keeps its result."""
    keys: list[tuple[int, str, set[str], ast.AST]] = []
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Subscript(slice=ast.Constant(value=str(key)))], value=value):
                keys.append((node.lineno, key, names_in(value), value))
            case ast.Dict():
                keys += [
                    (key.lineno, key.value, names_in(value), value)
                    for key, value in zip(node.keys, node.values, strict=True)
                    if isinstance(key, ast.Constant) and isinstance(key.value, str)
                ]
            case _:
                pass
    keys.sort(key=lambda each: each[0])
    roots = {**stand_ins, **_objects(tree, stand_ins, facts)}
    ours = [
        each for each in ast.walk(tree) if isinstance(each, ast.Call) and _path(each.func, roots, facts) == entry.path
    ]
    found: dict[int, str] = {}
    for statement in [node for node in ast.walk(tree) if isinstance(node, ast.Assign | ast.Expr)]:
        assigned = {
            each.id for each in ast.walk(statement) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
        }
        for call in [node for node in ast.walk(statement) if isinstance(node, ast.Call)]:
            if call not in ours:
                continue
            following = min([each.lineno for each in ours if each.lineno > call.lineno], default=sys.maxsize)
            inside = [key for _, key, _, value in keys if any(node is call for node in ast.walk(value))]
            later = [key for line, key, names, _ in keys if line > call.lineno and names & assigned]
            later += [key for line, key, _, _ in keys if call.lineno < line <= following]
            for line in range(call.lineno, (call.end_lineno or call.lineno) + 1):
                if inside or later:
                    found.setdefault(line, (inside or later)[0])
    return found


def quoted(text: str) -> str:
    """A text as a Python literal that can be read, lines as they are wherever that is possible."""
    for quotes in ("'''", '"""'):
        if quotes not in text and not text.endswith(("\\", quotes[0])):
            return f"r{quotes}{text}{quotes}"
    return repr(text)


def without_imports(text: str, is_own: AbstractSet[str], *, scripts: bool) -> tuple[str, dict[str, str]]:
    """A test without what imports its kernels, and what was imported: its names by those used in the test.

    Args:
        text: the test's.
        is_own: modules that are the kernel file, by their full or first name.
        scripts: whether to leave out, too, what runs only as a script, and changes of the import path.
    """
    lines = text.splitlines(keepends=True)
    names: dict[str, str] = {}
    gone: list[ast.stmt] = []
    for node in [each for each in ast.walk(ast.parse(text)) if isinstance(each, ast.stmt)]:
        if isinstance(node, ast.ImportFrom) and {node.module or "", (node.module or "").partition(".")[0]} & is_own:
            names |= {alias.asname or alias.name: alias.name for alias in node.names}
            gone.append(node)
        elif _imports(node, is_own) or (scripts and _is_for_scripts(node)):
            gone.append(node)
    for node in gone:
        first = node.lineno - 1
        indent = lines[first][: len(lines[first]) - len(lines[first].lstrip())]
        for at in range(first, node.end_lineno or node.lineno):
            lines[at] = "\n"
        lines[first] = f"{indent}pass\n"
    return "".join(lines), names


def _imports(node: ast.AST, modules: AbstractSet[str]) -> bool:
    return isinstance(node, ast.Import) and any(alias.name.partition(".")[0] in modules for alias in node.names)


def _is_for_scripts(node: ast.AST) -> bool:
    if isinstance(node, ast.If):
        return is_main(node.test)
    call = node.value if isinstance(node, ast.Expr) else None
    return isinstance(call, ast.Call) and (dotted_name(call.func) or "").startswith("sys.path")
