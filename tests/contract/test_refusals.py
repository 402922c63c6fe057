"""Refusals and their texts; all responses are compared."""

import copy
from typing import Any

import pytest
from tests.contract.conftest import DEFINITIONS
from tests.contract.exchanges import Http
from tests.contract.kinds import KINDS
from tests.contract.objects import config_map, widget_definition

MANIFESTS = {case.plural: case for case in KINDS}


def changed(manifest: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """Return a manifest with some fields replaced; None removes one."""
    found = copy.deepcopy(manifest)
    for path, value in change.items():
        *parents, last = path.split("/")
        at: Any = found
        for name in parents:
            at = at[int(name)] if isinstance(at, list) else at.setdefault(name, {})
        if value is None:
            del at[last]
        else:
            at[last] = value
    return found


OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}
TAINT = {"key": "a", "value": "b", "effect": "NoSchedule"}
CONTAINER = {"name": "c", "image": "x"}

INVALID: dict[str, tuple[str, dict[str, Any]]] = {
    "label-value": ("configmaps", {"metadata/labels": {"a": "not valid!"}}),
    "label-key": ("configmaps", {"metadata/labels": {"-a": "b"}}),
    "annotation-key": ("configmaps", {"metadata/annotations": {"a b": "c"}}),
    "finalizer": ("configmaps", {"metadata/finalizers": ["not valid"]}),
    "owner-without-uid": ("configmaps", {"metadata/ownerReferences": [{**OWNER, "uid": ""}]}),
    "two-controllers": (
        "configmaps",
        {
            "metadata/ownerReferences": [
                {**OWNER, "controller": True},
                {**OWNER, "name": "q", "uid": "v", "controller": True},
            ]
        },
    ),
    "key": ("configmaps", {"data": {"a b": "1"}}),
    "containers-of-one-name": ("pods", {"spec/containers": [CONTAINER, CONTAINER]}),
    "container-name": ("pods", {"spec/containers": [{"name": "C", "image": "x"}]}),
    "no-container-name": ("pods", {"spec/containers": [{"image": "x"}]}),
    "restart-policy": ("pods", {"spec/restartPolicy": "Sometimes"}),
    "pull-policy": ("pods", {"spec/containers": [{**CONTAINER, "imagePullPolicy": "Maybe"}]}),
    "no-selector": ("deployments", {"spec/selector": None}),
    "other-selector": ("deployments", {"spec/selector": {"matchLabels": {"other": "x"}}}),
    "negative-replicas": ("deployments", {"spec/replicas": -1}),
    "deployment-that-ends": ("deployments", {"spec/template/spec/restartPolicy": "Never"}),
    "job-that-stays": ("jobs", {"spec/template/spec/restartPolicy": "Always"}),
    "both-limits": ("poddisruptionbudgets", {"spec/minAvailable": 1}),
    "share": ("poddisruptionbudgets", {"spec/maxUnavailable": "many"}),
    "too-large-share": ("poddisruptionbudgets", {"spec/maxUnavailable": "101%"}),
    "negative-limit": ("poddisruptionbudgets", {"spec/maxUnavailable": -1}),
    "policy": ("poddisruptionbudgets", {"spec/unhealthyPodEvictionPolicy": "Maybe"}),
    "taint-effect": ("nodes", {"spec/taints": [{**TAINT, "effect": "Sometimes"}]}),
    "taints-twice": ("nodes", {"spec/taints": [TAINT, TAINT]}),
    "taint-key": ("nodes", {"spec/taints": [{**TAINT, "key": "a b"}]}),
    "lease-duration": ("leases", {"spec/leaseDurationSeconds": 0}),
    "lease-transitions": ("leases", {"spec/leaseTransitions": -1}),
    "no-ports": ("services", {"spec/clusterIP": "", "spec/ports": []}),
}


@pytest.mark.parametrize("what", INVALID)
def test_an_invalid_object_is_refused(http: Http, namespace: str, what: str) -> None:
    plural, change = INVALID[what]
    case = MANIFESTS[plural]
    reply = http("POST", case.path(namespace), changed(case.manifest(), change))
    assert (reply.code, reply.reason) == (422, "Invalid"), reply.body


BODIES: dict[str, Any] = {
    "another-kind": {**config_map("a"), "kind": "Secret"},
    "an-unknown-kind": {**config_map("a"), "kind": "Thing"},
    "no-kind-of-a-map": {"metadata": {"name": "a"}, "data": {"x": 1}},
    "a-list": [],
    "a-number": 1,
    "labels-that-are-a-list": {**config_map("a"), "metadata": {"name": "a", "labels": []}},
    "data-that-is-text": {**config_map("a"), "data": "x"},
}


@pytest.mark.parametrize("what", BODIES)
def test_a_body_of_another_kind_is_a_bad_request(http: Http, core: str, what: str) -> None:
    assert http("POST", f"{core}/configmaps", BODIES[what]).code == 400


@pytest.mark.parametrize(
    "query",
    [{"dryRun": "Yes"}, {"fieldValidation": "Maybe"}],
    ids=lambda query: next(iter(query)),
)
def test_an_unknown_option_value_is_refused(http: Http, core: str, query: dict[str, str]) -> None:
    assert http("POST", f"{core}/configmaps", config_map("a"), **query).code == 422


@pytest.mark.parametrize("name", ["limit", "timeoutSeconds"])
def test_a_number_option_must_be_a_number(http: Http, core: str, name: str) -> None:
    assert http("GET", f"{core}/configmaps", **{name: "x"}).code == 400


def test_a_propagation_policy_is_one_of_three(http: Http, core: str) -> None:
    http.create(f"{core}/configmaps", config_map("a"))
    assert http("DELETE", f"{core}/configmaps/a", propagationPolicy="Maybe").code == 422


SPEC = "spec/versions/0/schema/openAPIV3Schema"
DEFINITION = widget_definition(
    "gizmos", {"type": "object", "properties": {"spec": {"type": "object"}}}
)
UNFIT: dict[str, dict[str, Any]] = {
    "no-schema": {"spec/versions/0/schema": None},
    "no-versions": {"spec/versions": []},
    "no-group": {"spec/group": ""},
    "no-storage": {"spec/versions/0/storage": False},
    "root-type": {f"{SPEC}/type": "string"},
    "no-type": {f"{SPEC}/properties/spec": {"properties": {"a": {"type": "string"}}}},
    "list-without-items": {f"{SPEC}/properties/spec": {"type": "array"}},
    "unknown-type": {f"{SPEC}/properties/spec": {"type": "thing"}},
    "bad-kind": {"spec/names/kind": "gizmo kind"},
    "bad-plural": {"spec/names/plural": "Gizmos", "metadata/name": "Gizmos.contract.example.com"},
}


@pytest.mark.parametrize("what", UNFIT)
def test_a_definition_that_cannot_be_served_is_invalid(http: Http, what: str) -> None:
    reply = http("POST", DEFINITIONS, changed(DEFINITION, UNFIT[what]), dryRun="All")
    assert (reply.code, reply.reason) == (422, "Invalid"), reply.body


STATUSES = {
    "pods": {"phase": "Running"},
    "nodes": {"conditions": [{"type": "Ready", "status": "True"}]},
    "deployments": {"replicas": 1, "observedGeneration": 1},
    "statefulsets": {"replicas": 1, "observedGeneration": 1},
    "poddisruptionbudgets": {"disruptionsAllowed": 1},
}


@pytest.mark.parametrize("plural", STATUSES)
def test_a_status_is_written_only_through_its_subresource(
    http: Http, namespace: str, plural: str
) -> None:
    case = MANIFESTS[plural]
    path = case.path(namespace)
    made = http.create(path, case.manifest())
    try:
        body = {"status": STATUSES[plural], "metadata": {"labels": {"seen": "yes"}}}
        reply = http.merge(f"{path}/{case.name}/status", body)
        assert reply.code == 200
        assert reply.body["spec"] == made["spec"]
        again = http.merge(f"{path}/{case.name}", {"status": {"replicas": 9, "phase": "Failed"}})
        assert again.body["status"] == reply.body["status"]
    finally:
        with http.unrecorded():
            http("DELETE", f"{path}/{case.name}", gracePeriodSeconds=0)
