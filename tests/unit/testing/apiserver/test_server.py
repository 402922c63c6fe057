"""The server as an object: lifecycle, direct access, history, audit log."""

import gc
import json
import socket
import stat
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import urllib3
import yaml
from structlog.testing import capture_logs

from navarchos.errors import ConfigError, NotStarted
from navarchos.testing.apiserver import ApiServer, Change, StatusError
from navarchos.testing.controlplane.tools import APISERVER


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(bookmark_interval=0.05) as running:
        yield running


@pytest.fixture
def pool() -> Iterator[urllib3.PoolManager]:
    with urllib3.PoolManager(retries=False) as found:
        yield found


def node(name: str, **labels: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}


def lines(response: urllib3.BaseHTTPResponse, count: int) -> list[dict[str, Any]]:
    return [json.loads(response.readline()) for _ in range(count)]


def test_start_and_stop_may_be_repeated_and_objects_stay() -> None:
    server = ApiServer()
    with pytest.raises(NotStarted):
        _ = server.url
    first = server.start().url
    assert server.start().url == first
    server.install(node("n1"))
    server.stop()
    server.stop()
    assert server.start().url == first
    assert server.get("nodes", "n1")["metadata"]["name"] == "n1"
    server.stop()


def test_its_thread_has_a_name_and_ends() -> None:
    before = set(threading.enumerate())  # another test's server may run
    with ApiServer():
        assert {thread.name for thread in set(threading.enumerate()) - before} == {"nav-apiserver"}
    assert set(threading.enumerate()) <= before


def test_stop_ends_open_watches_properly(server: ApiServer, pool: urllib3.PoolManager) -> None:
    url = f"{server.url}/api/v1/nodes?watch=1&resourceVersion=0"
    watches = [pool.request("GET", url, preload_content=False) for _ in range(5)]
    begun = time.monotonic()
    server.stop()
    assert time.monotonic() - begun < 2.0
    assert [watch.read() for watch in watches] == [b""] * 5


def test_a_port_in_use_raises_an_error(server: ApiServer) -> None:
    port = int(server.url.rpartition(":")[2])
    with pytest.raises(OSError, match=r"(?i)address already in use"):
        ApiServer(port=port).start()


@pytest.mark.parametrize("setting", [{"bookmark_interval": 0.0}, {"history": 0}])
def test_a_bad_setting_is_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        ApiServer(**setting)


def test_the_kubeconfig_is_for_its_owner_only(server: ApiServer, tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("old")
    path.chmod(0o644)
    server.write_kubeconfig(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    held = yaml.safe_load(path.read_text())
    assert held["clusters"][0]["cluster"]["server"] == server.url
    assert held["current-context"] == held["contexts"][0]["name"]


def test_install_keeps_the_status_and_refuses_what_is_invalid(server: ApiServer) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Running"},
    }
    server.install(pod)
    assert server.get("pods", "p", "default")["status"]["phase"] == "Running"
    with pytest.raises(StatusError, match="is invalid"):
        server.install(node("Bad Name"))
    with pytest.raises(StatusError, match="no matches for kind"):
        server.install({"apiVersion": "v7", "kind": "Node"})


def test_install_leaves_its_argument_alone(server: ApiServer) -> None:
    manifest = node("n1")
    server.install(manifest)
    assert manifest == node("n1")


def test_get_and_list_read_directly(server: ApiServer) -> None:
    server.install(node("b"), node("a"))
    assert [n["metadata"]["name"] for n in server.list("nodes")] == ["a", "b"]
    with pytest.raises(StatusError) as missing:
        server.get("nodes", "none")
    assert missing.value.code == 404


def test_listeners_are_called_for_every_write_in_order(
    server: ApiServer, pool: urllib3.PoolManager
) -> None:
    heard: list[Change] = []
    unsubscribe = server.subscribe(heard.append)
    server.install(node("n1"))
    headers = {"User-Agent": "someone/1", "Content-Type": "application/merge-patch+json"}
    url = f"{server.url}/api/v1/nodes/n1"
    pool.request("PATCH", url, body=b'{"spec":{"unschedulable":true}}', headers=headers)
    pool.request("DELETE", url, headers={"User-Agent": "someone/1"})
    unsubscribe()
    server.install(node("n2"))
    assert [change.type for change in heard] == ["ADDED", "MODIFIED", "DELETED"]
    added, modified, deleted = heard
    assert added.request is None
    assert added.previous is None
    assert modified.request == ("patch", "someone/1")
    assert modified.previous == added.object
    assert modified.object["spec"]["unschedulable"] is True
    assert deleted.resource == ("nodes", "")
    versions = [change.resource_version for change in heard]
    assert versions == sorted(set(versions))


def test_a_write_of_a_listener_is_announced_after_the_current_change(server: ApiServer) -> None:
    heard: list[str] = []

    def follow(change: Change) -> None:
        heard.append(change.object["metadata"]["name"])
        if heard == ["n1"]:
            server.install(node("n2"))

    server.subscribe(follow)
    server.subscribe(lambda change: heard.append(change.object["metadata"]["name"].upper()))
    server.install(node("n1"))
    assert heard == ["n1", "N1", "n2", "N2"]


def test_a_listener_that_fails_stops_neither_the_write_nor_the_others(server: ApiServer) -> None:
    heard: list[Change] = []

    def fail(_: Change) -> None:
        raise RuntimeError("no")

    server.subscribe(fail)
    server.subscribe(heard.append)
    server.install(node("n1"))
    assert len(heard) == 1


def test_a_listener_that_fails_is_logged_without_its_variables(server: ApiServer) -> None:
    def fail(_: Change) -> None:
        raise RuntimeError("no")

    server.subscribe(fail)
    with capture_logs() as lines:
        server.install(node("n1"))
    (line,) = [line for line in lines if line["event"] == "store_listener_failed"]
    assert line["error"].endswith("RuntimeError: no\n")
    assert "exc_info" not in line, "drawn with all variables it takes a tenth of a second"


def test_requests_are_counted_and_kept(server: ApiServer, pool: urllib3.PoolManager) -> None:
    server.install(node("n1"))
    headers = {"User-Agent": "someone/1"}
    pool.request("GET", f"{server.url}/api/v1/nodes/n1", headers=headers)
    pool.request("GET", f"{server.url}/api/v1/nodes", headers=headers)
    pool.request("GET", f"{server.url}/version", headers=headers)
    url = f"{server.url}/api/v1/namespaces/default/pods/p/eviction"
    body = b'{"metadata":{"name":"p"}}'
    pool.request("POST", url, body=body, headers=headers)
    counts = server.requests
    assert (counts["get"], counts["list"], counts["evict"], counts["create"]) == (1, 1, 1, 0)
    assert server.audit[0] == ("get", "nodes", "", "", "n1", "someone/1", 200)
    assert server.audit[-1] == ("evict", "pods", "eviction", "default", "p", "someone/1", 404)


def test_the_version_is_that_of_the_recorded_server(
    server: ApiServer, pool: urllib3.PoolManager
) -> None:
    found = pool.request("GET", f"{server.url}/version").json()
    assert found["gitVersion"] == str(APISERVER.pinned)
    assert (found["major"], found["minor"]) == tuple(map(str, APISERVER.pinned[:2]))


@pytest.mark.rule("RF-21")
def test_after_compaction_old_versions_are_gone(
    server: ApiServer, pool: urllib3.PoolManager
) -> None:
    server.install(node("n1"), node("n2"))
    page = pool.request("GET", f"{server.url}/api/v1/nodes?limit=1").json()
    old = page["metadata"]["resourceVersion"]
    server.install(node("n3"))
    server.compact()
    url = f"{server.url}/api/v1/nodes?watch=1&resourceVersion={old}"
    response = pool.request("GET", url)
    event = json.loads(response.data)
    assert (response.status, event["type"]) == (200, "ERROR")
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
    assert event["object"]["message"].startswith(f"too old resource version: {old} (")
    token = page["metadata"]["continue"]
    expired = pool.request("GET", f"{server.url}/api/v1/nodes?limit=1&continue={token}")
    assert (expired.status, expired.json()["reason"]) == (410, "Expired")
    going_on = expired.json()["metadata"]["continue"]
    rest = pool.request("GET", f"{server.url}/api/v1/nodes?continue={going_on}").json()
    assert [item["metadata"]["name"] for item in rest["items"]] == ["n2", "n3"]


def test_history_is_bounded(pool: urllib3.PoolManager) -> None:
    with ApiServer(history=2) as server:
        server.install(node("n1"))
        old = server.get("nodes", "n1")["metadata"]["resourceVersion"]
        server.install(*(node(f"n{i}") for i in range(2, 9)))
        url = f"{server.url}/api/v1/nodes?watch=1&resourceVersion={old}"
        event = json.loads(pool.request("GET", url).data)
        assert event["object"]["code"] == 410


def test_bookmarks_come_in_their_interval(server: ApiServer, pool: urllib3.PoolManager) -> None:
    server.install(node("n1"))
    url = f"{server.url}/api/v1/nodes?watch=1&allowWatchBookmarks=true&resourceVersion="
    version = server.get("nodes", "n1")["metadata"]["resourceVersion"]
    with pool.request("GET", url + version, preload_content=False) as response:
        first, second = lines(response, 2)
    assert first["type"] == second["type"] == "BOOKMARK"
    assert first["object"] == {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {"resourceVersion": version},
    }


def test_a_server_without_streaming_lists_refuses_them(pool: urllib3.PoolManager) -> None:
    with ApiServer(serve_streaming_lists=False) as server:
        query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
        reply = pool.request("GET", f"{server.url}/api/v1/nodes?{query}")
        assert reply.status == 422
        assert "sendInitialEvents is forbidden for watch" in reply.json()["message"]


def test_many_watches_see_the_same_lines(server: ApiServer, pool: urllib3.PoolManager) -> None:
    version = pool.request("GET", f"{server.url}/api/v1/nodes").json()["metadata"][
        "resourceVersion"
    ]
    url = f"{server.url}/api/v1/nodes?watch=1&resourceVersion={version}"
    watches = [pool.request("GET", url, preload_content=False) for _ in range(20)]
    server.install(node("n1"), node("n2"))
    seen = [
        [(e["type"], e["object"]["metadata"]["name"]) for e in lines(watch, 2)] for watch in watches
    ]
    assert seen == [[("ADDED", "n1"), ("ADDED", "n2")]] * 20
    for watch in watches:
        watch.close()


def test_writers_on_many_threads_get_distinct_versions(server: ApiServer) -> None:
    def write(start: int) -> None:
        server.install(*(node(f"n{start + i}") for i in range(20)))

    threads = [threading.Thread(target=write, args=(i * 100,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    versions = [n["metadata"]["resourceVersion"] for n in server.list("nodes")]
    assert len(set(versions)) == 80


def test_late_connections_are_closed_with_the_server() -> None:
    with warnings.catch_warnings(record=True) as left_open:
        warnings.simplefilter("always", ResourceWarning)
        for _ in range(20):
            connect_and_stop(connections=20)
        gc.collect()
    assert [str(found.message) for found in left_open] == []


def connect_and_stop(*, connections: int) -> None:
    server = ApiServer().start()
    url = urlsplit(server.url)
    made = [socket.create_connection((url.hostname, url.port)) for _ in range(connections)]
    server.stop()
    for connection in made:
        connection.close()
