"""GPU MODE reference-kernel tasks: a folder with task.yml, reference.py and what these import."""

import ast
import re
from pathlib import Path
from typing import Final

from .facts import names_in, parameters_of, root_name, segments
from .model import Adapted, Form
from .recorded import quoted
from .yaml_cases import Case, file_sources, listed_cases

ENTRY: Final = "custom_kernel"
OUR_MODULES: Final = ("task", "utils")
SMALL: Final = 1

TASK: Final = '''

class _OnDevice(TorchFunctionMode):
    """What is asked for on "cuda" is made on the device of the task."""

    def __init__(self, device):
        super().__init__()
        self.device = str(device)

    def _moved(self, value):
        if isinstance(value, torch.device):
            return torch.device(self.device) if value.type == "cuda" else value
        return self.device if isinstance(value, str) and value.partition(":")[0] == "cuda" else value

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.cuda:
            return args[0].to(self.device)
        kwargs = {name: self._moved(value) for name, value in (kwargs or {}).items()}
        return func(*[self._moved(value) for value in args], **kwargs)


@contextlib.contextmanager
def _placed(device):
    made = torch.Generator

    def generator(device="cpu"):
        return made(device=_device if str(device).startswith("cuda") else device)

    _device = str(device)
    torch.Generator = generator
    try:
        with _OnDevice(device):
            yield
    finally:
        torch.Generator = made


def _modules():
    """The task's own files as modules, reference.py last."""
    was = {name: sys.modules.get(name) for name in FILES}
    found = {}
    try:
        for name, text in FILES.items():
            found[name] = sys.modules[name] = types.ModuleType(name)
            exec(compile(text, name, "exec"), found[name].__dict__)
    finally:
        for name, module in was.items():
            if module is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module
    return found


_REFERENCE = _modules()["reference"]


def make_inputs(device, **parameters):
    if "seed" in inspect.signature(_REFERENCE.generate_input).parameters:
        # The harness asks for other contents by seeding torch.
        parameters["seed"] = torch.initial_seed() % 2**31
    with _placed(device):
        return (_REFERENCE.generate_input(**parameters),)


def reference(data):
    return _REFERENCE.ref_kernel(data)
'''


def from_gpu_mode(folder: Path, texts: dict[str, str]) -> Adapted:
    """The task of a folder.

    Args:
        folder: with task.yml.
        texts: of its files, by the name under which task.yml lists them; ``task.yml`` itself too.

    Raises:
        ValueError: a part is missing or has another form; the message names it.
    """
    yml = texts["task.yml"]
    if "reference.py" not in texts:
        raise ValueError("task.yml lists no reference.py that is there")
    tree = ast.parse(texts["reference.py"])
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    missing = [name for name in ("generate_input", "ref_kernel") if name not in functions]
    if missing:
        raise ValueError(f"reference.py defines no {' and no '.join(missing)}")
    takes = functions["generate_input"].args
    known = None if takes.kwarg else set(parameters_of(functions["generate_input"]))
    timed, tested = listed_cases(yml, "benchmarks"), listed_cases(yml, "tests")
    if not timed and not tested:
        raise ValueError("task.yml has neither benchmarks nor tests of the form `- {name: value, ...}`")
    given = {"seed"}.union(*[case.keys() for case in timed or tested])
    optional = len(takes.defaults)
    required = [each.arg for each in takes.args[: len(takes.args) - optional]]
    lacking = [name for name in required if name not in given]
    if lacking:
        raise ValueError(
            f"generate_input needs {', '.join(lacking)}, which no case of task.yml gives (tasks for several GPUs "
            "have a rank); one GPU and one process are what a task is for"
        )
    cases, hidden = _named(timed or tested, "benchmark", known), _named(tested if timed else [], "test", known)
    # The first test is shown, as the small case.
    if hidden:
        name = next(iter(hidden))
        cases[name] = {**hidden.pop(name), "small": True, "weight": 0.01}
    in_place = _writes_to_data(functions["ref_kernel"])
    files = {name: texts[f"{name}.py"] for name in OUR_MODULES if f"{name}.py" in texts}
    files["reference"] = texts["reference.py"]
    task = (
        "import contextlib\nimport inspect\nimport sys\nimport types\n\nimport torch\n"
        "from torch.overrides import TorchFunctionMode\n\n"
        f'ENTRY = "{ENTRY}"\nCASES = {_literal(cases)}\nHIDDEN_CASES = {_literal(hidden)}\n'
        + ('IN_PLACE = ("data",)\n' if in_place else "")
        + _tolerance(tree)
        + "\n# The task's own files, as they were.\nFILES = {\n"
        + "".join(f"    {name!r}: {quoted(text)},\n" for name, text in files.items())
        + "}\n"
        + TASK
    )
    kernel, which = _kernel(texts, tree)
    assumptions = [
        f"the baseline is {which}",
        "cases are the benchmarks of task.yml; its tests are checked before a candidate is accepted, the first of them "
        "is the small case",
        "the seeds of task.yml are replaced by the harness's, so that each of its seeds gives other inputs",
        "a candidate defines custom_kernel(data) and may not import the task's own modules: input_t and output_t stand "
        "for any type",
    ]
    if "match_reference" not in texts["reference.py"]:
        assumptions.append(
            "reference.py checks results in a way of its own; here they are compared with the reference's element by "
            "element, which is stricter where several results are right"
        )
    if in_place:
        assumptions.append("the reference writes to its data, so what custom_kernel leaves in data is its output")
    return Adapted(Form.GPU_MODE, folder, ENTRY, kernel, task, tuple(assumptions), has_launches="triton.jit" in kernel)


def read_folder(folder: Path) -> dict[str, str]:
    """The files that task.yml lists, by their names; those that are not there are left out.

    Raises:
        OSError, UnicodeDecodeError: a file can't be read.
    """
    yml = (folder / "task.yml").read_text(encoding="utf-8")
    found = {"task.yml": yml}
    for name, source in {"submission.py": "submission.py", **file_sources(yml)}.items():
        file = folder / (f"{name}" if source.startswith("@") else source)
        if file.is_file() and file.suffix == ".py":
            found[name] = file.read_text(encoding="utf-8-sig")
    return found


def _named(cases: list[Case], what: str, known: set[str] | None) -> dict[str, Case]:
    return {
        f"{what}_{number}": {name: value for name, value in case.items() if known is None or name in known}
        for number, case in enumerate(cases, 1)
    }


def _literal(cases: dict[str, Case]) -> str:
    return "{\n" + "".join(f"    {name!r}: {case!r},\n" for name, case in cases.items()) + "}"


def _writes_to_data(reference: ast.FunctionDef) -> bool:
    """Whether it writes to what came in ``data``, as far as its source shows."""
    names = set(parameters_of(reference)[:1])
    for node in ast.walk(reference):
        if isinstance(node, ast.Assign) and root_name(node.value) in names and not isinstance(node.value, ast.Call):
            names |= {each.id for target in node.targets for each in ast.walk(target) if isinstance(each, ast.Name)}
    for node in ast.walk(reference):
        targets = node.targets if isinstance(node, ast.Assign) else []
        if any(isinstance(target, ast.Subscript) and root_name(target) in names for target in targets):
            return True
        if isinstance(node, ast.Call) and any(
            each.arg == "out" and names_in(each.value) & names for each in node.keywords
        ):
            return True
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr.endswith("_")
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id in names
        ):
            return True
    return False


def _tolerance(tree: ast.Module) -> str:
    """That of ``make_match_reference(ref_kernel, rtol=..., atol=...)``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and "match_reference" in node.func.id:
            found = {
                each.arg: each.value.value
                for each in node.keywords
                if each.arg in ("rtol", "atol") and isinstance(each.value, ast.Constant)
            }
            if found:
                # The other side of the comparison has the default of its utils.py.
                limits = {"rtol": found.get("rtol", 1e-5), "atol": found.get("atol", 1e-8)}
                return f"TOLERANCE = dict.fromkeys(('float16', 'bfloat16', 'float32', 'float64'), {limits!r})\n"
    return ""


def _kernel(texts: dict[str, str], reference: ast.Module) -> tuple[str, str]:
    """The baseline: the submission where it needs nothing but torch and Triton, else the reference."""
    submission = texts.get("submission.py")
    if submission is not None and _is_plain(submission):
        return _without_task(submission), "submission.py"
    kept = [
        node
        for node in reference.body
        if not (isinstance(node, ast.Assign) and "match_reference" in ast.unparse(node.value))
    ]
    text = _without_task(segments(texts["reference.py"], kept))
    helpers = (
        f"{texts['utils.py']}\n\n"
        if "utils.py" in texts and re.search(r"^from utils ", texts["reference.py"], re.M)
        else ""
    )
    return f"{helpers}{text}\n\n\ndef {ENTRY}(data):\n    return ref_kernel(data)\n", "the reference itself"


def _is_plain(text: str) -> bool:
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return False
    known = {"torch", "triton", "math", "typing", "task", "os", "sys", "dataclasses", "functools", "__future__"}
    modules = {
        name.partition(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    return modules <= known and any(isinstance(node, ast.FunctionDef) and node.name == ENTRY for node in tree.body)


def _without_task(text: str) -> str:
    """Names from the task's own modules stand for any type, or were put above."""
    text = re.sub(r"^from utils import [^(\n]*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"^from utils import \([^)]*\)", "", text, flags=re.MULTILINE)
    return re.sub(
        r"^from task import ([\w, ]+)$",
        lambda found: "\n".join(f"{name.strip()} = object" for name in found[1].split(",")),
        text,
        flags=re.MULTILINE,
    )
