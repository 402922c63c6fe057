"""What must be done before an object may go, by name (CL-08).

After controller-runtime's pkg/finalizer. Objects are frozen, so what it changes in
place is a pair of merge patches here.
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
    """What a finalizer wants changed in the object itself.

    Attributes:
        patch: A merge patch, without `metadata.finalizers`.
        status: A merge patch for the subresource `status`, such as `{"status": …}`.
    """

    patch: Mapping[str, Any] = field(default_factory=dict)
    status: Mapping[str, Any] = field(default_factory=dict)


Finalize: TypeAlias = Callable[[T], Cleanup | None]
"""Cleans up outside the object. Raises to keep the object from going; is called again then.

Must be idempotent: the removal of its finalizer may fail after it succeeded.
"""


class FinalizersFailed(NavarchosError):
    """Finalizers that could not do their work; the object stays.

    Attributes:
        failures: What each raised, by the finalizer's name.
    """

    def __init__(self, failures: Mapping[str, Exception]) -> None:
        super().__init__(failures)
        self.failures = failures

    def __str__(self) -> str:
        told = "; ".join(f"{name}: {error}" for name, error in self.failures.items())
        return f"finalizers failed: {told}"


@dataclass(frozen=True, slots=True)
class Finalization:
    """What is to be written, and what failed. Write first, then `raise_failures`.

    Attributes:
        patch: Merge patch for the object, with its resourceVersion if it has
            finalizers in it; empty if nothing is to be written.
        status: Merge patch for the subresource `status`; empty for none.
        failures: What finalizers raised, by name.
    """

    patch: Mapping[str, Any]
    status: Mapping[str, Any]
    failures: Mapping[str, Exception]

    @property
    def updated(self) -> bool:
        """Whether the object is to be patched."""
        return bool(self.patch)

    @property
    def status_updated(self) -> bool:
        """Whether the status is to be patched."""
        return bool(self.status)

    def raise_failures(self) -> None:
        """Raise what failed, all of it.

        Raises:
            FinalizersFailed: Something did.
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
            ConfigError: The name is taken.
        """
        if name in self._finalizers:
            raise ConfigError("name", name, "a finalizer of this name is registered already")
        self._finalizers[name] = finalize

    def finalize(self, obj: T) -> Finalization:
        """Say what is to be written.

        An object that is not being deleted gets the finalizers that it lacks. For one
        that is, those it has are run, and the names of those that succeed are removed;
        names that are not registered here are left alone.
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
            except Exception as error:  # noqa: BLE001 - reported with the others'
                failures[name] = error
                continue
            patch, status = _joined(patch, cleanup.patch), _joined(status, cleanup.status)
        left = [name for name in held if name not in self._finalizers or name in failures]
        return Finalization(_with(obj, patch, left), status, failures)


def _joined(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merge patch that does what two do, one after the other."""
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
    # An array is replaced whole, so the patch holds for the version that was read.
    version = obj.metadata.resource_version
    metadata = {"finalizers": finalizers or None, "resourceVersion": version}
    return _joined(patch, {"metadata": metadata})
