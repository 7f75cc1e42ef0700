"""The import contract: layers in one direction, and the GPU stack only where kernels run."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LAYERS = ("server", "prompts", "profiling", "sandbox")
WORKER = ROOT / "sandbox" / "worker"
GPU_STACK = {"torch", "triton", "nvtx", "numpy"}

SOURCES = sorted(path for layer in LAYERS for path in (ROOT / layer).rglob("*.py"))
OUTSIDE = [path for path in SOURCES if not path.is_relative_to(WORKER)]
INSIDE = [path for path in SOURCES if path.is_relative_to(WORKER)]


def imported(path: Path) -> Iterator[str]:
    """Names of all modules that a source imports, wherever it does; relative ones begin with a dot."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=module, level=level):
                yield "." * level + (module or "")
            case ast.Call(func=ast.Name(id="__import__" | "import_module"), args=[ast.Constant(value=str(name)), *_]):
                yield name
            case ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(name)), *_]):
                yield name
            case _:
                pass


def test_the_import_contract_is_kept() -> None:
    command = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([command, "--no-logo", "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 kept, 0 broken" in done.stdout


def test_sources_are_found_on_both_sides() -> None:
    assert len(OUTSIDE) > 30
    assert len(INSIDE) > 10


@pytest.mark.parametrize("path", OUTSIDE, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_outside_the_worker_imports_the_gpu_stack(path: Path) -> None:
    assert not GPU_STACK & {name.partition(".")[0] for name in imported(path)}


@pytest.mark.parametrize("path", OUTSIDE, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_of_our_own_are_relative(path: Path) -> None:
    assert not {"tritonforge", *LAYERS} & {name.partition(".")[0] for name in imported(path)}


@pytest.mark.parametrize("path", INSIDE, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_worker_needs_nothing_but_the_standard_library_and_the_gpu_stack(path: Path) -> None:
    for name in imported(path):
        # One dot stays inside the worker's own package.
        own = name.startswith("tritonforge_worker") or (name.startswith(".") and not name.startswith(".."))
        assert own or name.partition(".")[0] in GPU_STACK | sys.stdlib_module_names, name


@pytest.mark.parametrize("module", ["tritonforge.server.app", "tritonforge.server.__main__"])
def test_the_server_starts_without_the_gpu_stack(module: str) -> None:
    code = f"import sys, {module}; print(*sorted({GPU_STACK} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"
