"""Discovery, version, health, OpenAPI."""

import pytest
from tests.contract.exchanges import Http

pytestmark = pytest.mark.unrecorded("what is served is not the same")

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/livez"])
def test_health_is_plain_text(http: Http, path: str) -> None:
    reply = http("GET", path)
    assert (reply.code, reply.body) == (200, "ok")


def test_version_tells_major_and_minor(http: Http) -> None:
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


def test_a_group_names_its_preferred_version(http: Http) -> None:
    body = http("GET", "/apis/apps").body
    assert body["kind"] == "APIGroup"
    assert body["preferredVersion"]["groupVersion"] == "apps/v1"


def test_openapi_documents_say_what_may_be_validated(http: Http) -> None:
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
