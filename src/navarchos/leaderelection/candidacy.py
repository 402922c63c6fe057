"""Standing for election where the API server elects: LeaseCandidate objects (LE-22)."""

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
from navarchos.informers import SharedInformer
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

_RENEW_EVERY: Final = 300.0  # as client-go; the server forgets a candidate after half an hour
_BACKOFF: Final = Backoff(base=0.5, cap=10.0, jitter=0.5)
_REQUEST_LIMIT: Final = 5.0  # for so long the server waits for an answer to its ping
_VERSION: Final = re.compile(r"\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?")

_log = get_logger(__name__)


def candidate_rbac() -> tuple[PolicyRule, ...]:
    """Return what a candidacy asks of the server, in the Lease's namespace.

    Beside `lease_rbac`. Names are new with each process, so they cannot limit it.
    """
    return (PolicyRule(LEASE_CANDIDATES, ("create", "patch", "delete", "list", "watch")),)


def candidate_identity() -> str:
    """Return a name for this process that no other has, and that an object may have."""
    host = re.sub(r"[^a-z0-9.-]+", "-", socket.gethostname().lower()).strip(".-")
    return f"{host or 'host'}-{uuid.uuid4()}"


@dataclass(frozen=True, slots=True)
class Coordination:
    """What the server elects by: of several candidates, the oldest emulation version.

    So a cluster that is being upgraded is led by the old version until no old one is left.

    Attributes:
        binary_version: Ours, as in `1.2.3`.
        emulation_version: As which version we behave; the binary version if empty.
        strategy: `OldestEmulationVersion`, or that of a coordinator of your own.

    Raises:
        ConfigError: A version is none.
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
    """Keeps our LeaseCandidate, and answers when the server asks whether we are there.

    Promises: it is renewed whenever its ping time is newer than its renew time, and every
    five minutes; made again when somebody deletes it; removed by `withdraw`, which
    upstream's are not: there a successor waits for the departed to answer.

    Life cycle: `start`, then `withdraw`, which may be repeated. Threads: any.

    Args:
        client: Talks to the server.
        namespace: Of the Lease, and of the candidate.
        lease: The name of the Lease.
        identity: Ours, and the candidate's name.
        coordination: What we say of ourselves.
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
        self._pause = InterruptibleSleep(clock)
        self._threads = ThreadGroup("candidacy", stop=self._stop, clock=clock)
        self._informer = SharedInformer(
            client.resource(LEASE_CANDIDATES),
            namespace=namespace,
            field_selector=f"metadata.name={identity}",
            clock=clock,
            name="candidacy",
        )
        self._informer.add_handler(
            on_add=lambda found, _: self._look(found),
            on_update=lambda _, found: self._look(found),
            on_delete=lambda _: self._pause.wake(),
        )

    def start(self) -> None:
        """Begin to stand for election."""
        self._informer.start()
        self._threads.start("", self._keep_candidate)

    def withdraw(self) -> None:
        """Stand no more; waits for a request that is under way, and removes the candidate."""
        if self._stop.is_set():
            return
        self._stop.stop("no longer a candidate")
        self._informer.stop("no longer a candidate")
        self._threads.join(None)
        try:
            with ignore_not_found():
                self._candidates.delete(self._name, timeout=_REQUEST_LIMIT)
        except ClientError as error:
            _log.warning("candidate_not_removed", candidate=self._name, error=str(error))

    def _keep_candidate(self) -> None:
        failures = 0
        while not self._stop.is_set():
            try:
                self._renew()
                failures, pause = 0, _RENEW_EVERY
            except ClientError as error:
                _log.warning("candidate_not_renewed", candidate=self._name, error=str(error))
                failures, pause = failures + 1, _BACKOFF.delay(failures)
            self._pause.wait(self._stop, pause)

    def _renew(self) -> None:
        renewed = {"renewTime": format_micro_time(self._clock.now())}
        try:
            # Not the whole object: the server writes its ping time at the same moment.
            self._candidates.patch(self._name, {"spec": renewed}, timeout=_REQUEST_LIMIT)
        except NotFound:
            self._write_placeholder_holder()
            body = {"metadata": {"name": self._name}, "spec": {**self._spec, **renewed}}
            self._candidates.create(body, timeout=_REQUEST_LIMIT)

    def _write_placeholder_holder(self) -> None:
        """Let a lease that names nobody, as ordinary election leaves it, name nobody real.

        The API server of Kubernetes 1.36 dies when a candidate stands for such a lease.
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

    def _look(self, found: Mapping[str, Any]) -> None:
        spec = found.get("spec") or {}
        # Times have six digits each, so they compare as texts do.
        if (spec.get("pingTime") or "") > (spec.get("renewTime") or ""):
            self._pause.wake()
