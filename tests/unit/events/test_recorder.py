"""The recorder as its users see it; the server is a function behind the client."""

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from navarchos.client import (
    BufferedResponse,
    Client,
    ClientConfig,
    ConnectFailed,
    FunctionTransport,
    HttpRequest,
    Resource,
)
from navarchos.errors import AlreadyStarted
from navarchos.events import EventRecorder, EventType, Recorder, Reference
from navarchos.instrument import Instruments
from navarchos.meta import Object, ObjectMeta
from navarchos.stopping import StopToken
from navarchos.testing import FakeClock
from navarchos.testing.recorder import FakeRecorder

NODES = Resource("", "v1", "nodes", "Node", namespaced=False, type=Object)


def node(name: str = "n1") -> Object:
    return Object(metadata=ObjectMeta(name=name, uid=f"uid-{name}"))


class Server:
    """Stores events as an API server would; fails when a test asks for it."""

    def __init__(self) -> None:
        self.events: dict[str, dict[str, Any]] = {}
        self.requests: list[str] = []
        self.script: list[Callable[[], BufferedResponse]] = []
        self.gate = threading.Event()
        self.gate.set()

    def answer(self, request: HttpRequest) -> BufferedResponse:
        body = json.loads(request.body or b"{}")
        name = body.get("metadata", {}).get("name") or request.target.rpartition("/")[2]
        self.requests.append(request.method)
        self.gate.wait(30)
        if self.script:
            return self.script.pop(0)()
        if request.method == "PATCH":
            if name not in self.events:
                return refusal(404, "NotFound")
            self.events[name] |= body
        elif name in self.events:
            return refusal(409, "AlreadyExists")
        else:
            self.events[name] = body
        return BufferedResponse(200, {}, json.dumps(self.events[name]).encode())

    @property
    def counts(self) -> list[int]:
        return [event.get("series", {"count": 1})["count"] for event in self.events.values()]


def refusal(code: int, reason: str, **details: object) -> BufferedResponse:
    status = {"kind": "Status", "code": code, "reason": reason, "message": "no", "details": details}
    return BufferedResponse(code, {}, json.dumps(status).encode())


def no_answer() -> BufferedResponse:
    raise ConnectFailed("connection refused", refused=True)


class Bench:
    """A recorder over a server, in virtual time."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.server = Server()
        self.instruments = Instruments()
        self.stop = StopToken(clock=clock)
        config = ClientConfig("http://server.invalid")
        transport = FunctionTransport(self.server.answer)
        self.client = Client(config, clock=clock, transport=transport)
        self.recorder = EventRecorder(
            self.client, component="tester", clock=clock, instruments=self.instruments
        )

    def record(self, reason: str = "Seen", *, name: str = "n1", note: str = "there") -> None:
        self.recorder.record(NODES, node(name), EventType.NORMAL, reason, note)

    def pass_time(self, seconds: float) -> None:
        self.clock.settle()
        self.clock.advance(seconds)
        self.clock.settle()

    def dropped(self, reason: str) -> float:
        value = self.instruments.registry.get_sample_value(
            "navarchos_events_dropped_total", {"reason": reason}
        )
        assert value is not None, "the series exists before the first loss"
        return value


@pytest.fixture
def bench(fake_clock: FakeClock) -> Iterator[Bench]:
    bench = Bench(fake_clock)
    yield bench
    bench.server.gate.set()
    bench.stop.stop("test over")
    bench.recorder.close(0)
    bench.client.close()


@pytest.fixture
def started(bench: Bench) -> Bench:
    bench.recorder.start(bench.stop)
    return bench


def event_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "nav-events"]


@pytest.mark.rule("EV-15")
def test_an_event_reaches_the_server_and_its_repeat_makes_it_a_series(started: Bench) -> None:
    for _ in range(3):
        started.record()
        started.clock.settle()
    assert started.server.requests == ["POST", "PATCH"]
    assert started.server.counts == [2]


@pytest.mark.rule("EV-16")
def test_later_repeats_reach_the_server_when_the_series_is_refreshed(started: Bench) -> None:
    for _ in range(31):
        started.record()
        started.pass_time(60)
    assert started.server.counts[0] in {30, 31}
    assert started.server.requests == ["POST", "PATCH", "PATCH"]


@pytest.mark.rule("EV-04")
def test_the_thread_starts_with_the_first_event(started: Bench) -> None:
    assert event_threads() == []
    started.record()
    assert event_threads() == ["nav-events"]


def test_events_recorded_before_the_start_wait_for_it(bench: Bench) -> None:
    bench.record()
    bench.recorder.start(bench.stop)
    bench.clock.settle()
    assert bench.server.counts == [1]


def test_a_recorder_starts_once(started: Bench) -> None:
    with pytest.raises(AlreadyStarted):
        started.recorder.start(started.stop)


@pytest.mark.rule("EV-01")
def test_recording_does_not_wait_for_the_server(started: Bench) -> None:
    started.server.gate.clear()
    for n in range(1100):
        started.record(name=f"n{n}")
    assert started.dropped("queue_full") in {99, 100}
    started.server.gate.set()
    started.clock.settle()
    assert len(started.server.counts) == 1100 - started.dropped("queue_full")


@pytest.mark.rule("EV-02")
@pytest.mark.rule("EV-03")
def test_an_invalid_event_is_counted_and_not_raised(started: Bench) -> None:
    started.recorder.record(NODES, Object(), EventType.NORMAL, "Seen", "no name")
    started.recorder.record(NODES, node(), EventType.NORMAL, "", "no reason")
    bad: Any = "Error"
    started.recorder.record(NODES, node(), bad, "Seen", "no type")
    assert started.dropped("invalid") == 3
    assert started.server.requests == []


@pytest.mark.rule("EV-14")
def test_two_recorders_know_nothing_of_each_other_s_series_and_limits(
    started: Bench, fake_clock: FakeClock
) -> None:
    other = Bench(fake_clock)
    other.recorder.start(other.stop)
    for n in range(30):
        started.record(f"Reason{n}")
        fake_clock.settle()
    other.record("Reason0")
    other.record("Reason29")
    fake_clock.settle()
    other.recorder.close(0)
    other.client.close()
    assert started.dropped("filtered") == 5
    assert other.dropped("filtered") == 0
    assert other.server.requests == ["POST", "POST"]


@pytest.mark.rule("EV-10")
def test_an_object_that_talks_too_much_is_filtered_and_counted(started: Bench) -> None:
    for n in range(30):
        started.record(f"Reason{n}")
    started.clock.settle()
    assert started.dropped("filtered") == 5
    assert len(started.server.counts) == 25


@pytest.mark.rule("EV-15")
def test_events_that_name_different_related_objects_are_no_repeats_of_one_another(
    started: Bench,
) -> None:
    for number in range(30):
        related = Reference.to(NODES, node(f"n{number}"))
        for _ in range(2):
            started.recorder.record(
                NODES, node(), EventType.WARNING, "Moved", f"to n{number}", related=related
            )
    started.clock.settle()
    assert started.dropped("filtered") == 0
    assert started.server.counts == [2] * 30
    for number, event in enumerate(started.server.events.values()):
        assert event["regarding"]["name"] == "n1"
        assert event["related"]["name"] == f"n{number}"
        assert event["note"] == f"to n{number}"


@pytest.mark.rule("EV-12")
def test_a_write_without_an_answer_is_repeated_after_a_pause(started: Bench) -> None:
    started.server.script = [no_answer, no_answer]
    started.record()
    started.clock.settle()
    started.record(name="n2")
    started.clock.settle()
    assert started.server.requests == ["POST", "POST"]
    started.pass_time(13)
    assert started.server.counts == [1, 1]


@pytest.mark.rule("EV-12")
def test_an_event_without_an_answer_is_given_up_after_twelve_tries(started: Bench) -> None:
    started.server.script = [no_answer] * 20
    started.record()
    started.pass_time(200)
    assert len(started.server.requests) == 12
    assert started.dropped("unreachable") == 1


@pytest.mark.rule("EV-12")
@pytest.mark.parametrize("code", [403, 422, 429, 500])
def test_an_event_that_the_server_refuses_is_given_up_at_once(started: Bench, code: int) -> None:
    started.server.script = [lambda: refusal(code, "Whatever")]
    started.record()
    started.pass_time(100)
    assert started.server.requests == ["POST"]
    assert started.dropped("refused") == 1


@pytest.mark.rule("EV-11")
def test_a_series_whose_event_has_expired_is_created_again(started: Bench) -> None:
    started.record()
    started.clock.settle()
    started.server.events.clear()
    started.record()
    started.clock.settle()
    assert started.server.requests == ["POST", "PATCH", "POST"]
    assert started.server.counts == [2]


@pytest.mark.rule("EV-17")
def test_a_create_whose_answer_was_lost_is_not_an_error(started: Bench) -> None:
    def stored_but_unanswered() -> BufferedResponse:
        started.server.events[name] = {}
        return no_answer()

    started.record(name="probe")
    started.clock.settle()
    # Names go by the time, so the next one is known.
    (probe,) = started.server.events
    name = f"n1.{int(probe.rpartition('.')[2], 16) + 1:x}"
    started.server.script = [stored_but_unanswered]
    started.record()
    started.record()
    started.pass_time(13)
    assert started.server.counts == [1, 2]
    assert started.dropped("refused") == 0


@pytest.mark.rule("EV-13")
def test_closing_writes_what_is_queued_and_leaves_no_thread(started: Bench) -> None:
    started.server.gate.clear()
    for n in range(10):
        started.record(name=f"n{n}")
    started.server.gate.set()
    assert started.recorder.close(30)
    assert started.server.counts == [1] * 10
    assert event_threads() == []


def test_closing_writes_counts_that_the_server_does_not_know(started: Bench) -> None:
    for _ in range(7):
        started.record()
        started.clock.settle()
    assert started.recorder.close(30)
    assert started.server.counts == [7]


@pytest.mark.rule("EV-13")
def test_closing_cuts_a_pause_short_and_tries_once_more(started: Bench) -> None:
    started.server.script = [no_answer, no_answer]
    started.record()
    started.clock.settle()
    started.recorder.close(30)
    assert started.server.requests == ["POST", "POST"]
    assert started.dropped("unreachable") == 1


@pytest.mark.rule("RT-30")
def test_an_event_after_the_end_is_ignored(started: Bench) -> None:
    started.record()
    assert started.recorder.close(30)
    started.record(name="n2")
    assert started.recorder.close(30)
    assert started.server.counts == [1]


def test_closing_without_a_start_counts_what_is_lost(bench: Bench) -> None:
    bench.record()
    assert not bench.recorder.close(30)
    assert bench.dropped("shutdown") == 1


def test_closing_waits_no_longer_than_it_may(started: Bench) -> None:
    """A flush distinguishes a server that hangs from a server that has answered."""
    started.server.gate.clear()
    started.record()
    assert not started.recorder.close(0)


def test_a_stop_ends_the_thread_at_once(started: Bench) -> None:
    started.server.script = [no_answer]
    started.record()
    started.clock.settle()
    started.stop.stop("enough")
    assert not started.recorder.close(30)
    assert started.server.requests == ["POST"]
    assert started.dropped("shutdown") == 1


def test_flushing_waits_until_all_is_written(started: Bench) -> None:
    for n in range(5):
        started.record(name=f"n{n}")
    assert started.recorder.flush(30)
    assert len(started.server.counts) == 5


def test_flushing_gives_up_in_time(started: Bench) -> None:
    started.server.script = [no_answer]
    started.record()
    started.clock.settle()
    assert not started.recorder.flush(0)


@pytest.mark.rule("EV-05")
def test_a_fake_keeps_events_as_lines(bench: Bench) -> None:
    recorders: list[Recorder] = [bench.recorder, fake := FakeRecorder(limit=2)]
    for note in ("one", "two", "three"):
        recorders[1].record(NODES, node(), EventType.WARNING, "Seen", note)
    assert fake.lines == ["Warning Seen two", "Warning Seen three"]
    assert fake.reasons == ["Seen", "Seen"]
    assert fake.events[0].kind == "Node"
    fake.clear()
    assert fake.events == []
