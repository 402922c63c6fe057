"""Which kinds there are."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from navarchos.client import BufferedAnswer, DecodeError, HttpRequest, Resource
from navarchos.testing import FakeClock

Make = Callable[..., Any]

THINGS = Resource("example.com", "v1", "things", "Thing", namespaced=False, type=dict)
PODS = Resource("", "v1", "pods", "Pod", namespaced=True, type=dict)


class Server:
    """Serves `/version`, and the groups that a test installs."""

    def __init__(self) -> None:
        self.groups: dict[str, list[dict[str, object]]] = {
            "/api/v1": [{"name": "pods", "kind": "Pod", "namespaced": True, "shortNames": None}]
        }
        self.asked: list[str] = []

    def __call__(self, request: HttpRequest) -> BufferedAnswer:
        self.asked.append(request.target)
        if request.target == "/version":
            return BufferedAnswer(200, {}, b'{"major":"1","gitVersion":"v1.34.1"}')
        if request.target not in self.groups:
            return BufferedAnswer(404, {}, b"404 page not found")
        body = json.dumps({"resources": self.groups[request.target]}).encode()
        return BufferedAnswer(200, {}, body)


def test_the_version_is_the_servers(connect: Make) -> None:
    assert connect(Server()).server_version() == "v1.34.1"


@pytest.mark.rule("CL-16")
def test_a_kind_installed_after_start_is_found(connect: Make, fake_clock: FakeClock) -> None:
    server = Server()
    client = connect(server, clock=fake_clock)
    assert not client.has_kind(THINGS)
    server.groups["/apis/example.com/v1"] = [{"name": "others", "kind": "Other"}]
    assert not client.has_kind(THINGS)
    server.groups["/apis/example.com/v1"].append({"name": "things", "kind": "Thing"})
    assert client.has_kind(THINGS)


def test_a_kind_that_is_served_is_asked_for_once_in_a_while(
    connect: Make, fake_clock: FakeClock
) -> None:
    server = Server()
    client = connect(server, clock=fake_clock)
    assert client.has_kind(PODS)
    assert client.has_kind(PODS)
    assert len(server.asked) == 1
    fake_clock.advance(31.0)
    assert client.has_kind(PODS)
    assert len(server.asked) == 2


@pytest.mark.rule("CL-16")
def test_a_group_that_is_gone_is_dropped(connect: Make, fake_clock: FakeClock) -> None:
    server = Server()
    client = connect(server, clock=fake_clock)
    assert [entry.name for entry in client.api_resources("", "v1")] == ["pods"]
    del server.groups["/api/v1"]
    fake_clock.advance(31.0)
    assert list(client.api_resources("", "v1")) == []
    assert not client.has_kind(PODS)


def test_an_answer_that_is_no_discovery_document_says_so(connect: Make) -> None:
    client = connect(lambda _: BufferedAnswer(200, {}, b"<html>"))
    with pytest.raises(DecodeError):
        client.server_version()
