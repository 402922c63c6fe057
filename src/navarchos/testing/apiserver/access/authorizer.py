"""Authorizers: one allows everything, the other follows roles and bindings."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from navarchos.testing.apiserver.access.rules import EVERYTHING, Attributes, allows
from navarchos.testing.apiserver.access.users import MASTERS, User, account_name
from navarchos.testing.apiserver.objects import JsonObject, meta
from navarchos.testing.apiserver.store import BucketId, ObjectStore, entry_key

__all__ = ["RBAC_GROUP", "AllowAll", "AuthorizationDecision", "Authorizer", "Rbac", "ResolvedRules"]

RBAC_GROUP: Final = "rbac.authorization.k8s.io"
"""The API group of roles and bindings."""

_ROLES: Final = {"Role": "roles", "ClusterRole": "clusterroles"}
_CLUSTER_BINDINGS: Final = BucketId("clusterrolebindings", RBAC_GROUP)
_BINDINGS: Final = BucketId("rolebindings", RBAC_GROUP)


class AuthorizationDecision(NamedTuple):
    """Whether something is allowed, and the reason if there is one to report."""

    allowed: bool
    reason: str = ""


class ResolvedRules(NamedTuple):
    """The rules of a user or a role, and the error if some could not be resolved."""

    rules: Sequence[JsonObject]
    error: str = ""


class Authorizer(Protocol):
    """Decides what a user may do. Threads: safe from any thread."""

    def decide(self, user: User, asked: Attributes) -> AuthorizationDecision:
        """Return whether a user may do something."""
        ...

    def rules_of(self, user: User, namespace: str) -> ResolvedRules:
        """Return the user's rules for a namespace, cluster-wide ones included."""
        ...

    def role_rules(self, reference: JsonObject, namespace: str) -> ResolvedRules:
        """Return the rules of the role that a binding in a namespace refers to."""
        ...


class AllowAll:
    """Allows everything, as `--authorization-mode=AlwaysAllow`."""

    def decide(self, user: User, asked: Attributes) -> AuthorizationDecision:
        """Allow the request."""
        return AuthorizationDecision(True)

    def rules_of(self, user: User, namespace: str) -> ResolvedRules:
        """Return the rules that allow everything."""
        return ResolvedRules(EVERYTHING)

    def role_rules(self, reference: JsonObject, namespace: str) -> ResolvedRules:
        """Return no rules: every user may bind every role."""
        return ResolvedRules(())


class _Grant(NamedTuple):
    """A rule that applies to a user, and its source; without a rule, `source` is an error."""

    rule: JsonObject | None
    source: str


class Rbac:
    """Follows the roles and bindings that are in the store now.

    A real server follows them by watches, with a small delay.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def decide(self, user: User, asked: Attributes) -> AuthorizationDecision:
        """Search the user's rules for one that allows the request."""
        if MASTERS in user.groups:
            return AuthorizationDecision(True)
        missing = []
        for rule, source in self._grants(user, asked.namespace):
            if rule is None:
                missing.append(source)
            elif allows(rule, asked):
                return AuthorizationDecision(True, f"RBAC: allowed by {source}")
        return AuthorizationDecision(False, f"RBAC: {_aggregate(missing)}" if missing else "")

    def rules_of(self, user: User, namespace: str) -> ResolvedRules:
        """Return all rules of all roles that are bound to the user."""
        rules: list[JsonObject] = [*(EVERYTHING if MASTERS in user.groups else ())]
        missing = []
        for rule, source in self._grants(user, namespace):
            if rule is None:
                missing.append(source)
            else:
                rules.append(rule)
        return ResolvedRules(rules, _aggregate(missing) if missing else "")

    def role_rules(self, reference: JsonObject, namespace: str) -> ResolvedRules:
        """Return the rules of a role, or the error if the role does not exist."""
        kind, name = reference.get("kind") or "", reference.get("name") or ""
        if kind not in _ROLES:
            return ResolvedRules((), f'unsupported role reference kind: "{kind}"')
        key = entry_key(namespace if kind == "Role" else "", name)
        found = self._store.get(BucketId(_ROLES[kind], RBAC_GROUP), key)
        if found is None:
            return ResolvedRules((), f'{kind.lower()}.{RBAC_GROUP} "{name}" not found')
        return ResolvedRules(found.obj.get("rules") or ())

    def _grants(self, user: User, namespace: str) -> Iterator[_Grant]:
        for binding in self._store.entries(_CLUSTER_BINDINGS):
            yield from self._granted_by(binding.obj, user, "")
        for binding in self._store.entries(_BINDINGS, namespace) if namespace else ():
            yield from self._granted_by(binding.obj, user, namespace)

    def _granted_by(self, binding: JsonObject, user: User, namespace: str) -> Iterator[_Grant]:
        for subject in binding.get("subjects") or ():
            if _is_subject(subject, user, namespace):
                break
        else:
            return
        reference = binding["roleRef"]
        found = self.role_rules(reference, namespace)
        if found.error:
            yield _Grant(None, found.error)
        for rule in found.rules:
            yield _Grant(rule, _source(binding, reference, subject, namespace))


def _is_subject(subject: JsonObject, user: User, namespace: str) -> bool:
    kind, name = subject.get("kind"), subject.get("name") or ""
    if kind == "Group":
        return name in user.groups
    if kind == "ServiceAccount":
        where = subject.get("namespace") or namespace
        return bool(where) and user.name == account_name(where, name)
    return bool(kind == "User" and name == user.name)


def _source(binding: JsonObject, reference: JsonObject, subject: JsonObject, namespace: str) -> str:
    """Describe the binding that grants a rule, in upstream's words.

    Upstream writes the name before the namespace here.
    """
    name, who = meta(binding)["name"], subject["name"]
    kind, shown = (
        ("RoleBinding", f"{name}/{namespace}") if namespace else ("ClusterRoleBinding", name)
    )
    if subject["kind"] == "ServiceAccount":
        who = f"{who}/{subject.get('namespace') or namespace}"
    role = f'{reference["kind"]} "{reference["name"]}"'
    return f'{kind} "{shown}" of {role} to {subject["kind"]} "{who}"'


def _aggregate(errors: Sequence[str]) -> str:
    """Join errors as Go's aggregates do: each error once, several of them in brackets."""
    found = list(dict.fromkeys(errors))
    return found[0] if len(found) == 1 else f"[{', '.join(found)}]"
