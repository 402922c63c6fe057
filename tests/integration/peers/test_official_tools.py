"""The official client's tools: dynamic client, informer, election, YAML."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kubernetes import client as official
from kubernetes import config, dynamic, utils, watch
from kubernetes.client.exceptions import ApiException
from kubernetes.dynamic.exceptions import NotFoundError
from kubernetes.informer import SharedInformer
from kubernetes.leaderelection import electionconfig, leaderelection
from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock
from tests.integration.framework.waiting import LIMIT, until
from tests.integration.peers.optional import present
from tests.servers import IN_PROCESS, Served

MANIFEST = """
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {colour: blue}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: "example:1", ports: [{containerPort: 80}]}]}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 2, selector: {matchLabels: {app: web}}}
"""


def config_map(name: str, **labels: str) -> official.V1ConfigMap:
    return official.V1ConfigMap(metadata=official.V1ObjectMeta(name=name, labels=labels))


@pytest.fixture
def client(api: official.ApiClient, tmp_path: Path) -> dynamic.DynamicClient:
    """A dynamic client with its own discovery cache; by default all share a file per host."""
    return dynamic.DynamicClient(api, cache_file=str(tmp_path / "discovery.json"))


def test_the_dynamic_client_finds_kinds_by_discovery(client: dynamic.DynamicClient) -> None:
    pods = client.resources.get(api_version="v1", kind="Pod")
    assert (pods.namespaced, pods.name, "eviction" in pods.subresources) == (True, "pods", True)
    budgets = client.resources.get(kind="PodDisruptionBudget", group="policy")
    assert budgets.preferred
    assert "deploy" in client.resources.get(api_version="apps/v1", kind="Deployment").short_names
    assert int(client.version["kubernetes"]["major"]) == 1


def test_the_dynamic_client_supports_all_verbs(
    client: dynamic.DynamicClient, namespace: str
) -> None:
    maps = client.resources.get(api_version="v1", kind="ConfigMap")
    body = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}, "data": {"k": "1"}}
    made = maps.create(body=body, namespace=namespace)
    merge = "application/merge-patch+json"
    maps.patch(name="a", namespace=namespace, body={"data": {"z": "1"}}, content_type=merge)
    seen = [
        (event["type"], event["object"].data.to_dict())
        for event in maps.watch(
            namespace=namespace, name="a", timeout=1, resource_version=made.metadata.resourceVersion
        )
    ]
    assert seen == [("MODIFIED", {"k": "1", "z": "1"})]
    body["data"] = {}
    maps.replace(body=body, namespace=namespace)
    found = maps.get(namespace=namespace, field_selector="metadata.name=a")
    assert [item.data for item in found.items] == [None]
    assert maps.delete(name="a", namespace=namespace).status == "Success"
    with pytest.raises(NotFoundError):
        maps.get(name="a", namespace=namespace)


def test_the_dynamic_client_evicts(
    client: dynamic.DynamicClient, core: official.CoreV1Api, namespace: str
) -> None:
    container = official.V1Container(name="c", image="example:1")
    core.create_namespaced_pod(
        namespace,
        official.V1Pod(
            metadata=official.V1ObjectMeta(name="a"),
            spec=official.V1PodSpec(containers=[container]),
        ),
    )
    pods = client.resources.get(api_version="v1", kind="Pod")
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}}
    pods.eviction.create(name="a", namespace=namespace, body=body)
    assert pods.get(namespace=namespace).items == []


def test_the_dynamic_clients_streaming_list_ends_with_a_bookmark(
    client: dynamic.DynamicClient, core: official.CoreV1Api, namespace: str
) -> None:
    core.create_namespaced_config_map(namespace, config_map("a"))
    maps, watcher = client.resources.get(api_version="v1", kind="ConfigMap"), watch.Watch()
    seen = []
    for event in maps.watch(
        namespace=namespace,
        send_initial_events=True,
        resource_version_match="NotOlderThan",
        allow_watch_bookmarks=True,
        watcher=watcher,
    ):
        seen.append((event["type"], event["object"].metadata.name))
        if event["type"] == "BOOKMARK":
            watcher.stop()
    assert ("ADDED", "a") in seen
    assert seen[-1] == ("BOOKMARK", None)


def test_a_manifest_of_several_kinds_is_created(
    api: official.ApiClient, core: official.CoreV1Api, namespace: str, tmp_path: Path
) -> None:
    path = tmp_path / "all.yml"
    path.write_text(MANIFEST, encoding="utf-8")
    utils.create_from_yaml(api, str(path), namespace=namespace)
    assert core.read_namespaced_config_map("settings", namespace).data == {"colour": "blue"}
    assert official.AppsV1Api(api).read_namespaced_deployment("web", namespace).spec.replicas == 3
    budget = official.PolicyV1Api(api).read_namespaced_pod_disruption_budget("web", namespace)
    assert present(budget.spec).min_available == 2
    with pytest.raises(utils.FailToCreateError) as refused:
        utils.create_from_yaml(api, str(path), namespace=namespace)
    assert [error.status for error in refused.value.api_exceptions] == [409, 409, 409]


def test_a_kubeconfig_of_the_server_is_read(served: Served, tmp_path: Path) -> None:
    if served.server is None:
        pytest.skip("a server outside this suite writes no kubeconfig")
    path = tmp_path / "config"
    served.server.write_kubeconfig(path)
    with config.new_client_from_config(str(path)) as api:
        assert "default" in {
            present(item.metadata).name for item in official.CoreV1Api(api).list_namespace().items
        }


@pytest.fixture
def informer(core: official.CoreV1Api, namespace: str) -> Iterator[SharedInformer]:
    found = SharedInformer(
        core.list_namespaced_config_map, namespace=namespace, label_selector="test=yes"
    )
    yield found
    found.stop()


def test_the_official_informer_follows_the_server(
    informer: SharedInformer, core: official.CoreV1Api, namespace: str
) -> None:
    seen: list[tuple[str, str]] = []
    for event in ("ADDED", "MODIFIED", "DELETED"):
        informer.add_event_handler(
            event, lambda obj, event=event: seen.append((event, obj.metadata.name))
        )
    labels = {"test": "yes"}
    core.create_namespaced_config_map(namespace, config_map("a", **labels))
    informer.start()
    until(lambda: seen == [("ADDED", "a")])
    core.create_namespaced_config_map(namespace, config_map("b", **labels))
    core.patch_namespaced_config_map("a", namespace, {"data": {"k": "1"}})
    core.delete_namespaced_config_map("b", namespace)
    until(lambda: len(seen) == 4)
    assert seen[1:] == [("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "b")]
    assert [item.data for item in informer.cache.list()] == [{"k": "1"}]


def test_the_official_informer_restarts_after_its_version_expired(
    informer: SharedInformer, served: Served, core: official.CoreV1Api, namespace: str
) -> None:
    if served.kind != IN_PROCESS:
        pytest.skip("a restart of a real server outlasts their informer's patience")
    labels = {"test": "yes"}
    core.create_namespaced_config_map(namespace, config_map("a", **labels))
    watched: list[str] = []
    informer.add_event_handler("MODIFIED", lambda obj: watched.append(obj.metadata.name))
    informer.start()
    until(lambda: informer.cache.list_keys() == [f"{namespace}/a"])
    # The official informer cannot be stopped between its list and its watch: it would watch
    # forever.
    core.patch_namespaced_config_map("a", namespace, {"data": {"k": "1"}})
    until(lambda: watched == ["a"])
    informer.stop()
    core.delete_namespaced_config_map("a", namespace)
    core.create_namespaced_config_map(namespace, config_map("b", **labels))
    served.forget()
    informer.start()
    until(lambda: informer.cache.list_keys() == [f"{namespace}/b"])


class Candidate:
    """A candidate of the official client's election."""

    def __init__(self, name: str, namespace: str) -> None:
        self.leads, self.over, self.stopped = (threading.Event() for _ in range(3))
        self.thread = threading.Thread(
            target=leaderelection.LeaderElection(
                electionconfig.Config(
                    LeaseLock("lock", namespace, name),
                    lease_duration=3,
                    renew_deadline=2,
                    retry_period=1,
                    onstarted_leading=self._lead,
                    onstopped_leading=self.stopped.set,
                )
            ).run
        )

    def _lead(self) -> None:
        self.leads.set()
        self.over.wait()
        raise RuntimeError(
            "the work is over"
        )  # the only way to make the official client stop leading

    def end(self) -> None:
        self.over.set()
        assert self.stopped.wait(LIMIT)
        self.thread.join(LIMIT)


@pytest.fixture
def by_default(
    configuration: official.Configuration,
) -> Iterator[Callable[[str, str], Candidate]]:
    """Makes candidates; their lock uses the default configuration."""
    before = official.Configuration.get_default_copy()
    official.Configuration.set_default(configuration)
    made: list[Candidate] = []

    def make(name: str, namespace: str) -> Candidate:
        made.append(Candidate(name, namespace))
        made[-1].thread.start()
        return made[-1]

    yield make
    for candidate in made:
        candidate.over.set()
    official.Configuration.set_default(before)


def lease_spec(leases: official.CoordinationV1Api, namespace: str) -> official.V1LeaseSpec:
    return present(leases.read_namespaced_lease("lock", namespace).spec)


def test_the_official_election_moves_on_when_the_leader_stops(
    by_default: Callable[[str, str], Candidate], api: official.ApiClient, namespace: str
) -> None:
    leases = official.CoordinationV1Api(api)
    first = by_default("first", namespace)
    assert first.leads.wait(LIMIT)
    second = by_default("second", namespace)
    spec = lease_spec(leases, namespace)
    assert (spec.holder_identity, spec.lease_duration_seconds) == ("first", 3)
    acquired = present(spec.acquire_time)
    until(lambda: present(lease_spec(leases, namespace).renew_time) > acquired)
    assert not second.leads.is_set()
    first.end()
    assert second.leads.wait(LIMIT)
    assert lease_spec(leases, namespace).holder_identity == "second"
    second.end()


def test_refusals_are_the_official_exceptions(core: official.CoreV1Api, namespace: str) -> None:
    with pytest.raises(ApiException) as refused:
        core.create_namespaced_config_map(namespace, config_map("No"))
    assert refused.value.status == 422
    assert '"field":"metadata.name"' in present(refused.value.body)
