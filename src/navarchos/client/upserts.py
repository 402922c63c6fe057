"""Create an object, or bring the one there is to the state wanted.

After controller-runtime's controllerutil. A projection would lose fields, so these
read and hand out the whole object as plain JSON, whatever the resource decodes into.
"""

import copy
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast

import msgspec

from navarchos.client.errors import NotFound
from navarchos.client.patches import merge_diff
from navarchos.client.resource_client import ResourceClient
from navarchos.errors import ConfigError
from navarchos.meta import identity_of

__all__ = ["Mutate", "UpsertOutcome", "UpsertResult", "create_or_patch", "create_or_update"]

T = TypeVar("T")

Mutate: TypeAlias = Callable[[dict[str, Any]], object]
"""Brings a whole object, a private copy, to the state wanted; what it returns is not used.

It sees the object as the server has it, or one with nothing but a name, and has to give
the same result however often it is called.
"""


class UpsertOutcome(StrEnum):
    """What an object's state took; the values are controller-runtime's words."""

    UNCHANGED = "unchanged"
    """Nothing: no write was sent."""
    CREATED = "created"
    UPDATED = "updated"
    UPDATED_STATUS = "updatedStatus"
    """Both, the status by a request of its own."""
    UPDATED_STATUS_ONLY = "updatedStatusOnly"


class UpsertResult(msgspec.Struct, Generic[T], frozen=True):
    """The object as the server has it now, and what that took."""

    outcome: UpsertOutcome
    object: T


_STATUS: Final = "status"


def create_or_update(
    client: ResourceClient[T],
    name: str,
    mutate: Mutate,
    namespace: str = "",
    *,
    timeout: float | None = None,
) -> UpsertResult[Mapping[str, Any]]:
    """Create an object, or replace it if `mutate` changes it (CL-01).

    Takes the verbs `get`, `create` and `update`. Status is not written where it is a
    subresource.

    Args:
        client: The kind; its wrappers hold here, too.
        name: The object's name.
        mutate: See `Mutate`. May not change name or namespace.
        namespace: Its namespace; empty for cluster-scoped kinds.
        timeout: Of each request, in seconds.

    Raises:
        ConfigError: `mutate` changed the name or the namespace; nothing was written
            (CL-02).
        Conflict: Somebody else changed the object meanwhile, or made it: wrap the call
            in `retry_on_conflict`, or leave it to the next reconciliation.
        ApiError: The object could not be read; nothing was written.
    """
    whole = client.projected(dict[str, Any])
    before, after = _around(mutate, whole, name, namespace, timeout)
    if before is None:
        return UpsertResult(UpsertOutcome.CREATED, whole.create(after, namespace, timeout=timeout))
    if not merge_diff(before, after):
        return UpsertResult(UpsertOutcome.UNCHANGED, before)
    return UpsertResult(
        UpsertOutcome.UPDATED, whole.replace(name, after, namespace, timeout=timeout)
    )


def create_or_patch(
    client: ResourceClient[T],
    name: str,
    mutate: Mutate,
    namespace: str = "",
    *,
    timeout: float | None = None,
) -> UpsertResult[Mapping[str, Any]]:
    """Create an object, or patch what `mutate` changes in it (CL-03).

    The status is patched by a request of its own; each of the two patches is sent only
    if there is a difference, and holds for the object and the version that were read.
    Takes the verbs `get`, `create` and `patch`, and `patch` on `status`. The status of
    an object that is created here waits for the next call, if it is a subresource.

    Args:
        client: The kind; its wrappers hold here, too.
        name: The object's name.
        mutate: See `Mutate`. May not change name or namespace.
        namespace: Its namespace; empty for cluster-scoped kinds.
        timeout: Of each request, in seconds.

    Raises:
        ConfigError: `mutate` changed the name or the namespace; nothing was written
            (CL-02).
        Conflict: Somebody else changed the object meanwhile, or made it.
        ApiError: The object could not be read, and nothing was written; or the status
            was refused after the rest had been patched.
    """
    whole = client.projected(dict[str, Any])
    before, after = _around(mutate, whole, name, namespace, timeout)
    if before is None:
        return UpsertResult(UpsertOutcome.CREATED, whole.create(after, namespace, timeout=timeout))
    current = before
    main = merge_diff(_without_status(before), _without_status(after))
    status = merge_diff(_only_status(before), _only_status(after))
    for patch, subresource in ((main, ""), (status, _STATUS)):
        if patch:
            identity = identity_of(current)
            current = whole.patch(
                name,
                patch,
                namespace,
                subresource=subresource,
                uid=identity.uid,
                resource_version=identity.resource_version,
                timeout=timeout,
            )
    return UpsertResult(_OUTCOMES[bool(main), bool(status)], current)


_OUTCOMES: Final = {
    (False, False): UpsertOutcome.UNCHANGED,
    (True, False): UpsertOutcome.UPDATED,
    (True, True): UpsertOutcome.UPDATED_STATUS,
    (False, True): UpsertOutcome.UPDATED_STATUS_ONLY,
}


def _around(
    mutate: Mutate,
    whole: ResourceClient[dict[str, Any]],
    name: str,
    namespace: str,
    timeout: float | None,
) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """Return the object as it is, if it is, and as `mutate` wants it."""
    before = _find(whole, name, namespace, timeout)
    after = copy.deepcopy(before) if before is not None else _named(whole, name, namespace)
    was = identity_of(after)
    mutate(after)
    now = identity_of(after)
    for field in ("name", "namespace"):
        if getattr(was, field) != getattr(now, field):
            rule = f"it must stay {getattr(was, field)!r}: another {field} means another object"
            raise ConfigError(f"metadata.{field}", getattr(now, field), rule)
    return before, after


def _find(
    whole: ResourceClient[dict[str, Any]], name: str, namespace: str, timeout: float | None
) -> dict[str, Any] | None:
    try:
        return whole.get(name, namespace, timeout=timeout)
    except NotFound:
        return None


def _named(whole: ResourceClient[dict[str, Any]], name: str, namespace: str) -> dict[str, Any]:
    where = namespace or (whole.namespace if whole.resource.namespaced else "")
    metadata = {"name": name} | ({"namespace": where} if where else {})
    kind = {"apiVersion": whole.resource.api_version, "kind": whole.resource.kind}
    return cast("dict[str, Any]", kind | {"metadata": metadata})


def _without_status(obj: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in obj.items() if name != _STATUS}


def _only_status(obj: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in obj.items() if name == _STATUS}
