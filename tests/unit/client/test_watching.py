"""Watches over real sockets."""

import json
import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.unit.client.wire import Connect, JsonResponse, Peer, Serve

from navarchos.client import (
    Client,
    ConnectFailed,
    DecodeError,
    Expired,
    Resource,
    ServerError,
    TooManyRequests,
    WatchBroken,
    WatchExpired,
    WatchStream,
)
from navarchos.client.options import WatchOptions
from navarchos.errors import Stopped
from navarchos.meta import Object
from navarchos.stopping import StopToken

CERTIFICATE = str(Path(__file__).parent / "tls" / "cert.pem")


class Pod(Object, frozen=True):
    spec: Mapping[str, str] = {}


PODS = Resource("", "v1", "pods", "Pod", namespaced=True, type=Pod)


def line(kind: str, name: str = "", version: str = "", **rest: object) -> bytes:
    metadata = {"name": name, "resourceVersion": version}
    return json.dumps({"type": kind, "object": {"metadata": metadata, **rest}}).encode() + b"\n"


def bookmark(version: str, **annotations: str) -> bytes:
    metadata = {"resourceVersion": version, "annotations": annotations}
    return json.dumps({"type": "BOOKMARK", "object": {"metadata": metadata}}).encode() + b"\n"


def streaming(
    *chunks: bytes, then: Callable[[Any], object] = lambda peer: peer.end_stream()
) -> Any:
    def script(peer: Peer) -> None:
        while peer.receive() is not None:
            peer.begin_stream()
            for chunk in chunks:
                peer.stream(chunk)
            then(peer)

    return script


def hold(peer: Peer) -> None:
    """Keep the connection open and silent until the client has closed its end."""
    peer.wait_until_closed()


def cut(peer: Peer) -> None:
    """End the connection in the middle of the stream."""
    peer.socket.shutdown(socket.SHUT_RDWR)


def watch(client: Client, *, stop: StopToken | None = None, **options: Any) -> WatchStream[Pod]:
    return client.resource(PODS).watch(options=WatchOptions(**options), stop=stop)


def test_events_are_typed_and_in_order(serve: Serve, connect: Connect) -> None:
    server = serve(
        streaming(
            line("ADDED", "a", "1", spec={"n": "1"}) + line("MODIFIED", "a", "2"),
            b"\n" + line("DELETED", "a", "3")[:20],
            line("DELETED", "a", "3")[20:],
        )
    )
    with watch(connect(server.url)) as events:
        found = list(events)
    assert [(e.type, e.resource_version) for e in found] == [
        ("ADDED", "1"),
        ("MODIFIED", "2"),
        ("DELETED", "3"),
    ]
    assert all(isinstance(e.object, Pod) and e.object.metadata.name == "a" for e in found)
    assert found[0].object is not None
    assert found[0].object.spec == {"n": "1"}


def test_the_request_has_the_parameters_of_a_reflector(
    connect: Connect, json_answer: JsonResponse
) -> None:
    targets = []

    def answer(request: Any) -> Any:
        targets.append(request.target)
        return json_answer({})

    pods = connect(answer).resource(PODS)
    pods.watch(
        "web", WatchOptions(resource_version="7", label_selector="a=b,c", timeout_seconds=300)
    ).close()
    pods.watch(
        options=WatchOptions(send_initial_events=True, bookmarks=True, timeout_seconds=9)
    ).close()
    assert targets == [
        (
            "/api/v1/namespaces/web/pods?watch=true&resourceVersion=7&labelSelector=a%3Db%2Cc"
            "&allowWatchBookmarks=true&timeoutSeconds=300"
        ),
        (
            "/api/v1/pods?watch=true&allowWatchBookmarks=true&timeoutSeconds=9"
            "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
        ),
    ]


@pytest.mark.rule("RF-14")
def test_by_default_the_server_ends_a_watch_after_five_to_ten_minutes(
    connect: Connect, json_answer: JsonResponse
) -> None:
    targets = []

    def answer(request: Any) -> Any:
        targets.append(request.target)
        return json_answer({})

    watch(connect(answer)).close()
    seconds = int(targets[0].rpartition("timeoutSeconds=")[2])
    assert 300 <= seconds <= 600


@pytest.mark.rule("RT-13")
def test_only_the_exact_annotation_ends_the_initial_events(serve: Serve, connect: Connect) -> None:
    key = "k8s.io/initial-events-end"
    server = serve(
        streaming(bookmark("1"), bookmark("2", **{key: "false"}), bookmark("3", **{key: "true"}))
    )
    with watch(connect(server.url)) as events:
        found = [(e.type, e.resource_version, e.initial_events_end) for e in events]
    assert found == [("BOOKMARK", "1", False), ("BOOKMARK", "2", False), ("BOOKMARK", "3", True)]


def test_an_object_that_does_not_fit_is_an_event_with_the_reason(
    serve: Serve, connect: Connect
) -> None:
    server = serve(
        streaming(line("ADDED", "bad", "1", spec={"n": 1}), line("ADDED", "null", "2", spec=None))
    )
    with watch(connect(server.url)) as events:
        bad, good = events
    assert bad.object is None
    assert isinstance(bad.failure, DecodeError)
    assert (bad.failure.name, bad.resource_version) == ("bad", "1")
    assert good.object is not None
    assert good.failure is None


@pytest.mark.rule("RF-16")
def test_an_event_of_unknown_type_is_skipped(serve: Serve, connect: Connect) -> None:
    server = serve(streaming(line("RENAMED", "a", "1"), line("ADDED", "b", "2")))
    with watch(connect(server.url)) as events:
        assert [e.resource_version for e in events] == ["2"]


@pytest.mark.rule("RF-21")
@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"code": 410, "reason": "Expired", "message": "too old"}, WatchExpired),
        ({"code": 410, "reason": "Gone"}, WatchExpired),
        ({"code": 410, "message": None, "details": None}, WatchExpired),
        ({"code": 429, "reason": "TooManyRequests"}, TooManyRequests),
        ({"code": 500}, ServerError),
        (["no status"], WatchBroken),
    ],
)
def test_an_error_event_is_raised_as_its_error(
    serve: Serve, connect: Connect, status: object, expected: type[Exception]
) -> None:
    event = json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"
    server = serve(streaming(line("ADDED", "a", "1"), event, then=hold))
    with watch(connect(server.url)) as events:
        assert next(events).type == "ADDED"
        with pytest.raises(expected):
            next(events)


@pytest.mark.parametrize(
    ("status", "expected"), [(410, Expired), (429, TooManyRequests), (500, ServerError)]
)
def test_an_error_instead_of_a_stream_is_raised_on_opening_and_not_retried(
    connect: Connect, json_answer: JsonResponse, status: int, expected: type[Exception]
) -> None:
    requests = []

    def answer(request: Any) -> Any:
        requests.append(request)
        return json_answer({"code": status}, status, **{"retry-after": "1"})

    with pytest.raises(expected):
        watch(connect(answer))
    assert len(requests) == 1


@pytest.mark.parametrize(
    ("chunks", "then"),
    [
        ([line("ADDED", "a", "1")[:-10]], lambda peer: peer.end_stream()),
        ([line("ADDED", "a", "1")], cut),
        ([b'{"type":"ADDED"}\n'], hold),
        ([b"<html>\n"], hold),
    ],
)
def test_a_stream_that_breaks_or_is_unreadable_is_a_broken_watch(
    serve: Serve, connect: Connect, chunks: list[bytes], then: Callable[[Any], object]
) -> None:
    server = serve(streaming(*chunks, then=then))
    with pytest.raises(WatchBroken) as caught, watch(connect(server.url)) as events:
        list(events)
    assert caught.value.resource == "pods"


def test_a_last_event_without_a_newline_still_counts(serve: Serve, connect: Connect) -> None:
    server = serve(streaming(line("ADDED", "a", "1").strip()))
    with watch(connect(server.url)) as events:
        assert [e.resource_version for e in events] == ["1"]


@pytest.mark.rule("RF-14")
def test_silence_after_a_bookmark_breaks_the_watch(serve: Serve, connect: Connect) -> None:
    server = serve(streaming(bookmark("1"), then=hold))
    with watch(connect(server.url), idle_timeout=0.05, timeout_seconds=600) as events:
        next(events)
        with pytest.raises(WatchBroken, match="sent nothing"):
            next(events)


@pytest.mark.rule("RF-14")
def test_a_server_that_has_sent_a_bookmark_is_expected_to_send_more(
    serve: Serve, connect: Connect
) -> None:
    """A resumed watch has the short limit at once, before its first bookmark."""

    def script(peer: Peer) -> None:
        peer.receive()
        peer.begin_stream()
        peer.stream(bookmark("1"))
        peer.end_stream()
        peer.receive()
        peer.begin_stream()
        peer.wait_until_closed()

    pods = connect(serve(script).url).resource(PODS)
    with pods.watch(options=WatchOptions(timeout_seconds=600)) as events:
        assert [e.type for e in events] == ["BOOKMARK"]
    with (
        pytest.raises(WatchBroken),
        pods.watch(options=WatchOptions(idle_timeout=0.05, timeout_seconds=600)) as events,
    ):
        next(events)


@pytest.mark.rule("RF-14")
def test_without_bookmarks_silence_is_allowed_until_the_server_should_have_ended_it(
    connect: Connect,
) -> None:
    limits: list[float | None] = []

    class Silent:
        status = 200
        headers: dict[str, str] = {}  # noqa: RUF012 - read-only here
        is_outdated = False

        def read_some(self, timeout: float | None, *, batch: bool = False) -> bytes:
            limits.append(timeout)
            return b"" if len(limits) > 2 else line("ADDED", "a", "1")

        def close(self) -> None: ...

    with watch(connect(lambda _: Silent()), timeout_seconds=300, idle_timeout=75.0) as events:
        assert len(list(events)) == 2
    assert limits == [305.0, 305.0, 305.0]


def test_reads_are_batched_until_the_initial_events_end(connect: Connect) -> None:
    """An ordinary bookmark does not end the list; the bookmark of its end does."""
    end = {"k8s.io/initial-events-end": "true"}
    pieces = [line("ADDED", "a", "1"), bookmark("1"), bookmark("2", **end), line("ADDED", "b", "3")]
    batched: list[bool] = []

    class List:
        status = 200
        headers: dict[str, str] = {}  # noqa: RUF012 - read-only here
        is_outdated = False

        def read_some(self, timeout: float | None, *, batch: bool = False) -> bytes:
            batched.append(batch)
            return pieces.pop(0) if pieces else b""

        def close(self) -> None: ...

    with watch(connect(lambda _: List()), send_initial_events=True) as events:
        assert len(list(events)) == 4
    assert batched == [True, True, True, False, False]


@pytest.mark.rule("RT-24")
@pytest.mark.parametrize("tls", [False, True])
def test_stop_unblocks_a_watch(serve: Serve, connect: Connect, tls: bool) -> None:
    server = serve(streaming(line("ADDED", "a", "1"), then=hold), tls=tls)
    client = connect(server.url, ca_file=CERTIFICATE if tls else None)
    stop = StopToken()
    found: list[object] = []

    def consume() -> None:
        try:
            for event in watch(client, stop=stop, timeout_seconds=600):
                found.append(event.type)
                stopper.start()
        except Stopped as stopped:
            found.append(stopped.reason)

    stopper = threading.Timer(0.05, stop.stop, ["enough"])
    reader = threading.Thread(target=consume)
    reader.start()
    reader.join(30)
    assert found == ["ADDED", "enough"]


@pytest.mark.rule("RT-24")
def test_stop_unblocks_a_watch_that_is_being_opened(serve: Serve, connect: Connect) -> None:
    stop = StopToken()

    def stop_then_wait(peer: Peer) -> None:
        peer.receive()
        stop.stop("enough")
        peer.wait_until_closed()

    with pytest.raises(Stopped):
        watch(connect(serve(stop_then_wait).url), stop=stop)


@pytest.mark.rule("RT-24")
def test_stop_unblocks_a_list_without_a_response(serve: Serve, connect: Connect) -> None:
    stop = StopToken()

    def stop_then_wait(peer: Peer) -> None:
        peer.receive()
        stop.stop("enough")
        peer.wait_until_closed()

    with pytest.raises(Stopped):
        connect(serve(stop_then_wait).url).resource(PODS).list_page(stop=stop)


@pytest.mark.rule("RF-03")
def test_a_set_token_opens_no_watch(serve: Serve, connect: Connect) -> None:
    server = serve(streaming())
    stop = StopToken()
    stop.stop("before")
    with pytest.raises(Stopped) as caught:
        watch(connect(server.url), stop=stop)
    assert caught.value.reason == "before"
    assert server.connections == 0


def test_closing_from_another_thread_unblocks_the_reader(serve: Serve, connect: Connect) -> None:
    server = serve(streaming(line("ADDED", "a", "1"), then=hold))
    events = watch(connect(server.url), timeout_seconds=600)
    next(events)
    closer = threading.Timer(0.05, events.close)
    closer.start()
    with pytest.raises(Stopped):
        next(events)
    closer.join(30)


@pytest.mark.rule("RF-03")
@pytest.mark.parametrize("end", ["close", "error", "stop"])
def test_the_connection_is_closed_on_every_way_out(
    serve: Serve, connect: Connect, end: str
) -> None:
    """A half-read connection never serves another request."""
    gone = threading.Event()

    def script(peer: Peer) -> None:
        while (request := peer.receive()) is not None:
            if "watch" not in request.target:
                peer.answer(b'{"items":[]}')
                continue
            peer.begin_stream()
            peer.stream(line("ADDED", "a", "1"))
            if end == "error":
                peer.stream(b"garbage\n")
            peer.wait_until_closed()
            gone.set()
            return

    server = serve(script)
    client = connect(server.url)
    stop = StopToken()
    events = watch(client, stop=stop, timeout_seconds=600)
    next(events)
    if end == "stop":
        stop.stop()
    if end != "close":
        with pytest.raises((WatchBroken, Stopped)):
            next(events)
    else:
        events.close()
    assert gone.wait(30)
    assert client.resource(PODS).list().items == []
    assert server.connections == 2


def test_a_finished_watch_returns_its_connection_and_leaves_no_callback(
    serve: Serve, connect: Connect
) -> None:
    server = serve(streaming(line("ADDED", "a", "1")))
    client = connect(server.url)
    stop = StopToken()
    for _ in range(3):
        with watch(client, stop=stop) as events:
            assert len(list(events)) == 1
            with pytest.raises(StopIteration):
                next(events)
    assert server.connections == 1
    assert stop._callbacks == {}


def test_a_server_that_is_gone_refuses_the_watch(connect: Connect) -> None:
    with pytest.raises(ConnectFailed) as caught:
        watch(connect("http://127.0.0.1:1"))
    assert caught.value.refused
    assert (caught.value.verb, caught.value.resource) == ("watch", "pods")


@pytest.mark.rule("RF-13", "RF-19")
@pytest.mark.parametrize(
    "other",
    [
        {"kind": "Table", "apiVersion": "meta.k8s.io/v1"},
        {"kind": "Table", "apiVersion": "meta.k8s.io/v1beta1"},
        {"kind": "Node", "apiVersion": "v1"},
        {"apiVersion": "v2", "kind": "Pod"},
    ],
    ids=lambda other: "/".join(other.values()),
)
def test_an_event_of_another_kind_is_a_failure_without_a_name(
    serve: Serve, connect: Connect, other: dict[str, str]
) -> None:
    """An object of the watched kind may have the same name, and would be deleted instead."""
    deleted = {"type": "DELETED", "object": {**other, "metadata": {"name": "a"}}}
    lines = json.dumps(deleted).encode() + b"\n", line("ADDED", "b", "8")
    server = serve(streaming(*lines))
    first, second = watch(connect(server.url))
    assert first.object is None
    assert first.failure is not None
    assert other["kind"] in first.failure.why
    assert (first.failure.key, first.resource_version) == ("", "")
    assert second.object is not None
    assert second.object.metadata.name == "b"


@pytest.mark.parametrize("order", [("kind", "apiVersion"), ("apiVersion", "kind"), ("kind",), ()])
def test_an_event_of_the_kind_is_decoded_with_its_fields_in_any_order(
    serve: Serve, connect: Connect, order: tuple[str, ...]
) -> None:
    about = {"kind": "Pod", "apiVersion": "v1"}
    said = {name: about[name] for name in order}
    rest = {"metadata": {"name": "a"}}
    objects = [{**said, **rest}, {**rest, **said}]
    if order == ("kind",):
        objects = [{**rest, "apiVersion": "v1", "kind": "Pod"}]
    lines = [
        json.dumps({"type": "ADDED", "object": obj}, separators=separators).encode() + b"\n"
        for obj in objects
        for separators in [(",", ":"), (", ", ": ")]
    ]
    found = list(watch(connect(serve(streaming(*lines)).url)))
    assert [event.object and event.object.metadata.name for event in found] == ["a"] * len(lines)
