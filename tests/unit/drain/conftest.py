"""Pods as the server sends them, and servers that are a function."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest

from navarchos.client import BufferedResponse, Client, ClientConfig, FunctionTransport, HttpRequest
from navarchos.drain import Pod

REPLICA_SET = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs"}
DAEMON_SET = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "ds"}


def pod(
    name: str = "web-1",
    namespace: str = "default",
    *,
    owner: Mapping[str, Any] | None = REPLICA_SET,
    phase: str = "Running",
    ready: bool = True,
    empty_dir: bool = False,
    mirror: bool = False,
    terminating_at: str = "",
    labels: Mapping[str, str] | None = None,
    priority_class: str = "",
    uid: str = "",
) -> Pod:
    metadata: dict[str, Any] = {"name": name, "namespace": namespace, "uid": uid or f"uid-{name}"}
    if owner:
        metadata["ownerReferences"] = [{**owner, "controller": True}]
    if mirror:
        metadata["annotations"] = {"kubernetes.io/config.mirror": "abc"}
    if terminating_at:
        metadata["deletionTimestamp"] = terminating_at
    if labels:
        metadata["labels"] = dict(labels)
    volumes = [{"name": "tmp", "emptyDir": {}}] if empty_dir else [{"name": "c", "configMap": {}}]
    wire = {
        "metadata": metadata,
        "spec": {"nodeName": "n1", "volumes": volumes, "priorityClassName": priority_class},
        "status": {
            "phase": phase,
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }
    return msgspec.convert(wire, Pod)


@pytest.fixture(scope="session")
def make_pod() -> Callable[..., Pod]:
    return pod


@pytest.fixture
def daemon_set() -> Mapping[str, Any]:
    return DAEMON_SET


@pytest.fixture
def client_of() -> Callable[[Callable[[HttpRequest], BufferedResponse]], Client]:
    def make(answer: Callable[[HttpRequest], BufferedResponse]) -> Client:
        return Client(ClientConfig(host="http://127.0.0.1:1"), transport=FunctionTransport(answer))

    return make
