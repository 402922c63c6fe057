"""Asking one pod to go, and what the server's answer means.

The rules are those of the API server's eviction handler; see the table in
`outcome_of`. Nothing here waits, and nothing is retried.
"""

import re
from enum import StrEnum
from typing import Final

import msgspec

from navarchos.client import Client
from navarchos.client.errors import (
    ApiError,
    ClientError,
    Conflict,
    DecodeError,
    Forbidden,
    NotFound,
    TooManyRequests,
    Unauthorized,
    error_from_answer,
    is_namespace_terminating,
)
from navarchos.client.rbac import PolicyRule
from navarchos.drain.pods import PODS, Pod
from navarchos.structs import prepare_decoding

__all__ = ["RBAC", "Answer", "Evictor", "Outcome", "outcome_of", "served_eviction"]

RBAC: Final = (
    PolicyRule(PODS, ("create",), subresource="eviction"),
    PolicyRule(PODS, ("delete",)),  # without evictions, or past a budget: only if told to
)
"""What an `Evictor` asks of the server."""


class Answer(StrEnum):
    """What became of a request that a pod go. A closed set: also a metric's label."""

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
        """Whether the pod is on its way or gone."""
        return self in _DONE

    @property
    def is_budget(self) -> bool:
        """Whether a budget is in the way."""
        return self in _BUDGET


_DONE: Final = frozenset({Answer.EVICTED, Answer.DELETED, Answer.GONE})
_BUDGET: Final = frozenset({Answer.BLOCKED_BY_BUDGET, Answer.IN_PROGRESS, Answer.MULTIPLE_BUDGETS})


class Outcome(msgspec.Struct, frozen=True):
    """The answer, understood.

    Attributes:
        answer: What became of it.
        message: The server's words; empty on success.
        budget: The budget in the way, by name, as far as the server named one.
        retry_after: Seconds after which the server wants to be asked again.
    """

    answer: Answer
    message: str = ""
    budget: str = ""
    retry_after: float | None = None


_BUDGET_NAME: Final = re.compile(r"^The disruption budget (\S+) ")
_NO_RIGHT: Final = re.compile(r"\bcannot (create|delete) resource\b")


def outcome_of(error: ClientError) -> Outcome:
    """Say what a failed eviction means.

    | answer of the server | outcome |
    |---|---|
    | 404 | gone |
    | 409: the uid is another one, or somebody was faster | gone; look again |
    | 429 with cause `DisruptionBudget` | blocked by that budget |
    | the same, "still being processed" | in progress |
    | 429 otherwise: the server is busy | in progress |
    | 403 with cause `NamespaceTerminating` | the namespace's deletion takes it |
    | 403 about a budget (negative, or too many unconfirmed) | blocked by it |
    | 403 of the authorizer | forbidden: a right is missing |
    | 500 with several budgets | blocked until somebody edits one |
    | any, from an admission webhook | denied; it may move the pod itself |
    | any, because an admission webhook could not be asked | failed; asked again |
    | 400, 403, 405, 422 otherwise | refused |
    | other statuses, no answer | retry |
    """
    if not isinstance(error, ApiError):
        return Outcome(Answer.RETRY, str(error))
    return Outcome(_answer(error), _message(error), _budget(error), error.retry_after)


def _answer(error: ApiError) -> Answer:  # noqa: PLR0911 - the table, row by row
    if isinstance(error, NotFound):
        return Answer.GONE
    if "admission webhook" in error.message and "denied the request" in error.message:
        return Answer.WEBHOOK_DENIED
    if "failed calling webhook" in error.message:
        # apiserver, pkg/util/webhook/error.go: ErrCallingWebhook.
        return Answer.WEBHOOK_FAILED
    if isinstance(error, Conflict):
        return Answer.GONE
    if isinstance(error, TooManyRequests):
        return _too_many(error)
    if "more than one PodDisruptionBudget" in error.message:
        # No code of its own: apiserver, pkg/registry/core/pod/storage/eviction.go.
        return Answer.MULTIPLE_BUDGETS
    if isinstance(error, Forbidden):
        return _forbidden(error)
    if isinstance(error, Unauthorized) or error.status >= 500:
        return Answer.RETRY
    return Answer.REFUSED


def _too_many(error: TooManyRequests) -> Answer:
    texts = [cause.message for cause in error.causes if cause.type == "DisruptionBudget"]
    if not texts or any("still being processed" in text for text in texts):
        return Answer.IN_PROGRESS
    return Answer.BLOCKED_BY_BUDGET


def _forbidden(error: Forbidden) -> Answer:
    if is_namespace_terminating(error):
        return Answer.NAMESPACE_TERMINATING
    if str(error.details.get("kind", "")).startswith("poddisruptionbudget"):
        return Answer.BLOCKED_BY_BUDGET
    return Answer.FORBIDDEN if _NO_RIGHT.search(error.message) else Answer.REFUSED


def _message(error: ApiError) -> str:
    # The status itself only says that a budget is in the way; the cause says which.
    causes = [cause.message for cause in error.causes if cause.type == "DisruptionBudget"]
    return "; ".join(causes) or error.message or str(error)


def _budget(error: ApiError) -> str:
    """Find the budget's name; the server has it in a sentence only."""
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
    """Ask the server which version of `policy` its evictions speak.

    Returns:
        `v1`, `v1beta1`, or empty if it has no evictions; then pods are deleted, as
        `kubectl drain` does.

    Raises:
        ClientError: It could not be asked.
    """
    answer = client.raw("GET", "/api/v1")
    if answer.status >= 400:
        # Not to be taken for "no evictions": deletions pass over budgets.
        raise error_from_answer(
            answer.status, answer.headers, answer.body, verb="GET", resource="/api/v1"
        )
    try:
        found = msgspec.json.decode(answer.body, type=_ApiResourceList)
    except msgspec.DecodeError as error:
        raise DecodeError(str(error), verb="GET", resource="/api/v1") from error
    for resource in found.resources:
        if resource.name == "pods/eviction" and resource.kind == "Eviction":
            return resource.version
    return ""


class Evictor:
    """Asks pods to go. Thin: one request per call.

    Always sends the pod's uid as a precondition, so that a later pod of the same
    name is never hit.

    Args:
        client: Talks to the server.
        timeout: Longest request in seconds; admission webhooks may be slow.

    Threads: safe from any thread. The version of the eviction API is asked for
    until there is one, by whoever comes first.
    """

    def __init__(self, client: Client, *, timeout: float = 10.0) -> None:
        self._client = client
        self._pods = client.resource(PODS)
        self._timeout = timeout
        # Empty, then the server's one answer for ever: whoever writes it writes the same,
        # and each call goes by what it has read or written itself. So there is no lock.
        self._version = ""

    def evict(self, pod: Pod, *, grace: int | None = None) -> Outcome:
        """Evict a pod; delete it where the server knows no evictions.

        Args:
            pod: Which.
            grace: Its time to terminate; `None` leaves it to the pod.
        """
        try:
            version = self._version or served_eviction(self._client)
        except ClientError as error:
            return Outcome(Answer.RETRY, str(error))
        if not version:
            return self.delete(pod, grace=grace)
        self._version = version
        return self._evict(pod, version, grace)

    def delete(self, pod: Pod, *, grace: int | None = None) -> Outcome:
        """Delete a pod, which passes over its budgets."""
        meta = pod.metadata
        try:
            self._pods.delete(
                meta.name,
                meta.namespace,
                uid=meta.uid,
                grace_period_seconds=grace,
                timeout=self._timeout,
            )
        except ClientError as error:
            return outcome_of(error)
        return Outcome(Answer.DELETED)

    def _evict(self, pod: Pod, version: str, grace: int | None) -> Outcome:
        meta = pod.metadata
        try:
            self._pods.evict(
                meta.name,
                meta.namespace,
                uid=meta.uid,
                grace_period_seconds=grace,
                policy_version=version,
                timeout=self._timeout,
            )
        except ClientError as error:
            return outcome_of(error)
        return Outcome(Answer.EVICTED)
