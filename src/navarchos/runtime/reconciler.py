"""The interface of a reconciler: its request, its result, its errors.

| reconcile ends in | what happens to the key |
|---|---|
| `Result()` | done; its back-off is reset |
| `Result(requeue_after=s)` | reconciled again in `s` seconds; its back-off is reset |
| `Result(requeue=True)` | reconciled again when the rate limiter allows |
| `TerminalError` | counted and logged, not retried until an event requests it |
| any other exception | counted and logged, retried when the rate limiter allows |
| `Stopped` while the controller stops | interrupted: not counted, not retried |
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from navarchos.errors import ConfigError, NavarchosError
from navarchos.informers import Lister
from navarchos.meta import ObjectKey

__all__ = ["DONE", "ReconcileObjects", "Reconciler", "Request", "Result", "TerminalError"]

T = TypeVar("T")

Request = ObjectKey
"""Namespace and name of the object to reconcile; the namespace may be empty."""


@dataclass(frozen=True, slots=True)
class Result:
    """When to reconcile again, if at all.

    Attributes:
        requeue_after: In this many seconds. This is a wait, not a failure. 0 means `None`.
        requeue: When the rate limiter allows.
        priority: Of the next reconcile; `None` keeps the current priority.
    """

    requeue_after: float | None = None
    requeue: bool = False
    priority: int | None = None

    def __post_init__(self) -> None:
        # `not ... >=` instead of `<`, so that NaN is refused too: it would never wait.
        if self.requeue_after is not None and not self.requeue_after >= 0:
            raise ConfigError("requeue_after", self.requeue_after, "it must not be negative")


DONE: Final = Result()
"""No more work until an event requests it."""


class TerminalError(NavarchosError):
    """A failure that a retry cannot fix; chain the cause, if there is one."""


class Reconciler(ABC):
    """Brings the cluster closer to the desired state of one object.

    Called with a key, not with an event: read the objects, decide, write. One key is never
    reconciled by two workers at once; different keys are, if the controller has several
    workers.
    """

    @abstractmethod
    def reconcile(self, request: Request) -> Result:
        """Reconcile one object. The table above shows what follows from each outcome."""


class ReconcileObjects(Reconciler, Generic[T]):
    """Finds the object and passes it to a function (CT-27).

    ```python
    Builder(manager).for_(NODES).build(ReconcileObjects(manager.lister(NODES), label))
    ```

    The function is not called for an object that is gone. A reconciler that has to clean up
    after objects needs their names, or a finalizer.

    Args:
        objects: Where objects are looked up; `CachedClient.lister` includes own writes.
        reconcile: Does the work.
    """

    def __init__(self, objects: Lister[T], reconcile: Callable[[T], Result]) -> None:
        self._objects = objects
        self._reconcile = reconcile

    def reconcile(self, request: Request) -> Result:
        """Pass the object to the function, if it exists."""
        obj = self._objects.find(request.name, request.namespace)
        return DONE if obj is None else self._reconcile(obj)
