"""Paths and names of resources."""

import pytest

from navarchos.client import Resource
from navarchos.errors import ConfigError

PODS = Resource("", "v1", "pods", "Pod", namespaced=True, type=dict)
NODES = Resource("", "v1", "nodes", "Node", namespaced=False, type=dict)
ROLLOUTS = Resource("example.com", "v1alpha1", "rollouts", "Rollout", namespaced=False, type=dict)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (PODS.path(), "/api/v1/pods"),
        (PODS.path("web"), "/api/v1/namespaces/web/pods"),
        (PODS.path("web", "a"), "/api/v1/namespaces/web/pods/a"),
        (PODS.path("web", "a", "eviction"), "/api/v1/namespaces/web/pods/a/eviction"),
        (NODES.path("", "n1"), "/api/v1/nodes/n1"),
        (ROLLOUTS.path("", "r", "status"), "/apis/example.com/v1alpha1/rollouts/r/status"),
        (ROLLOUTS.path("", "a b?"), "/apis/example.com/v1alpha1/rollouts/a%20b%3F"),
    ],
)
def test_a_path_names_group_scope_object_and_subresource(path: str, expected: str) -> None:
    assert path == expected


@pytest.mark.parametrize(
    ("resource", "arguments", "setting"),
    [
        (NODES, ("web",), "namespace"),
        (PODS, ("", "a"), "namespace"),
        (PODS, ("web", ".."), "name"),
        (PODS, ("web", "a/b"), "name"),
        (PODS, ("web", "", "status"), "name"),
    ],
)
def test_a_path_that_would_mean_something_else_is_refused(
    resource: Resource[dict[str, object]], arguments: tuple[str, ...], setting: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        resource.path(*arguments)
    assert caught.value.name == setting


def test_the_name_is_that_of_kubectl() -> None:
    assert str(PODS) == "pods"
    assert str(ROLLOUTS) == "rollouts.example.com"
    assert PODS.api_version == "v1"
    assert ROLLOUTS.api_version == "example.com/v1alpha1"


def test_a_projection_is_the_same_kind_with_another_type() -> None:
    projected = NODES.projected(str)
    assert projected.type is str
    assert projected.path() == NODES.path()
    kinds: set[object] = {NODES, projected}
    assert len(kinds) == 2, "two types are two resources"
