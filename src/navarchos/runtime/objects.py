"""Reconcilers that are handed the object instead of its name."""

from collections.abc import Callable
from typing import Generic, TypeVar

from navarchos.informers import Lister
from navarchos.runtime.request import DONE, Reconciler, Request, Result

__all__ = ["ReconcileObjects"]

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
