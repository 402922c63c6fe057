"""Owner references: who is deleted with whom, and who manages whom."""

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
    """Another controller manages the object; it has one at most.

    Attributes:
        key: `namespace/name` of the object; its name may be empty before creation.
        owner: The reference to the present controller.
    """

    def __init__(self, key: str, owner: OwnerReference) -> None:
        super().__init__(key, owner)
        self.key = key
        self.owner = owner

    def __str__(self) -> str:
        owner = f"{self.owner.kind} {self.owner.name}"
        return f"{self.key or 'the object'} is already controlled by {owner}: leave it alone"


class NotOwned(NavarchosError):
    """A reference was to be removed that the object does not have.

    Attributes:
        key: `namespace/name` of the object.
        kind: The owner's kind.
        name: The owner's name.
        controller: Whether the owner was taken for the controller.
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
        resource: What kind it is.
        controller: Whether it manages the object, which one owner at most does.
        block_owner_deletion: Whether a foreground deletion of the owner waits for
            the object.

    Raises:
        ConfigError: The owner has no uid: it was not read from the server.
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
    """Return the references of an object that the owner manages from now on.

    A reference to the same owner (group, kind and name; the version does not
    count) is replaced, never doubled (CL-04).

    Args:
        obj: The object's metadata.
        references: Those it has.
        owner: The new controller.
        resource: What kind that is.
        block_owner_deletion: See `owner_reference`.

    Raises:
        AlreadyOwned: Another controller manages it.
        ConfigError: The owner cannot own an object there (CL-05).
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
    """Return the references of an object that the owner owns too, from now on.

    Args:
        obj: The object's metadata.
        references: Those it has.
        owner: The new owner.
        resource: What kind that is.
        reference: How it is referred to; by default as one that does not manage.

    Raises:
        ConfigError: A namespaced owner and an object outside its namespace: the
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
    """Tell whether an owner (group, kind and name) is among the references (CL-06)."""
    return _position(list(references), owner, resource) is not None


def is_controlled_by(
    references: Iterable[OwnerReference], owner: object, resource: Resource[Any]
) -> bool:
    """Tell whether an owner is among the references, as the controller (CL-06)."""
    kept = list(references)
    position = _position(kept, owner, resource)
    return position is not None and kept[position].controller


def not_owned_by(
    obj: Identity, references: Iterable[OwnerReference], owner: object, resource: Resource[Any]
) -> tuple[OwnerReference, ...]:
    """Return the references of an object without those to an owner (CL-06).

    Args:
        obj: The object's metadata.
        references: Those it has.
        owner: The one to leave out.
        resource: What kind that is.

    Raises:
        NotOwned: There is no such reference.
    """
    kept = list(references)
    position = _position(kept, owner, resource)
    if position is None:
        raise NotOwned(_key(obj), resource.kind, identity_of(owner).name)
    return tuple(present for present in kept if not _same_owner(present, kept[position]))


def not_controlled_by(
    obj: Identity, references: Iterable[OwnerReference], owner: object, resource: Resource[Any]
) -> tuple[OwnerReference, ...]:
    """Return the references of an object without the one to its controller (CL-06).

    Args:
        obj: The object's metadata.
        references: Those it has.
        owner: The controller.
        resource: What kind that is.

    Raises:
        NotOwned: There is no reference to it, or it does not manage the object.
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
