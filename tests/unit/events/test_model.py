"""What an event may say, and how it looks on the wire."""

from datetime import UTC, datetime
from typing import Any

import pytest

from navarchos.client import Resource
from navarchos.errors import ConfigError
from navarchos.events.model import (
    EventFacts,
    InvalidEvent,
    Reference,
    Reporter,
    SeriesSnapshot,
    new_event,
    next_in_series,
)
from navarchos.meta import KeyFailed, Object, ObjectMeta, ResourceVersion

NODES = Resource("", "v1", "nodes", "Node", namespaced=False, type=Object)
JOBS = Resource("batch", "v1", "jobs", "Job", namespaced=True, type=Object)
AT = datetime(2026, 1, 2, 15, 4, 5, tzinfo=UTC)
LATER = datetime(2026, 1, 2, 15, 4, 6, 7, tzinfo=UTC)


def job(name: str = "sweep", version: str = "7") -> Object:
    meta = ObjectMeta(
        name=name, namespace="ops", uid="u1", resource_version=ResourceVersion(version)
    )
    return Object(metadata=meta)


def facts(
    type_: str = "Normal", reason: str = "Swept", note: str = "all clean", action: str = ""
) -> EventFacts:
    return EventFacts.of(Reference.to(JOBS, job()), type_, reason, note, action)


def test_a_reference_carries_what_finds_the_object_again() -> None:
    assert Reference.to(JOBS, job()).body() == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "namespace": "ops",
        "name": "sweep",
        "uid": "u1",
        "resourceVersion": "7",
    }


def test_a_reference_to_a_dict_works_the_same() -> None:
    reference = Reference.to(NODES, {"metadata": {"name": "n1"}})
    assert reference.body() == {"apiVersion": "v1", "kind": "Node", "name": "n1"}


@pytest.mark.rule("EV-03")
@pytest.mark.parametrize("obj", [Object(), {}, None, {"metadata": {}}])
def test_an_object_without_a_name_cannot_be_referenced(obj: object) -> None:
    with pytest.raises(KeyFailed):
        Reference.to(JOBS, obj)


@pytest.mark.rule("EV-02")
@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"type_": "Error"}, "Normal or Warning"),
        ({"reason": ""}, "reason ''"),
        ({"reason": "x" * 129}, "1 to 128"),
        ({"action": "x" * 129}, "1 to 128"),
    ],
)
def test_an_event_that_the_server_would_refuse_is_invalid(given: dict[str, str], why: str) -> None:
    with pytest.raises(InvalidEvent, match=why):
        facts(**given)


def test_the_reason_stands_in_for_a_missing_action() -> None:
    assert facts().action == "Swept"
    assert facts(action="Sweep").action == "Sweep"


def test_a_long_note_is_cut_between_characters() -> None:
    note = facts(note="ä" * 1000).note
    assert len(note.encode()) <= 1024
    assert note.endswith("ä...")


@pytest.mark.rule("EV-15")
def test_neither_note_nor_version_makes_another_series() -> None:
    newer = EventFacts.of(Reference.to(JOBS, job(version="8")), "Normal", "Swept", "again", "")
    assert newer.key == facts().key


@pytest.mark.rule("EV-15")
@pytest.mark.parametrize("given", [{"type_": "Warning"}, {"reason": "X"}, {"action": "X"}])
def test_type_reason_and_action_make_another_series(given: dict[str, str]) -> None:
    assert facts(**given).key != facts().key


@pytest.mark.rule("EV-02")
def test_events_live_with_their_object_or_in_default() -> None:
    node = EventFacts.of(
        Reference.to(NODES, {"metadata": {"name": "n1"}}), "Normal", "Seen", "there", ""
    )
    assert facts().namespace == "ops"
    assert node.namespace == "default"


def snapshot(count: int = 1) -> SeriesSnapshot:
    return SeriesSnapshot(facts(), "sweep.1", count, AT, LATER, stored=False)


@pytest.mark.rule("EV-18")
def test_a_first_event_has_no_series_and_six_digits_of_time() -> None:
    body: Any = new_event(snapshot(), Reporter("sweeper", "sweeper-1"))
    assert "series" not in body
    assert body["eventTime"] == "2026-01-02T15:04:05.000000Z"
    assert body["metadata"] == {"name": "sweep.1", "namespace": "ops"}
    assert body["reportingController"] == "sweeper"
    assert body["reportingInstance"] == "sweeper-1"


def test_fields_that_this_version_of_the_api_refuses_stay_out() -> None:
    assert not [name for name in new_event(snapshot(), Reporter("a", "b")) if "deprecated" in name]


def test_a_series_has_its_count_and_its_last_time() -> None:
    series = {"series": {"count": 3, "lastObservedTime": "2026-01-02T15:04:06.000007Z"}}
    assert next_in_series(snapshot(3)) == series
    assert series.items() <= new_event(snapshot(3), Reporter("a", "b")).items()


def test_the_instance_is_named_after_the_machine_and_fits() -> None:
    reporter = Reporter.of("sweeper")
    assert reporter.instance.startswith("sweeper-")
    assert len(Reporter.of("x" * 63).instance) <= 128


@pytest.mark.parametrize("component", ["", "two words", "-x", "x" * 64])
def test_a_component_that_the_server_would_refuse_is_refused_at_once(component: str) -> None:
    with pytest.raises(ConfigError, match="component"):
        Reporter.of(component)
