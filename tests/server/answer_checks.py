"""What holds of every tool's result: it fits its schema and a client's window; text and structure each do alone."""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple, cast

import jsonschema
from mcp_types import CallToolResult, Tool

from tests.server.conftest import RESULT_LIMIT, content_of, text_of

NEEDED: Final[Mapping[str, Sequence[str]]] = {
    "hardware_spec": (
        "target.name", "target.product", "target.sm_count", "target.memory_bytes_per_s", "target.l2_bytes",
        "target.peak_bf16_dense_flops_per_s", "target.peak_fp8_dense_flops_per_s",
        "target.peak_tf32_dense_flops_per_s", "target.peak_fp32_flops_per_s", "target.ridge_flops_per_byte",
        "target.registers_per_sm", "target.registers_per_thread", "target.shared_bytes_per_block",
        "target.shared_bytes_per_sm", "target.warps_per_sm", "target.blocks_per_sm", "gpus.*.name",
        "gpus.*.sm_clock_hz", "gpus.*.throttle_reasons.*",
        "measured.read_bytes_per_s", "measured.copy_bytes_per_s", "measured.bf16_flops_per_s", "measured.launch_us",
        "checks.*.name", "checks.*.detail", "checks.*.remedy",
    ),
    "compile_kernel": (
        "target", "launches.*.kernel", "launches.*.case", "launches.*.grid.0", "launches.*.num_warps",
        "launches.*.num_stages", "launches.*.registers", "launches.*.spill_bytes", "launches.*.shared_bytes",
        "launches.*.theoretical_occupancy_pct", "launches.*.occupancy_limiter", "launches.*.mma",
        "launches.*.load_widths_bytes.*", "launches.*.store_widths_bytes.*", "launches.*.code_hash",
        "observations.*.id", "observations.*.title", "observations.*.detail", "observations.*.suggestion",
        "compared_with", "changes.*.facts.*.fact", "explained.*.sass.instructions", "notes.*",
    ),
    "diagnose_kernel": (
        "target", "case", "levels.*.level", "launches.*.kernel", "launches.*.grid.0", "launches.*.duration_us",
        "launches.*.floor_pct", "launches.*.limits.*", "launches.*.findings.*.id", "launches.*.findings.*.title",
        "launches.*.findings.*.line", "launches.*.findings.*.evidence.*", "launches.*.findings.*.cause",
        "launches.*.findings.*.recipe", "launches.*.findings.*.predicted.*.fact",
        "launches.*.findings.*.falsified_by", "launches.*.hypotheses.*.id", "launches.*.unknown.*",
        "verification.verdict", "verification.predictions.*.fact", "verification.gone.*", "notes.*",
    ),
    "run_correctness": (
        "cases.*.case", "cases.*.message", "cases.*.elements", "cases.*.max_abs_error", "cases.*.max_rel_error",
        "made_smaller",
    ),
    "benchmark": (
        "gpu", "score.ratio", "score.ratio_low", "score.ratio_high", "score.comparison", "score.slower_cases.*",
        "cases.*.case", "cases.*.timing", "cases.*.device_us", "cases.*.kernel_us", "cases.*.call_us",
        "cases.*.baseline_device_us", "cases.*.ratio", "cases.*.ratio_low", "cases.*.ratio_high", "cases.*.call_ratio",
        "cases.*.comparison", "cases.*.min_detectable_pct", "cases.*.speed_of_light_pct",
        "cases.*.bound", "cases.*.notes.*", "cases.*.tuned.*.configuration", "cases.*.against.*.name",
        "cases.*.against.*.device_us", "cases.*.against.*.ratio", "cases.*.against.*.reason",
    ),
    "profile_ncu": (
        "gpu", "level", "by", "cases.*.traffic_ratio", "launches.*.kernel", "launches.*.case", "launches.*.duration_us",
        "launches.*.memory_pct", "launches.*.compute_pct", "launches.*.dram_pct", "launches.*.achieved_pct",
        "launches.*.registers", "launches.*.achieved_occupancy_pct", "launches.*.theoretical_occupancy_pct",
        "launches.*.occupancy_limiter", "launches.*.stalls.*.reason", "launches.*.stalls.*.pct",
        "launches.*.causes.*.id", "launches.*.causes.*.text", "launches.*.hotspots.*.line", "launches.*.hotspots.*.pct",
        "launches.*.hotspots.*.l2_excess_pct", "launches.*.lines_note",
        "launches.*.rules.*.name", "launches.*.rules.*.text", "changes.*.field", "changes.*.before", "changes.*.after",
        "notes.*",
    ),
    "tune_kernel": (
        "device", "target", "chosen", "ratio", "ratio_low", "ratio_high", "comparison", "evaluations", "points",
        "compiled", "stopped_because", "left_alone", "cases.*.case", "cases.*.best", "cases.*.baseline_us",
        "cases.*.tuned_us", "cases.*.ratio", "effects.*.knob", "autotune", "notes.*",
    ),
    "start_optimization": (
        "run_id", "cases.*.case", "cases.*.device_us", "cases.*.speed_of_light_pct", "findings.*.id",
        "findings.*.title", "findings.*.line", "hints.*.text", "attempts_left", "hidden_cases",
    ),
    "submit_candidate": (
        "attempt", "verdict", "reasons.*", "score.ratio", "score.ratio_low", "score.ratio_high",
        "versus_incumbent.comparison", "cases.*.case", "cases.*.device_us", "duplicate_of",
        "hints.*.text", "remarks.*", "attempts_left",
    ),
    "get_run": (
        "run_id", "state", "gpu", "incumbent.ratio", "incumbent.attempt", "attempts_left", "budget.attempts",
        "hidden_cases", "suggested_parent.why", "attempts.*.number", "attempts.*.strategy", "runs.*.run_id",
        "verified.ratio", "verified.ratio_low", "lessons.*.strategy",
    ),
    "recall_lessons": (
        "lessons.*.strategy", "lessons.*.finding", "lessons.*.tried", "lessons.*.helped", "lessons.*.gain_pct",
        "lessons.*.gain_low_pct", "lessons.*.gain_high_pct", "lessons.*.why", "lessons.*.device", "lessons.*.stale",
    ),
    "get_playbook": ("roles.*.role", "roles.*.description", "text"),
}  # fmt: skip
"""Tool -> fields that a reader of the text alone can't do without; `*`: of each element."""
FAILING: Final[Mapping[str, Sequence[str]]] = {
    "start_optimization": ("run_id",),
    "run_correctness": (
        "cases.*.case", "cases.*.message", "cases.*.wrong_elements", "cases.*.worst_index.*", "cases.*.worst_expected",
        "cases.*.worst_got",
    ),
}  # fmt: skip
"""The same, where it does not end well."""
OF_FINDINGS: Final = frozenset(
    f"launches.*.findings.*.{field}" for field in ("evidence.*", "cause", "recipe", "predicted.*.fact", "falsified_by")
)
OF_PROBLEMS: Final = ("problem.message", "problem.excerpt", "problem.likely_cause", "problem.likely_fix")
ENDS_WELL: Final = ("ok", "running")
PREFIXES: Final = {
    "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30,
}  # fmt: skip
FIGURE: Final = re.compile(
    r"(?<![\w.#-])([-+]?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]\d+)?)(?!\d|\.\d|,\d{3}|[0-9a-f]{4})"
    r"(?: ?([kMGT]i?)(?:B|Hz|FLOP))?"
)
FLOPS: Final = 1e12
"""Peaks stand in a list whose unit is told once, before it."""
LEVEL: Final = 95.0
"""Of intervals, in percent: words say it, and the schema."""
ARCHITECTURE: Final = re.compile(r"sm_(\d+)")


class Figure(NamedTuple):
    """A number as a text has it."""

    written: str
    value: float
    step: float
    """Of its last digit."""


def stands(result: CallToolResult, tool: Tool, kind: str) -> dict[str, Any]:
    """Check a result of any tool.

    Args:
        result: what a client got.
        tool: as the client was told of it.
        kind: how it has to end.

    Returns:
        Field of `NEEDED` -> what the result has there, without fields of which it has nothing.
    """
    content, text = content_of(result), text_of(result)
    assert content["kind"] == kind, text
    _validator(json.dumps(tool.output_schema)).validate(content)
    for form in (text, json.dumps(content, ensure_ascii=False)):
        assert len(form) <= RESULT_LIMIT
    _text_does_alone(content, text, kind)
    _structure_does_alone(content, text, kind)
    found: dict[str, Any] = {}
    for path in needed(tool.name, content):
        values = [value for value in _at(content, path.split(".")) if value not in (None, "", {})]
        if kind not in ENDS_WELL:
            # What was not come to has nothing to tell.
            values = [value for value in values if value != 0]
        missing = [value for value in values if not said(value, text)]
        assert missing == [], f"{path} = {missing} is not in the text:\n{text}"
        if values:
            found[path] = values
    return found


@cache
def _validator(schema: str) -> Any:
    """Of a tool's results; a schema that is none is found here."""
    read = json.loads(schema)
    jsonschema.Draft202012Validator.check_schema(read)
    return jsonschema.Draft202012Validator(read)


def needed(tool: str, content: dict[str, Any]) -> Sequence[str]:
    """Fields that a text has to tell.

    get_run may be about one attempt alone; beside another file diagnose_kernel is short on findings that are gone.
    """
    if content["kind"] not in ENDS_WELL and tool in FAILING:
        return (*OF_PROBLEMS, *FAILING[tool])
    if tool == "diagnose_kernel" and content["verification"] is not None:
        return (*OF_PROBLEMS, *(path for path in NEEDED[tool] if path not in OF_FINDINGS))
    about_attempt = tool == "get_run" and content["attempt"] is not None
    return (*OF_PROBLEMS, *NEEDED["submit_candidate" if about_attempt else tool])


def _text_does_alone(content: dict[str, Any], text: str, kind: str) -> None:
    """How it ended, what to do next, where more is."""
    assert text.startswith(content["summary"])
    in_words = {"ok": "", "running": "being evaluated"}.get(kind, kind.replace("_", " "))
    assert in_words in text.lower().replace("_", " ")
    assert content["next_step"] is None or content["next_step"] in text
    assert all(uri in text for uri in content["artifacts"])


def _structure_does_alone(content: dict[str, Any], text: str, kind: str) -> None:
    """Fields beside the summary tell how it ended, what went wrong, and every figure that the text has."""
    assert content["summary"].strip()
    if kind in ENDS_WELL:
        assert content["problem"] is None
    else:
        assert content["problem"]["stage"]
        assert content["next_step"]
    fields = {name: value for name, value in content.items() if name != "summary"}
    known = [LEVEL, *_numbers(fields)]
    unknown = [figure.written for figure in figures(text) if not any(_is(figure, number) for number in known)]
    assert unknown == [], f"only the text has {unknown}:\n{text}"


@cache
def figures(text: str) -> Sequence[Figure]:
    """The numbers in a text."""
    found: list[Figure] = []
    for match in FIGURE.finditer(text):
        written, prefix = match[1], match[2]
        plain = written.replace(",", "")
        mantissa, _, exponent = plain.partition("e")
        step = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
        scale = PREFIXES.get(prefix or "", 1.0)
        found.append(Figure(match[0], float(plain) * scale, step * scale))
    return found


def _is(figure: Figure, number: float) -> bool:
    """Whether a figure is this number, rounded; shares may be told in percent."""
    return any(
        math.isclose(abs(figure.value), abs(each), rel_tol=1e-9, abs_tol=0.5001 * figure.step)
        for each in (number, 100 * number, *([number / FLOPS] if abs(number) >= FLOPS else []))
    )


def _numbers(value: Any) -> Iterator[float]:
    """All that a structure tells: its numbers, those in its words, and how many elements it has."""
    match value:
        case bool() | None:
            return
        case int() | float():
            yield float(value)
        case str():
            yield from (figure.value for figure in figures(value))
            # In words it is the compute capability.
            yield from (int(digits) / 10 for digits in ARCHITECTURE.findall(value))
        case dict():
            fields = cast(dict[str, Any], value)
            yield float(len(fields))
            for name, each in fields.items():
                yield from _numbers(name)
                yield from _numbers(each)
        case list():
            elements = cast(list[Any], value)
            yield float(len(elements))
            for each in elements:
                yield from _numbers(each)
        case _:
            raise TypeError(value)


def _at(content: Any, path: Sequence[str]) -> Iterator[Any]:
    """What is there; a field that the schema does not have is a mistake of the path."""
    if content is None or not path:
        yield content
        return
    step, *rest = path
    for each in content if step == "*" else [content[int(step) if step.isdecimal() else step]]:
        yield from _at(each, rest)


def said(value: Any, text: str) -> bool:
    """Whether a text tells a value: a number with the digits that it writes, words as they are, pairs one by one."""
    match value:
        case bool():
            raise TypeError("yes and no have no words of their own")
        case int() | float():
            return any(_is(figure, value) for figure in figures(text))
        case str():
            return _plain(value) in _plain(text)
        case dict():
            pairs = cast(dict[str, Any], value)
            return all(said(name, text) and (each is None or said(each, text)) for name, each in pairs.items())
        case _:
            raise TypeError(value)


def _plain(text: str) -> str:
    return " ".join(text.split()).replace("_", " ").lower()
