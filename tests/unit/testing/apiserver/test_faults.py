"""Faults have their effect, on the requests that they name, as often as they say."""

import json
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import urllib3

from navarchos.errors import ConfigError
from navarchos.testing.apiserver import ApiServer, Fault
from navarchos.testing.apiserver.faults import STAGES

ROOT = Path(__file__).parents[4]


@pytest.fixture
def server(api_server: ApiServer) -> ApiServer:
    api_server.install(
        *({"apiVersion": "v1", "kind": "Node", "metadata": {"name": n}} for n in "abc")
    )
    return api_server


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
def test_a_refusal_happens_the_given_number_of_times(
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
def test_a_fault_hits_the_matching_requests(
    server: ApiServer, pool: urllib3.PoolManager, pattern: dict[str, Any], hit: bool
) -> None:
    server.faults.add(Fault(**pattern, status=503, times=None))
    assert get(server, pool) == (503 if hit else 200)
    server.faults.clear()
    assert get(server, pool) == 200


def test_a_reset_sends_no_response(server: ApiServer, pool: urllib3.PoolManager) -> None:
    server.faults.add(Fault(reset=True))
    with pytest.raises(urllib3.exceptions.ProtocolError):
        get(server, pool)
    assert get(server, pool) == 200
    assert [record.code for record in server.audit] == [0, 200]


def test_a_delay_comes_before_the_response(server: ApiServer, pool: urllib3.PoolManager) -> None:
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


@pytest.mark.parametrize(
    "setting",
    [{"times": 0}, {"delay": -1.0}, {"lag": -1.0}, {"probability": 0.0}, {"probability": 1.1}],
)
def test_an_invalid_fault_is_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Fault(**setting)


def test_an_invalid_rate_is_refused(server: ApiServer) -> None:
    with pytest.raises(ConfigError):
        server.faults.inject_randomly(rate=1.5)


def outcomes(server: ApiServer, pool: urllib3.PoolManager, count: int = 40) -> list[int]:
    return [get(server, pool) for _ in range(count)]


def test_a_seed_decides_which_requests_are_hit(
    server: ApiServer, pool: urllib3.PoolManager
) -> None:
    server.faults.add(Fault(status=500, times=None, probability=0.5))
    server.faults.seed(1)
    first = outcomes(server, pool)
    assert set(first) == {200, 500}
    server.faults.seed(1)
    assert outcomes(server, pool) == first
    server.faults.seed(2)
    assert outcomes(server, pool) != first


def test_the_faults_of_a_client_do_not_depend_on_others(
    server: ApiServer, pool: urllib3.PoolManager
) -> None:
    server.faults.add(Fault(status=500, times=None, probability=0.5))
    server.faults.seed(1)
    alone = outcomes(server, pool)
    server.faults.seed(1)
    beside = []
    for _ in alone:
        beside.append(get(server, pool))
        pool.request("GET", f"{server.url}/api/v1/nodes/a", headers={"User-Agent": "another"})
        pool.request("GET", f"{server.url}/api/v1/pods")
    assert beside == alone


def test_a_fault_with_a_probability_happens_as_often_as_given(
    server: ApiServer, pool: urllib3.PoolManager
) -> None:
    server.faults.add(Fault(status=500, times=3, probability=0.5))
    assert outcomes(server, pool).count(500) == 3


def test_random_faults_follow_rate_and_seed_until_cleared(
    server: ApiServer, pool: urllib3.PoolManager
) -> None:
    among = (Fault(status=500), Fault(status=503), Fault(verb="list", status=504))
    seed = server.faults.inject_randomly(rate=0.5, among=among)
    first = outcomes(server, pool)
    assert set(first) == {200, 500, 503}, seed
    assert server.faults.inject_randomly(rate=0.5, seed=seed, among=among) == seed
    assert outcomes(server, pool) == first, seed
    server.faults.clear()
    assert set(outcomes(server, pool)) == {200}


def test_a_watch_stalls_within_a_line(server: ApiServer, pool: urllib3.PoolManager) -> None:
    server.faults.add(Fault(stall_within=1))
    url = f"{server.url}/api/v1/nodes?watch=1"
    timeout = urllib3.Timeout(connect=5.0, read=0.2)
    with pool.request("GET", url, preload_content=False, timeout=timeout) as response:
        assert shown(response.readline()) == ["a"]
        assert response.read1().startswith(b'{"type":"ADDED"')  # and the line does not end
        with pytest.raises(urllib3.exceptions.ReadTimeoutError):
            response.read1()


@pytest.mark.parametrize(
    ("query", "stale"),
    [
        ("", False),
        ("resourceVersion=0", True),
        ("resourceVersion=1&resourceVersionMatch=NotOlderThan", True),
        ("resourceVersion=0&limit=1", True),
        ("resourceVersion={}&resourceVersionMatch=Exact", False),
        ("resourceVersion={}&limit=10", False),
    ],
)
def test_only_reads_from_a_cache_are_stale(
    server: ApiServer, pool: urllib3.PoolManager, query: str, stale: bool
) -> None:
    server.faults.add(Fault(lag=60.0))
    version = server.list("nodes")[-1]["metadata"]["resourceVersion"]
    url = f"{server.url}/api/v1/nodes?{query.format(version)}"
    reply = pool.request("GET", url).json()
    assert [item["metadata"]["name"] for item in reply["items"]] == ([] if stale else list("abc"))
    assert bool(server.faults.pending) is not stale


def test_a_lagging_cache_refuses_a_version_that_it_has_not_seen(
    server: ApiServer, pool: urllib3.PoolManager
) -> None:
    server.faults.add(Fault(lag=60.0, times=None))
    version = server.get("nodes", "a")["metadata"]["resourceVersion"]
    url = f"{server.url}/api/v1/nodes/a?resourceVersion={version}"
    reply = pool.request("GET", url)
    assert (reply.status, reply.headers["Retry-After"]) == (504, "1")
    assert "Too large resource version" in reply.json()["message"]
    assert pool.request("GET", f"{server.url}/api/v1/nodes/a?resourceVersion=0").status == 404


def test_every_field_of_a_fault_has_a_stage() -> None:
    assert set(STAGES) == {field.name for field in fields(Fault)}


@pytest.mark.parametrize("name", [name for name in STAGES if name != "times"])
def test_every_field_of_a_fault_is_documented(name: str) -> None:
    text = (ROOT / "docs" / "testing" / "api-server.md").read_text(encoding="utf-8")
    section = text.partition("## Scripted faults")[2].partition("\n## ")[0]
    assert re.search(rf"`[^`\n]*\b{name}\b", section)
