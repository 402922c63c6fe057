"""Faults do what they say, to the requests they name, as often as they say."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import urllib3

from navarchos.errors import ConfigError
from navarchos.testing.apiserver import ApiServer, Fault


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as running:
        running.install(
            *({"apiVersion": "v1", "kind": "Node", "metadata": {"name": n}} for n in "abc")
        )
        yield running


@pytest.fixture
def pool() -> Iterator[urllib3.PoolManager]:
    with urllib3.PoolManager(retries=False) as found:
        yield found


def get(server: ApiServer, pool: urllib3.PoolManager, path: str = "nodes/a") -> int:
    return pool.request("GET", f"{server.url}/api/v1/{path}").status


def watch(server: ApiServer, pool: urllib3.PoolManager) -> urllib3.BaseHTTPResponse:
    return pool.request("GET", f"{server.url}/api/v1/nodes?watch=1", preload_content=False)


def shown(data: bytes) -> list[str]:
    return [json.loads(line)["object"]["metadata"]["name"] for line in data.splitlines()]


@pytest.mark.parametrize(
    ("code", "reason"),
    [(409, "Conflict"), (410, "Expired"), (429, "TooManyRequests"), (500, "InternalError")],
)
def test_a_refusal_happens_as_often_as_it_says(
    server: ApiServer, pool: urllib3.PoolManager, code: int, reason: str
) -> None:
    server.faults.add(Fault(verb="get", status=code, times=2, retry_after=3))
    reply = pool.request("GET", f"{server.url}/api/v1/nodes/a")
    assert (reply.status, reply.json()["reason"]) == (code, reason)
    assert reply.headers["Retry-After"] == "3"
    assert [get(server, pool), get(server, pool)] == [code, 200]
    assert server.faults.pending == ()


@pytest.mark.parametrize(
    ("pattern", "hit"),
    [
        ({"verb": "list"}, False),
        ({"resource": "nodes"}, True),
        ({"resource": "pods"}, False),
        ({"name": "a"}, True),
        ({"name": "b"}, False),
        ({"user_agent": "urllib3"}, True),
        ({"user_agent": "kubectl"}, False),
    ],
)
def test_a_fault_hits_what_it_names(
    server: ApiServer, pool: urllib3.PoolManager, pattern: dict[str, Any], hit: bool
) -> None:
    server.faults.add(Fault(**pattern, status=503, times=None))
    assert get(server, pool) == (503 if hit else 200)
    server.faults.clear()
    assert get(server, pool) == 200


def test_a_reset_is_no_answer(server: ApiServer, pool: urllib3.PoolManager) -> None:
    server.faults.add(Fault(reset=True))
    with pytest.raises(urllib3.exceptions.ProtocolError):
        get(server, pool)
    assert get(server, pool) == 200
    assert [record.code for record in server.audit] == [0, 200]


def test_a_delay_comes_before_the_answer(server: ApiServer, pool: urllib3.PoolManager) -> None:
    server.faults.add(Fault(delay=0.01))
    assert get(server, pool) == 200


def test_a_watch_is_dropped_after_some_events(server: ApiServer, pool: urllib3.PoolManager) -> None:
    server.faults.add(Fault(verb="watch", drop_after=2))
    with watch(server, pool) as response:
        assert shown(response.read()) == ["a", "b"]


def test_a_watch_loses_one_event(server: ApiServer, pool: urllib3.PoolManager) -> None:
    server.faults.add(Fault(lose=2, drop_after=3))
    with watch(server, pool) as response:
        assert shown(response.read()) == ["a", "c"]


def test_a_watch_repeats_one_event(server: ApiServer, pool: urllib3.PoolManager) -> None:
    server.faults.add(Fault(duplicate=2, drop_after=3))
    with watch(server, pool) as response:
        assert shown(response.read()) == ["a", "b", "b", "c"]


def test_a_watch_breaks_within_a_line(server: ApiServer, pool: urllib3.PoolManager) -> None:
    server.faults.add(Fault(truncate_after=1))
    with watch(server, pool) as response:
        assert shown(response.readline()) == ["a"]
        with pytest.raises((urllib3.exceptions.ProtocolError, ValueError)):
            json.loads(response.readline())


def test_a_half_closed_watch_has_no_proper_end(
    server: ApiServer, pool: urllib3.PoolManager
) -> None:
    server.faults.add(Fault(half_close_after=1))
    with watch(server, pool) as response:
        assert shown(response.readline()) == ["a"]
        with pytest.raises(urllib3.exceptions.ProtocolError):
            response.read()


def test_a_stalled_watch_stays_open_and_silent(
    server: ApiServer, pool: urllib3.PoolManager
) -> None:
    server.faults.add(Fault(stall_after=1))
    url = f"{server.url}/api/v1/nodes?watch=1"
    timeout = urllib3.Timeout(connect=5.0, read=0.2)
    with pool.request("GET", url, preload_content=False, timeout=timeout) as response:
        assert shown(response.readline()) == ["a"]
        with pytest.raises(urllib3.exceptions.ReadTimeoutError):
            response.readline()


def test_watch_faults_leave_other_requests_alone(
    server: ApiServer, pool: urllib3.PoolManager
) -> None:
    server.faults.add(Fault(drop_after=1))
    assert get(server, pool) == 200
    assert len(server.faults.pending) == 1


@pytest.mark.parametrize("setting", [{"times": 0}, {"delay": -1.0}])
def test_a_fault_that_makes_no_sense_is_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Fault(**setting)
