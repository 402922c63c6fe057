"""Create, get, update, delete: codes, reasons, messages and metadata."""

from typing import Any

import pytest
from tests.contract.exchanges import Http
from tests.contract.objects import config_map, pod


def test_create_sets_what_the_server_owns(http: Http, core: str, namespace: str) -> None:
    found = http.create(f"{core}/configmaps", config_map("a", x="1"))
    metadata = found["metadata"]
    assert metadata["name"] == "a"
    assert metadata["namespace"] == namespace
    assert metadata["uid"]
    assert metadata["resourceVersion"]
    assert metadata["creationTimestamp"].endswith("Z")
    assert (found["kind"], found["apiVersion"]) == ("ConfigMap", "v1")


def test_generate_name_appends_five_characters(http: Http, core: str) -> None:
    name = http.create(f"{core}/configmaps", config_map())["metadata"]["name"]
    assert name.startswith("map-")
    assert len(name) == len("map-") + 5


def test_a_used_name_already_exists(http: Http, core: str) -> None:
    http.create(f"{core}/configmaps", config_map("a"))
    reply = http("POST", f"{core}/configmaps", config_map("a"))
    assert (reply.code, reply.reason) == (409, "AlreadyExists")
    assert reply.message == 'configmaps "a" already exists'
    assert reply.body["details"] == {"name": "a", "kind": "configmaps"}


def test_a_missing_object_is_not_found(http: Http, core: str) -> None:
    reply = http("GET", f"{core}/configmaps/none")
    assert (reply.code, reply.reason) == (404, "NotFound")
    assert reply.message == 'configmaps "none" not found'
    assert reply.body["details"] == {"name": "none", "kind": "configmaps"}


def test_not_found_names_the_group(http: Http, namespace: str) -> None:
    reply = http("GET", f"/apis/apps/v1/namespaces/{namespace}/deployments/none")
    assert reply.message == 'deployments.apps "none" not found'
    assert reply.body["details"]["group"] == "apps"


def test_a_missing_namespace_is_not_found(http: Http) -> None:
    reply = http("POST", "/api/v1/namespaces/nowhere/configmaps", config_map("a"))
    assert (reply.code, reply.message) == (404, 'namespaces "nowhere" not found')


@pytest.mark.unrecorded("the answers are given here")
def test_an_empty_value_of_a_map_stays(http: Http, core: str) -> None:
    """The label of a control-plane node has an empty value."""
    made = config_map("a", x="")
    made["metadata"]["labels"] = {"node-role.kubernetes.io/control-plane": "", "other": "b"}
    made["metadata"]["annotations"] = {"nothing": ""}
    for found in (
        http.create(f"{core}/configmaps", made),
        http("GET", f"{core}/configmaps/a").body,
    ):
        assert found["metadata"]["labels"] == made["metadata"]["labels"]
        assert found["metadata"]["annotations"] == {"nothing": ""}
        assert found["data"] == {"x": ""}


@pytest.mark.parametrize("name", ["Upper", "under_score", "-dash", "a" * 254])
def test_a_bad_name_is_invalid(http: Http, core: str, name: str) -> None:
    reply = http("POST", f"{core}/configmaps", config_map(name))
    assert (reply.code, reply.reason) == (422, "Invalid")
    assert reply.causes[0]["field"] == "metadata.name"
    assert reply.causes[0]["reason"] == "FieldValueInvalid"


def test_a_name_is_required(http: Http, core: str) -> None:
    reply = http("POST", f"{core}/configmaps", {"kind": "ConfigMap", "apiVersion": "v1"})
    assert reply.code == 422
    assert "name or generateName is required" in reply.message


def test_another_namespace_in_the_body_is_refused(http: Http, core: str) -> None:
    body = config_map("a")
    body["metadata"]["namespace"] = "default"
    reply = http("POST", f"{core}/configmaps", body)
    assert (reply.code, reply.reason) == (400, "BadRequest")
    assert reply.message == (
        "the namespace of the provided object does not match the namespace sent on the request"
    )


def test_a_resource_version_on_create_is_refused(http: Http, core: str) -> None:
    body = config_map("a")
    body["metadata"]["resourceVersion"] = "1"
    reply = http("POST", f"{core}/configmaps", body)
    assert reply.code == 500
    assert reply.message == "resourceVersion should not be set on objects to be created"


def test_a_wrong_version_in_the_body_is_refused(http: Http, core: str) -> None:
    reply = http("POST", f"{core}/configmaps", {**config_map("a"), "apiVersion": "v2"})
    assert reply.code == 400


def test_a_wrong_json_type_is_refused_with_the_decoders_text(http: Http, namespace: str) -> None:
    body = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {"replicas": "three"},
    }
    reply = http("POST", f"/apis/apps/v1/namespaces/{namespace}/deployments", body)
    assert reply.code == 400
    assert 'Deployment in version "v1" cannot be handled as a Deployment' in reply.message
    assert "json: cannot unmarshal string into Go struct field" in reply.message


def test_broken_json_is_a_bad_request(http: Http, core: str) -> None:
    response = http.pool.request(
        "POST",
        f"{http.url}{core}/configmaps",
        body=b"{",
        headers={**http.headers, "Content-Type": "application/json"},
    )
    assert response.status == 400


def test_an_unknown_body_format_is_unsupported(http: Http, core: str) -> None:
    reply = http("POST", f"{core}/configmaps", {}, content_type="text/plain")
    assert (reply.code, reply.reason) == (415, "UnsupportedMediaType")
    assert "accepted media types include: application/json" in reply.message


def test_an_update_bumps_the_version(http: Http, core: str) -> None:
    found = http.create(f"{core}/configmaps", config_map("a", x="1"))
    found["data"]["x"] = "2"
    reply = http("PUT", f"{core}/configmaps/a", found)
    assert reply.code == 200
    assert reply.body["data"] == {"x": "2"}
    assert int(reply.body["metadata"]["resourceVersion"]) > int(
        found["metadata"]["resourceVersion"]
    )


def test_an_update_without_a_change_keeps_the_version(http: Http, core: str) -> None:
    found = http.create(f"{core}/configmaps", config_map("a", x="1"))
    reply = http("PUT", f"{core}/configmaps/a", found)
    assert reply.body["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"]


def test_an_update_with_an_old_version_conflicts(http: Http, core: str) -> None:
    old = http.create(f"{core}/configmaps", config_map("a", x="1"))
    http.merge(f"{core}/configmaps/a", {"data": {"x": "2"}})
    reply = http("PUT", f"{core}/configmaps/a", old)
    assert (reply.code, reply.reason) == (409, "Conflict")
    assert reply.message == (
        'Operation cannot be fulfilled on configmaps "a": the object has been modified; please'
        " apply your changes to the latest version and try again"
    )


def test_an_update_without_a_version_is_unconditional_where_the_kind_allows(
    http: Http, core: str
) -> None:
    http.create(f"{core}/configmaps", config_map("a", x="1"))
    assert http("PUT", f"{core}/configmaps/a", config_map("a", x="2")).code == 200


def test_an_update_of_a_lease_needs_a_version(http: Http, namespace: str) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "l"},
        "spec": {"holderIdentity": "a"},
    }
    http.create(path, lease)
    reply = http("PUT", f"{path}/l", lease)
    assert (reply.code, reply.reason) == (422, "Invalid")
    assert "metadata.resourceVersion" in reply.message
    assert "must be specified for an update" in reply.message


@pytest.mark.parametrize("at", ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.123Z", "yesterday"])
def test_a_lease_needs_six_fractional_digits(http: Http, namespace: str, at: str) -> None:
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "l"},
        "spec": {"holderIdentity": "a", "renewTime": at},
    }
    reply = http("POST", f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases", lease)
    assert reply.code == 400
    assert "parsing time" in reply.message


def test_an_update_under_another_name_is_refused(http: Http, core: str) -> None:
    found = http.create(f"{core}/configmaps", config_map("a"))
    found["metadata"]["name"] = "b"
    reply = http("PUT", f"{core}/configmaps/a", found)
    assert reply.code == 400
    assert reply.message == "the name of the object (b) does not match the name on the URL (a)"


def test_an_update_with_another_uid_conflicts(http: Http, core: str) -> None:
    found = http.create(f"{core}/configmaps", config_map("a"))
    body = config_map("a")
    body["metadata"]["uid"] = "11111111-1111-1111-1111-111111111111"
    reply = http("PUT", f"{core}/configmaps/a", body)
    assert (reply.code, reply.reason) == (409, "Conflict")
    assert "Precondition failed: UID in precondition: 11111111" in reply.message
    assert found["metadata"]["uid"] in reply.message


def test_delete_returns_a_status(http: Http, core: str) -> None:
    uid = http.create(f"{core}/configmaps", config_map("a"))["metadata"]["uid"]
    reply = http("DELETE", f"{core}/configmaps/a")
    assert (reply.code, reply.body["status"]) == (200, "Success")
    assert reply.body["details"] == {"name": "a", "kind": "configmaps", "uid": uid}
    assert http("GET", f"{core}/configmaps/a").code == 404


@pytest.mark.parametrize("field", ["uid", "resourceVersion"])
def test_delete_checks_preconditions(http: Http, core: str, field: str) -> None:
    http.create(f"{core}/configmaps", config_map("a"))
    options = {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "preconditions": {field: "1"},
    }
    reply = http("DELETE", f"{core}/configmaps/a", options)
    assert (reply.code, reply.reason) == (409, "Conflict")
    assert "in the precondition (1) does not match" in reply.message
    assert http("GET", f"{core}/configmaps/a").code == 200


def test_a_finalizer_keeps_an_object_until_it_is_removed(http: Http, core: str) -> None:
    body = config_map("a")
    body["metadata"]["finalizers"] = ["example.com/hold"]
    http.create(f"{core}/configmaps", body)
    reply = http("DELETE", f"{core}/configmaps/a")
    assert reply.code == 200
    assert reply.body["metadata"]["deletionTimestamp"]
    added = {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}}
    refused = http.merge(f"{core}/configmaps/a", added)
    assert refused.code == 422
    assert "no new finalizers can be added if the object is being deleted" in refused.message
    assert http.merge(f"{core}/configmaps/a", {"metadata": {"finalizers": None}}).code == 200
    assert http("GET", f"{core}/configmaps/a").code == 404


def test_delete_collection_takes_a_selector(http: Http, core: str) -> None:
    for name, label in (("a", "x"), ("b", "x"), ("c", "y")):
        body = config_map(name)
        body["metadata"]["labels"] = {"l": label}
        http.create(f"{core}/configmaps", body)
    assert http("DELETE", f"{core}/configmaps", labelSelector="l=x").code == 200
    left = http("GET", f"{core}/configmaps", labelSelector="l").body["items"]
    assert [item["metadata"]["name"] for item in left] == ["c"]


def test_a_dry_run_stores_nothing(http: Http, core: str) -> None:
    reply = http("POST", f"{core}/configmaps", config_map("a"), dryRun="All")
    assert reply.code == 201
    assert reply.body["metadata"]["uid"]
    assert http("GET", f"{core}/configmaps/a").code == 404


@pytest.mark.parametrize(
    ("mode", "code"), [("Strict", 400), ("Warn", 201), ("Ignore", 201), (None, 201)]
)
def test_unknown_fields_are_refused_warned_of_or_dropped(
    http: Http, core: str, mode: str | None, code: int
) -> None:
    body = pod("p")
    body["spec"]["containers"][0]["imagee"] = "x"
    reply = http("POST", f"{core}/pods", body, fieldValidation=mode, dryRun="All")
    assert reply.code == code
    text = 'unknown field "spec.containers[0].imagee"'
    if mode == "Strict":
        assert f"strict decoding error: {text}" in reply.message
    else:
        assert "imagee" not in reply.body["spec"]["containers"][0]
        warned = reply.headers.get("Warning", "").replace('\\"', '"')
        assert (text in warned) is (mode != "Ignore")


def test_a_pod_gets_the_usual_defaults(http: Http, core: str) -> None:
    spec = http.create(f"{core}/pods", pod("p"))["spec"]
    assert spec["restartPolicy"] == "Always"
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["dnsPolicy"] == "ClusterFirst"
    assert spec["schedulerName"] == "default-scheduler"
    assert spec["containers"][0]["imagePullPolicy"] == "IfNotPresent"
    found = http("GET", f"{core}/pods/p").body
    assert found["status"]["phase"] == "Pending"
    assert found["status"]["qosClass"] == "BestEffort"


def test_a_pod_needs_containers(http: Http, core: str) -> None:
    body = pod("p")
    body["spec"]["containers"] = []
    reply = http("POST", f"{core}/pods", body)
    assert (reply.code, reply.message) == (
        422,
        'Pod "p" is invalid: spec.containers: Required value',
    )


def test_most_of_a_pod_spec_is_immutable(http: Http, core: str) -> None:
    http.create(f"{core}/pods", pod("p"))
    reply = http.merge(f"{core}/pods/p", {"spec": {"hostNetwork": True}})
    assert reply.code == 422
    assert "pod updates may not change fields other than" in reply.message


def test_an_unbound_pod_is_deleted_at_once_and_returned(http: Http, core: str) -> None:
    http.create(f"{core}/pods", pod("p"))
    reply = http("DELETE", f"{core}/pods/p")
    assert (reply.code, reply.body["kind"]) == (200, "Pod")
    assert http("GET", f"{core}/pods/p").code == 404


def test_a_bound_pod_has_a_grace_period(http: Http, core: str) -> None:
    body = pod("p")
    body["spec"]["nodeName"] = "nowhere"
    http.create(f"{core}/pods", body)
    deleted = http("DELETE", f"{core}/pods/p", gracePeriodSeconds=20).body
    assert deleted["metadata"]["deletionGracePeriodSeconds"] == 20
    assert http("GET", f"{core}/pods/p").body["metadata"]["deletionTimestamp"]
    assert http("DELETE", f"{core}/pods/p", gracePeriodSeconds=0).code == 200
    assert http("GET", f"{core}/pods/p").code == 404


def test_binding_sets_the_node_once(http: Http, core: str) -> None:
    http.create(f"{core}/pods", pod("p"))
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p"},
        "target": {"kind": "Node", "name": "somewhere"},
    }
    assert http("POST", f"{core}/pods/p/binding", body).code == 201
    found = http("GET", f"{core}/pods/p").body
    assert found["spec"]["nodeName"] == "somewhere"
    again = http("POST", f"{core}/pods/p/binding", body)
    assert (again.code, again.reason) == (409, "Conflict")


def test_spec_and_status_updates_do_not_change_each_other(http: Http, core: str) -> None:
    http.create(f"{core}/pods", {**pod("p"), "status": {"phase": "Running"}})
    assert http("GET", f"{core}/pods/p").body["status"]["phase"] == "Pending"
    http.merge(f"{core}/pods/p", {"status": {"phase": "Failed"}})
    assert http("GET", f"{core}/pods/p").body["status"]["phase"] == "Pending"
    patch = {"status": {"phase": "Running"}, "spec": {"priority": 5}}
    assert http.merge(f"{core}/pods/p/status", patch).code == 200
    found = http("GET", f"{core}/pods/p").body
    assert found["status"]["phase"] == "Running"
    assert found["spec"].get("priority") != 5


def test_generation_counts_only_changes_of_the_spec(http: Http, namespace: str) -> None:
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    body = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "c", "image": "x"}]},
            },
        },
    }
    assert http.create(path, body)["metadata"]["generation"] == 1
    http.merge(f"{path}/d", {"metadata": {"labels": {"x": "y"}}})
    assert http("GET", f"{path}/d").body["metadata"]["generation"] == 1
    http.merge(f"{path}/d", {"spec": {"replicas": 4}})
    assert http("GET", f"{path}/d").body["metadata"]["generation"] == 2
    changed = http.merge(f"{path}/d", {"spec": {"selector": {"matchLabels": {"a": "c"}}}})
    assert changed.code == 422


def test_scale_changes_replicas(http: Http, namespace: str) -> None:
    path = f"/apis/apps/v1/namespaces/{namespace}/replicasets"
    body: dict[str, Any] = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "r"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "c", "image": "x"}]},
            },
        },
    }
    http.create(path, body)
    scale = http("GET", f"{path}/r/scale").body
    assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert scale["status"]["selector"] == "a=b"
    assert http.merge(f"{path}/r/scale", {"spec": {"replicas": 3}}).code == 200
    assert http("GET", f"{path}/r").body["spec"]["replicas"] == 3


def test_both_groups_of_events_share_one_storage(http: Http, namespace: str) -> None:
    body = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "e"},
        "eventTime": "2026-01-02T03:04:05.000006Z",
        "reportingController": "example.com/c",
        "reportingInstance": "i",
        "action": "Drain",
        "reason": "Drained",
        "regarding": {"kind": "Pod", "name": "p", "namespace": namespace},
        "note": "it is empty",
        "type": "Normal",
    }
    path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
    assert http.create(path, body)["note"] == "it is empty"
    old = http("GET", f"/api/v1/namespaces/{namespace}/events/e").body
    assert old["message"] == "it is empty"
    assert old["involvedObject"]["name"] == "p"
    selector = "involvedObject.name=p,reason=Drained"
    found = http("GET", f"/api/v1/namespaces/{namespace}/events", fieldSelector=selector).body
    assert len(found["items"]) == 1


def event(namespace: str, *, newer: bool, **other: object) -> dict[str, Any]:
    """Return an event in the form of one of the two groups."""
    about = {"kind": "Pod", "name": "p", "namespace": namespace}
    body: dict[str, Any] = {
        "metadata": {"name": "e"},
        "eventTime": "2026-01-02T03:04:05.000006Z",
        "reportingInstance": "i",
        "action": "Drain",
        "reason": "Drained",
        "type": "Normal",
    }
    if newer:
        body |= {"reportingController": "example.com/c", "regarding": about, "note": "it is empty"}
    else:
        body |= {
            "reportingComponent": "example.com/c",
            "involvedObject": about,
            "message": "it is empty",
        }
    return {**body, **other}


CORE_EVENTS, NEW_EVENTS = (
    "/api/v1/namespaces/{}/events",
    "/apis/events.k8s.io/v1/namespaces/{}/events",
)


@pytest.mark.parametrize(
    ("other", "code"),
    [
        ({"type": "Error"}, 201),
        ({"type": ""}, 201),
        ({"count": 3, "firstTimestamp": "2026-01-02T03:04:05Z"}, 201),
        ({"series": {"count": 1}}, 201),
        ({"eventTime": None, "reportingInstance": "", "action": "", "type": "Error"}, 201),
        ({"reportingInstance": "", "action": "", "reason": ""}, 422),
        ({"reportingComponent": ""}, 422),
        ({"reportingComponent": "a/b/c"}, 422),
        ({"reportingInstance": "i" * 129, "action": "a" * 129, "reason": "r" * 129}, 422),
        ({"message": "m" * 1025}, 422),
        ({"involvedObject": {"kind": "Node", "name": "n"}}, 422),
        ({"involvedObject": {"kind": "Pod", "name": "p", "namespace": "other"}}, 201),
    ],
)
def test_the_older_group_of_events_accepts_old_fields(
    http: Http, namespace: str, other: dict[str, object], code: int
) -> None:
    body = event(namespace, newer=False, **other)
    assert http("POST", CORE_EVENTS.format(namespace), body).code == code


@pytest.mark.parametrize(
    "other",
    [
        {"type": "Error"},
        {"type": ""},
        {"eventTime": None},
        {"series": {"count": 1}},
        {"deprecatedCount": 3, "deprecatedFirstTimestamp": "2026-01-02T03:04:05Z"},
        {"deprecatedSource": {"component": "c"}},
    ],
)
def test_the_newer_group_of_events_is_strict_with_new_ones(
    http: Http, namespace: str, other: dict[str, object]
) -> None:
    body = event(namespace, newer=True, **other)
    assert http("POST", NEW_EVENTS.format(namespace), body).code == 422


@pytest.mark.parametrize(
    ("patch", "code"),
    [
        ({"series": {"count": 2, "lastObservedTime": "2026-01-02T03:04:06.000000Z"}}, 200),
        ({"series": {"count": 1, "lastObservedTime": "2026-01-02T03:04:06.000000Z"}}, 422),
        ({"metadata": {"labels": {"a": "b"}}}, 200),
        ({"note": "another"}, 422),
        ({"type": "Warning", "reason": "Other"}, 422),
        ({"reportingController": "example.com/d"}, 422),
        ({"deprecatedCount": 4}, 422),
    ],
)
def test_the_newer_group_of_events_changes_only_the_series(
    http: Http, namespace: str, patch: dict[str, object], code: int
) -> None:
    path = NEW_EVENTS.format(namespace)
    http.create(path, event(namespace, newer=True))
    assert http.merge(f"{path}/e", patch).code == code


def test_the_older_group_of_events_may_change_every_field(http: Http, namespace: str) -> None:
    path = CORE_EVENTS.format(namespace)
    http.create(path, event(namespace, newer=False))
    changed = http.merge(f"{path}/e", {"message": "another", "count": 2, "type": "Error"})
    assert changed.code == 200


@pytest.mark.parametrize(
    ("path", "code"),
    [("/api/v1/foos", 404), ("/apis/none.example.com/v1/foos", 404), ("/nowhere", 404)],
)
def test_an_unknown_resource_is_not_found(http: Http, path: str, code: int) -> None:
    assert http("GET", path).code == code


def test_an_unsupported_verb_of_a_path_is_not_allowed(http: Http, core: str) -> None:
    reply = http("POST", f"{core}/configmaps/a", config_map("a"))
    assert (reply.code, reply.reason) == (405, "MethodNotAllowed")


def test_other_formats_than_json_are_not_acceptable(http: Http, core: str) -> None:
    assert http("GET", f"{core}/configmaps", accept="text/html").code == 406
    preferred = "application/vnd.example,application/json"
    assert http("GET", f"{core}/configmaps", accept=preferred).code == 200


def test_the_default_namespace_cannot_be_deleted(http: Http) -> None:
    reply = http("DELETE", "/api/v1/namespaces/default")
    assert (reply.code, reply.reason) == (403, "Forbidden")
    assert "this namespace may not be deleted" in reply.message
