"""Runs as resources, and subscriptions to them, in both eras of the protocol."""

import contextlib
import json
from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest
from mcp.client import Client
from mcp.client.subscriptions import ResourcesListChanged, ResourceUpdated, ServerEvent
from mcp.server.mcpserver import MCPServer
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError
from mcp_types import ResourceUpdatedNotification, TextResourceContents

from tests.server.conftest import content_of
from tests.server.runs.fake_evaluator import FakeEvaluator, candidate, task
from tests.server.runs.in_store import RUN_ID, begun, claimed, finished
from tests.server.runs.test_store_broken import in_database
from tritonforge.server.app import build_server
from tritonforge.server.run_resources import PAGE, register
from tritonforge.server.run_uris import RUNS, attempt_uri, kernel_uri, named, run_uri
from tritonforge.server.run_watch import SUBSCRIPTIONS
from tritonforge.server.runs.store import Store
from tritonforge.server.settings import Settings

pytestmark = pytest.mark.anyio

PATIENCE_S = 60
ERAS: list[Any] = ["legacy", "auto"]
RUN, ATTEMPT = run_uri(RUN_ID), attempt_uri(RUN_ID, 1)

both_eras = pytest.mark.parametrize("era", ERAS)


@pytest.fixture
def store(settings: Settings) -> Store:
    return Store(settings.state_dir / "runs")


def serving(store: Store) -> MCPServer[Any]:
    """A server that has nothing but the runs, and looks after them all the time."""

    @contextlib.asynccontextmanager
    async def lifespan(_: MCPServer[Any]) -> AsyncGenerator[None]:
        async with watch:
            yield None

    server: MCPServer[Any] = MCPServer("runs", lifespan=lifespan)
    watch = register(server, store, poll_s=0.01)
    return server


async def read(client: Client, uri: str) -> str:
    (content,) = (await client.read_resource(uri)).contents
    assert isinstance(content, TextResourceContents)
    return content.text


async def subscribe(client: Client, uri: str) -> None:
    """As a client of the handshake era does."""
    with pytest.warns(MCPDeprecationWarning):
        await client.subscribe_resource(uri)  # pyright: ignore[reportDeprecated] - that era is served too


async def unsubscribe(client: Client, uri: str) -> None:
    with pytest.warns(MCPDeprecationWarning):
        await client.unsubscribe_resource(uri)  # pyright: ignore[reportDeprecated] - that era is served too


# What is read.


@both_eras
async def test_a_run_its_attempts_and_their_files_are_read(settings: Settings, era: Any) -> None:
    async with Client(build_server(settings, lambda _: FakeEvaluator()), mode=era) as client:
        baseline = candidate(1, findings=["V6"])
        given = {"kernel": baseline, "task": task("my kernel")}
        started = content_of(await client.call_tool("start_optimization", given))
        run_id, better = started["run_id"], candidate(2, ratio=1.5)
        await client.call_tool("submit_candidate", {"run_id": run_id, "kernel": better, "strategy": "wider loads"})

        (listed,) = (await client.list_resources()).resources
        assert (listed.uri, listed.name, listed.title) == (run_uri(run_id), run_id, "my kernel")
        run = json.loads(await read(client, listed.uri))
        assert (run["state"], run["incumbent"], run["hidden_cases"]) == ("open", 1, 1)
        first, second = run["attempts"]
        assert (first["number"], first["ratio"]) == (0, None)
        assert (second["strategy"], second["kind"], second["accepted"]) == ("wider loads", "ok", True)
        assert second["ratio_low"] < second["ratio"] == 1.5 < second["ratio_high"]
        record = json.loads(await read(client, second["record"]))
        assert record["verdict"]["verdict"] == "accept"
        assert [timing["against"] for timing in record["evidence"]["timings"]] == [0]
        assert await read(client, first["kernel"]) == baseline
        assert await read(client, second["kernel"]) == better


async def test_nothing_of_hidden_cases_is_read_but_their_number(settings: Settings) -> None:
    hidden = "HIDDEN_CASES = {'ragged-1823': {'rows': 1823, 'note': 'confidential'}, 'other': {'rows': 7717}}\n"
    async with Client(build_server(settings, lambda _: FakeEvaluator())) as client:
        # A file may be kernel and task at once.
        given = {"kernel": f"{candidate(1)}\n{hidden}", "task": task(), "hidden_cases": hidden, "target_ratio": 2.0}
        run_id: str = content_of(await client.call_tool("start_optimization", given))["run_id"]
        for number, fake in enumerate([{"ratio": 1.5}, {"ratio": 1.8, "confirm": "wrong"}, {"ratio": 3.0}], 2):
            kernel = candidate(number, **fake)
            answer = await client.call_tool(
                "submit_candidate", {"run_id": run_id, "kernel": kernel, "strategy": "an idea of its own"}
            )
            assert not answer.is_error
        told = [await read(client, run_uri(run_id))]
        run = json.loads(told[0])
        assert (run["state"], run["hidden_cases"], run["verified"]["hidden_checked"]) == ("finished", 2, 2)
        told += [await read(client, attempt["record"]) for attempt in run["attempts"]]
        assert json.loads(told[-1])["evidence"]["confirmation"]["timing"]["cases"]
        told += [await read(client, attempt["kernel"]) for attempt in run["attempts"]]
    for secret in ("1823", "confidential", "ragged-", "7717", "hidden_sha256", "hidden_dropped"):
        assert secret not in "".join(told)


async def test_a_long_text_is_read_in_parts_and_never_cut_silently(store: Store) -> None:
    begun(store)
    text = "".join(f"# line {number}\n" for number in range(20_000))
    claimed(store, text=text)
    uri = kernel_uri(RUN_ID, 1)
    async with Client(serving(store)) as client:
        assert await read(client, f"{uri}?offset=3&limit=2") == "# line 3\n# line 4\n"
        assert await read(client, f"{uri}?offset=19999") == "# line 19999\n"
        assert await read(client, f"{uri}?limit=0") == ""
        for too_much in (uri, f"{uri}?limit=19000"):
            with pytest.raises(MCPError, match=r"20,000 lines in parts, with \?offset=0&limit=1000"):
                await read(client, too_much)
        lines = (await read(client, RUN)).splitlines(keepends=True)
        assert await read(client, f"{RUN}?offset=1&limit=1") == lines[1]


@both_eras
@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        (run_uri("sin-000000"), "there is no run"),
        (attempt_uri("sin-000000", 0), "there is no run"),
        (attempt_uri(RUN_ID, 7), "no attempt 7"),
        (f"{RUN}/attempts/one", "by its number"),
        (f"{RUN}/attempts/{'9' * 400}/kernel", "by its number"),
        (f"{RUN}?offset=-1", "whole numbers"),
        (f"{RUN}?limit=many", "whole numbers"),
        (f"{RUN}/files", "Unknown resource"),
    ],
)
async def test_what_is_not_there_is_said_with_what_is(store: Store, era: Any, uri: str, reason: str) -> None:
    begun(store)
    async with Client(serving(store), mode=era) as client:
        with pytest.raises(MCPError, match=reason):
            await read(client, uri)


async def test_folders_of_this_machine_are_not_told(store: Store) -> None:
    begun(store, kernel_origin="/somebody/s/folder", task_origin="/somebody/s/folder")
    async with Client(serving(store)) as client:
        assert "folder" not in await read(client, RUN) + await read(client, attempt_uri(RUN_ID, 0))


# What is listed.


async def test_many_runs_are_listed_in_parts_newest_first(store: Store) -> None:
    count = PAGE + 3
    for number in range(count):
        begun(store, f"sin-{number:06}", created_at=f"2026-11-30T12:00:00.{number:03}+00:00")
    async with Client(serving(store)) as client:
        first = await client.list_resources()
        rest = await client.list_resources(cursor=first.next_cursor)
        with pytest.raises(MCPError, match="from the beginning"):
            await client.list_resources(cursor="17")
    assert (len(first.resources), len(rest.resources), rest.next_cursor) == (PAGE, 3, None)
    names = [resource.name for resource in [*first.resources, *rest.resources]]
    assert names == [f"sin-{number:06}" for number in reversed(range(count))]


async def test_a_damaged_run_is_listed_as_such_and_hides_no_other(store: Store) -> None:
    begun(store)
    begun(store, "another")
    in_database(store, f"UPDATE runs SET record = '{{}}' WHERE run_id = '{RUN_ID}'")
    async with Client(serving(store)) as client:
        whole, damaged = (await client.list_resources()).resources
    assert (whole.name, damaged.name) == ("another", RUN_ID)
    assert "can't be read: the record of run" in (damaged.description or "")


async def test_a_list_makes_no_folder(store: Store) -> None:
    async with Client(serving(store)) as client:
        assert (await client.list_resources()).resources == []
    assert not store.folder.exists()


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        (RUN, (RUN_ID, None, False)),
        (ATTEMPT, (RUN_ID, 1, False)),
        (f"{ATTEMPT}?limit=3", (RUN_ID, 1, False)),
        (kernel_uri(RUN_ID, 12), (RUN_ID, 12, True)),
        (RUNS, None),
        (f"{RUN}/attempts", None),
        (f"{ATTEMPT}/task", None),
        ("tritonforge://artifacts/0123456789abcdef/sin.ptx", None),
    ],
)
def test_a_name_tells_the_run_and_the_attempt(uri: str, expected: tuple[str, int | None, bool] | None) -> None:
    assert named(uri) == expected


# Subscriptions.


class Updates:
    """What a client of the handshake era is told."""

    def __init__(self) -> None:
        self._send, self._receive = anyio.create_memory_object_stream[str](100)

    async def __call__(self, message: Any) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            await self._send.send(str(message.params.uri))

    async def next(self) -> str:
        with anyio.fail_after(PATIENCE_S):
            return await self._receive.receive()

    def close(self) -> None:
        self._send.close()
        self._receive.close()


@contextlib.asynccontextmanager
async def told(server: MCPServer[Any]) -> AsyncGenerator[tuple[Client, Updates]]:
    """A client of the handshake era, and what it is told."""
    updates = Updates()
    with contextlib.closing(updates):
        async with Client(server, mode="legacy", message_handler=updates) as client:
            yield client, updates


async def test_a_client_of_the_handshake_era_is_told_what_it_has_subscribed_to(store: Store) -> None:
    begun(store)
    attempt = claimed(store)
    async with told(serving(store)) as (client, updates):
        assert client.server_capabilities.resources is not None
        assert client.server_capabilities.resources.subscribe
        await subscribe(client, ATTEMPT)
        await subscribe(client, run_uri("other-000000"))
        store.finish(RUN_ID, finished(attempt), expected_incumbent=None)
        assert await updates.next() == ATTEMPT
        await unsubscribe(client, ATTEMPT)
        await subscribe(client, RUN)
        # Another store, as another server has: what it writes is seen too.
        other = Store(store.folder)
        claimed(other, text="other\n")
        assert await updates.next() == RUN
        begun(other, "other-000000")
        assert await updates.next() == run_uri("other-000000")
        other.close()


async def test_a_client_since_2026_is_told_on_a_stream_of_its_own(store: Store) -> None:
    begun(store)
    attempt = claimed(store)
    async with Client(serving(store)) as client:
        listening = client.listen(resource_subscriptions=[RUN, ATTEMPT], resources_list_changed=True)
        async with listening as subscription:
            store.finish(RUN_ID, finished(attempt), expected_incumbent=None)
            events: list[ServerEvent] = [await event_of(subscription) for _ in range(2)]
            assert {event.uri for event in events if isinstance(event, ResourceUpdated)} == {RUN, ATTEMPT}
            begun(store, "cos-000000")
            assert await event_of(subscription) == ResourcesListChanged()


async def event_of(subscription: Any) -> ServerEvent:
    with anyio.fail_after(PATIENCE_S):
        return await anext(subscription)


async def test_a_client_may_not_subscribe_to_more_and_more(store: Store) -> None:
    uris = [f"{RUNS}/{number}" for number in range(SUBSCRIPTIONS + 1)]
    async with Client(serving(store), mode="legacy") as client:
        for uri in uris[:-1]:
            await subscribe(client, uri)
        await subscribe(client, uris[0])
        with pytest.raises(MCPError, match="100 resources at most"):
            await subscribe(client, uris[-1])
        await unsubscribe(client, uris[0])
        await subscribe(client, uris[-1])
    async with Client(serving(store)) as client:
        with pytest.raises(MCPError, match="100 resources at most"):
            async with client.listen(resource_subscriptions=uris):
                pass


async def test_the_server_tells_that_an_evaluation_is_over(settings: Settings) -> None:
    fake = FakeEvaluator()
    async with Client(build_server(settings, lambda _: fake)) as client:
        given = {"kernel": candidate(1), "task": task()}
        run_id: str = content_of(await client.call_tool("start_optimization", given))["run_id"]
        held = {"run_id": run_id, "kernel": candidate(2, hold="it"), "strategy": "held", "wait_s": 0}
        await client.call_tool("submit_candidate", held)
        uri = attempt_uri(run_id, 1)
        async with client.listen(resource_subscriptions=[uri]) as subscription:
            fake.release("it")
            assert await event_of(subscription) == ResourceUpdated(uri=uri)
        assert json.loads(await read(client, uri))["state"] == "finished"
