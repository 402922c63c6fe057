"""The granted and the used permissions, as sets that can be compared."""

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import yaml
from tests.cases.manifests import WIDGETS
from tests.cases.target import CONFIG

from navarchos.cli.controllers import DEFAULT, MODULES, load
from navarchos.operator.deployment.manifests import manager_rbac
from navarchos.testing.controlplane import AuditEvent

__all__ = [
    "ACCOUNT",
    "Permission",
    "asked_by_admission",
    "granted",
    "of_systems",
    "refused",
    "requested",
    "used",
]

ACCOUNT: Final = "system:serviceaccount:kube-system:navarchos"

_OF_USERS: Final = (
    'ClusterRoleBinding "navarchos-gates"',
    'ClusterRoleBinding "navarchos-readiness-gates"',
)
"""In the reason of an allowed request: a user has granted it, for gates or another system."""


class Permission(NamedTuple):
    """One verb on one kind, in one namespace.

    Attributes:
        verb: The RBAC verb.
        resource: `plural.group`, with `/subresource` if there is one.
        namespace: The namespace of the Role; empty for a ClusterRole.
        name: The name of the only object; empty for all objects.
    """

    verb: str
    resource: str
    namespace: str = ""
    name: str = ""


def _target(group: str, resource: str) -> str:
    plural, slash, subresource = resource.partition("/")
    return f"{plural}.{group}".rstrip(".") + slash + subresource


def granted() -> set[Permission]:
    """Return every permission in the manifests of `config/deploy`."""
    found: set[Permission] = set()
    for file in sorted((CONFIG / "deploy").glob("*.yaml")):
        for manifest in yaml.safe_load_all(file.read_text(encoding="utf-8")):
            if manifest["kind"] in {"Role", "ClusterRole"}:
                found.update(_of_role(manifest))
    return found


def _of_role(manifest: dict[str, Any]) -> Iterator[Permission]:
    namespace = manifest["metadata"].get("namespace", "")
    for rule in manifest["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    for name in rule.get("resourceNames", [""]):
                        yield Permission(verb, _target(group, resource), namespace, name)


def of_systems() -> set[Permission]:
    """Return the permissions of the systems that are off by default."""
    others = load(name for name in MODULES if name not in DEFAULT)
    return {
        Permission(verb, _target(rule.resource.group, rule.target), namespace)
        for system in others
        for namespace, rules in system.rbac.items()
        for rule in rules
        for verb in rule.verbs
    }


def requested(events: Iterable[AuditEvent]) -> set[Permission]:
    """Return what the account requested in the whole cluster, by any permission."""
    ours = (e for e in events if e.user.username == ACCOUNT and e.object_ref is not None)
    return {_asked(event)._replace(namespace="", name="") for event in ours}


def asked_by_admission() -> set[Permission]:
    """Return the permissions that only admission plugins check. No audit log shows them."""
    return {
        Permission(verb, _target(rule.resource.group, rule.target), namespace)
        for namespace, rules in manager_rbac().items()
        for rule in rules
        if rule.asked_by_admission
        for verb in rule.verbs
    }


def used(events: Iterable[AuditEvent], known: Iterable[Permission]) -> set[Permission]:
    """Return the permissions that the account used: the narrowest one for each request.

    A request without a permission is returned as a permission that would cover it.
    """
    by_verb: dict[tuple[str, str], list[Permission]] = {}
    for permission in known:
        by_verb.setdefault((permission.verb, permission.resource), []).append(permission)
    return {_narrowest(event, by_verb) for event in events if _is_ours(event)}


def _narrowest(event: AuditEvent, known: dict[tuple[str, str], list[Permission]]) -> Permission:
    asked = _asked(event)
    covering = [
        permission
        for permission in known.get((asked.verb, asked.resource), ())
        if permission.namespace in {"", asked.namespace} and permission.name in {"", asked.name}
    ]
    return max(
        covering, key=lambda permission: (permission.namespace, permission.name), default=asked
    )


def refused(events: Iterable[AuditEvent]) -> list[str]:
    """Return the requests of the account that were denied."""
    return [
        f"{event.verb} {event.request_uri}"
        for event in events
        if _is_ours(event) and event.is_unauthorized
    ]


def _is_ours(event: AuditEvent) -> bool:
    """Return whether the account sent a request that requires a permission of `config/deploy`.

    A case of gates waits at a kind that only it installs, until it grants the permission.
    """
    ref = event.object_ref
    if event.user.username != ACCOUNT or ref is None:
        return False
    if (ref.api_group, ref.resource) == (WIDGETS.group, WIDGETS.plural):
        return False
    reason = event.annotations.get("authorization.k8s.io/reason", "")
    return not any(binding in reason for binding in _OF_USERS)


def _asked(event: AuditEvent) -> Permission:
    ref = event.object_ref
    assert ref is not None
    resource = f"{ref.resource}/{ref.subresource}" if ref.subresource else ref.resource
    return Permission(event.verb, _target(ref.api_group, resource), ref.namespace, ref.name)
