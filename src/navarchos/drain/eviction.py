"""Evicting one pod, what the response means, and when to retry.

The rules follow the eviction handler of the API server; `eviction_result` has the table.
No function here waits, and none retries.
"""

import re
from collections.abc import Callable
from enum import StrEnum
from typing import Final, assert_never

import msgspec

from navarchos.backoff import Backoff
from navarchos.client import Client, errors
from navarchos.client.rbac import PolicyRule
from navarchos.clock import uniform
from navarchos.drain.pods import PODS, Pod
from navarchos.structs import prepare_decoding

__all__ = [
    "RBAC",
    "EvictionOutcome",
    "EvictionResult",
    "Evictor",
    "eviction_result",
    "retry_delay",
    "served_eviction",
]

RBAC: Final = (
    PolicyRule(PODS, ("create",), subresource="eviction"),
    PolicyRule(
        PODS, ("delete",)
    ),  # for servers without evictions, and to bypass a budget on request
)
"""The permissions (RBAC) that an `Evictor` needs."""


class EvictionOutcome(StrEnum):
    """What happened to an eviction or deletion request.

    A closed set: the values are labels of a metric and reasons in status.
    """

    EVICTED = "Evicted"
    DELETED = "Deleted"
    GONE = "Gone"
    BLOCKED_BY_BUDGET = "BlockedByBudget"
    IN_PROGRESS = "InProgress"
    MULTIPLE_BUDGETS = "MultipleBudgets"
    WEBHOOK_DENIED = "WebhookDenied"
    WEBHOOK_FAILED = "WebhookFailed"
    REFUSED = "Refused"
    NAMESPACE_TERMINATING = "NamespaceTerminating"
    FORBIDDEN = "Forbidden"
    RETRY = "Retry"

    @property
    def is_done(self) -> bool:
        """Whether the pod terminates or is gone."""
        match self:
            case EvictionOutcome.EVICTED | EvictionOutcome.DELETED | EvictionOutcome.GONE:
                return True
            case (
                EvictionOutcome.BLOCKED_BY_BUDGET
                | EvictionOutcome.IN_PROGRESS
                | EvictionOutcome.MULTIPLE_BUDGETS
                | EvictionOutcome.WEBHOOK_DENIED
                | EvictionOutcome.WEBHOOK_FAILED
                | EvictionOutcome.REFUSED
                | EvictionOutcome.NAMESPACE_TERMINATING
                | EvictionOutcome.FORBIDDEN
                | EvictionOutcome.RETRY
            ):
                return False
            case _:
                assert_never(self)

    @property
    def is_budget(self) -> bool:
        """Whether a PodDisruptionBudget prevented the eviction."""
        match self:
            case (
                EvictionOutcome.BLOCKED_BY_BUDGET
                | EvictionOutcome.IN_PROGRESS
                | EvictionOutcome.MULTIPLE_BUDGETS
            ):
                return True
            case (
                EvictionOutcome.EVICTED
                | EvictionOutcome.DELETED
                | EvictionOutcome.GONE
                | EvictionOutcome.WEBHOOK_DENIED
                | EvictionOutcome.WEBHOOK_FAILED
                | EvictionOutcome.REFUSED
                | EvictionOutcome.NAMESPACE_TERMINATING
                | EvictionOutcome.FORBIDDEN
                | EvictionOutcome.RETRY
            ):
                return False
            case _:
                assert_never(self)


class EvictionResult(msgspec.Struct, frozen=True):
    """The parsed response to an eviction or deletion request.

    Attributes:
        outcome: What happened.
        message: The server's message; empty on success.
        budget: The name of the budget that prevented the eviction, if the server named it.
        retry_after: Seconds after which the server asks for a retry.
    """

    outcome: EvictionOutcome
    message: str = ""
    budget: str = ""
    retry_after: float | None = None


_MAX_RETRY_DELAY: Final = 30.0
_RETRY_FACTOR: Final = 1.5
_RETRY_JITTER: Final = 0.2

_BUDGET_NAME: Final = re.compile(r"^The disruption budget (\S+) ")
_NO_PERMISSION: Final = re.compile(r"\bcannot (create|delete) resource\b")


def eviction_result(error: errors.ClientError) -> EvictionResult:
    """Return what a failed eviction means.

    | response of the server | outcome |
    |---|---|
    | 404 | `Gone` |
    | 409: the pod has another uid, or changed at the same time | `Gone`; list the pods again |
    | 429 with cause `DisruptionBudget` | `BlockedByBudget` |
    | the same, "still being processed" | `InProgress` |
    | 429 otherwise: the server is busy | `InProgress` |
    | 403 with cause `NamespaceTerminating` | `NamespaceTerminating`: deleted with its namespace |
    | 403 about a budget (negative, or too many unconfirmed) | `BlockedByBudget` |
    | 403 of the authorizer | `Forbidden`: a permission (RBAC) is missing |
    | 500 with several budgets | `MultipleBudgets`, until a user edits one of them |
    | any status, from an admission webhook | `WebhookDenied`; the webhook may move the pod itself |
    | any status, because an admission webhook did not respond | `WebhookFailed`; retried |
    | 400, 403, 405, 422 otherwise | `Refused` |
    | other statuses, or no response | `Retry` |
    """
    if not isinstance(error, errors.ApiError):
        return EvictionResult(EvictionOutcome.RETRY, str(error))
    return EvictionResult(_outcome(error), _message(error), _budget(error), error.retry_after)


def _outcome(error: errors.ApiError) -> EvictionOutcome:  # noqa: PLR0911 - the table, row by row
    if isinstance(error, errors.NotFound):
        return EvictionOutcome.GONE
    if "admission webhook" in error.message and "denied the request" in error.message:
        return EvictionOutcome.WEBHOOK_DENIED
    if "failed calling webhook" in error.message:
        # apiserver, pkg/util/webhook/error.go: ErrCallingWebhook.
        return EvictionOutcome.WEBHOOK_FAILED
    if isinstance(error, errors.Conflict):
        return EvictionOutcome.GONE
    if isinstance(error, errors.TooManyRequests):
        return _too_many(error)
    if "more than one PodDisruptionBudget" in error.message:
        # This error has no distinct code: apiserver, pkg/registry/core/pod/storage/eviction.go.
        return EvictionOutcome.MULTIPLE_BUDGETS
    if isinstance(error, errors.Forbidden):
        return _forbidden(error)
    if isinstance(error, errors.Unauthorized) or error.status >= 500:
        return EvictionOutcome.RETRY
    return EvictionOutcome.REFUSED


def _too_many(error: errors.TooManyRequests) -> EvictionOutcome:
    texts = [cause.message for cause in error.causes if cause.type == "DisruptionBudget"]
    if not texts or any("still being processed" in text for text in texts):
        return EvictionOutcome.IN_PROGRESS
    return EvictionOutcome.BLOCKED_BY_BUDGET


def _forbidden(error: errors.Forbidden) -> EvictionOutcome:
    if errors.is_namespace_terminating(error):
        return EvictionOutcome.NAMESPACE_TERMINATING
    if str(error.details.get("kind", "")).startswith("poddisruptionbudget"):
        return EvictionOutcome.BLOCKED_BY_BUDGET
    return (
        EvictionOutcome.FORBIDDEN
        if _NO_PERMISSION.search(error.message)
        else EvictionOutcome.REFUSED
    )


def _message(error: errors.ApiError) -> str:
    # The status message does not name the budget; the cause does.
    causes = [cause.message for cause in error.causes if cause.type == "DisruptionBudget"]
    return "; ".join(causes) or error.message or str(error)


def _budget(error: errors.ApiError) -> str:
    """Return the budget's name, which the server sends only inside a sentence."""
    for cause in error.causes:
        if cause.type == "DisruptionBudget" and (found := _BUDGET_NAME.match(cause.message)):
            return found[1]
    if str(error.details.get("kind", "")).startswith("poddisruptionbudget"):
        return str(error.details.get("name", ""))
    return ""


class _ApiResource(msgspec.Struct, frozen=True):
    name: str = ""
    kind: str = ""
    group: str = ""
    version: str = ""


@prepare_decoding
class _ApiResourceList(msgspec.Struct, frozen=True):
    resources: tuple[_ApiResource, ...] = ()


def served_eviction(client: Client) -> str:
    """Ask the server which version of `policy` it accepts for evictions.

    Returns:
        `v1`, `v1beta1`, or empty if the server has no evictions; the caller then deletes
        pods, as `kubectl drain` does.

    Raises:
        ClientError: The server did not answer, or refused.
    """
    answer = client.raw("GET", "/api/v1")
    if answer.status >= 400:
        # This must not count as "no evictions", because deletions bypass budgets.
        raise errors.error_from_response(
            answer.status, answer.headers, answer.body, verb="GET", resource="/api/v1"
        )
    try:
        found = msgspec.json.decode(answer.body, type=_ApiResourceList)
    except msgspec.DecodeError as error:
        raise errors.DecodeError(str(error), verb="GET", resource="/api/v1") from error
    for resource in found.resources:
        if resource.name == "pods/eviction" and resource.kind == "Eviction":
            return resource.version
    return ""


class Evictor:
    """Evicts and deletes pods, with one request per call.

    Promises: every request carries the pod's uid as a precondition, so a later pod of the
    same name is never evicted by mistake.

    Args:
        client: Sends the requests.
        timeout: Maximum duration of a request in seconds; admission webhooks may be slow.

    Threads: safe from any thread. The first call also asks the server for the version of
    its eviction API, and repeats that until the server has answered.
    """

    def __init__(self, client: Client, *, timeout: float = 10.0) -> None:
        self._client = client
        self._pods = client.resource(PODS)
        self._timeout = timeout
        # Empty at first, later the version that the server named, which never changes. All
        # threads write the same value, and each call uses the value that it read or wrote
        # itself, so no lock is needed.
        self._version = ""

    def evict(self, pod: Pod, *, grace: int | None = None) -> EvictionResult:
        """Evict a pod, or delete it if the server has no evictions.

        Args:
            pod: The pod.
            grace: Seconds to terminate; `None` means the pod's own grace period.
        """
        try:
            version = self._version or served_eviction(self._client)
        except errors.ClientError as error:
            return EvictionResult(EvictionOutcome.RETRY, str(error))
        if not version:
            return self.delete(pod, grace=grace)
        self._version = version
        return self._evict(pod, version, grace)

    def delete(self, pod: Pod, *, grace: int | None = None) -> EvictionResult:
        """Delete a pod, which bypasses its budgets."""
        meta = pod.metadata
        try:
            self._pods.delete(
                meta.name,
                meta.namespace,
                uid=meta.uid,
                grace_period_seconds=grace,
                timeout=self._timeout,
            )
        except errors.ClientError as error:
            return eviction_result(error)
        return EvictionResult(EvictionOutcome.DELETED)

    def _evict(self, pod: Pod, version: str, grace: int | None) -> EvictionResult:
        meta = pod.metadata
        try:
            self._pods.evict(  # mutant: get-per-pod
                meta.name,
                meta.namespace,
                uid=meta.uid,  # mutant: eviction-without-uid
                grace_period_seconds=grace,
                policy_version=version,
                timeout=self._timeout,
            )
        except errors.ClientError as error:
            return eviction_result(error)
        return EvictionResult(EvictionOutcome.EVICTED)


def retry_delay(
    result: EvictionResult, failures: int, *, base: float, rand: Callable[[], float] = uniform
) -> float:
    """Return the seconds until the next request for a pod.

    A `Retry-After` of the server is honoured. Otherwise the delay grows from `base` to half a
    minute (or stays at `base` if that is more), because a budget may be exhausted for hours
    and a thousand blocked pods must not become a load. A fifth of the delay is random, so that
    pods refused at the same time are not retried at the same time.

    A pod that terminates gets another request after `base` seconds only if it still exists
    then: the deletion may have been lost, or refused because of the uid.

    Args:
        result: The last response.
        failures: Consecutive responses that did not evict the pod, without this one.
        base: First delay in seconds.
        rand: Source of numbers in [0, 1).
    """
    if result.retry_after:  # an exhausted budget sends 0, which asks for no delay
        return result.retry_after * (1 + rand() * _RETRY_JITTER)
    policy = Backoff(
        base, factor=_RETRY_FACTOR, cap=max(base, _MAX_RETRY_DELAY), jitter=_RETRY_JITTER
    )
    return policy.delay(0 if result.outcome.is_done else failures, rand=rand)
