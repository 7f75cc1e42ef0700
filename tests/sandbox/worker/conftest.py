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
    names = (
        "accuracy",
        "audit",
        "canary",
        "contract",
        "differences",
        "environment",
        "failures",
        "frames",
        "guard",
        "judge",
        "load",
        "preload",
        "reference",
        "remap",
        "share",
        "task",
        "values",
        "variants",
    )
    for name in names:
        setattr(package, name, importlib.import_module(f"tritonforge_worker.{name}"))
    return package


def module(name):
    """A fixture that is one of its modules."""

    @pytest.fixture(scope="session", name=name)
    def get(worker):
        return getattr(worker, name)

    return get


canary = module("canary")
accuracy = module("accuracy")
audit = module("audit")
contract = module("contract")
differences = module("differences")
failures = module("failures")
frames = module("frames")
guard = module("guard")
judge = module("judge")
load = module("load")
preload = module("preload")
reference = module("reference")
share = module("share")
task = module("task")
values = module("values")
variants = module("variants")
