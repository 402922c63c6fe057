"""Nobody gives away what they do not have: writes of roles and bindings.

After `pkg/registry/rbac/*/policybased`.
"""

from collections.abc import Iterable
from typing import Final

from navarchos.testing.apiserver.access.attributes import Attributes
from navarchos.testing.apiserver.access.authorizer import RBAC_GROUP, Authorizer
from navarchos.testing.apiserver.access.rules import EVERYTHING, uncovered
from navarchos.testing.apiserver.access.users import MASTERS, User
from navarchos.testing.apiserver.objects import JsonObject, meta
from navarchos.testing.apiserver.status import (
    ResourceName,
    StatusError,
    forbidden,
    not_found,
    quote,
)

__all__ = ["check_escalation"]

_ROLES: Final = frozenset({"roles", "clusterroles"})
_BINDINGS: Final = frozenset({"rolebindings", "clusterrolebindings"})
# What the garbage collector writes, who may not do what roles say.
_COLLECTED: Final = ("ownerReferences", "finalizers")
_AGGREGATES: Final = "must have cluster-admin privileges to use the aggregationRule"


def check_escalation(
    authorizer: Authorizer,
    resource: ResourceName,
    new: JsonObject,
    old: JsonObject | None,
    user: User,
) -> None:
    """Refuse a role with rights that its writer lacks, or a binding to such a role.

    Args:
        authorizer: Knows the rights.
        resource: What is written; only roles and bindings are looked at.
        new: The object to be stored.
        old: The object that is stored; `None` when it is created.
        user: Who writes.

    Raises:
        StatusError: 403.
    """
    if resource.group != RBAC_GROUP or MASTERS in user.groups:
        return
    if old is not None and _without_collected(new) == _without_collected(old):
        return
    if resource.plural in _ROLES:
        _check_role(authorizer, resource, new, old, user)
    elif resource.plural in _BINDINGS:
        _check_binding(authorizer, resource, new, user)


def _without_collected(obj: JsonObject) -> JsonObject:
    kept = {k: v for k, v in meta(obj).items() if k not in {*_COLLECTED, "managedFields"}}
    return {**obj, "metadata": kept}


def _check_role(
    authorizer: Authorizer,
    resource: ResourceName,
    new: JsonObject,
    old: JsonObject | None,
    user: User,
) -> None:
    name, namespace = meta(new).get("name") or "", meta(new).get("namespace") or ""
    asked_name = name if old is not None else ""  # a request to create names nothing
    asked = Attributes(
        "escalate", RBAC_GROUP, resource.plural, namespace=namespace, name=asked_name
    )
    if authorizer.decide(user, asked).allowed:
        return
    _confirm(authorizer, resource, name, namespace, new.get("rules") or (), user)
    aggregates = any((obj or {}).get("aggregationRule") for obj in (new, old))
    owned = authorizer.rules_of(user, namespace).rules
    if aggregates and uncovered(owned, EVERYTHING):
        raise forbidden(resource, name, _AGGREGATES)


def _check_binding(
    authorizer: Authorizer, resource: ResourceName, new: JsonObject, user: User
) -> None:
    name, namespace = meta(new).get("name") or "", meta(new).get("namespace") or ""
    reference = new.get("roleRef") or {}
    role = reference.get("name") or ""
    plural = f"{(reference.get('kind') or '').lower()}s"
    if plural in _ROLES:
        asked = Attributes("bind", RBAC_GROUP, plural, namespace=namespace, name=role)
        if authorizer.decide(user, asked).allowed:
            return
    found = authorizer.role_rules(reference, namespace)
    if found.error and plural not in _ROLES:
        raise StatusError(500, "", found.error)
    if found.error:
        raise not_found(resource, role)  # upstream speaks of the binding, too
    _confirm(authorizer, resource, name, namespace, found.rules, user)


def _confirm(
    authorizer: Authorizer,
    resource: ResourceName,
    name: str,
    namespace: str,
    rules: Iterable[JsonObject],
    user: User,
) -> None:
    owned = authorizer.rules_of(user, namespace)
    missing = uncovered(owned.rules, rules)
    if not missing:
        return
    groups = " ".join(quote(group) for group in user.groups)
    listed = "\n".join(missing)
    why = (
        f"user {quote(user.name)} (groups=[{groups}]) is attempting to grant RBAC permissions not"
        f" currently held:\n{listed}"
    )
    if owned.error:
        why += f"; resolution errors: [{owned.error}]"
    raise forbidden(resource, name, why)
