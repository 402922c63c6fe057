"""Finalizers: what must be done before an object may go.

Arrays in a merge patch are replaced whole, so the patches here carry the
resourceVersion they were made from: a finalizer that someone else added meanwhile
is not lost, the patch conflicts instead.
"""

from navarchos.meta import ObjectMeta

__all__ = ["add_finalizer", "has_finalizer", "remove_finalizer"]


def has_finalizer(metadata: ObjectMeta, name: str) -> bool:
    """Tell whether an object waits for this finalizer before it may go."""
    return name in metadata.finalizers


def add_finalizer(metadata: ObjectMeta, name: str) -> dict[str, object] | None:
    """Return the merge patch that adds a finalizer; `None` if it is there (CL-07)."""
    if has_finalizer(metadata, name):
        return None
    return _patch(metadata, [*metadata.finalizers, name])


def remove_finalizer(metadata: ObjectMeta, name: str) -> dict[str, object] | None:
    """Return the merge patch that removes a finalizer, every entry of it (CL-07).

    `None` if there is none.
    """
    if not has_finalizer(metadata, name):
        return None
    return _patch(metadata, [kept for kept in metadata.finalizers if kept != name])


def _patch(metadata: ObjectMeta, finalizers: list[str]) -> dict[str, object]:
    return {
        "metadata": {
            "finalizers": finalizers or None,
            "resourceVersion": metadata.resource_version,
        }
    }
