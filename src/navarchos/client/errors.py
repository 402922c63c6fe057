"""What a request can end in, and the one table that says which.

```text
ClientError                          a request: verb, resource, key
  TransportError                     no answer
    ConnectFailed                    no connection, or it broke before the answer
    TlsFailed                        no trust
    RequestTimeout                   no answer in time
    CredentialsFailed                nobody to be, navarchos.client.credentials
  DecodeError                        an answer that cannot be read
  ApiError                           the server refused: status, reason, message, ...
    BadRequest  Unauthorized  Forbidden  NotFound  MethodNotAllowed
    Conflict > AlreadyExists
    Expired  Invalid  TooManyRequests  ServerError
WatchError                           a watch that was open
  WatchExpired                       its place in history is gone: list again
  WatchBroken                        the stream broke: resume
```

Policy: foreign exceptions become ours at the border, with the original chained
as `__cause__` and not repeated in `str()`. Facts are attributes. A body that is
not a `Status` is cut to a short line, so that no page of a proxy, and no secret,
reaches the logs whole.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

from navarchos.client.status import Status, seconds_of, status_of_answer
from navarchos.errors import NavarchosError

__all__ = [
    "AlreadyExists",
    "ApiError",
    "BadRequest",
    "ClientError",
    "Conflict",
    "ConnectFailed",
    "DecodeError",
    "Expired",
    "Forbidden",
    "Invalid",
    "MethodNotAllowed",
    "NotFound",
    "RequestTimeout",
    "ServerError",
    "TlsFailed",
    "TooManyRequests",
    "TransportError",
    "Unauthorized",
    "WatchBroken",
    "WatchError",
    "WatchExpired",
    "error_from_answer",
    "error_from_status",
    "ignore_already_exists",
    "ignore_not_found",
    "ignore_terminating_namespace",
    "is_namespace_terminating",
    "is_resource_version_too_large",
]


class ClientError(NavarchosError):
    """A request that did not end as it should.

    Attributes:
        verb: `get`, `list`, `watch`, `create`, `patch`, `apply`, `replace`,
            `delete`, or an HTTP method for raw requests.
        resource: `plural.group`, with `/subresource`; a path for raw requests.
        key: `namespace/name`; empty for collections.
        why: What happened, in a few words.
    """

    def __init__(self, why: str, *, verb: str = "", resource: str = "", key: str = "") -> None:
        super().__init__(why)
        self.why = why
        self.verb = verb
        self.resource = resource
        self.key = key

    def __str__(self) -> str:
        what = " ".join(part for part in (self.verb, self.resource, self.key) if part)
        return f"{what}: {self.why}" if what else self.why


class TransportError(ClientError):
    """No answer came.

    Attributes:
        sent: Whether the server may have received the request, wholly or in part.
            False means that it certainly did nothing.
    """

    def __init__(
        self, why: str, *, sent: bool = False, verb: str = "", resource: str = "", key: str = ""
    ) -> None:
        super().__init__(why, verb=verb, resource=resource, key=key)
        self.sent = sent


class ConnectFailed(TransportError):
    """No connection could be made, or it broke before the answer was complete.

    Attributes:
        refused: Whether the other side refused the connection, as a server does
            that is starting or restarting (RF-15).
        kept: Whether the connection was kept from an earlier request; then the
            server may just have closed it as idle, and a read is worth repeating.
    """

    def __init__(
        self,
        why: str,
        *,
        refused: bool = False,
        kept: bool = False,
        sent: bool = False,
        verb: str = "",
        resource: str = "",
        key: str = "",
    ) -> None:
        super().__init__(why, sent=sent, verb=verb, resource=resource, key=key)
        self.refused = refused
        self.kept = kept


class TlsFailed(TransportError):
    """The two sides did not come to trust each other."""


class RequestTimeout(TransportError):
    """The deadline passed before the answer was complete."""


class DecodeError(ClientError):
    """An answer, or an object in it, that does not fit its type.

    Attributes:
        namespace: Of the object, as far as it could be read.
        name: Of the object, as far as it could be read.
        uid: Of the object, as far as it could be read.
        resource_version: Of the object, as far as it could be read.
    """

    def __init__(
        self,
        why: str,
        *,
        verb: str = "",
        resource: str = "",
        namespace: str = "",
        name: str = "",
        uid: str = "",
        resource_version: str = "",
    ) -> None:
        key = f"{namespace}/{name}" if namespace else name
        super().__init__(why, verb=verb, resource=resource, key=key)
        self.namespace = namespace
        self.name = name
        self.uid = uid
        self.resource_version = resource_version


class ApiError(ClientError):
    """The server answered with an error.

    Attributes:
        status: HTTP status, or the code of a `Status` inside a watch.
        reason: `Status.reason`, such as `AlreadyExists`; empty if there was none.
        message: The server's words, cut to a line if they were no `Status`.
        details: `Status.details`, undecoded.
        causes: `Status.details.causes`.
        retry_after: Seconds after which the server wants to see us again: from
            the header `Retry-After`, else from the details. `None` without advice.
    """

    advice = "see the server's message"
    """What to do next, in words; a subclass knows better."""

    def __init__(
        self,
        answer: Status,
        *,
        retry_after: float | None = None,
        verb: str = "",
        resource: str = "",
        key: str = "",
    ) -> None:
        why = answer.message or answer.reason or f"HTTP status {answer.code}"
        super().__init__(why, verb=verb, resource=resource, key=key)
        self.status = answer.code
        self.reason = answer.reason
        self.message = answer.message
        self.details = answer.details
        self.causes = answer.causes
        self.retry_after = retry_after if retry_after is not None else answer.retry_after

    def __str__(self) -> str:
        return f"{super().__str__()} ({self.status}; {self.advice})"


class BadRequest(ApiError):
    """400: the request makes no sense to the server."""

    advice = "correct the request"


class Unauthorized(ApiError):
    """401: the server does not know who is asking."""

    advice = "renew the credentials"


class Forbidden(ApiError):
    """403: not allowed to this user, by RBAC or by admission."""

    advice = "grant the permission, or satisfy the policy that the message names"


class NotFound(ApiError):
    """404: no such object, or no such kind on this server."""

    advice = "check name and namespace, and that the kind is installed"


class MethodNotAllowed(ApiError):
    """405: the kind does not support the verb."""

    advice = "use a verb that the kind supports"


class Conflict(ApiError):
    """409: the object has changed since it was read."""

    advice = "read the object again and repeat the change"


class AlreadyExists(Conflict):
    """409 on create: there is an object of this name."""

    advice = "use the existing object or another name"


class Expired(ApiError):
    """410: the resourceVersion or continue token is too old."""

    advice = "list again"


class Invalid(ApiError):
    """422: the object breaks the rules of its kind; `causes` names the fields."""

    advice = "correct the fields named"


class TooManyRequests(ApiError):
    """429: later, please. For evictions: a disruption budget does not allow it now."""

    advice = "try again later"


class ServerError(ApiError):
    """500 and above: the server, or something on the way, failed."""

    advice = "try again; if it stays, look at the server"


class WatchError(NavarchosError):
    """A watch that was open ended other than by its server's decision.

    Attributes:
        resource: `plural.group`.
        why: What happened, in a few words.
    """

    _next = "open it again"

    def __init__(self, resource: str, why: str) -> None:
        super().__init__(resource, why)
        self.resource = resource
        self.why = why

    def __str__(self) -> str:
        return f"watch {self.resource}: {self.why}; {self._next}"


class WatchExpired(WatchError):
    """The watch's place in history is gone (410): list, then watch from there."""

    _next = "list again"


class WatchBroken(WatchError):
    """The stream was cut, garbled or silent: watch again from the last version seen."""

    _next = "resume at the last resourceVersion"


_BY_REASON: Final[Mapping[str, type[ApiError]]] = {
    "BadRequest": BadRequest,
    "Unauthorized": Unauthorized,
    "Forbidden": Forbidden,
    "NotFound": NotFound,
    "MethodNotAllowed": MethodNotAllowed,
    "AlreadyExists": AlreadyExists,
    "Conflict": Conflict,
    "Expired": Expired,
    "Gone": Expired,
    "Invalid": Invalid,
    "TooManyRequests": TooManyRequests,
    "InternalError": ServerError,
    "ServiceUnavailable": ServerError,
    "ServerTimeout": ServerError,
    "Timeout": ServerError,
}
# As in apimachinery a known reason outweighs the number.
_BY_CODE: Final[Mapping[int, type[ApiError]]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    405: MethodNotAllowed,
    409: Conflict,
    410: Expired,
    422: Invalid,
    429: TooManyRequests,
}


def error_from_status(
    status: Status,
    *,
    retry_after: float | None = None,
    verb: str = "",
    resource: str = "",
    key: str = "",
) -> ApiError:
    """Return the error that a `Status` stands for."""
    otherwise = ServerError if status.code >= 500 else ApiError
    kind = _BY_REASON.get(status.reason) or _BY_CODE.get(status.code) or otherwise
    return kind(status, retry_after=retry_after, verb=verb, resource=resource, key=key)


def error_from_answer(
    code: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    verb: str = "",
    resource: str = "",
    key: str = "",
) -> ApiError:
    """Return the error that an HTTP answer of status 400 and above stands for."""
    return error_from_status(
        status_of_answer(code, body),
        retry_after=seconds_of(headers.get("retry-after", "")),
        verb=verb,
        resource=resource,
        key=key,
    )


def is_resource_version_too_large(error: BaseException) -> bool:
    """Tell whether a server has not yet reached the resourceVersion asked for (RF-07).

    Servers say so by a cause of their own, by the message of a cause, or, old
    ones, by the message alone.
    """
    if not isinstance(error, ApiError):
        return False
    if any(cause.type == "ResourceVersionTooLarge" for cause in error.causes):
        return True
    if error.reason != "Timeout" and error.status != 504:
        return False
    texts = [error.message, *(cause.message for cause in error.causes)]
    return any("Too large resource version" in text for text in texts)


def is_namespace_terminating(error: BaseException) -> bool:
    """Tell whether something cannot be created because its namespace is being deleted."""
    return isinstance(error, ApiError) and any(
        cause.type == "NamespaceTerminating" for cause in error.causes
    )


def ignore_not_found() -> suppress:
    """Return a context that takes `NotFound` for success; all else is raised (CL-15)."""
    return suppress(NotFound)


def ignore_already_exists() -> suppress:
    """Return a context that takes `AlreadyExists` for success; all else is raised (CL-15)."""
    return suppress(AlreadyExists)


@contextmanager
def ignore_terminating_namespace() -> Iterator[None]:
    """Take it for success that nothing can be created in a namespace that ends.

    What else is refused is raised. A namespace that is gone altogether counts as well.
    """
    try:
        yield
    except NotFound as gone:
        if gone.details.get("kind") != "namespaces":
            raise
    except Forbidden as refused:
        if not is_namespace_terminating(refused):
            raise
