"""Completions: values that an argument of a prompt, or a variable of a resource's template, can have here."""

import ast
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import anyio
from mcp.server.mcpserver import MCPServer
from mcp_types import (
    Completion,
    CompletionArgument,
    CompletionContext,
    PromptReference,
    ResourceTemplateReference,
)

from ..profiling.hardware.catalog import target_names
from ..prompts.roles import SOURCE
from ..sandbox.errors import Stopped
from ..sandbox.source import read_source
from .runs.record import Run
from .runs.store import Store

LIMIT: Final = 100
"""Of values: the protocol's."""
RUN: Final = "run_id"
FILES: Final = frozenset({"kernel", "task"})
OF_RUNS: Final = FILES | {RUN, "entry"}
ATTEMPTS: Final = frozenset({"attempt", "number"})


def register(server: MCPServer[Any], store: Store) -> None:
    """Answer completion requests, for prompts and resource templates alike: a name means the same in both.

    Args:
        server: what answers.
        store: where the runs are kept that are offered.
    """

    @server.completion()
    async def _complete(  # pyright: ignore[reportUnusedFunction]
        ref: PromptReference | ResourceTemplateReference,
        argument: CompletionArgument,
        context: CompletionContext | None,
    ) -> Completion:
        known = (context.arguments if context is not None else None) or {}

        def values() -> list[str]:
            try:
                return matching(_values(store, argument.name, known), argument.value)
            except Stopped:
                # Nobody asked for anything yet: what is wrong is told when they do.
                return []

        found = await anyio.to_thread.run_sync(values)
        return Completion(values=found[:LIMIT], total=len(found), has_more=len(found) > LIMIT)


def matching(values: Iterable[str], typed: str) -> list[str]:
    """Each value once that begins with what was typed, then those that hold it elsewhere; their order is kept."""
    wanted = typed.strip().lower()
    distinct = list(dict.fromkeys(values))
    begin = [value for value in distinct if value.lower().startswith(wanted)]
    return begin + [value for value in distinct if wanted in value.lower() and value not in begin]


def _values(store: Store, name: str, known: Mapping[str, str]) -> Sequence[str]:
    """All that an argument can be here.

    Args:
        store: where runs are kept.
        name: the argument's.
        known: other arguments that are given already.

    Raises:
        Stopped: a run or a file that is named can't be read.
    """
    run_id = known.get(RUN, "").strip()
    # A folder is not made because somebody types.
    runs = store.kept().runs if name in OF_RUNS and store.folder.is_dir() else []
    match name:
        case "run_id":
            return [run.frozen.run_id for run in runs]
        case "target":
            return target_names()
        case "case" | "cases":
            return store.run(run_id).frozen.cases if run_id else cases_of(known.get("task", ""))
        case _ if name in FILES:
            return [path for run in runs for path in _paths(run, name)]
        case _ if name in ATTEMPTS and run_id:
            return [str(attempt.number) for attempt in reversed(store.attempts(run_id))]
        case "entry":
            return [run.frozen.entry for run in runs]
        case _:
            return []


def _paths(run: Run, name: str) -> list[str]:
    path = run.frozen.kernel_shown_as if name == "kernel" else run.frozen.task_shown_as
    return [] if path == SOURCE else [path]


def cases_of(task: str) -> list[str]:
    """Names of a task's visible cases, where they are written out; the file is parsed and never run.

    Args:
        task: path of the task file, or its source text.

    Raises:
        Stopped: ``rejected``: it can't be read.
    """
    if not task.strip():
        return []
    try:
        body = ast.parse(read_source(task, "task").text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    for statement in body:
        match statement:
            case ast.Assign(targets=[ast.Name(id="CASES")], value=ast.Dict(keys=keys)):
                return [key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
            case ast.AnnAssign(target=ast.Name(id="CASES"), value=ast.Dict(keys=keys)):
                return [key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
            case _:
                pass
    return []
