"""Which adapter an artefact is for, and what it makes of it."""

import ast
import hashlib
from pathlib import Path
from typing import Final

from ...sandbox.errors import rejected
from ...sandbox.source import read_source
from .gpu_mode import from_gpu_mode, read_folder
from .kernel_bench import from_kernel_bench, is_kernel_bench
from .model import Adapted, Form
from .pytest_file import from_pytest_file, imported, is_pytest_file
from .triton_bench import from_triton_bench, is_triton_bench, performance_file

ALLOWED: Final = (
    "Allowed are a TritonBench-G file (kernels, a line of 40 or more #, a test), a KernelBench problem (Model, "
    "get_inputs, get_init_inputs), a GPU MODE folder (task.yml and reference.py), and a test file with test functions "
    "that call a kernel in it or in a file beside it. Or write the task by hand: ENTRY, CASES and make_inputs."
)


def adapt(path: str | Path, form: Form | None = None, *, performance: str | Path | None = None) -> Adapted:
    """The likeliest task for an artefact; nothing of it is run.

    Args:
        path: of a file, or of a GPU MODE folder.
        form: what it is; found out by default.
        performance: a TritonBench performance file; looked for in its repository by default.

    Raises:
        Stopped: ``rejected``, with what was found and what is allowed.
    """
    return choices(path, form, performance=performance)[0]


def choices(path: str | Path, form: Form | None = None, *, performance: str | Path | None = None) -> list[Adapted]:
    """All tasks that an artefact may be read as, the likeliest first; at least one.

    Raises:
        Stopped: ``rejected``, with what was found and what is allowed.
    """
    file = Path(path).expanduser()
    if file.is_dir():
        return [_folder(file, form)]
    source = read_source(str(path), "artefact")
    try:
        ast.parse(source.text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        why = f"{error.msg} (line {error.lineno})" if isinstance(error, SyntaxError) else str(error)
        why = why or "it is nested too deeply"
        raise rejected("source", f"{path} is not valid Python: {why}", file=str(path), fix=ALLOWED) from None
    text = source.text
    found = form or _form_of(text)
    match found:
        case Form.TRITONBENCH if is_triton_bench(text):
            at = performance if performance is not None else performance_file(file)
            speed = None if at is None else read_source(str(at), "performance file").text
            tasks = list(from_triton_bench(file, text, _usable(speed)))
            lack = "its test calls no function of its kernel part that launches a kernel"
        case Form.KERNELBENCH if is_kernel_bench(text):
            tasks, lack = [from_kernel_bench(file, text)], ""
        case Form.PYTEST if is_pytest_file(text):
            tasks = list(from_pytest_file(file, text))
            lack = "its tests call nothing that launches a @triton.jit kernel, there or in a file that they import"
        case None:
            tasks, lack = [], f"it has {_what(text)}, which is none of the forms"
        case _:
            tasks, lack = [], f"it has {_what(text)}, which is not what {found} files have"
    if not tasks:
        raise rejected("source", f"no task can be made of {path}: {lack}", file=str(path), fix=ALLOWED)
    return tasks


def made_of(path: str | Path, *, performance: str | Path | None = None) -> str | None:
    """SHA-256, in hex, of the files that the tasks of an artefact are made of; None: they can't be read.

    Args:
        path: see `choices`.
        performance: see `choices`.
    """
    file = Path(path).expanduser()
    try:
        if not file.is_dir() and not file.is_file():
            return None
        if file.is_dir():
            parts = [f"{name}\n{text}".encode() for name, text in sorted(read_folder(file).items())]
        else:
            parts = [file.read_bytes()]
            beside = imported(file, parts[0].decode("utf-8-sig"))
            speed = performance if performance is not None else performance_file(file)
            parts += [Path(other).read_bytes() for other in (speed, beside[0] if beside else None) if other is not None]
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()


def _folder(folder: Path, form: Form | None) -> Adapted:
    if form not in (None, Form.GPU_MODE) or not (folder / "task.yml").is_file():
        names = sorted(entry.name for entry in folder.iterdir())[:8]
        raise rejected(
            "source",
            f"{folder} is a folder without a task.yml; it has {', '.join(names) or 'nothing'}"
            if form in (None, Form.GPU_MODE)
            else f"{folder} is a folder, and {form} artefacts are files",
            file=str(folder),
            fix=ALLOWED,
        )
    try:
        return from_gpu_mode(folder, read_folder(folder))
    except (ValueError, SyntaxError, OSError) as error:
        raise rejected("source", f"no task can be made of {folder}: {error}", file=str(folder), fix=ALLOWED) from None


def _form_of(text: str) -> Form | None:
    if is_kernel_bench(text):
        return Form.KERNELBENCH
    if is_triton_bench(text):
        return Form.TRITONBENCH
    return Form.PYTEST if is_pytest_file(text) else None


def _usable(speed: str | None) -> str | None:
    """A performance file that is no Python is as good as none."""
    try:
        ast.parse(speed or "")
    except SyntaxError:
        return None
    return speed


def _what(text: str) -> str:
    names = [node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    return f"{', '.join(names[:8])}{' and more' if len(names) > 8 else ''}" if names else "no function and no class"
