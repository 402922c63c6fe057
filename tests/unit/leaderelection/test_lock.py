"""The lock on a Lease, over the transport."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from navarchos.client import (
    BufferedResponse,
    Client,
    ClientConfig,
    Conflict,
    DecodeError,
    FunctionTransport,
    HttpRequest,
    NotFound,
)
from navarchos.errors import ConfigError, NotStarted
from navarchos.leaderelection import LeaseLock, LeaseRecord, unique_identity

RECORD = LeaseRecord(holder_identity="me", lease_duration_seconds=15)
OTHERS = {"metadata": {"name": "l", "labels": {"theirs": "1"}, "annotations": {"note": "x"}}}


class Server:
    """One Lease with a version."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0

    def put(self, lease: Mapping[str, Any]) -> None:
        self.version += 1
        metadata = lease["metadata"] | {"resourceVersion": str(self.version), "namespace": "ns"}
        self.lease = {**lease, "metadata": metadata}

    def answer(self, request: HttpRequest) -> BufferedResponse:
        body = json.loads(request.body or b"{}")
        if request.method == "POST":
            self.put(body)
        elif self.lease is None:
            return _refusal(404, "NotFound")
        elif request.method == "PUT":
            if body["metadata"]["resourceVersion"] != str(self.version):
                return _refusal(409, "Conflict")
            self.put(body)
        return BufferedResponse(200, {}, json.dumps(self.lease).encode())


def _refusal(code: int, reason: str) -> BufferedResponse:
    body = {"kind": "Status", "code": code, "reason": reason, "message": reason}
    return BufferedResponse(code, {}, json.dumps(body).encode())


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def client(server: Server) -> Client:
    config = ClientConfig("http://server.invalid")
    return Client(config, transport=FunctionTransport(server.answer))


@pytest.fixture
def lock(client: Client) -> LeaseLock:
    return LeaseLock(client, "ns", "l", "me", {"ours": "2"})


@pytest.mark.rule("LE-04")
def test_a_lock_describes_itself(lock: LeaseLock) -> None:
    assert lock.describe() == "ns/l"
    assert lock.identity == "me"


@pytest.mark.rule("LE-05")
def test_identities_are_unique() -> None:
    assert unique_identity() != unique_identity()


@pytest.mark.rule("LE-01")
@pytest.mark.parametrize("given", [("", "l", "me"), ("ns", "", "me"), ("ns", "l", "")])
def test_namespace_name_and_identity_are_needed(client: Client, given: Any) -> None:
    with pytest.raises(ConfigError):
        LeaseLock(client, *given)


@pytest.mark.rule("LE-04")
def test_a_missing_lease_is_not_found(lock: LeaseLock) -> None:
    with pytest.raises(NotFound):
        lock.get(timeout=1)


@pytest.mark.rule("LE-04")
def test_an_update_needs_a_get_or_a_create_before_it(lock: LeaseLock) -> None:
    with pytest.raises(NotStarted):
        lock.update(RECORD, timeout=1)


@pytest.mark.rule("LE-04")
def test_each_write_is_based_on_the_one_before(lock: LeaseLock, server: Server) -> None:
    lock.create(RECORD, timeout=1)
    lock.update(RECORD, timeout=1)
    lock.update(RECORD, timeout=1)
    assert server.version == 3
    assert lock.get(timeout=1) == RECORD


@pytest.mark.rule("LE-04")
def test_a_write_over_a_change_of_others_is_refused(lock: LeaseLock, server: Server) -> None:
    lock.create(RECORD, timeout=1)
    server.put(OTHERS)
    with pytest.raises(Conflict):
        lock.update(RECORD, timeout=1)


@pytest.mark.rule("LE-04")
@pytest.mark.rule("PF-31")
def test_labels_are_added_and_what_others_wrote_stays(lock: LeaseLock, server: Server) -> None:
    server.put(OTHERS)
    lock.get(timeout=1)
    lock.update(RECORD, timeout=1)
    assert server.lease is not None
    assert server.lease["metadata"]["labels"] == {"theirs": "1", "ours": "2"}
    assert server.lease["metadata"]["annotations"] == {"note": "x"}
    assert server.lease["spec"] == {
        "holderIdentity": "me",
        "leaseDurationSeconds": 15,
        "leaseTransitions": 0,
    }


@pytest.mark.rule("LE-04")
def test_no_labels_are_invented(client: Client, server: Server) -> None:
    lock = LeaseLock(client, "ns", "l", "me")
    server.put({"metadata": {"name": "l", "labels": None}})
    lock.get(timeout=1)
    lock.update(RECORD, timeout=1)
    assert server.lease is not None
    assert not server.lease["metadata"].get("labels")


def test_a_lease_that_makes_no_sense_is_a_client_error(lock: LeaseLock, server: Server) -> None:
    server.put({"metadata": {"name": "l"}, "spec": {"holderIdentity": 7}})
    with pytest.raises(DecodeError, match="spec of the Lease cannot be decoded"):
        lock.get(timeout=1)


@pytest.mark.rule("LE-21")
def test_events_carry_the_lease_if_there_is_a_callback(client: Client) -> None:
    told: list[tuple[Any, str]] = []
    lock = LeaseLock(
        client, "ns", "l", "me", on_event=lambda lease, text: told.append((lease, text))
    )
    lock.record_event("before")
    lock.create(RECORD, timeout=1)
    lock.record_event("after")
    LeaseLock(client, "ns", "l", "me").record_event("no callback")
    assert [(lease["metadata"]["name"], text) for lease, text in told] == [
        ("l", "before"),
        ("l", "after"),
    ]
