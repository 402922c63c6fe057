"""Server-side apply by the client on either server, and token requests."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from tests.servers import Served

from navarchos.client import Client, Conflict, Resource, ResourceClient
from navarchos.meta import Object

pytestmark = pytest.mark.unrecorded("other cases ask for the same over HTTP")


class ConfigMap(Object, frozen=True):
    data: Mapping[str, str] = {}


MAPS = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True, type=ConfigMap)
PODS: Resource[dict[str, Any]] = Resource("", "v1", "pods", "Pod", namespaced=True, type=dict)
ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount", namespaced=True, type=Object)


@pytest.fixture
def client(served: Served) -> Iterator[Client]:
    with Client(served.config) as client:
        yield client


@pytest.fixture
def maps(client: Client, namespace: str) -> ResourceClient[ConfigMap]:
    return client.resource(MAPS).in_namespace(namespace)


@pytest.mark.rule("CL-10")
def test_applying_creates_changes_and_removes_omitted_fields(
    maps: ResourceClient[ConfigMap],
) -> None:
    mine = maps.with_defaults(field_manager="me")
    assert mine.apply("a", {"data": {"x": "1", "y": "2"}}).data == {"x": "1", "y": "2"}
    maps.patch("a", {"data": {"z": "3"}}, field_manager="you")
    assert mine.apply("a", {"data": {"x": "4"}}).data == {"x": "4", "z": "3"}
    mine.with_defaults(dry_run=True).apply("a", {"data": {"x": "5"}})
    assert maps.get("a").data["x"] == "4"


@pytest.mark.rule("CL-10")
def test_a_field_of_another_manager_conflicts_unless_forced(
    maps: ResourceClient[ConfigMap],
) -> None:
    maps.apply("a", {"data": {"x": "1"}}, field_manager="you")
    with pytest.raises(Conflict) as caught:
        maps.apply("a", {"data": {"x": "2"}}, field_manager="me")
    (cause,) = caught.value.causes
    assert (cause.type, cause.field) == ("FieldManagerConflict", ".data.x")
    assert '"you"' in cause.message
    assert maps.get("a").data == {"x": "1"}
    forced = maps.apply("a", {"data": {"x": "2"}}, field_manager="me", force=True)
    assert forced.data == {"x": "2"}


@pytest.mark.rule("CL-10")
def test_a_status_can_be_applied(client: Client, namespace: str) -> None:
    pods = client.resource(PODS).in_namespace(namespace).with_defaults(field_manager="me")
    pods.apply("p", {"spec": {"containers": [{"name": "c", "image": "pause:3"}]}})
    condition = {"type": "example.com/Ready", "status": "True"}
    found = pods.apply("p", {"status": {"conditions": [condition]}}, subresource="status")
    types = [entry["type"] for entry in found["status"]["conditions"]]
    assert "example.com/Ready" in types
    assert found["spec"]["containers"][0]["image"] == "pause:3"


def test_a_token_can_be_requested(client: Client, namespace: str) -> None:
    accounts = client.resource(ACCOUNTS).in_namespace(namespace)
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer: Any = accounts.create_subresource("default", "token", body)
    assert answer["status"]["token"].count(".") == 2
