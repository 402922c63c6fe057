"""Finalizers: the cleanup that must happen before an object is deleted (CL-08).

After controller-runtime's pkg/finalizer, which changes objects in place. Objects are frozen
here, so the result is a pair of merge patches.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

from navarchos.errors import ConfigError, NavarchosError
from navarchos.meta import Object

__all__ = ["Cleanup", "Finalization", "Finalize", "FinalizerRegistry", "FinalizersFailed"]

T = TypeVar("T", bound=Object)


@dataclass(frozen=True, slots=True)
class Cleanup:
    """The changes of the object itself that a finalizer asks for.

    Attributes:
        patch: A merge patch, without `metadata.finalizers`.
        status: A merge patch for the subresource `status`, such as `{"status": …}`.
    """

    patch: Mapping[str, Any] = field(default_factory=dict)
    status: Mapping[str, Any] = field(default_factory=dict)


Finalize: TypeAlias = Callable[[T], Cleanup | None]
"""Cleans up outside the object. If it raises, the object stays, and it is called again.

Must be idempotent: the removal of its finalizer may fail after the cleanup has succeeded.
"""


class FinalizersFailed(NavarchosError):
    """Finalizers failed, so the object stays.

    Attributes:
        failures: The exceptions, by the finalizer's name.
    """

    def __init__(self, failures: Mapping[str, Exception]) -> None:
        super().__init__(failures)
        self.failures = failures

    def __str__(self) -> str:
        failures = "; ".join(f"{name}: {error}" for name, error in self.failures.items())
        return f"finalizers failed: {failures}"


@dataclass(frozen=True, slots=True)
class Finalization:
    """The patches to write, and the failures. Write first, then call `raise_failures`.

    Attributes:
        patch: Merge patch for the object, with its resourceVersion if the patch changes
            finalizers; empty without a change.
        status: Merge patch for the subresource `status`; empty without a change.
        failures: The exceptions of finalizers, by name.
    """

    patch: Mapping[str, Any]
    status: Mapping[str, Any]
    failures: Mapping[str, Exception]

    @property
    def updated(self) -> bool:
        """Whether the object must be patched."""
        return bool(self.patch)

    @property
    def status_updated(self) -> bool:
        """Whether the status must be patched."""
        return bool(self.status)

    def raise_failures(self) -> None:
        """Raise all failures, if there are any.

        Raises:
            FinalizersFailed: At least one finalizer failed.
        """
        if self.failures:
            raise FinalizersFailed(self.failures) from ExceptionGroup(
                "finalizers failed", list(self.failures.values())
            )


class FinalizerRegistry(Generic[T]):
    """The finalizers of one controller, in the order of their registration.

    Lifecycle: register all, then call `finalize` in each reconciliation.

    Threads: `finalize` is safe from any thread once all are registered.
    """

    def __init__(self) -> None:
        self._finalizers: dict[str, Finalize[T]] = {}

    def register(self, name: str, finalize: Finalize[T]) -> None:
        """Add a finalizer.

        Raises:
            ConfigError: Another finalizer has this name.
        """
        if name in self._finalizers:
            raise ConfigError("name", name, "a finalizer of this name is registered already")
        self._finalizers[name] = finalize

    def finalize(self, obj: T) -> Finalization:
        """Return the patches for an object; run its finalizers if it is being deleted.

        An object that is not being deleted gets the missing finalizers. For an object that is
        being deleted, its registered finalizers are run and, if they succeed, removed from the
        object. Finalizers that are not registered here stay.
        """
        held = obj.metadata.finalizers
        if obj.metadata.deletion_timestamp is None:
            missing = [name for name in self._finalizers if name not in held]
            return Finalization(_with(obj, {}, [*held, *missing]), {}, {})
        return self._run(obj)

    def _run(self, obj: T) -> Finalization:
        held = obj.metadata.finalizers
        patch: Any = {}
        status: Any = {}
        failures: dict[str, Exception] = {}
        for name, finalize in self._finalizers.items():
            if name not in held:
                continue
            try:
                cleanup = finalize(obj) or Cleanup()
            except Exception as error:  # noqa: BLE001 - reported with the other failures
                failures[name] = error
                continue
            patch, status = _joined(patch, cleanup.patch), _joined(status, cleanup.status)
        left = [name for name in held if name not in self._finalizers or name in failures]
        return Finalization(_with(obj, patch, left), status, failures)


def _joined(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return one merge patch with the effect of two in this order."""
    joined = dict(first)
    for name, value in second.items():
        present = joined.get(name)
        if isinstance(present, Mapping) and isinstance(value, Mapping):
            joined[name] = _joined(present, value)
        else:
            joined[name] = value
    return joined


def _with(obj: Object, patch: Mapping[str, Any], finalizers: list[str]) -> Mapping[str, Any]:
    if tuple(finalizers) == obj.metadata.finalizers:
        return patch
    # A merge patch replaces the whole array, so it is valid for the version that was read only.
    version = obj.metadata.resource_version
    metadata = {"finalizers": finalizers or None, "resourceVersion": version}
    return _joined(patch, {"metadata": metadata})
