"""A cluster for cases, with an administrator's access."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from tests.cases.waiting import wait_for

from navarchos.client import Client, ClientSettings, NotFound, Resource, ResourceClient
from navarchos.client.options import ListOptions
from navarchos.operator.api.v1alpha1 import NODE_DRAINS, NODE_REPLACEMENTS, NODE_ROLLOUTS
from navarchos.testing.controlplane import AuditEvent
from navarchos.testing.controlplane.credentials import write_private

__all__ = ["CONFIG", "GROUP", "KINDS", "Target"]

JsonObject = dict[str, Any]

CONFIG: Final = Path(__file__).parents[2] / "config"
GROUP: Final = NODE_ROLLOUTS.group

_BUILT_IN: Final = (
    ("v1", "namespaces", "Namespace", False),
    ("v1", "nodes", "Node", False),
    ("v1", "pods", "Pod", True),
    ("v1", "serviceaccounts", "ServiceAccount", True),
    ("apps/v1", "deployments", "Deployment", True),
    ("apps/v1", "replicasets", "ReplicaSet", True),
    ("apps/v1", "statefulsets", "StatefulSet", True),
    ("apps/v1", "daemonsets", "DaemonSet", True),
    ("batch/v1", "jobs", "Job", True),
    ("policy/v1", "poddisruptionbudgets", "PodDisruptionBudget", True),
    ("coordination.k8s.io/v1", "leases", "Lease", True),
    ("events.k8s.io/v1", "events", "Event", True),
    (
        "admissionregistration.k8s.io/v1",
        "validatingwebhookconfigurations",
        "ValidatingWebhookConfiguration",
        False,
    ),
)


def _built_in(api_version: str, plural: str, kind: str, namespaced: bool) -> Resource[JsonObject]:
    group, _, version = api_version.rpartition("/")
    return Resource(group, version, plural, kind, namespaced=namespaced, type=dict)


KINDS: Final[Mapping[str, Resource[JsonObject]]] = {
    resource.kind: resource
    for resource in (
        *(_built_in(*each) for each in _BUILT_IN),
        NODE_ROLLOUTS.projected(dict),
        NODE_REPLACEMENTS.projected(dict),
        NODE_DRAINS.projected(dict),
    )
}
"""The kinds that cases write or read, by name; objects are plain dictionaries."""


@dataclass(frozen=True)
class Target:
    """A cluster with an administrator's access.

    Attributes:
        kubeconfig: The administrator's kubeconfig.
        client: The administrator's client, for changes that cases make.
        audit: Reads the audit log from its beginning; `None` where it cannot be read.
        has_accounts: Whether pods need a service account, and managers permissions.
        runs_kwok: Whether kwok is the kubelet of nodes that are marked for it.
        lacks_kubelets: Whether nodes of cases have no kubelets, so that each case must
            bring them.
    """

    kubeconfig: Path
    client: Client
    audit: Callable[[], Iterator[AuditEvent]] | None = None
    has_accounts: bool = True
    runs_kwok: bool = True
    lacks_kubelets: bool = False

    def of(self, kind: str) -> ResourceClient[JsonObject]:
        """Return the client of a kind."""
        return self.client.resource(KINDS[kind])

    def create(self, *manifests: JsonObject) -> list[JsonObject]:
        """Create objects. After a namespace, wait until pods can be created in it."""
        made = []
        for manifest in manifests:
            namespace = manifest["metadata"].get("namespace", "")
            made.append(self.of(manifest["kind"]).create(manifest, namespace))
            if manifest["kind"] == "Namespace" and self.has_accounts:
                name = manifest["metadata"]["name"]
                wait_for(
                    f"the service account of namespace {name}",
                    lambda: self.find("ServiceAccount", "default", name),  # noqa: B023 - called at once
                )
        return made

    def get(self, kind: str, name: str, namespace: str = "") -> JsonObject:
        """Return an object."""
        return self.of(kind).get(name, namespace)

    def find(self, kind: str, name: str, namespace: str = "") -> JsonObject | None:
        """Return an object, or `None`."""
        try:
            return self.get(kind, name, namespace)
        except NotFound:
            return None

    def list(self, kind: str, namespace: str = "", *, label_selector: str = "") -> list[JsonObject]:
        """Return the objects of a kind."""
        options = ListOptions(label_selector=label_selector)
        return self.of(kind).list(namespace, options).items

    def patch(
        self, kind: str, name: str, body: JsonObject, namespace: str = "", subresource: str = ""
    ) -> JsonObject:
        """Change an object by a merge patch."""
        return self.of(kind).patch(name, body, namespace, subresource=subresource)

    def connect(self, user_agent: str) -> Client:
        """Return another client of the administrator. The caller must close it."""
        return Client.from_config(
            kubeconfig=self.kubeconfig, settings=ClientSettings(user_agent=user_agent)
        )

    def write_account_kubeconfig(self, path: Path, namespace: str, name: str) -> None:
        """Write a kubeconfig with a token of a service account."""
        body = {"spec": {"expirationSeconds": 3600}}
        accounts = self.of("ServiceAccount")
        answer: Any = accounts.create_subresource(name, "token", body, namespace)
        config = yaml.safe_load(self.kubeconfig.read_text(encoding="utf-8"))
        (context,) = (c for c in config["contexts"] if c["name"] == config["current-context"])
        context["context"] |= {"user": name, "namespace": namespace}
        config["contexts"] = [context]
        config["users"] = [{"name": name, "user": {"token": answer["status"]["token"]}}]
        write_private(path, json.loads(json.dumps(config)))
