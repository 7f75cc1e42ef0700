"""The gate before pools: while it is quiet only what is waited for is made, and nobody holds it up for ever."""

import anyio
import pytest

from tests.sandbox.fake_spares import PATIENCE_S, FakeSpare, Maker, Takes, everybody_waits, open_pool, refusal, take
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.pool import Gate, Pool
from tritonforge.sandbox.process import WorkerProcess

pytestmark = pytest.mark.anyio


async def test_spares_are_made_side_by_side() -> None:
    maker, gate = Maker(at_once=False), Gate()
    async with open_pool(maker, size=3, gate=gate) as (pool, takes):
        await takes.begin("a")
        assert maker.begun == 4
        await maker.finish(4)
        assert pool.ready == 3


async def test_nothing_that_nobody_waits_for_is_made_while_it_is_quiet() -> None:
    maker, gate = Maker(), Gate()
    async with open_pool(maker, size=2, gate=gate) as (pool, _):
        async with gate.quiet():
            pool.fill()
            await everybody_waits()
            assert (maker.begun, pool.busy) == (0, True)
        await everybody_waits()
        assert pool.ready == 2


async def test_one_that_is_waited_for_is_made_while_it_is_quiet_and_no_others() -> None:
    maker, gate = Maker(), Gate()
    async with open_pool(maker, size=2, gate=gate) as (pool, takes):
        async with gate.quiet():
            await takes.begin("a")
            assert (takes.numbers, maker.begun, pool.ready) == ({"a": 0}, 1, 0)
            await takes.begin("b")
            assert (takes.numbers, maker.begun, pool.ready) == ({"a": 0, "b": 1}, 2, 0)
        await everybody_waits()
        assert (maker.begun, pool.ready) == (4, 2)


async def test_as_many_are_made_while_it_is_quiet_as_wait_at_a_time() -> None:
    maker, gate = Maker(at_once=False), Gate()
    async with open_pool(maker, size=2, gate=gate) as (pool, takes):
        async with gate.quiet():
            await takes.begin("a", "b", "c")
            assert maker.begun == 3
            await maker.finish()
            assert (takes.numbers, maker.begun) == ({"a": 0}, 3)
            await maker.finish(2)
            assert (takes.numbers, maker.begun, pool.ready) == ({"a": 0, "b": 1, "c": 2}, 3, 0)
        await everybody_waits()
        assert maker.begun == 5


async def test_one_that_was_begun_before_and_held_up_is_let_through_when_somebody_comes_to_wait() -> None:
    maker, gate = Maker(), Gate()
    async with open_pool(maker, size=1, gate=gate) as (pool, takes), gate.quiet():
        pool.fill()
        await everybody_waits()
        assert maker.begun == 0
        await takes.begin("a")
        assert (takes.numbers, maker.begun) == ({"a": 0}, 1)


async def test_a_failure_while_it_is_quiet_lets_no_other_through() -> None:
    maker, gate = Maker(), Gate()
    async with open_pool(maker, size=0, gate=gate) as (_, takes), gate.quiet():
        maker.failure = refusal("no memory")
        await takes.begin("a")
        assert (takes.failed, maker.begun) == (["a"], 1)
        maker.failure = None
        await takes.begin("b")
        assert (takes.numbers, maker.begun) == ({"b": 0}, 2)


async def test_those_that_are_ready_are_given_while_it_is_quiet() -> None:
    maker, gate = Maker(), Gate()
    async with open_pool(maker, size=1, gate=gate) as (pool, _):
        await take(pool)
        await everybody_waits()
        async with gate.quiet():
            assert (await take(pool)).number == 1
        await everybody_waits()
        assert pool.ready == 1


async def test_quiet_waits_for_what_is_being_made() -> None:
    maker, gate = Maker(at_once=False), Gate()
    is_quiet, over = anyio.Event(), anyio.Event()

    async def measure() -> None:
        async with gate.quiet():
            is_quiet.set()
            await over.wait()

    async with open_pool(maker, size=1, gate=gate) as (pool, takes), anyio.create_task_group() as tasks:
        await takes.begin("a")
        tasks.start_soon(measure)
        await everybody_waits()
        assert not is_quiet.is_set()
        await maker.finish()
        assert not is_quiet.is_set()
        await maker.finish()
        assert is_quiet.is_set()
        # One is ready for whoever comes; filling up behind them waits until it is over.
        await takes.begin("b")
        assert (takes.numbers, maker.begun) == ({"a": 0, "b": 1}, 2)
        over.set()
        await everybody_waits()
        assert maker.begun == 3
        await maker.finish()
        assert pool.ready == 1


async def test_who_waits_for_quiet_keeps_more_from_being_made() -> None:
    maker, other_maker, gate = Maker(at_once=False), Maker(), Gate()
    was_quiet = anyio.Event()

    async def measure() -> None:
        async with gate.quiet():
            assert (maker.begun, other_maker.begun) == (1, 0)
            was_quiet.set()

    async with (
        open_pool(maker, size=0, gate=gate) as (_, takes),
        open_pool(other_maker, size=1, gate=gate) as (other, _),
        anyio.create_task_group() as tasks,
    ):
        await takes.begin("a")
        tasks.start_soon(measure)
        await everybody_waits()
        other.fill()
        await everybody_waits()
        assert other_maker.begun == 0
        await maker.finish()
        assert was_quiet.is_set()
        assert other_maker.begun == 1


async def test_two_may_be_quiet_at_a_time() -> None:
    maker, gate = Maker(), Gate()
    async with open_pool(maker, size=1, gate=gate) as (pool, _):
        async with gate.quiet():
            async with gate.quiet():
                pool.fill()
            await everybody_waits()
            assert maker.begun == 0
        await everybody_waits()
    assert maker.begun == 1


async def test_waiting_for_quiet_can_be_cancelled_and_leaves_nothing_stuck() -> None:
    maker, gate = Maker(at_once=False), Gate()
    async with open_pool(maker, size=0, gate=gate) as (_, takes):
        await takes.begin("a")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(gate.quiet().__aenter__)
            await everybody_waits()
            tasks.cancel_scope.cancel()
        await takes.begin("b")
        assert maker.begun == 2
        await maker.finish(2)
        with anyio.fail_after(PATIENCE_S):
            async with gate.quiet():
                pass
    assert takes.numbers == {"a": 0, "b": 1}


async def test_what_waits_to_be_made_can_be_cancelled_and_leaves_nothing_stuck() -> None:
    gate = Gate()
    async with gate.quiet():
        async with open_pool(Maker(), gate=gate) as (pool, _):
            pool.fill()
            await everybody_waits()
            assert pool.busy
        assert (pool.ready, pool.busy) == (0, False)
    with anyio.fail_after(PATIENCE_S):
        async with gate.making(), gate.making():
            pass
        async with gate.quiet():
            pass


async def test_what_is_being_made_can_be_cancelled_and_leaves_nothing_stuck() -> None:
    gate = Gate()
    async with open_pool(Maker(at_once=False), gate=gate) as (_, takes):
        await takes.begin("a")
    with anyio.fail_after(PATIENCE_S):
        async with gate.quiet():
            pass


async def test_exceptions_leave_the_gate_as_it_was() -> None:
    gate = Gate()
    with pytest.raises(LookupError):
        async with gate.quiet():
            raise LookupError
    with pytest.raises(LookupError):
        async with gate.making():
            raise LookupError
    with anyio.fail_after(PATIENCE_S):
        async with gate.making():
            pass
        async with gate.quiet():
            pass


async def test_a_failure_behind_the_gate_leaves_it_open() -> None:
    maker, gate = Maker(), Gate()
    maker.failure = refusal("no memory")
    async with open_pool(maker, gate=gate) as (pool, _):
        with pytest.raises(Stopped, match="no memory"):
            await take(pool)
        with anyio.fail_after(PATIENCE_S):
            async with gate.quiet():
                pass


async def test_where_it_can_be_only_the_last_step_of_a_spare_waits_for_the_gate() -> None:
    maker, gate, finished = Maker(), Gate(), list[int]()

    async def finish(spare: WorkerProcess) -> None:
        assert isinstance(spare, FakeSpare)
        finished.append(spare.number)

    async with anyio.create_task_group() as tasks:
        pool = Pool(maker, size=2, gate=gate, tasks=tasks, finish=finish)
        async with gate.quiet():
            pool.fill()
            await everybody_waits()
            assert (maker.begun, finished, pool.ready) == (2, [], 0)
        await everybody_waits()
        assert (sorted(finished), pool.ready) == ([0, 1], 2)


async def test_a_spare_whose_last_step_fails_is_gone_and_whoever_waits_is_told() -> None:
    maker = Maker()

    async def finish(spare: WorkerProcess) -> None:
        raise refusal("no device")

    async with anyio.create_task_group() as tasks:
        pool = Pool(maker, size=1, gate=Gate(), tasks=tasks, finish=finish)
        with pytest.raises(Stopped, match="no device"):
            await take(pool)
        await everybody_waits()
    assert maker.made
    assert all(spare.discarded for spare in maker.made)


async def test_a_spare_that_waits_for_the_gate_goes_with_its_pool() -> None:
    maker, gate = Maker(), Gate()

    async def finish(spare: WorkerProcess) -> None:
        raise NotImplementedError

    async with anyio.create_task_group() as tasks:
        pool = Pool(maker, size=1, gate=gate, tasks=tasks, finish=finish)
        async with gate.quiet():
            pool.fill()
            await everybody_waits()
            tasks.cancel_scope.cancel()
    assert [spare.discarded for spare in maker.made] == [True]


async def test_a_spare_of_several_steps_waits_for_others_measurements_also_where_it_is_waited_for() -> None:
    maker, gate = Maker(), Gate()

    async def finish(spare: WorkerProcess) -> None:
        pass

    async with anyio.create_task_group() as tasks:
        pool = Pool(maker, size=1, gate=gate, tasks=tasks, finish=finish)
        takes = Takes(pool, tasks)
        async with gate.quiet():
            await takes.begin("a")
            assert (maker.begun, takes.numbers) == (2, {})
        await everybody_waits()
        assert len(takes.numbers) == 1


async def test_spares_that_nobody_waits_for_any_more_do_not_stay() -> None:
    maker = Maker(at_once=False)
    async with anyio.create_task_group() as tasks:
        pool = Pool(maker, size=1, gate=None, tasks=tasks)
        async with anyio.create_task_group() as waiting:
            for _ in range(3):
                waiting.start_soon(pool.take)
            await everybody_waits()
            waiting.cancel_scope.cancel()
        assert maker.begun == 4
        await maker.finish(4)
        assert pool.ready == 1
        assert sum(spare.discarded for spare in maker.made) == 3


LONG_S = 1000.0


async def fill(pool: Pool, maker: Maker, count: int) -> None:
    """Have a pool's first spares made."""
    pool.fill()
    await everybody_waits()
    await maker.finish(count)


async def test_after_a_measurement_the_next_one_comes_before_what_can_wait() -> None:
    maker, gate = Maker(), Gate(LONG_S)
    async with open_pool(maker, size=6, gate=gate) as (pool, takes):
        await pool.filled()
        for number in range(2):
            async with gate.quiet():
                await takes.begin(f"{number}")
                await everybody_waits()
            await everybody_waits()
            assert (maker.begun, pool.ready) == (6, 5 - number)


async def test_where_few_are_left_all_that_are_missing_are_made_at_once() -> None:
    maker, gate = Maker(at_once=False), Gate(LONG_S)
    async with open_pool(maker, size=6, gate=gate) as (pool, takes):
        await fill(pool, maker, 6)
        async with gate.quiet():
            await takes.begin(*"abcde")
            await everybody_waits()
            assert (maker.begun, pool.ready) == (6, 1)
        await everybody_waits()
        assert maker.begun == 11
        await maker.finish(5)
        assert pool.ready == 6


async def test_one_that_is_taken_last_of_many_has_the_others_made_in_the_rest_too() -> None:
    maker, gate = Maker(at_once=False), Gate(LONG_S)
    async with open_pool(maker, size=6, gate=gate) as (pool, takes):
        await fill(pool, maker, 6)
        async with gate.quiet():
            await takes.begin(*"abc")
            await everybody_waits()
        await everybody_waits()
        assert (maker.begun, pool.ready) == (6, 3)
        await takes.begin("d", "e")
        await everybody_waits()
        assert maker.begun == 11
        await maker.finish(5)


async def test_when_no_measurement_follows_what_is_missing_is_made() -> None:
    maker, gate = Maker(), Gate(0.01)
    async with open_pool(maker, size=3, gate=gate) as (pool, takes):
        await pool.filled()
        async with gate.quiet():
            await takes.begin("a")
        with anyio.fail_after(PATIENCE_S):
            await pool.filled()
        assert (maker.begun, pool.ready) == (4, 3)


async def test_what_somebody_waits_for_needs_no_rest() -> None:
    maker, gate = Maker(), Gate(LONG_S)
    async with open_pool(maker, size=0, gate=gate) as (_, takes):
        async with gate.quiet():
            pass
        await takes.begin("a")
        assert takes.numbers == {"a": 0}
    with anyio.fail_after(PATIENCE_S):
        async with gate.making(urgent=lambda: True):
            pass
