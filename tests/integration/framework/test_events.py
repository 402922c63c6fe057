"""Events on an API server, over HTTP: accepted, and found the way kubectl finds them."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from tests.integration.framework.kinds import NODES, PODS
from tests.integration.framework.waiting import LIMIT

from navarchos.client import Client, Resource
from navarchos.events import EventRecorder, EventType
from navarchos.instrument import Instruments
from navarchos.stopping import StopToken

EVENTS: Resource[Any] = Resource(
    "events.k8s.io", "v1", "events", "Event", namespaced=True, type=dict
)


@pytest.fixture
def instruments() -> Instruments:
    return Instruments()


@pytest.fixture
def recorder(client: Client, instruments: Instruments) -> Iterator[EventRecorder]:
    recorder = EventRecorder(client, component="tester", instruments=instruments)
    stop = StopToken()
    recorder.start(stop)
    yield recorder
    stop.stop("test over")
    recorder.close(LIMIT)


@pytest.fixture
def about(client: Client, node: str) -> Iterator[dict[str, Any]]:
    """The node; its events are removed, because they are outside the test's namespace."""
    yield client.resource(NODES).get(node)
    for event in described(client, node):
        client.resource(EVENTS).delete(event["metadata"]["name"], event["metadata"]["namespace"])


def described(client: Client, name: str) -> list[dict[str, Any]]:
    """The events that `kubectl describe` finds: core/v1, by involved object."""
    query = f"fieldSelector=involvedObject.name%3D{name}"
    answer = client.raw("GET", f"/api/v1/events?{query}")
    found: list[dict[str, Any]] = json.loads(answer.body)["items"]
    return found


@pytest.mark.rule("EV-02")
@pytest.mark.rule("EV-18")
def test_an_event_is_found_by_its_object(
    client: Client, recorder: EventRecorder, about: dict[str, Any]
) -> None:
    recorder.record(NODES, about, EventType.WARNING, "Tired", "needs a rest", action="Watch")
    assert recorder.flush(LIMIT)
    (event,) = described(client, about["metadata"]["name"])
    assert event["involvedObject"]["uid"] == about["metadata"]["uid"]
    assert event["metadata"]["namespace"] == "default"
    assert (event["type"], event["reason"], event["message"]) == (
        "Warning",
        "Tired",
        "needs a rest",
    )
    assert event["reportingComponent"] == "tester"
    assert re.fullmatch(r".{19}\.\d{6}Z", event["eventTime"])


@pytest.mark.rule("EV-15")
def test_a_repeat_is_seen_as_a_count(
    client: Client, recorder: EventRecorder, about: dict[str, Any]
) -> None:
    for note in ("once", "twice"):
        recorder.record(NODES, about, EventType.NORMAL, "Seen", note)
        assert recorder.flush(LIMIT)
    (event,) = described(client, about["metadata"]["name"])
    assert event["series"]["count"] == 2


def test_a_series_counts_on_and_keeps_its_first_note(
    client: Client, recorder: EventRecorder, about: dict[str, Any], instruments: Instruments
) -> None:
    """As `events.k8s.io/v1` has it, which refuses any change of the note."""
    for number in range(5):
        recorder.record(NODES, about, EventType.NORMAL, "Seen", f"number {number}")
        assert recorder.flush(LIMIT)
    assert recorder.close(LIMIT)  # between the second and the end only a count is kept
    (seen,) = described(client, about["metadata"]["name"])
    event = client.resource(EVENTS).get(seen["metadata"]["name"], "default")
    assert event["note"] == "number 0"
    assert event["series"]["count"] == 5
    assert event["series"]["lastObservedTime"] >= event["eventTime"]
    assert refused(instruments) == 0


def test_other_reasons_begin_series_of_their_own(
    client: Client, recorder: EventRecorder, about: dict[str, Any]
) -> None:
    for reason in ("Seen", "Heard", "Seen"):
        recorder.record(NODES, about, EventType.NORMAL, reason, "again")
    assert recorder.flush(LIMIT)
    counts = {
        event["reason"]: (event.get("series") or {"count": 1})["count"]
        for event in described(client, about["metadata"]["name"])
    }
    assert counts == {"Seen": 2, "Heard": 1}


def test_nothing_of_it_is_refused(
    client: Client, recorder: EventRecorder, instruments: Instruments, namespace: str
) -> None:
    """Long notes, odd names, namespaces: the server accepts every recorded event."""
    pod = {"metadata": {"name": "system:odd", "namespace": namespace, "uid": "u"}}
    recorder.record(PODS, pod, EventType.NORMAL, "Seen", "ä" * 5000)
    assert recorder.close(LIMIT)
    (event,) = [
        each
        for each in described(client, "system%3Aodd")
        if each["metadata"]["namespace"] == namespace
    ]
    assert event["message"].startswith("äää")
    assert refused(instruments) == 0


def refused(instruments: Instruments) -> float | None:
    return instruments.registry.get_sample_value(
        "navarchos_events_dropped_total", {"reason": "refused"}
    )
