# pyright: basic
# Nsight Compute's Python module has no types.
"""Reads a report of Nsight Compute through NVIDIA's own module, which comes with the profiler."""

from __future__ import annotations

import importlib.util
import json
import math
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

STAGE = "profile"
READER_NAME = "ncu_report"
READER = f"{READER_NAME}.py"
RULES_LIMIT = 100
TEXT_LIMIT = 2000
FUNCTION_LIMIT_BYTES = 64 << 20
"""No function is longer; an address farther away than this is no start of it."""

SAMPLED = "smsp__pcsamp_"
SAMPLED_REASONS = f"{SAMPLED}warps_issue_stalled_"
BY_INSTRUCTION = frozenset(
    {
        "inst_executed",
        "thread_inst_executed",
        "thread_inst_executed_true",
        f"{SAMPLED}sample_count",
        "smsp__branch_targets_threads_divergent",
        "memory_l1_tag_requests_global",
        "memory_l1_wavefronts_shared",
        "memory_l1_wavefronts_shared_ideal",
        "memory_l2_theoretical_sectors_global",
        "memory_l2_theoretical_sectors_global_ideal",
        "memory_l2_theoretical_sectors_local",
    }
)
"""What the section SourceCounters counts at each instruction, beside the stall reasons."""

_RULE_TYPES = {"OPTIMIZATION": "OPT", "WARNING": "WRN", "ERR": "ERR"}
# Links in messages: `@section:Identifier:Label@`, `@url:Label:https://...@`, `@source:file:12:text@`, `@sass:12:text@`.
_URL = re.compile(r"@url:([^:@]*):[^@]*@")
_LINK = re.compile(r"@(?:section:[^:@]*|source:[^:@]*:\d+|sass:[^:@]*):([^@]*)@")


class Unreadable(Exception):
    """This machine can't read the report; the message says why."""


def read(
    path: str, reader_folder: str, wanted: Iterable[str], launches_limit: int, blobs: list[Any], *, texts: bool
) -> dict[str, Any]:
    """The fields of a report: ``launches``, an index into ``blobs`` where they stand as JSON, and ``left_out``.

    Args:
        path: the report.
        reader_folder: where the profiler keeps ``ncu_report.py``.
        wanted: names of metrics to return; others are left out.
        launches_limit: how many launches are read, from the first.
        blobs: what the reply carries; the launches are added.
        texts: tell the machine instructions, which takes 0.4 s a launch (ncu 2025.3.1, 274 instructions).

    Raises:
        Unreadable: the profiler's module can't be loaded, or it can't read this report.
    """
    module = load_reader(reader_folder)
    try:
        context = module.load_report(path)
        ranges = [context.range_by_idx(index) for index in range(context.num_ranges())]
        actions = [part.action_by_idx(index) for part in ranges for index in range(part.num_actions())]
    except (AttributeError, OSError, RuntimeError, TypeError, ValueError) as error:
        raise Unreadable(f"the profiler's own reader can't open its report: {error}"[:500]) from error
    names = list(wanted)
    launches = [_launch(module, action, names, texts=texts) for action in actions[:launches_limit]]
    blobs.append(json.dumps(launches, allow_nan=False).encode())
    return {"launches": len(blobs) - 1, "left_out": max(len(actions) - launches_limit, 0)}


def load_reader(folder: str) -> ModuleType:
    """NVIDIA's module, from the file in this folder and no other. It is no dependency: without it nothing is read.

    Raises:
        Unreadable: it isn't there or doesn't load in this interpreter.
    """
    path = str(Path(folder) / READER)
    loaded = sys.modules.get(READER_NAME)
    if loaded is not None and loaded.__file__ == path:
        return loaded
    spec = importlib.util.spec_from_file_location(READER_NAME, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # It imports its native half from beside it.
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except (ImportError, OSError, SyntaxError) as error:
        message = (
            f"{READER} of Nsight Compute can't be loaded from {folder}: {error}. It comes with Nsight Compute "
            "2022.1 and newer in extras/python and needs the native library beside it; install the whole package"
        )
        raise Unreadable(message[:1000]) from error
    finally:
        sys.path.remove(folder)
    sys.modules[READER_NAME] = module
    return module


def _launch(module: ModuleType, action: Any, wanted: list[str], *, texts: bool) -> dict[str, Any]:
    files: list[str] = []
    table = _instructions(action, files, texts=texts)
    return {
        "kernel": _text(action.name()),
        "metrics": _metrics(action, wanted),
        "rules": [_rule(module, rule) for rule in action.rule_results_as_dicts()[:RULES_LIMIT]],
        "files": files,
        "instructions": table,
    }


def _metrics(action: Any, wanted: list[str]) -> dict[str, dict[str, Any]]:
    found = {}
    for name in wanted:
        metric = action.metric_by_name(name)
        if metric is not None and (value := _plain(metric.value())) is not None:
            found[name] = {"value": value, "unit": _text(metric.unit())}
    return found


def _plain(value: Any) -> float | str | None:
    """A finite number or a text; None for what is neither."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int | float) and math.isfinite(value):
        return value
    return None


def _rule(module: ModuleType, rule: dict[str, Any]) -> dict[str, Any]:
    message = rule["rule_message"]
    types = {int(getattr(module, f"MsgType_{name}", -1)): short for name, short in _RULE_TYPES.items()}
    speedups = {int(getattr(module, f"SpeedupType_{name}", -1)): name.lower() for name in ("LOCAL", "GLOBAL")}
    estimate = rule.get("speedup_estimation") or {}
    kind, gain = speedups.get(int(estimate.get("type", -2))), _plain(estimate.get("speedup"))
    return {
        "section": _text(rule["section_identifier"]),
        "name": _text(rule["rule_identifier"]),
        "type": types.get(int(message["type"]), "INF"),
        "title": _without_links(message["title"]),
        "message": _without_links(message["message"]),
        "speedup_type": kind,
        "speedup_pct": gain if kind is not None and isinstance(gain, int | float) else None,
    }


def _without_links(text: Any) -> str:
    return _text(" ".join(_LINK.sub(r"\1", _URL.sub(r"\1", str(text))).split()))


def _text(value: Any) -> str:
    """Bounded, and without lone surrogates, which would make the whole reply unreadable above."""
    return str(value)[:TEXT_LIMIT].encode("utf-8", "backslashreplace").decode()[:TEXT_LIMIT]


def _instructions(action: Any, files: list[str], *, texts: bool) -> dict[str, Any] | None:
    """The table of what was counted by instruction; names of source files are added to ``files``."""
    counted: dict[str, dict[int, float]] = {}
    for name in action.metric_names():
        if name in BY_INSTRUCTION or (name.startswith(SAMPLED_REASONS) and not name.endswith("_not_issued")):
            metric = action.metric_by_name(name)
            if metric is not None and metric.num_instances() and metric.has_correlation_ids():
                counted[name] = _by_address(metric)
    addresses = sorted({address for at in counted.values() for address in at})
    if not addresses:
        return None
    start = _start(action, addresses[0])
    indices: dict[str, int] = {}
    table: dict[str, Any] = {"offset": [], "sass": [], "file": [], "line": []}
    for address in addresses:
        source = action.source_info(address)
        name = "" if source is None else _text(source.file_name())
        line = 0 if source is None else int(source.line())
        known = bool(name) and line > 0
        table["offset"].append(address - start)
        table["sass"].append(" ".join(_text(action.sass_by_pc(address) or "").split()) if texts else "")
        table["file"].append(indices.setdefault(name, len(indices)) if known else -1)
        table["line"].append(line if known else 0)
    files.extend(indices)
    # An instruction that a table doesn't list was not counted once: a sampler lists what it met.
    table["counts"] = {name: [at.get(address, 0) for address in addresses] for name, at in counted.items()}
    return table


def _by_address(metric: Any) -> dict[int, float]:
    addresses = metric.correlation_ids()
    found: dict[int, float] = {}
    for index in range(metric.num_instances()):
        value = _plain(metric.value(index))
        if isinstance(value, int | float):
            found[int(addresses.value(index))] = value
    return found


def _start(action: Any, first: int) -> int:
    """Where the function begins: as the report tells it, otherwise at its first instruction that was listed."""
    metric = action.metric_by_name("launch__function_pcs")
    told = [] if metric is None else [_plain(metric.value(index)) for index in range(metric.num_instances())]
    near = [int(at) for at in told if isinstance(at, int) and 0 <= first - at < FUNCTION_LIMIT_BYTES]
    return max(near, default=first)
