"""Accounts with rights and tokens."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from tests.integration.framework.waiting import until

from navarchos.client import Client, ClientConfig, Resource

__all__ = ["Account", "account_in"]

_RBAC = "rbac.authorization.k8s.io"


def _json(group: str, plural: str, kind: str, *, namespaced: bool = False) -> Resource[Any]:
    return Resource(group, "v1", plural, kind, namespaced=namespaced, type=dict)


_ACCOUNTS = _json("", "serviceaccounts", "ServiceAccount", namespaced=True)
_ROLES = _json(_RBAC, "clusterroles", "ClusterRole")
_BINDINGS = _json(_RBAC, "clusterrolebindings", "ClusterRoleBinding")


_REVIEWS = _json("authorization.k8s.io", "subjectaccessreviews", "SubjectAccessReview")


class Account:
    """A service account without permissions, until a test grants some.

    Attributes:
        namespace: Where it lives.
        name: Its name; its role in the cluster is named after its namespace.
    """

    name = "tester"

    def __init__(self, client: Client, config: ClientConfig, namespace: str) -> None:
        self.namespace = namespace
        self._client = client
        self._config = config

    @property
    def user(self) -> str:
        """How the server calls it."""
        return f"system:serviceaccount:{self.namespace}:{self.name}"

    def may(self, group: str, resource: str, *verbs: str) -> None:
        """Grant something in the whole cluster; returns once the authorizer knows it."""
        self._grant({"apiGroups": [group], "resources": [resource], "verbs": list(verbs)})
        for verb in verbs:
            asked = {"group": group, "resource": resource, "verb": verb}
            until(partial(self._is_allowed, resourceAttributes=asked))

    def may_get(self, path: str) -> None:
        """Grant to `get` a path outside the resources; returns once the authorizer knows it."""
        self._grant({"nonResourceURLs": [path], "verbs": ["get"]})
        asked = {"path": path, "verb": "get"}
        until(lambda: self._is_allowed(nonResourceAttributes=asked))

    def token(self) -> str:
        """Return a new token."""
        accounts = self._client.resource(_ACCOUNTS)
        return accounts.request_token(self.name, self.namespace, expiration_seconds=600).token

    def config(self, token: str = "") -> ClientConfig:
        """Return how a client reaches the server as this account, by a new token."""
        header = f"Bearer {token or self.token()}"
        return replace(
            self._config, cert_file=None, key_file=None, authorization=lambda: header, renew=None
        )

    def _grant(self, rule: Mapping[str, object]) -> None:
        roles = self._client.resource(_ROLES)
        rules = roles.get(self.namespace).get("rules") or []
        roles.patch(self.namespace, {"rules": [*rules, rule]})

    def _is_allowed(self, **asked: Mapping[str, str]) -> bool:
        spec = {"user": self.user, **asked}
        answer: Any = self._client.resource(_REVIEWS).create({"spec": spec})
        return bool(answer["status"]["allowed"])


@contextmanager
def account_in(namespace: str, client: Client, config: ClientConfig) -> Iterator[Account]:
    """Make an account in a namespace that is removed afterwards."""
    metadata = {"name": namespace}
    client.resource(_ACCOUNTS).create({"metadata": {"name": Account.name}}, namespace)
    client.resource(_ROLES).create({"metadata": metadata, "rules": []})
    client.resource(_BINDINGS).create(
        {
            "metadata": metadata,
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": namespace},
            "subjects": [{"kind": "ServiceAccount", "name": Account.name, "namespace": namespace}],
        }
    )
    yield Account(client, config, namespace)
    for resource in (_BINDINGS, _ROLES):
        client.resource(resource).delete(namespace)
