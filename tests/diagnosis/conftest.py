"""Launches of planted kernels, compiled for an H100 by one process a file, and all facts of each."""

import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.profiling.compiler.signatures.conftest import locked, made, shared_folder
from tests.profiling.compiler.signatures.shown import H200, Compiled, shown
from tests.sandbox.conftest import H100
from tritonforge.profiling.diagnosis.facts import Facts
from tritonforge.profiling.diagnosis.source import kernel, syntax
from tritonforge.sandbox.isolation import WORKER_FOLDER

from .planted import CLEAN, PLANTED, REWRITTEN

HERE = Path(__file__).parent
SIGNATURES = HERE.parent / "profiling" / "compiler" / "signatures"

CHOSEN = """
import importlib.util
spec = importlib.util.spec_from_file_location({stem!r}, {path!r})
module = importlib.util.module_from_spec(spec)
import sys
sys.modules[{stem!r}] = module
spec.loader.exec_module(module)
LAUNCHES = {{name: module.LAUNCHES[name] for name in {names!r}}}
"""


def kernel_file(name: str) -> Path:
    """A file of kernels: the signatures', or one of this folder."""
    own = HERE / "kernels" / f"{name}.py"
    return own if own.exists() else SIGNATURES / "kernels" / f"{name}.py"


def compile_some(file: Path, names: Iterable[str], out: Path) -> None:
    """Makes some launches of a file; what each leaves goes to `out/NAME.json`."""
    out.mkdir(exist_ok=True)
    _compile(CHOSEN.format(stem=f"kernels_{file.stem}", path=str(file), names=sorted(set(names))), out)


def _compile(chosen_text: str, out: Path) -> None:
    chosen = out / "chosen_launches.py"
    chosen.write_text(chosen_text)
    environment = {"TRITON_CACHE_DIR": str(out / "cache"), "HOME": str(out), "PATH": "/usr/bin:/bin"}
    words = [str(WORKER_FOLDER / "__main__.py"), H100.model_dump_json(), str(out), str(chosen)]
    command = [sys.executable, "-P", str(SIGNATURES / "compile_launches.py"), *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


EDITED = """
import importlib.util
import sys


def launch(path, name):
    spec = importlib.util.spec_from_file_location(f"edited_{{name}}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    module.LAUNCHES[name]()


LAUNCHES = {{name: lambda name=name, path=path: launch(path, name) for name, path in {files!r}.items()}}
"""


def compile_edited(texts: dict[str, str], out: Path) -> None:
    """One launch of each of several texts, by its name, in one process; what each leaves goes to `out/NAME.json`."""
    out.mkdir(exist_ok=True)
    files = {name: str(out / f"edited_{number}.py") for number, name in enumerate(texts)}
    for name, text in texts.items():
        Path(files[name]).write_text(text)
    _compile(EDITED.format(files=files), out)


def read(text: str, left: Path) -> Facts:
    """All facts of a launch."""
    compiled = Compiled.model_validate_json(left.read_bytes())
    seen = shown(compiled)
    (captured,) = compiled.launches
    file = syntax.parse(text)
    assert file is not None
    return Facts(
        target=H200,
        captured=captured,
        file=file,
        source=kernel.live(file, captured.kernel, captured),
        launch=seen.facts,
        lines=seen.lines,
        remarks=seen.said,
    )


@dataclass
class Launches:
    """Launches by file and name; a file's are compiled together, when the first is asked for, by any test process."""

    folder: Path

    def __call__(self, file: str, name: str) -> Facts:
        kernels = kernel_file(file)
        if kernels.is_relative_to(SIGNATURES):
            # All of them are made for the signatures' own tests.
            made(kernels, self.folder)
            return read(kernels.read_text(), self.folder / f"signatures_{file}" / f"{name}.json")
        out = self.folder / file
        with locked(self.folder / f"{file}.lock"):
            done = out / "done"
            if not done.exists():
                wanted = {each for one in PLANTED if one.file == file for each in (one.faulty, one.twin) if each}
                wanted |= {*CLEAN.get(file, ())} | {each for other, each, _ in REWRITTEN if other == file}
                compile_some(kernels, wanted | ({"helped"} if file == "options" else set()), out)
                done.touch()
        return read(kernels.read_text(), out / f"{name}.json")


@pytest.fixture(scope="session")
def launches(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Facts]:
    return Launches(shared_folder(tmp_path_factory))
