"""The kernels of one file in `kernels/`, compiled once for an H100 on the worker's own capture path."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from tests.sandbox.conftest import H100
from tritonforge.sandbox.isolation import WORKER_FOLDER

from .shown import Compiled, Shown, shown

HERE = Path(__file__).parent

Show = Callable[[str], Shown]
Fail = Callable[[str], str]


class Folder:
    """What each launch of one file left."""

    def __init__(self, path: Path, status: int) -> None:
        self._path = path
        self.status = status
        """Of the process that compiled them."""

    def compiled(self, name: str) -> Compiled | None:
        """A launch by its name; None where its process has not lived so long."""
        found = self._path / f"{name}.json"
        return Compiled.model_validate_json(found.read_bytes()) if found.exists() else None


def shared_folder(factory: pytest.TempPathFactory) -> Path:
    """A folder of all processes of this test run."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "compiled"
    folder.mkdir(exist_ok=True)
    return folder


@contextmanager
def locked(path: Path) -> Generator[None]:
    """One process at a time."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def made(kernels: Path, shared: Path) -> Folder:
    """The launches of a file, made by one process, whichever test process asks for them first."""
    path = shared / f"signatures_{kernels.stem}"
    with locked(shared / f"{path.name}.lock"):
        ended = path / "ended"
        if not ended.exists():
            path.mkdir()
            environment = {"TRITON_CACHE_DIR": str(path / "cache"), "HOME": str(path), "PATH": "/usr/bin:/bin"}
            words = [str(WORKER_FOLDER / "__main__.py"), H100.model_dump_json(), str(path), str(kernels)]
            command = [sys.executable, "-P", str(HERE / "compile_launches.py"), *words]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            # Less than nothing is a signal, the compiler's own `abort` for example: no test's business but of that
            # launch.
            assert done.returncode <= 0, done.stderr[-4000:]
            ended.write_text(str(done.returncode))
        return Folder(path, int(ended.read_text()))


@pytest.fixture(scope="module")
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """The launches of `kernels/NAME.py` for the tests of `test_NAME.py`."""
    kernels = HERE / "kernels" / request.path.name.removeprefix("test_")
    return made(kernels, shared_folder(tmp_path_factory))


@pytest.fixture(scope="module")
def show(folder: Folder) -> Show:
    """A launch by name."""

    @cache
    def one(name: str) -> Shown:
        compiled = folder.compiled(name)
        assert compiled is not None, f"the process ended with {folder.status}"
        return shown(compiled)

    return one


@pytest.fixture(scope="module")
def failure(folder: Folder) -> Fail:
    """Why a launch could not be made, by its name; what the passes said stands before."""

    def one(name: str) -> str:
        compiled = folder.compiled(name)
        if compiled is None:
            return f"the process ended with {folder.status}"
        return "\n".join([*compiled.said, compiled.failure or "it was made"])

    return one
