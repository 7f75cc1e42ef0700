"""Pools of spares: fake ones, each made when the test says so."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest

from tests.sandbox.fake_spares import PATIENCE_S, FakeSpare, Maker, Takes, everybody_waits, open_pool, refusal, take
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.outcome import Kind
from tritonforge.sandbox.pool import Pool

pytestmark = pytest.mark.anyio


async def test_nothing_is_made_before_somebody_asks() -> None:
    maker = Maker()
    async with open_pool(maker) as (pool, _):
        await everybody_waits()
    assert (maker.begun, pool.ready, pool.busy) == (0, 0, False)


async def test_as_many_wait_as_should_after_one_was_taken() -> None:
    maker = Maker()
    async with open_pool(maker, size=3) as (pool, _):
        await take(pool)
        await everybody_waits()
        assert (maker.begun, pool.ready, pool.busy) == (4, 3, False)


async def test_one_that_was_taken_is_made_anew() -> None:
    maker = Maker()
    async with open_pool(maker, size=2) as (pool, _):
        for taken in range(1, 5):
            await take(pool)
            await everybody_waits()
            assert (maker.begun, pool.ready) == (taken + 2, 2)


async def test_each_spare_is_given_away_once() -> None:
    async with open_pool(Maker(), size=2) as (_, takes):
        await takes.begin(*"abcdefgh")
    assert len(set(takes.numbers.values())) == 8


async def test_a_pool_of_none_makes_one_for_each_who_asks() -> None:
    maker = Maker()
    async with open_pool(maker, size=0) as (pool, takes):
        await takes.begin("a", "b", "c")
        assert (maker.begun, pool.ready) == (3, 0)
    assert takes.numbers == {"a": 0, "b": 1, "c": 2}


async def test_those_who_wait_are_served_in_their_order() -> None:
    maker = Maker(at_once=False)
    async with open_pool(maker, size=0) as (_, takes):
        await takes.begin("a", "b", "c")
        assert takes.got == {}
        for served in ({"a": 0}, {"a": 0, "b": 1}, {"a": 0, "b": 1, "c": 2}):
            await maker.finish()
            assert takes.numbers == served


async def test_two_that_are_ready_at_the_same_time_serve_the_first_two() -> None:
    maker = Maker(at_once=False)
    async with open_pool(maker, size=0) as (_, takes):
        await takes.begin("a", "b", "c")
        await maker.finish(2)
        assert takes.numbers == {"a": 0, "b": 1}


async def test_nobody_overtakes_those_who_wait() -> None:
    maker = Maker(at_once=False)
    async with open_pool(maker, size=0) as (pool, takes):
        await takes.begin("first")
        # Ready, but whoever waits for it has had no turn yet.
        pool.give_back(FakeSpare(7))
        with anyio.move_on_after(PATIENCE_S) as waiting:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(pool.take)
                await everybody_waits()
                assert takes.numbers == {"first": 7}
                tasks.cancel_scope.cancel()
        assert not waiting.cancelled_caught


async def test_a_failure_reaches_who_waits_and_a_later_take_works_again() -> None:
    maker = Maker()
    async with open_pool(maker, size=2) as (pool, _):
        maker.failure = refusal("no memory")
        with pytest.raises(Stopped, match="no memory") as caught:
            await take(pool)
        assert caught.value.kind is Kind.UNAVAILABLE
        maker.failure = None
        assert (await take(pool)).number == 0
        await everybody_waits()
        assert pool.ready == 2


async def test_a_failure_reaches_all_who_waited_for_it() -> None:
    maker = Maker(at_once=False)
    async with open_pool(maker, size=0) as (pool, takes):
        await takes.begin("a", "b", "c")
        maker.failure = refusal("no memory")
        await maker.finish(3)
        assert takes.failed == ["a", "b", "c"]
        assert not pool.busy


async def test_who_comes_after_a_failure_has_it_tried_again() -> None:
    maker = Maker(at_once=False)
    async with open_pool(maker, size=0) as (_, takes):
        await takes.begin("a")
        maker.failure = refusal("no memory")
        await maker.finish()
        assert takes.failed == ["a"]
        maker.failure = None
        await takes.begin("b")
        await maker.finish()
    assert takes.numbers == {"b": 0}


async def test_a_failure_is_not_told_while_another_may_still_be_made() -> None:
    maker = Maker(at_once=False)
    async with open_pool(maker, size=1) as (_, takes):
        await takes.begin("a")
        maker.failure = refusal("no memory")
        await maker.finish()
        assert takes.got == {}
        maker.failure = None
        await maker.finish()
    assert takes.numbers == {"a": 0}


async def test_who_gets_none_because_one_failed_is_not_forgotten() -> None:
    maker = Maker(at_once=False)
    async with open_pool(maker, size=0) as (_, takes):
        await takes.begin("a", "b")
        maker.failure = refusal("no memory")
        await maker.finish()
        maker.failure = None
        await maker.finish()
        assert takes.numbers == {"a": 0}
        await maker.finish()
    assert takes.numbers == {"a": 0, "b": 1}


async def test_dead_spares_are_let_go_of_and_replaced() -> None:
    maker = Maker()
    async with open_pool(maker, size=2) as (pool, _):
        await take(pool)
        await everybody_waits()
        for spare in maker.made:
            spare.handle.kill()
        assert (await take(pool)).number == 3
        assert [spare.discarded for spare in maker.made[:3]] == [False, True, True]
        await everybody_waits()
        assert pool.ready == 2


async def test_draining_kills_all_that_wait_and_the_next_take_works() -> None:
    maker = Maker()
    async with open_pool(maker, size=2) as (pool, _):
        taken = await take(pool)
        await everybody_waits()
        await pool.drain()
        assert pool.ready == 0
        assert [spare.discarded for spare in maker.made] == [False, True, True]
        assert not taken.discarded
        assert (await take(pool)).number == 3


async def test_one_that_is_given_back_is_the_next_to_be_taken() -> None:
    async with open_pool(Maker(), size=1) as (pool, _):
        spare = await take(pool)
        pool.give_back(spare)
        assert await take(pool) is spare


async def test_one_that_is_given_back_serves_who_waits() -> None:
    maker = Maker(at_once=False)
    async with open_pool(maker, size=0) as (pool, takes):
        await takes.begin("a")
        pool.give_back(FakeSpare(9))
        await everybody_waits()
        assert takes.numbers == {"a": 9}


async def test_facts_are_asked_once_and_use_up_no_spare() -> None:
    maker = Maker()
    async with open_pool(maker, size=1) as (pool, _):
        with anyio.fail_after(PATIENCE_S):
            assert await pool.facts() == {"number": 0}
            maker.made[0].facts = {"number": "changed"}
            assert await pool.facts() == {"number": 0}
        assert (await take(pool)).number == 0


async def test_a_spare_that_tells_no_facts_is_let_go_of() -> None:
    maker = Maker(at_once=False)
    async with open_pool(maker, size=0) as (pool, _):
        spare = FakeSpare(0)
        spare.facts = refusal("too old")
        pool.give_back(spare)
        with anyio.fail_after(PATIENCE_S), pytest.raises(Stopped, match="too old"):
            await pool.facts()
    assert spare.discarded


async def test_filled_waits_for_what_is_missing() -> None:
    maker = Maker(at_once=False)
    async with open_pool(maker, size=2) as (pool, _), anyio.create_task_group() as tasks:
        filled = anyio.Event()

        async def fill() -> None:
            await pool.filled()
            filled.set()

        tasks.start_soon(fill)
        await everybody_waits()
        await maker.finish()
        assert not filled.is_set()
        await maker.finish()
        assert filled.is_set()


async def test_filled_tells_why_it_can_not_be() -> None:
    maker = Maker()
    maker.failure = refusal("no memory")
    async with open_pool(maker, size=2) as (pool, _):
        with anyio.fail_after(PATIENCE_S), pytest.raises(Stopped, match="no memory"):
            await pool.filled()


@asynccontextmanager
async def given_up(pool: Pool, takes: Takes) -> AsyncGenerator[None]:
    """One who waits, with ``next`` behind; on leaving, the first gives up."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pool.take)
        await everybody_waits()
        await takes.begin("next")
        yield
        tasks.cancel_scope.cancel()


async def test_a_waiter_that_is_cancelled_leaves_its_spare_to_the_next() -> None:
    maker = Maker(at_once=False)
    async with open_pool(maker, size=0) as (pool, takes):
        async with given_up(pool, takes):
            pass
        await maker.finish()
        assert takes.numbers == {"next": 0}
        # The one that was made for the other is kept for whoever comes.
        await maker.finish()
        assert (pool.ready, pool.busy) == (1, False)
        await takes.begin("later")
    assert takes.numbers == {"next": 0, "later": 1}
    assert maker.begun == 2


async def test_a_waiter_that_is_cancelled_just_as_its_spare_is_ready_holds_up_nobody() -> None:
    maker = Maker(at_once=False)
    async with open_pool(maker, size=0) as (pool, takes):
        async with given_up(pool, takes):
            pool.give_back(FakeSpare(5))
        await maker.finish(2)
        assert list(takes.numbers) == ["next"]
        assert not pool.busy


async def test_a_cancelled_pool_tells_nobody_anything_and_keeps_nothing() -> None:
    maker = Maker(at_once=False)
    async with open_pool(maker, size=2) as (pool, takes):
        await takes.begin("a")
    assert (takes.got, pool.ready, pool.busy) == ({}, 0, False)


async def test_closing_kills_all_that_are_ready() -> None:
    maker = Maker()
    async with open_pool(maker, size=2) as (pool, _):
        taken = await take(pool)
        await everybody_waits()
        await pool.close(refusal("closed"))
        assert [spare.discarded for spare in maker.made] == [False, True, True]
        assert not taken.discarded


async def test_closing_tells_all_who_wait_and_all_who_come() -> None:
    maker = Maker(at_once=False)
    async with open_pool(maker, size=0) as (pool, takes):
        await takes.begin("waits")
        await pool.close(refusal("closed"))
        await everybody_waits()
        assert takes.failed == ["waits"]
        with pytest.raises(Stopped, match="closed"):
            await take(pool)
        with anyio.fail_after(PATIENCE_S), pytest.raises(Stopped, match="closed"):
            await pool.filled()
    assert maker.begun == 1
