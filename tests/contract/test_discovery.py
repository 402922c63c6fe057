"""Discovery, version, health, OpenAPI."""

import pytest
from tests.contract.exchanges import Http
from tests.contract.objects import GROUP

pytestmark = pytest.mark.unrecorded("the servers have different kinds")

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/livez"])
def test_health_is_plain_text(http: Http, path: str) -> None:
    reply = http("GET", path)
    assert (reply.code, reply.body) == (200, "ok")


def test_version_has_major_and_minor(http: Http) -> None:
    body = http("GET", "/version").body
    assert body["major"] == "1"
    assert body["gitVersion"].startswith("v1.")


@pytest.mark.parametrize(("path", "group"), [("/api", ""), ("/apis", "apps")])
def test_aggregated_discovery(http: Http, path: str, group: str) -> None:
    reply = http("GET", path, accept=f"{AGGREGATED},application/json")
    assert reply.headers["Content-Type"] == AGGREGATED
    assert reply.body["kind"] == "APIGroupDiscoveryList"
    groups = {item["metadata"].get("name", ""): item for item in reply.body["items"]}
    resource = groups[group]["versions"][0]["resources"][0]
    assert resource["scope"] in {"Namespaced", "Cluster"}
    assert resource["responseKind"]["kind"]
    assert "list" in resource["verbs"] or "create" in resource["verbs"]


def test_plain_discovery_lists_resources(http: Http) -> None:
    body = http("GET", "/api/v1").body
    held = {r["name"]: r for r in body["resources"]}
    assert held["nodes"]["shortNames"] == ["no"]
    assert held["nodes"]["namespaced"] is False
    assert held["pods"]["categories"] == ["all"]
    assert held["pods/eviction"]["kind"] == "Eviction"
    assert (held["pods/eviction"]["group"], held["pods/eviction"]["version"]) == ("policy", "v1")


READ_AND_WRITTEN = ("get", "patch", "update")
WAYS_IN = ("create", "get")
ALL_WAYS = ("create", "delete", "get", "patch", "update")
SUBRESOURCES: dict[str, tuple[str, tuple[str, ...]]] = {
    "namespaces/finalize": ("Namespace", ("update",)),
    "namespaces/status": ("Namespace", READ_AND_WRITTEN),
    "nodes/proxy": ("NodeProxyOptions", ALL_WAYS),
    "nodes/status": ("Node", READ_AND_WRITTEN),
    "pods/attach": ("PodAttachOptions", WAYS_IN),
    "pods/binding": ("Binding", ("create",)),
    "pods/ephemeralcontainers": ("Pod", READ_AND_WRITTEN),
    "pods/eviction": ("Eviction", ("create",)),
    "pods/exec": ("PodExecOptions", WAYS_IN),
    "pods/log": ("Pod", ("get",)),
    "pods/portforward": ("PodPortForwardOptions", WAYS_IN),
    "pods/proxy": ("PodProxyOptions", ALL_WAYS),
    "pods/resize": ("Pod", READ_AND_WRITTEN),
    "pods/status": ("Pod", READ_AND_WRITTEN),
    "serviceaccounts/token": ("TokenRequest", ("create",)),
    "services/proxy": ("ServiceProxyOptions", ALL_WAYS),
    "services/status": ("Service", READ_AND_WRITTEN),
}
OWNERS = {name.partition("/")[0] for name in SUBRESOURCES}


def test_plain_discovery_lists_subresources_among_the_resources(http: Http) -> None:
    names = []
    for found in http("GET", "/api/v1").body["resources"]:
        owner, slash, _ = found["name"].partition("/")
        if slash and owner in OWNERS:
            names.append(found["name"])
            assert (found["kind"], tuple(found["verbs"])) == SUBRESOURCES[found["name"]]
            assert found["singularName"] == ""
    assert names == list(SUBRESOURCES)


def test_aggregated_discovery_lists_subresources_with_their_resource(http: Http) -> None:
    (core,) = http("GET", "/api", accept=AGGREGATED).body["items"]
    names = []
    for resource in core["versions"][0]["resources"]:
        for found in resource.get("subresources", []) if resource["resource"] in OWNERS else []:
            names.append(f"{resource['resource']}/{found['subresource']}")
            kind, verbs = found["responseKind"]["kind"], tuple(found["verbs"])
            assert (kind, verbs) == SUBRESOURCES[names[-1]]
    assert names == list(SUBRESOURCES)


def test_aggregated_discovery_omits_the_version_of_a_kind_if_it_is_the_same(
    http: Http, widgets: str
) -> None:
    """For custom kinds it always does."""
    found = {}
    for path in ("/api", "/apis"):
        for group in http("GET", path, accept=AGGREGATED).body["items"]:
            for resource in group["versions"][0]["resources"]:
                found[resource["resource"]] = resource["responseKind"]
                for sub in resource.get("subresources", []):
                    name = f"{resource['resource']}/{sub['subresource']}"
                    found[name] = sub["responseKind"]
    for name, group, version, kind in (
        ("pods", "", "", "Pod"),
        ("pods/status", "", "", "Pod"),
        ("pods/log", "", "", "Pod"),
        ("pods/eviction", "policy", "v1", "Eviction"),
        ("deployments", "", "", "Deployment"),
        ("deployments/scale", "autoscaling", "v1", "Scale"),
        ("widgets", GROUP, "v1", "Widget"),
        ("widgets/status", GROUP, "v1", "Widget"),
    ):
        assert found[name] == {"group": group, "version": version, "kind": kind}, name


@pytest.mark.parametrize("method", ["GET", "POST", "PATCH", "DELETE"])
def test_a_namespace_is_finalized_only_by_an_update(
    http: Http, namespace: str, method: str
) -> None:
    path = f"/api/v1/namespaces/{namespace}/finalize"
    assert http(method, path, content_type="application/merge-patch+json").code == 405


def test_a_group_names_its_preferred_version(http: Http) -> None:
    body = http("GET", "/apis/apps").body
    assert body["kind"] == "APIGroup"
    assert body["preferredVersion"]["groupVersion"] == "apps/v1"


def test_openapi_lists_the_query_parameters_of_writes(http: Http) -> None:
    index = http("GET", "/openapi/v3").body["paths"]
    url = index["apis/apps/v1"]["serverRelativeURL"]
    path = url.partition("?")[0]
    document = http("GET", path).body
    assert document["openapi"].startswith("3.0")
    held = "/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
    operation = document["paths"][held]["patch"]
    assert operation["x-kubernetes-group-version-kind"]["kind"] == "Deployment"
    parameters = {p["name"] for p in operation.get("parameters", [])}
    assert "fieldValidation" in parameters
    assert "io.k8s.api.apps.v1.Deployment" in document["components"]["schemas"]
