"""Duplicates, and evaluations that outlive their calls, end early, or are begun again."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from mcp.client import Client

from tests.server.runs.fake_evaluator import FakeEvaluator, candidate, task
from tests.server.runs.run_calls import BASELINE, PATIENCE_S, Call, begin, calls, submit
from tritonforge.server.app import build_server
from tritonforge.server.runs import memory
from tritonforge.server.runs.record import Frozen
from tritonforge.server.settings import Settings

pytestmark = pytest.mark.anyio


# Duplicates.


async def test_a_file_with_other_comments_is_answered_from_memory(call: Call, fake: FakeEvaluator) -> None:
    run_id = await begin(call)
    await submit(call, run_id, candidate(2, kind="wrong"))
    identified = fake.identified
    again = await submit(call, run_id, "# looks better\n" + candidate(2))
    assert (again["kind"], again["duplicate_of"], again["verdict"]) == ("wrong", 1, None)
    assert "is the same file as attempt 1 but for comments and formatting" in again["summary"]
    assert (again["attempts_left"], fake.identified) == (7, identified)
    baseline = await submit(call, run_id, BASELINE)
    assert "is the same file as the baseline" in baseline["summary"]


async def test_code_that_compiles_to_the_same_is_not_measured_again(call: Call, fake: FakeEvaluator) -> None:
    run_id = await begin(call)
    first = await submit(call, run_id, candidate(2, ratio=1.5, identity="same"))
    again = await submit(call, run_id, candidate(3, ratio=1.5, identity="same"))
    assert (again["kind"], again["duplicate_of"], again["accepted"]) == ("ok", 1, False)
    assert "compiles to the same machine code as attempt 1" in again["summary"]
    assert again["attempts_left"] == first["attempts_left"] == 7
    assert again["score"] == first["score"]
    assert len(fake.compared) == 1


# Jobs.


async def test_a_long_evaluation_goes_on_after_the_call(call: Call, fake: FakeEvaluator) -> None:
    run_id = await begin(call)
    told = await submit(call, run_id, candidate(2, ratio=1.5, hold="gate"), wait_s=0)
    assert (told["kind"], told["state"], told["attempt"]) == ("running", "running", 1)
    assert told["next_step"] == f"Call get_run(run_id='{run_id}', attempt=1, wait_s=45)."
    await fake.reached("gate")
    whole = await call("get_run", run_id=run_id)
    assert whole["at_work"] == [{"attempt": 1, "doing": "checking results"}]
    assert [line["kind"] for line in whole["attempts"]] == ["ok", "running"]
    fake.release("gate")
    over = await call("get_run", run_id=run_id, attempt=1, wait_s=PATIENCE_S)
    assert (over["kind"], over["verdict"], over["score"]["ratio"]) == ("ok", "accept", 1.5)
    assert over["at_work"] == []


async def test_a_long_baseline_goes_on_after_the_call(call: Call, fake: FakeEvaluator) -> None:
    started = await call("start_optimization", kernel=candidate(1, hold="gate"), task=task(), wait_s=0)
    run_id = started["run_id"]
    assert (started["kind"], started["run_state"]) == ("running", "measuring")
    assert (await call("get_run", run_id=run_id))["kind"] == "running"
    early = await submit(call, run_id, candidate(2))
    assert early["kind"] == "rejected"
    assert "still being measured" in early["problem"]["message"]
    fake.release("gate")
    over = await call("get_run", run_id=run_id, wait_s=PATIENCE_S)
    assert (over["kind"], over["state"]) == ("ok", "open")


async def test_people_who_watch_are_told_how_far_it_is(client: Client, call: Call) -> None:
    run_id = await begin(call)
    reports: list[str | None] = []

    async def heard(progress: float, total: float | None, message: str | None) -> None:
        reports.append(message)

    arguments = {"run_id": run_id, "kernel": candidate(2), "strategy": "watched"}
    await client.call_tool("submit_candidate", arguments, progress_callback=heard)
    assert reports


async def cancelled(client: Client, tool: str, arguments: dict[str, Any], when: Callable[[], Awaitable[None]]) -> None:
    """Call a tool, and want no answer any more once it has reported how far it is, and something else has happened."""
    told = anyio.Event()

    async def heard(progress: float, total: float | None, message: str | None) -> None:
        told.set()

    async with anyio.create_task_group() as tasks:

        async def called() -> None:
            await client.call_tool(tool, arguments, progress_callback=heard)

        tasks.start_soon(called)
        with anyio.fail_after(PATIENCE_S):
            await told.wait()
            await when()
        tasks.cancel_scope.cancel()


async def test_a_cancelled_call_ends_its_evaluation_and_costs_nothing(
    client: Client, call: Call, fake: FakeEvaluator
) -> None:
    run_id = await begin(call)
    held = {"run_id": run_id, "kernel": candidate(2, hold="never"), "strategy": "held"}
    await cancelled(client, "submit_candidate", held, lambda: fake.reached("never"))
    over = await call("get_run", run_id=run_id, attempt=1, wait_s=PATIENCE_S)
    assert (over["kind"], over["state"], over["attempts_left"]) == ("cancelled", "cancelled", 8)
    # It is not taken for a duplicate.
    again = await submit(call, run_id, candidate(2, ratio=1.5))
    assert (again["attempt"], again["duplicate_of"], again["accepted"]) == (2, None, True)


async def test_who_only_waits_can_stop_waiting(client: Client, call: Call, fake: FakeEvaluator) -> None:
    run_id = await begin(call)
    await submit(call, run_id, candidate(2, hold="gate"), wait_s=0)
    waiting = {"run_id": run_id, "attempt": 1, "wait_s": PATIENCE_S}
    await cancelled(client, "get_run", waiting, lambda: fake.reached("gate"))
    assert (await call("get_run", run_id=run_id, attempt=1))["kind"] == "running"
    fake.release("gate")
    assert (await call("get_run", run_id=run_id, attempt=1, wait_s=PATIENCE_S))["kind"] == "ok"


async def test_a_beginning_that_nobody_waits_for_is_no_run_that_waits(
    client: Client, call: Call, fake: FakeEvaluator
) -> None:
    given = {"kernel": candidate(1, hold="never"), "task": task()}
    await cancelled(client, "start_optimization", given, lambda: fake.reached("never"))
    (line,) = (await call("get_run"))["runs"]
    whole = await call("get_run", run_id=line["run_id"], wait_s=PATIENCE_S)
    assert (whole["kind"], whole["state"]) == ("cancelled", "failed")


async def test_an_evaluation_can_be_cancelled_by_number(call: Call, fake: FakeEvaluator) -> None:
    run_id = await begin(call)
    await submit(call, run_id, candidate(2, hold="never"), wait_s=0)
    told = await call("get_run", run_id=run_id, attempt=1, cancel=True)
    assert (told["kind"], told["notes"]) == ("cancelled", ["the evaluation of attempt 1 was ended"])
    told = await call("get_run", run_id=run_id, attempt=1, cancel=True)
    assert told["notes"] == ["the evaluation of attempt 1 was not going on in this server"]


async def test_what_a_server_left_behind_is_begun_again(settings: Settings) -> None:
    first, second = FakeEvaluator(), FakeEvaluator()
    second.release("gate")
    async with Client(build_server(settings, lambda _: first)) as client:
        run_id = await begin(calls(client))
        await submit(calls(client), run_id, candidate(2, ratio=1.5, hold="gate"), wait_s=0)
        await first.reached("gate")
    async with Client(build_server(settings, lambda _: second)) as client:
        call = calls(client)
        whole = await call("get_run", run_id=run_id, wait_s=PATIENCE_S)
        assert whole["resumed"] == [1]
        assert any("left behind" in note for note in whole["notes"])
        assert whole["incumbent"]["attempt"] == 1
        assert (await call("get_run", run_id=run_id))["resumed"] == []


async def test_what_is_no_candidates_doing_is_told_and_costs_nothing(call: Call) -> None:
    run_id = await begin(call)
    told = await submit(call, run_id, candidate(2, kind="unavailable", message="the GPU is gone"))
    assert (told["kind"], told["attempt"], told["problem"]["message"]) == ("unavailable", 1, "the GPU is gone")
    assert told["attempts_left"] == 8


async def test_an_attempt_behind_which_the_evaluator_fails_does_not_seem_to_go_on(
    call: Call, caplog: pytest.LogCaptureFixture
) -> None:
    run_id = await begin(call)
    told = await submit(call, run_id, candidate(2, fault=True))
    assert (told["kind"], told["attempt"], told["verdict"], told["attempts_left"]) == ("unavailable", 1, None, 8)
    said = "the evaluation failed by a fault of the server: ZeroDivisionError: a made-up fault of the evaluator"
    assert told["problem"]["message"] == said
    assert "once more" in told["problem"]["likely_fix"]
    assert (await call("get_run", run_id=run_id, attempt=1))["kind"] == "unavailable"
    assert any(record.exc_info for record in caplog.records)
    whole = await call("get_run", run_id=run_id)
    assert (whole["at_work"], whole["attempts_left"], whole["attempts"][1]["kind"]) == ([], 8, "unavailable")
    assert (await submit(call, run_id, candidate(2, ratio=1.5)))["accepted"]


async def test_candidates_that_come_at_once_are_all_accounted_for(call: Call, fake: FakeEvaluator) -> None:
    run_id = await begin(call)
    answers: list[dict[str, Any]] = []

    async def one(value: int) -> None:
        answers.append(await submit(call, run_id, candidate(value, ratio=1 + value / 10), f"idea {value}"))

    async with anyio.create_task_group() as tasks:
        for value in range(2, 6):
            tasks.start_soon(one, value)
    assert sorted(answer["attempt"] for answer in answers) == [1, 2, 3, 4]
    whole = await call("get_run", run_id=run_id)
    assert (whole["incumbent"]["ratio"], whole["attempts_left"]) == (1.5, 4)
    assert len(whole["attempts"]) == 5


async def test_the_same_file_at_the_same_moment_is_evaluated_once(call: Call, fake: FakeEvaluator) -> None:
    run_id = await begin(call)
    text = candidate(2, ratio=1.5, hold="twins")
    first = await submit(call, run_id, text, wait_s=0)
    again = await submit(call, run_id, f"# once more\n{text}", wait_s=0)
    assert (first["kind"], again["kind"], again["attempt"]) == ("running", "running", first["attempt"])
    fake.release("twins")
    over = await call("get_run", run_id=run_id, attempt=first["attempt"], wait_s=PATIENCE_S)
    assert (over["verdict"], over["attempts_left"]) == ("accept", 7)


async def test_the_same_code_at_the_same_moment_costs_one_attempt(call: Call, fake: FakeEvaluator) -> None:
    run_id = await begin(call)
    for value in (2, 3):
        await submit(call, run_id, candidate(value, ratio=1.0, identity="same", hold="both"), wait_s=0)
    fake.release("both")
    told = [await call("get_run", run_id=run_id, attempt=number, wait_s=PATIENCE_S) for number in (1, 2)]
    assert sorted(each["duplicate_of"] is None for each in told) == [False, True]
    assert (await call("get_run", run_id=run_id))["attempts_left"] == 7


async def test_a_run_whose_time_is_up_is_over_when_somebody_looks(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = await begin(call, wall_s=50)
    assert (await call("get_run", run_id=run_id))["state"] == "open"

    def later(_: Frozen) -> float:
        return 51.0

    monkeypatch.setattr(memory, "elapsed_s", later)
    told = await call("get_run", run_id=run_id)
    assert (told["state"], told["ended_by"]) == ("finished", "wall_time")


async def test_a_cancelled_call_ends_nothing_that_another_call_has_submitted_too(
    client: Client, call: Call, fake: FakeEvaluator
) -> None:
    run_id = await begin(call)
    held = {"run_id": run_id, "kernel": candidate(2, ratio=1.5, hold="gate"), "strategy": "held"}
    first = await call("submit_candidate", **held, wait_s=0)
    await cancelled(client, "submit_candidate", held, lambda: fake.reached("gate"))
    fake.release("gate")
    over = await call("get_run", run_id=run_id, attempt=first["attempt"], wait_s=PATIENCE_S)
    assert (over["kind"], over["verdict"]) == ("ok", "accept")
