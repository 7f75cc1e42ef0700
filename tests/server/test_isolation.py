"""How kernels are kept apart from this machine, as a client of the server sees it: with a sandbox, and without one."""

import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client

from tests.server.conftest import SIN, content_of, descendants, wait_for_end, without_gpu
from tritonforge.sandbox import rehearsal
from tritonforge.sandbox.executors.base import Job
from tritonforge.sandbox.rehearsal import NO_BWRAP, REMEDY
from tritonforge.server.app import build_server
from tritonforge.server.doctor import doctor
from tritonforge.server.services import Services, target_facts
from tritonforge.server.settings import Settings

pytestmark = pytest.mark.anyio

SMALL = {**SIN, "target": "h100", "cases": ["small"]}
KERNEL = Path(SIN["kernel"]).read_text()

Call = Callable[..., Any]


@asynccontextmanager
async def served(settings: Settings) -> AsyncGenerator[Call]:
    """Calls a tool of a new server; its structured content."""
    async with Client(build_server(settings)) as client:

        async def call(tool: str, **arguments: Any) -> dict[str, Any]:
            return content_of(await client.call_tool(tool, arguments))

        yield call


async def isolation(call: Call) -> dict[str, Any]:
    (check,) = [check for check in (await call("hardware_spec"))["checks"] if check["name"] == "isolation"]
    return check


@pytest.fixture
def no_bwrap(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without bubblewrap."""
    monkeypatch.setattr(rehearsal, "find_bwrap", lambda: None)


# A machine that allows no sandbox.


@pytest.mark.usefixtures("no_bwrap")
async def test_where_a_required_sandbox_is_not_to_be_had_each_kernel_tool_is_unavailable_with_the_remedy(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # With a driver, those that need a GPU come as far as the sandbox.
    monkeypatch.setattr("tritonforge.server.services.GPU_DEVICE_FILES", (tmp_path,))
    async with served(settings.model_copy(update={"require_sandbox": True})) as call:
        for tool in ("compile_kernel", "run_correctness", "benchmark", "profile_ncu"):
            result = await call(tool, **SIN)
            assert result["kind"] == "unavailable"
            assert "a sandbox is required" in result["problem"]["message"]
            assert NO_BWRAP in result["problem"]["message"]
            assert result["problem"]["likely_fix"] == result["next_step"] == REMEDY
        hardware = await call("hardware_spec")
        assert (hardware["kind"], hardware["next_step"]) == ("ok", REMEDY)
        check = await isolation(call)
        assert (check["status"], check["required"], check["remedy"]) == ("missing", True, REMEDY)


@pytest.mark.usefixtures("no_bwrap")
async def test_doctor_says_that_a_required_sandbox_is_missing(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await doctor(settings.model_copy(update={"require_sandbox": True}), False) == 1
    shown = capsys.readouterr().out
    assert "MISSING  isolation: a sandbox is required" in shown
    assert f"-> {REMEDY}" in shown
    assert shown.endswith("mend what is MISSING.\n")


@pytest.mark.usefixtures("no_bwrap")
async def test_without_a_sandbox_kernels_are_evaluated_where_none_is_required(settings: Settings) -> None:
    async with served(settings) as call:
        check = await isolation(call)
        assert (check["status"], check["required"], check["remedy"]) == ("limited", False, REMEDY)
        assert NO_BWRAP in check["detail"]
        assert (await call("compile_kernel", **SMALL))["kind"] == "ok"
        assert (await call("run_correctness", **SIN, cases=["small"], seeds=1))["kind"] == "ok"


# Folders that kernels may read.


@pytest.fixture
def beside(tmp_path: Path) -> Path:
    """A kernel and a task that each import what lies beside them; the folder is their owner's alone."""
    folder = tmp_path / "project"
    folder.mkdir(mode=0o700)
    (folder / "kernel_part.py").write_text(KERNEL)
    (folder / "kernel.py").write_text("from kernel_part import sin\n")
    (folder / "task_part.py").write_text(Path(SIN["task"]).read_text())
    (folder / "task.py").write_text("from task_part import *\n")
    return folder


def of(folder: Path) -> dict[str, Any]:
    return {**SMALL, "kernel": str(folder / "kernel.py"), "task": str(folder / "task.py")}


async def test_what_lies_beside_a_kernel_is_imported_where_its_folder_may_be_read(
    settings: Settings, beside: Path
) -> None:
    async with served(settings.model_copy(update={"allow_read": (beside,)})) as call:
        compiled = await call("compile_kernel", **of(beside))
        assert compiled["kind"] == "ok", compiled
        assert compiled["launches"][0]["kernel"] == "sin_kernel"


@pytest.mark.usefixtures("sandbox")
async def test_what_lies_beside_a_kernel_is_not_there_unless_its_folder_may_be_read(
    settings: Settings, beside: Path
) -> None:
    async with served(settings) as call:
        result = await call("compile_kernel", **{**of(beside), "task": SIN["task"]})
        assert (result["kind"], result["problem"]["stage"]) == ("rejected", "load")
        assert "kernel_part" in result["problem"]["message"]
        assert f"--allow-read {beside}" in result["summary"]


def looking(*paths: Path) -> str:
    """A kernel file that fails with what it can read of these paths."""
    return f"""\
import os

def seen(path):
    try:
        return open(path).read() if os.path.isfile(path) else sorted(os.listdir(path))
    except OSError as error:
        return error.strerror

raise ValueError([seen(path) for path in {[str(path) for path in paths]}])
{KERNEL}"""


async def seen_by_a_kernel(call: Call, *paths: Path) -> str:
    result = await call("compile_kernel", **{**SMALL, "kernel": looking(*paths)})
    assert (result["kind"], result["problem"]["stage"]) == ("runtime_error", "load"), result
    message = result["problem"]["message"]
    assert isinstance(message, str)
    return message.removeprefix("ValueError: ")


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """A folder with a state folder in it that holds something."""
    folder = tmp_path / "work"
    (folder / ".tritonforge").mkdir(parents=True)
    (folder / ".tritonforge" / "secret").write_text("secret")
    (folder / "public").write_text("public")
    return folder


@pytest.mark.usefixtures("sandbox")
async def test_the_state_folder_is_hidden_from_kernels_also_in_a_folder_that_they_may_read(stored: Path) -> None:
    state = stored / ".tritonforge"
    async with served(Settings(state_dir=state, allow_read=(stored,))) as call:
        # A stored artifact is hidden like all else, and links to it can still be read by the client.
        assert (await call("compile_kernel", **SMALL))["artifacts"]
        assert sorted(path.name for path in state.iterdir()) == ["artifacts", "secret"]
        seen = await seen_by_a_kernel(call, stored / "public", state, state / "secret")
        assert seen == "['public', [], 'No such file or directory']"


@pytest.mark.usefixtures("sandbox")
async def test_a_state_folder_that_is_made_later_is_hidden_as_well(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    state = folder / "deep" / "state"
    async with served(Settings(state_dir=state, allow_read=(folder,))) as call:
        assert (await call("compile_kernel", **SMALL))["artifacts"]
        assert (state / "artifacts").is_dir()
        assert await seen_by_a_kernel(call, state) == "[[]]"


@pytest.mark.usefixtures("sandbox")
async def test_no_link_leads_kernels_to_the_state_folder(stored: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(stored)
    state = link / ".tritonforge"
    async with served(Settings(state_dir=state, allow_read=(link,))) as call:
        seen = await seen_by_a_kernel(call, stored / "public", state / "secret", stored / ".tritonforge" / "secret")
        assert seen == "['public', 'No such file or directory', 'No such file or directory']"


@pytest.mark.usefixtures("sandbox")
async def test_a_state_folder_that_holds_the_interpreter_is_no_fault() -> None:
    # Nothing is stored in it here.
    seal = await Services(Settings(state_dir=Path(sys.prefix).parent)).executor.seal()
    assert seal.sealed
    assert [layer for layer in seal.layers if not layer.holds] == []


@pytest.mark.usefixtures("sandbox")
async def test_artifacts_are_hidden_also_where_the_whole_state_folder_may_be_read(stored: Path) -> None:
    async with served(Settings(state_dir=stored, allow_read=(stored,))) as call:
        assert (await call("compile_kernel", **SMALL))["artifacts"]
        seen = await seen_by_a_kernel(call, stored / "public", stored / "artifacts")
        assert seen == "['public', []]"


@pytest.mark.parametrize("folder", [".", "bin"])
async def test_a_tool_that_lies_outside_the_systems_folders_can_start_a_worker(
    settings: Settings, tmp_path: Path, folder: str
) -> None:
    # As ncu does, installed by its user.
    tool = tmp_path / "tools" / folder / "tool"
    tool.parent.mkdir(parents=True)
    tool.write_text(f'#!/bin/sh\ncat "{tmp_path}/tools/part" >&2 && exec "$@"\n')
    tool.chmod(0o755)
    (tmp_path / "tools" / "part").write_text("the tool's part")
    async with Services(settings) as services:
        job = Job("capture", target=target_facts(await services.target("h100")).model_dump(), wrapper=[str(tool)])
        async with services.executor.submit(job) as worker:
            assert (await worker.hello())["problem"] is None
            assert "the tool's part" in worker.output()


# A server whose processes are killed by something outside it.


@without_gpu
async def test_a_server_whose_preloader_is_killed_between_two_calls_starts_a_new_one(settings: Settings) -> None:
    # Other tests of this process may keep workers of their own.
    before = set(descendants(os.getpid()))
    check = {**SIN, "cases": ["small"], "seeds": 1}
    async with served(settings) as call:
        assert (await call("run_correctness", **check))["kind"] == "ok"
        started = set(descendants(os.getpid())) - before
        (top,) = [pid for pid in started if parent(pid) == os.getpid() and is_interpreter(pid)]
        below = descendants(top)
        os.kill(top, signal.SIGKILL)
        wait_for_end([top, *below])
        assert (await call("run_correctness", **check))["kind"] == "ok"


def parent(pid: int) -> int:
    # After the command, which may contain anything: state, then the parent's id.
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def is_interpreter(pid: int) -> bool:
    """Whether it is the preloader of Triton's interpreter."""
    command = Path(f"/proc/{pid}/cmdline").read_text()
    return "\0preload\0" in command and '"flavor": "interpret"' in command
