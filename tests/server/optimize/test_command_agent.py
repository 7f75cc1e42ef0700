"""Any program takes part in a run: JSON in, JSON out, once a round."""

import json
import sys
from typing import Any

import anyio
import pytest

from tests.server.optimize.workshop import FAST, FASTEST, ROOT, SLOW, WRONG, Workshop
from tests.server.runs.fake_evaluator import candidate, task
from tritonforge.sandbox.errors import Stopped

pytestmark = pytest.mark.anyio

STUB = ROOT / "examples" / "agents" / "stub_agent.py"

KEEPS = "Path(f'request-{request[\"round\"]}.json').write_text(json.dumps(request))\n"


def answers(*kernels: tuple[str, str]) -> str:
    """A program that keeps its requests, and answers each round with the next kernel."""
    return f"{KEEPS}kernels = {kernels!r}\ntext, why = kernels[request['round'] - 1]\n" + (
        "print(json.dumps({'kernel': text, 'strategy': why}))\n"
    )


def requests(workshop: Workshop) -> list[dict[str, Any]]:
    found = sorted(workshop.folder.glob("request-*.json"), key=lambda file: int(file.stem.partition("-")[2]))
    return [json.loads(file.read_text()) for file in found]


async def test_the_stub_of_the_examples_offers_its_files_and_the_best_one_wins(workshop: Workshop) -> None:
    files: list[str] = []
    for name, (text, _) in {"slow": SLOW, "fast": FAST}.items():
        files.append(f"{name}.py")
        (workshop.folder / files[-1]).write_text(text)
    agent = f"{sys.executable} {STUB} {workshop.task} {' '.join(files)}"
    result = await workshop.optimize(agent, task=None, rounds=2)
    assert (result.gained, result.attempt, result.attempts, result.ended_by) == (True, 2, 2, "budget")
    assert (workshop.folder / "won" / "entry.py").read_text() == FAST[0]
    assert (workshop.folder / "won" / "task.py").read_text() == workshop.task.read_text()


async def test_a_request_carries_all_that_an_idea_needs(workshop: Workshop) -> None:
    workshop.task.write_text(task("made up", hidden=None))
    hidden = workshop.folder / "hidden.py"
    hidden.write_text('HIDDEN_CASES = {"secret name": {"n": 12345}}\n')
    agent = workshop.program(answers(WRONG, FAST, FASTEST))
    await workshop.optimize(agent, rounds=3, hidden_cases=str(hidden))
    first, second, third = requests(workshop)
    assert (first["kind"], first["version"], first["round"], first["rounds"]) == ("candidate", 1, 1, 3)
    assert first["task"] == workshop.task.read_text()
    assert (first["parent"]["number"], first["parent"]["kernel"]) == (0, workshop.kernel.read_text())
    assert [finding["id"] for finding in first["findings"]] == ["V1", "V6"]
    assert first["hints"]
    assert (first["attempts"], first["last"], first["remaining"]["attempts"]) == ([], None, 3)
    assert 0 < first["remaining"]["seconds"] <= 120
    assert '"strategy"' in first["instructions"]
    # What was tried, how it ended, and where it stands now.
    assert [(each["number"], each["kind"]) for each in second["attempts"]] == [(1, "wrong")]
    assert (second["last"]["kind"], second["last"]["attempt"]) == ("wrong", 1)
    assert "as its script says" in second["last"]["problem"]["message"]
    assert (third["parent"]["number"], third["parent"]["kernel"]) == (2, FAST[0])
    assert third["last"]["verdict"] == "accept"
    assert third["incumbent"]["attempt"] == 2
    assert third["remaining"]["attempts"] == 1
    assert all(request["hidden_cases"] == 1 for request in (first, second, third))
    told = json.dumps([first, second, third])
    assert "secret name" not in told
    assert "12345" not in told


MALFORMED = [
    ("print('Here is my kernel:')", "no JSON"),
    ("pass", "nothing was written"),
    ("print('[]')", "does not fit"),
    ("print(json.dumps({'kernel': 'x = 1\\n'}))", "strategy: Field required"),
    ("print(json.dumps({'kernel': 'x = 1\\n', 'strategy': 'a', 'speed': 9}))", "speed: Extra inputs"),
    ("sys.exit(7)", "exited with code 7"),
    ("print('x' * 5_000_000)", "4,000,000 bytes"),
]


@pytest.mark.parametrize(("body", "why"), MALFORMED, ids=[why for _, why in MALFORMED])
async def test_a_malformed_answer_costs_a_round_and_is_told_in_the_next_request(
    workshop: Workshop, body: str, why: str
) -> None:
    good = f"print(json.dumps({{'kernel': {FAST[0]!r}, 'strategy': 'wider'}}))"
    agent = workshop.program(f"{KEEPS}if request['round'] == 1:\n    {body}\nelse:\n    {good}")
    result = await workshop.optimize(agent, rounds=2)
    assert (result.gained, result.attempts) == (True, 1)
    _, second = requests(workshop)
    assert why in second["last"]["problem"]
    assert second["remaining"]["rounds"] == 1
    (end,) = result.agents
    assert (end.ended, end.malformed) == ("rounds", 1)


async def test_a_malformed_answer_is_told_with_its_round(workshop: Workshop) -> None:
    result = await workshop.optimize(workshop.program("print('no' if request['round'] == 2 else '[]')"), rounds=2)
    assert any(line.startswith("  malformed answer (round 1): the answer does not fit") for line in workshop.said)
    assert any(line.startswith("  malformed answer (round 2): what was written is no JSON") for line in workshop.said)
    assert (result.agents[0].last_words or "").startswith("round 2: ")


@pytest.mark.parametrize(
    ("before", "after"),
    [("```json\\n", "\\n```\\n"), ("```\\r\\n", "```"), ("\\ufeff", "\\n\\n")],
)
async def test_an_answer_in_a_fence_or_with_a_mark_is_read(workshop: Workshop, before: str, after: str) -> None:
    answer = f"json.dumps({{'kernel': {FAST[0]!r}, 'strategy': 'wider'}})"
    body = f"sys.stdout.buffer.write(('{before}' + {answer} + '{after}').encode())"
    assert (await workshop.optimize(workshop.program(body), rounds=1)).gained


async def test_an_answer_counts_though_a_child_holds_standard_output(workshop: Workshop) -> None:
    body = (
        f"print(json.dumps({{'kernel': {FAST[0]!r}, 'strategy': 'wider'}}), flush=True)\n"
        "child = os.fork()\nif child == 0:\n    while True:\n        time.sleep(60)\n"
        "Path('child').write_text(str(child))\nos._exit(0)"
    )
    result = await workshop.optimize(workshop.program(body), rounds=1, call_s=30.0)
    assert (result.gained, result.agents[0].malformed) == (True, 0)
    child = int((workshop.folder / "child").read_text())
    assert not await anyio.Path(f"/proc/{child}").exists()


async def test_a_call_that_takes_too_long_is_ended_with_all_that_it_started(workshop: Workshop) -> None:
    body = "child = os.fork()\nPath(f'pid-{os.getpid()}').touch()\nwhile True:\n    time.sleep(60)"
    result = await workshop.optimize(workshop.program(body), rounds=1, call_s=1.0)
    assert (result.gained, result.attempts, result.agents[0].malformed) == (False, 0, 1)
    assert "no answer within 1 s" in (result.agents[0].last_words or "")
    pids = [int(file.name.partition("-")[2]) for file in workshop.folder.glob("pid-*")]
    assert len(pids) == 2
    assert not [pid for pid in pids if await anyio.Path(f"/proc/{pid}").exists()]


async def test_the_whole_time_ends_a_call_too(workshop: Workshop) -> None:
    result = await workshop.optimize(workshop.program("time.sleep(600)"), rounds=3, wall_s=4.0)
    assert (result.gained, result.ended_by, result.agents[0].ended) == (False, "wall_time", "wall_time")


async def test_a_program_that_answers_without_reading_is_heard(workshop: Workshop) -> None:
    file = workshop.folder / "deaf.py"
    file.write_text(
        f"import json, os\nos.close(0)\nprint(json.dumps({{'kernel': {FAST[0]!r}, 'strategy': 'wider'}}))\n"
    )
    result = await workshop.optimize(f"{sys.executable} {file}", rounds=1)
    assert result.gained


async def test_an_answer_that_the_run_can_not_take_is_told_and_the_next_is_asked_for(workshop: Workshop) -> None:
    body = (
        f"{KEEPS}answer = {{'kernel': {FAST[0]!r}, 'strategy': 'wider'}}\n"
        "answer |= {'parent': 9} if request['round'] == 1 else {}\nprint(json.dumps(answer))"
    )
    result = await workshop.optimize(workshop.program(body), rounds=2)
    assert result.gained
    assert "was not taken" in requests(workshop)[1]["last"]["problem"]


async def test_rounds_in_parallel_share_the_rounds(workshop: Workshop) -> None:
    body = (
        "Path(f'call-{os.getpid()}').touch()\n"
        "script = json.dumps({'ratio': 1 + request['round'] / 10})\n"
        "text = f'# FAKE: {script}\\ndef entry(x):\\n    return x * {request[\"round\"]}.5\\n'\n"
        "print(json.dumps({'kernel': text, 'strategy': f'idea {request[\"round\"]}'}))"
    )
    result = await workshop.optimize(workshop.program(body), rounds=5, parallel=3)
    assert result.attempts == 5
    assert len(list(workshop.folder.glob("call-*"))) == 5
    assert result.gained


async def test_nothing_faster_is_nothing_gained(workshop: Workshop) -> None:
    result = await workshop.optimize(workshop.program(answers(SLOW, WRONG)), rounds=2)
    assert (result.gained, result.attempt, result.files) == (False, None, [])
    assert result.why_not == "no candidate was right and faster beyond the noise"


async def test_without_a_gpu_nothing_can_be_gained_and_it_is_said_why(workshop: Workshop) -> None:
    workshop.task.write_text(task("made up", timed=False))
    result = await workshop.optimize(workshop.program(answers(FAST)), rounds=1)
    assert not result.gained
    assert "no GPU" in result.summary


async def test_a_task_is_asked_for_with_the_kernel_and_what_was_wrong_before(workshop: Workshop) -> None:
    body = (
        "if request['kind'] == 'task':\n"
        "    Path('task-request.json').write_text(json.dumps(request))\n"
        "    print(json.dumps({'task': 'def broken(:' if request['last'] is None else " + repr(task("good")) + "}))\n"
        f"else:\n    print(json.dumps({{'kernel': {FAST[0]!r}, 'strategy': 'wider'}}))"
    )
    result = await workshop.optimize(workshop.program(body), task=None, rounds=1)
    assert result.gained
    request = json.loads((workshop.folder / "task-request.json").read_text())
    assert request["kernel"] == workshop.kernel.read_text()
    assert "the task can't be read" in request["last"]["problem"]
    assert '"task"' in request["instructions"]
    assert "make_inputs" in request["prompt"]


async def test_a_program_that_never_writes_a_task_is_given_up(workshop: Workshop) -> None:
    with pytest.raises(Stopped, match="no usable task in 3 tries"):
        await workshop.optimize(workshop.program("print('no')"), task=None)


async def test_candidates_find_what_the_baseline_imports(workshop: Workshop) -> None:
    agent = workshop.program(answers((candidate(7, ratio=1.2), "one")))
    result = await workshop.optimize(agent, rounds=1)
    assert result.run_id is not None
    store = workshop.store()
    attempt = store.attempt(result.run_id, 1)
    store.close()
    assert attempt.kernel_origin == str(workshop.folder)
