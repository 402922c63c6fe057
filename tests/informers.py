"""Informers from keyword arguments, for fixtures that add further settings."""

from typing import Any, TypeVar

from navarchos.informers import InformerOptions, ListerWatcher, Scope, SharedInformer

__all__ = ["make_informer", "present"]

T = TypeVar("T")

_PARTS = ("clock", "instruments")


def make_informer(client: ListerWatcher[T], **settings: Any) -> SharedInformer[T]:
    """Make an informer from the fields of `Scope` and `InformerOptions`, and other arguments."""
    scope = {key: settings.pop(key) for key in Scope.__struct_fields__ if key in settings}
    parts = {key: settings.pop(key) for key in _PARTS if key in settings}
    return SharedInformer(client, Scope(**scope), InformerOptions[T](**settings), **parts)


def present(obj: T | None) -> T:
    """Return an object that must exist."""
    assert obj is not None
    return obj
