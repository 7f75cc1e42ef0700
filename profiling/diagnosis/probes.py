"""Variants of a kernel file, each without one kind of work: what they save tells where the time goes.

The results of a variant are wrong by design. It is timed beside the original and never compared with a reference or
kept. Loads and stores are switched off by a mask that is false in every program and that no compiler knows to be, so
that registers, layouts and pipelines stay as they are; `no_loads` takes the instructions away as well.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, assert_never

from .edits import Edit, replaced, with_argument
from .probe_code import HEAD, IDLE_LOAD, MATH, STORE, VALUE_LOAD
from .probe_names import Names
from .source.kernel import NODES_LIMIT
from .source.syntax import KernelFile, calls, dotted, keyword, parse

ProbeName = Literal["no_loads", "idle_loads", "no_stores", "no_math", "half_trips", "neither"]
DEFAULT: Final[tuple[ProbeName, ...]] = ("idle_loads", "no_stores", "no_math", "half_trips", "neither")
"""What tells most; `no_loads` instead of `idle_loads` takes the instructions away as well, and pipelines with them."""
EDITS_LIMIT: Final = 200
"""Of a variant; ours have some ten."""
SHOWN: Final = 6
"""Of what stays, at most."""
NAMES_CHARACTERS: Final = 100
PREFIXES: Final = ("_probe_", *(f"_probe{number}_" for number in range(2, 10)))
_NEWLINE: Final = re.compile(rb"(?<=\n)|(?<=\r)(?!\n)")

_REMOVES: Final[dict[ProbeName, str]] = {
    "no_loads": "loads: a value made from its address takes each one's place",
    "idle_loads": "what loads fetch: each is still issued, under a mask that is always false, and gives `other` or 0",
    "no_stores": "what stores and atomics without a result write: each is issued under a mask that is always false",
    "no_math": "tensor-core products, each in a branch that no program takes, and functions such as exp and sqrt",
    "half_trips": "half of the iterations of each outermost loop that loads, and all that they do",
    "neither": "what loads fetch and the math of no_math, both at once",
}
_ADDS: Final[dict[ProbeName, str]] = {
    "no_loads": "some integer instructions an element; operands of tl.dot are no longer copied ahead of their use",
    "idle_loads": "one comparison a program, a mask where there was none; products of zeros, which draw less power",
    "no_stores": "one comparison a program, and a mask where there was none",
    "no_math": "one comparison and a branch for each tl.dot",
    "half_trips": "nothing; of n iterations n // 2 are left out, so at most half",
    "neither": "what idle_loads and no_math add",
}
_INTEGERS: Final = "loads of integers (but of tiles of 8 bits), which may be addresses, bounds or conditions"
_MATH: Final = frozenset({
    "exp", "exp2", "exp10", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan",
    "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "sqrt", "sqrt_rn", "rsqrt", "rsqrt_rn", "cbrt", "rcbrt", "erf",
    "erfc", "erfinv", "lgamma", "tgamma", "sigmoid", "fast_expf", "fast_exp10f", "fast_logf", "fast_log2f",
    "fast_log10f", "fast_sinf", "fast_cosf", "fast_tanf", "fast_tanhf",
})  # fmt: skip
_ATOMICS: Final = frozenset(f"atomic_{name}" for name in ("add", "max", "min", "and", "or", "xor", "xchg"))
_OPAQUE: Final = frozenset({"inline_asm_elementwise", "extern_elementwise"})
_MEMBERS: Final = frozenset({"load", "store", "gather", "scatter", "dot", "exp", "exp2", "log", "sqrt", "sin", "cos"})
"""Also methods of tensors and descriptors."""


@dataclass(frozen=True, slots=True)
class ProbeVariant:
    """A kernel file without one kind of work."""

    name: ProbeName
    text: str
    removes: str
    adds: str
    """What the variant does that the original doesn't, so that less is saved than was removed."""
    lines: tuple[int, ...]
    """That were changed; they have the same numbers in both files."""
    left: tuple[str, ...]
    """What of this kind stays."""


@dataclass(frozen=True, slots=True)
class Unmade:
    """A variant that can't be made, or would say nothing."""

    name: ProbeName
    reason: str


def variant(text: str, name: ProbeName, launched: Mapping[str, int] | None = None) -> ProbeVariant | Unmade:
    """The file without one kind of work.

    Args:
        text: the kernel file.
        name: what to take away.
        launched: names of the kernels that are launched, each with its num_stages, so that loads stay as far ahead of
            their use as they are; kernels that host code names, if None.
    """
    file = parse(text)
    if file is None:
        return Unmade(name, "the file can't be parsed, or is too long")
    prefix = next((each for each in PREFIXES if each not in text), None)
    if prefix is None:
        return Unmade(name, "the file uses every prefix that a probe could")
    try:
        return _Maker(file, name, prefix).made(launched)
    except RecursionError:
        return Unmade(name, "the file is nested too deeply")


class _Maker:
    def __init__(self, file: KernelFile, name: ProbeName, prefix: str) -> None:
        self.file = file
        self.name: ProbeName = name
        self.prefix = prefix
        self.names = Names(file.text)
        self.lines = _NEWLINE.split(file.text.encode())
        self.edits: list[Edit] = []
        self.left: list[str] = []
        self.taken: set[Literal["load", "store", "math"]] = set()

    def made(self, launched: Mapping[str, int] | None) -> ProbeVariant | Unmade:
        roots = self.names.launched if launched is None else [each for each in self.names.kernels if each in launched]
        if not roots:
            return Unmade(self.name, "no kernel of this file is launched")
        functions = self.names.reached(roots)
        if sum(1 for function in functions for _ in ast.walk(function)) > NODES_LIMIT:
            return Unmade(self.name, "the kernels are too long")
        if self.name in ("no_stores", "half_trips") and (line := self._waits(functions)) is not None:
            return Unmade(
                self.name, f"line {line} waits for what another program writes: a variant might never come to its end"
            )
        if self.name == "half_trips":
            for function in (each for root in roots for each in self.names.kernels[root]):
                self._halve(function, functions)
        else:
            for function in functions:
                self._take(function)
                if self.edits and self.name in ("no_math", "neither") and launched:
                    self._keep_ahead(function, max(launched.values()))
        edits = sorted(set(self.edits))
        if not edits:
            stays = f": it stays with {self.left[0]}" if self.left else ""
            return Unmade(self.name, f"nothing to take away in {', '.join(roots[:SHOWN])[:NAMES_CHARACTERS]}{stays}")
        if self.name == "neither" and len(self.taken) < 2:
            return Unmade(self.name, "there are only loads or only math to take away: another probe does the same")
        if len(edits) > EDITS_LIMIT:
            return Unmade(self.name, f"{len(edits)} places to edit; {EDITS_LIMIT} are the most")
        text = self._edited(edits)
        if text is None:
            return Unmade(self.name, "the edits leave what is no Python")
        if self.name in ("no_loads", "idle_loads", "neither"):
            self.left.append(_INTEGERS)
        lines = tuple(sorted({edit.line for edit in edits}))
        left = tuple(dict.fromkeys(self.left))
        left = left if len(left) <= SHOWN else (*left[:SHOWN], f"and {len(left) - SHOWN} more")
        adds = _ADDS[self.name]
        if not launched and any(edit.text == f"{self.prefix}dot" for edit in edits):
            adds += "; loads that were copied ahead for a product no longer are"
        return ProbeVariant(self.name, text, _REMOVES[self.name], adds, lines, left)

    # Where something is taken away

    def _take(self, function: ast.FunctionDef) -> None:
        """Edits of one function: calls get another name, arguments a condition more."""
        alone = {id(node.value) for node in ast.walk(function) if isinstance(node, ast.Expr)}
        for call in (each for statement in function.body for each in calls(statement)):
            name = self.names.language(call)
            for wanted in self._wanted():
                before = len(self.edits)
                match wanted:
                    case "load":
                        self._load(call, name)
                    case "store":
                        self._store(call, name, alone=id(call) in alone)
                    case "math":
                        self._math(call, name)
                    case _:
                        assert_never(wanted)
                if len(self.edits) > before:
                    self.taken.add(wanted)
            if not name:
                self._foreign(call)

    def _wanted(self) -> tuple[Literal["load", "store", "math"], ...]:
        match self.name:
            case "no_loads" | "idle_loads":
                return ("load",)
            case "no_stores":
                return ("store",)
            case "no_math":
                return ("math",)
            case "neither":
                return ("load", "math")
            case "half_trips":
                return ()
            case _:
                assert_never(self.name)

    def _load(self, call: ast.Call, name: str) -> None:
        if name == "load":
            self._rename(call, "load")
        elif name == "load_tensor_descriptor" or (not name and _method(call) in ("load", "gather")):
            self._outside(call, 1 if name else 0)
        elif name.startswith("atomic_") or name in _OPAQUE:
            self._stays(call, f"what {name} reads")

    def _store(self, call: ast.Call, name: str, *, alone: bool) -> None:
        if name == "store":
            self._rename(call, "store")
        elif name == "store_tensor_descriptor" or (not name and _method(call) in ("store", "scatter")):
            self._outside(call, 1 if name else 0)
        elif name in _ATOMICS and alone:
            self._masked(call)
        elif name.startswith("atomic_"):
            self._stays(call, f"{name}, whose result is used")
        elif name in _OPAQUE:
            self._stays(call, f"what {name} writes")

    def _math(self, call: ast.Call, name: str) -> None:
        if name == "dot":
            self._rename(call, "dot")
        elif name in _MATH and len(call.args) + len(call.keywords) == 1:
            self._rename(call, "same")
        elif name in ("dot_scaled", "softmax") or name in _OPAQUE:
            self._stays(call, name)
        elif not name and _method(call) in ("dot", "exp", "exp2", "log", "sqrt", "sin", "cos"):
            self._stays(call, f"the method {_method(call)}")

    def _foreign(self, call: ast.Call) -> None:
        """What is defined in another file may load, store or compute as well."""
        name = dotted(call.func)
        if name and "." not in name and name not in self.names.known:
            self._stays(call, f"what {name[:40]}, defined elsewhere, does")

    def _stays(self, node: ast.expr, what: str) -> None:
        self.left.append(f"{what[:NAMES_CHARACTERS]} (line {node.lineno})")

    def _rename(self, call: ast.Call, name: str) -> None:
        """The same arguments for a function of ours."""
        node = call.func
        if self._text(node) != dotted(node):
            self._stays(call, f"a {name} whose name can't be read")
            return
        self.edits.append(replaced(node, f"{self.prefix}{name}"))

    def _masked(self, call: ast.Call) -> None:
        """An atomic under a mask that is never true."""
        mask = keyword(call, "mask", 2)
        name = f"{self.prefix}off()"
        if isinstance(mask, ast.Constant) and mask.value is None:
            self.edits.append(replaced(mask, name))
        elif mask is not None:
            self._wrap(mask, "(", f") & {name}")
        elif len(call.args) == 2 and (edit := with_argument(self.file, call, f"mask={name}")) is not None:
            self.edits.append(edit)
        else:
            self._stays(call, "an atomic whose mask can't be read")

    def _outside(self, call: ast.Call, place: int) -> None:
        """A block of a descriptor, moved out of its tensor along its first axis."""
        offsets = keyword(call, "offsets", place)
        first = offsets.elts[0] if isinstance(offsets, ast.List | ast.Tuple) and offsets.elts else None
        if first is None or isinstance(first, ast.Starred) or _method(call) in ("gather", "scatter"):
            self._stays(call, "an access whose offsets are no list")
        else:
            self._wrap(first, "(", f") + {self.prefix}far()")

    def _keep_ahead(self, function: ast.FunctionDef, stages: int) -> None:
        """Have loads copied ahead where only their product asked the compiler to: in the loops with one."""
        for loop in (node for node in ast.walk(function) if isinstance(node, ast.For)):
            call = loop.iter if isinstance(loop.iter, ast.Call) else None
            if call is None or self.names.language(call) != "range" or stages < 2 or keyword(call, "num_stages"):
                continue
            own = [each for node in loop.body if not isinstance(node, ast.For | ast.While) for each in calls(node)]
            edit = with_argument(self.file, call, f"num_stages={stages}") if call.args else None
            if edit is not None and any(self.names.language(each) == "dot" for each in own):
                self.edits.append(edit)
                if dotted(call.func) == "range":
                    self.edits.append(replaced(call.func, f"{self.prefix}tl.range"))

    def _halve(self, function: ast.FunctionDef, functions: Sequence[ast.FunctionDef]) -> None:
        loading = {each.name for each in functions if self._loads(each, frozenset())}
        for loop in _outermost(function.body):
            if self._loads(loop, frozenset(loading)) and not self._half(loop):
                self.left.append(f"all iterations of the loop of line {loop.lineno}")

    def _half(self, loop: ast.For | ast.While) -> bool:
        """Ends a range after half of it: of n iterations the first n - n // 2 stay."""
        call = loop.iter if isinstance(loop, ast.For) and isinstance(loop.iter, ast.Call) else None
        if call is None or not self.names.language(call).endswith("range"):
            return False
        if any(each.arg in ("arg1", "arg2", "step", None) for each in call.keywords):
            return False
        match call.args, [self._text(each) for each in call.args]:
            case [end], _ if not isinstance(end, ast.Starred):
                self._wrap(end, "((", ") + 1) // 2")
            case [_, end], [str(start), _]:
                self._wrap(end, f"({start}) + ((", f") - ({start}) + 1) // 2")
            case [_, end, _], [str(start), _, str(step)] if not step.startswith("-"):
                before, after = f"({start}) + (((", f") - ({start}) + ({step}) - 1) // ({step}) + 1) // 2 * ({step})"
                self._wrap(end, before, after)
            case _:
                return False
        return True

    def _loads(self, node: ast.AST, loading: frozenset[str]) -> bool:
        return any(
            self.names.language(call).startswith("load") or _method(call) == "load" or dotted(call.func) in loading
            for call in calls(node)
        )

    def _waits(self, functions: Sequence[ast.FunctionDef]) -> int | None:
        """The line of a loop that goes on until another program has written something."""
        for loop in (node for each in functions for node in ast.walk(each) if isinstance(node, ast.While)):
            names = {self.names.language(call) for call in calls(loop.test)}
            inside = {self.names.language(call) for statement in loop.body for call in calls(statement)}
            reads = any(name == "load" or name.startswith("atomic_") for name in names)
            polls = any(name == "load" or name.startswith("atomic_") for name in inside)
            if reads or (polls and not inside & {"store", "dot"} and len(loop.body) <= 2):
                return loop.lineno
        return None

    # Text

    def _text(self, node: ast.expr) -> str | None:
        """Source of an expression of one line."""
        if node.end_lineno != node.lineno or node.lineno > len(self.lines) or isinstance(node, ast.Starred):
            return None
        return self.lines[node.lineno - 1][node.col_offset : node.end_col_offset].decode(errors="replace")

    def _wrap(self, node: ast.expr, before: str, after: str) -> None:
        end = node.end_lineno or node.lineno, node.end_col_offset or 0
        self.edits.append(Edit(node.lineno, node.col_offset, node.lineno, node.col_offset, before))
        self.edits.append(Edit(*end, *end, after))

    def _edited(self, edits: Sequence[Edit]) -> str | None:
        lines = list(self.lines)
        after: tuple[int, int] | None = None
        for edit in reversed(edits):
            if edit.line != edit.end_line or (after is not None and (edit.line, edit.end_column) > after):
                return None
            after = edit.line, edit.column
            line = lines[edit.line - 1]
            lines[edit.line - 1] = line[: edit.column] + edit.text.encode() + line[edit.end_column :]
        parts = [HEAD]
        if self.name in ("no_loads", "idle_loads", "neither"):
            parts.append(VALUE_LOAD if self.name == "no_loads" else IDLE_LOAD)
        if self.name == "no_stores":
            parts.append(STORE)
        if self.name in ("no_math", "neither"):
            parts.append(MATH)
        text = b"".join(lines).decode(errors="replace")
        text += "".join(parts).replace("PROBE_", self.prefix) if self.name != "half_trips" else ""
        return text if parse(text) is not None else None


def _method(call: ast.Call) -> str:
    """Name of a method that is called."""
    return call.func.attr if isinstance(call.func, ast.Attribute) and call.func.attr in _MEMBERS else ""


def _outermost(body: Sequence[ast.stmt]) -> Iterator[ast.For | ast.While]:
    """Loops that are in no other."""
    for statement in body:
        match statement:
            case ast.For() | ast.While():
                yield statement
            case ast.If(body=then, orelse=other):
                yield from _outermost([*then, *other])
            case ast.With(body=then):
                yield from _outermost(then)
            case _:
                pass
