"""From objects to requests: which keys an event makes worth a look."""

from collections.abc import Callable, Iterable, Mapping
from typing import Generic, Protocol, TypeVar

from navarchos.client import Resource
from navarchos.meta import OwnerReference, identity_of
from navarchos.runtime.request import Request

__all__ = ["EnqueueMapped", "EnqueueObject", "EnqueueOwners", "RequestMap"]

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class RequestMap(Protocol[T_contra]):
    """Names the requests that an object is about; called for old and new of an update."""

    def __call__(self, obj: T_contra, /) -> Iterable[Request]:
        """Return the requests; duplicates within an event count once."""
        ...


class EnqueueObject:
    """The object itself (CT-21)."""

    def __call__(self, obj: object, /) -> Iterable[Request]:
        """Return the object's own key."""
        identity = identity_of(obj)
        return (Request(identity.namespace, identity.name),)


class EnqueueOwners:
    """The owners of one kind (CT-22). Group and kind must match, versions may differ.

    Args:
        owner: The owners' kind.
        controller_only: Only the owner that manages the object.
    """

    def __init__(self, owner: Resource[object], *, controller_only: bool = True) -> None:
        self._owner = owner
        self._controller_only = controller_only

    def __call__(self, obj: object, /) -> Iterable[Request]:
        """Return the keys of the matching owners."""
        namespace = identity_of(obj).namespace if self._owner.namespaced else ""
        return [
            Request(namespace, reference.name)
            for reference in _owners_of(obj)
            if self._matches(reference)
        ]

    def _matches(self, reference: OwnerReference) -> bool:
        if self._controller_only and not reference.controller:
            return False
        return (reference.group, reference.kind) == (self._owner.group, self._owner.kind)


class EnqueueMapped(Generic[T]):
    """Whatever a function says (CT-23)."""

    def __init__(self, function: Callable[[T], Iterable[Request]]) -> None:
        self._function = function

    def __call__(self, obj: T, /) -> Iterable[Request]:
        """Ask the function."""
        return self._function(obj)


def _owners_of(obj: object) -> Iterable[OwnerReference]:
    if not isinstance(obj, Mapping):
        owners: Iterable[OwnerReference] = getattr(identity_of(obj), "owner_references", ())
        return owners
    references = (obj.get("metadata") or {}).get("ownerReferences") or ()
    return [
        OwnerReference(
            api_version=str(reference.get("apiVersion", "")),
            kind=str(reference.get("kind", "")),
            name=str(reference.get("name", "")),
            uid=str(reference.get("uid", "")),
            controller=bool(reference.get("controller", False)),
        )
        for reference in references
    ]
