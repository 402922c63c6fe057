"""Owner references: which owners an object has, and which owner is its controller."""

from collections.abc import Iterable, Sequence
from typing import Any

from navarchos.client.resource import Resource
from navarchos.errors import ConfigError, NavarchosError
from navarchos.meta import Identity, OwnerReference, identity_of

__all__ = [
    "AlreadyOwned",
    "NotOwned",
    "controlled_by",
    "is_controlled_by",
    "is_owned_by",
    "not_controlled_by",
    "not_owned_by",
    "owned_by",
    "owner_reference",
]


class AlreadyOwned(NavarchosError):
    """Another controller manages the object; an object has at most one controller.

    Attributes:
        key: `namespace/name` of the object; its name may be empty before creation.
        owner: The reference to its controller.
    """

    def __init__(self, key: str, owner: OwnerReference) -> None:
        super().__init__(key, owner)
        self.key = key
        self.owner = owner

    def __str__(self) -> str:
        owner = f"{self.owner.kind} {self.owner.name}"
        return f"{self.key or 'the object'} is already controlled by {owner}: do not change it"


class NotOwned(NavarchosError):
    """The object does not have the owner reference that should be removed.

    Attributes:
        key: `namespace/name` of the object.
        kind: The owner's kind.
        name: The owner's name.
        controller: Whether the owner was expected to be the controller.
    """

    def __init__(self, key: str, kind: str, name: str, *, controller: bool = False) -> None:
        super().__init__(key, kind, name)
        self.key = key
        self.kind = kind
        self.name = name
        self.controller = controller

    def __str__(self) -> str:
        verb = "controlled" if self.controller else "owned"
        return f"{self.key or 'the object'} is not {verb} by {self.kind} {self.name}"


def owner_reference(
    owner: object,
    resource: Resource[Any],
    controller: bool = True,
    *,
    block_owner_deletion: bool = True,
) -> OwnerReference:
    """Return a reference to an owner that exists on the server.

    Args:
        owner: The owner, with name and uid.
        resource: The resource of the owner.
        controller: Whether the owner is the controller; at most one owner is.
        block_owner_deletion: Whether a foreground deletion of the owner waits for
            the object. Needs a permission, see `block_owner_deletion_rbac`.

    Raises:
        ConfigError: The owner has no uid, so it was not read from the server.
    """
    identity = identity_of(owner)
    if not identity.uid:
        raise ConfigError(
            "owner", identity.name, "the owner has no uid: read it from the API server first"
        )
    return OwnerReference(
        api_version=resource.api_version,
        kind=resource.kind,
        name=identity.name,
        uid=identity.uid,
        controller=controller,
        block_owner_deletion=block_owner_deletion,
    )


def controlled_by(
    obj: Identity,
    references: Iterable[OwnerReference],
    owner: object,
    resource: Resource[Any],
    *,
    block_owner_deletion: bool = True,
) -> tuple[OwnerReference, ...]:
    """Return the references of an object with `owner` as its controller.

    A reference to the same owner (group, kind and name; the version is ignored) is
    replaced, not duplicated (CL-04).

    Args:
        obj: The object's metadata.
        references: Its present references.
        owner: The new controller.
        resource: The resource of the owner.
        block_owner_deletion: See `owner_reference`.

    Raises:
        AlreadyOwned: The object has another controller.
        ConfigError: The owner cannot own an object of this namespace (CL-05).
    """
    new = owner_reference(owner, resource, block_owner_deletion=block_owner_deletion)
    kept = list(references)
    for present in kept:
        if present.controller and not _same_owner(present, new):
            raise AlreadyOwned(_key(obj), present)
    return owned_by(obj, kept, owner, resource, new)


def owned_by(
    obj: Identity,
    references: Iterable[OwnerReference],
    owner: object,
    resource: Resource[Any],
    reference: OwnerReference | None = None,
) -> tuple[OwnerReference, ...]:
    """Return the references of an object with `owner` as another owner.

    Args:
        obj: The object's metadata.
        references: Its present references.
        owner: The new owner.
        resource: The resource of the owner.
        reference: The new reference; by default one that is not the controller.

    Raises:
        ConfigError: The owner is namespaced, and the object is not in its namespace: the
            garbage collector would delete the object (CL-05).
    """
    new = reference or owner_reference(owner, resource, False, block_owner_deletion=False)
    home = identity_of(owner).namespace
    if resource.namespaced and home != obj.namespace:
        where = f"namespace {obj.namespace}" if obj.namespace else "no namespace"
        rule = f"an owner in namespace {home} cannot own an object in {where}"
        raise ConfigError("owner", f"{resource.kind} {new.name}", rule)
    others = [present for present in references if not _same_owner(present, new)]
    return (*others, new)


def is_owned_by(
    references: Iterable[OwnerReference], owner: object, resource: Resource[Any]
) -> bool:
    """Return whether an owner (group, kind and name) is among the references (CL-06)."""
    return _position(list(references), owner, resource) is not None


def is_controlled_by(
    references: Iterable[OwnerReference], owner: object, resource: Resource[Any]
) -> bool:
    """Return whether an owner is among the references as the controller (CL-06)."""
    kept = list(references)
    position = _position(kept, owner, resource)
    return position is not None and kept[position].controller


def not_owned_by(
    obj: Identity, references: Iterable[OwnerReference], owner: object, resource: Resource[Any]
) -> tuple[OwnerReference, ...]:
    """Return the references of an object without an owner (CL-06).

    Args:
        obj: The object's metadata.
        references: Its present references.
        owner: The owner to remove.
        resource: The resource of the owner.

    Raises:
        NotOwned: The object has no such reference.
    """
    kept = list(references)
    position = _position(kept, owner, resource)
    if position is None:
        raise NotOwned(_key(obj), resource.kind, identity_of(owner).name)
    return tuple(present for present in kept if not _same_owner(present, kept[position]))


def not_controlled_by(
    obj: Identity, references: Iterable[OwnerReference], owner: object, resource: Resource[Any]
) -> tuple[OwnerReference, ...]:
    """Return the references of an object without its controller (CL-06).

    Args:
        obj: The object's metadata.
        references: Its present references.
        owner: The controller.
        resource: The resource of the owner.

    Raises:
        NotOwned: The owner is not the controller of the object.
    """
    kept = list(references)
    if not is_controlled_by(kept, owner, resource):
        raise NotOwned(_key(obj), resource.kind, identity_of(owner).name, controller=True)
    return not_owned_by(obj, kept, owner, resource)


def _position(
    references: Sequence[OwnerReference], owner: object, resource: Resource[Any]
) -> int | None:
    wanted = (resource.group, resource.kind, identity_of(owner).name)
    for position, present in enumerate(references):
        if (present.group, present.kind, present.name) == wanted:
            return position
    return None


def _same_owner(one: OwnerReference, other: OwnerReference) -> bool:
    return (one.group, one.kind, one.name) == (other.group, other.kind, other.name)


def _key(obj: Identity) -> str:
    return f"{obj.namespace}/{obj.name}" if obj.namespace else obj.name
