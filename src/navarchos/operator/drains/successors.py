"""Successors: the pod that a Deployment with one replica starts elsewhere before its old pod ends.

A changed annotation in its template makes the Deployment replace its pod by a rolling update. With
a surge, the new pod is available before the old one is deleted, so a single replica moves without
an outage, and no number of replicas changes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, assert_never

import msgspec

from navarchos.client import ApiError, Client, Conflict, NotFound, Resource
from navarchos.client.rbac import PolicyRule
from navarchos.drain import PlannedPod, PodReason
from navarchos.errors import ConfigError
from navarchos.meta import Object, controller_of
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.names import FIELD_MANAGER, MOVED_FOR_ANNOTATION

__all__ = [
    "DEPLOYMENTS",
    "RBAC_OF_USERS",
    "REPLICA_SETS",
    "Deployment",
    "NoSuccessor",
    "Successor",
    "SuccessorAsked",
    "SuccessorDue",
    "SuccessorRefused",
    "Successors",
    "judge",
    "may_have_successor",
    "waits_for_successor",
]

_TIMEOUT: Final = 10.0
_REPLICA_SET: Final = ("apps/v1", "ReplicaSet")
_DEPLOYMENT: Final = ("apps/v1", "Deployment")
_REPEATED: Final = 429
_SERVER_ERROR: Final = 500


class _RollingUpdate(msgspec.Struct, frozen=True, rename="camel", gc=False):
    max_surge: int | str = "25%"


class _Strategy(msgspec.Struct, frozen=True, rename="camel", gc=False):
    type: str = "RollingUpdate"
    rolling_update: _RollingUpdate | None = None


class _TemplateMeta(msgspec.Struct, frozen=True, gc=False):
    annotations: Mapping[str, str] | None = None


class _Template(msgspec.Struct, frozen=True, gc=False):
    metadata: _TemplateMeta = _TemplateMeta()


class _DeploymentSpec(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    replicas: int = 1
    paused: bool = False
    strategy: _Strategy = _Strategy()
    template: _Template = _Template()


class Deployment(Object, frozen=True):
    """A Deployment, with the fields that decide whether a rolling update has no outage."""

    spec: _DeploymentSpec = _DeploymentSpec()

    @property
    def name(self) -> str:
        """The Deployment as `namespace/name`."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def moved_for(self) -> str:
        """The uid of the last drain for which its pod was replaced first; empty if none."""
        return (self.spec.template.metadata.annotations or {}).get(MOVED_FOR_ANNOTATION, "")

    @property
    def starts_successor_first(self) -> bool:
        """Whether a rolling update starts the new pod before it deletes the only old one."""
        spec = self.spec
        # mutant: outage-by-a-rolling-update
        if spec.replicas != 1 or spec.paused or spec.strategy.type != "RollingUpdate":
            return False
        surge = (spec.strategy.rolling_update or _RollingUpdate()).max_surge
        try:
            return api.resolve_count(surge, spec.replicas, round_up=True) > 0
        except ConfigError:
            return False


REPLICA_SETS: Final = Resource(
    "apps", "v1", "replicasets", "ReplicaSet", namespaced=True, type=Object
)
DEPLOYMENTS: Final = Resource(
    "apps", "v1", "deployments", "Deployment", namespaced=True, type=Deployment
)

RBAC_OF_USERS: Final = (
    PolicyRule(REPLICA_SETS, ("get",)),
    PolicyRule(DEPLOYMENTS, ("get", "patch")),
)
"""The permissions (RBAC) that `replaceFirst` needs. A user grants them: with them a client can run
any pod of any namespace, so the shipped role does not have them."""


@dataclass(frozen=True, slots=True)
class NoSuccessor:
    """The pod has no successor, so it is evicted like any other."""


@dataclass(frozen=True, slots=True)
class SuccessorDue:
    """The Deployment must be asked for a successor."""

    deployment: Deployment


@dataclass(frozen=True, slots=True)
class SuccessorAsked:
    """The Deployment was asked for a successor, and then deletes the pod itself."""

    deployment: str


@dataclass(frozen=True, slots=True)
class SuccessorRefused:
    """The API server refused to read or to change the Deployment."""

    message: str


Successor = NoSuccessor | SuccessorDue | SuccessorAsked | SuccessorRefused
"""What is known about the successor of a pod."""


def may_have_successor(planned: PlannedPod) -> bool:
    """Return whether the pod serves clients and a ReplicaSet controls it."""
    owner = planned.pod.controller
    if owner is None or planned.finding.reason is PodReason.FINISHED:
        return False
    return (owner.api_version, owner.kind) == _REPLICA_SET


def waits_for_successor(successor: Successor | None) -> bool:
    """Return whether a pod is not evicted now because of its successor."""
    match successor:
        case None | NoSuccessor():
            return False
        case SuccessorDue() | SuccessorAsked() | SuccessorRefused():
            return True
        case _:
            assert_never(successor)


def judge(deployment: Deployment, drain: api.NodeDrain) -> Successor:
    """Return what to do about the pod of a Deployment. Pure.

    The annotation in the template records that the Deployment was asked, so that it is asked
    once for each drain, also after a crash.
    """
    if deployment.moved_for == drain.metadata.uid:  # mutant: successors-asked-twice
        return SuccessorAsked(deployment.name)
    if deployment.starts_successor_first:
        return SuccessorDue(deployment)
    return NoSuccessor()


class Successors:
    """Reads the Deployments of pods, and asks them for successors.

    Threads: safe from any thread.
    """

    def __init__(self, client: Client) -> None:
        self._replica_sets = client.resource(REPLICA_SETS)
        self._deployments = client.resource(DEPLOYMENTS).with_defaults(field_manager=FIELD_MANAGER)

    def look(self, drain: api.NodeDrain, pods: Iterable[PlannedPod]) -> dict[str, Successor]:
        """Return what the server says about the successors of these pods, by uid of the pod.

        Raises:
            ClientError: The server did not answer.
        """
        return {planned.uid: self._look(drain, planned) for planned in pods}

    def ask(self, drain: api.NodeDrain, deployment: Deployment) -> Successor:
        """Make a Deployment replace its pod, unless it has changed since it was read.

        Raises:
            Conflict: The Deployment has changed; decide again.
            ClientError: The server did not answer.
        """
        annotations = {MOVED_FOR_ANNOTATION: drain.metadata.uid}
        body = {"spec": {"template": {"metadata": {"annotations": annotations}}}}
        meta = deployment.metadata
        try:
            self._deployments.patch(
                meta.name,
                body,
                meta.namespace,
                uid=meta.uid,
                resource_version=meta.resource_version,
                timeout=_TIMEOUT,
            )
        except NotFound:
            return NoSuccessor()
        except Conflict:
            raise
        except ApiError as error:
            return _refused(error)
        return SuccessorAsked(deployment.name)

    def _look(self, drain: api.NodeDrain, planned: PlannedPod) -> Successor:
        namespace, owner = planned.pod.metadata.namespace, planned.pod.controller
        if owner is None:
            return NoSuccessor()
        try:
            replica_set = self._replica_sets.get(owner.name, namespace, timeout=_TIMEOUT)
            above = controller_of(replica_set.metadata)
            is_other = replica_set.metadata.uid != owner.uid
            if above is None or is_other or (above.api_version, above.kind) != _DEPLOYMENT:
                return NoSuccessor()
            deployment = self._deployments.get(above.name, namespace, timeout=_TIMEOUT)
        except NotFound:
            return NoSuccessor()
        except ApiError as error:
            return _refused(error)
        return judge(deployment, drain) if deployment.metadata.uid == above.uid else NoSuccessor()


def _refused(error: ApiError) -> SuccessorRefused:
    """Return a refusal; an error that a repeated request may not have is raised again."""
    if error.status == _REPEATED or error.status >= _SERVER_ERROR:
        raise error
    return SuccessorRefused(str(error))
