"""demo: the loop on examples/sin, through the same server that an MCP client talks to."""

import math
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

from mcp.client import Client

from .app import build_server
from .install.command import running_command
from .settings import Settings

FACTS: Final[tuple[tuple[str, Callable[[dict[str, Any]], object]], ...]] = (
    ("programs", lambda launch: math.prod(launch["grid"])),
    ("elements a program", lambda launch: launch["elements_per_program_max"]),
    ("registers a thread", lambda launch: launch["registers"]),
    ("spilled bytes", lambda launch: launch["spill_bytes"]),
    ("theoretical occupancy, %", lambda launch: launch["theoretical_occupancy_pct"]),
    ("load widths, bytes", lambda launch: "/".join(map(str, launch["load_widths_bytes"]))),
    ("store widths, bytes", lambda launch: "/".join(map(str, launch["store_widths_bytes"]))),
    ("machine code", lambda launch: launch["code_hash"]),
)
CASE = "large"


def examples_folder() -> Path:
    """The examples: beside the packages in an installed wheel, at the top of a checkout."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "examples", package.parent / "examples", package.parents[1] / "examples"):
        if (folder / "sin" / "task.py").is_file():
            return folder
    raise FileNotFoundError(f"the examples are missing from this installation (looked beside {package})")


async def demo(settings: Settings) -> int:
    """Run the demo; 0 when every step ended as it should."""
    folder = examples_folder() / "sin"
    task, baseline, candidate = (str(folder / f"{name}.py") for name in ("task", "baseline", "candidate"))
    async with Client(build_server(settings)) as client:
        show = _Show(client)
        spec = await show("1. What we optimize for, and what works here", "hardware_spec", target="h100")
        first = await show("2. What the compiler made of the baseline", "compile_kernel", kernel=baseline, task=task,
                           target="h100", cases=[CASE])  # fmt: skip
        second = await show("3. A candidate: a block of 1,024 instead of 4", "compile_kernel", kernel=candidate,
                            task=task, target="h100", cases=[CASE])  # fmt: skip
        why = await show("4. Why is the baseline slow, and did that edit reach the compiler?", "diagnose_kernel",
                         kernel=baseline, task=task, target="h100", case=CASE, verify_with=candidate)  # fmt: skip
        right = await show("5. Is the candidate right?", "run_correctness", kernel=candidate, task=task)
        _say("6. The facts compared (h100)")
        if first["kind"] == "ok" and second["kind"] == "ok":
            _say(_table(first["launches"][0], second["launches"][0]))
        timed = await show("7. Is it faster?", "benchmark", kernel=candidate, task=task, baseline=baseline)
        profiled = await show("8. What limits it now?", "profile_ncu", kernel=candidate, task=task)
    needed = (spec, first, second, why, right)
    optional_ok = all(result["kind"] in {"ok", "unavailable"} for result in (timed, profiled))
    good = all(result["kind"] == "ok" for result in needed) and optional_ok
    measured = timed["kind"] == profiled["kind"] == "ok"
    works = (
        "The whole loop works here." if measured else "Compiling and checking work here; timing and profiling do not."
    )
    _say(
        f"{works} Next, a file of yours that calls its kernel, with or without a GPU:\n"
        f"  {program()} call diagnose_kernel --kernel my_kernel.py\n"
        "README.md shows the whole way, and how to add the server to your agent."
        if good
        else "A step failed: `tritonforge-mcp doctor` tells what is missing."
    )
    return 0 if good else 1


def program() -> str:
    """How this program is started from a shell, whether or not its environment is active."""
    return shlex.join(running_command(sys.argv[0], sys.executable))


class _Show:
    """Calls a tool and prints its text under a heading."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def __call__(self, heading: str, tool: str, **arguments: Any) -> dict[str, Any]:
        _say(f"{heading}  [{tool}]")
        result = await self._client.call_tool(tool, arguments)
        _say("\n".join(str(getattr(block, "text", "")) for block in result.content) + "\n")
        return cast(dict[str, Any], result.structured_content)


def _table(baseline: dict[str, Any], candidate: dict[str, Any]) -> str:
    rows = [("", "baseline", "candidate")]
    rows += [(name, _cell(read(baseline)), _cell(read(candidate))) for name, read in FACTS]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "\n".join(f"  {name:<{widths[0]}}  {one:>{widths[1]}}  {two:>{widths[2]}}" for name, one, two in rows) + "\n"


def _cell(value: object) -> str:
    if value is None:
        return "unknown"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _say(text: str) -> None:
    print(text, flush=True)
