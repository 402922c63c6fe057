from collections.abc import Callable
from typing import Any

import pytest
import structlog

from navarchos.client import ApiError, WatchEvent, WatchExpired
from navarchos.client.errors import error_from_status
from navarchos.client.status import Status
from navarchos.meta import ResourceVersion
from navarchos.testing import FakeClock
from navarchos.testing.source import FakeSource, FakeStream

Make = Callable[..., Any]


def api_error(code: int, reason: str = "") -> ApiError:
    return error_from_status(Status(code=code, reason=reason, message=reason))


def asked(source: FakeSource[Any]) -> list[tuple[str, str, bool]]:
    found: list[tuple[str, str, bool]] = [
        (r.verb, r.resource_version, r.streaming) for r in source.requests
    ]
    source.requests.clear()
    return found


class SilentSource(FakeSource[Any]):
    """Opens streaming lists without sending anything: the test does."""

    def _begin(self, stream: FakeStream[Any], version: str, *, streaming: bool) -> None:
        if not streaming:
            super()._begin(stream, version, streaming=streaming)


@pytest.fixture
def silent(things: Any, fake_clock: FakeClock) -> SilentSource:
    return SilentSource(things, clock=fake_clock)


@pytest.mark.rule("RF-24", "RF-25")
def test_one_stream_brings_the_list_and_goes_on_as_the_watch(
    source: FakeSource[Any], informer_of: Make, fake_clock: FakeClock, thing: Make, recorder: Any
) -> None:
    source.put(thing("a", 1))
    informer = informer_of(source)
    informer.add_handler(recorder)
    informer.start()
    fake_clock.settle()
    source.put(thing("a", 2))
    fake_clock.settle()
    assert recorder.take() == [("add", "a", 1, True), ("update", "a", 1, 2)]
    assert asked(source) == [("watch", "", True)]
    assert informer.last_resource_version == "12"


@pytest.mark.rule("RF-25", "RT-13")
def test_only_the_bookmark_that_says_so_ends_the_list(
    silent: SilentSource, informer_of: Make, fake_clock: FakeClock, thing: Make
) -> None:
    informer = informer_of(silent)
    informer.start()
    fake_clock.settle()
    (stream,) = silent.streams
    stream.send(WatchEvent("ADDED", thing("a", 1), ResourceVersion("5")))
    stream.send(WatchEvent("BOOKMARK", None, ResourceVersion("9")))
    stream.send(WatchEvent("ADDED", thing("b", 1), ResourceVersion("3")))
    stream.send(WatchEvent("DELETED", thing("a", 1), ResourceVersion("10")))
    fake_clock.settle()
    assert not informer.has_synced()
    assert len(informer.store) == 0, "half a list is not stored"
    stream.send(WatchEvent("BOOKMARK", None, ResourceVersion("11"), initial_events_end=True))
    fake_clock.settle()
    assert informer.has_synced()
    assert informer.store.keys() == ["ns/b"]
    assert informer.last_resource_version == "11"


@pytest.mark.rule("RF-24")
def test_a_relist_streams_from_the_last_version(
    source: FakeSource[Any], informer_of: Make, fake_clock: FakeClock
) -> None:
    informer_of(source).start()
    fake_clock.settle()
    source.fail_watches(api_error(500))
    fake_clock.advance(2)
    assert asked(source) == [("watch", "", True), ("watch", "10", True)]


@pytest.mark.rule("RF-26")
def test_a_stream_that_ends_before_the_bookmark_is_thrown_away_and_begun_again(
    silent: SilentSource, informer_of: Make, fake_clock: FakeClock, thing: Make
) -> None:
    informer = informer_of(silent)
    informer.start()
    fake_clock.settle()
    silent.streams[0].send(WatchEvent("ADDED", thing("a"), ResourceVersion("5")))
    silent.streams[0].end()
    fake_clock.settle()
    silent.streams[1].send(WatchEvent("BOOKMARK", None, ResourceVersion("9"), True))
    fake_clock.settle()
    assert informer.has_synced()
    assert len(informer.store) == 0
    assert asked(silent) == [("watch", "", True)] * 2


def test_a_server_that_never_sends_the_bookmark_is_listed_in_the_old_way(
    silent: SilentSource, informer_of: Make, fake_clock: FakeClock, thing: Make
) -> None:
    """Something in between may drop the parameter: then streaming could go on for ever."""
    silent.put(thing("a"))
    informer = informer_of(silent)
    informer.start()
    for _ in range(3):
        fake_clock.settle()
        silent.streams[-1].end()
    fake_clock.settle()
    assert informer.store.keys() == ["ns/a"]
    assert asked(silent)[3:] == [("list", "0", False), ("watch", "11", False)]


@pytest.mark.rule("RF-26")
def test_a_refusal_falls_back_in_the_same_round_and_the_next_one_tries_again(
    source: FakeSource[Any], informer_of: Make, fake_clock: FakeClock
) -> None:
    source.can_stream = False
    informer = informer_of(source)
    informer.start()
    fake_clock.settle()
    assert informer.has_synced()
    assert asked(source) == [("watch", "", True), ("list", "0", False), ("watch", "10", False)]
    source.can_stream = True
    source.fail_watches(api_error(500))
    fake_clock.advance(2)
    assert asked(source) == [("watch", "10", True)]


@pytest.mark.rule("RF-26")
def test_a_busy_server_is_asked_for_the_stream_again_later(
    source: FakeSource[Any], informer_of: Make, fake_clock: FakeClock
) -> None:
    source.fail("watch", api_error(429, "TooManyRequests"), api_error(429, "TooManyRequests"))
    informer = informer_of(source)
    informer.start()
    fake_clock.settle()
    assert not informer.has_synced()
    fake_clock.advance(2.5)
    assert informer.has_synced()
    assert asked(source) == [("watch", "", True)] * 3


@pytest.mark.rule("RF-26")
@pytest.mark.parametrize(
    "refusal",
    [WatchExpired("things", "too old"), api_error(410, "Expired")],
    ids=["in the stream", "in the answer"],
)
def test_an_expired_version_is_dropped_and_the_stream_opened_again(
    source: FakeSource[Any], informer_of: Make, fake_clock: FakeClock, refusal: Exception
) -> None:
    informer_of(source).start()
    fake_clock.settle()
    source.fail("watch", refusal)
    source.fail_watches(api_error(500))
    fake_clock.advance(2)
    assert asked(source)[1:] == [("watch", "10", True), ("watch", "", True)]


@pytest.mark.rule("RF-26")
def test_a_stop_in_the_middle_leaves_quietly(
    silent: SilentSource, informer_of: Make, fake_clock: FakeClock, thing: Make
) -> None:
    informer = informer_of(silent)
    informer.start()
    fake_clock.settle()
    silent.streams[0].send(WatchEvent("ADDED", thing("a"), ResourceVersion("5")))
    fake_clock.settle()
    informer.stop()
    assert informer.join()
    assert len(informer.store) == 0
    assert silent.open_streams() == []


@pytest.mark.rule("RF-28", "RT-26")
def test_objects_of_a_streamed_list_pass_the_transform_once(
    source: FakeSource[Any], informer_of: Make, fake_clock: FakeClock, thing: Make
) -> None:
    source.put(thing("a", 1))
    informer = informer_of(
        source, transform=lambda obj: type(obj)(metadata=obj.metadata, value=obj.value * 10)
    )
    informer.start()
    fake_clock.settle()
    assert informer.store.get("ns/a").value == 10


@pytest.mark.rule("RF-27")
def test_a_list_without_an_end_is_logged_every_ten_seconds_even_in_silence(
    silent: SilentSource, informer_of: Make, fake_clock: FakeClock
) -> None:
    with structlog.testing.capture_logs() as logs:
        informer_of(silent).start()
        fake_clock.settle()
        fake_clock.advance(31)
        silent.streams[0].send(WatchEvent("BOOKMARK", None, ResourceVersion("9"), True))
        fake_clock.settle()
        fake_clock.advance(60)
    warned = [log["seconds"] for log in logs if log["event"] == "streaming_list_is_slow"]
    assert warned == [10, 20, 30], "and never again once it is complete"


@pytest.mark.rule("RF-27")
def test_a_client_that_declares_no_streaming_lists_is_never_asked_for_one(
    source: FakeSource[Any], informer_of: Make, fake_clock: FakeClock
) -> None:
    source.streams_lists = False
    informer_of(source).start()
    fake_clock.settle()
    source.fail_watches(api_error(500))
    fake_clock.advance(2)
    assert asked(source) == [
        ("list", "0", False),
        ("watch", "10", False),
        ("list", "10", False),
        ("watch", "10", False),
    ]
