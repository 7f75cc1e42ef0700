"""Interpreters that workers cannot run in are told with the remedy."""

import subprocess
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from tests.faults.evaluations import Tools, failed, serving
from tritonforge.sandbox.outcome import Kind
from tritonforge.server.settings import Settings

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def bare_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that nothing is installed in."""
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return folder / "bin" / "python"


def pretend(python: Path, package: str, version: str) -> None:
    """Let a package seem to be installed: its metadata alone."""
    (site,) = python.parents[1].glob("lib/python*/site-packages")
    for folder in site.glob(f"{package}-*.dist-info"):
        (folder / "METADATA").unlink()
        folder.rmdir()
    metadata = site / f"{package}-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")


def interpreted_by(settings: Settings, python: str | Path) -> AbstractAsyncContextManager[Tools]:
    return serving(settings.model_copy(update={"python": str(python)}))


@pytest.mark.parametrize("python", ["/no/such/python", "/etc/passwd", "/bin/true", "/bin/cat"])
async def test_what_is_no_interpreter_is_unavailable_with_a_remedy(settings: Settings, python: str) -> None:
    async with interpreted_by(settings, python) as tools:
        for result in (await tools.compile(), await tools.check()):
            problem = failed(result, Kind.UNAVAILABLE, "environment")
            assert "--python" in (problem.likely_fix or "")


async def test_an_interpreter_without_torch_is_unavailable(settings: Settings, bare_environment: Path) -> None:
    async with interpreted_by(settings, bare_environment) as tools:
        for result in (await tools.compile(), await tools.check()):
            problem = failed(result, Kind.UNAVAILABLE, "environment")
            assert problem.message == f"torch is not installed for {bare_environment}"
            assert "pip install 'torch>=2.8'" in (problem.likely_fix or "")


async def test_an_interpreter_with_an_old_torch_is_unavailable(settings: Settings, bare_environment: Path) -> None:
    pretend(bare_environment, "torch", "2.7.1+cu128")
    async with interpreted_by(settings, bare_environment) as tools:
        problem = failed(await tools.compile(), Kind.UNAVAILABLE, "environment")
    assert problem.message == "torch 2.7.1+cu128 is too old; 2.8 or newer is needed"
    assert f"Upgrade it for {bare_environment}" in (problem.likely_fix or "")


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("3.3.1", "triton 3.3.1 is too old; 3.4 or newer is needed"),
        ("3.10.0", "import torch 2.13.0 failed: ModuleNotFoundError"),
    ],
)
async def test_an_interpreter_with_an_old_or_broken_triton_is_unavailable(
    settings: Settings, bare_environment: Path, version: str, words: str
) -> None:
    pretend(bare_environment, "torch", "2.13.0")
    pretend(bare_environment, "triton", version)
    async with interpreted_by(settings, bare_environment) as tools:
        for result in (await tools.compile(), await tools.check()):
            problem = failed(result, Kind.UNAVAILABLE, "environment")
            assert words in problem.message
            assert problem.likely_fix


async def test_an_interpreter_is_looked_at_anew_by_the_same_server_as_long_as_it_cannot_be_used(
    settings: Settings, bare_environment: Path
) -> None:
    pretend(bare_environment, "torch", "2.7.1+cu128")
    async with interpreted_by(settings, bare_environment) as tools:
        failed(await tools.compile(), Kind.UNAVAILABLE, "environment")
        pretend(bare_environment, "torch", "2.7.2")
        problem = failed(await tools.compile(), Kind.UNAVAILABLE, "environment")
        assert problem.message == "torch 2.7.2 is too old; 2.8 or newer is needed"
