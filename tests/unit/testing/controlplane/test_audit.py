import json
from pathlib import Path

import pytest

from navarchos.testing.apiserver import AuditRecord
from navarchos.testing.controlplane.audit import AuditLogFile


class Writer:
    """Writes the log as the API server does."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, text: str) -> None:
        with self._path.open("a") as file:
            file.write(text)

    def event(
        self,
        audit_id: str,
        verb: str = "get",
        *,
        resource: str = "pods",
        subresource: str = "",
        stage: str = "ResponseComplete",
        agent: str = "manager/v1",
        code: int = 200,
        url: str = "/api/v1/pods",
        decision: str = "allow",
    ) -> None:
        event = {
            "kind": "Event",
            "apiVersion": "audit.k8s.io/v1",
            "level": "Metadata",
            "auditID": audit_id,
            "stage": stage,
            "requestURI": url,
            "verb": verb,
            "user": {"username": "system:serviceaccount:a:b", "groups": ["system:authenticated"]},
            "sourceIPs": ["127.0.0.1"],
            "userAgent": agent,
            "objectRef": {
                "resource": resource,
                "namespace": "shop",
                "name": "web",
                "apiVersion": "v1",
                **({"subresource": subresource} if subresource else {}),
            },
            "responseStatus": {"metadata": {}, "code": code},
            "requestReceivedTimestamp": "2026-01-01T12:00:00.123456Z",
            "stageTimestamp": "2026-01-01T12:00:00.223456Z",
            "annotations": {"authorization.k8s.io/decision": decision},
        }
        if not resource:
            del event["objectRef"]
        self.write(json.dumps(event) + "\n")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.log"


@pytest.fixture
def writer(path: Path) -> Writer:
    return Writer(path)


@pytest.fixture
def log(path: Path) -> AuditLogFile:
    return AuditLogFile(path)


def test_a_log_that_is_not_there_yet_is_empty(log: AuditLogFile) -> None:
    assert log.records == ()
    assert list(log.events()) == []
    assert set(log.requests_by("").values()) == {0}


def test_records_look_as_those_of_the_in_process_server(log: AuditLogFile, writer: Writer) -> None:
    writer.event("1", "create", resource="pods", subresource="eviction", code=429)
    assert log.records == (
        AuditRecord("evict", "pods", "eviction", "shop", "web", "manager/v1", 429),
    )


@pytest.mark.parametrize(
    ("code", "decision", "lacks_the_right"),
    [(201, "allow", False), (403, "allow", False), (403, "forbid", True), (401, "", True)],
    ids=["granted", "a webhook said no", "no right", "unknown user"],
)
def test_what_admission_refuses_is_no_want_of_a_right(
    log: AuditLogFile, writer: Writer, code: int, decision: str, lacks_the_right: bool
) -> None:
    writer.event("1", "create", code=code, decision=decision)
    assert [event.is_unauthorized for event in log.events()] == [lacks_the_right]


def test_what_comes_later_is_added(log: AuditLogFile, writer: Writer) -> None:
    writer.event("1")
    assert len(log.records) == 1
    writer.event("2", "list")
    assert [record.verb for record in log.records] == ["get", "list"]
    assert len(list(log.events())) == 2


def test_half_a_line_waits_for_its_other_half(
    log: AuditLogFile, writer: Writer, path: Path
) -> None:
    writer.event("1")
    whole = path.read_text()
    path.write_text("")
    writer.write(whole[:50])
    assert log.records == ()
    writer.write(whole[50:])
    assert len(log.records) == 1


def test_a_watch_is_counted_when_it_begins_and_recorded_when_it_ends(
    log: AuditLogFile, writer: Writer
) -> None:
    writer.event("1", "watch", stage="ResponseStarted")
    assert log.requests_by("")["watch"] == 1
    assert log.records == ()
    writer.event("1", "watch")
    assert log.requests_by("")["watch"] == 1
    assert len(log.records) == 1


def test_requests_are_told_apart_by_user_agent(log: AuditLogFile, writer: Writer) -> None:
    writer.event("1", agent="manager/v1")
    writer.event("2", agent="kube-scheduler/v1.36")
    assert log.requests_by("manager")["get"] == 1
    assert log.requests_by("")["get"] == 2
    assert log.requests_by("manager")["evict"] == 0


def test_requests_on_no_resource_are_events_but_no_records(
    log: AuditLogFile, writer: Writer
) -> None:
    writer.event("1", resource="", url="/version")
    assert log.records == ()
    [event] = log.events()
    assert (event.request_uri, event.object_ref) == ("/version", None)


def test_events_tell_who_asked(log: AuditLogFile, writer: Writer) -> None:
    writer.event("1", code=403)
    [event] = log.events()
    assert event.user.username == "system:serviceaccount:a:b"
    assert event.user.groups == ("system:authenticated",)
    assert event.response_status is not None
    assert event.response_status.code == 403
    assert event.stage_timestamp is not None
    assert event.stage_timestamp.microsecond == 223456
