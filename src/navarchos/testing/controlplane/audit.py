"""Read the audit log of the API server.

The log is read from its file, so no request is missed and no copy is stored.
"""

import threading
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from navarchos.structs import make_decoder
from navarchos.testing.apiserver import AuditRecord

__all__ = ["AuditEvent", "AuditLogFile", "AuditUser", "ObjectReference", "ResponseStatus"]

_KEPT: Final = 10_000
_DECISION: Final = "authorization.k8s.io/decision"
_CREDENTIAL: Final = "authentication.kubernetes.io/credential-id"
_VERBS: Final = (
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
    "evict",
)


class AuditUser(msgspec.Struct, frozen=True):
    """The user who sent a request."""

    username: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = {}

    @property
    def credential(self) -> str:
        """The token that was sent, as `JTI=` and its ID; empty without a token."""
        return next(iter(self.extra.get(_CREDENTIAL, ())), "")


class ObjectReference(msgspec.Struct, frozen=True, rename="camel"):
    """The object of a request; `api_group` is empty for the core group."""

    resource: str = ""
    namespace: str = ""
    name: str = ""
    api_group: str = ""
    api_version: str = ""
    subresource: str = ""


class ResponseStatus(msgspec.Struct, frozen=True):
    """The status of a response."""

    code: int = 0
    reason: str = ""


class AuditEvent(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One stage of one request (`audit.k8s.io/v1`).

    Attributes:
        audit_id: The ID of the request; all stages of a request share it.
        stage: `ResponseStarted` for watches, then `ResponseComplete`; or `Panic`.
        verb: The verb as RBAC names it.
        request_uri: Path and query.
        user: The user who sent the request.
        user_agent: The client program.
        object_ref: The object; `None` for requests without a resource.
        response_status: The response; `None` if the server sent none.
        stage_timestamp: The time of the stage.
        annotations: Notes of authorization and admission.
    """

    audit_id: str = msgspec.field(name="auditID")
    stage: str
    verb: str
    request_uri: str = msgspec.field(name="requestURI", default="")
    user: AuditUser = AuditUser()
    user_agent: str = ""
    object_ref: ObjectReference | None = None
    response_status: ResponseStatus | None = None
    stage_timestamp: datetime | None = None
    annotations: Mapping[str, str] = {}

    @property
    def is_unauthorized(self) -> bool:
        """Whether the user was unknown or lacked the permission.

        Not every 403 is unauthorized: admission also answers with 403.
        """
        is_unknown = self.response_status is not None and self.response_status.code == 401
        return is_unknown or self.annotations.get(_DECISION) == "forbid"

    @property
    def is_eviction(self) -> bool:
        """Whether the request evicts a pod."""
        ref = self.object_ref
        return self.verb == "create" and ref is not None and ref.subresource == "eviction"


class AuditLogFile:
    """The audit log of one API server, which may still be writing it.

    Does not promise: that a request is logged when its response arrives. The server
    writes the event after it has responded.

    Threads: safe from any thread.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log_lock = threading.Lock()
        self._offset = 0  # of the first line not read; guarded by _log_lock
        self._begun: set[str] = set()  # watches counted and open; guarded by _log_lock
        self._counts: Counter[tuple[str, str]] = Counter()  # guarded by _log_lock
        self._records: deque[AuditRecord] = deque(maxlen=_KEPT)  # guarded by _log_lock

    def events(self) -> Iterator[AuditEvent]:
        """Read all events from the beginning, oldest first."""
        for event, _ in _read(self._path, 0):
            yield event

    @property
    def records(self) -> Sequence[AuditRecord]:
        """The latest finished requests on resources, oldest first; at most 10,000."""
        with self._log_lock:
            self._catch_up_locked()
            return tuple(self._records)

    def requests_by(self, agent: str) -> Mapping[str, int]:
        """Count the requests for resources by verb, of user agents with this prefix."""
        found = dict.fromkeys(_VERBS, 0)
        with self._log_lock:
            self._catch_up_locked()
            for (verb, user_agent), count in self._counts.items():
                if user_agent.startswith(agent):
                    found[verb] = found.get(verb, 0) + count
        return found

    def _catch_up_locked(self) -> None:
        for event, end in _read(self._path, self._offset):
            self._offset = end
            if event.object_ref is not None:
                self._take_locked(event, event.object_ref)

    def _take_locked(self, event: AuditEvent, ref: ObjectReference) -> None:
        verb = "evict" if event.is_eviction else event.verb
        if event.stage == "ResponseStarted":
            self._begun.add(event.audit_id)
            self._counts[verb, event.user_agent] += 1
            return
        if event.audit_id in self._begun:
            self._begun.remove(event.audit_id)
        else:
            self._counts[verb, event.user_agent] += 1
        self._records.append(_record(verb, event, ref))


def _record(verb: str, event: AuditEvent, ref: ObjectReference) -> AuditRecord:
    status = event.response_status
    return AuditRecord(
        verb=verb,
        resource=ref.resource,
        subresource=ref.subresource,
        namespace=ref.namespace,
        name=ref.name,
        user_agent=event.user_agent,
        code=status.code if status is not None else 0,
    )


_decoder = make_decoder(AuditEvent)


def _read(path: Path, offset: int) -> Iterator[tuple[AuditEvent, int]]:
    """Read complete lines; yield each event and the offset of the next one."""
    try:
        file = path.open("rb")
    except FileNotFoundError:  # the server has not handled a request yet
        return
    with file:
        file.seek(offset)
        while (line := file.readline()).endswith(b"\n"):
            offset += len(line)
            yield _decoder.decode(line), offset
