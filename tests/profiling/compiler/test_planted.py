"""The place of a fault that was planted in a real kernel is the line that it was planted on."""

import sys

import pytest

from tests.sandbox.conftest import H100
from tritonforge.profiling.compiler.details import LaunchDetails, details
from tritonforge.sandbox.executors.host import Host
from tritonforge.sandbox.executors.local import LocalExecutor
from tritonforge.sandbox.limits import Limits
from tritonforge.sandbox.source import Source
from tritonforge.sandbox.workers import capture_worker

from .planted import PLANTED, marked_line, source

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("warm")]


@pytest.fixture(scope="module")
async def found() -> dict[str, LaunchDetails]:
    """Every planted kernel, compiled for sm_90 by one worker."""
    async with (
        LocalExecutor(Host(sys.executable, Limits()), spares=1) as executor,
        capture_worker(executor, target=H100) as worker,
    ):
        await worker.run_file(Source(source(), "kernel.py", None), limit_s=120.0)
        capture = await worker.captured()
    return {
        launch.kernel: details(capture.text(launch, "ptx"), capture.text(launch, "ttgir"))
        for launch in capture.launches
    }


@pytest.mark.parametrize("name", PLANTED)
async def test_a_planted_fault_is_found_on_its_line(found: dict[str, LaunchDetails], name: str) -> None:
    places = {place.line for place in found[name].places if place.what == PLANTED[name].what}
    assert places == {marked_line(source(), name)}


async def test_a_kernel_without_a_fault_has_no_places(found: dict[str, LaunchDetails]) -> None:
    assert found["clean"].places == []


async def test_every_site_of_a_real_kernel_has_a_line_in_its_file(found: dict[str, LaunchDetails]) -> None:
    lines = source().count("\n")
    for name, detail in found.items():
        accesses = [site for site in detail.ptx if site.kind in ("load", "store", "atomic", "async_copy")]
        assert accesses, name
        assert all(site.line is not None and 0 < site.line <= lines for site in accesses), name
