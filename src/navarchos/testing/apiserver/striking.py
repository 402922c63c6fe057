"""How faults strike: before a request is served, and in the stream of a watch."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import Enum, auto

from navarchos.testing.apiserver.eviction import charge
from navarchos.testing.apiserver.faults import Asked, Fault
from navarchos.testing.apiserver.handler import Call, Request, read_eviction
from navarchos.testing.apiserver.reading import expired_page
from navarchos.testing.apiserver.writing import Api

__all__ = ["Cut", "Ending", "Spoiler", "asked_by", "strike"]


class Cut(Exception):
    """The connection is to be cut without an answer."""


def asked_by(call: Call, request: Request) -> Asked:
    """Return what faults go by in a request."""
    query = request.query
    return Asked(
        verb=call.verb,
        resource=call.resource,
        name=call.name,
        user_agent=request.user_agent,
        from_cache=_is_from_cache(call, request),
        continues=call.verb == "list" and bool(query.get("continue")),
    )


def _is_from_cache(call: Call, request: Request) -> bool:
    """Return whether upstream's watch cache may answer, rather than etcd."""
    query = request.query
    version, match = query.get("resourceVersion"), query.get("resourceVersionMatch")
    if not version or query.get("continue"):
        return False
    if call.verb == "list":
        pages = query.get("limit", "0") != "0" and version != "0" and not match
        return match != "Exact" and not pages
    return call.verb == "get"


def strike(fault: Fault, api: Api, call: Call, request: Request) -> Api:
    """Do what a fault does before a request is served; returns what is to serve it.

    Its delay is the caller's to wait for.

    Raises:
        Cut: The connection is to end instead.
        StatusError: The answer.
    """
    if fault.charge_only and call.target is not None:
        body, options = read_eviction(request)
        charge(api, call.target.kind, call.target.namespace, call.target.name, body, options)
    error = fault.error()
    if fault.reset or (fault.charge_only and error is None):
        raise Cut
    if error is not None:
        raise error
    if fault.expire_continue:
        raise expired_page(request.query["continue"])
    if fault.lag and call.target is not None:
        return replace(api, store=api.store.as_of(call.target.kind.bucket, fault.lag))
    return api


class Ending(Enum):
    """How a watch ends that a fault has struck."""

    END = auto()
    """Properly."""
    CUT = auto()
    """The connection is cut."""
    HALF_CLOSE = auto()
    """The server says that nothing more will come, and keeps the connection."""
    STALL = auto()
    """Nothing more comes, and nobody says so; properly once the server stops."""
    STALL_WITHIN = auto()
    """The same in the middle of a line: there is no proper end any more."""


class Spoiler:
    """Tells what becomes of the lines of a watch: right, or wrong where a fault says so.

    Pure but for its count of lines; whoever owns the connection does what it says.
    """

    def __init__(self, fault: Fault | None) -> None:
        self._fault = fault if fault is not None and fault.is_for_watches else None
        self._sent = 0

    def spoil(self, lines: Sequence[bytes]) -> Iterator[bytes | Ending]:
        """Yield what to send; an `Ending` is the last of all.

        A batch without lines asks for the ending that is due before the first one.
        """
        if self._fault is None:
            if lines:
                yield b"".join(lines)
            return
        for line in lines:
            yield from self._one(self._fault, line)
        if not lines and (ending := self._due(self._fault)):
            yield ending

    def _one(self, fault: Fault, line: bytes) -> Iterator[bytes | Ending]:
        if self._sent in {fault.truncate_after, fault.stall_within}:
            yield line[: len(line) // 2]
            yield Ending.CUT if self._sent == fault.truncate_after else Ending.STALL_WITHIN
        if ending := self._due(fault):
            yield ending
        self._sent += 1
        if self._sent == fault.lose:
            return
        yield line * 2 if self._sent == fault.duplicate else line
        if ending := self._due(fault):
            yield ending

    def _due(self, fault: Fault) -> Ending | None:
        if self._sent == fault.drop_after:
            return Ending.END
        if self._sent == fault.half_close_after:
            return Ending.HALF_CLOSE
        return Ending.STALL if self._sent == fault.stall_after else None
