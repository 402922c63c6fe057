"""Events on a server, over HTTP: accepted, and found the way kubectl finds them."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from navarchos.client import Client, ClientConfig, Resource
from navarchos.events import EventRecorder, EventType
from navarchos.instrument import Instruments
from navarchos.meta import Object
from navarchos.stopping import StopToken
from navarchos.testing.apiserver import ApiServer

NODES = Resource("", "v1", "nodes", "Node", namespaced=False, type=Object)
PODS = Resource("", "v1", "pods", "Pod", namespaced=True, type=Object)
_LONG = 30.0


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as server:
        server.install({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
        yield server


@pytest.fixture
def client(server: ApiServer) -> Iterator[Client]:
    with Client(ClientConfig(server.url)) as client:
        yield client


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
    recorder.close(_LONG)


def described(client: Client, name: str) -> list[dict[str, Any]]:
    """The events that `kubectl describe` finds: core/v1, by involved object."""
    query = f"fieldSelector=involvedObject.name%3D{name}"
    answer = client.raw("GET", f"/api/v1/events?{query}")
    found: list[dict[str, Any]] = json.loads(answer.body)["items"]
    return found


@pytest.mark.rule("EV-02")
@pytest.mark.rule("EV-18")
def test_an_event_is_found_by_its_object(client: Client, recorder: EventRecorder) -> None:
    node = client.resource(NODES).get("n1")
    recorder.record(NODES, node, EventType.WARNING, "Tired", "needs a rest", action="Watch")
    assert recorder.flush(_LONG)
    (event,) = described(client, "n1")
    assert event["involvedObject"]["uid"] == node.metadata.uid
    assert event["metadata"]["namespace"] == "default"
    assert (event["type"], event["reason"], event["message"]) == (
        "Warning",
        "Tired",
        "needs a rest",
    )
    assert event["reportingComponent"] == "tester"
    assert re.fullmatch(r".{19}\.\d{6}Z", event["eventTime"])


@pytest.mark.rule("EV-15")
def test_a_repeat_is_seen_as_a_count(client: Client, recorder: EventRecorder) -> None:
    node = client.resource(NODES).get("n1")
    for note in ("once", "twice"):
        recorder.record(NODES, node, EventType.NORMAL, "Seen", note)
        assert recorder.flush(_LONG)
    (event,) = described(client, "n1")
    assert event["series"]["count"] == 2


def test_nothing_of_it_is_refused(
    client: Client, recorder: EventRecorder, instruments: Instruments
) -> None:
    """Long notes, odd names, namespaces: whatever users record, the server takes it."""
    pod = {"metadata": {"name": "system:odd", "namespace": "kube-system", "uid": "u"}}
    recorder.record(PODS, pod, EventType.NORMAL, "Seen", "ä" * 5000)
    assert recorder.close(_LONG)
    (event,) = described(client, "system%3Aodd")
    assert event["metadata"]["namespace"] == "kube-system"
    dropped = instruments.registry.get_sample_value(
        "navarchos_events_dropped_total", {"reason": "refused"}
    )
    assert dropped == 0
