"""What a reconciler is asked, what it answers, and how it gives up.

| reconcile ends in | what happens to the key |
|---|---|
| `Result()` | done; its back-off starts over |
| `Result(requeue_after=s)` | again in `s` seconds; its back-off starts over |
| `Result(requeue=True)` | again when the rate limiter allows |
| `TerminalError` | counted and logged, not tried again until something changes |
| any other exception | counted and logged, again when the rate limiter allows |
| `Stopped` while the controller stops | cut short: nothing is counted, nothing comes again |
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from navarchos.errors import ConfigError, NavarchosError
from navarchos.informers import Lister
from navarchos.meta import ObjectKey

__all__ = ["DONE", "ReconcileObjects", "Reconciler", "Request", "Result", "TerminalError"]

Request = ObjectKey
"""Namespace and name of the object to look at; the namespace may be empty."""


@dataclass(frozen=True, slots=True)
class Result:
    """When to look again, if at all.

    Attributes:
        requeue_after: In so many seconds; not a failure, just a wait. 0 is `None`.
        requeue: When the rate limiter allows.
        priority: Of the next look; `None` keeps the present one.
    """

    requeue_after: float | None = None
    requeue: bool = False
    priority: int | None = None

    def __post_init__(self) -> None:
        # Written this way round so that it refuses NaN too, which would never wait.
        if self.requeue_after is not None and not self.requeue_after >= 0:
            raise ConfigError("requeue_after", self.requeue_after, "it must not be negative")


DONE: Final = Result()
"""Nothing more to do until something changes."""


class TerminalError(NavarchosError):
    """A failure that trying again cannot mend; chain the cause, if there is one."""


class Reconciler(ABC):
    """Brings the world closer to what one object asks for.

    Called with a key, never with an event: read the objects, decide, write. One
    key is never with two workers at once; different keys are, if the controller
    has several.
    """

    @abstractmethod
    def reconcile(self, request: Request) -> Result:
        """Look at one object and do what is due. See the table above for the end."""


T = TypeVar("T")


class ReconcileObjects(Reconciler, Generic[T]):
    """Looks the object up and hands it to a function (CT-27).

    ```python
    Builder(manager).for_(NODES).build(ReconcileObjects(manager.lister(NODES), label))
    ```

    An object that is gone is done with: the function is not called. A reconciler that
    has to clean up after objects needs their names, or a finalizer.

    Args:
        objects: Where objects are looked up; `CachedClient.lister` includes own writes.
        reconcile: Does the work.
    """

    def __init__(self, objects: Lister[T], reconcile: Callable[[T], Result]) -> None:
        self._objects = objects
        self._reconcile = reconcile

    def reconcile(self, request: Request) -> Result:
        """Hand the object over, if it is there."""
        obj = self._objects.find(request.name, request.namespace)
        return DONE if obj is None else self._reconcile(obj)
