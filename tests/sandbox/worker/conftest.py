# pyright: basic
# The worker's modules have no name that a type checker could resolve: they are loaded from their folder.
"""The worker's modules in this process, loaded as `worker/__main__.py` does it."""

import importlib
import importlib.util
from types import ModuleType

import pytest

from tritonforge.sandbox.isolation import WORKER_FOLDER


@pytest.fixture(scope="session")
def worker() -> ModuleType:
    """The package; its modules are attributes."""
    spec = importlib.util.spec_from_file_location("worker_main", WORKER_FOLDER / "__main__.py")
    assert spec is not None
    assert spec.loader is not None
    main = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(main)
    main._load_package()
    package = importlib.import_module("tritonforge_worker")
    for name in ("environment", "failures", "frames", "judge", "load", "remap", "share", "task", "values"):
        setattr(package, name, importlib.import_module(f"tritonforge_worker.{name}"))
    return package


@pytest.fixture(scope="session")
def failures(worker):
    return worker.failures


@pytest.fixture(scope="session")
def frames(worker):
    return worker.frames


@pytest.fixture(scope="session")
def judge(worker):
    return worker.judge


@pytest.fixture(scope="session")
def load(worker):
    return worker.load


@pytest.fixture(scope="session")
def share(worker):
    return worker.share


@pytest.fixture(scope="session")
def task(worker):
    return worker.task


@pytest.fixture(scope="session")
def values(worker):
    return worker.values
