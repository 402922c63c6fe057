"""The API's own account of what went wrong."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from navarchos.structs import prepare_decoding, without_nulls

__all__ = ["Status", "StatusCause", "decode_status", "seconds_of", "status_of_answer"]

_SHORT: Final = 200


@prepare_decoding
class StatusCause(msgspec.Struct, frozen=True, rename={"type": "reason"}, kw_only=True):
    """One entry of `Status.details.causes`.

    Attributes:
        type: A machine-readable word, such as `FieldValueInvalid`; on the wire it
            is called `reason`.
        message: For people.
        field: The field at fault, as a path; empty when it is not about one.
    """

    type: str = ""
    message: str = ""
    field: str = ""


@prepare_decoding
class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The server's `metav1.Status`, as far as errors need it."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: Mapping[str, object] = {}

    @property
    def causes(self) -> tuple[StatusCause, ...]:
        """The causes of the details; malformed ones are left out."""
        found = self.details.get("causes")
        return tuple(_causes(found)) if isinstance(found, list) else ()

    @property
    def retry_after(self) -> float | None:
        """`details.retryAfterSeconds`; `None` when it is absent or not above 0."""
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
        msgspec.DecodeError: It is none.
    """
    return msgspec.convert(without_nulls(msgspec.json.decode(data)), Status)


def status_of_answer(code: int, body: bytes) -> Status:
    """Return the `Status` in an answer's body, or one made from the text there is."""
    try:
        status = decode_status(body)
    except msgspec.DecodeError:
        return Status(code=code, message=_one_line(body))
    if not (status.reason or status.message or status.details):
        return Status(code=code, message=_one_line(body))
    # The line of the answer is what proxies and retries go by.
    return msgspec.structs.replace(status, code=code)


def _one_line(body: bytes) -> str:
    text = " ".join(body[: 4 * _SHORT].decode(errors="replace").split())
    return text if len(text) <= _SHORT else f"{text[:_SHORT]}..."


def seconds_of(header: str) -> float | None:
    """Return the seconds in a `Retry-After` header; `None` without any."""
    # The API server sends whole seconds; the other form, a date, is not used.
    return float(header) if header.strip().isdecimal() else None
