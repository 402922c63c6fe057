"""New namespaces for a test, on a server with or without controllers."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

from navarchos.client import Client

__all__ = ["namespace_of_its_own", "namespaces_of_their_own"]

# The kinds that tests create; a server without controllers does not delete them.
_LEFT = (
    ("/api/v1", "pods"),
    ("/api/v1", "configmaps"),
    ("/api/v1", "events"),
    ("/api/v1", "services"),
    ("/api/v1", "serviceaccounts"),
    ("/apis/apps/v1", "deployments"),
    ("/apis/apps/v1", "replicasets"),
    ("/apis/apps/v1", "statefulsets"),
    ("/apis/apps/v1", "daemonsets"),
    ("/apis/batch/v1", "jobs"),
    ("/apis/policy/v1", "poddisruptionbudgets"),
    ("/apis/coordination.k8s.io/v1", "leases"),
)
_AT_ONCE = {"gracePeriodSeconds": "0", "propagationPolicy": "Background"}
_NAMESPACES = "/api/v1/namespaces"


@contextmanager
def namespace_of_its_own(client: Client, prefix: str) -> Iterator[str]:
    """Create a namespace in which pods can be created; remove it with its contents at the end."""
    with namespaces_of_their_own(client, prefix) as make:
        yield make()


@contextmanager
def namespaces_of_their_own(client: Client, prefix: str) -> Iterator[Callable[[], str]]:
    """Create several such namespaces and remove them together at the end.

    Removing them together is faster: the next list of a real server waits until its cache
    contains the last write.
    """
    made: list[str] = []

    def make() -> str:
        answer = client.raw("POST", _NAMESPACES, body={"metadata": {"generateName": prefix}})
        assert answer.status == HTTPStatus.CREATED, answer.body
        made.append(json.loads(answer.body)["metadata"]["name"])
        # Pods need a service account, and the server may have no controller that creates it.
        account = {"metadata": {"name": "default"}}
        client.raw("POST", f"{_NAMESPACES}/{made[-1]}/serviceaccounts", body=account)
        return made[-1]

    try:
        yield make
    finally:
        _remove(client, made)


def _remove(client: Client, names: list[str]) -> None:
    for name in names:
        client.raw("DELETE", f"{_NAMESPACES}/{name}")
    found = {name: client.raw("GET", f"{_NAMESPACES}/{name}") for name in names}
    there: dict[str, Any] = {
        name: json.loads(answer.body)
        for name, answer in found.items()
        if answer.status != HTTPStatus.NOT_FOUND
    }
    for api, plural in _LEFT:
        for name in _inhabited(client, api, plural, set(there)):
            client.raw("DELETE", f"{api}/namespaces/{name}/{plural}", query=_AT_ONCE)
    for name, body in there.items():
        final: Mapping[str, Any] = {**body, "spec": {"finalizers": []}}
        client.raw("PUT", f"{_NAMESPACES}/{name}/finalize", body=final)


def _inhabited(client: Client, api: str, plural: str, names: set[str]) -> set[str]:
    """Return the namespaces that may contain objects of a kind."""
    if len(names) < 2:
        return names  # a list costs as much as a delete
    listed = json.loads(client.raw("GET", f"{api}/{plural}").body)["items"]
    return names & {item["metadata"]["namespace"] for item in listed}
