"""Server-side apply: the owner of each field, and conflicts."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.contract.conftest import defined
from tests.contract.exchanges import Http, Reply
from tests.contract.objects import config_map, pod, widget_definition

APPLY = "application/apply-patch+yaml"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def fields(obj: Any, manager: str, operation: str = "Apply", subresource: str = "") -> Any:
    """Return the fields that a manager owns; empty if it owns none."""
    found = [
        entry["fieldsV1"]
        for entry in obj["metadata"].get("managedFields", [])
        if (entry["manager"], entry["operation"], entry.get("subresource", ""))
        == (manager, operation, subresource)
    ]
    return found[0] if found else None


def deployment(**spec: object) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "c", "image": "x:1"}]},
            },
            **spec,
        },
    }


def containers(obj: Any) -> dict[str, Any]:
    return {c["name"]: c for c in obj["spec"]["template"]["spec"]["containers"]}


def with_containers(*wanted: object) -> dict[str, Any]:
    body = deployment()
    body["spec"]["template"]["spec"]["containers"] = wanted
    return body


@pytest.fixture
def maps(core: str) -> str:
    return f"{core}/configmaps"


@pytest.fixture
def deployments(namespace: str) -> str:
    return f"/apis/apps/v1/namespaces/{namespace}/deployments"


# Creating objects


def test_apply_to_a_free_name_creates(http: Http, maps: str) -> None:
    reply = http.apply(f"{maps}/a", config_map("a", x="1"))
    assert reply.code == 201
    assert fields(reply.body, "one") == {"f:data": {"f:x": {}}}
    assert reply.body["metadata"]["managedFields"][0]["fieldsType"] == "FieldsV1"


def test_apply_of_yaml(http: Http, maps: str) -> None:
    text = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  at: 2026-01-02\n"
    reply = http.apply(f"{maps}/a", text)
    assert reply.code == 201
    assert reply.body["data"] == {"at": "2026-01-02"}


def test_a_dry_run_of_an_apply_creates_nothing(http: Http, maps: str) -> None:
    reply = http.apply(f"{maps}/a", config_map("a", x="1"), dryRun="All")
    assert reply.code == 201
    assert fields(reply.body, "one")
    assert http("GET", f"{maps}/a").code == 404


def test_a_new_workload_is_owned_without_its_defaults(http: Http, deployments: str) -> None:
    reply = http.apply(f"{deployments}/d", deployment(replicas=2))
    assert reply.code == 201
    assert "f:strategy" not in fields(reply.body, "one")["f:spec"]
    assert reply.body["spec"]["strategy"]["type"] == "RollingUpdate"


def test_a_new_pod(http: Http, core: str) -> None:
    reply = http.apply(f"{core}/pods/p", pod("p", app="web"))
    assert reply.code == 201
    key = 'k:{"name":"c"}'
    owned = fields(reply.body, "one")["f:spec"]["f:containers"][key]
    assert owned == {".": {}, "f:image": {}, "f:name": {}}


# The request


def test_apply_without_a_field_manager_is_invalid(http: Http, maps: str) -> None:
    reply = http.apply(f"{maps}/a", config_map("a"), manager=None)
    assert (reply.code, reply.reason) == (422, "Invalid")
    assert reply.causes[0]["field"] == "fieldManager"


def test_a_field_manager_may_not_be_too_long(http: Http, maps: str) -> None:
    assert http.apply(f"{maps}/a", config_map("a"), manager="x" * 129).code == 422


def test_a_field_manager_may_not_have_invisible_letters(http: Http, maps: str) -> None:
    assert http.apply(f"{maps}/a", config_map("a"), manager="x\ny").code == 422


def test_only_apply_may_be_forced(http: Http, maps: str) -> None:
    http.create(maps, config_map("a"))
    assert http.merge(f"{maps}/a", {}, force="true").code == 422


@pytest.mark.parametrize(
    "body",
    [
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}},
        {"apiVersion": "v2", "kind": "ConfigMap", "metadata": {"name": "a"}},
        {"metadata": {"name": "a"}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "other"}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "uid": "x"}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "managedFields": []}},
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "a", "managedFields": [{"manager": "x"}]},
        },
    ],
    ids=[
        "kind", "version", "neither", "name", "nameless", "namespace", "uid", "no-managers",
        "managers",
    ],
)  # fmt: skip
def test_a_configuration_of_another_kind_is_refused(http: Http, maps: str, body: Any) -> None:
    assert http.apply(f"{maps}/a", body).code >= 400


@pytest.mark.parametrize(
    "extra",
    [
        {"foo": 1},
        {"data": {"x": 1}},
        {"data": "x"},
        {"data": ["x"]},
        {"immutable": "yes"},
        {"metadata": {"name": "a", "foo": 1}},
        {"metadata": {"name": "a", "finalizers": ["a.b/c", "a.b/c"]}},
        {"metadata": {"name": "a", "finalizers": "a.b/c"}},
    ],
    ids=[
        "unknown", "number", "text-for-map", "list-for-map", "text-for-bool", "unknown-below",
        "twice", "text-for-list",
    ],
)  # fmt: skip
def test_a_configuration_that_does_not_fit_the_schema_is_refused(
    http: Http, maps: str, extra: Any
) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, **extra}
    assert http.apply(f"{maps}/a", body).code >= 400


@pytest.mark.parametrize("raw", [b"", b"[]", b"a: b: c", b"{", b"null"], ids=range(5))
def test_a_body_other_than_an_object_is_refused(http: Http, maps: str, raw: bytes) -> None:
    assert http.apply(f"{maps}/a", raw).code == 400


@pytest.mark.parametrize("validation", ["Strict", "Warn", "Ignore"])
def test_a_repeated_key(http: Http, maps: str, validation: str) -> None:
    text = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  x: a\n  x: b\n"
    reply = http.apply(f"{maps}/a", text, fieldValidation=validation)
    assert reply.code == (400 if validation == "Strict" else 201)
    assert ("Warning" in reply.headers) == (validation == "Warn")


# Conflicts


def test_another_value_for_a_managed_field_conflicts(http: Http, maps: str) -> None:
    http.apply(f"{maps}/a", config_map("a", x="1"))
    reply = http.apply(f"{maps}/a", config_map("a", x="2"), manager="two")
    assert (reply.code, reply.reason) == (409, "Conflict")
    [cause] = reply.causes
    assert cause["reason"] == "FieldManagerConflict"
    assert cause["field"] == ".data.x"
    assert '"one"' in cause["message"]
    assert http("GET", f"{maps}/a").body["data"] == {"x": "1"}


def test_several_conflicts_have_a_cause_each(http: Http, deployments: str) -> None:
    http.apply(f"{deployments}/d", deployment(replicas=2, paused=True))
    wanted = with_containers({"name": "c", "image": "x:2"})
    wanted["spec"]["replicas"] = 3
    wanted["spec"]["paused"] = False
    reply = http.apply(f"{deployments}/d", wanted, manager="two")
    assert [cause["field"] for cause in reply.causes] == [
        ".spec.paused",
        ".spec.replicas",
        '.spec.template.spec.containers[name="c"].image',
    ]


def test_a_field_that_an_update_wrote_conflicts_and_names_the_version(
    http: Http, maps: str
) -> None:
    http.create(maps, config_map("a", x="1"))
    reply = http.apply(f"{maps}/a", config_map("a", x="2"))
    assert reply.code == 409
    assert "using v1" in reply.message


def test_force_takes_the_field(http: Http, maps: str) -> None:
    http.apply(f"{maps}/a", config_map("a", x="1", y="1"))
    reply = http.apply(f"{maps}/a", config_map("a", x="2"), manager="two", force="true")
    assert reply.code == 200
    assert reply.body["data"] == {"x": "2", "y": "1"}
    assert fields(reply.body, "one") == {"f:data": {"f:y": {}}}
    assert fields(reply.body, "two") == {"f:data": {"f:x": {}}}


def test_force_takes_all_fields_of_a_manager(http: Http, maps: str) -> None:
    http.apply(f"{maps}/a", config_map("a", x="1"))
    reply = http.apply(f"{maps}/a", config_map("a", x="2"), manager="two", force="true")
    assert fields(reply.body, "one") is None


def test_a_field_of_two_managers_stays_when_one_releases_it(http: Http, maps: str) -> None:
    http.apply(f"{maps}/a", config_map("a", x="1", y="1"))
    shared = http.apply(f"{maps}/a", config_map("a", x="1"), manager="two")
    assert shared.code == 200
    assert fields(shared.body, "one") == {"f:data": {"f:x": {}, "f:y": {}}}
    assert fields(shared.body, "two") == {"f:data": {"f:x": {}}}
    reply = http.apply(f"{maps}/a", config_map("a"))
    assert reply.body["data"] == {"x": "1"}
    assert fields(reply.body, "one") is None or fields(reply.body, "one") == {"f:data": {}}


def test_a_field_of_two_managers_conflicts_when_one_changes_it(http: Http, maps: str) -> None:
    http.apply(f"{maps}/a", config_map("a", x="1"))
    http.apply(f"{maps}/a", config_map("a", x="1"), manager="two")
    assert http.apply(f"{maps}/a", config_map("a", x="2")).code == 409


def test_a_forced_dry_run_changes_nothing(http: Http, maps: str) -> None:
    http.apply(f"{maps}/a", config_map("a", x="1"))
    reply = http.apply(
        f"{maps}/a", config_map("a", x="2"), manager="two", force="true", dryRun="All"
    )
    assert reply.body["data"] == {"x": "2"}
    found = http("GET", f"{maps}/a").body
    assert found["data"] == {"x": "1"}
    assert fields(found, "two") is None


def test_an_old_version_conflicts_for_every_manager(http: Http, maps: str) -> None:
    old = http.apply(f"{maps}/a", config_map("a", x="1")).body["metadata"]["resourceVersion"]
    http.apply(f"{maps}/a", config_map("a", x="2"))
    body = config_map("a", x="3")
    body["metadata"]["resourceVersion"] = old
    reply = http.apply(f"{maps}/a", body)
    assert (reply.code, reply.reason) == (409, "Conflict")
    assert not reply.causes


# Releasing fields


def test_a_field_that_is_no_longer_applied_is_removed(http: Http, maps: str) -> None:
    http.apply(f"{maps}/a", config_map("a", x="1", y="2"))
    reply = http.apply(f"{maps}/a", config_map("a", y="2"))
    assert reply.body["data"] == {"y": "2"}
    assert fields(reply.body, "one") == {"f:data": {"f:y": {}}}


def test_a_released_field_gets_its_default(http: Http, deployments: str) -> None:
    http.apply(f"{deployments}/d", deployment(replicas=3))
    reply = http.apply(f"{deployments}/d", deployment())
    assert reply.body["spec"]["replicas"] == 1


def test_a_map_is_removed_with_its_last_key(http: Http, maps: str) -> None:
    body = config_map("a", x="1")
    body["metadata"]["labels"] = {"l": "1"}
    http.apply(f"{maps}/a", body)
    reply = http.apply(f"{maps}/a", config_map("a", x="1"))
    assert "labels" not in reply.body["metadata"]


def test_fields_of_other_managers_stay(http: Http, maps: str) -> None:
    http.apply(f"{maps}/a", config_map("a", x="1"))
    http.merge(f"{maps}/a", {"data": {"z": "9"}, "metadata": {"labels": {"l": "1"}}})
    reply = http.apply(f"{maps}/a", config_map("a", y="2"))
    assert reply.body["data"] == {"y": "2", "z": "9"}
    assert reply.body["metadata"]["labels"] == {"l": "1"}


def test_an_empty_configuration_releases_everything(http: Http, maps: str) -> None:
    http.apply(f"{maps}/a", config_map("a", x="1"))
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    reply = http.apply(f"{maps}/a", body)
    assert reply.code == 200
    assert "data" not in reply.body
    assert "managedFields" not in reply.body["metadata"]


def test_a_null_removes_the_field(http: Http, maps: str) -> None:
    body = config_map("a", x="1")
    body["metadata"]["labels"] = None
    reply = http.apply(f"{maps}/a", body)
    assert reply.code == 201
    assert "labels" not in reply.body["metadata"]


def test_an_empty_map_is_dropped_but_owned(http: Http, maps: str) -> None:
    http.apply(f"{maps}/a", config_map("a"))
    reply = http.apply(f"{maps}/a", config_map("a"), manager="two")
    assert [cause["field"] for cause in reply.causes] == [".data"]


def test_the_version_of_a_missing_object_is_ignored(http: Http, maps: str) -> None:
    body = config_map("a", x="1")
    body["metadata"]["resourceVersion"] = "1"
    assert http.apply(f"{maps}/a", body).code == 201


def test_a_finalizer_is_owned_by_value(http: Http, maps: str) -> None:
    def body(*names: str) -> dict[str, Any]:
        found = config_map("a", x="1")
        found["metadata"]["finalizers"] = [*names]
        return found

    http.apply(f"{maps}/a", body("a.b/one", "a.b/both"))
    http.apply(f"{maps}/a", body("a.b/both", "a.b/two"), manager="two")
    found = http("GET", f"{maps}/a").body["metadata"]["finalizers"]
    assert found == ["a.b/one", "a.b/both", "a.b/two"]
    reply = http.apply(f"{maps}/a", body())
    assert reply.body["metadata"]["finalizers"] == ["a.b/both", "a.b/two"]
    http.apply(f"{maps}/a", body(), manager="two")


def test_owner_references_are_identified_by_uid(http: Http, maps: str) -> None:
    owner = http.create(maps, config_map("owner"))["metadata"]
    body = config_map("a")
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["uid"]}
    body["metadata"]["ownerReferences"] = [reference]
    reply = http.apply(f"{maps}/a", body)
    [key] = fields(reply.body, "one")["f:metadata"]["f:ownerReferences"]
    assert key == f'k:{{"uid":"{owner["uid"]}"}}'


# Lists


def test_containers_merge_by_name(http: Http, deployments: str) -> None:
    http.apply(f"{deployments}/d", deployment())
    side = {"name": "side", "image": "y:1"}
    reply = http.apply(f"{deployments}/d", with_containers(side), manager="two")
    assert reply.code == 200
    assert [*containers(reply.body)] == ["c", "side"]
    gone = http.apply(f"{deployments}/d", with_containers(), manager="two")
    assert [*containers(gone.body)] == ["c"]


def test_an_item_with_fields_of_another_manager_stays(http: Http, deployments: str) -> None:
    http.apply(f"{deployments}/d", with_containers({"name": "c", "image": "x"}, {"name": "side"}))
    http.apply(
        f"{deployments}/d",
        with_containers({"name": "c", "image": "x"}, {"name": "side", "image": "y"}),
    )
    env = {"name": "side", "env": [{"name": "A", "value": "1"}]}
    http.apply(f"{deployments}/d", with_containers(env), manager="two")
    reply = http.apply(f"{deployments}/d", deployment())
    assert reply.code in {200, 422}


def test_items_of_an_item_merge_too(http: Http, deployments: str) -> None:
    def env(**values: str) -> dict[str, Any]:
        listed = [{"name": name, "value": value} for name, value in values.items()]
        return with_containers({"name": "c", "image": "x:1", "env": listed})

    http.apply(f"{deployments}/d", env(A="1", B="1"))
    http.apply(f"{deployments}/d", env(B="1", C="1"), manager="two")
    reply = http.apply(f"{deployments}/d", env(A="2"))
    found = containers(reply.body)["c"]["env"]
    assert {e["name"]: e["value"] for e in found} == {"A": "2", "B": "1", "C": "1"}


@pytest.mark.parametrize(
    "order", [["c", "a", "b"], ["b", "new", "a"], ["new", "c"], ["c", "new", "a", "last"]]
)
def test_the_applied_order_wins(http: Http, deployments: str, order: list[str]) -> None:
    def listed(names: list[str]) -> dict[str, Any]:
        return with_containers(*({"name": name, "image": "x"} for name in names))

    http.apply(f"{deployments}/d", listed(["a", "b", "c", "d"]))
    reply = http.apply(f"{deployments}/d", listed(order), manager="two")
    assert [name for name in containers(reply.body) if name in order] == order


def test_ports_are_identified_by_number_and_protocol(http: Http, core: str) -> None:
    def service(*ports: object) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "s"},
            "spec": {"clusterIP": "None", "selector": {"a": "b"}, "ports": ports},
        }

    path = f"{core}/services/s"
    http.apply(path, service({"port": 53, "name": "tcp"}))
    udp = {"port": 53, "protocol": "UDP", "name": "udp"}
    reply = http.apply(path, service(udp), manager="two")
    assert reply.code == 200
    assert [p["protocol"] for p in reply.body["spec"]["ports"]] == ["TCP", "UDP"]
    assert [*fields(reply.body, "one")["f:spec"]["f:ports"]] == ['k:{"port":53,"protocol":"TCP"}']


def test_a_list_without_keys_has_one_manager(http: Http, core: str) -> None:
    def tolerating(*keys: str) -> dict[str, Any]:
        body = pod("p", app="web")
        body["spec"]["tolerations"] = [{"key": key, "operator": "Exists"} for key in keys]
        return body

    http.apply(f"{core}/pods/p", tolerating("a"))
    reply = http.apply(f"{core}/pods/p", tolerating("b"), manager="two")
    assert [cause["field"] for cause in reply.causes] == [".spec.tolerations"]


def test_a_selector_has_one_manager(http: Http, deployments: str) -> None:
    reply = http.apply(f"{deployments}/d", deployment())
    assert fields(reply.body, "one")["f:spec"]["f:selector"] == {}


# Updates


def test_the_default_manager_is_the_first_part_of_the_user_agent(http: Http, maps: str) -> None:
    reply = http("POST", maps, config_map("a", x="1"))
    assert fields(reply.body, "contract", "Update") == {"f:data": {".": {}, "f:x": {}}}


def test_an_update_may_name_its_manager(http: Http, maps: str) -> None:
    http.create(maps, config_map("a", x="1"), fieldManager="creator")
    reply = http.merge(f"{maps}/a", {"data": {"y": "2"}}, fieldManager="patcher")
    assert fields(reply.body, "creator", "Update") == {"f:data": {".": {}, "f:x": {}}}
    assert fields(reply.body, "patcher", "Update") == {"f:data": {"f:y": {}}}


def test_an_update_takes_changed_fields_from_the_applier(http: Http, maps: str) -> None:
    http.apply(f"{maps}/a", config_map("a", x="1", y="1"))
    reply = http.merge(f"{maps}/a", {"data": {"x": "2"}})
    assert fields(reply.body, "one") == {"f:data": {"f:y": {}}}
    assert fields(reply.body, "contract", "Update") == {"f:data": {"f:x": {}}}
    assert http.apply(f"{maps}/a", config_map("a", x="1", y="1")).code == 409


def test_a_field_that_an_update_removes_has_no_owner(http: Http, maps: str) -> None:
    http.apply(f"{maps}/a", config_map("a", x="1", y="1"))
    reply = http.merge(f"{maps}/a", {"data": {"x": None}})
    assert [entry["manager"] for entry in reply.body["metadata"]["managedFields"]] == ["one"]
    assert fields(reply.body, "one") == {"f:data": {"f:y": {}}}


def test_a_put_without_managed_fields_keeps_them(http: Http, maps: str) -> None:
    http.apply(f"{maps}/a", config_map("a", x="1"))
    reply = http("PUT", f"{maps}/a", config_map("a", x="1", y="2"))
    assert fields(reply.body, "one") == {"f:data": {"f:x": {}}}
    assert fields(reply.body, "contract", "Update") == {"f:data": {"f:y": {}}}


def test_a_json_patch_is_an_update(http: Http, maps: str) -> None:
    http.apply(f"{maps}/a", config_map("a", x="1"))
    step = {"op": "add", "path": "/data/y", "value": "2"}
    reply = http("PATCH", f"{maps}/a", [step], content_type="application/json-patch+json")
    assert fields(reply.body, "contract", "Update") == {"f:data": {"f:y": {}}}


def test_the_same_manager_has_an_entry_for_each_way_to_write(http: Http, maps: str) -> None:
    http.apply(f"{maps}/a", config_map("a", x="1"))
    reply = http.merge(f"{maps}/a", {"data": {"y": "2"}}, fieldManager="one")
    found = [entry["operation"] for entry in reply.body["metadata"]["managedFields"]]
    assert found == ["Apply", "Update"]


@pytest.mark.parametrize("reset", [[{}], []])
def test_managed_fields_can_be_cleared(http: Http, maps: str, reset: object) -> None:
    http.apply(f"{maps}/a", config_map("a", x="1"))
    reply = http.merge(f"{maps}/a", {"metadata": {"managedFields": reset}})
    assert "managedFields" not in reply.body["metadata"]
    later = http.merge(f"{maps}/a", {"data": {"y": "2"}})
    assert "managedFields" not in later.body["metadata"]


def test_fields_before_the_first_apply_have_a_separate_manager(http: Http, maps: str) -> None:
    http.create(maps, config_map("a", x="1"))
    http.merge(f"{maps}/a", {"metadata": {"managedFields": [{}]}})
    assert http.apply(f"{maps}/a", config_map("a", x="2")).code == 409
    reply = http.apply(f"{maps}/a", config_map("a", y="2"))
    assert fields(reply.body, "before-first-apply", "Update") == {"f:data": {".": {}, "f:x": {}}}


def test_managed_fields_can_be_written(http: Http, maps: str) -> None:
    found = http.apply(f"{maps}/a", config_map("a", x="1")).body
    [entry] = found["metadata"]["managedFields"]
    found["metadata"]["managedFields"] = [{**entry, "manager": "heir"}]
    reply = http("PUT", f"{maps}/a", found)
    assert fields(reply.body, "one") is None
    assert fields(reply.body, "heir") == {"f:data": {"f:x": {}}}


@pytest.mark.parametrize(
    "entry",
    [
        {"manager": "x", "operation": "Guess", "apiVersion": "v1", "fieldsType": "FieldsV1"},
        {"manager": "x", "operation": "Apply", "fieldsType": "FieldsV1"},
        {"manager": "x", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV2"},
        {"manager": 1},
    ],
    ids=["operation", "version", "format", "type"],
)
def test_malformed_managed_fields(http: Http, maps: str, entry: Any) -> None:
    http.apply(f"{maps}/a", config_map("a", x="1"))
    reply = http.merge(f"{maps}/a", {"metadata": {"managedFields": [entry]}})
    assert reply.code in {200, 422}


def test_too_many_updaters_become_one(http: Http, maps: str) -> None:
    http.create(maps, config_map("a", x="1"), fieldManager="m00")
    for index in range(1, 12):
        http.merge(f"{maps}/a", {"data": {f"y{index}": "1"}}, fieldManager=f"m{index:02}")
    with http.unrecorded():  # the order of updaters depends on the second of their writes
        found = http("GET", f"{maps}/a").body["metadata"]["managedFields"]
    assert len(found) == 10
    assert "ancient-changes" in {entry["manager"] for entry in found}


# Writes without a change


def same(one: Reply, other: Reply) -> bool:
    return bool(one.body["metadata"] == other.body["metadata"])


def test_applying_again_changes_nothing(http: Http, maps: str) -> None:
    before = http.apply(f"{maps}/a", config_map("a", x="1"))
    assert same(before, http.apply(f"{maps}/a", config_map("a", x="1")))


def test_applying_an_empty_map_again_does_not_even_change_the_time(http: Http, maps: str) -> None:
    found = http.apply(f"{maps}/a", config_map("a")).body
    [entry] = found["metadata"]["managedFields"]
    found["metadata"]["managedFields"] = [{**entry, "time": "2020-01-01T00:00:00Z"}]
    before = http("PUT", f"{maps}/a", found)
    assert same(before, http.apply(f"{maps}/a", config_map("a")))


def test_an_update_to_the_same_changes_nothing(http: Http, maps: str) -> None:
    http.create(maps, config_map("a", x="1"), fieldManager="creator")
    before = http("GET", f"{maps}/a")
    assert same(before, http.merge(f"{maps}/a", {"data": {"x": "1"}}, fieldManager="other"))
    assert same(before, http("PUT", f"{maps}/a", before.body, fieldManager="third"))


def test_applying_equal_values_as_a_new_manager_makes_a_version(http: Http, maps: str) -> None:
    before = http.apply(f"{maps}/a", config_map("a", x="1"))
    after = http.apply(f"{maps}/a", config_map("a", x="1"), manager="two")
    assert before.body["metadata"]["resourceVersion"] != after.body["metadata"]["resourceVersion"]


# Subresources


def condition(kind: str, status: str) -> dict[str, Any]:
    return {"type": kind, "status": status}


def pod_status(*conditions: object) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "status": {"conditions": conditions},
    }


def test_the_status_has_separate_managers(http: Http, core: str) -> None:
    http.apply(f"{core}/pods/p", pod("p"))
    reply = http.apply(f"{core}/pods/p/status", pod_status(condition("Custom", "True")))
    assert reply.code == 200
    owned = fields(reply.body, "one", subresource="status")
    assert 'k:{"type":"Custom"}' in owned["f:status"]["f:conditions"]
    assert "f:status" not in fields(reply.body, "one")


def test_a_status_conflict_names_the_subresource(http: Http, core: str) -> None:
    http.create(f"{core}/pods", pod("p"))
    http.apply(f"{core}/pods/p/status", pod_status(condition("Custom", "True")))
    reply = http.apply(
        f"{core}/pods/p/status", pod_status(condition("Custom", "False")), manager="two"
    )
    assert reply.code == 409
    assert 'with subresource "status"' in reply.message


def test_an_update_of_the_status_is_managed_there(http: Http, core: str) -> None:
    http.create(f"{core}/pods", pod("p"))
    reply = http.merge(f"{core}/pods/p/status", {"status": {"message": "hello"}})
    assert fields(reply.body, "contract", "Update", "status") == {"f:status": {"f:message": {}}}


def test_a_status_that_is_applied_to_the_object_itself_is_ignored(http: Http, core: str) -> None:
    reply = http.apply(f"{core}/pods/p", {**pod("p"), "status": {"message": "hello"}})
    assert reply.code == 201
    assert "message" not in reply.body["status"]
    assert "f:status" not in fields(reply.body, "one")


def test_the_status_of_nothing_is_not_found(http: Http, core: str) -> None:
    assert http.apply(f"{core}/pods/p/status", pod_status()).code == 404


def test_scaling_is_owned_by_the_client_that_scales(http: Http, deployments: str) -> None:
    http.apply(f"{deployments}/d", deployment(replicas=1))
    http.merge(f"{deployments}/d/scale", {"spec": {"replicas": 3}}, fieldManager="scaler")
    found = http("GET", f"{deployments}/d").body
    assert fields(found, "scaler", "Update", "scale") == {"f:spec": {"f:replicas": {}}}
    assert "f:replicas" not in fields(found, "one")["f:spec"]
    assert http.apply(f"{deployments}/d", deployment(replicas=1)).code == 409


# Custom kinds

SHAPES = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "size": {"type": "integer", "default": 1},
                "plain": {"type": "array", "items": {"type": "string"}},
                "names": {
                    "type": "array",
                    "x-kubernetes-list-type": "set",
                    "items": {"type": "string"},
                },
                "parts": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name", "zone"],
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {
                            "name": {"type": "string"},
                            "zone": {"type": "string", "default": "any"},
                            "weight": {"type": "integer"},
                            "note": {"type": "string"},
                        },
                    },
                },
                "loose": {"type": "object", "additionalProperties": {"type": "string"}},
                "whole": {
                    "type": "object",
                    "x-kubernetes-map-type": "atomic",
                    "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                },
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "amount": {"x-kubernetes-int-or-string": True},
            },
        },
        "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
    },
}


@pytest.fixture(scope="module")
def kind(admin: Http) -> Iterator[str]:
    definition = widget_definition("shapes", SHAPES, subresources={"status": {}})
    with defined(admin, definition) as path:
        yield path


@pytest.fixture
def shape(http: Http, kind: str) -> Iterator[str]:
    yield f"{kind}/s"
    with http.unrecorded():
        http("DELETE", f"{kind}/s")


def of_shape(**spec: object) -> dict[str, Any]:
    return {
        "apiVersion": "contract.example.com/v1",
        "kind": "Shape",
        "metadata": {"name": "s"},
        "spec": spec,
    }


def test_an_applied_custom_object_is_owned_without_its_defaults(http: Http, shape: str) -> None:
    reply = http.apply(shape, of_shape(plain=["a"]))
    assert reply.code == 201
    assert reply.body["spec"]["size"] == 1
    assert fields(reply.body, "one") == {"f:spec": {"f:plain": {}}}


def test_a_posted_custom_object_is_owned_with_its_defaults(http: Http, shape: str) -> None:
    reply = http("POST", shape.removesuffix("/s"), of_shape(loose={"a": "b"}))
    assert fields(reply.body, "contract", "Update") == {
        "f:spec": {".": {}, "f:loose": {".": {}, "f:a": {}}, "f:size": {}}
    }


def test_a_set_unites_the_items_of_all_managers(http: Http, shape: str) -> None:
    http.apply(shape, of_shape(names=["a", "b"]))
    both = http.apply(shape, of_shape(names=["b", "c"]), manager="two")
    assert both.body["spec"]["names"] == ["a", "b", "c"]
    reply = http.apply(shape, of_shape(names=["a"]))
    assert reply.body["spec"]["names"] == ["a", "b", "c"]
    last = http.apply(shape, of_shape(), manager="two")
    assert last.body["spec"]["names"] == ["a"]


def test_a_list_of_a_custom_kind_is_atomic_by_default(http: Http, shape: str) -> None:
    http.apply(shape, of_shape(plain=["a"]))
    assert http.apply(shape, of_shape(plain=["a", "b"]), manager="two").code == 409
    reply = http.apply(shape, of_shape(plain=["b"]), manager="two", force="true")
    assert reply.body["spec"]["plain"] == ["b"]


def test_a_map_list_merges_by_all_its_keys_and_their_defaults(http: Http, shape: str) -> None:
    http.apply(shape, of_shape(parts=[{"name": "x", "weight": 1}]))
    near = {"name": "x", "zone": "near", "weight": 2}
    reply = http.apply(shape, of_shape(parts=[near]), manager="two")
    assert [part["zone"] for part in reply.body["spec"]["parts"]] == ["any", "near"]
    again = {"name": "x", "zone": "any", "weight": 3}
    assert http.apply(shape, of_shape(parts=[again]), manager="two").code == 409


def test_unowned_fields_of_an_item_stay_with_the_item(http: Http, shape: str) -> None:
    http.apply(shape, of_shape(parts=[{"name": "x", "weight": 1}]))
    http.apply(shape, of_shape(parts=[{"name": "x"}]), manager="two")
    path = {"op": "add", "path": "/spec/parts/0/note", "value": "mine"}
    found = http("PATCH", shape, [path], content_type="application/json-patch+json").body
    left = [e for e in found["metadata"]["managedFields"] if e["manager"] != "contract"]
    http.merge(shape, {"metadata": {"managedFields": left}})
    reply = http.apply(shape, of_shape())
    assert reply.body["spec"]["parts"] == [{"name": "x", "zone": "any", "note": "mine"}]


def test_an_atomic_map_has_one_manager(http: Http, shape: str) -> None:
    http.apply(shape, of_shape(whole={"a": "1"}))
    reply = http.apply(shape, of_shape(whole={"b": "1"}), manager="two")
    assert [cause["field"] for cause in reply.causes] == [".spec.whole"]
    forced = http.apply(shape, of_shape(whole={"b": "1"}), manager="two", force="true")
    assert forced.body["spec"]["whole"] == {"b": "1"}


def test_a_map_is_managed_key_by_key(http: Http, shape: str) -> None:
    http.apply(shape, of_shape(loose={"a": "1"}))
    reply = http.apply(shape, of_shape(loose={"b": "1"}), manager="two")
    assert reply.body["spec"]["loose"] == {"a": "1", "b": "1"}
    gone = http.apply(shape, of_shape())
    assert gone.body["spec"]["loose"] == {"b": "1"}


def test_unknown_fields_merge_as_maps_and_replace_lists(http: Http, shape: str) -> None:
    http.apply(shape, of_shape(free={"a": {"x": 1, "l": [1]}}))
    reply = http.apply(shape, of_shape(free={"a": {"y": 2}}), manager="two")
    assert reply.body["spec"]["free"] == {"a": {"x": 1, "l": [1], "y": 2}}
    assert http.apply(shape, of_shape(free={"a": {"l": [2]}}), manager="two").code == 409


@pytest.mark.parametrize(
    "spec",
    [
        {"unknown": 1},
        {"size": "big"},
        {"names": ["a", "a"]},
        {"parts": [{"weight": 1, "zone": None}]},
        {"parts": [{"name": "a"}, {"name": "a", "zone": "any"}]},
        {"parts": ["a"]},
        {"names": [{"a": 1}]},
        {"amount": {"a": 1}},
        {"loose": {"a": 1}},
    ],
    ids=[
        "unknown", "type", "repeated", "nameless", "repeated-key", "no-map", "no-scalar", "amount",
        "value",
    ],
)  # fmt: skip
def test_a_custom_configuration_that_does_not_fit_is_refused(
    http: Http, shape: str, spec: Any
) -> None:
    assert http.apply(shape, of_shape(**spec)).code >= 400


def test_the_status_of_a_custom_object_has_a_separate_owner(http: Http, shape: str) -> None:
    http.apply(shape, of_shape(size=2))
    body = {**of_shape(size=9), "status": {"phase": "Done"}}
    body["metadata"]["labels"] = {"l": "1"}
    reply = http.apply(f"{shape}/status", body, manager="controller")
    assert reply.body["spec"]["size"] == 2
    assert reply.body["status"] == {"phase": "Done"}
    assert fields(reply.body, "controller", subresource="status") == {"f:status": {"f:phase": {}}}


def test_a_custom_object_with_its_generation(http: Http, shape: str) -> None:
    first = http.apply(shape, of_shape(size=2)).body["metadata"]["generation"]
    second = http.apply(shape, of_shape(size=3)).body["metadata"]["generation"]
    assert (first, second) == (1, 2)


# kubectl


def client_side(body: dict[str, Any]) -> dict[str, Any]:
    """Return an object as `kubectl apply` creates it."""
    noted = json.dumps(body, separators=(",", ":"), sort_keys=True) + "\n"
    metadata = {**body["metadata"], "annotations": {LAST_APPLIED: noted}}
    return {**body, "metadata": metadata}


def test_kubectl_takes_over_fields_that_it_applied_client_side(http: Http, maps: str) -> None:
    http.create(
        maps, client_side(config_map("a", x="1", y="1")), fieldManager="kubectl-client-side-apply"
    )
    reply = http.apply(f"{maps}/a", config_map("a", x="2", y="1"), manager="kubectl")
    assert reply.code == 200
    noted = json.loads(reply.body["metadata"]["annotations"][LAST_APPLIED])
    assert noted["data"] == {"x": "2", "y": "1"}
    assert fields(reply.body, "kubectl") == {"f:data": {"f:x": {}, "f:y": {}}}


def test_kubectl_does_not_take_fields_that_others_changed_since(http: Http, maps: str) -> None:
    http.create(maps, client_side(config_map("a", x="1")), fieldManager="kubectl-client-side-apply")
    http.merge(f"{maps}/a", {"data": {"x": "5"}}, fieldManager="other")
    assert http.apply(f"{maps}/a", config_map("a", x="2"), manager="kubectl").code == 409


def test_another_manager_takes_nothing_over(http: Http, maps: str) -> None:
    http.create(maps, client_side(config_map("a", x="1")), fieldManager="kubectl-client-side-apply")
    assert http.apply(f"{maps}/a", config_map("a", x="2"), manager="mine").code == 409


def test_kubectl_migrates_the_managers_of_an_object(http: Http, maps: str) -> None:
    """`kubectl apply --server-side` does this before it applies: its updates become an apply."""
    found = http.create(
        maps, client_side(config_map("a", x="1", y="1")), fieldManager="kubectl-client-side-apply"
    )
    [entry] = found["metadata"]["managedFields"]
    steps = [
        {"op": "replace", "path": "/metadata/managedFields",
         "value": [{**entry, "manager": "kubectl", "operation": "Apply"}]},
        {"op": "replace", "path": "/metadata/resourceVersion",
         "value": found["metadata"]["resourceVersion"]},
    ]  # fmt: skip
    patched = http("PATCH", f"{maps}/a", steps, content_type="application/json-patch+json")
    assert patched.code == 200
    reply = http.apply(f"{maps}/a", config_map("a", x="1"), manager="kubectl")
    assert reply.body["data"] == {"x": "1"}


def test_a_watch_shows_the_managed_fields(http: Http, maps: str) -> None:
    before = http("GET", maps).body["metadata"]["resourceVersion"]
    http.apply(f"{maps}/a", config_map("a", x="1"))
    [event] = http.watch(maps, 1, resourceVersion=before)
    assert fields(event["object"], "one") == {"f:data": {"f:x": {}}}
