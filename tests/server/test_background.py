"""An answer is there as soon as it is known; what comes behind it goes on, is ended with the server, and is waited for
by whoever gives up before."""

from collections.abc import AsyncGenerator, Callable

import anyio
import pytest

from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.outcome import Kind, Problem
from tritonforge.server.background import Background

pytestmark = pytest.mark.anyio
Answer = Callable[[int], None]


@pytest.fixture
async def background() -> AsyncGenerator[Background]:
    async with Background() as background:
        yield background


async def test_the_answer_does_not_wait_for_what_comes_behind_it(background: Background) -> None:
    go_on, ended = anyio.Event(), anyio.Event()

    async def evaluate(answer: Answer) -> None:
        answer(7)
        await go_on.wait()
        ended.set()

    assert await background.answered(evaluate) == 7
    assert not ended.is_set()
    go_on.set()
    with anyio.fail_after(5):
        await ended.wait()


@pytest.mark.parametrize(
    "error", [Stopped(Kind.WRONG, Problem(stage="compare", message="no")), ZeroDivisionError("a mistake of ours")]
)
async def test_what_is_raised_before_an_answer_reaches_whoever_asked(background: Background, error: Exception) -> None:
    async def evaluate(answer: Answer) -> None:
        raise error

    async def asked_later(answer: Answer) -> None:
        answer(1)

    with pytest.raises(type(error)) as caught:
        await background.answered(evaluate)
    assert caught.value is error
    assert await background.answered(asked_later) == 1


async def test_what_fails_behind_an_answer_harms_no_other(
    background: Background, caplog: pytest.LogCaptureFixture
) -> None:
    go_on, ended = anyio.Event(), anyio.Event()

    async def fails(answer: Answer) -> None:
        answer(1)
        await go_on.wait()
        raise ZeroDivisionError("a mistake of ours")

    async def works(answer: Answer) -> None:
        answer(2)
        await anyio.wait_all_tasks_blocked()
        ended.set()

    assert await background.answered(fails) == 1
    go_on.set()
    assert await background.answered(works) == 2
    with anyio.fail_after(5):
        await ended.wait()
    assert "the end of an evaluation failed" in caplog.text


async def test_whoever_gives_up_waits_until_nothing_is_left(background: Background) -> None:
    steps: list[str] = []

    async def evaluate(answer: Answer) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.lowlevel.checkpoint()
                steps.append("cleaned up")

    async with anyio.create_task_group() as tasks:

        async def ask() -> None:
            try:
                await background.answered(evaluate)
            finally:
                steps.append("gave up")

        tasks.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert steps == ["cleaned up", "gave up"]


async def test_leaving_ends_what_is_left_and_tells_who_waits() -> None:
    ended: list[str] = []
    told: list[Stopped] = []

    async def answers(answer: Answer) -> None:
        answer(1)
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("behind an answer")

    async def never(answer: Answer) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("before one")

    background = Background()
    async with anyio.create_task_group() as tasks:
        async with background:

            async def ask() -> None:
                try:
                    await background.answered(never)
                except Stopped as stopped:
                    told.append(stopped)

            await background.answered(answers)
            tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
        assert sorted(ended) == ["before one", "behind an answer"]
    assert [stopped.kind for stopped in told] == [Kind.UNAVAILABLE]
    with pytest.raises(Stopped, match="closed"):
        await background.answered(never)
