"""Every target that Triton compiles for here: the examples compile, each launch with its facts."""

import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, cast

import pytest
from mcp.client import Client

from tritonforge.profiling.compiler.backends import backend_of
from tritonforge.profiling.compiler.launch import LaunchFacts
from tritonforge.profiling.hardware.catalog import resolve_target
from tritonforge.profiling.hardware.model import Target
from tritonforge.sandbox.executors.host import Host
from tritonforge.sandbox.executors.local import LocalExecutor
from tritonforge.sandbox.limits import Limits
from tritonforge.sandbox.replies import Values
from tritonforge.sandbox.source import read_source
from tritonforge.sandbox.task import Task
from tritonforge.sandbox.workers import capture_worker, task_worker
from tritonforge.server.app import build_server
from tritonforge.server.services import target_facts
from tritonforge.server.settings import Settings

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("warm")]

EXAMPLES = Path(__file__).parents[2] / "examples"
KERNELS = {"sin": "candidate", "softmax": "candidate", "matmul": "baseline"}
"""The best of each that compiles fast."""
Inputs = dict[str, tuple[Task, Values]]


@pytest.fixture(scope="module")
async def executor() -> AsyncGenerator[LocalExecutor]:
    async with LocalExecutor(Host(sys.executable, Limits()), spares=1) as executor:
        yield executor


@pytest.fixture(scope="module")
async def inputs(executor: LocalExecutor) -> Inputs:
    """Of the small case of each example, with its task."""
    found: Inputs = {}
    async with task_worker(executor, on_gpu=False) as tasks:
        for name in KERNELS:
            task = await tasks.load(read_source(str(EXAMPLES / name / "task.py"), "task"))
            found[name] = task, await tasks.make_inputs("small", seed=0)
    return found


async def compiled(executor: LocalExecutor, inputs: Inputs, target: Target) -> dict[str, LaunchFacts]:
    """The one launch of each example, with what stands in its assembly checked."""
    backend = backend_of(target)
    found: dict[str, LaunchFacts] = {}
    async with capture_worker(executor, target=target_facts(target)) as kernels:
        for name, (task, values) in inputs.items():
            await kernels.load(read_source(str(EXAMPLES / name / f"{KERNELS[name]}.py"), "kernel"), task)
            await kernels.set_inputs(values)
            capture = await kernels.capture()
            (launch,) = capture.launches
            assert all(capture.text(launch, stage) for stage in backend.stages)
            found[name] = backend.facts(capture, launch, target)
            lines = backend.details(capture, launch)
            assert bool(lines.ptx) == (backend.unobserved is None)
            if backend.unobserved is not None:
                assert (lines.places, backend.observations(found[name], target)) == ([], [])
    return found


@pytest.mark.parametrize("name", ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"])
async def test_the_examples_compile_for_every_architecture_of_nvidia(
    executor: LocalExecutor, inputs: Inputs, name: str
) -> None:
    found = await compiled(executor, inputs, resolve_target(name))
    for facts in found.values():
        assert facts.registers
        assert (facts.spill_bytes, facts.amd) == (0, None)
        assert facts.theoretical_occupancy_pct
        assert all("is an architecture" in facts.absent[field] for field in ("waves", "tail_lost_pct_at_most"))
        known = set(facts.absent) - {"waves", "last_wave_filled_pct", "tail_lost_pct_at_most"}
        assert known <= {"registers_for_next_block", "shared_bytes_for_next_block"}
    assert found["sin"].load_widths_bytes == [16]
    assert found["softmax"].barriers > 0
    assert found["matmul"].mma == "mma"


@pytest.mark.parametrize("name", ["gfx942", "mi300x"])
async def test_the_examples_compile_for_amds_cdna3(executor: LocalExecutor, inputs: Inputs, name: str) -> None:
    target = resolve_target(name)
    found = await compiled(executor, inputs, target)
    for facts in found.values():
        assert facts.registers
        assert facts.spill_bytes == 0
        assert facts.theoretical_occupancy_pct
        assert facts.amd is not None
        assert facts.absent["tma_copies"] == "an NVIDIA fact: TMA"
        assert (facts.waves is None) == (target.gpu is None) == ("waves" in facts.absent)
    assert found["sin"].load_widths_bytes == [16]
    assert found["softmax"].barriers > 0
    assert found["matmul"].mma == "mfma"


async def test_the_tools_speak_of_amds_gpus_in_their_words(settings: Settings) -> None:
    async with Client(build_server(settings)) as client:
        described = await client.call_tool("hardware_spec", {"target": "mi300x"})
        arguments = {
            "kernel": str(EXAMPLES / "softmax" / "candidate.py"),
            "task": str(EXAMPLES / "softmax" / "task.py"),
            "target": "cdna3",
            "cases": ["small"],
        }
        compiled = await client.call_tool("compile_kernel", arguments)
    spec, found = cast(dict[str, Any], described.structured_content), cast(dict[str, Any], compiled.structured_content)
    assert "AMD gfx942: 304 compute units" in spec["summary"]
    assert "65,536 B LDS a block" in spec["summary"]
    assert spec["target"]["architecture"] == "gfx942"
    assert (found["kind"], found["target"], found["observations"]) == ("ok", "gfx942", [])
    (launch,) = found["launches"]
    assert launch["amd"]["vgprs"] == launch["registers"] > 0
    assert any(uri.endswith(".amdgcn") for uri in found["artifacts"])
    assert "known for NVIDIA's code only" in found["summary"]
