"""A write of a subresource changes only that, on either server."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.contract.objects import pod
from tests.servers import Served

from navarchos.client import Client, Resource, ResourceClient

pytestmark = pytest.mark.unrecorded("other cases ask for the same over HTTP")

PODS: Resource[dict[str, Any]] = Resource("", "v1", "pods", "Pod", namespaced=True, type=dict)


@pytest.fixture
def pods(served: Served, namespace: str) -> Iterator[ResourceClient[dict[str, Any]]]:
    with Client(served.config) as client:
        yield client.resource(PODS).in_namespace(namespace)


@pytest.mark.rule("CL-14")
@pytest.mark.parametrize("verb", ["patch", "replace"])
def test_status_and_spec_are_written_separately(
    pods: ResourceClient[dict[str, Any]], verb: str
) -> None:
    pods.create(pod("p"))
    whole = pods.get("p")
    spec = {**whole["spec"], "activeDeadlineSeconds": 100}
    changed = {**whole, "spec": spec, "status": {**whole["status"], "phase": "Running"}}
    write = pods.patch if verb == "patch" else pods.replace
    found = write("p", changed, subresource="status")
    assert found["status"]["phase"] == "Running"
    assert "activeDeadlineSeconds" not in found["spec"]
    changed["metadata"] = found["metadata"]
    changed["status"] = {**whole["status"], "phase": "Failed"}
    found = write("p", changed)
    assert found["status"]["phase"] == "Running"
    assert found["spec"]["activeDeadlineSeconds"] == 100
