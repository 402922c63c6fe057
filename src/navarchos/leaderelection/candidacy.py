"""Candidates of coordinated election, where the API server elects: LeaseCandidate (LE-22)."""

import re
import socket
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from navarchos.backoff import Backoff
from navarchos.client import Client, ClientError, NotFound, Resource, ignore_not_found
from navarchos.client.rbac import PolicyRule
from navarchos.clock import Clock
from navarchos.errors import ConfigError
from navarchos.informers import InformerOptions, Scope, SharedInformer
from navarchos.leaderelection.leader_task import InterruptibleSleep
from navarchos.leaderelection.lock import LEASES
from navarchos.logs import get_logger
from navarchos.meta import format_micro_time
from navarchos.stopping import StopToken
from navarchos.threads import ThreadGroup

__all__ = [
    "LEASE_CANDIDATES",
    "Candidacy",
    "Coordination",
    "candidate_identity",
    "candidate_rbac",
]

LEASE_CANDIDATES: Final[Resource[dict[str, Any]]] = Resource(
    "coordination.k8s.io",
    "v1beta1",
    "leasecandidates",
    "LeaseCandidate",
    namespaced=True,
    type=dict,
)
"""Served by Kubernetes 1.33 and later with the feature gate CoordinatedLeaderElection."""

_RENEW_EVERY: Final = 300.0  # as client-go; the server forgets a candidate after 30 minutes
_BACKOFF: Final = Backoff(base=0.5, cap=10.0, jitter=0.5)
_REQUEST_LIMIT: Final = 5.0  # the server waits this long for the answer to its ping
_VERSION: Final = re.compile(r"\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?")

_log = get_logger(__name__)


def candidate_rbac() -> tuple[PolicyRule, ...]:
    """Return the permissions that a candidacy needs in the namespace of the Lease.

    They come in addition to `lease_rbac`. They are not limited to names, because each process
    uses a new name.
    """
    return (PolicyRule(LEASE_CANDIDATES, ("create", "patch", "delete", "list", "watch")),)


def candidate_identity() -> str:
    """Return a unique name for this process that is also a valid object name."""
    host = re.sub(r"[^a-z0-9.-]+", "-", socket.gethostname().lower()).strip(".-")
    return f"{host or 'host'}-{uuid.uuid4()}"


@dataclass(frozen=True, slots=True)
class Coordination:
    """How the server elects: the candidate with the oldest emulation version wins.

    During an upgrade the old version therefore leads until its last process has ended.

    Attributes:
        binary_version: The version of this process, such as `1.2.3`.
        emulation_version: The version that it behaves like; the binary version if empty.
        strategy: `OldestEmulationVersion`, or the strategy of a custom coordinator.

    Raises:
        ConfigError: A version is not a semantic version.
    """

    binary_version: str
    emulation_version: str = ""
    strategy: str = "OldestEmulationVersion"

    def __post_init__(self) -> None:
        for field in ("binary_version", "emulation_version"):
            version = getattr(self, field) or self.binary_version
            if not _VERSION.fullmatch(version):
                raise ConfigError(field, version, "it must be a semantic version such as 1.2.3")


class Candidacy:
    """Keeps the LeaseCandidate of this process, and answers the server's pings.

    Promises: the candidate is renewed whenever its ping time is newer than its renew time, and
    every five minutes; re-created when another client deletes it; and deleted by `withdraw`.
    (client-go does not delete it, so a successor has to wait until the ping of the old
    candidate times out.)

    Lifecycle: `start`, then `withdraw`, which may be repeated. Threads: any.

    Args:
        client: Talks to the server.
        namespace: Of the Lease, and of the candidate.
        lease: The name of the Lease.
        identity: Of this process; also the name of the candidate.
        coordination: The versions and the strategy of the candidate.
        clock: Time and waiting.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        lease: str,
        identity: str,
        coordination: Coordination,
        *,
        clock: Clock,
    ) -> None:
        self._candidates = client.resource(LEASE_CANDIDATES).in_namespace(namespace)
        self._leases = client.resource(LEASES).in_namespace(namespace)
        self._lease = lease
        self._name = identity
        self._spec: Mapping[str, object] = {
            "leaseName": lease,
            "binaryVersion": coordination.binary_version,
            "emulationVersion": coordination.emulation_version or coordination.binary_version,
            "strategy": coordination.strategy,
        }
        self._clock = clock
        self._stop = StopToken(clock=clock)
        self._sleep = InterruptibleSleep(clock)
        self._threads = ThreadGroup("candidacy", stop=self._stop, clock=clock)
        self._informer = SharedInformer(
            client.resource(LEASE_CANDIDATES),
            Scope(namespace=namespace, field_selector=f"metadata.name={identity}"),
            InformerOptions(name="candidacy"),
            clock=clock,
        )
        self._informer.add_handler(
            on_add=lambda found, _: self._answer_ping(found),
            on_update=lambda _, found: self._answer_ping(found),
            on_delete=lambda _: self._sleep.wake(),
        )

    def start(self) -> None:
        """Create the candidate and keep it renewed."""
        self._informer.start()
        self._threads.start("", self._keep_candidate)

    def withdraw(self) -> None:
        """Stop to renew, wait for the request in flight, and delete the candidate."""
        if self._stop.is_set():
            return
        self._stop.stop("no longer a candidate")
        self._informer.stop("no longer a candidate")
        self._threads.join(None)
        try:
            with ignore_not_found():
                self._candidates.delete(self._name, timeout=_REQUEST_LIMIT)
        except ClientError as error:
            _log.warning(
                "candidate_not_removed", kind="LeaseCandidate", name=self._name, error=str(error)
            )

    def _keep_candidate(self) -> None:
        failures = 0
        while not self._stop.is_set():
            try:
                self._renew()
                failures, pause = 0, _RENEW_EVERY
            except ClientError as error:
                _log.warning(
                    "candidate_not_renewed",
                    kind="LeaseCandidate",
                    name=self._name,
                    error=str(error),
                )
                failures, pause = failures + 1, _BACKOFF.delay(failures)
            self._sleep.wait(self._stop, pause)

    def _renew(self) -> None:
        renewed = {"renewTime": format_micro_time(self._clock.now())}
        try:
            # A patch of one field: the server may write the ping time at the same moment.
            self._candidates.patch(self._name, {"spec": renewed}, timeout=_REQUEST_LIMIT)
        except NotFound:
            self._write_placeholder_holder()
            body = {"metadata": {"name": self._name}, "spec": {**self._spec, **renewed}}
            self._candidates.create(body, timeout=_REQUEST_LIMIT)

    def _write_placeholder_holder(self) -> None:
        """Write a placeholder into a lease without a holder, as ordinary election leaves it.

        The API server of Kubernetes 1.36 panics when there is a candidate for such a lease.
        """
        try:
            found = self._leases.get(self._lease, timeout=_REQUEST_LIMIT)
        except NotFound:
            return
        spec = found.get("spec")
        fields = dict(spec) if isinstance(spec, Mapping) else {}
        if fields.get("holderIdentity"):
            return
        named = {
            **fields,
            "holderIdentity": "nobody",
            "leaseDurationSeconds": 1,
            "renewTime": format_micro_time(self._clock.now()),
        }
        self._leases.replace(self._lease, {**found, "spec": named}, timeout=_REQUEST_LIMIT)

    def _answer_ping(self, found: Mapping[str, Any]) -> None:
        spec = found.get("spec") or {}
        # All times have six digits of a second, so comparing them as text is correct.
        if (spec.get("pingTime") or "") > (spec.get("renewTime") or ""):
            self._sleep.wake()
