"""The official client's generated classes, unmodified, against each API server."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client as official
from kubernetes import watch
from kubernetes.client.exceptions import ApiException
from tests.integration.framework.waiting import until
from tests.integration.peers.optional import present

GROUP, PLURAL = "peers.navarchos.example.com", "gadgets"
DEFINITION: Any = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"{PLURAL}.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"plural": PLURAL, "kind": "Gadget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {"size": {"type": "integer", "minimum": 1}},
                            },
                            "status": {
                                "type": "object",
                                "properties": {"ready": {"type": "boolean"}},
                            },
                        },
                    }
                },
            }
        ],
    },
}


def config_map(name: str, **data: str) -> official.V1ConfigMap:
    metadata = official.V1ObjectMeta(name=name, labels={"test": "yes"})
    return official.V1ConfigMap(metadata=metadata, data=data)


def pod(name: str, **labels: str) -> official.V1Pod:
    return official.V1Pod(
        metadata=official.V1ObjectMeta(name=name, labels=labels),
        spec=official.V1PodSpec(containers=[official.V1Container(name="c", image="example:1")]),
    )


def deployment(name: str) -> official.V1Deployment:
    template = official.V1PodTemplateSpec(
        metadata=official.V1ObjectMeta(labels={"app": name}), spec=pod(name).spec
    )
    return official.V1Deployment(
        metadata=official.V1ObjectMeta(name=name),
        spec=official.V1DeploymentSpec(
            replicas=2,
            selector=official.V1LabelSelector(match_labels={"app": name}),
            template=template,
        ),
    )


def names(found: Any) -> list[str]:
    return [item.metadata.name for item in found.items]


def test_an_object_lives_from_create_to_delete(core: official.CoreV1Api, namespace: str) -> None:
    made = core.create_namespaced_config_map(namespace, config_map("a", k="1"))
    assert present(present(made.metadata).creation_timestamp).tzinfo is not None
    with pytest.raises(ApiException) as taken:
        core.create_namespaced_config_map(namespace, config_map("a"))
    assert (taken.value.status, taken.value.reason) == (409, "Conflict")
    assert core.read_namespaced_config_map("a", namespace) == made
    made.data = {"k": "2"}
    changed = core.replace_namespaced_config_map("a", namespace, made)
    assert changed.data == {"k": "2"}
    with pytest.raises(ApiException, match="the object has been modified"):
        core.replace_namespaced_config_map("a", namespace, made)  # at the old version
    wrong = official.V1DeleteOptions(preconditions=official.V1Preconditions(uid="another"))
    with pytest.raises(ApiException, match="UID in the precondition"):
        core.delete_namespaced_config_map("a", namespace, body=wrong)
    core.delete_namespaced_config_map("a", namespace)
    with pytest.raises(ApiException) as gone:
        core.read_namespaced_config_map("a", namespace)
    assert gone.value.status == 404


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/merge-patch+json", {"data": {"k": None, "z": "1"}}),
        ("application/strategic-merge-patch+json", {"data": {"k": None, "z": "1"}}),
        (
            "application/json-patch+json",
            [{"op": "remove", "path": "/data/k"}, {"op": "add", "path": "/data/z", "value": "1"}],
        ),
    ],
)
def test_each_patch_format_is_sent_as_such(
    core: official.CoreV1Api, namespace: str, content_type: str, body: Any
) -> None:
    core.create_namespaced_config_map(namespace, config_map("a", k="1"))
    patched = core.patch_namespaced_config_map("a", namespace, body, _content_type=content_type)
    assert patched.data == {"z": "1"}


def test_the_client_derives_the_format_of_a_patch_from_its_shape(
    core: official.CoreV1Api, namespace: str
) -> None:
    core.create_namespaced_config_map(namespace, config_map("a", k="1"))
    assert core.patch_namespaced_config_map("a", namespace, {"data": {"z": "1"}}).data == {
        "k": "1",
        "z": "1",
    }
    operations = [{"op": "remove", "path": "/data/k"}]
    assert core.patch_namespaced_config_map("a", namespace, operations).data == {"z": "1"}


def test_a_dry_run_stores_nothing(core: official.CoreV1Api, namespace: str) -> None:
    core.create_namespaced_config_map(namespace, config_map("a"), dry_run="All")
    assert names(core.list_namespaced_config_map(namespace, label_selector="test")) == []


def test_pages_make_up_the_whole_list(core: official.CoreV1Api, namespace: str) -> None:
    for number in range(5):
        core.create_namespaced_config_map(namespace, config_map(f"n{number}"))
    found, token, pages = [], None, 0
    while token != "":
        page = core.list_namespaced_config_map(
            namespace, label_selector="test=yes", limit=2, _continue=token
        )
        found += names(page)
        token, pages = present(page.metadata)._continue or "", pages + 1
    assert (found, pages) == ([f"n{number}" for number in range(5)], 3)
    with pytest.raises(ApiException) as refused:
        core.list_namespaced_config_map(namespace, limit=2, _continue="nonsense")
    assert refused.value.status == 400


def test_a_watch_continues_from_a_version_and_ends_at_its_timeout(
    core: official.CoreV1Api, namespace: str
) -> None:
    start = present(core.list_namespaced_config_map(namespace).metadata).resource_version
    core.create_namespaced_config_map(namespace, config_map("a", k="1"))
    core.patch_namespaced_config_map("a", namespace, {"data": {"k": "2"}})
    core.delete_namespaced_config_map("a", namespace)
    seen = [
        (event["type"], event["object"].data)
        for event in watch.Watch().stream(
            core.list_namespaced_config_map,
            namespace,
            resource_version=start,
            label_selector="test=yes",
            timeout_seconds=1,
        )
    ]
    assert seen == [("ADDED", {"k": "1"}), ("MODIFIED", {"k": "2"}), ("DELETED", {"k": "2"})]


def test_a_watch_without_a_version_begins_with_current_objects(
    core: official.CoreV1Api, namespace: str
) -> None:
    core.create_namespaced_config_map(namespace, config_map("a"))
    watcher, seen = watch.Watch(), []
    stream = watcher.stream(
        core.list_namespaced_config_map, namespace, field_selector="metadata.name=a"
    )
    for event in stream:
        seen.append(event["type"])
        if len(seen) == 1:
            core.delete_namespaced_config_map("a", namespace)
        else:
            watcher.stop()
    assert seen == ["ADDED", "DELETED"]


def test_a_pod_is_evicted_if_its_budget_allows_it(
    api: official.ApiClient, core: official.CoreV1Api, namespace: str
) -> None:
    policy = official.PolicyV1Api(api)
    core.create_namespaced_pod(namespace, pod("a", app="web"))
    running = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    core.patch_namespaced_pod_status("a", namespace, running)
    budget = policy.create_namespaced_pod_disruption_budget(
        namespace,
        official.V1PodDisruptionBudget(
            metadata=official.V1ObjectMeta(name="web"),
            spec=official.V1PodDisruptionBudgetSpec(
                max_unavailable="50%",
                selector=official.V1LabelSelector(match_labels={"app": "web"}),
            ),
        ),
    )
    assert present(budget.spec).max_unavailable == "50%"
    eviction = official.V1Eviction(metadata=official.V1ObjectMeta(name="a", namespace=namespace))
    with pytest.raises(ApiException) as refused:
        core.create_namespaced_pod_eviction("a", namespace, eviction)
    assert refused.value.status == 429
    assert present(refused.value.headers)["Retry-After"] == "10"
    status = {
        "observedGeneration": 1,
        "disruptionsAllowed": 1,
        "currentHealthy": 1,
        "desiredHealthy": 0,
        "expectedPods": 1,
    }
    policy.patch_namespaced_pod_disruption_budget_status("web", namespace, {"status": status})
    eviction.delete_options = official.V1DeleteOptions(grace_period_seconds=0)
    core.create_namespaced_pod_eviction("a", namespace, eviction)
    spent = present(policy.read_namespaced_pod_disruption_budget("web", namespace).status)
    assert spent.disruptions_allowed == 0
    assert list(present(spent.disrupted_pods)) == ["a"]
    assert names(core.list_namespaced_pod(namespace)) == []


def test_a_workload_is_scaled_by_its_subresource(api: official.ApiClient, namespace: str) -> None:
    apps = official.AppsV1Api(api)
    made = apps.create_namespaced_deployment(namespace, deployment("web"))
    strategy = present(made.spec.strategy)
    assert present(strategy.rolling_update).max_surge == "25%"
    apps.patch_namespaced_deployment_scale("web", namespace, {"spec": {"replicas": 5}})
    assert present(apps.read_namespaced_deployment_scale("web", namespace).spec).replicas == 5
    assert present(apps.read_namespaced_deployment("web", namespace).metadata).generation == 2
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "d", "image": "other:1"}]}}}}
    changed = apps.patch_namespaced_deployment(
        "web", namespace, patch, _content_type="application/strategic-merge-patch+json"
    )
    assert {c.name for c in present(changed.spec.template.spec).containers} == {"c", "d"}
    apps.delete_namespaced_deployment("web", namespace, propagation_policy="Background")
    assert names(apps.list_namespaced_deployment(namespace)) == []


def test_a_node_is_cordoned(core: official.CoreV1Api, namespace: str) -> None:
    body = official.V1Node(metadata=official.V1ObjectMeta(name=namespace))
    core.create_node(body)
    try:
        cordoned = core.patch_node(namespace, {"spec": {"unschedulable": True}})
        assert present(cordoned.spec).unschedulable
        condition = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        core.patch_node_status(namespace, {"status": {"conditions": [condition]}})
        (found,) = core.list_node(field_selector=f"metadata.name={namespace}").items
        assert [each.type for each in present(present(found.status).conditions)] == ["Ready"]
    finally:
        core.delete_node(namespace)


@pytest.mark.parametrize("finalized", [False, True])
def test_a_deletion_waits_for_finalizers(
    core: official.CoreV1Api, namespace: str, finalized: bool
) -> None:
    body = config_map("a")
    present(body.metadata).finalizers = ["example.com/hold"] if finalized else None
    core.create_namespaced_config_map(namespace, body)
    core.delete_namespaced_config_map("a", namespace)
    if finalized:
        held = core.read_namespaced_config_map("a", namespace)
        assert present(held.metadata).deletion_timestamp is not None
        core.patch_namespaced_config_map("a", namespace, {"metadata": {"finalizers": None}})
    with pytest.raises(ApiException) as gone:
        core.read_namespaced_config_map("a", namespace)
    assert gone.value.status == 404


@pytest.fixture
def gadgets(api: official.ApiClient) -> Iterator[official.CustomObjectsApi]:
    """The API of custom objects, with a kind for these tests."""
    definitions = official.ApiextensionsV1Api(api)
    definitions.create_custom_resource_definition(DEFINITION)
    name = DEFINITION["metadata"]["name"]
    until(lambda: is_established(definitions, name))
    yield official.CustomObjectsApi(api)
    definitions.delete_custom_resource_definition(name)
    until(lambda: name not in names(definitions.list_custom_resource_definition()))


def is_established(definitions: official.ApiextensionsV1Api, name: str) -> bool:
    found = definitions.read_custom_resource_definition(name).status
    conditions = (found and found.conditions) or []
    return any(c.type == "Established" and c.status == "True" for c in conditions)


def test_custom_objects_have_all_verbs(gadgets: official.CustomObjectsApi, namespace: str) -> None:
    where = (GROUP, "v1", namespace, PLURAL)
    body = {"apiVersion": f"{GROUP}/v1", "kind": "Gadget", "metadata": {"name": "g"}}
    gadgets.create_namespaced_custom_object(*where, {**body, "spec": {"size": 1}})
    wrong = {**body, "metadata": {"name": "h"}, "spec": {"size": 0}}
    with pytest.raises(ApiException) as invalid:
        gadgets.create_namespaced_custom_object(*where, wrong)
    assert invalid.value.status == 422
    gadgets.patch_namespaced_custom_object(*where, "g", {"spec": {"size": 2}})
    status = {"status": {"ready": True}, "spec": {"size": 9}}
    found: Any = gadgets.patch_namespaced_custom_object_status(*where, "g", status)
    assert (found["spec"], found["status"]) == ({"size": 2}, {"ready": True})
    replaced: Any = gadgets.replace_namespaced_custom_object(
        *where, "g", {**found, "spec": {"size": 3}}
    )
    assert replaced["metadata"]["generation"] == 3
    listed: Any = gadgets.list_namespaced_custom_object(*where)
    assert [item["spec"]["size"] for item in listed["items"]] == [3]
    everywhere: Any = gadgets.list_cluster_custom_object(GROUP, "v1", PLURAL)
    assert everywhere["kind"] == "GadgetList"
    gadgets.delete_namespaced_custom_object(*where, "g")
    with pytest.raises(ApiException):
        gadgets.get_namespaced_custom_object(*where, "g")


def test_custom_objects_are_watched(gadgets: official.CustomObjectsApi, namespace: str) -> None:
    where = (GROUP, "v1", namespace, PLURAL)
    metadata = {"name": "g"}
    body = {"apiVersion": f"{GROUP}/v1", "kind": "Gadget", "metadata": metadata}
    writer = threading.Thread(
        target=lambda: gadgets.create_namespaced_custom_object(*where, {**body, "spec": {}})
    )
    listed: Any = gadgets.list_namespaced_custom_object(*where)
    version = listed["metadata"]["resourceVersion"]
    watcher = watch.Watch()
    writer.start()
    for event in watcher.stream(
        gadgets.list_namespaced_custom_object, *where, resource_version=version
    ):
        assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "g")
        watcher.stop()
    writer.join()
