"""Errors as the API sends them: `Status` objects with code, reason and causes.

The texts follow `k8s.io/apimachinery/pkg/api/errors` and the package `field`, because clients and
users match on them.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from navarchos.errors import NavarchosError
from navarchos.testing.apiserver.objects import JsonObject, JsonValue

__all__ = [
    "Cause",
    "FieldError",
    "ResourceName",
    "StatusError",
    "already_exists",
    "bad_request",
    "conflict",
    "duplicate",
    "expired",
    "forbidden",
    "forbidden_field",
    "invalid",
    "invalid_value",
    "method_not_allowed",
    "no_such_resource",
    "not_acceptable",
    "not_found",
    "precondition_failed",
    "quote",
    "required",
    "too_large_version",
    "too_long",
    "too_many_requests",
    "uid_mismatch",
    "unsupported_by_router",
    "unsupported_media_type",
    "unsupported_value",
]

_TOO_LARGE_VERSION: Final = "Too large resource version"


@dataclass(frozen=True, slots=True)
class Cause:
    """One entry of `details.causes`; an empty `field` is omitted."""

    reason: str
    message: str
    field: str = ""

    def to_json(self) -> JsonObject:
        """Return the wire form."""
        found: JsonObject = {"reason": self.reason, "message": self.message}
        if self.field:
            found["field"] = self.field
        return found


@dataclass(frozen=True, slots=True)
class ResourceName:
    """Group and plural, as errors name a resource."""

    group: str
    plural: str

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


class StatusError(NavarchosError):
    """A refusal that the client gets as a `Status` object.

    Attributes:
        code: The HTTP status.
        reason: The machine-readable reason; may be empty, as upstream.
        message: The text.
        details: `status.details`, if any.
        retry_after: Seconds for `Retry-After`; 0 sends no header.
        continue_token: The token with which an expired list may continue.
        warnings: Texts for the header `Warning` of the response.
    """

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: JsonObject | None = None,
        retry_after: int = 0,
        continue_token: str = "",
    ) -> None:
        super().__init__(code, reason, message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.retry_after = retry_after
        self.continue_token = continue_token
        self.warnings: list[str] = []

    def __str__(self) -> str:
        return f"{self.code} {self.reason}: {self.message}"

    def to_json(self) -> JsonObject:
        """Return the `Status` object."""
        metadata = {"continue": self.continue_token} if self.continue_token else {}
        status: JsonObject = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": metadata,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = self.details
        status["code"] = self.code
        return status


def _details(
    resource: ResourceName | None = None,
    name: str = "",
    *,
    causes: Iterable[Cause] = (),
    retry_after: int = 0,
) -> JsonObject:
    found: JsonObject = {}
    if name:
        found["name"] = name
    if resource is not None and resource.group:
        found["group"] = resource.group
    if resource is not None and resource.plural:
        found["kind"] = resource.plural
    if listed := [cause.to_json() for cause in causes]:
        found["causes"] = listed
    if retry_after:
        found["retryAfterSeconds"] = retry_after
    return found


def bad_request(message: str) -> StatusError:
    """400: the request cannot be understood."""
    return StatusError(400, "BadRequest", message)


def not_found(resource: ResourceName, name: str) -> StatusError:
    """404: the object does not exist."""
    return StatusError(
        404, "NotFound", f'{resource} "{name}" not found', details=_details(resource, name)
    )


def no_such_resource() -> StatusError:
    """404: the kind does not exist."""
    message = "the server could not find the requested resource"
    return StatusError(404, "NotFound", message, details={})


def method_not_allowed() -> StatusError:
    """405: the kind does not have this verb."""
    message = "the server does not allow this method on the requested resource"
    return StatusError(405, "MethodNotAllowed", message, details={})


def not_acceptable(accepted: Sequence[str], *, routed: bool) -> StatusError:
    """406: no representation that the client accepts is available.

    Args:
        accepted: The representations that are available.
        routed: The kind is built in; upstream's router responds before any handler.
    """
    listed = ", ".join(accepted)
    if routed:
        message = f"406: Not Acceptable\n\nAvailable representations: {listed}"
        return StatusError(406, "NotAcceptable", message, details={})
    message = f"only the following media types are accepted: {listed}"
    return StatusError(406, "NotAcceptable", message)


def unsupported_by_router() -> StatusError:
    """415: the format of a patch is not accepted for a built-in kind."""
    message = "415: Unsupported Media Type"
    return StatusError(415, "UnsupportedMediaType", message, details={})


def unsupported_media_type(accepted: Sequence[str]) -> StatusError:
    """415: the format of a body is unknown."""
    message = (
        "the body of the request was in an unknown format - accepted media types include: "
        + ", ".join(accepted)
    )
    return StatusError(415, "UnsupportedMediaType", message)


def already_exists(resource: ResourceName, name: str) -> StatusError:
    """409: an object with this name exists already."""
    return StatusError(
        409,
        "AlreadyExists",
        f'{resource} "{name}" already exists',
        details=_details(resource, name),
    )


def conflict(resource: ResourceName, name: str, why: str = "") -> StatusError:
    """409: the object has changed, or is in another state than the client expected."""
    why = why or (
        "the object has been modified; please apply your changes to the latest version and try"
        " again"
    )
    message = f'Operation cannot be fulfilled on {resource} "{name}": {why}'
    return StatusError(409, "Conflict", message, details=_details(resource, name))


def uid_mismatch(
    resource: ResourceName, key: str, name: str, wanted: str, found: str
) -> StatusError:
    """409: the uid of an update differs from the uid of the object.

    Args:
        resource: Group and plural.
        key: The key of the object in etcd.
        name: The name of the object.
        wanted: The uid of the update.
        found: The uid of the object.
    """
    why = (
        f"StorageError: invalid object, Code: 4, Key: /registry/{key}, ResourceVersion: 0,"
        f" AdditionalErrorMsg: Precondition failed: UID in precondition: {wanted},"
        f" UID in object meta: {found}"
    )
    return conflict(resource, name, why)


def precondition_failed(
    kind: ResourceName, name: str, what: str, wanted: str, found: str
) -> StatusError:
    """409: a precondition of a deletion on `UID` or `ResourceVersion` does not hold.

    Upstream names the kind in this error, and the plural in others.
    """
    became = "deleted and then recreated" if what == "UID" else "modified"
    why = (
        f"the {what} in the precondition ({wanted}) does not match the {what} in record ({found})."
        f" The object might have been {became}"
    )
    return conflict(kind, name, why)


def forbidden(
    resource: ResourceName, name: str, why: str, *, causes: Iterable[Cause] = ()
) -> StatusError:
    """403: the request is valid, but not allowed."""
    message = (
        f'{resource} "{name}" is forbidden: {why}' if name else f"{resource} is forbidden: {why}"
    )
    return StatusError(403, "Forbidden", message, details=_details(resource, name, causes=causes))


def expired(message: str, *, continue_token: str = "") -> StatusError:
    """410: the requested version is no longer kept."""
    return StatusError(410, "Expired", message, continue_token=continue_token)


def too_large_version(asked: int, current: int) -> StatusError:
    """504: the requested version lies in the future."""
    details = _details(causes=[Cause("ResourceVersionTooLarge", _TOO_LARGE_VERSION)], retry_after=1)
    message = f"Timeout: {_TOO_LARGE_VERSION}: {asked}, current: {current}"
    return StatusError(504, "Timeout", message, details=details, retry_after=1)


def too_many_requests(
    message: str, retry_after: int = 0, *, causes: Iterable[Cause] = ()
) -> StatusError:
    """429: the client must try again later."""
    details = _details(causes=causes, retry_after=retry_after)
    return StatusError(429, "TooManyRequests", message, details=details, retry_after=retry_after)


@dataclass(frozen=True, slots=True)
class FieldError:
    """One error in an object: reason, path and text."""

    reason: str
    field: str
    text: str

    def __str__(self) -> str:
        return f"{self.field}: {self.text}"


def quote(value: JsonValue) -> str:
    """Return a value as the package `field` prints it."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, (dict, list)):
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def required(field: str, why: str = "") -> FieldError:
    """`Required value`, with an optional explanation."""
    return FieldError(
        "FieldValueRequired", field, f"Required value: {why}" if why else "Required value"
    )


def invalid_value(field: str, value: JsonValue, why: str) -> FieldError:
    """`Invalid value`: the value, and its error."""
    return FieldError("FieldValueInvalid", field, f"Invalid value: {quote(value)}: {why}")


def unsupported_value(field: str, value: JsonValue, supported: Iterable[JsonValue]) -> FieldError:
    """`Unsupported value`: the value is not in a closed set."""
    choices = ", ".join(quote(choice) for choice in supported)
    text = f"Unsupported value: {quote(value)}: supported values: {choices}"
    return FieldError("FieldValueNotSupported", field, text)


def forbidden_field(field: str, why: str) -> FieldError:
    """`Forbidden`: the field may not be set, or not be changed."""
    return FieldError("FieldValueForbidden", field, f"Forbidden: {why}")


def duplicate(field: str, value: JsonValue) -> FieldError:
    """`Duplicate value` in a set or a map."""
    return FieldError("FieldValueDuplicate", field, f"Duplicate value: {quote(value)}")


def too_long(field: str, limit: int) -> FieldError:
    """`Too long`: more bytes than allowed."""
    return FieldError("FieldValueTooLong", field, f"Too long: may not be more than {limit} bytes")


def invalid(kind: str, group: str, name: str, errors: Sequence[FieldError]) -> StatusError:
    """422: the object is invalid.

    Args:
        kind: The kind in CamelCase; this error names kinds, not plurals.
        group: The API group; empty for core.
        name: The name of the object; may be empty.
        errors: At least one error.
    """
    qualified = f"{kind}.{group}" if group else kind
    texts = list(
        dict.fromkeys(str(error) for error in errors)
    )  # the list of causes repeats equal errors, the message does not
    listed = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    causes = [Cause(e.reason, e.text, e.field) for e in errors]
    details = _details(ResourceName(group, kind), name, causes=causes)
    message = f'{qualified} "{name}" is invalid: {listed}'
    return StatusError(422, "Invalid", message, details=details)
