"""Optimization runs on a GPU: a scripted agent drives the examples, several agents share a run, and what it costs.

    python tests/benchmarks/runs_on_gpu.py --out FOLDER [--only SECTION ...]

Sections: `examples`: the three over stdio, each candidate's answer as it has to be? `cost`: what the server adds to
the evaluations, and answers to duplicates, with an evaluator that measures nothing. `clients`: eight clients of one
server over HTTP, four on the same run. The files of a run: runs.md with the tables, runs.json with the answers.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import anyio
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.server.runs.agent import EXAMPLES, Step, Told, edited, faults, optimize, steps
from tests.server.runs.fake_evaluator import FakeEvaluator, candidate, task
from tests.server.runs.over_http import served
from tritonforge.server.app import build_server
from tritonforge.server.settings import Settings

SECTIONS: Final = ("examples", "cost", "clients")
TARGETS: Final[Mapping[str, dict[str, object]]] = {
    "sin": {"target_pct": 85.0},
    "softmax": {"attempts": 8},
    "matmul": {"attempts": 8},
}
CLIENTS: Final = 8
SHARED: Final = 4
"""Clients of the same run."""
SUBMITS: Final = 80
Answer = Mapping[str, Any]


class Report:
    """What the sections found."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.lines: list[str] = []
        self.kept: dict[str, object] = {}

    def say(self, *lines: str) -> None:
        self.lines += lines
        print("\n".join(lines), flush=True)
        self.out.mkdir(parents=True, exist_ok=True)
        (self.out / "runs.md").write_text("\n".join(self.lines) + "\n")
        (self.out / "runs.json").write_text(json.dumps(self.kept, default=str))

    def table(self, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        self.say(f"| {' | '.join(header)} |", f"|{' --- |' * len(header)}")
        self.say(*(f"| {' | '.join(str(cell).replace('|', '/') for cell in row)} |" for row in rows), "")


def _ratio(score: Answer | None) -> str:
    if score is None or score.get("ratio") is None:
        return ""
    return f"{score['ratio']:.3f} [{score['ratio_low']:.3f}, {score['ratio_high']:.3f}]"


def _row(name: str, answer: Answer, wall_s: float) -> list[object]:
    reasons = "; ".join(answer["reasons"][:2])
    seconds = sum(answer["seconds"].values())
    return [
        name, answer["attempt"], answer["kind"], answer["verdict"] or "", _ratio(answer["score"]),
        _ratio(answer["versus_incumbent"]), "" if answer["duplicate_of"] is None else answer["duplicate_of"],
        f"{wall_s:.2f}", f"{seconds:.2f}", reasons[:160],
    ]  # fmt: skip


HEADER: Final = (
    "candidate", "attempt", "kind", "verdict", "score over baseline", "over incumbent", "duplicate of", "wall s",
    "stages s", "reasons",
)  # fmt: skip


class Clocked(Client):
    """A client that keeps how long its calls took."""

    async def call_tool(self, name: str, arguments: dict[str, Any] | None = None, *rest: Any, **more: Any) -> Any:
        started = time.perf_counter()
        result = await super().call_tool(name, arguments, *rest, **more)
        took.append((name, time.perf_counter() - started))
        return result


took: list[tuple[str, float]] = []
"""Of all calls of all clocked clients, in order."""


async def examples(report: Report, state: Path) -> None:
    """The three, over stdio."""
    arguments = ["-m", "tritonforge.server", "--state-dir", str(state / "stdio")]
    parameters = StdioServerParameters(command=sys.executable, args=arguments, env=dict(os.environ))
    async with Clocked(parameters, read_timeout_seconds=300) as client:
        for example in TARGETS:
            took.clear()
            began = time.perf_counter()
            told = await optimize(client, example, None, **TARGETS[example])
            report.kept[example] = {"started": told.started, "answers": told.answers, "run": told.run}
            _tell(report, example, told, time.perf_counter() - began)


def _tell(report: Report, example: str, told: Told, wall_s: float) -> None:
    times = [seconds for name, seconds in took if name == "submit_candidate"]
    baseline = next(seconds for name, seconds in took if name == "start_optimization")
    report.say(f"\n## {example}: {wall_s:.1f} s, of which {baseline:.1f} s for the baseline", "")
    rows = [_row(name, answer, wall) for (name, answer), wall in zip(told.answers.items(), times, strict=True)]
    report.table(HEADER, rows)
    wrong = faults(example, told, gpu=True)
    report.say(f"The run is {told.run['state']} ({told.run['ended_by']}), its best attempt {told.run['incumbent']}.")
    report.say(*(f"- NOT AS IT HAS TO BE: {fault}" for fault in wrong), "")


async def cost(report: Report, state: Path) -> None:
    """What the server adds: submits of candidates that take no time to evaluate, and duplicates of them."""
    server = build_server(Settings(state_dir=state / "cost"), evaluator=lambda _: FakeEvaluator())
    submits: list[float] = []
    again: list[float] = []
    async with Client(server) as client:
        files = {"kernel": candidate(0, light_pct=0.5), "task": task(), "attempts": SUBMITS + 1, "target_pct": 100.0}
        started = await client.call_tool("start_optimization", files)
        assert started.structured_content is not None
        run_id = started.structured_content["run_id"]
        for number in range(1, SUBMITS + 1):
            # Each a little faster: a run in which nothing is gained ends.
            text = candidate(number, ratio=1.02**number, light_pct=0.5)
            for kernel, times in ((text, submits), (f"# again\n{text}", again)):
                began = time.perf_counter()
                given = {"run_id": run_id, "kernel": kernel, "strategy": f"try {number}"}
                result = await client.call_tool("submit_candidate", given)
                times.append(1e3 * (time.perf_counter() - began))
                assert result.structured_content is not None
                assert result.structured_content["kind"] == "ok", result.structured_content
    report.say(f"\n## What the server adds: {SUBMITS} candidates that take no time, and each of them again", "")
    rows = [
        [name, *(f"{statistics.median(part):.1f}" for part in (times[:10], times[-10:])), f"{max(times):.1f}"]
        for name, times in (("submit", submits), ("duplicate", again))
    ]
    report.table(("call", "ms, median of the first 10", "of the last 10", "longest"), rows)


async def clients(report: Report, state: Path) -> None:
    """Eight clients, four of which share a run of softmax; the others have one each."""
    answers: dict[str, list[Answer]] = {}
    shared: list[str] = []

    async def one(url: str, number: int) -> None:
        async with Client(url, read_timeout_seconds=600) as client:
            if number < SHARED:
                answers[f"shared {number}"] = [await _submit(client, shared[0], step) for step in _variants(number)]
            else:
                told = await optimize(client, "sin", _own_steps(), attempts=8, target_pct=99.0)
                answers[f"own {number}"] = list(told.answers.values())
        report.kept["answers"] = answers
        report.say(f"(client {number} is through after {time.perf_counter() - began:.1f} s)")

    async with served(build_server(Settings(state_dir=state / "http"))) as url:
        async with Client(url, read_timeout_seconds=600) as client:
            told = await optimize(client, "softmax", [], attempts=40, target_pct=100.0)
            shared.append(told.started["run_id"])
        began = time.perf_counter()
        async with anyio.create_task_group() as tasks:
            for number in range(CLIENTS):
                tasks.start_soon(one, url, number)
        wall_s = time.perf_counter() - began
        async with Client(url, read_timeout_seconds=600) as client:
            result = await client.call_tool("get_run", {"run_id": shared[0], "detail": True})
            assert result.structured_content is not None
            run = result.structured_content
    report.kept["clients"] = {"answers": report.kept.pop("answers"), "run": run}
    flat = [answer for name, each in answers.items() if name.startswith("shared") for answer in each]
    numbers = sorted(answer["attempt"] for answer in flat)
    report.say(f"\n## {CLIENTS} clients of one server over HTTP, {SHARED} on one run of softmax: {wall_s:.1f} s", "")
    report.say(
        f"- {len(flat)} candidates submitted to the shared run, attempts {numbers}; incumbent {run['incumbent']}"
    )
    for name, each in sorted(answers.items()):
        told_of = "; ".join(f"{a['attempt']} {a['kind']} {a['verdict']} {_ratio(a['score'])}" for a in each)
        report.say(f"- {name}: {told_of}")


async def _submit(client: Client, run_id: str, step: Step) -> Answer:
    given = {"run_id": run_id, "kernel": step.kernel, "strategy": step.strategy, "wait_s": 60}
    result = await client.call_tool("submit_candidate", given)
    while True:
        assert result.structured_content is not None, result.content
        answer = result.structured_content
        if answer["kind"] != "running":
            return answer
        again = {"run_id": run_id, "attempt": answer["attempt"], "wait_s": 60}
        result = await client.call_tool("get_run", again)


def _variants(number: int) -> list[Step]:
    """Candidates of one client: one that is faster, and one as fast as the baseline."""
    text = (EXAMPLES / "softmax" / "baseline.py").read_text()
    chunks = [edited(text, ("BLOCK=128, num_warps=1", f"BLOCK={256 << number}, num_warps={1 << min(number, 2)}"))]
    chunks.append(edited(text, ("total = 0.0", f"total = {number}.0 * 0.0")))
    return [Step(f"{number}-{at}", each, f"variant {at} of client {number}", "ok") for at, each in enumerate(chunks)]


def _own_steps() -> list[Step]:
    return [step for step in steps("sin") if step.name in ("wrong", "slower")]


async def main() -> None:
    """Run the chosen sections."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=SECTIONS)
    known = parser.parse_args()
    report = Report(known.out)
    report.say(f"# Optimization runs\n\n{time.strftime('%Y-%m-%d')}; `python {' '.join(sys.argv)}`", "")
    with tempfile.TemporaryDirectory() as state:
        for name in known.only:
            await {"examples": examples, "cost": cost, "clients": clients}[name](report, Path(state))


if __name__ == "__main__":
    anyio.run(main)
