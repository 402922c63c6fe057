"""Read-modify-write: create or update an object, and retry after a conflict.

`create_or_update` and `create_or_patch` follow controller-runtime's controllerutil. They
read and return the whole object as plain JSON, for any type of the resource, because a
projection would lose fields.
"""

import copy
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar, cast

import msgspec

from navarchos.backoff import Backoff
from navarchos.client.bodies import merge_diff
from navarchos.client.errors import AlreadyExists, Conflict, NotFound
from navarchos.client.resource_client import ResourceClient
from navarchos.clock import SYSTEM_CLOCK, Clock, uniform
from navarchos.errors import ConfigError
from navarchos.meta import identity_of
from navarchos.stopping import StopToken

__all__ = [
    "FEW_WRITERS",
    "MANY_WRITERS",
    "ConflictPolicy",
    "Mutate",
    "UpsertOutcome",
    "UpsertResult",
    "create_or_patch",
    "create_or_update",
    "retry_on_conflict",
]

T = TypeVar("T")

Mutate: TypeAlias = Callable[[dict[str, Any]], object]
"""Change a whole object, a private copy, to the wanted state; the result is ignored.

It gets the object as the server has it, or an object with only a name, and must be
idempotent.
"""


class UpsertOutcome(StrEnum):
    """The writes that were needed; the values are as in controller-runtime."""

    UNCHANGED = "unchanged"
    """No write was sent."""
    CREATED = "created"
    UPDATED = "updated"
    UPDATED_STATUS = "updatedStatus"
    """The object and, by a second request, its status."""
    UPDATED_STATUS_ONLY = "updatedStatusOnly"


class UpsertResult(msgspec.Struct, Generic[T], frozen=True):
    """The object as the server has it now, and the writes that were needed."""

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

    Needs the verbs `get`, `create` and `update`. The status is not written if it is a
    subresource.

    Args:
        client: The client of the kind; its namespace and defaults apply.
        name: The object's name.
        mutate: See `Mutate`. Must not change the name or the namespace.
        namespace: Its namespace; empty for cluster-scoped kinds.
        timeout: Seconds for each request.

    Raises:
        ConfigError: `mutate` changed the name or the namespace; nothing was written
            (CL-02).
        Conflict: Another client changed or created the object meanwhile: wrap the call
            in `retry_on_conflict`, or wait for the next reconcile.
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
    """Create an object, or patch the changes of `mutate` (CL-03).

    The status is patched by a separate request. Each of the two patches is sent only if
    there is a difference, and applies only to the uid and version that were read. Needs
    the verbs `get`, `create` and `patch`, and `patch` on `status`. If the status is a
    subresource, the status of a new object is written by the next call.

    Args:
        client: The client of the kind; its namespace and defaults apply.
        name: The object's name.
        mutate: See `Mutate`. Must not change the name or the namespace.
        namespace: Its namespace; empty for cluster-scoped kinds.
        timeout: Seconds for each request.

    Raises:
        ConfigError: `mutate` changed the name or the namespace; nothing was written
            (CL-02).
        Conflict: Another client changed or created the object meanwhile.
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
    """Return the object before `mutate`, `None` if it does not exist, and after it."""
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


if TYPE_CHECKING:
    from tenacity import RetryCallState


R = TypeVar("R")


class ConflictPolicy(msgspec.Struct, frozen=True):
    """The number of tries and the waits between them.

    Attributes:
        tries: The total number of tries, at least 1.
        backoff: The waits between tries.
    """

    tries: int
    backoff: Backoff

    def __post_init__(self) -> None:
        if self.tries < 1:
            raise ConfigError("tries", self.tries, "it must be at least 1")


FEW_WRITERS: Final = ConflictPolicy(5, Backoff(0.01, factor=1.0, jitter=0.1))
"""client-go's `DefaultRetry`: a few clients write the object, rarely."""

MANY_WRITERS: Final = ConflictPolicy(4, Backoff(0.01, factor=5.0, jitter=0.1))
"""client-go's `DefaultBackoff`: other clients write all the time; wait longer."""


def retry_on_conflict(
    fn: Callable[[], R],
    *,
    policy: ConflictPolicy = FEW_WRITERS,
    clock: Clock = SYSTEM_CLOCK,
    stop: StopToken | None = None,
    rand: Callable[[], float] = uniform,
) -> R:
    """Call `fn` until it does not raise `Conflict`; return its result.

    `fn` must read the object again in each call, otherwise it conflicts again.

    Args:
        fn: Reads, changes and writes the object.
        policy: The number of tries and the waits.
        clock: Time for the waits.
        stop: Ends a wait, with `Stopped`.
        rand: Source of the jitter.

    Raises:
        Conflict: The last conflict, when the tries are used up (CL-09). `AlreadyExists` is
            raised at once, because a repeat cannot succeed.
    """
    # Imported here, because few users of the client call this function.
    from tenacity import Retrying, retry_if_exception, stop_after_attempt

    waiting = stop if stop is not None else StopToken(clock=clock)

    def wait(state: "RetryCallState") -> float:
        return policy.backoff.delay(state.attempt_number - 1, rand=rand)

    def sleep(seconds: float) -> None:
        waiting.wait(seconds)
        waiting.raise_if_set()

    retrying = Retrying(
        retry=retry_if_exception(_is_retriable),
        stop=stop_after_attempt(policy.tries),
        wait=wait,
        sleep=sleep,
        reraise=True,
    )
    return retrying(fn)


def _is_retriable(error: BaseException) -> bool:
    return isinstance(error, Conflict) and not isinstance(error, AlreadyExists)
