"""Tells clients that a run has changed, whichever server changed it: by subscription, in both eras of the protocol."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.mcpserver import MCPServer
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourcesListChanged, ResourceUpdated
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    EmptyResult,
    SubscribeRequestParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
    UnsubscribeRequestParams,
)

from ..sandbox.errors import Stopped
from .lowlevel import answer, connection_of
from .run_uris import RUNS, named
from .runs.store import Store

POLL_S: Final = 1.0
"""How often what is subscribed to is looked at: another server may change it."""
SUBSCRIPTIONS: Final = 100
"""Of one client, at most."""

Mark = tuple[object, ...] | None
"""What differs when a resource has changed; None: it is not there."""
Asking = ServerRequestContext[Any, Any]


class RunWatch:
    """The subscriptions of one server. Use it as an asynchronous context manager.

    As the protocol allows, a subscription to what is not there is taken: it may be there later.
    """

    def __init__(self, store: Store, poll_s: float = POLL_S) -> None:
        """
        Args:
            store: where the runs are kept.
            poll_s: how often it is looked at while anybody has subscribed.
        """
        self._store, self._poll_s = store, poll_s
        self._bus = InMemorySubscriptionBus()
        self._streams = ListenHandler(self._bus)
        self._wanted: Counter[str] = Counter()
        self._marks: dict[str, Mark] = {}
        self._subscribed: dict[Connection, set[str]] = {}
        self._needed = anyio.Event()
        self._tasks: TaskGroup | None = None

    async def __aenter__(self) -> "RunWatch":
        self._tasks = await anyio.create_task_group().__aenter__()
        self._tasks.start_soon(self._watch, self._tasks)
        return self

    async def __aexit__(self, *error: object) -> None:
        tasks, self._tasks = self._tasks, None
        assert tasks is not None
        self._streams.close()
        tasks.cancel_scope.cancel()
        await tasks.__aexit__(None, None, None)

    def register(self, server: MCPServer[Any]) -> None:
        """Answer what clients subscribe with: a stream of their own since 2026-07-28, single resources before."""
        answer(server, "subscriptions/listen", SubscriptionsListenRequestParams, self._listen)
        answer(server, "resources/subscribe", SubscribeRequestParams, self._subscribe)
        answer(server, "resources/unsubscribe", UnsubscribeRequestParams, self._unsubscribe)

    async def _listen(self, context: Asking, params: SubscriptionsListenRequestParams) -> SubscriptionsListenResult:
        asked = params.notifications
        uris = list(dict.fromkeys(asked.resource_subscriptions or []))
        _require_few(len(uris))
        if asked.resources_list_changed:
            uris.append(RUNS)
        await self._want(uris)
        try:
            return await self._streams(context, params)
        finally:
            self._drop(uris)

    async def _subscribe(self, context: Asking, params: SubscribeRequestParams) -> EmptyResult:
        connection, uri = connection_of(context.session), str(params.uri)
        if connection not in self._subscribed:
            self._subscribed[connection] = set()
            connection.exit_stack.callback(self._forget, connection)
        uris = self._subscribed[connection]
        if uri not in uris:
            _require_few(len(uris) + 1)
            uris.add(uri)
            await self._want([uri])
        return EmptyResult()

    async def _unsubscribe(self, context: Asking, params: UnsubscribeRequestParams) -> EmptyResult:
        uris, uri = self._subscribed.get(connection_of(context.session), set[str]()), str(params.uri)
        if uri in uris:
            uris.discard(uri)
            self._drop([uri])
        return EmptyResult()

    def _forget(self, connection: Connection) -> None:
        self._drop(list(self._subscribed.pop(connection, ())))

    async def _want(self, uris: Sequence[str]) -> None:
        # Counted first: between the look and the next one nothing may be missed.
        self._wanted.update(uris)
        for uri, mark in (await anyio.to_thread.run_sync(self._look, uris)).items():
            self._marks.setdefault(uri, mark)
        self._needed.set()

    def _drop(self, uris: Sequence[str]) -> None:
        self._wanted.subtract(uris)
        self._wanted = +self._wanted
        self._marks = {uri: mark for uri, mark in self._marks.items() if uri in self._wanted}
        if not self._wanted:
            self._needed = anyio.Event()

    async def _watch(self, tasks: TaskGroup) -> None:
        while True:
            await self._needed.wait()
            looked = await anyio.to_thread.run_sync(self._look, list(self._marks))
            for uri, mark in looked.items():
                if uri in self._marks and self._marks[uri] != mark:
                    self._marks[uri] = mark
                    await self._tell(uri, tasks)
            await anyio.sleep(self._poll_s)

    async def _tell(self, uri: str, tasks: TaskGroup) -> None:
        await self._bus.publish(ResourcesListChanged() if uri == RUNS else ResourceUpdated(uri=uri))
        for connection, uris in list(self._subscribed.items()):
            if uri in uris:
                # By itself: one that does not read would hold up the others.
                tasks.start_soon(connection.send_resource_updated, uri)

    def _look(self, uris: Sequence[str]) -> dict[str, Mark]:
        return {uri: _mark(self._store, uri) for uri in uris}


def _require_few(count: int) -> None:
    """
    Raises:
        MCPError: these are too many.
    """
    if count > SUBSCRIPTIONS:
        raise MCPError(
            INVALID_PARAMS,
            f"a client can subscribe to {SUBSCRIPTIONS} resources at most: end other subscriptions first",
        )


def _mark(store: Store, uri: str) -> Mark:
    what = named(uri)
    try:
        if uri == RUNS:
            kept = store.kept()
            return (*(run.frozen.run_id for run in kept.runs), *kept.damaged)
        if what is None:
            return None
        if what.attempt is None:
            run = store.run(what.run_id)
            told = [(each.number, each.state, each.finished_at) for each in store.attempts(what.run_id)]
            return (run.updated_at, run.state, run.incumbent, run.verified is None, *told)
        attempt = store.attempt(what.run_id, what.attempt)
        if what.is_kernel:
            return (attempt.kernel_sha256,)
        return (attempt.state, attempt.finished_at, attempt.accepted)
    except Stopped:
        return None
