"""A cluster as it looks after it has run for a month: everything settled.

Made as manifests with uids, owners and statuses in place, to be installed into a
server without going through its admission: the controllers find nothing to do.
"""

import itertools
import random
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from ipaddress import IPv4Address
from typing import Any, Final

import msgspec

from navarchos.meta import format_time
from navarchos.testing.cluster import budgets, kinds, pods, workloads
from navarchos.testing.cluster.controllers.replicasets import template_hash, with_hash
from navarchos.testing.cluster.controllers.statefulsets import stateful_pod
from navarchos.testing.cluster.nodes import Machine, machines, node_manifest, registered_at
from navarchos.testing.cluster.options import ClusterOptions
from navarchos.testing.server import Server

__all__ = ["Population", "install_owned", "populate"]

JsonObject = dict[str, Any]

_NAME_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_FIRST_POD_ADDRESS: Final = int(IPv4Address("100.64.0.1"))


class Population:
    """The manifests of a new cluster, and the machines behind its nodes.

    Attributes:
        machines: The machines of the cloud.
        namespaces: The names of the namespaces.
        manifests: All objects, owners before their children.
    """

    def __init__(
        self, machines: Sequence[Machine], namespaces: Sequence[str], manifests: list[JsonObject]
    ) -> None:
        self.machines = tuple(machines)
        self.namespaces = tuple(namespaces)
        self.manifests = manifests


def populate(options: ClusterOptions, now: datetime) -> Population:
    """Return the population for `options` at the time `now`; the seed determines it."""
    return _PopulationBuilder(options, now).build()


class _PopulationBuilder:
    def __init__(self, options: ClusterOptions, now: datetime) -> None:
        self._options = options
        self._now = now
        self._random = random.Random(options.seed)  # noqa: S311 - generates names, not secrets
        self._addresses = itertools.count(_FIRST_POD_ADDRESS)
        self._machines = machines(options.nodes, options.pods_per_node)
        self._nodes: dict[str, JsonObject] = {}
        # All machines if every one is tainted, which happens in a tiny cluster.
        self._open = [m for m in self._machines if not m.taints] or self._machines
        self._ring = itertools.cycle(self._open)

    def build(self) -> Population:
        count = len(self._machines)
        # Shuffled, so that the order by age differs from the order by name.
        line = self._random.sample(range(count), count)
        for machine, position in zip(self._machines, line, strict=True):
            at = registered_at(position, self._now)
            self._nodes[machine.name] = node_manifest(machine, at=at, uid=self._uid())
        manifests = list(self._nodes.values())
        # Each node also has a pod of the DaemonSet and a mirror pod.
        total = count * max(1, self._options.pods_per_node - 2)
        for plan in workloads.plan_workloads(total):
            manifests += self._workload(plan)
        manifests += self._daemon_set(workloads.AGENT)
        manifests += self._static_pods()
        manifests += self._bare_pods()
        return Population(
            self._machines, [*workloads.NAMESPACES, workloads.AGENT.namespace, "default"], manifests
        )

    def _workload(self, plan: workloads.WorkloadPlan) -> Iterator[JsonObject]:
        if plan.budget is not None:
            yield workloads.budget_manifest(plan, self._identity(), _settled_budget(plan))
        match plan.kind:
            case "Deployment":
                yield from self._deployment(plan)
            case "StatefulSet":
                yield from self._stateful_set(plan)
            case _:
                yield from self._job(plan)

    def _deployment(self, plan: workloads.WorkloadPlan) -> Iterator[JsonObject]:
        deployment = workloads.workload_manifest(
            plan, self._identity(), self._deployment_status(plan)
        )
        yield deployment
        digest = template_hash(deployment["spec"]["template"])
        replica_set: JsonObject = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": f"{plan.name}-{digest}",
                "namespace": plan.namespace,
                "labels": {**plan.labels, "pod-template-hash": digest},
                "ownerReferences": [_owner(deployment).reference()],
                **self._identity(),
            },
            "spec": with_hash(deployment["spec"], digest),
            "status": {**_counts(plan), "fullyLabeledReplicas": plan.replicas},
        }
        yield replica_set
        nodes = [next(self._ring).name for _ in range(plan.replicas)]
        if plan.is_packed:
            nodes[1:2] = nodes[:1]
        for node in nodes:
            yield self._pod(replica_set, plan.namespace, node)

    def _stateful_set(self, plan: workloads.WorkloadPlan) -> Iterator[JsonObject]:
        status = {
            **_counts(plan),
            "currentReplicas": plan.replicas,
            "updatedReplicas": plan.replicas,
            "collisionCount": 0,
        }
        owner = workloads.workload_manifest(plan, self._identity(), status)
        yield owner
        for ordinal in range(plan.replicas):
            pod = stateful_pod(_owner(owner), plan.namespace, owner["spec"]["template"], ordinal)
            yield self._running(pod, next(self._ring).name)

    def _job(self, plan: workloads.WorkloadPlan) -> Iterator[JsonObject]:
        status = {
            "active": plan.replicas,
            "ready": plan.replicas,
            "startTime": format_time(self._now),
        }
        owner = workloads.workload_manifest(plan, self._identity(), status)
        # The server fills in the selector, as upstream; installed objects bring theirs.
        labels = {"batch.kubernetes.io/job-name": plan.name, "job-name": plan.name}
        owner["spec"]["selector"] = {"matchLabels": labels}
        owner["spec"]["template"]["metadata"]["labels"] |= labels
        yield owner
        for _ in range(plan.replicas):
            yield self._pod(owner, plan.namespace, next(self._ring).name)

    def _daemon_set(self, plan: workloads.WorkloadPlan) -> Iterator[JsonObject]:
        count = len(self._machines)
        status = {
            "currentNumberScheduled": count,
            "desiredNumberScheduled": count,
            "numberMisscheduled": 0,
            "numberReady": count,
            "numberAvailable": count,
            "updatedNumberScheduled": count,
            "observedGeneration": 1,
        }
        owner = workloads.workload_manifest(plan, self._identity(), status)
        yield owner
        tolerations = [*owner["spec"]["template"]["spec"]["tolerations"], *pods.DAEMON_TOLERATIONS]
        for machine in self._machines:
            pod = pods.from_template(
                owner["spec"]["template"],
                _owner(owner),
                plan.namespace,
                spec={"tolerations": tolerations},
            )
            yield self._running(pod, machine.name)

    def _static_pods(self) -> Iterator[JsonObject]:
        for machine in self._machines:
            uid = self._nodes[machine.name]["metadata"]["uid"]
            yield self._running(pods.mirror_pod(machine.name, uid), machine.name)

    def _bare_pods(self) -> Iterator[JsonObject]:
        for number in range(1, self._options.bare_pods + 1):
            plan = workloads.WorkloadPlan(
                kind="Job", namespace="default", name=f"bare-{number}", replicas=1
            )
            pod = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": plan.name,
                    "namespace": plan.namespace,
                    "labels": plan.labels,
                },
                "spec": {**workloads.template_of(plan)["spec"], "restartPolicy": "Always"},
            }
            yield self._running(pod, next(self._ring).name)

    def _pod(self, owner: JsonObject, namespace: str, node: str) -> JsonObject:
        pod = pods.from_template(owner["spec"]["template"], _owner(owner), namespace)
        return self._running(pod, node)

    def _running(self, pod: JsonObject, node: str) -> JsonObject:
        """Return a pod with a name and a uid, bound and ready."""
        metadata: JsonObject = {**pod["metadata"], **self._identity(generation=0)}
        if "name" not in metadata:
            suffix = "".join(self._random.choices(_NAME_LETTERS, k=5))
            metadata["name"] = metadata["generateName"] + suffix
        containers = [(c["name"], c["image"]) for c in pod["spec"]["containers"]]
        host = self._nodes[node]["status"]["addresses"][0]["address"]
        status = pods.running_status_of(
            containers, host_ip=host, pod_ip=str(IPv4Address(next(self._addresses))), at=self._now
        )
        spec = {**pod["spec"], "nodeName": node}
        return {**pod, "metadata": metadata, "spec": spec, "status": status}

    def _identity(self, generation: int = 1) -> JsonObject:
        identity: JsonObject = {"uid": self._uid(), "creationTimestamp": format_time(self._now)}
        return {**identity, "generation": generation} if generation else identity

    def _uid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def _deployment_status(self, plan: workloads.WorkloadPlan) -> JsonObject:
        when = format_time(self._now)
        times = {"lastTransitionTime": when, "lastUpdateTime": when}
        return {
            **_counts(plan),
            "updatedReplicas": plan.replicas,
            "conditions": [
                {
                    "type": "Available",
                    "status": "True",
                    "reason": "MinimumReplicasAvailable",
                    "message": "Deployment has minimum availability.",
                    **times,
                }
            ],
        }


def _counts(plan: workloads.WorkloadPlan) -> dict[str, int]:
    names = ("replicas", "readyReplicas", "availableReplicas")
    return {"observedGeneration": 1, **dict.fromkeys(names, plan.replicas)}


def _settled_budget(plan: workloads.WorkloadPlan) -> JsonObject:
    rule: Mapping[str, int | str] = plan.budget or {}
    health = budgets.required_health(
        min_available=rule.get("minAvailable"),
        max_unavailable=rule.get("maxUnavailable"),
        pods=plan.replicas,
        scale=lambda: plan.replicas,
    )
    status = msgspec.to_builtins(budgets.status_of(health, plan.replicas, {}, 1))
    assert isinstance(status, dict)
    return status


def _owner(owner: JsonObject) -> pods.Owner:
    metadata = owner["metadata"]
    return pods.Owner(owner["apiVersion"], owner["kind"], metadata["name"], metadata["uid"])


_OWNERS: Final = {
    each.kind: each
    for each in (
        kinds.DAEMON_SETS,
        kinds.DEPLOYMENTS,
        kinds.JOBS,
        kinds.NODES,
        kinds.REPLICA_SETS,
        kinds.STATEFUL_SETS,
    )
}


def install_owned(server: Server, manifests: Sequence[JsonObject]) -> None:
    """Create objects whose owner references contain the uids of other objects.

    The in-process server keeps given uids. A real server assigns new ones, which the
    owner references of the children must contain. Owners are therefore created first, and
    their uids are read.

    Args:
        server: The server.
        manifests: Objects with uids, owners before their children.
    """
    given: dict[str, str] = {}  # the uid that the server assigned to an owner, if different
    for generation in _generations(manifests):
        server.install(*(_with_owners(manifest, given) for manifest in generation))
        given.update(_other_uids(server, generation))


def _generations(manifests: Iterable[JsonObject]) -> list[list[JsonObject]]:
    """Group objects by the depth of their owners."""
    depths: dict[str, int] = {}
    found: dict[int, list[JsonObject]] = defaultdict(list)
    for manifest in manifests:
        metadata = manifest["metadata"]
        owners = [owner["uid"] for owner in metadata.get("ownerReferences", ())]
        depth = max((depths[uid] + 1 for uid in owners), default=0)
        depths[metadata["uid"]] = depth
        found[depth].append(manifest)
    return [found[depth] for depth in sorted(found)]


def _with_owners(manifest: JsonObject, given: Mapping[str, str]) -> JsonObject:
    metadata = manifest["metadata"]
    owners = metadata.get("ownerReferences", ())
    if not any(owner["uid"] in given for owner in owners):
        return manifest
    named = [{**owner, "uid": given.get(owner["uid"], owner["uid"])} for owner in owners]
    return {**manifest, "metadata": {**metadata, "ownerReferences": named}}


def _other_uids(server: Server, manifests: Iterable[JsonObject]) -> Iterator[tuple[str, str]]:
    made: dict[str, list[JsonObject]] = defaultdict(list)
    for manifest in manifests:
        made[manifest["kind"]].append(manifest["metadata"])
    for kind in made.keys() & _OWNERS.keys():
        resource = _OWNERS[kind]
        stored = {
            _key(each["metadata"]): each["metadata"]["uid"]
            for each in server.list(resource.plural, group=resource.group)
        }
        for metadata in made[kind]:
            uid = stored[_key(metadata)]
            if uid != metadata["uid"]:
                yield metadata["uid"], uid


def _key(metadata: JsonObject) -> tuple[str, str]:
    return metadata.get("namespace", ""), metadata["name"]
