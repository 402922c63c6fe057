"""The cost of the server's work, as counts and ratios, which are the same on any machine."""

import asyncio
import cProfile
import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web

from navarchos.testing.apiserver import ApiServer
from navarchos.testing.apiserver.access import AccessControl
from navarchos.testing.apiserver.builtin import builtin_kinds
from navarchos.testing.apiserver.handler import route, serve
from navarchos.testing.apiserver.kinds import Kinds
from navarchos.testing.apiserver.requests import Request
from navarchos.testing.apiserver.store import BucketId, ObjectStore
from navarchos.testing.apiserver.watches import WatchNotifier
from navarchos.testing.apiserver.writes import Api

MAPS = BucketId("configmaps", "")
PATH = "/api/v1/namespaces/default/configmaps"
GETS, ROUNDS = 100, 5
MOST = 2.5
"""How much more CPU time a get may take than any response of aiohttp."""

MOST_TO_LIVE = 10_000
"""How many functions may be called from the start of a server to its stop."""


def config_map(name: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"k": "v"}}


@contextmanager
def calls_of_threads() -> Iterator[Counter[str]]:
    """Count, by name, the functions called by threads that start in the `with` block."""
    calls: Counter[str] = Counter()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            calls[frame.f_code.co_name] += 1

    threading.setprofile(note)
    try:
        yield calls
    finally:
        threading.setprofile(None)


def calls_in(work: Any) -> int:
    """Return how many functions `work` calls in this thread, from its second call on."""
    work()  # the first call compiles and looks up things once
    profile = cProfile.Profile()
    profile.runcall(work)
    return sum(entry.callcount for entry in profile.getstats())


class Connection:
    """A connection with hand-written HTTP, which costs almost nothing."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        self._socket = socket.create_connection((address.hostname, address.port), timeout=60)

    def ask(self, path: str) -> bytes:
        """Send a request; return the first bytes of the response."""
        self._socket.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        return self.read()

    def read(self) -> bytes:
        """Return the bytes that have arrived."""
        found = self._socket.recv(1 << 16)
        assert found, "the server has left"
        return found

    def read_until(self, last: bytes) -> bytes:
        """Return all bytes up to an expected part."""
        found = b""
        while last not in found:
            found += self.read()
        return found

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def test_an_event_is_encoded_once_for_all_watches() -> None:
    encoded = {}
    for watchers in (1, 50):
        with calls_of_threads() as calls, ApiServer() as server, ExitStack() as open_ones:
            watches = [Connection(server.url) for _ in range(watchers)]
            listed = json.loads(watches[0].ask(PATH).partition(b"\r\n\r\n")[2])
            version = listed["metadata"]["resourceVersion"]
            for each in watches:
                open_ones.callback(each.close)
                assert b"200 OK" in each.ask(f"{PATH}?watch=1&resourceVersion={version}")
            calls.clear()
            server.install(*(config_map(f"map-{number}") for number in range(10)))
            for each in watches:
                seen = each.read_until(b'"map-9"')
                assert seen.count(b'"ADDED"') == 10
            encoded[watchers] = calls["_event_line"], calls["encode"]
    assert encoded == {1: (10, 0), 50: (10, 0)}, "lines, and objects that were encoded again"


def test_a_server_starts_and_stops_within_a_few_thousand_calls() -> None:
    def live() -> None:
        with ApiServer():
            pass

    with calls_of_threads() as calls:
        here = calls_in(live)
    # When this was written: 5,100 here, and 240 in each of two threads, which takes two
    # milliseconds.
    assert here + calls.total() < MOST_TO_LIVE


class CountingLoop:
    """An event loop that only counts how often it is woken."""

    def __init__(self) -> None:
        self.woken = 0

    def call_soon_threadsafe(self, work: Any) -> None:
        self.woken += 1


def test_a_change_without_watches_does_not_wake_the_loop() -> None:
    loop = CountingLoop()
    notifier = WatchNotifier(loop)  # type: ignore[arg-type]  # as much of a loop as it needs
    notifier.wake(MAPS)
    assert loop.woken == 0
    notifier.register(MAPS, asyncio.Event())
    notifier.wake(MAPS)
    assert loop.woken == 1
    notifier.wake(MAPS)
    assert loop.woken == 1, "it has not come round yet: many changes are one turn"


def filled(count: int) -> Api:
    store = ObjectStore()
    for number in range(count):
        store.put(MAPS, config_map(f"map-{number:05}"))
    return Api(store, Kinds(builtin_kinds()), AccessControl(store, rbac=False))


def test_a_list_of_ten_thousand_objects_calls_no_more_functions_than_one_of_ten() -> None:
    costs = {}
    for count in (10, 10_000):
        api, request = filled(count), Request("GET", PATH, {})
        call = route(api, request)
        costs[count] = calls_in(lambda api=api, call=call, req=request: serve(api, call, req))
        assert len(json.loads(serve(api, call, request).body)["items"]) == count
    assert costs[10] == costs[10_000]


def test_reading_an_object_costs_the_same_among_ten_and_among_ten_thousand() -> None:
    costs = []
    for count in (10, 10_000):
        api, request = filled(count), Request("GET", f"{PATH}/map-00003", {})
        call = route(api, request)
        costs.append(calls_in(lambda api=api, call=call, req=request: serve(api, call, req)))
    assert costs[0] == costs[1]


@contextmanager
def bare(body: bytes) -> Iterator[str]:
    """Serve one response to all requests, with aiohttp alone."""
    loop, ready, stop, ports = (
        asyncio.new_event_loop(),
        threading.Event(),
        asyncio.Event(),
        [],
    )

    async def answer(_: web.BaseRequest) -> web.Response:
        return web.Response(body=body, headers={"Content-Type": "application/json"})

    async def run() -> None:
        server = web.Server(answer)
        listening = await loop.create_server(server, "127.0.0.1", 0)
        ports.append(listening.sockets[0].getsockname()[1])
        ready.set()
        await stop.wait()
        listening.close()
        await server.shutdown(1)

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    try:
        assert ready.wait(30)
        yield f"http://127.0.0.1:{ports[0]}"
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


def processor_time(connection: Connection, path: str) -> float:
    began = time.process_time()
    for _ in range(GETS):
        connection.ask(path)
    return time.process_time() - began


def test_a_get_costs_at_most_a_few_times_a_plain_aiohttp_response() -> None:
    path = f"{PATH}/map"
    with ApiServer() as server, ExitStack() as stack:
        server.install(config_map("map"))
        ours = Connection(server.url)
        stack.callback(ours.close)
        body = ours.ask(path).partition(b"\r\n\r\n")[2]
        assert json.loads(body)["metadata"]["name"] == "map"
        theirs = Connection(stack.enter_context(bare(body)))
        stack.callback(theirs.close)
        pairs = [(processor_time(ours, path), processor_time(theirs, path)) for _ in range(ROUNDS)]
    # The minimum of each, because other threads of this process add to some of them.
    mine, other = map(min, zip(*pairs, strict=True))
    assert mine / other < MOST
