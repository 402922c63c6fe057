"""Roles and role bindings from declared permissions; pure functions.

```python
role("widgets", [*RBAC, *events.RBAC])                      # a ClusterRole
role("widgets", lease_rbac("widgets"), namespace="tools")  # a Role
```
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from navarchos.client.rbac import VERBS, PolicyRule, Verb

__all__ = ["Subject", "policy_rules", "role", "role_binding"]


_GROUP: Final = "rbac.authorization.k8s.io"


class Subject(NamedTuple):
    """A ServiceAccount that a role is bound to."""

    name: str
    namespace: str


class _Scope(NamedTuple):
    """The scope of verbs: a kind, or some objects of a kind."""

    group: str
    target: str
    names: tuple[str, ...]


def policy_rules(rules: Iterable[PolicyRule]) -> list[dict[str, list[str]]]:
    """Return the smallest list of rules that grants exactly these permissions.

    Equal permissions give equal rules, however they were declared: each permission is granted
    once, a permission for named objects is omitted if all objects are granted, and
    kinds of one group share a rule if their verbs are equal.
    """
    merged: dict[tuple[str, tuple[str, ...], tuple[Verb, ...]], list[str]] = defaultdict(list)
    for scope, verbs in _granted(rules).items():
        merged[scope.group, scope.names, verbs].append(scope.target)
    return [
        {
            "apiGroups": [group],
            "resources": sorted(targets),
            **({"resourceNames": list(names)} if names else {}),
            "verbs": list(verbs),
        }
        for (group, names, verbs), targets in sorted(
            merged.items(), key=lambda item: (item[0][0], sorted(item[1]), item[0])
        )
    ]


def role(
    name: str,
    rules: Iterable[PolicyRule],
    *,
    namespace: str = "",
    labels: Mapping[str, str] | None = None,
) -> dict[str, object]:
    """Return a Role with these rules, or a ClusterRole if no namespace is given."""
    return _head("Role", name, namespace, labels) | {"rules": policy_rules(rules)}


def role_binding(
    name: str,
    subject: Subject,
    *,
    namespace: str = "",
    labels: Mapping[str, str] | None = None,
) -> dict[str, object]:
    """Return the binding of a role to a ServiceAccount.

    Args:
        name: Of the role (see `role`), and of the binding.
        subject: The ServiceAccount; may be in another namespace.
        namespace: Of the Role; empty for a ClusterRole.
        labels: Of the binding.
    """
    return _head("RoleBinding", name, namespace, labels) | {
        "roleRef": {"apiGroup": _GROUP, "kind": _scoped("Role", namespace), "name": name},
        "subjects": [{"kind": "ServiceAccount", **subject._asdict()}],
    }


def _granted(rules: Iterable[PolicyRule]) -> dict[_Scope, tuple[Verb, ...]]:
    """Return the verbs of each scope, without verbs that a wider scope grants."""
    verbs: dict[_Scope, set[Verb]] = defaultdict(set)
    for scope, verb in _by_names(rules):
        verbs[scope].add(verb)
    return {scope: tuple(v for v in VERBS if v in found) for scope, found in verbs.items()}


def _by_names(rules: Iterable[PolicyRule]) -> Iterable[tuple[_Scope, Verb]]:
    """Return each verb on each kind once, with the names of the objects it is limited to."""
    names: dict[tuple[str, str, Verb], set[str] | None] = {}
    for rule in rules:
        for verb in rule.verbs:
            key = rule.resource.group, rule.target, verb
            known = names.get(key, set())
            names[key] = None if known is None or not rule.names else known | {*rule.names}
    for (group, target, verb), limit in names.items():
        yield _Scope(group, target, tuple(sorted(limit or ()))), verb


def _head(
    kind: str, name: str, namespace: str, labels: Mapping[str, str] | None
) -> dict[str, object]:
    metadata: dict[str, object] = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    if labels:
        metadata["labels"] = dict(labels)
    return {"apiVersion": f"{_GROUP}/v1", "kind": _scoped(kind, namespace), "metadata": metadata}


def _scoped(kind: str, namespace: str) -> str:
    return kind if namespace else f"Cluster{kind}"
