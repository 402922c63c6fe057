"""Subresources that are objects of another kind, on either server."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from tests.contract.objects import pod
from tests.integration.framework.accounts import Account

from navarchos.client import Client, Conflict, Invalid, NotFound, Resource, ResourceClient, Scale
from navarchos.clock import SYSTEM_CLOCK
from navarchos.errors import ConfigError
from navarchos.meta import Object

DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment", namespaced=True, type=Object)
ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount", namespaced=True, type=Object)


@pytest.fixture
def deployments(client: Client, namespace: str) -> ResourceClient[Object]:
    """Verbs in a namespace that has the deployment `d` of three."""
    resource = client.resource(DEPLOYMENTS).in_namespace(namespace)
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod("x")["spec"]}
    selector = {"matchLabels": {"a": "b"}}
    spec = {"replicas": 3, "selector": selector, "template": template}
    resource.create({"metadata": {"name": "d"}, "spec": spec})
    return resource


def test_a_scale_is_read_and_set_as_a_scale(deployments: ResourceClient[Object]) -> None:
    before = deployments.get("d")
    scale = deployments.get_scale("d")
    assert isinstance(scale, Scale)
    assert (scale.spec.replicas, scale.status.selector) == (3, "a=b")
    assert scale.metadata.uid == before.metadata.uid
    version = scale.metadata.resource_version
    assert deployments.set_scale("d", 5, resource_version=version).spec.replicas == 5
    with pytest.raises(Conflict):
        deployments.set_scale("d", 6, resource_version=version)
    assert deployments.set_scale("d", 0, dry_run=True).spec.replicas == 0
    whole: Any = deployments.projected(dict).get("d")
    assert whole["spec"]["replicas"] == 5
    with pytest.raises(NotFound):
        deployments.get_scale("none")


def test_a_scale_is_never_taken_for_the_workload(deployments: ResourceClient[Object]) -> None:
    body = {"spec": {"replicas": 5}}
    writes: tuple[Callable[[], object], ...] = (
        lambda: deployments.patch("d", body, subresource="scale"),
        lambda: deployments.replace("d", body, subresource="scale"),
        lambda: deployments.apply("d", body, subresource="scale", field_manager="m"),
    )
    for write in writes:
        with pytest.raises(ConfigError, match="set_scale"):
            write()
    assert deployments.get_scale("d").spec.replicas == 3


def test_every_verb_on_scale_writes_a_scale(
    deployments: ResourceClient[Object],
) -> None:
    scales = deployments.projected(Scale)
    whole = {"metadata": {"name": "d"}, "spec": {"replicas": 4}}
    assert scales.replace("d", whole, subresource="scale").spec.replicas == 4
    untyped: Any = deployments.projected(dict).patch(
        "d", {"spec": {"replicas": 2}}, subresource="scale"
    )
    assert (untyped["kind"], untyped["spec"]["replicas"]) == ("Scale", 2)
    read: Any = deployments.get_subresource("d", "scale")
    assert (read["kind"], read["spec"]["replicas"]) == ("Scale", 2)


def test_a_token_of_an_account_is_valid_until_its_expiration(
    client: Client, account: Account
) -> None:
    accounts = client.resource(ACCOUNTS).in_namespace(account.namespace)
    found = accounts.request_token(account.name, expiration_seconds=1200)
    left = found.expires - SYSTEM_CLOCK.now()
    assert timedelta(seconds=1100) < left <= timedelta(seconds=1210)
    assert found.token not in repr(found)
    config = account.config(found.token)
    account.may("apps", "deployments", "list")
    with Client(config) as holder:
        assert holder.resource(DEPLOYMENTS).list(account.namespace).items == []
    with pytest.raises(Invalid):
        accounts.request_token(account.name, expiration_seconds=1)
    with pytest.raises(NotFound):
        accounts.request_token("nobody")
