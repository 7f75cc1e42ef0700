"""The command line: no subcommand serves MCP over stdio; the others work from a shell or a script."""

import argparse
import gc
import json
import math
import os
import select
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

import anyio

from .. import __version__
from ..sandbox.executors.end import abandon
from .adapters.arguments import add_commands as add_adapt_command
from .call_words import CallHelp, kinds, option, shell_lines
from .campaign.arguments import add_commands as add_campaign_command
from .http_arguments import Endpoint, Unusable, add_http, endpoint
from .install import arguments as install_arguments
from .number_words import numeric, whole
from .optimize.arguments import add_commands as add_headless_commands
from .runs_arguments import add_commands
from .settings import Settings, from_environment

if TYPE_CHECKING:
    from mcp.client import Client
    from mcp_types import CallToolResult

OK: Final = 0
FAILED: Final = 1
MISUSE: Final = 2

BEGIN_JOBS: Final = frozenset({"start_optimization", "submit_candidate"})
"""Tools whose work goes on behind their answer."""
POLL_S: Final = 30

EPILOG: Final = """\
examples:
  tritonforge-mcp                      serve MCP over stdio (what an MCP client starts)
  tritonforge-mcp serve --http         serve MCP over HTTP on 127.0.0.1:8000, to several clients
  tritonforge-mcp install claude       add it to Claude Code (or codex, gemini, vscode, cursor)
  tritonforge-mcp doctor               what works on this machine, and why not
  tritonforge-mcp demo                 the loop on one small kernel, without a GPU too
  tritonforge-mcp call compile_kernel --kernel k.py --task t.py --target h100 --json
  tritonforge-mcp runs list            optimization runs that are kept here
  tritonforge-mcp runs export RUN      the best kernel of a run, with a patch and a record
  tritonforge-mcp verify DIR           check such an export on this machine
  tritonforge-mcp optimize k.py --task t.py --agent claude --rounds 8   a run without a person
"""


def run(arguments: Sequence[str]) -> int:
    """Run the command line; returns the exit code: 0 ok, 1 an outcome other than ok, 2 misuse."""
    try:
        code = _run(arguments)
        if not sys.stdout.closed:
            sys.stdout.flush()
    except (BrokenPipeError, ExceptionGroup):
        if not _is_unread():
            raise
        # Whoever reads has seen enough, as `head` has.
        _end_at_once(signal.SIGPIPE, None)
    return code


def _is_unread() -> bool:
    """Whether standard output is a pipe that nobody reads any more."""
    output = select.poll()
    output.register(sys.stdout.fileno(), 0)
    return any(event & select.POLLERR for _, event in output.poll(0))


def _run(arguments: Sequence[str]) -> int:
    # Options of `call` after the tool's name are the tool's own.
    parser = _parser()
    known, rest = parser.parse_known_args(arguments)
    if rest and known.command != "call":
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    settings = from_environment(
        python=getattr(known, "python", None),
        state_dir=getattr(known, "state_dir", None),
        require_sandbox=getattr(known, "require_sandbox", False),
        allow_read=[*getattr(known, "allow_read_first", []), *getattr(known, "allow_read", [])],
        spares=getattr(known, "spares", None),
        gpu_spares=getattr(known, "gpu_spares", None),
        idle_s=getattr(known, "idle_s", None),
        memory_gb=getattr(known, "memory_gb", None),
        gpu_memory_gb=getattr(known, "gpu_memory_gb", None),
        without=getattr(known, "without", None) or (),
    )
    for folder in settings.allow_read:
        if not folder.is_dir():
            return _misuse(f"--allow-read (or TRITONFORGE_ALLOW_READ): there is no folder {folder}")
    try:
        served_at = endpoint(known)
    except Unusable as unusable:
        return _misuse(str(unusable))
    _own_signals()
    match known.command:
        case None | "serve":
            return _serve(settings, served_at)
        case "doctor":
            from .doctor import doctor
            from .profiling_probe import probe_counters

            return anyio.run(partial(doctor, settings, known.json, probe=probe_counters))
        case "demo":
            from .demo import demo

            return anyio.run(demo, settings)
        case "runs" | "lessons" | "verify":
            from .runs_cli import run_command

            return run_command(settings, known, say=print, tell=_tell)
        case "optimize":
            from .optimize.command import run_optimize

            return run_optimize(settings, known, say=print, tell=_tell)
        case "evaluate":
            from .evaluate_cli import run_evaluate

            return run_evaluate(settings, known, say=print, tell=_tell)
        case "campaign":
            from .campaign.command import run_campaign

            return run_campaign(settings, known, say=print, tell=_tell)
        case "adapt":
            from .adapt_cli import run_adapt

            return run_adapt(settings, known, say=print, tell=_tell)
        case "install" | "uninstall":
            from .install.command import run_command as run_install

            return run_install(settings, known, say=print, tell=_tell)
        case _:
            return _call(settings, known.tool, rest, known.json)


def _shared(allow_read: str) -> argparse.ArgumentParser:
    """Options before and after the command; what is given after it replaces what was given before under that name."""
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument(
        "--python",
        metavar="PATH",
        default=argparse.SUPPRESS,
        help="interpreter of the workers, with torch and triton: the one your model runs in (default: this one; "
        "also TRITONFORGE_PYTHON)",
    )
    shared.add_argument(
        "--state-dir",
        metavar="DIR",
        default=argparse.SUPPRESS,
        help="where reports and other artifacts are kept (default: .tritonforge; also TRITONFORGE_STATE_DIR)",
    )
    shared.add_argument(
        "--require-sandbox",
        action="store_true",
        default=argparse.SUPPRESS,
        help="refuse to run kernels where this machine allows no sandbox (also TRITONFORGE_REQUIRE_SANDBOX=1)",
    )
    shared.add_argument(
        "--allow-read",
        metavar="DIR",
        action="append",
        dest=allow_read,
        default=argparse.SUPPRESS,
        help="a folder that sandboxed kernels and tasks may read and import from; may be repeated (also "
        "TRITONFORGE_ALLOW_READ, separated by colons)",
    )
    for name, kind, text in WORKER_OPTIONS:
        shared.add_argument(f"--{name}", metavar="N", type=kind, default=argparse.SUPPRESS, help=text)
    return shared


SPARES_LIMIT: Final = 64


_count: Final = whole(0, SPARES_LIMIT)
_amount: Final = numeric("number above 0", float, lambda found: 0 < found < math.inf)
WORKER_OPTIONS: Final = (
    ("spares", _count, "workers kept ready for the CPU, and as many for Triton's interpreter (default: 2)"),
    ("gpu-spares", _count, "workers kept ready on the GPU, about 0.6 GB of its memory each (default: 6)"),
    ("idle-s", _amount, "seconds without use after which ready workers are ended (default: 600)"),
    ("memory-gb", _amount, "host memory that one worker may take (default: half of the machine's)"),
    ("gpu-memory-gb", _amount, "GPU memory that one worker may take (default: all of it)"),
)


def _parser() -> argparse.ArgumentParser:
    shared = _shared("allow_read")
    parser = argparse.ArgumentParser(
        prog="tritonforge-mcp",
        description="MCP tool server that makes Triton kernels faster with evidence. Without a command it serves MCP "
        "over stdio.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[_shared("allow_read_first")],
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"tritonforge-mcp {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command")
    serve = commands.add_parser("serve", parents=[shared], help="serve MCP over stdio (the default) or HTTP")
    add_http(serve)
    serve.add_argument(
        "--without", metavar="TOOL", action="append", help="offer no such tool, nor use it in runs; may be repeated"
    )
    doctor = commands.add_parser("doctor", parents=[shared], help="what works on this machine, and why not")
    doctor.add_argument("--json", action="store_true", help="print the checks as JSON")
    commands.add_parser("demo", parents=[shared], help="show the loop on one small kernel; needs no GPU")
    call = commands.add_parser(
        "call",
        parents=[shared],
        help="run one tool through the same path as an MCP client",
        usage="tritonforge-mcp call TOOL [--key value ...] [--json]",
        allow_abbrev=False,
        add_help=False,
    )
    call.add_argument("-h", "--help", action=CallHelp)
    call.add_argument("tool", metavar="TOOL", help="one of the tools below")
    call.add_argument("--json", action="store_true", help="print exactly the structured result")
    add_commands(commands, shared)
    add_headless_commands(commands, shared)
    add_adapt_command(commands, shared)
    add_campaign_command(commands, shared)
    install_arguments.add_commands(commands, shared)
    return parser


def _serve(settings: Settings, at: Endpoint | None) -> int:
    from .app import build_server

    try:
        server = build_server(settings)
    except Unusable as unusable:
        return _misuse(str(unusable))
    gc.freeze()
    gc.enable()
    if at is None:
        from .stdio_server import serve_stdio

        anyio.run(serve_stdio, server)
        return OK
    from .http_server import serve_http

    try:
        anyio.run(serve_http, server, at, _tell)
    except Unusable as unusable:
        return _misuse(str(unusable))
    return OK


def _own_signals() -> None:
    """A server ends only when its input does, but clients also send signals; and no worker may outlive any command."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end_at_once)


def _end_at_once(number: int, frame: FrameType | None) -> NoReturn:
    abandon()
    os._exit(128 + number)


def _call(settings: Settings, tool: str, rest: list[str], as_json: bool) -> int:
    from mcp.client import Client

    from .app import build_server

    async def call() -> int:
        async with Client(build_server(settings)) as client:
            tools = {found.name: found for found in (await client.list_tools()).tools}
            if tool not in tools:
                return _misuse(f"there is no tool {tool!r}; the tools are {', '.join(tools)}")
            try:
                arguments = parse_arguments(rest, tools[tool].input_schema)
            except ValueError as error:
                return _misuse(str(error))
            result = await (finished if tool in BEGIN_JOBS else Client.call_tool)(client, tool, arguments)
            text = "\n".join(str(getattr(block, "text", "")) for block in result.content)
            if result.is_error:
                return _misuse(text)
            structured = cast(dict[str, Any], result.structured_content)
            if as_json:
                print(json.dumps(structured, indent=2))
            else:
                known = {name for found in tools.values() for name in found.input_schema.get("properties", {})}
                print("\n".join([text, *shell_lines(text, structured["artifacts"], settings.state_dir, known)]))
            return OK if structured["kind"] == "ok" else FAILED

    return anyio.run(call)


async def finished(client: "Client", tool: str, arguments: dict[str, Any]) -> "CallToolResult":
    """What a tool says that begins a job, once the job is over: with this process it would end."""
    from .tools.parameters import WAIT_LIMIT_S

    told = ""

    async def watch(progress: float, total: float | None, message: str | None) -> None:
        nonlocal told
        if message and message != told:
            told = message
            _tell(message)

    # As long as it is allowed to: its own answer says more than get_run's.
    result = await client.call_tool(tool, {"wait_s": WAIT_LIMIT_S, **arguments}, progress_callback=watch)
    first: dict[str, Any] = result.structured_content or {}
    while not result.is_error and result.structured_content["kind"] == "running":
        again = {"run_id": first["run_id"], "attempt": first.get("attempt") or 0, "wait_s": POLL_S}
        result = await client.call_tool("get_run", again, progress_callback=watch)
    return result


NUMBERS: Final[dict[str, tuple[Callable[[str], float], str]]] = {
    "integer": (int, "whole number"),
    "number": (float, "number"),
}


def parse_arguments(rest: Sequence[str], schema: dict[str, Any]) -> dict[str, Any]:
    """``--key value`` pairs as arguments of a tool with this input schema.

    Dashes in keys stand for underscores; a list is given as a,b or by repeating the key; ``--key=value`` works too.

    Raises:
        ValueError: an unknown key, a key without a value, a repeated scalar, or a value of the wrong type.
    """
    properties: dict[str, Any] = schema.get("properties", {})
    arguments: dict[str, Any] = {}
    words = list(rest)
    while words:
        word = words.pop(0)
        if not word.startswith("--"):
            raise ValueError(f"{word!r} stands alone; arguments are given as --key value")
        key, has_value, value = word[2:].partition("=")
        name = key.replace("-", "_")
        if name not in properties:
            shown = ", ".join(map(option, properties))
            raise ValueError(f"there is no argument --{key}; there are {shown}")
        types = kinds(properties[name])
        if "boolean" in types and not has_value and (not words or words[0].startswith("--")):
            has_value, value = "=", "true"
        if not has_value:
            if not words:
                raise ValueError(f"--{key} needs a value")
            value = words.pop(0)
        if "array" in types:
            arguments.setdefault(name, []).extend(part for part in value.split(",") if part)
        elif name in arguments:
            raise ValueError(f"--{key} is given twice")
        elif types & NUMBERS.keys():
            kind, words_for_it = NUMBERS["integer" if "integer" in types else "number"]
            try:
                arguments[name] = kind(value)
            except ValueError:
                raise ValueError(f"--{key} must be a {words_for_it}, not {value!r}") from None
        else:
            arguments[name] = value
    missing = [name for name in schema.get("required", []) if name not in arguments]
    if missing:
        raise ValueError(f"missing: {', '.join(map(option, missing))}")
    return arguments


def _misuse(message: str) -> int:
    _tell(message)
    return MISUSE


def _tell(message: str) -> None:
    """Standard output holds results only."""
    print(f"tritonforge-mcp: {message}", file=sys.stderr, flush=True)
