"""`metav1.Status`: the error description of the API."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from navarchos.structs import prepare_decoding, without_nulls

__all__ = ["Status", "StatusCause", "decode_status", "seconds_of", "status_of_response"]

_MAX_MESSAGE: Final = 200


@prepare_decoding
class StatusCause(msgspec.Struct, frozen=True, rename={"type": "reason"}, kw_only=True):
    """One entry of `Status.details.causes`.

    Attributes:
        type: A machine-readable word, such as `FieldValueInvalid`; the JSON field is
            `reason`.
        message: The description.
        field: The path of the invalid field; empty if the cause is not a field.
    """

    type: str = ""
    message: str = ""
    field: str = ""


@prepare_decoding
class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of `metav1.Status` that errors need."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: Mapping[str, object] = {}

    @property
    def causes(self) -> tuple[StatusCause, ...]:
        """The causes in the details; malformed causes are left out."""
        found = self.details.get("causes")
        return tuple(_causes(found)) if isinstance(found, list) else ()

    @property
    def retry_after(self) -> float | None:
        """`details.retryAfterSeconds`; `None` if it is absent or not above 0."""
        seconds = self.details.get("retryAfterSeconds")
        return float(seconds) if isinstance(seconds, int | float) and seconds > 0 else None


def _causes(found: Sequence[object]) -> Iterator[StatusCause]:
    for entry in found:
        try:
            yield msgspec.convert(entry, StatusCause)
        except msgspec.ValidationError:
            continue


def decode_status(data: bytes | msgspec.Raw) -> Status:
    """Decode a `Status`.

    Raises:
        msgspec.DecodeError: The data is not a `Status`.
    """
    return msgspec.convert(without_nulls(msgspec.json.decode(data)), Status)


def status_of_response(code: int, body: bytes) -> Status:
    """Return the `Status` in the body of a response, or a new one with the text."""
    try:
        status = decode_status(body)
    except msgspec.DecodeError:
        return Status(code=code, message=_one_line(body))
    if not (status.reason or status.message or status.details):
        return Status(code=code, message=_one_line(body))
    # The code of the status line wins, because proxies and retries use it.
    return msgspec.structs.replace(status, code=code)


def _one_line(body: bytes) -> str:
    text = " ".join(body[: 4 * _MAX_MESSAGE].decode(errors="replace").split())
    return text if len(text) <= _MAX_MESSAGE else f"{text[:_MAX_MESSAGE]}..."


def seconds_of(header: str) -> float | None:
    """Return the seconds of a `Retry-After` header; `None` for another value."""
    # The API server sends whole seconds; it does not use the other form, a date.
    return float(header) if header.strip().isdecimal() else None
