import itertools
from collections.abc import Callable
from typing import Any

import pytest
import structlog
from msgspec.structs import replace

from navarchos.backoff import Backoff
from navarchos.client import (
    ApiError,
    ConnectFailed,
    DecodeError,
    Unauthorized,
    WatchEvent,
    WatchExpired,
)
from navarchos.client.errors import error_from_status
from navarchos.client.status import Status
from navarchos.informers import SharedInformer
from navarchos.informers.reflector_context import MAX_RETRY_AFTER
from navarchos.informers.watch_loop import ShortWatch
from navarchos.instrument import Instruments
from navarchos.meta import ResourceVersion
from navarchos.testing import FakeClock
from navarchos.testing.source import FakeSource

Make = Callable[..., Any]


def api_error(code: int, reason: str = "") -> ApiError:
    return error_from_status(Status(code=code, reason=reason, message=reason))


def asked(source: FakeSource[Any]) -> list[tuple[str, str]]:
    """Return what the source was asked since the last call: verb and version."""
    found: list[tuple[str, str]] = [
        (request.verb, request.resource_version) for request in source.requests
    ]
    source.requests.clear()
    return found


@pytest.fixture
def informer(
    source: FakeSource[Any], informer_of: Make, fake_clock: FakeClock, thing: Make
) -> SharedInformer[Any]:
    """A synced informer, without streaming lists, and one object."""
    source.put(thing("a", 1))
    informer: SharedInformer[Any] = informer_of(source, streaming=False)
    informer.start()
    fake_clock.settle()
    assert informer.has_synced()
    assert asked(source) == [("list", "0"), ("watch", "11")]
    return informer


def value_of(informer: SharedInformer[Any], name: str = "a") -> int | None:
    found = informer.store.get(f"ns/{name}")
    return None if found is None else found.value


@pytest.mark.rule("RF-16", "RF-17")
def test_events_are_applied_and_their_version_is_where_the_next_watch_begins(
    informer: SharedInformer[Any], source: FakeSource[Any], fake_clock: FakeClock, thing: Make
) -> None:
    source.put(thing("a", 2))
    source.put(thing("b", 3))
    source.delete("ns/b")
    fake_clock.settle()
    assert (value_of(informer), value_of(informer, "b")) == (2, None)
    assert informer.last_resource_version == "14"
    fake_clock.advance(5)
    source.end_watches()
    fake_clock.settle()
    assert asked(source) == [("watch", "14")]


@pytest.mark.rule("RF-17")
def test_a_smaller_version_counts_as_the_last_one(
    informer: SharedInformer[Any], source: FakeSource[Any], fake_clock: FakeClock, thing: Make
) -> None:
    """Versions are opaque to the reflector; it does not take the maximum."""
    odd = thing("a", 7, resource_version=ResourceVersion("3"))
    source.streams[-1].send(WatchEvent("MODIFIED", odd, ResourceVersion("3")))
    source.streams[-1].end()
    fake_clock.settle()
    assert asked(source) == [("watch", "3")]


@pytest.mark.rule("RF-17")
def test_an_event_whose_object_is_skipped_counts_as_seen(
    informer: SharedInformer[Any], source: FakeSource[Any], fake_clock: FakeClock, thing: Make
) -> None:
    """Else each new watch would bring it again, and in the end from a forgotten version."""
    informer.add_indexers({"odd": lambda obj: [str(1 // obj.value)]})
    source.put(thing("b", 0))
    fake_clock.settle()
    assert list(informer.skipped()) == ["ns/b"]
    source.end_watches()
    fake_clock.settle()
    assert asked(source) == [("watch", "12")]


@pytest.mark.rule("RF-16")
def test_a_bookmark_moves_the_version_only(
    informer: SharedInformer[Any], source: FakeSource[Any], fake_clock: FakeClock
) -> None:
    source.pass_time(30)
    source.bookmark()
    fake_clock.settle()
    assert informer.last_resource_version == "41"
    source.end_watches()
    fake_clock.settle()
    assert asked(source) == [("watch", "41")]


@pytest.mark.rule("RF-20")
def test_a_watch_that_ends_is_followed_by_another_at_once(
    informer: SharedInformer[Any], source: FakeSource[Any], fake_clock: FakeClock
) -> None:
    for _ in range(3):
        fake_clock.advance(300)
        source.end_watches()
        fake_clock.settle()
    assert asked(source) == [("watch", "11")] * 3
    assert len(source.open_streams()) == 1


@pytest.mark.rule("RF-20", "RT-12")
def test_a_watch_that_ends_at_once_without_an_event_leads_to_a_pause_and_a_list(
    informer: SharedInformer[Any], source: FakeSource[Any], fake_clock: FakeClock
) -> None:
    source.end_watches()
    fake_clock.settle()
    assert asked(source) == []
    fake_clock.advance(0.7)
    assert asked(source) == []
    fake_clock.advance(0.2)
    assert asked(source) == [("list", "11"), ("watch", "11")]


@pytest.mark.rule("RF-20")
def test_a_watch_that_breaks_is_resumed_without_a_list(
    informer: SharedInformer[Any], source: FakeSource[Any], fake_clock: FakeClock, thing: Make
) -> None:
    source.put(thing("a", 2))
    source.break_watches()
    source.put(thing("a", 3))
    fake_clock.settle()
    assert asked(source) == [("watch", "12")]
    assert value_of(informer) == 3


@pytest.mark.rule("RF-21")
def test_expired_history_leads_to_a_list_at_the_last_version(
    informer: SharedInformer[Any], source: FakeSource[Any], fake_clock: FakeClock, thing: Make
) -> None:
    fake_clock.advance(300)
    source.put(thing("b", 1), notify=False)
    source.compact()
    source.end_watches()
    fake_clock.settle()
    assert asked(source) == [("watch", "11")]
    fake_clock.advance(1)
    assert asked(source) == [("list", "11"), ("watch", "12")]
    assert value_of(informer, "b") == 1


@pytest.mark.rule("RF-15", "RF-21", "RT-12")
@pytest.mark.parametrize(
    "refusal",
    [api_error(429, "TooManyRequests"), ConnectFailed("refused", refused=True)],
    ids=["429", "refused"],
)
def test_a_busy_server_is_asked_for_the_watch_again_later_and_for_no_list(
    informer: SharedInformer[Any],
    source: FakeSource[Any],
    fake_clock: FakeClock,
    refusal: Exception,
) -> None:
    fake_clock.advance(300)
    source.fail("watch", refusal, refusal)
    source.end_watches()
    fake_clock.settle()
    assert asked(source) == [("watch", "11")]
    fake_clock.advance(3)
    assert asked(source) == [("watch", "11")] * 2
    assert len(source.open_streams()) == 1


@pytest.mark.rule("RF-21")
def test_429_inside_the_stream_leads_to_a_pause_and_the_watch(
    informer: SharedInformer[Any], source: FakeSource[Any], fake_clock: FakeClock
) -> None:
    source.fail_watches(api_error(429, "TooManyRequests"))
    fake_clock.settle()
    assert asked(source) == []
    fake_clock.advance(1)
    assert asked(source) == [("watch", "11")]


@pytest.mark.rule("RF-15", "RF-21")
def test_any_other_error_ends_the_round(
    informer: SharedInformer[Any], source: FakeSource[Any], fake_clock: FakeClock
) -> None:
    source.fail_watches(api_error(500, "InternalError"))
    fake_clock.advance(1)
    assert asked(source) == [("list", "11"), ("watch", "11")]
    fake_clock.advance(5)
    source.fail("watch", api_error(403, "Forbidden"))
    source.end_watches()
    fake_clock.advance(3)
    assert asked(source) == [("watch", "11"), ("list", "11"), ("watch", "11")]


@pytest.mark.rule("RF-18", "RT-11")
def test_the_initial_events_of_a_watch_from_no_version_are_no_place_to_resume_from(
    source: FakeSource[Any], informer_of: Make, fake_clock: FakeClock, thing: Make
) -> None:
    """A list without a version is not taken for version 0, nor are its objects' versions."""
    whole = source.list_page

    def without_version(*args: Any, **options: Any) -> Any:
        return replace(whole(*args, **options), resource_version=ResourceVersion(""))

    source.list_page = without_version  # type: ignore[method-assign]  # a special server
    source.put(thing("a", 1))
    informer_of(source, streaming=False).start()
    fake_clock.settle()
    source.break_watches()
    fake_clock.settle()
    assert asked(source) == [("list", "0"), ("watch", ""), ("watch", "")]
    source.put(thing("a", 2))
    source.break_watches()
    fake_clock.settle()
    assert asked(source) == [("watch", "12")]


@pytest.mark.rule("RF-19")
def test_an_event_that_cannot_be_read_is_skipped_and_does_not_count_as_seen(
    informer: SharedInformer[Any], source: FakeSource[Any], fake_clock: FakeClock, thing: Make
) -> None:
    stream = source.streams[-1]
    failure = DecodeError("odd", namespace="ns", name="a", resource_version="12")
    stream.send(WatchEvent("MODIFIED", None, ResourceVersion("12"), failure=failure))
    stream.send(WatchEvent("ADDED", thing(""), ResourceVersion("13")))
    stream.end()
    fake_clock.settle()
    assert asked(source) == [("watch", "11")]
    assert value_of(informer) == 1


def test_an_object_that_cannot_be_read_in_a_list_is_not_taken_for_deleted(
    informer: SharedInformer[Any], source: FakeSource[Any], fake_clock: FakeClock, recorder: Any
) -> None:
    informer.add_handler(recorder)
    whole = source.list_page

    def illegible(*args: Any, **options: Any) -> Any:
        failure = DecodeError("odd", namespace="ns", name="a")
        return replace(whole(*args, **options), items=[], failures=[failure])

    source.list_page = illegible  # type: ignore[method-assign]  # a newer writer's objects
    source.fail_watches(api_error(500))
    fake_clock.advance(1)
    assert asked(source) == [("list", "11"), ("watch", "11")]
    assert value_of(informer) == 1
    assert {call[0] for call in recorder.take()} == {"add", "update"}, "a replay, and no end"
    assert list(informer.skipped()) == ["ns/a"]


def test_an_illegible_deletion_is_a_deletion_all_the_same(
    informer: SharedInformer[Any],
    source: FakeSource[Any],
    fake_clock: FakeClock,
    recorder: Any,
) -> None:
    informer.add_handler(recorder)
    failure = DecodeError("odd", namespace="ns", name="a", resource_version="12")
    source.streams[-1].send(WatchEvent("DELETED", None, ResourceVersion("12"), failure=failure))
    fake_clock.settle()
    assert recorder.take() == [("add", "a", 1, True), ("gone", "ns/a")]


@pytest.mark.rule("RF-01", "RF-02")
def test_the_pauses_double_up_to_the_cap(
    source: FakeSource[Any], informer_of: Make, fake_clock: FakeClock
) -> None:
    source.fail("list", *[api_error(500)] * 9)
    begun: list[float] = []
    source.before_list = lambda: begun.append(fake_clock.monotonic() - 1000)
    informer_of(source, streaming=False).start()
    fake_clock.settle()
    fake_clock.advance(115)
    pauses = [later - earlier for earlier, later in itertools.pairwise(begun)]
    assert pauses == pytest.approx([0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30])


@pytest.mark.rule("RF-02")
def test_a_pause_is_up_to_twice_as_long_by_chance(
    source: FakeSource[Any], informer_of: Make, fake_clock: FakeClock
) -> None:
    source.fail("list", *[api_error(500)] * 9)
    begun: list[float] = []
    source.before_list = lambda: begun.append(fake_clock.monotonic() - 1000)
    informer_of(source, streaming=False, rand=lambda: 0.75).start()
    fake_clock.settle()
    fake_clock.advance(110)
    pauses = [later - earlier for earlier, later in itertools.pairwise(begun)]
    assert pauses == pytest.approx([1.75 * d for d in (0.8, 1.6, 3.2, 6.4, 12.8, 25.6)])


@pytest.mark.rule("RF-02")
def test_pauses_start_again_from_the_shortest_after_two_calm_minutes(
    informer: SharedInformer[Any], source: FakeSource[Any], fake_clock: FakeClock
) -> None:
    begun: list[float] = []
    source.before_list = lambda: begun.append(fake_clock.monotonic())

    def pause() -> float:
        source.fail_watches(RuntimeError("a relist"))
        fake_clock.settle()
        failed_at = fake_clock.monotonic()
        fake_clock.advance(10)
        return begun[-1] - failed_at

    assert [pause() for _ in range(3)] == pytest.approx([0.8, 1.6, 3.2])
    fake_clock.advance(89)  # 119 seconds after they began
    assert pause() == pytest.approx(6.4)
    assert pause() == pytest.approx(0.8)


@pytest.mark.rule("RF-04")
@pytest.mark.parametrize(
    ("end", "loudness"),
    [
        (lambda source: source.fail_watches(WatchExpired("things", "too old")), "debug"),
        (lambda source: source.fail_watches(api_error(410, "Expired")), "debug"),
        (lambda source: source.end_watches(), "info"),
        (lambda source: (source.bookmark(), source.break_watches()), "info"),
        (lambda source: source.fail_watches(RuntimeError("a bug")), "error"),
        (lambda source: source.fail_watches(api_error(403, "Forbidden")), "error"),
    ],
    ids=["expired", "gone", "ended at once", "broken", "bug", "forbidden"],
)
def test_the_end_of_a_round_is_reported_as_loudly_as_it_matters(
    informer: SharedInformer[Any],
    source: FakeSource[Any],
    fake_clock: FakeClock,
    end: Callable[[FakeSource[Any]], object],
    loudness: str,
) -> None:
    with structlog.testing.capture_logs() as logs:
        end(source)
        fake_clock.settle()
    assert [entry["log_level"] for entry in logs] == [loudness]


@pytest.mark.rule("RF-04")
def test_a_watch_that_ends_in_order_is_silent(
    informer: SharedInformer[Any], source: FakeSource[Any], fake_clock: FakeClock
) -> None:
    fake_clock.advance(300)
    with structlog.testing.capture_logs() as logs:
        source.end_watches()
        fake_clock.settle()
    assert asked(source) == [("watch", "11")]
    assert logs == []


@pytest.mark.rule("RF-02")
def test_a_backoff_of_ones_own_replaces_the_default(
    source: FakeSource[Any], informer_of: Make, fake_clock: FakeClock
) -> None:
    source.fail("list", *[api_error(500)] * 5)
    begun: list[float] = []
    source.before_list = lambda: begun.append(fake_clock.monotonic() - 1000)
    informer_of(source, streaming=False, backoff=Backoff(base=10, cap=40)).start()
    fake_clock.settle()
    fake_clock.advance(150)
    assert begun == pytest.approx([0, 10, 30, 70, 110, 150])


@pytest.mark.rule("RF-04")
def test_a_handler_of_ones_own_hears_why_rounds_end(
    source: FakeSource[Any], informer_of: Make, fake_clock: FakeClock
) -> None:
    heard: list[Exception] = []

    def hear(error: Exception) -> None:
        heard.append(error)
        raise RuntimeError("handlers must not raise, and yet")

    source.fail("list", api_error(401, "Unauthorized"))
    informer_of(source, streaming=False, on_watch_error=hear).start()
    fake_clock.advance(1)
    source.end_watches()
    fake_clock.advance(0)
    fake_clock.settle()
    assert [type(error) for error in heard] == [Unauthorized, ShortWatch]


@pytest.mark.rule("RF-03")
def test_a_stop_before_the_start_asks_nothing(source: FakeSource[Any], informer_of: Make) -> None:
    informer = informer_of(source)
    informer.stop()
    informer.start()
    assert informer.join(0)
    assert source.requests == []


@pytest.mark.rule("RF-03")
def test_a_stop_during_the_list_stores_nothing(
    source: FakeSource[Any], informer_of: Make, thing: Make
) -> None:
    source.put(thing("a"))
    informer = informer_of(source, streaming=False)
    source.before_list = informer.stop
    informer.start()
    assert informer.join()
    assert len(informer.store) == 0
    assert asked(source) == [("list", "0")]


@pytest.mark.rule("RF-03")
@pytest.mark.parametrize("streaming", [True, False])
def test_every_stream_is_closed_however_it_ends(
    source: FakeSource[Any], informer_of: Make, fake_clock: FakeClock, streaming: bool
) -> None:
    informer = informer_of(source, streaming=streaming)
    informer.start()
    for end in (source.end_watches, source.break_watches, source.compact, source.end_watches):
        fake_clock.settle()
        end()
        fake_clock.advance(60)
    source.fail_watches(RuntimeError("a bug"))
    fake_clock.advance(60)
    assert len(source.open_streams()) == 1
    informer.stop()
    assert informer.join()
    assert source.open_streams() == []


def test_a_list_under_way_is_not_cut_short_and_counts_if_it_is_new_enough(
    source: FakeSource[Any], informer_of: Make, fake_clock: FakeClock
) -> None:
    """Otherwise many requests, one after the other, could prevent every list from completing."""
    informer = informer_of(source, streaming=False)
    source.before_list = lambda: informer._reflector.relist(source.version)
    informer.start()
    fake_clock.settle()
    assert asked(source) == [("list", "0"), ("watch", "10")]


@pytest.mark.parametrize("streaming", [True, False])
def test_a_list_under_way_that_is_too_old_is_followed_by_another_at_once(
    source: FakeSource[Any],
    informer_of: Make,
    fake_clock: FakeClock,
    thing: Make,
    streaming: bool,
) -> None:
    informer = informer_of(source, streaming=streaming)

    def ask_for_more_once(obj: Any) -> list[str]:
        if source.version == "11":
            source.pass_time()
            informer._reflector.relist(source.version)
        return []

    source.put(thing("a"))
    informer.add_indexers({"in the middle of a list": ask_for_more_once})
    informer.start()
    fake_clock.settle()
    listings = [r for r in source.requests if r.streaming or r.verb == "list"]
    assert [r.resource_version for r in listings] == ["" if streaming else "0", "12"]
    assert len(source.open_streams()) == 1


def test_lists_are_counted_by_what_made_them_necessary(
    source: FakeSource[Any], informer_of: Make, fake_clock: FakeClock
) -> None:
    instruments = Instruments()

    def count(reason: str) -> float | None:
        return instruments.registry.get_sample_value(
            "navarchos_informer_relists_total", {"resource": "things", "reason": reason}
        )

    informer = informer_of(source, instruments=instruments)
    informer.start()
    fake_clock.advance(2)
    assert (count("start"), count("failed"), count("expired")) == (1, 0, 0)
    source.fail_watches(api_error(500))
    fake_clock.advance(2)
    assert (count("start"), count("failed"), count("expired")) == (1, 1, 0)
    source.pass_time()
    source.compact()
    source.end_watches()
    fake_clock.advance(4)
    assert (count("failed"), count("expired"), count("short_watch")) == (1, 1, 0)
    informer._reflector.relist(source.version)
    fake_clock.settle()
    assert count("catch_up") == 1


@pytest.mark.rule("RF-12")
def test_a_list_that_cannot_be_stored_fails_the_round_and_counts_for_nothing(
    source: FakeSource[Any], informer_of: Make, fake_clock: FakeClock, thing: Make
) -> None:
    """Such as one with an object that the detector of mutations cannot copy."""
    source.put(thing("a"))
    heard: list[Exception] = []

    class Unique(type(thing("a")), frozen=True):  # type: ignore[misc, call-arg]  # the type comes from a fixture
        def __deepcopy__(self, memo: object) -> Any:
            raise TypeError("there is only one of it")

    def unique_at_first(obj: Any) -> Any:
        return obj if heard else Unique(metadata=obj.metadata)

    informer = informer_of(
        source, streaming=False, transform=unique_at_first, on_watch_error=heard.append
    )
    informer.start()
    fake_clock.settle()
    assert [type(error) for error in heard] == [TypeError]
    assert not informer.has_synced()
    assert len(informer.store) == 0
    assert informer.last_resource_version == ""
    fake_clock.advance(1)
    assert asked(source) == [("list", "0"), ("list", "0"), ("watch", "11")]
    assert informer.store.keys() == ["ns/a"]


@pytest.mark.rule("RF-12")
def test_the_store_has_a_list_before_its_version_is_asked_from(
    source: FakeSource[Any], informer_of: Make, fake_clock: FakeClock, thing: Make
) -> None:
    source.put(thing("a"))
    informer = informer_of(source, streaming=False)
    stored: list[list[str]] = []
    whole = source.watch

    def watch(*args: Any, **options: Any) -> Any:
        stored.append(informer.store.keys())
        return whole(*args, **options)

    source.watch = watch  # type: ignore[method-assign]  # looks at the moment of the request
    informer.start()
    fake_clock.settle()
    assert stored == [["ns/a"]]


INTERNAL = api_error(500, "InternalError")
QUICK = Backoff(base=0.1, factor=1)


@pytest.mark.rule("RF-22")
def test_internal_errors_in_a_watch_are_borne_for_as_long_as_was_asked_for(
    source: FakeSource[Any], informer_of: Make, fake_clock: FakeClock
) -> None:
    informer_of(source, streaming=False, tolerate_internal_errors=10.0, backoff=QUICK).start()
    fake_clock.settle()
    asked(source)
    verbs = []
    for _ in range(4):
        fake_clock.advance(4)
        source.fail_watches(INTERNAL)
        fake_clock.advance(4)
        verbs.append([verb for verb, _ in asked(source)])
    # At 0 and 8 seconds within the period; at 16 and 24 beyond.
    assert verbs == [["watch"], ["watch"], ["list", "watch"], ["list", "watch"]]


@pytest.mark.rule("RF-22")
def test_the_period_starts_again_after_a_minute_without_internal_errors(
    source: FakeSource[Any], informer_of: Make, fake_clock: FakeClock
) -> None:
    informer_of(source, streaming=False, tolerate_internal_errors=10.0, backoff=QUICK).start()
    fake_clock.settle()
    asked(source)
    verbs = []
    for calm in (5, 62, 55):
        fake_clock.advance(calm)
        source.fail_watches(INTERNAL)
        fake_clock.advance(2)
        verbs.append([verb for verb, _ in asked(source)])
    assert verbs == [["watch"], ["watch"], ["list", "watch"]]


@pytest.mark.rule("RF-22")
def test_other_errors_in_a_watch_and_internal_ones_without_a_period_end_the_round(
    source: FakeSource[Any], informer_of: Make, fake_clock: FakeClock
) -> None:
    for period, error in ((0.0, INTERNAL), (10.0, api_error(503, "ServiceUnavailable"))):
        informer = informer_of(source, streaming=False, tolerate_internal_errors=period)
        informer.start()
        fake_clock.settle()
        asked(source)
        source.fail_watches(error)
        fake_clock.advance(2)
        assert [verb for verb, _ in asked(source)] == ["list", "watch"]
        informer.stop()
        assert informer.join()


@pytest.mark.rule("RF-02", "RF-15")
@pytest.mark.parametrize(
    ("where", "code", "then"),
    [
        ("open", 429, [("watch", "11")]),
        ("open", 503, [("list", "11"), ("watch", "11")]),
        ("stream", 429, [("watch", "11")]),
        ("list", 503, [("list", "11"), ("watch", "11")]),
    ],
)
def test_a_server_that_says_when_to_come_back_is_left_alone_until_then(
    informer: SharedInformer[Any],
    source: FakeSource[Any],
    fake_clock: FakeClock,
    where: str,
    code: int,
    then: list[tuple[str, str]],
) -> None:
    fake_clock.advance(300)
    reason = {429: "TooManyRequests", 503: "ServiceUnavailable"}[code]
    refusal = error_from_status(Status(code=code, reason=reason), retry_after=20)
    match where:
        case "open":
            source.fail("watch", refusal)
            source.end_watches()
        case "stream":
            source.fail_watches(refusal)
        case "list":
            source.fail("list", refusal)
            source.fail_watches(api_error(403, "Forbidden"))
            fake_clock.advance(0.9)
    fake_clock.settle()
    asked(source)
    fake_clock.advance(19)
    assert asked(source) == []
    fake_clock.advance(1.1)
    assert asked(source) == then


def test_a_server_that_asks_for_an_hour_gets_a_minute(
    informer: SharedInformer[Any], source: FakeSource[Any], fake_clock: FakeClock
) -> None:
    refusal = error_from_status(Status(code=429, reason="TooManyRequests"), retry_after=3600)
    source.fail_watches(refusal)
    fake_clock.advance(MAX_RETRY_AFTER + 1)
    assert asked(source) == [("watch", "11")]


def test_a_cache_is_disconnected_from_the_loss_of_its_watch_to_the_next_watch(
    source: FakeSource[Any], informer_of: Make, fake_clock: FakeClock
) -> None:
    instruments = Instruments()
    informer = informer_of(source, streaming=False, instruments=instruments)

    def is_disconnected() -> bool:
        gauge = "navarchos_informer_disconnected"
        assert instruments.registry.get_sample_value(gauge, {"resource": "things"}) == (
            1 if informer.is_disconnected else 0
        )
        return bool(informer.is_disconnected)

    assert not is_disconnected()
    informer.start()
    fake_clock.advance(300)
    assert not is_disconnected()
    source.end_watches()  # in good order
    fake_clock.advance(300)
    assert not is_disconnected()

    def refuse() -> None:
        source.fail("watch", ConnectFailed("refused", refused=True))
        source.end_watches()

    def forbid() -> None:
        source.fail("watch", api_error(403))
        source.break_watches()

    def throttle() -> None:
        source.fail_watches(api_error(429, "TooManyRequests"))

    def break_server() -> None:
        source.fail_watches(api_error(500))

    for loss in (throttle, break_server, refuse, forbid):
        loss()
        fake_clock.settle()
        assert is_disconnected()
        fake_clock.advance(300)
        assert not is_disconnected()
    source.fail_watches(api_error(500))
    fake_clock.settle()
    informer.stop()
    assert informer.join()
    assert not is_disconnected(), "a stopped cache needs no watch"


@pytest.mark.rule("RF-31")
def test_lists_and_watches_are_measured(
    source: FakeSource[Any], informer_of: Make, fake_clock: FakeClock, thing: Make
) -> None:
    instruments = Instruments()

    def value(name: str) -> float | None:
        full = f"navarchos_informer_{name}"
        return instruments.registry.get_sample_value(full, {"resource": "things"})

    for name in ("a", "b"):
        source.put(thing(name))
    source.before_list = lambda: fake_clock.advance(3)
    informer = informer_of(source, streaming=False, instruments=instruments)
    informer.start()
    fake_clock.settle()
    assert (value("list_items_count"), value("list_items_sum")) == (1, 2)
    assert (value("list_duration_seconds_count"), value("list_duration_seconds_sum")) == (1, 3)
    assert (value("watches_total"), value("watch_items_count")) == (1, 0)
    assert value("last_resource_version") == 12
    source.put(thing("c"))
    fake_clock.advance(100)
    source.end_watches()
    fake_clock.settle()
    assert (value("watch_items_count"), value("watch_items_sum")) == (1, 1)
    assert (value("watch_duration_seconds_count"), value("watch_duration_seconds_sum")) == (1, 100)
    assert (value("watches_total"), value("last_resource_version")) == (2, 13)
    assert value("short_watches_total") == 0
    source.end_watches()
    fake_clock.settle()
    assert value("short_watches_total") == 1


@pytest.mark.rule("RF-31")
@pytest.mark.parametrize(("seconds", "traced"), [(9, 0), (11, 1)])
def test_a_first_list_of_more_than_ten_seconds_is_traced(
    source: FakeSource[Any], informer_of: Make, fake_clock: FakeClock, seconds: int, traced: int
) -> None:
    source.before_list = lambda: fake_clock.advance(seconds)
    with structlog.testing.capture_logs() as logs:
        informer_of(source, streaming=False).start()
        fake_clock.settle()
    assert [log["event"] for log in logs].count("list_was_slow") == traced


@pytest.mark.rule("RT-22")
def test_a_process_that_slept_for_hours_is_right_again_after_one_list(
    informer: SharedInformer[Any],
    source: FakeSource[Any],
    fake_clock: FakeClock,
    thing: Make,
    recorder: Any,
) -> None:
    """Its connections are gone, and so is the history that it would have to catch up with."""
    informer.add_handler(recorder)
    source.put(thing("b"))
    fake_clock.settle()
    recorder.take()
    asked(source)
    source.delete("ns/a", notify=False)
    source.put(thing("c"), notify=False)
    source.compact()
    fake_clock.advance(8 * 3600)  # of which it noticed nothing
    source.break_watches()
    fake_clock.advance(1)
    assert asked(source) == [("watch", "12"), ("list", "12"), ("watch", "14")]
    assert informer.store.snapshot() == source.objects()
    assert ("gone", "ns/a") in recorder.take()
