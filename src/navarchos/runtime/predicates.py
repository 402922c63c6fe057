"""Predicates: which events lead to a reconcile.

A predicate has one method for each kind of event. The change predicates filter updates only.
They also drop resyncs, which pass the same object as old and new (RT-28).
"""

from collections.abc import Callable, Mapping
from typing import Generic, Protocol, TypeVar

from navarchos.meta import identity_of

__all__ = [
    "Predicate",
    "all_of",
    "annotations_changed",
    "any_of",
    "changed",
    "generation_changed",
    "labels_changed",
    "not_",
    "resource_version_changed",
    "when",
]

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Predicate(Protocol[T_contra]):
    """Decides whether an event passes. Called on the informer's threads: must be fast."""

    def create(self, obj: T_contra) -> bool:
        """Tell whether an addition passes."""
        ...

    def update(self, old: T_contra, new: T_contra) -> bool:
        """Tell whether a change passes."""
        ...

    def delete(self, obj: T_contra, *, state_unknown: bool) -> bool:
        """Tell whether a deletion passes.

        Args:
            obj: Its last known state.
            state_unknown: The watch missed the deletion, and a later list revealed it; the
                final state of the object is unknown (CT-20).
        """
        ...


class changed(Generic[T]):  # noqa: N801 - reads as a word: when=changed(spec)
    """Passes updates in which `part(old) != part(new)`, and all additions and deletions."""

    def __init__(self, part: Callable[[T], object]) -> None:
        self._part = part

    def create(self, obj: T) -> bool:
        """Pass."""
        return True

    def update(self, old: T, new: T) -> bool:
        """Pass if the results differ."""
        return self._part(old) != self._part(new)

    def delete(self, obj: T, *, state_unknown: bool) -> bool:
        """Pass."""
        return True


class when(Generic[T]):  # noqa: N801 - reads as a word: when=when(is_ready)
    """Passes events for whose object a function is true; for updates, the new object."""

    def __init__(self, passes: Callable[[T], bool]) -> None:
        self._passes = passes

    def create(self, obj: T) -> bool:
        """Call the function with the object."""
        return self._passes(obj)

    def update(self, old: T, new: T) -> bool:
        """Call the function with the new object."""
        return self._passes(new)

    def delete(self, obj: T, *, state_unknown: bool) -> bool:
        """Call the function with the last known object."""
        return self._passes(obj)


class all_of(Generic[T]):  # noqa: N801 - reads as a word
    """Passes events that every predicate passes; evaluated in order."""

    def __init__(self, *predicates: Predicate[T]) -> None:
        self._predicates = predicates

    def create(self, obj: T) -> bool:
        """Pass if every predicate passes."""
        return all(predicate.create(obj) for predicate in self._predicates)

    def update(self, old: T, new: T) -> bool:
        """Pass if every predicate passes."""
        return all(predicate.update(old, new) for predicate in self._predicates)

    def delete(self, obj: T, *, state_unknown: bool) -> bool:
        """Pass if every predicate passes."""
        return all(p.delete(obj, state_unknown=state_unknown) for p in self._predicates)


class any_of(Generic[T]):  # noqa: N801 - reads as a word
    """Passes events that at least one predicate passes; evaluated in order."""

    def __init__(self, *predicates: Predicate[T]) -> None:
        self._predicates = predicates

    def create(self, obj: T) -> bool:
        """Pass if a predicate passes."""
        return any(predicate.create(obj) for predicate in self._predicates)

    def update(self, old: T, new: T) -> bool:
        """Pass if a predicate passes."""
        return any(predicate.update(old, new) for predicate in self._predicates)

    def delete(self, obj: T, *, state_unknown: bool) -> bool:
        """Pass if a predicate passes."""
        return any(p.delete(obj, state_unknown=state_unknown) for p in self._predicates)


class not_(Generic[T]):  # noqa: N801 - reads as a word
    """Passes events that another predicate does not pass."""

    def __init__(self, predicate: Predicate[T]) -> None:
        self._predicate = predicate

    def create(self, obj: T) -> bool:
        """Pass if the predicate does not."""
        return not self._predicate.create(obj)

    def update(self, old: T, new: T) -> bool:
        """Pass if the predicate does not."""
        return not self._predicate.update(old, new)

    def delete(self, obj: T, *, state_unknown: bool) -> bool:
        """Pass if the predicate does not."""
        return not self._predicate.delete(obj, state_unknown=state_unknown)


def _of_metadata(obj: object, attribute: str, field: str) -> object:
    if isinstance(obj, Mapping):
        return (obj.get("metadata") or {}).get(field)
    return getattr(identity_of(obj), attribute, None)


def _generation(obj: object) -> object:
    return _of_metadata(obj, "generation", "generation")


def _labels(obj: object) -> object:
    return _of_metadata(obj, "labels", "labels")


def _annotations(obj: object) -> object:
    return _of_metadata(obj, "annotations", "annotations")


def _resource_version(obj: object) -> object:
    return identity_of(obj).resource_version


resource_version_changed: Predicate[object] = changed(_resource_version)
"""Passes updates with a change; drops resyncs."""

generation_changed: Predicate[object] = changed(_generation)
"""Passes updates of the spec; drops updates of only status or metadata."""

labels_changed: Predicate[object] = changed(_labels)
"""Passes updates of labels."""

annotations_changed: Predicate[object] = changed(_annotations)
"""Passes updates of annotations."""
