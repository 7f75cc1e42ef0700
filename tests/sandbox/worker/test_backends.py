# pyright: basic
# The worker's modules have no name that a type checker could resolve: they are loaded from their folder.
"""What Triton's backends present of themselves, without compiling anything."""

import importlib
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


@pytest.fixture
def backends(worker: ModuleType) -> Any:
    return importlib.import_module("tritonforge_worker.backends")


def test_each_vendor_names_its_target(backends: Any) -> None:
    nvidia = backends.BACKENDS["nvidia"].target({"capability": 90, "architecture": "sm_90", "warp_threads": 32})
    assert (nvidia.backend, nvidia.arch, nvidia.warp_size) == ("cuda", 90, 32)
    amd = backends.BACKENDS["amd"].target({"capability": 94, "architecture": "gfx942", "warp_threads": 64})
    assert (amd.backend, amd.arch, amd.warp_size) == ("hip", "gfx942", 64)


def test_grids_have_the_limits_of_the_vendors_launch(backends: Any) -> None:
    most = 2**31 - 1
    assert backends.BACKENDS["nvidia"].grid_limits(1024) == (most, 65_535, 65_535)
    x, y, z = backends.BACKENDS["amd"].grid_limits(256)
    assert x * 256 < 2**32 <= (x + 1) * 256
    assert (y, z) == (most, most)
    assert backends.BACKENDS["amd"].grid_limits(1)[0] == most


def test_a_triton_that_links_by_itself_is_left_alone(backends: Any) -> None:
    from triton.backends.amd.compiler import HIPBackend

    before, heard = HIPBackend.make_hsaco, []
    amd = backends.Amd()
    amd.listen(heard.append)
    assert HIPBackend.make_hsaco is before
    assert amd.stages[-1] == "hsaco"


def test_an_older_triton_stops_at_the_object_file_and_says_why(backends: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Old:
        target = "hip:gfx942"

        @staticmethod
        def path_to_rocm_lld() -> str:
            raise FileNotFoundError

    compiler = SimpleNamespace(HIPBackend=Old, amd=SimpleNamespace(assemble_amdgcn=lambda *given: repr(given).encode()))
    monkeypatch.setattr("triton.backends.amd.compiler", compiler)
    amd, heard = backends.Amd(), []
    for _ in range(2):  # each file that is loaded begins anew
        amd.listen(heard.append)
    assert amd.stages == ("ttir", "ttgir", "llir", "amdgcn")
    made: Any = Old
    assert made.make_hsaco("code", {"name": "k"}, SimpleNamespace(arch="gfx942")) == b"('code', 'gfx942', '')"
    assert heard == ["k is not linked: this version of Triton does that by a program of ROCm's"]
    assert made().hash() == "hip:gfx942"
