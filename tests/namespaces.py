"""Namespaces of a test's own, on a server with or without controllers."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

from navarchos.client import Client

__all__ = ["namespace_of_its_own"]

# What tests leave in their namespaces; a server without controllers does not tidy up.
_LEFT = (
    "/api/v1/{}/pods",
    "/api/v1/{}/configmaps",
    "/api/v1/{}/events",
    "/api/v1/{}/services",
    "/api/v1/{}/serviceaccounts",
    "/apis/apps/v1/{}/deployments",
    "/apis/apps/v1/{}/replicasets",
    "/apis/apps/v1/{}/statefulsets",
    "/apis/apps/v1/{}/daemonsets",
    "/apis/batch/v1/{}/jobs",
    "/apis/policy/v1/{}/poddisruptionbudgets",
    "/apis/coordination.k8s.io/v1/{}/leases",
)
_AT_ONCE = {"gracePeriodSeconds": "0", "propagationPolicy": "Background"}


@contextmanager
def namespace_of_its_own(client: Client, prefix: str) -> Iterator[str]:
    """Make a namespace in which pods can be created; empty and remove it at the end."""
    made = client.raw("POST", "/api/v1/namespaces", body={"metadata": {"generateName": prefix}})
    assert made.status == HTTPStatus.CREATED, made.body
    name: str = json.loads(made.body)["metadata"]["name"]
    # Pods need one, and there may be no controller that makes it.
    account = {"metadata": {"name": "default"}}
    client.raw("POST", f"/api/v1/namespaces/{name}/serviceaccounts", body=account)
    try:
        yield name
    finally:
        _remove(client, name)


def _remove(client: Client, name: str) -> None:
    path = f"/api/v1/namespaces/{name}"
    client.raw("DELETE", path)
    found = client.raw("GET", path)
    if found.status == HTTPStatus.NOT_FOUND:
        return
    for left in _LEFT:
        client.raw("DELETE", left.format(f"namespaces/{name}"), query=_AT_ONCE)
    final: dict[str, Any] = {**json.loads(found.body), "spec": {"finalizers": []}}
    client.raw("PUT", f"{path}/finalize", body=final)
