"""The errors of requests and watches.

```text
ClientError                          a request: verb, resource, key
  TransportError                     there was no response
    ConnectFailed                    connecting failed, or the connection broke
    TlsFailed                        the TLS handshake failed
    RequestTimeout                   the response did not arrive in time
    CredentialsFailed                there are no credentials (client.credentials)
  DecodeError                        the response cannot be decoded
  ApiError                           the server refused: status, reason, message, ...
    BadRequest  Unauthorized  Forbidden  NotFound  MethodNotAllowed
    Conflict > AlreadyExists
    Expired  Invalid  TooManyRequests  ServerError
WatchError                           an open watch failed
  WatchExpired                       its resourceVersion is too old: list again
  WatchBroken                        the stream broke: resume
```

Policy: exceptions of other libraries are converted to these, with the original as
`__cause__` and not repeated in `str()`. Facts are attributes. A body that is not a
`Status` is cut to a short line, so that the logs never contain a whole page of a proxy, or
a secret.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

from navarchos.client.status import Status, seconds_of, status_of_response
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
    "error_from_response",
    "error_from_status",
    "ignore_already_exists",
    "ignore_not_found",
    "ignore_terminating_namespace",
    "is_namespace_terminating",
    "is_resource_version_too_large",
]


class ClientError(NavarchosError):
    """A request failed.

    Attributes:
        verb: `get`, `list`, `watch`, `create`, `patch`, `apply`, `replace`,
            `delete`, or an HTTP method for raw requests.
        resource: `plural.group`, with `/subresource`; a path for raw requests.
        key: `namespace/name`; empty for collections.
        why: The failure, in a few words.
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
    """There was no response.

    Attributes:
        sent: Whether the server may have received the request, completely or in part.
            False means that the request certainly had no effect.
    """

    def __init__(
        self, why: str, *, sent: bool = False, verb: str = "", resource: str = "", key: str = ""
    ) -> None:
        super().__init__(why, verb=verb, resource=resource, key=key)
        self.sent = sent


class ConnectFailed(TransportError):
    """Connecting failed, or the connection broke before the response was complete.

    Attributes:
        refused: Whether the connection was refused, as by a server that is starting or
            restarting (RF-15).
        kept: Whether the connection was used by an earlier request; then the server may
            have closed it because it was idle, and a read should be repeated.
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
    """The TLS handshake failed."""


class RequestTimeout(TransportError):
    """The deadline passed before the response was complete."""


class DecodeError(ClientError):
    """A response, or an object in it, does not fit its type.

    Attributes:
        namespace: The namespace of the object; empty if it could not be read.
        name: The name of the object; empty if it could not be read.
        uid: The uid of the object; empty if it could not be read.
        resource_version: The version of the object; empty if it could not be read.
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
    """The server responded with an error.

    Attributes:
        status: HTTP status, or the code of a `Status` inside a watch.
        reason: `Status.reason`, such as `AlreadyExists`; may be empty.
        message: The server's message; cut to a line if the body was not a `Status`.
        details: `Status.details`, not decoded.
        causes: `Status.details.causes`.
        retry_after: Seconds after which the server allows a repeat: from the header
            `Retry-After`, otherwise from the details. `None` if the server gave no time.
    """

    advice = "see the message of the server"
    """What to do next, for the text of the error."""

    def __init__(
        self,
        status: Status,
        *,
        retry_after: float | None = None,
        verb: str = "",
        resource: str = "",
        key: str = "",
    ) -> None:
        why = status.message or status.reason or f"HTTP status {status.code}"
        super().__init__(why, verb=verb, resource=resource, key=key)
        self.status = status.code
        self.reason = status.reason
        self.message = status.message
        self.details = status.details
        self.causes = status.causes
        self.retry_after = retry_after if retry_after is not None else status.retry_after

    def __str__(self) -> str:
        return f"{super().__str__()} ({self.status}; {self.advice})"


class BadRequest(ApiError):
    """400: the server does not understand the request."""

    advice = "correct the request"


class Unauthorized(ApiError):
    """401: the server does not accept the credentials."""

    advice = "renew the credentials"


class Forbidden(ApiError):
    """403: RBAC or an admission plugin does not allow the request."""

    advice = "grant the permission, or satisfy the policy that the message names"


class NotFound(ApiError):
    """404: the object does not exist, or the server does not serve the kind."""

    advice = "check the name and the namespace, and whether the kind is installed"


class MethodNotAllowed(ApiError):
    """405: the kind does not support the verb."""

    advice = "use a verb that the kind supports"


class Conflict(ApiError):
    """409: the object has changed since it was read."""

    advice = "read the object again and repeat the change"


class AlreadyExists(Conflict):
    """409 on create: an object of this name exists."""

    advice = "use the existing object or another name"


class Expired(ApiError):
    """410: the resourceVersion or continue token is too old."""

    advice = "list again"


class Invalid(ApiError):
    """422: the object is not valid for its kind; `causes` has the fields."""

    advice = "correct the fields in the message"


class TooManyRequests(ApiError):
    """429: the server is busy. For an eviction: a disruption budget does not allow it now."""

    advice = "try again later"


class ServerError(ApiError):
    """500 and above: the server, or a proxy before it, failed."""

    advice = "try again; if the error persists, check the server"


class WatchError(NavarchosError):
    """An open watch ended with an error.

    Attributes:
        resource: `plural.group`.
        why: The failure, in a few words.
    """

    _next = "open it again"

    def __init__(self, resource: str, why: str) -> None:
        super().__init__(resource, why)
        self.resource = resource
        self.why = why

    def __str__(self) -> str:
        return f"watch {self.resource}: {self.why}; {self._next}"


class WatchExpired(WatchError):
    """The resourceVersion of the watch is too old (410): list, then watch from there."""

    _next = "list again"


class WatchBroken(WatchError):
    """The stream broke, is not readable or was silent: watch from the last version."""

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
# As in apimachinery, a known reason has precedence over the code.
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
    """Return the error for a `Status`."""
    otherwise = ServerError if status.code >= 500 else ApiError
    kind = _BY_REASON.get(status.reason) or _BY_CODE.get(status.code) or otherwise
    return kind(status, retry_after=retry_after, verb=verb, resource=resource, key=key)


def error_from_response(
    code: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    verb: str = "",
    resource: str = "",
    key: str = "",
) -> ApiError:
    """Return the error for an HTTP response with a status of 400 or above."""
    return error_from_status(
        status_of_response(code, body),
        retry_after=seconds_of(headers.get("retry-after", "")),
        verb=verb,
        resource=resource,
        key=key,
    )


def is_resource_version_too_large(error: BaseException) -> bool:
    """Return whether the server has not yet reached the requested resourceVersion (RF-07).

    Servers report it by a special cause, by the message of a cause, or, old servers, by
    the message only.
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
    """Return whether a creation failed because the namespace is being deleted."""
    return isinstance(error, ApiError) and any(
        cause.type == "NamespaceTerminating" for cause in error.causes
    )


def ignore_not_found() -> suppress:
    """Return a context that ignores `NotFound` and no other error (CL-15)."""
    return suppress(NotFound)


def ignore_already_exists() -> suppress:
    """Return a context that ignores `AlreadyExists` and no other error (CL-15)."""
    return suppress(AlreadyExists)


@contextmanager
def ignore_terminating_namespace() -> Iterator[None]:
    """Ignore errors caused by creating objects in a terminating namespace.

    Also if the namespace was deleted meanwhile. Other errors are raised.
    """
    try:
        yield
    except NotFound as gone:
        if gone.details.get("kind") != "namespaces":
            raise
    except Forbidden as refused:
        if not is_namespace_terminating(refused):
            raise
