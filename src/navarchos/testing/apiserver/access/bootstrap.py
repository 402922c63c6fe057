"""The roles and bindings that every cluster has, for the kinds that are served here.

After kube-apiserver's `bootstrappolicy`, without the roles of its controllers, of
nodes, and of kinds that nobody here can ask for.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from navarchos.testing.apiserver.access.authorizer import RBAC_GROUP
from navarchos.testing.apiserver.access.users import AUTHENTICATED, MASTERS, UNAUTHENTICATED
from navarchos.testing.apiserver.objects import JsonObject

__all__ = ["bootstrap_roles"]

_READ: Final = ("get", "list", "watch")
_WRITE: Final = ("create", "delete", "deletecollection", "patch", "update")
_METADATA: Final = {
    "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
    "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
}
_HEALTH: Final = ("/healthz", "/livez", "/readyz", "/version", "/version/")
_DISCOVERY: Final = (
    "/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*",
    "/readyz", "/version", "/version/",
)  # fmt: skip
_REVIEWS: Final = "authorization.k8s.io"
_TOKENS: Final = "authentication.k8s.io"


def _rule(verbs: Sequence[str], group: str, *resources: str) -> JsonObject:
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}


def _paths(*paths: str, verb: str = "get") -> JsonObject:
    return {"nonResourceURLs": list(paths), "verbs": [verb]}


_VIEW: Final = (
    _rule(
        _READ, "", "configmaps", "events", "namespaces", "namespaces/status",
        "persistentvolumeclaims", "persistentvolumeclaims/status", "pods", "pods/log",
        "pods/status", "serviceaccounts", "services", "services/status",
    ),
    _rule(_READ, "events.k8s.io", "events"),
    _rule(
        _READ, "apps", "controllerrevisions", "daemonsets", "daemonsets/status", "deployments",
        "deployments/scale", "deployments/status", "replicasets", "replicasets/scale",
        "replicasets/status", "statefulsets", "statefulsets/scale", "statefulsets/status",
    ),
    _rule(_READ, "batch", "cronjobs", "cronjobs/status", "jobs", "jobs/status"),
    _rule(_READ, "policy", "poddisruptionbudgets", "poddisruptionbudgets/status"),
)  # fmt: skip
_INTO_PODS: Final = ("pods/attach", "pods/exec", "pods/portforward", "pods/proxy")
_EDIT: Final = (
    _rule(_READ, "", *_INTO_PODS, "secrets", "services/proxy"),
    _rule(("impersonate",), "", "serviceaccounts"),
    _rule(_WRITE, "", "pods", *_INTO_PODS),
    _rule(("create",), "", "pods/eviction", "serviceaccounts/token"),
    _rule(
        _WRITE, "", "configmaps", "events", "persistentvolumeclaims", "secrets",
        "serviceaccounts", "services", "services/proxy",
    ),
    _rule(_WRITE, "events.k8s.io", "events"),
    _rule(
        _WRITE, "apps", "daemonsets", "deployments", "deployments/scale", "replicasets",
        "replicasets/scale", "statefulsets", "statefulsets/scale",
    ),
    _rule(_WRITE, "batch", "cronjobs", "jobs"),
    _rule(_WRITE, "policy", "poddisruptionbudgets"),
    _rule((*_READ, *_WRITE), "coordination.k8s.io", "leases"),
)  # fmt: skip
_ADMIN: Final = (
    _rule(("create",), _REVIEWS, "localsubjectaccessreviews"),
    _rule((*_READ, *_WRITE), RBAC_GROUP, "roles", "rolebindings"),
)
_ROLES: Final[Mapping[str, Sequence[JsonObject]]] = {
    "cluster-admin": (_rule("*", "*", "*"), _paths("*", verb="*")),
    "system:aggregate-to-admin": _ADMIN,
    "system:aggregate-to-edit": _EDIT,
    "system:aggregate-to-view": _VIEW,
    "system:auth-delegator": (
        _rule(("create",), _TOKENS, "tokenreviews"),
        _rule(("create",), _REVIEWS, "subjectaccessreviews"),
    ),
    "system:basic-user": (
        _rule(("create",), _REVIEWS, "selfsubjectaccessreviews", "selfsubjectrulesreviews"),
        _rule(("create",), _TOKENS, "selfsubjectreviews"),
    ),
    "system:discovery": (_paths(*_DISCOVERY),),
    "system:public-info-viewer": (_paths(*_HEALTH),),
}
_AGGREGATED: Final = {"admin": "", "edit": "admin", "view": "edit"}
"""Roles that gather others, and the one that gathers them."""

_BINDINGS: Final[Mapping[str, Sequence[str]]] = {
    "cluster-admin": (MASTERS,),
    "system:basic-user": (AUTHENTICATED,),
    "system:discovery": (AUTHENTICATED,),
    "system:public-info-viewer": (AUTHENTICATED, UNAUTHENTICATED),
}


def bootstrap_roles() -> Iterator[JsonObject]:
    """Iterate the cluster roles and bindings that are there from the beginning."""
    for name, rules in _ROLES.items():
        labels = {}
        if name.startswith("system:aggregate-to-"):
            labels = {_label(name.removeprefix("system:aggregate-to-")): "true"}
        yield {**_object("ClusterRole", name, labels), "rules": list(rules)}
    for name, into in _AGGREGATED.items():
        role = _object("ClusterRole", name, {_label(into): "true"} if into else {})
        selector = {"matchLabels": {_label(name): "true"}}
        yield {**role, "aggregationRule": {"clusterRoleSelectors": [selector]}}
    for name, groups in _BINDINGS.items():
        yield {
            **_object("ClusterRoleBinding", name, {}),
            "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": name},
            "subjects": [
                {"apiGroup": RBAC_GROUP, "kind": "Group", "name": group} for group in groups
            ],
        }


def _label(role: str) -> str:
    return f"rbac.authorization.k8s.io/aggregate-to-{role}"


def _object(kind: str, name: str, labels: Mapping[str, str]) -> JsonObject:
    metadata = {
        "name": name,
        "labels": {**_METADATA["labels"], **labels},
        "annotations": dict(_METADATA["annotations"]),
    }
    return {"apiVersion": f"{RBAC_GROUP}/v1", "kind": kind, "metadata": metadata}
