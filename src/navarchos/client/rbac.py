"""RBAC permissions, declared beside the code that needs them.

A module that sends requests declares their permissions, so that roles are generated:

```python
RBAC: Final = (
    *informer_rbac(NODES),
    PolicyRule(NODES, ("patch",)),
    PolicyRule(NODES, ("patch",), subresource="status"),
)
```

`navarchos.runtime.rbac` generates roles from such declarations.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Any, Final, Literal, get_args

import msgspec

from navarchos.client.resource import Resource
from navarchos.errors import ConfigError
from navarchos.meta import Object

__all__ = [
    "ACCESS_REVIEWS",
    "VERBS",
    "AccessReview",
    "PolicyRule",
    "Verb",
    "block_owner_deletion_rbac",
]

Verb = Literal["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]
"""A verb of RBAC: `update` is PUT; an eviction is a `create`."""

VERBS: Final[tuple[Verb, ...]] = get_args(Verb)
"""All verbs in their usual order: reads first."""


class _AccessStatus(msgspec.Struct, frozen=True):
    allowed: bool = False


class AccessReview(Object, frozen=True):
    """The response to a SubjectAccessReview."""

    status: _AccessStatus = _AccessStatus()


ACCESS_REVIEWS: Final = Resource(
    "authorization.k8s.io",
    "v1",
    "subjectaccessreviews",
    "SubjectAccessReview",
    namespaced=False,
    type=AccessReview,
)
"""Created to check whether a user has a permission; the server does not store it."""


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """The permission for verbs on one kind, or on a subresource of it.

    There are no wildcards, because they grant permissions that no code needs.

    Attributes:
        resource: The kind; its type does not matter.
        verbs: The verbs.
        subresource: Such as `status` or `eviction`; empty for the objects themselves.
        names: The names of the objects; empty for all objects. Not for `create` of
            objects: the server checks it before the object has a name.
        asked_by_admission: Whether an admission plugin checks this permission during
            another request. No audit log shows such a check, so a comparison of granted
            and used permissions leaves it out.

    Raises:
        ConfigError: A verb is unknown, there are no verbs, or names cannot limit a verb.
    """

    resource: Resource[Any]
    verbs: tuple[Verb, ...]
    _: KW_ONLY
    subresource: str = ""
    names: tuple[str, ...] = ()
    asked_by_admission: bool = False

    def __post_init__(self) -> None:
        if not self.verbs or not set(self.verbs) <= set(VERBS):
            raise ConfigError("verbs", self.verbs, f"each verb must be one of {', '.join(VERBS)}")
        if self.names and not self.subresource and "create" in self.verbs:
            raise ConfigError("names", self.names, "RBAC cannot limit `create` to names")

    @property
    def target(self) -> str:
        """The kind as RBAC writes it: `plural` or `plural/subresource`."""
        plural = self.resource.plural
        return f"{plural}/{self.subresource}" if self.subresource else plural


def block_owner_deletion_rbac(owner: Resource[Any]) -> PolicyRule:
    """Return the permission to set `blockOwnerDeletion` on dependents of this kind.

    The admission plugin OwnerReferencesPermissionEnforcement, which OpenShift enables,
    requires permission to `update` the finalizers of the owner: a client that can delay a
    deletion with a dependent could also delay it with a finalizer. No audit log shows that
    this permission is used.
    """
    return PolicyRule(owner, ("update",), subresource="finalizers", asked_by_admission=True)
