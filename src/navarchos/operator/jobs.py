"""The action that runs a Job on each node (UP-70).

The Job is a child of its replacement and has the name of its attempt, so it is found again after
a crash, and deleted with its replacement.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from navarchos.client import AlreadyExists, Client, Propagation, Resource, errors
from navarchos.client.owners import owner_reference
from navarchos.client.rbac import PolicyRule, block_owner_deletion_rbac
from navarchos.informers import InformerFactory, SharedInformer, Tombstone
from navarchos.informers.source import informer_rbac
from navarchos.meta import Object, controller_of
from navarchos.operator import actions
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.names import ACTION_LABEL, MAX_LABEL_LENGTH, child_name
from navarchos.operator.nodes import Node
from navarchos.operator.reasons import Reason
from navarchos.runtime import CachedClient, Manager
from navarchos.runtime.conditions import Condition, find_condition, is_true
from navarchos.structs import prepare_decoding, without_nulls

__all__ = [
    "JOBS",
    "RBAC",
    "JobActions",
    "JobCaches",
    "NodeJob",
    "job_manifest",
    "job_name",
    "register",
]


class _NodeJobStatus(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """When a Job started, and its conditions."""

    start_time: datetime | None = None
    conditions: tuple[Condition, ...] = ()


class _NodeJobSpec(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """The time limit of a Job."""

    active_deadline_seconds: int | None = None


@prepare_decoding
class NodeJob(Object, frozen=True):
    """A Job of batch/v1, as far as the operator reads it."""

    spec: _NodeJobSpec = _NodeJobSpec()
    status: _NodeJobStatus = _NodeJobStatus()

    @property
    def deadline(self) -> datetime | None:
        """When the Job fails by its time limit; `None` without one, and before it starts."""
        limit, started_at = self.spec.active_deadline_seconds, self.status.start_time
        return (
            None if limit is None or started_at is None else started_at + timedelta(seconds=limit)
        )

    @property
    def is_finished(self) -> bool:
        """Whether the Job has ended; its pods have then ended too."""
        return any(is_true(self.status.conditions, type_) for type_ in ("Complete", "Failed"))


JOBS: Final = Resource("batch", "v1", "jobs", "Job", namespaced=True, type=NodeJob)

RBAC: Final = (
    *informer_rbac(JOBS),
    PolicyRule(JOBS, ("get", "create", "delete")),
    block_owner_deletion_rbac(api.NODE_REPLACEMENTS),
)
"""Permissions of the action. Jobs are in namespaces that only rollouts name."""

_UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"

_REFUSED: Final = (errors.BadRequest, errors.Forbidden, errors.Invalid, errors.NotFound)
"""The errors of a Job that the server will refuse again: a repetition does not help."""


def job_name(replacement: api.NodeReplacement) -> str:
    """Return the name of the Job of the current attempt: the same in every process."""
    attempt = f"job{replacement.status.current_attempt}"
    return child_name(replacement.metadata.name, attempt, limit=MAX_LABEL_LENGTH)


def job_manifest(replacement: api.NodeReplacement, job: api.JobAction) -> dict[str, Any]:
    """Return the Job of the current attempt: the template, bound to the node.

    A field of the template that has another type than a Job needs is left as it is: the API
    server names it when it refuses the Job.
    """
    manifest = _copy(job.template)
    labels = {ACTION_LABEL: replacement.metadata.uid}
    metadata = _member(manifest, "metadata")
    owner = owner_reference(replacement, api.NODE_REPLACEMENTS, controller=True)
    manifest["metadata"] = {
        "name": job_name(replacement),
        "namespace": job.namespace,
        "labels": {**_member(metadata, "labels"), **labels},
        "annotations": _member(metadata, "annotations"),
        "ownerReferences": [msgspec.to_builtins(owner)],
    }
    spec = manifest["spec"] = _member(manifest, "spec")
    spec.pop("ttlSecondsAfterFinished", None)
    pod = spec["template"] = _member(spec, "template")
    pod_metadata = pod["metadata"] = _member(pod, "metadata")
    pod_metadata["labels"] = {**_member(pod_metadata, "labels"), **labels}
    pod["spec"] = _bound(_member(pod, "spec"), replacement)
    return manifest


def _bound(spec: dict[str, Any], replacement: api.NodeReplacement) -> dict[str, Any]:
    """Return a pod spec for this node only, also while the node is cordoned."""
    toleration = {"key": _UNSCHEDULABLE, "operator": "Exists", "effect": "NoSchedule"}
    environment = _environment(replacement)
    bound = {
        **spec,
        "affinity": _on_node(_member(spec, "affinity"), replacement.spec.node_name),
        "tolerations": [*_items(spec, "tolerations"), toleration],
    }
    for field in ("containers", "initContainers"):
        if field in spec:
            bound[field] = [_with_environment(each, environment) for each in _items(spec, field)]
    return bound


def _on_node(affinity: dict[str, Any], node: str) -> dict[str, Any]:
    """Add the node to the required terms, of which the scheduler needs only one to match."""
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    nodes = _member(affinity, "nodeAffinity")
    required = _member(nodes, "requiredDuringSchedulingIgnoredDuringExecution")
    terms = [
        {**term, "matchFields": [*_items(term, "matchFields"), field]}
        for term in _items(required, "nodeSelectorTerms")
        if isinstance(term, dict)
    ]
    required["nodeSelectorTerms"] = terms or [{"matchFields": [field]}]
    nodes["requiredDuringSchedulingIgnoredDuringExecution"] = required
    return {**affinity, "nodeAffinity": nodes}


def _environment(replacement: api.NodeReplacement) -> list[dict[str, str]]:
    owner = controller_of(replacement.metadata)
    values = {
        "NAVARCHOS_NODE_NAME": replacement.spec.node_name,
        "NAVARCHOS_NODE_UID": replacement.spec.node_uid,
        "NAVARCHOS_ROLLOUT": owner.name if owner is not None else "",
    }
    return [{"name": name, "value": value} for name, value in values.items()]


def _with_environment(container: object, environment: Sequence[Mapping[str, str]]) -> object:
    """Return a container in which the other variables can refer to ours."""
    if not isinstance(container, dict):
        return container
    ours = {entry["name"] for entry in environment}
    own = [
        entry
        for entry in _items(container, "env")
        if not (isinstance(entry, dict) and entry.get("name") in ours)
    ]
    return {**container, "env": [*environment, *own]}


def _copy(template: Mapping[str, Any]) -> dict[str, Any]:
    copied: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(without_nulls(dict(template))))
    return copied


def _member(parent: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = parent.get(name)
    return found if isinstance(found, dict) else {}


def _items(parent: Mapping[str, Any], name: str) -> list[Any]:
    found = parent.get(name)
    return found if isinstance(found, list) else []


class JobCaches:
    """The Jobs of rollouts, cached in the namespaces in which an action runs, and nowhere else.

    Threads: safe from any thread.
    """

    def __init__(
        self, client: Client, informers: InformerFactory, notify: Callable[[str], None]
    ) -> None:
        """Begin without a cache.

        Args:
            client: Writes Jobs.
            informers: Makes and ends the caches; it must have been started before the first use.
            notify: Called with the name of the replacement of each changed Job.
        """
        self._client = client
        self._informers = informers
        self._notify = notify
        self._caches_lock = threading.Lock()
        self._caches: dict[str, CachedClient[NodeJob]] = {}  # by namespace; guarded by _caches_lock

    def of(self, namespace: str) -> CachedClient[NodeJob]:
        """Return the Jobs of a namespace; the first call begins to watch them."""
        with self._caches_lock:
            found = self._caches.get(namespace)
            if found is None:
                found = self._caches[namespace] = self._begin(namespace)
            return found

    def keep_only(self, namespaces: Iterable[str]) -> None:
        """End the watches in all other namespaces."""
        kept = frozenset(namespaces)
        with self._caches_lock:
            unused = [namespace for namespace in self._caches if namespace not in kept]
            for namespace in unused:
                del self._caches[namespace]
                self._informers.remove(JOBS, namespace=namespace, label_selector=ACTION_LABEL)

    @property
    def namespaces(self) -> tuple[str, ...]:
        """The namespaces whose Jobs are watched."""
        with self._caches_lock:
            return tuple(sorted(self._caches))

    def _begin(self, namespace: str) -> CachedClient[NodeJob]:
        informer: SharedInformer[NodeJob] = self._informers.informer(
            JOBS, namespace=namespace, label_selector=ACTION_LABEL
        )
        informer.add_handler(_Notifier(self._notify))
        self._informers.start()
        return CachedClient(self._client.resource(JOBS), informer)


@dataclass(frozen=True)
class _Notifier:
    """Requests a reconcile of the replacement that owns a changed Job."""

    notify: Callable[[str], None]

    def on_add(self, obj: NodeJob, is_in_initial_list: bool) -> None:
        self._changed(obj)

    def on_update(self, old: NodeJob, new: NodeJob) -> None:
        self._changed(new)

    def on_delete(self, obj: NodeJob | Tombstone[NodeJob]) -> None:
        last = obj.obj if isinstance(obj, Tombstone) else obj
        if last is not None:
            self._changed(last)

    def _changed(self, job: NodeJob) -> None:
        owner = controller_of(job.metadata)
        if owner is not None and owner.kind == api.NODE_REPLACEMENTS.kind:
            self.notify(owner.name)


class JobActions:
    """Runs the Job of a replacement, one for each attempt.

    Threads: safe from any thread, for different replacements.
    """

    def __init__(self, caches: JobCaches) -> None:
        self._caches = caches

    def before(self, replacement: api.NodeReplacement, node: Node) -> actions.ActionOutcome:
        """Do nothing: a Job needs no preparation."""
        return actions.ActionDone()

    def act(self, replacement: api.NodeReplacement, node: Node | None) -> actions.ActionOutcome:
        """Create the Job, then follow it to its end.

        A Job that exists no longer has been deleted by another client, which fails the attempt:
        nothing shows whether it had ended.
        """
        job = _job_of(replacement)
        if not actions.has_begun(replacement):  # mutant: deleted-job-repeated
            return self._create(replacement, job)
        found = self._find(replacement, job)
        if found is None:
            name = f"{job.namespace}/{job_name(replacement)}"
            return actions.ActionFailed(Reason.JOB_DELETED, f"Job {name} was deleted")
        return _follow(found)

    def cancel(self, replacement: api.NodeReplacement) -> actions.ActionOutcome:
        """Delete a Job that has not ended, and wait until its pods are gone.

        A Job that has ended stays, with its logs, as long as its replacement.
        """
        job = _job_of(replacement)
        found = self._find(replacement, job)
        if found is None or found.is_finished:
            return actions.ActionDone()
        if found.metadata.deletion_timestamp is None:
            # In the foreground: the Job exists until the last of its pods is gone.
            self._caches.of(job.namespace).delete(found, propagation=Propagation.FOREGROUND)
        return actions.ActionRunning(f"waiting until the pods of Job {found.metadata.key} are gone")

    def observe(self, replacements: Sequence[api.NodeReplacement]) -> None:
        """End the watches of namespaces that no unfinished replacement names."""
        if self._caches.namespaces:
            self._caches.keep_only(
                each.spec.action.job.namespace
                for each in replacements
                if each.spec.action is not None
                and each.spec.action.job is not None
                and not each.status.current.is_finished
            )

    def _create(
        self, replacement: api.NodeReplacement, job: api.JobAction
    ) -> actions.ActionOutcome:
        jobs, name = self._caches.of(job.namespace), job_name(replacement)
        try:
            return _follow(jobs.create(job_manifest(replacement, job), job.namespace))
        except AlreadyExists:
            found = jobs.fetch(name, job.namespace)
        except _REFUSED as error:
            message = f"the API server refused Job {job.namespace}/{name}: {error}"
            return actions.ActionFailed(Reason.JOB_REFUSED, message)
        if found is None:
            return actions.ActionRunning(
                f"waiting until the earlier Job {job.namespace}/{name} is deleted", has_begun=False
            )
        if _belongs_to(found, replacement):
            jobs.observe(found)
            return _follow(found)
        if ACTION_LABEL in found.metadata.labels:
            # Of a former replacement of this name: the garbage collector deletes it.
            return actions.ActionRunning(
                f"waiting until the earlier Job {found.metadata.key} is deleted", has_begun=False
            )
        message = f"Job {found.metadata.key} belongs to another object; delete it"
        return actions.ActionFailed(Reason.NAME_TAKEN, message)

    def _find(self, replacement: api.NodeReplacement, job: api.JobAction) -> NodeJob | None:
        jobs, name = self._caches.of(job.namespace), job_name(replacement)
        # The cache of a namespace begins empty.
        found = jobs.find(name, job.namespace) or jobs.fetch(name, job.namespace)
        return found if found is not None and _belongs_to(found, replacement) else None


def register(registry: actions.Actions, manager: Manager) -> None:
    """Let the controller of replacements run Jobs."""
    caches = JobCaches(manager.client, manager.informers, registry.notify)
    jobs = JobActions(caches)
    registry.register(api.ActionKind.JOB, jobs, observe=jobs.observe)


def _follow(job: NodeJob) -> actions.ActionOutcome:
    failed = find_condition(job.status.conditions, "Failed")
    if failed is not None and failed.status == "True":
        why = ": ".join(part for part in (failed.reason, failed.message) if part)
        return actions.ActionFailed(Reason.JOB_FAILED, f"Job {job.metadata.key} has failed: {why}")
    if is_true(job.status.conditions, "Complete"):
        return actions.ActionDone()
    if job.metadata.deletion_timestamp is not None:
        return actions.ActionFailed(Reason.JOB_DELETED, f"Job {job.metadata.key} was deleted")
    return actions.ActionRunning(f"Job {job.metadata.key} has not ended", job.deadline)


def _belongs_to(job: NodeJob, replacement: api.NodeReplacement) -> bool:
    owner = controller_of(job.metadata)
    return owner is not None and owner.uid == replacement.metadata.uid


def _job_of(replacement: api.NodeReplacement) -> api.JobAction:
    action = replacement.spec.action
    assert action is not None, "only replacements with an action"
    assert action.job is not None, "only replacements with action.job"
    return action.job
