"""All five tools on the three examples, through an MCP client over stdio, on a machine with a GPU.

Writes the evidence as Markdown and JSON: speed-ups with their intervals, and the profiler's duration beside the
benchmark's kernel time (in time, and in SM cycles, which a power limit does not change).

Run: python tests/benchmarks/loop_on_gpu.py --out FOLDER [--agreement NAME/CASE ...]

``--agreement``: only these cases, and of the tools only the two that tell times.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from datetime import date
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import anyio
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PROFILED = {"sin": ["large"], "softmax": ["train", "decode"], "matmul": ["square", "tall"]}
AGREEMENT_PCT = 3.0
AGREEMENT_FROM_US = 20.0


class Loop:
    """Calls tools and keeps what they returned."""

    def __init__(self, client: Client, log: list[str]) -> None:
        self._client = client
        self._log = log
        self.results: dict[str, Any] = {}

    async def call(self, label: str, tool: str, **arguments: Any) -> dict[str, Any]:
        started = time.perf_counter()
        result = await self._client.call_tool(tool, arguments)
        elapsed = time.perf_counter() - started
        text = "\n".join(str(getattr(block, "text", "")) for block in result.content)
        structured = cast(dict[str, Any], result.structured_content or {"kind": "protocol error"})
        self._log.append(f"### {label}: {tool} ({elapsed:.1f} s)\n\n```text\n{text}\n```\n")
        print(f"{label:24} {tool:16} {structured['kind']:12} {elapsed:6.1f} s", flush=True)
        if structured["kind"] != "ok":
            print(text, flush=True)
        self.results[f"{label}/{tool}"] = structured
        return structured


async def run(
    log: list[str], profiled: dict[str, list[str]], *, all_tools: bool
) -> tuple[dict[str, Any], list[list[str]], list[list[str]]]:
    speed: list[list[str]] = []
    agreement: list[list[str]] = []
    server = StdioServerParameters(command=sys.executable, args=["-m", "tritonforge.server"], env=dict(os.environ))
    async with Client(stdio_client(server)) as client:
        loop = Loop(client, log)
        if all_tools:
            await loop.call("machine", "hardware_spec")
        for name, cases in profiled.items():
            task, baseline, candidate = (
                str(EXAMPLES / name / f"{part}.py") for part in ("task", "baseline", "candidate")
            )
            for label, kernel in ((f"{name} baseline", baseline), (f"{name} candidate", candidate)):
                if not all_tools:
                    break
                await loop.call(label, "compile_kernel", kernel=kernel, task=task)
                await loop.call(label, "run_correctness", kernel=kernel, task=task)
            timed = await loop.call(name, "benchmark", kernel=candidate, task=task, baseline=baseline)
            for case in timed.get("cases", []):
                speed.append(_speed_row(name, case))
            for which, kernel in (("candidate", candidate), ("baseline", baseline)):
                profile = await loop.call(f"{name} {which}", "profile_ncu", kernel=kernel, task=task, cases=cases)
                for launch in profile.get("launches", []):
                    case = next(found for found in timed["cases"] if found["case"] == launch["case"])
                    side = "" if which == "candidate" else "baseline_"
                    kernel_us, clock_hz = case[f"{side}kernel_us"], case[f"{side}sm_clock_hz"]
                    agreement.append(_agreement_row(name, which, launch, kernel_us, clock_hz))
        return loop.results, speed, agreement


def _speed_row(name: str, case: dict[str, Any]) -> list[str]:
    light = case["speed_of_light_pct"]
    return [
        name,
        case["case"],
        f"{case['baseline_device_us']:.2f}",
        f"{case['device_us']:.2f}",
        f"{case['ratio']:.3f}",
        f"{case['ratio_low']:.3f} to {case['ratio_high']:.3f}",
        case["comparison"],
        "unknown" if case["call_ratio"] is None else f"{case['call_ratio']:.2f}",
        "unknown" if light is None else f"{light:.0f}",
    ]


def _agreement_row(
    name: str, which: str, launch: dict[str, Any], kernel_us: float, clock_hz: float | None
) -> list[str]:
    duration_us, cycles = launch["duration_us"], launch["cycles"]
    in_time_pct = 100 * (duration_us / kernel_us - 1)
    ours = kernel_us * clock_hz / 1e6 if clock_hz else None
    in_cycles_pct = 100 * (cycles / ours - 1) if ours and cycles else None
    close = min(abs(in_time_pct), abs(in_cycles_pct or in_time_pct)) <= AGREEMENT_PCT
    return [
        f"{name} {which}",
        launch["case"],
        f"{kernel_us:.2f}",
        "unknown" if clock_hz is None else f"{clock_hz / 1e6:.0f}",
        f"{duration_us:.2f}",
        "unknown" if launch["sm_clock_hz"] is None else f"{launch['sm_clock_hz'] / 1e6:.0f}",
        f"{in_time_pct:+.1f}",
        "unknown" if in_cycles_pct is None else f"{in_cycles_pct:+.1f}",
        "yes" if close else ("shorter than 20 us" if kernel_us < AGREEMENT_FROM_US else "NO"),
    ]


def _table(header: list[str], rows: list[list[str]]) -> str:
    return "\n".join(["| " + " | ".join(row) + " |" for row in (header, ["---"] * len(header), *rows)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--agreement", nargs="+", metavar="NAME/CASE")
    known = parser.parse_args()
    out: Path = known.out
    out.mkdir(parents=True, exist_ok=True)
    profiled: dict[str, list[str]] = PROFILED
    if known.agreement:
        profiled = {}
        for one in known.agreement:
            name, _, case = one.partition("/")
            profiled.setdefault(name, []).append(case)
    log: list[str] = []
    results, speed, agreement = anyio.run(partial(run, log, profiled, all_tools=not known.agreement))
    gpu = subprocess.run(
        ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    versions = ", ".join(f"{package} {version(package)}" for package in ("torch", "triton", "mcp"))
    speed_table = _table(
        ["example", "case", "baseline, us", "candidate, us", "ratio", "95 % interval", "comparison", "call ratio",
         "speed of light, %"], speed,
    )  # fmt: skip
    agreement_table = _table(
        ["kernel", "case", "benchmark kernel_us", "SM clock, MHz", "ncu duration_us", "SM clock under ncu, MHz",
         "difference in time, %", "in cycles, %", "within 3 %"], agreement,
    )  # fmt: skip
    head = (
        f"# The loop on one GPU: {gpu}\n\n{date.today()}; Python {platform.python_version()}, {versions}; "
        f"`python {' '.join(sys.argv)}`\n"
    )
    parts = [
        head,
        "## Speed: candidate against baseline\n",
        speed_table,
        "\n## The profiler's duration beside the benchmark's kernel time\n",
        agreement_table,
        "\n## What each tool said\n",
        *log,
    ]
    (out / "loop.md").write_text("\n".join(parts))
    (out / "loop.json").write_text(json.dumps(results, indent=1))
    print(speed_table)
    print(agreement_table)


if __name__ == "__main__":
    main()
