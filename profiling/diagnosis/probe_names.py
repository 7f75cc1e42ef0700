"""Which functions of Triton's language a file calls, by whatever names, and which of its kernels are launched."""

import ast
import warnings
from collections.abc import Iterable
from typing import Final

from .source.syntax import calls, dotted

_BUILTINS: Final = frozenset(
    {"abs", "bool", "float", "int", "len", "max", "min", "print", "range", "str", "sum", "tuple", "zip", "enumerate"}
)
_MODULES: Final = frozenset({"triton.language", "triton.language.math", "triton.language.standard"})


class Names:
    """Of one file, which has been parsed before."""

    def __init__(self, text: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # as in `syntax.parse`
            tree = ast.parse(text)
        self.kernels: dict[str, list[ast.FunctionDef]] = {}
        """Functions with `@triton.jit`, all of a name."""
        self.known: set[str] = {*_BUILTINS}
        """Names that are no function of another file."""
        self._modules = {"tl", "libdevice"}
        self._functions: dict[str, str] = {}
        inside: set[int] = set()
        for node in ast.walk(tree):
            match node:
                case ast.Import(names=names):
                    self._modules |= {each.asname for each in names if each.asname and _is_language(each.name)}
                case ast.ImportFrom(module=str(module), names=names):
                    self._import(module, names)
                case ast.FunctionDef() if any(_is_jit(each) for each in node.decorator_list):
                    self.kernels.setdefault(node.name, []).append(node)
                    inside |= {id(each) for each in ast.walk(node)}
                case _:
                    pass
        self.known |= set(self.kernels) | set(self._functions)
        named = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in inside}
        self.launched: list[str] = [name for name in self.kernels if name in named] or list(self.kernels)
        """Kernels that host code names; all, where it names none."""

    def _import(self, module: str, names: Iterable[ast.alias]) -> None:
        for each in names:
            whole, bound = f"{module}.{each.name}", each.asname or each.name
            if _is_language(whole):
                self._modules.add(bound)
            elif _is_language(module):
                self._functions[bound] = each.name

    def language(self, call: ast.Call) -> str:
        """Name of a function of the language, such as `load` of `tl.load(…)`; empty for other calls."""
        name = dotted(call.func)
        root, _, rest = name.partition(".")
        if not rest:
            return "range" if root == "range" else self._functions.get(root, "")
        is_language = root in self._modules or name.startswith("triton.language.")
        return name.rpartition(".")[2] if is_language else ""

    def reached(self, roots: Iterable[str]) -> list[ast.FunctionDef]:
        """Kernels of these names and all that they call, directly or not."""
        found: dict[str, list[ast.FunctionDef]] = {}
        ahead = list(roots)
        while ahead:
            name = ahead.pop()
            if name in found or name not in self.kernels:
                continue
            found[name] = self.kernels[name]
            ahead += [dotted(call.func) for function in found[name] for call in calls(function)]
        return [function for functions in found.values() for function in functions]


def _is_language(module: str) -> bool:
    return module in _MODULES or (module.startswith("triton.language.extra") and "libdevice" in module)


def _is_jit(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return dotted(called).rpartition(".")[2] == "jit"
