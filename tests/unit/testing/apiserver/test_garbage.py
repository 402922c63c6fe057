"""Deletions that follow from others."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import urllib3

from navarchos.testing.apiserver import ApiServer, StatusError

Until = Callable[[Callable[[], bool]], None]


@pytest.fixture
def server(api_server: ApiServer) -> ApiServer:
    return api_server


@pytest.fixture
def pool() -> Iterator[urllib3.PoolManager]:
    with urllib3.PoolManager(retries=False) as found:
        yield found


@pytest.fixture
def until(server: ApiServer) -> Until:
    """Waits for a state of the store; checks again after every change."""
    changed = threading.Event()
    # The listener runs under the store's lock, so it must not take a lock that a thread may hold
    # while it reads the store. It only sets a flag.
    server.subscribe(lambda _: changed.set())

    def wait(state: Callable[[], bool]) -> None:
        changed.clear()
        while not state():
            assert changed.wait(10), "the state never came"
            changed.clear()

    return wait


def config_map(name: str, *owners: dict[str, Any], namespace: str = "default") -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "ownerReferences": list(owners)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


def reference(server: ApiServer, name: str, **more: object) -> dict[str, Any]:
    uid = server.get("configmaps", name, "default")["metadata"]["uid"]
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid, **more}


def exists(server: ApiServer, plural: str, name: str, namespace: str = "default") -> bool:
    try:
        server.get(plural, name, namespace)
    except StatusError:
        return False
    return True


def delete(server: ApiServer, pool: urllib3.PoolManager, name: str, policy: str = "") -> None:
    query = f"?propagationPolicy={policy}" if policy else ""
    url = f"{server.url}/api/v1/namespaces/default/configmaps/{name}{query}"
    assert pool.request("DELETE", url).status == 200


def test_dependents_follow_their_owner(
    server: ApiServer, pool: urllib3.PoolManager, until: Until
) -> None:
    server.install(config_map("owner"))
    server.install(config_map("child", reference(server, "owner")))
    server.install(config_map("grandchild", reference(server, "child")))
    delete(server, pool, "owner")
    until(lambda: not exists(server, "configmaps", "grandchild"))
    assert not exists(server, "configmaps", "child")


def test_a_dependent_with_another_owner_stays_without_the_first(
    server: ApiServer, pool: urllib3.PoolManager, until: Until
) -> None:
    server.install(config_map("one"), config_map("two"))
    server.install(config_map("child", reference(server, "one"), reference(server, "two")))
    delete(server, pool, "one")
    kept = [reference(server, "two")]
    until(
        lambda: server.get("configmaps", "child", "default")["metadata"]["ownerReferences"] == kept
    )


def test_an_object_whose_owner_never_existed_is_deleted(server: ApiServer, until: Until) -> None:
    absent = {"apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": "no-such-uid"}
    server.install(config_map("child", absent))
    until(lambda: not exists(server, "configmaps", "child"))


def test_an_owner_of_that_name_with_another_uid_is_absent(server: ApiServer, until: Until) -> None:
    server.install(config_map("owner"))
    server.install(config_map("child", {**reference(server, "owner"), "uid": "another"}))
    until(lambda: not exists(server, "configmaps", "child"))


def test_an_owner_in_another_namespace_is_absent(server: ApiServer, until: Until) -> None:
    server.install(config_map("owner"))
    owner = reference(server, "owner")
    server.install(config_map("child", owner, namespace="kube-system"))
    until(lambda: not exists(server, "configmaps", "child", "kube-system"))


def test_a_cluster_scoped_owner_is_found(
    server: ApiServer, pool: urllib3.PoolManager, until: Until
) -> None:
    server.install({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})
    uid = server.get("nodes", "n")["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": uid}
    server.install(config_map("child", owner))
    pool.request("DELETE", f"{server.url}/api/v1/nodes/n")
    until(lambda: not exists(server, "configmaps", "child"))


def test_an_owner_of_an_unknown_kind_may_exist(server: ApiServer, until: Until) -> None:
    unknown = {"apiVersion": "example.com/v1", "kind": "Thing", "name": "t", "uid": "u"}
    absent = {"apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": "no-such-uid"}
    server.install(config_map("kept", unknown), config_map("marker", absent))
    until(lambda: not exists(server, "configmaps", "marker"))
    assert exists(server, "configmaps", "kept")


def test_foreground_deletion_deletes_the_owner_last(
    server: ApiServer, pool: urllib3.PoolManager, until: Until
) -> None:
    order: list[str] = []
    server.subscribe(
        lambda change: (
            order.append(change.object["metadata"]["name"]) if change.type == "DELETED" else None
        )
    )
    server.install(config_map("owner"))
    server.install(config_map("child", reference(server, "owner", blockOwnerDeletion=True)))
    delete(server, pool, "owner", "Foreground")
    until(lambda: not exists(server, "configmaps", "owner"))
    assert order == ["child", "owner"]


def test_foreground_deletion_waits_for_blocking_dependents(
    server: ApiServer, pool: urllib3.PoolManager, until: Until
) -> None:
    server.install(config_map("owner"))
    child = config_map("child", reference(server, "owner", blockOwnerDeletion=True))
    child["metadata"]["finalizers"] = ["example.com/hold"]
    server.install(child)
    delete(server, pool, "owner", "Foreground")
    until(lambda: "deletionTimestamp" in server.get("configmaps", "child", "default")["metadata"])
    assert exists(server, "configmaps", "owner")
    pool.request(
        "PATCH",
        f"{server.url}/api/v1/namespaces/default/configmaps/child",
        body=b'{"metadata":{"finalizers":null}}',
        headers={"Content-Type": "application/merge-patch+json"},
    )
    until(lambda: not exists(server, "configmaps", "owner"))


def test_orphans_stay_without_their_owner(
    server: ApiServer, pool: urllib3.PoolManager, until: Until
) -> None:
    server.install(config_map("owner"))
    server.install(config_map("child", reference(server, "owner")))
    delete(server, pool, "owner", "Orphan")
    until(lambda: not exists(server, "configmaps", "owner"))
    child = server.get("configmaps", "child", "default")
    assert "ownerReferences" not in child["metadata"]


def test_a_namespace_is_deleted_with_its_contents(
    server: ApiServer, pool: urllib3.PoolManager, until: Until
) -> None:
    server.install({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}})
    held = config_map("held", namespace="ns")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    server.install(config_map("a", namespace="ns"), held)
    reply = pool.request("DELETE", f"{server.url}/api/v1/namespaces/ns").json()
    assert reply["status"]["phase"] == "Terminating"
    until(lambda: not exists(server, "configmaps", "a", "ns"))
    url = f"{server.url}/api/v1/namespaces/ns/configmaps"
    body = b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"late"}}'
    refused = pool.request("POST", url, body=body)
    assert refused.status == 403
    assert refused.json()["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    pool.request(
        "PATCH",
        f"{url}/held",
        body=b'{"metadata":{"finalizers":null}}',
        headers={"Content-Type": "application/merge-patch+json"},
    )
    until(lambda: not exists(server, "namespaces", "ns", ""))


def test_a_definition_is_deleted_with_its_objects(
    server: ApiServer, pool: urllib3.PoolManager, until: Until
) -> None:
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Cluster",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object"}},
                }
            ],
        },
    }
    server.install(definition)
    server.install({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}})
    group = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    pool.request("DELETE", f"{server.url}{group}/things.example.com")
    until(lambda: not server.list("customresourcedefinitions", group="apiextensions.k8s.io"))
    assert pool.request("GET", f"{server.url}/apis/example.com/v1/things").status == 404
    server.install(definition)
    assert server.list("things", group="example.com") == []
