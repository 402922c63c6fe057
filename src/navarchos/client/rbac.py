"""What code asks of an API server, declared beside the code that asks.

A module that sends requests says which, so that roles are generated and never
guessed:

```python
RBAC: Final = (
    *informer_rbac(NODES),
    Rule(NODES, ("patch",)),
    Rule(NODES, ("patch",), subresource="status"),
)
```

`navarchos.runtime.rbac` turns such declarations into roles.
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
"""A request, as RBAC calls it: `update` is PUT; an eviction is a `create`."""

VERBS: Final[tuple[Verb, ...]] = get_args(Verb)
"""All verbs, in the order in which people write them: reads first."""


class _AccessStatus(msgspec.Struct, frozen=True):
    allowed: bool = False


class AccessReview(Object, frozen=True):
    """What the API server answers to whoever asks what somebody may do."""

    status: _AccessStatus = _AccessStatus()


ACCESS_REVIEWS: Final = Resource(
    "authorization.k8s.io",
    "v1",
    "subjectaccessreviews",
    "SubjectAccessReview",
    namespaced=False,
    type=AccessReview,
)
"""Created to ask whether a user may do something; nothing is kept of it."""


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """Verbs on one kind, or on a subresource of it.

    Wildcards do not exist here: they grant what nobody has asked for.

    Attributes:
        resource: The kind; its projection does not matter.
        verbs: What is done to it.
        subresource: Such as `status` or `eviction`; empty for the objects themselves.
        names: The only objects concerned; none for all. Not for `create` of objects:
            the server checks that before the object has a name.
        asked_by_admission: Whether an admission plugin asks for this right while it
            looks at another request. Then no request of ours ever shows it, and a
            comparison of what is granted with what an audit log holds leaves it out.

    Raises:
        ConfigError: A verb is unknown or missing, or names cannot limit it.
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
    """Return what it takes to own objects with `blockOwnerDeletion`.

    Where the admission plugin OwnerReferencesPermissionEnforcement is on, as on
    OpenShift, setting that field takes the right to `update` the owner's finalizers:
    whoever can hold a deletion up with a dependent could as well do it with a
    finalizer.
    """
    return PolicyRule(owner, ("update",), subresource="finalizers", asked_by_admission=True)
