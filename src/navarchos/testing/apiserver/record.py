"""The record of requests: counts, and the latest ones with their outcome."""

import threading
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from navarchos.testing.apiserver.handler import Call

__all__ = ["AuditRecord", "Record"]

_AUDIT_LENGTH: Final = 10_000
_VERBS: Final = (
    "get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "evict",
)  # fmt: skip


class AuditRecord(NamedTuple):
    """One request and its outcome; `code` is 0 when the connection was cut."""

    verb: str
    resource: str
    subresource: str
    namespace: str
    name: str
    user_agent: str
    code: int


class Record:
    """Counts and the latest requests.

    Threads: safe from any thread.
    """

    def __init__(self) -> None:
        self._record_lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()  # verb, agent; guarded by _record_lock
        self._audit: deque[AuditRecord] = deque(maxlen=_AUDIT_LENGTH)  # guarded by _record_lock

    @property
    def requests(self) -> Mapping[str, int]:
        """Requests on resources by verb; every verb is there."""
        return self.requests_by("")

    def requests_by(self, agent: str) -> Mapping[str, int]:
        """Those of clients whose user agent begins like this; every verb is there."""
        found = dict.fromkeys(_VERBS, 0)
        with self._record_lock:
            for (verb, user_agent), count in self._counts.items():
                if user_agent.startswith(agent):
                    found[verb] += count
        return found

    @property
    def audit(self) -> Sequence[AuditRecord]:
        """The latest requests on resources, oldest first."""
        with self._record_lock:
            return tuple(self._audit)

    def count(self, call: Call, user_agent: str) -> None:
        """Count a request as it begins."""
        if call.target is not None:
            with self._record_lock:
                self._counts[call.verb, user_agent] += 1

    def add(self, call: Call, user_agent: str, code: int) -> None:
        """Keep a request that has been answered."""
        target = call.target
        if target is None:
            return
        record = AuditRecord(
            call.verb, call.resource, target.subresource, target.namespace,
            target.name or call.selected, user_agent, code,
        )  # fmt: skip
        with self._record_lock:
            self._audit.append(record)
