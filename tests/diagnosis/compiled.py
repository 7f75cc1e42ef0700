"""Planted defects, compiled for an H100 without a GPU."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.sandbox.conftest import H100
from tritonforge.sandbox.isolation import WORKER_FOLDER

from .conftest import SIGNATURES
from .defect import CASE, Defect

SIDES = ("slow", "fixed")
PROCESSES = 2
"""That compile: a machine of CI has so many cores."""
LAUNCHED = """
import importlib
import importlib.util
import sys

# Large tensors take no memory: nothing runs.
placeholders = importlib.import_module("tritonforge_worker.placeholders")


def launch(stem, path):
    spec = importlib.util.spec_from_file_location(stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[stem] = module
    spec.loader.exec_module(module)
    with placeholders.Untouched():
        inputs = module.make_inputs(**module.CASES[{case!r}], device="cuda")
        getattr(module, module.ENTRY)(*inputs)


LAUNCHES = {{stem: lambda stem=stem, path=path: launch(stem, path) for stem, path in {files!r}.items()}}
"""


def compile_defects(chosen: Sequence[Defect], fixed: Sequence[str], out: Path) -> None:
    """Compiles each with its fault; what a launch leaves goes to `NAME_SIDE.json`.

    Args:
        chosen: what is compiled.
        fixed: names of those whose rewrite is compiled too.
        out: a folder.
    """
    files: dict[str, str] = {}
    for defect in chosen:
        sides = SIDES if defect.name in fixed else SIDES[:1]
        for side, text in zip(sides, (defect.text, defect.fixed), strict=False):
            path = out / f"{defect.name}_{side}.py"
            path.write_text(text)
            files[path.stem] = str(path)
    environment = {"TRITON_CACHE_DIR": str(out / "cache"), "HOME": str(out), "PATH": "/usr/bin:/bin"}
    running: list[tuple[subprocess.Popen[bytes], Path]] = []
    for number in range(PROCESSES):
        share = dict(list(files.items())[number::PROCESSES])
        launched, said = out / f"launched_{number}.py", out / f"said_{number}"
        launched.write_text(LAUNCHED.format(case=CASE, files=share))
        words = [str(WORKER_FOLDER / "__main__.py"), H100.model_dump_json(), str(out), str(launched)]
        command = [sys.executable, "-P", str(SIGNATURES / "compile_launches.py"), *words]
        with said.open("wb") as stderr:
            running.append((subprocess.Popen(command, env=environment, stderr=stderr), said))
    for process, said in running:
        assert process.wait() == 0, said.read_text(errors="replace")[-4000:]
