"""Roles and bindings: the default ones, aggregation, and the check against escalation.

The default ones follow kube-apiserver's `bootstrappolicy`, without the roles of its controllers and
of nodes, and without kinds that this server does not have. Upstream, aggregation is a separate
controller (clusterroleaggregation); here it happens before the response to the write that triggers
it. The check follows `pkg/registry/rbac/*/policybased`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from navarchos.testing.apiserver import objects
from navarchos.testing.apiserver import status as statuses
from navarchos.testing.apiserver.access import users
from navarchos.testing.apiserver.access.authorizer import RBAC_GROUP, Authorizer
from navarchos.testing.apiserver.access.rules import EVERYTHING, Attributes, uncovered
from navarchos.testing.apiserver.selectors import label_selector_matches
from navarchos.testing.apiserver.store import BucketId, Change, Entry, ObjectStore

__all__ = ["ClusterRoleAggregator", "bootstrap_roles", "check_escalation"]

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
_INTO_PODS: Final = ("pods/attach", "pods/exec", "pods/portforward", "pods/proxy")
_AGGREGATED: Final = {"admin": "", "edit": "admin", "view": "edit"}
"""Roles that aggregate other roles, with the role that aggregates them in turn."""
_BINDINGS: Final[Mapping[str, Sequence[str]]] = {
    "cluster-admin": (users.MASTERS,),
    "system:basic-user": (users.AUTHENTICATED,),
    "system:discovery": (users.AUTHENTICATED,),
    "system:public-info-viewer": (users.AUTHENTICATED, users.UNAUTHENTICATED),
}
_CLUSTER_ROLES: Final = BucketId("clusterroles", RBAC_GROUP)
_ROLE_PLURALS: Final = frozenset({"roles", "clusterroles"})
_BINDING_PLURALS: Final = frozenset({"rolebindings", "clusterrolebindings"})
# The metadata that the garbage collector writes; it needs no permissions of the role.
_COLLECTED: Final = ("ownerReferences", "finalizers")
_AGGREGATES: Final = "must have cluster-admin privileges to use the aggregationRule"


def _rule(verbs: Sequence[str], group: str, *resources: str) -> objects.JsonObject:
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}


def _paths(*paths: str, verb: str = "get") -> objects.JsonObject:
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
_ROLES: Final[Mapping[str, Sequence[objects.JsonObject]]] = {
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


def bootstrap_roles() -> Iterator[objects.JsonObject]:
    """Iterate the cluster roles and bindings that exist from the start."""
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


def _object(kind: str, name: str, labels: Mapping[str, str]) -> objects.JsonObject:
    metadata = {
        "name": name,
        "labels": {**_METADATA["labels"], **labels},
        "annotations": dict(_METADATA["annotations"]),
    }
    return {"apiVersion": f"{RBAC_GROUP}/v1", "kind": kind, "metadata": metadata}


class ClusterRoleAggregator:
    """Keeps the rules of cluster roles with an `aggregationRule` up to date.

    Threads: the listener runs under the store's lock.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def on_change(self, change: Change) -> None:
        """Aggregate again after a change of any cluster role."""
        if change.resource != _CLUSTER_ROLES:
            return
        roles = self._store.entries(_CLUSTER_ROLES)
        for role in roles:
            selectors = objects.dig(role.obj, "aggregationRule", "clusterRoleSelectors", default=())
            if not selectors:
                continue
            rules = _aggregated_rules(role, selectors, roles)
            if rules != (role.obj.get("rules") or []):
                # This write calls the listener again, for the roles that aggregate this one.
                self._store.put(
                    _CLUSTER_ROLES,
                    {**role.obj, "metadata": dict(objects.meta(role.obj)), "rules": rules},
                )
                return


def _aggregated_rules(
    role: Entry, selectors: list[objects.JsonObject], roles: list[Entry]
) -> list[objects.JsonObject]:
    found: list[objects.JsonObject] = []
    for selector in selectors:
        for other in roles:
            labels = objects.meta(other.obj).get("labels") or {}
            if other.name != role.name and label_selector_matches(selector, labels):
                found += [rule for rule in other.obj.get("rules") or () if rule not in found]
    return found


def check_escalation(
    authorizer: Authorizer,
    resource: statuses.ResourceName,
    new: objects.JsonObject,
    old: objects.JsonObject | None,
    user: users.User,
) -> None:
    """Refuse a role with permissions that the user lacks, or a binding to such a role.

    Args:
        authorizer: Knows the user's permissions.
        resource: The resource; only roles and bindings are checked.
        new: The object to store.
        old: The stored object; `None` for a new object.
        user: The user of the request.

    Raises:
        StatusError: 403.
    """
    if resource.group != RBAC_GROUP or users.MASTERS in user.groups:
        return
    if old is not None and _without_collected(new) == _without_collected(old):
        return
    if resource.plural in _ROLE_PLURALS:
        _check_role(authorizer, resource, new, old, user)
    elif resource.plural in _BINDING_PLURALS:
        _check_binding(authorizer, resource, new, user)


def _without_collected(obj: objects.JsonObject) -> objects.JsonObject:
    kept = {k: v for k, v in objects.meta(obj).items() if k not in {*_COLLECTED, "managedFields"}}
    return {**obj, "metadata": kept}


def _check_role(
    authorizer: Authorizer,
    resource: statuses.ResourceName,
    new: objects.JsonObject,
    old: objects.JsonObject | None,
    user: users.User,
) -> None:
    name, namespace = objects.meta(new).get("name") or "", objects.meta(new).get("namespace") or ""
    asked_name = name if old is not None else ""  # upstream leaves the name of a new role out
    asked = Attributes(
        "escalate", RBAC_GROUP, resource.plural, namespace=namespace, name=asked_name
    )
    if authorizer.decide(user, asked).allowed:
        return
    _require_owned(authorizer, resource, name, namespace, new.get("rules") or (), user)
    aggregates = any((obj or {}).get("aggregationRule") for obj in (new, old))
    owned = authorizer.rules_of(user, namespace).rules
    if aggregates and uncovered(owned, EVERYTHING):
        raise statuses.forbidden(resource, name, _AGGREGATES)


def _check_binding(
    authorizer: Authorizer,
    resource: statuses.ResourceName,
    new: objects.JsonObject,
    user: users.User,
) -> None:
    name, namespace = objects.meta(new).get("name") or "", objects.meta(new).get("namespace") or ""
    reference = new.get("roleRef") or {}
    role = reference.get("name") or ""
    plural = f"{(reference.get('kind') or '').lower()}s"
    if plural in _ROLE_PLURALS:
        asked = Attributes("bind", RBAC_GROUP, plural, namespace=namespace, name=role)
        if authorizer.decide(user, asked).allowed:
            return
    found = authorizer.role_rules(reference, namespace)
    if found.error and plural not in _ROLE_PLURALS:
        raise statuses.StatusError(500, "", found.error)
    if found.error:
        raise statuses.not_found(resource, role)  # upstream names the binding's resource here, too
    _require_owned(authorizer, resource, name, namespace, found.rules, user)


def _require_owned(
    authorizer: Authorizer,
    resource: statuses.ResourceName,
    name: str,
    namespace: str,
    rules: Iterable[objects.JsonObject],
    user: users.User,
) -> None:
    owned = authorizer.rules_of(user, namespace)
    missing = uncovered(owned.rules, rules)
    if not missing:
        return
    groups = " ".join(statuses.quote(group) for group in user.groups)
    listed = "\n".join(missing)
    why = (
        f"user {statuses.quote(user.name)} (groups=[{groups}]) is attempting to grant RBAC "
        f"permissions not currently held:\n{listed}"
    )
    if owned.error:
        why += f"; resolution errors: [{owned.error}]"
    raise statuses.forbidden(resource, name, why)
