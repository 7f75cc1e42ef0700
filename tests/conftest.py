"""What all tests share: their order, warm preloaders, the rule for tests that need a GPU."""

import os
from collections.abc import AsyncGenerator, Generator
from functools import cache

import anyio
import pytest

from tests.preloaders import SharedPreloaders
from tritonforge.sandbox.executors.host import Host
from tritonforge.sandbox.executors.local import LocalExecutor
from tritonforge.sandbox.facts import Environment
from tritonforge.sandbox.workers import probe
from tritonforge.server.services import GPU_DEVICE_FILES
from tritonforge.server.settings import from_environment

REQUIRED = os.environ.get("TRITONFORGE_REQUIRE_GPU") == "1"
"""Set by `make gpu`: where there is a GPU, a GPU test that skips has failed."""
LONGEST = (
    "test_cli.py",
    "test_stdio.py",
    "test_examples.py",
    "test_cheats.py",
    "test_mutants.py",
    "test_isolation.py",
    "test_correctness_tool.py",
    "test_exhaustion.py",
    "test_timers.py",
    "test_process.py",
    "test_call.py",
    "test_harm.py",
    "test_bad_input.py",
    "test_escape.py",
    "test_dots.py",
    "test_local.py",
    "test_sanitizing.py",
    "test_comparison.py",
    "test_launches.py",
)
"""Modules that take longest: they begin first, so that no process is left with one of them at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest modules come first; xdist hands out modules as they come (`--no-loadscope-reorder`)."""
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
async def shared_preloaders(anyio_backend: str) -> AsyncGenerator[SharedPreloaders]:
    async with anyio.create_task_group() as tasks:
        shared = SharedPreloaders(tasks)
        try:
            yield shared
        finally:
            await shared.close()
            tasks.cancel_scope.cancel()


@pytest.fixture(scope="module")
def warm(shared_preloaders: SharedPreloaders) -> Generator[None]:
    """The sealed workers of a module come from preloaders that the modules before it have used as well."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tritonforge.sandbox.executors.local.start_preloader", shared_preloaders.start)
        yield


def has_device() -> bool:
    """Whether this machine has an NVIDIA GPU at all."""
    return any(path.exists() for path in GPU_DEVICE_FILES)


@cache
def why_no_gpu() -> str | None:
    """Why GPU tests can't run here; None where they can."""
    if not has_device():
        return "this machine has no NVIDIA GPU"
    environment = anyio.run(_probe)
    if environment.problem is not None:
        return environment.problem.message
    return None if environment.gpu is not None else f"torch {environment.torch} sees no GPU"


async def _probe() -> Environment:
    settings = from_environment()
    async with LocalExecutor(Host(settings.python, settings.limits), gpu_spares=1) as executor:
        return await probe(executor)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip GPU tests where there is none, saying so."""
    if item.get_closest_marker("gpu") is not None and (reason := why_no_gpu()) is not None:
        pytest.skip(reason)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With `make gpu` on a machine that has a GPU, a skipped GPU test is a failed one."""
    report = yield
    if REQUIRED and has_device() and report.skipped and item.get_closest_marker("gpu") is not None:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"a GPU test skipped on a machine that has a GPU: {reason}"
    return report
