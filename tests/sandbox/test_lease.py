"""Leases: one holder of a GPU at a time, in order, whatever ends the others.

Two `Leases` of one folder stand for two servers: flock(2) tells open files apart, not processes.
"""

import os
import signal
import sys
from pathlib import Path

import anyio
import pytest
from anyio import wait_all_tasks_blocked
from anyio.streams.buffered import BufferedByteReceiveStream

from tests.sandbox.holders import GPU, OTHER, Caller, descriptors, lock_files, locked, taken
from tritonforge.sandbox.lease import Leases

pytestmark = pytest.mark.anyio
SERVER = """\
import sys
from pathlib import Path
import anyio
from tritonforge.sandbox.lease import Leases

async def main():
    async with Leases(Path(sys.argv[1])).hold(sys.argv[2]):
        print("held", flush=True)
        sys.stdin.read()

anyio.run(main)
"""


async def test_callers_of_one_server_are_served_in_the_order_they_came(tmp_path: Path) -> None:
    leases, got = Leases(tmp_path), list[str]()
    callers = [Caller(leases, name, got) for name in "abcd"]
    async with anyio.create_task_group() as tasks:
        for caller in callers:
            tasks.start_soon(caller.run)
            await wait_all_tasks_blocked()
        for number, caller in enumerate(callers, 1):
            await caller.holds.wait()
            await wait_all_tasks_blocked()
            assert got == list("abcd"[:number])
            caller.let_go.set()


async def test_only_one_of_two_servers_holds_a_gpu(tmp_path: Path) -> None:
    got: list[str] = []
    ours, theirs = Caller(Leases(tmp_path), "ours", got), Caller(Leases(tmp_path), "theirs", got)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ours.run)
        await ours.holds.wait()
        tasks.start_soon(theirs.run)
        await wait_all_tasks_blocked()
        assert got == ["ours"]
        ours.let_go.set()
        await theirs.holds.wait()
        theirs.let_go.set()


async def test_a_busy_server_lets_the_one_waiting_go_before_its_own_next_caller(tmp_path: Path) -> None:
    busy, got = Leases(tmp_path), list[str]()
    callers = [Caller(busy, name, got) for name in ("first", "second", "third")]
    patient = Caller(Leases(tmp_path), "patient", got)
    async with anyio.create_task_group() as tasks:
        # The busy server's callers stand in its own queue before the patient server even asks.
        for caller in [*callers, patient]:
            tasks.start_soon(caller.run)
            await wait_all_tasks_blocked()
        for caller in [*callers, patient]:
            caller.let_go.set()
    # The second has its place among the servers already.
    assert got == ["first", "second", "patient", "third"]


@pytest.mark.parametrize("servers", [1, 2])
async def test_those_who_share_a_gpu_have_it_together(servers: int, tmp_path: Path) -> None:
    one = Leases(tmp_path)
    other = one if servers == 1 else Leases(tmp_path)
    async with taken(one, alone=False), taken(other, alone=False):
        assert one.waiting(GPU) == 3 - servers
        assert locked(lock_files(tmp_path)[0])


@pytest.mark.parametrize("servers", [1, 2])
async def test_who_wants_it_alone_waits_for_all_who_share_it_and_the_later_ones_wait_behind(
    servers: int, tmp_path: Path
) -> None:
    ours, got = Leases(tmp_path), list[str]()
    theirs = ours if servers == 1 else Leases(tmp_path)
    sharing = [Caller(each, name, got, alone=False) for each, name in ((ours, "first"), (theirs, "second"))]
    alone, late = Caller(theirs, "alone", got), Caller(ours, "late", got, alone=False)
    async with anyio.create_task_group() as tasks:
        for caller in sharing:
            tasks.start_soon(caller.run)
            await caller.holds.wait()
        for caller in (alone, late):
            tasks.start_soon(caller.run)
            # Until it has its place in the queue.
            while not locked(lock_files(tmp_path)[1]):
                await wait_all_tasks_blocked()
        for caller in sharing:
            assert got == ["first", "second"]
            caller.let_go.set()
        await alone.holds.wait()
        await wait_all_tasks_blocked()
        assert got == ["first", "second", "alone"]
        alone.let_go.set()
        await late.holds.wait()
        late.let_go.set()


async def test_a_killed_server_leaves_nothing_stuck(tmp_path: Path) -> None:
    got: list[str] = []
    caller = Caller(Leases(tmp_path), "ours", got)
    async with (
        await anyio.open_process([sys.executable, "-c", SERVER, str(tmp_path), GPU], stderr=None) as server,
        anyio.create_task_group() as tasks,
    ):
        assert server.stdout is not None
        assert await BufferedByteReceiveStream(server.stdout).receive_until(b"\n", 10) == b"held"
        tasks.start_soon(caller.run)
        await wait_all_tasks_blocked()
        assert got == []
        server.send_signal(signal.SIGKILL)
        await caller.holds.wait()
        caller.let_go.set()
    assert got == ["ours"]


async def test_another_gpu_is_free_while_one_is_held(tmp_path: Path) -> None:
    leases = Leases(tmp_path)
    async with taken(leases), taken(leases, OTHER), taken(Leases(tmp_path), "GPU-0003"):
        assert (leases.waiting(GPU), leases.waiting(OTHER)) == (1, 1)


async def test_a_cancelled_caller_frees_its_place_in_the_servers_queue(tmp_path: Path) -> None:
    leases, got = Leases(tmp_path), list[str]()
    first, second, third = (Caller(leases, name, got) for name in ["first", "second", "third"])
    async with anyio.create_task_group() as tasks:
        for caller in [first, second, third]:
            tasks.start_soon(caller.run)
            await wait_all_tasks_blocked()
        second.scope.cancel()
        await wait_all_tasks_blocked()
        assert leases.waiting(GPU) == 2
        first.let_go.set()
        await third.holds.wait()
        third.let_go.set()
    assert got == ["first", "third"]


async def test_a_cancelled_server_frees_its_place_among_the_servers_at_once(tmp_path: Path) -> None:
    device, queue = lock_files(tmp_path)
    waiting = Leases(tmp_path)
    caller = Caller(waiting, "cancelled", [])
    async with taken(Leases(tmp_path)):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(caller.run)
            await wait_all_tasks_blocked()
            assert locked(queue)
            caller.scope.cancel()
        assert not locked(queue)
        assert waiting.waiting(GPU) == 0
        assert locked(device)
        assert len(descriptors(device)) == 1
    assert descriptors(device) + descriptors(queue) == []


async def test_a_server_cancelled_in_the_queue_leaves_the_queue_to_its_holder(tmp_path: Path) -> None:
    _, queue = lock_files(tmp_path)
    second, third = Caller(Leases(tmp_path), "second", []), Caller(Leases(tmp_path), "third", [])
    async with taken(Leases(tmp_path)), anyio.create_task_group() as tasks:
        for caller in [second, third]:
            tasks.start_soon(caller.run)
            await wait_all_tasks_blocked()
        third.scope.cancel()
        await wait_all_tasks_blocked()
        assert locked(queue)
        assert len(descriptors(queue)) == 1
        second.scope.cancel()


async def test_a_holder_that_fails_releases_the_gpu(tmp_path: Path) -> None:
    leases = Leases(tmp_path)
    with pytest.raises(LookupError):
        async with taken(leases):
            raise LookupError
    assert [locked(path) for path in lock_files(tmp_path)] == [False, False]
    assert leases.waiting(GPU) == 0


async def test_a_holder_lets_the_next_server_into_the_queue(tmp_path: Path) -> None:
    async with taken(Leases(tmp_path)):
        assert [locked(path) for path in lock_files(tmp_path)] == [True, False]


async def test_a_child_that_still_has_a_copy_of_the_descriptor_does_not_keep_the_gpu(tmp_path: Path) -> None:
    device, _ = lock_files(tmp_path)
    async with taken(Leases(tmp_path)):
        (descriptor,) = descriptors(device)
        copy = os.dup(descriptor)
    try:
        assert not locked(device)
    finally:
        os.close(copy)


async def test_workers_do_not_inherit_the_descriptor(tmp_path: Path) -> None:
    async with taken(Leases(tmp_path)):
        (descriptor,) = descriptors(lock_files(tmp_path)[0])
        assert not os.get_inheritable(descriptor)


async def test_waiting_counts_those_who_hold_and_those_who_wait(tmp_path: Path) -> None:
    leases, got = Leases(tmp_path), list[str]()
    callers = [Caller(leases, name, got) for name in "abc"]
    assert leases.waiting(GPU) == 0
    async with anyio.create_task_group() as tasks:
        for number, caller in enumerate(callers, 1):
            tasks.start_soon(caller.run)
            await wait_all_tasks_blocked()
            assert leases.waiting(GPU) == number
        for caller in callers:
            caller.let_go.set()
    assert leases.waiting(GPU) == 0


async def test_waiting_counts_one_who_waits_for_another_server(tmp_path: Path) -> None:
    leases = Leases(tmp_path)
    caller = Caller(leases, "ours", [])
    async with taken(Leases(tmp_path)), anyio.create_task_group() as tasks:
        tasks.start_soon(caller.run)
        await wait_all_tasks_blocked()
        assert leases.waiting(GPU) == 1
        caller.scope.cancel()
