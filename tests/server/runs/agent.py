"""A scripted agent: it optimizes the examples as a model would, with mistakes of every kind, over any MCP client."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from mcp.client import Client

EXAMPLES: Final = Path(__file__).parents[3] / "examples"
WAIT_S: Final = 30
OVER: Final = ("finish",)


class Step(NamedTuple):
    """One candidate, and how it has to be answered."""

    name: str
    kernel: str
    strategy: str
    kind: str
    gpu: Sequence[str] = ("continue",)
    """Verdicts that are right where times are measured; without a GPU it is `continue`."""
    duplicate_of: str | None = None
    """Name of the step that it is another form of, or `baseline`."""
    on_cpu: str | None = None
    """The kind without a GPU, where that is another."""


class Told(NamedTuple):
    """What a run of steps came to."""

    run: Mapping[str, Any]
    """The last answer of get_run."""
    started: Mapping[str, Any]
    answers: Mapping[str, Mapping[str, Any]]
    """By step."""


def edited(text: str, *edits: tuple[str, str]) -> str:
    """A kernel file with some places replaced, each of which occurs."""
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new)
    return text


def _read(example: str, name: str) -> str:
    return (EXAMPLES / example / f"{name}.py").read_text()


def steps(example: str) -> list[Step]:
    """What the agent tries on an example, in order."""
    baseline, candidate = _read(example, "baseline"), _read(example, "candidate")
    return {"sin": _sin, "softmax": _softmax, "matmul": _matmul}[example](baseline, candidate)


def _sin(baseline: str, candidate: str) -> list[Step]:
    return [
        Step("syntax", edited(baseline, ("block = 4", "block = (4")), "larger block", "rejected"),
        Step("undefined", edited(baseline, ("tl.sin(x)", "tl.sine(x)")), "another sine", "compile_error"),
        Step("wrong", edited(baseline, ("tl.sin(x)", "tl.cos(x)")), "the cosine is cheaper", "wrong"),
        Step(
            "cheat",
            edited(
                baseline, ("    out = torch.empty_like(x)", "    return torch.sin(x)\n    out = torch.empty_like(x)")
            ),
            "let torch do it",
            # It launches no kernel of its own.
            "rejected",
        ),
        Step("comment", f"# A comment.\n{baseline}", "a comment", "ok", duplicate_of="baseline"),
        Step("renamed", edited(baseline, ("offsets", "where")), "other names", "ok", duplicate_of="baseline"),
        Step("slower", edited(baseline, ("block = 4", "block = 2")), "a smaller block", "ok"),
        Step("fast", candidate, "a block of 1,024: whole warps and 16-byte accesses", "ok", ("finish",)),
    ]


def _softmax(baseline: str, candidate: str) -> list[Step]:
    chunk = edited(baseline, ("BLOCK=128, num_warps=1", "BLOCK=1024, num_warps=4"))
    return [
        Step("wrong", edited(candidate, ("numerator * (1.0", "numerator * (2.0")), "cheaper arithmetic", "wrong"),
        Step("chunk", chunk, "chunks of 1,024 instead of 128", "ok", ("accept",)),
        Step("again", chunk + "\n\n# the same\n", "chunks of 1,024", "ok", duplicate_of="chunk"),
        Step("regressed", edited(chunk, ("BLOCK=1024", "BLOCK=256")), "smaller chunks", "ok"),
        Step("fast", candidate, "the whole row in registers: one pass over memory", "ok", ("accept", "finish")),
        Step(
            "raised",
            edited(candidate, ("    block = triton", "    raise ValueError(cols)\n    block = triton")),
            "raises",
            "runtime_error",
        ),
    ]  # fmt: skip


def _matmul(baseline: str, candidate: str) -> list[Step]:
    return [
        Step(
            "shared",
            edited(candidate, ("num_stages=3", "num_stages=8")),
            "eight stages hide more latency",
            "launch_error",
            on_cpu="launch_error",
        ),
        Step("warps", edited(baseline, ("num_warps=2", "num_warps=4")), "a warp group, for wgmma", "ok", ("accept",)),
        Step("fast", candidate, "a tile of 128 x 256, three stages, grouped tiles", "ok", ("accept", "finish")),
        Step("slower", edited(candidate, ("num_stages=3", "num_stages=1")), "one stage needs less shared memory", "ok"),
    ]


async def optimize(client: Client, example: str, chosen: Sequence[Step] | None = None, **settings: object) -> Told:
    """Drive a run to its end, as an agent does: start, submit, wait, look."""
    folder = EXAMPLES / example
    files = {"kernel": str(folder / "baseline.py"), "task": str(folder / "task.py")}
    started = await _called(client, "start_optimization", {**files, "wait_s": WAIT_S, **settings})
    run_id = started.get("run_id")
    assert isinstance(run_id, str), started
    while started["kind"] == "running":
        await _called(client, "get_run", {"run_id": run_id, "attempt": 0, "wait_s": WAIT_S})
        started = await _called(client, "get_run", {"run_id": run_id})
    answers: dict[str, Mapping[str, Any]] = {}
    for step in steps(example) if chosen is None else chosen:
        given = {"run_id": run_id, "kernel": step.kernel, "strategy": step.strategy, "wait_s": WAIT_S}
        answer = await _called(client, "submit_candidate", given)
        while answer["kind"] == "running":
            again = {"run_id": run_id, "attempt": answer["attempt"], "wait_s": WAIT_S}
            answer = await _called(client, "get_run", again)
        answers[step.name] = answer
        if answer["verdict"] in OVER:
            break
    return Told(await _called(client, "get_run", {"run_id": run_id}), started, answers)


async def _called(client: Client, tool: str, arguments: Mapping[str, object]) -> Mapping[str, Any]:
    result = await client.call_tool(tool, dict(arguments))
    assert not result.is_error, result.content
    assert result.structured_content is not None
    return result.structured_content


def faults(example: str, told: Told, *, gpu: bool, chosen: Sequence[Step] | None = None) -> list[str]:
    """What was answered otherwise than it has to be, a line each."""
    found: list[str] = []
    numbers = {"baseline": 0, **{name: answer["attempt"] for name, answer in told.answers.items()}}
    for step in steps(example) if chosen is None else chosen:
        answer = told.answers.get(step.name)
        if answer is None:
            found.append(f"{step.name}: was not submitted, the run was over")
            continue
        kind = step.kind if gpu or step.on_cpu is None else step.on_cpu
        first = None if step.duplicate_of is None else numbers[step.duplicate_of]
        if answer["kind"] != kind:
            found.append(f"{step.name}: is {answer['kind']}, not {kind}: {answer['summary'][:200]}")
        if answer["duplicate_of"] != first:
            found.append(f"{step.name}: is a duplicate of {answer['duplicate_of']}, not {first}")
        wanted = (None,) if first is not None else step.gpu if gpu else ("continue", "finish")
        if answer["verdict"] not in wanted:
            found.append(f"{step.name}: the verdict is {answer['verdict']}, not {wanted}: {answer['reasons']}")
        if kind != "ok" and answer["problem"] is None:
            found.append(f"{step.name}: carries no problem")
    return found
