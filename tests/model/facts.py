"""What the judge of a model run knows: objects of the server, and when clients changed them."""

from collections.abc import Mapping
from typing import Any, Final

from tests.model.leading import LeaseWatcher
from tests.model.scheduling import Scheduler
from tests.model.serving import Server
from tests.model.systems import CHECKS, UPDATES, WISH

from navarchos.operator.names import CORDONED_BY_ANNOTATION
from navarchos.testing.apiserver.store import Change

__all__ = [
    "FINISHED", "GROUP", "PATIENCE", "Facts", "JsonObject", "attempts_of", "is_cordoned",
    "is_finished_job", "is_in_flight", "is_over", "is_stalled", "labels_of", "mark_of",
    "node_of_job", "owner_uid", "phase_of", "priority_of", "step_of",
]  # fmt: skip

JsonObject = Mapping[str, Any]

GROUP: Final = "navarchos.pusher.com"

PATIENCE: Final = 15.0
"""Seconds after which the operator must know a change by another client, in addition to the
longest lag: some time for failing requests."""

FINISHED: Final = ("Done", "Failed", "Cancelled")


class Facts:
    """Objects of the server, and when other clients changed them.

    Attributes:
        server: The server.
        scheduler: Its time.
        lease: The leader by the Lease.
        violations: Texts with the time.
        patience: Seconds after which the operator must know a change by another client.
        calm_since: When the last fault of the run ended.
    """

    def __init__(self, scheduler: Scheduler, server: Server) -> None:
        self.server = server
        self.scheduler = scheduler
        self.violations: list[str] = []
        self.lease = LeaseWatcher(scheduler, self.report)
        self.patience = PATIENCE
        self.calm_since = 0.0
        self.foreign: dict[str, float] = {}  # by uid: when another client changed it last
        self.paused: dict[str, float] = {}  # by uid: when spec.paused was set

    def report(self, text: str) -> None:
        """Record a violation."""
        self.violations.append(f"{self.scheduler.seconds:.3f}: {text}")

    def remember_foreign(self, change: Change) -> None:
        """Record a change by another client than the operator."""
        metadata = change.object["metadata"]
        self.foreign[metadata["uid"]] = self.scheduler.seconds
        if change.type == "DELETED":  # its successor has the same name
            self.foreign[metadata["name"]] = self.scheduler.seconds

    def remember_pause(self, change: Change) -> None:
        """Record since when an object has been paused."""
        uid = change.object["metadata"]["uid"]
        if change.type != "DELETED" and (change.object.get("spec") or {}).get("paused"):
            self.paused.setdefault(uid, self.scheduler.seconds)
        else:
            self.paused.pop(uid, None)

    def known_node(self, replacement: JsonObject) -> JsonObject | None:
        """Return the node of a replacement if it has the recorded uid."""
        node = self.server.find("nodes", replacement["spec"]["nodeName"])
        is_meant = node is not None and node["metadata"]["uid"] == replacement["spec"]["nodeUID"]
        return node if is_meant else None

    def is_old(self, *objects: JsonObject) -> bool:
        """Return whether no other client has changed these objects recently."""
        latest = max(
            self.foreign.get(obj["metadata"][key], 0.0)
            for obj in objects
            for key in ("uid", "name")
        )
        # An object that another client created long ago may have been edited by the operator since.
        return max(latest, self.calm_since) + self.patience < self.scheduler.seconds

    def is_known(self, obj: JsonObject) -> bool:
        """Return whether caches must show an object.

        It is old, or older than the leader: caches are not older than the leadership (NP-03).
        """
        changed = self.foreign.get(obj["metadata"]["uid"], 0.0)
        return changed < self.lease.held_since or self.is_old(obj)

    def is_paused(self, obj: JsonObject) -> bool:
        """Return whether it was paused so long ago that the pause must have taken effect."""
        since = self.paused.get(obj["metadata"]["uid"])
        if since is None:
            return False
        return max(since, self.calm_since) + 10.0 < self.scheduler.seconds

    def held_by_orphans(self) -> set[str]:
        """Return the nodes with an unfinished drain whose replacement was deleted."""
        alive = {r["metadata"]["uid"] for r in self.of("nodereplacements")}
        nodes = {node["metadata"]["name"] for node in self.server.list("nodes")}
        return {
            drain["spec"]["nodeName"]
            for drain in self.of("nodedrains")
            if not is_over(drain)
            and drain["spec"]["nodeName"] in nodes
            and (owner := owner_uid(drain))
            and owner not in alive
        }

    def held_by_others(self) -> dict[str, str]:
        """Return the holders, by node, that rollouts must count besides their own nodes.

        It must know the holders of all its systems at once.
        """
        nodes = {node["metadata"]["name"]: node for node in self.server.list("nodes")}
        found = {}
        for drain in self.of("nodedrains"):
            name, spec = drain["metadata"]["name"], drain["spec"]
            node = nodes.get(spec["nodeName"])
            if node is None or owner_uid(drain):
                continue
            is_meant = spec.get("nodeUID", "") in {"", node["metadata"]["uid"]}
            if is_meant and (name.startswith(CHECKS) or self.is_known(drain)):
                found[spec["nodeName"]] = name
        for wish in self.wishes(UPDATES):
            if wish["data"].get("started"):
                found.setdefault(wish["data"]["node"], wish["metadata"]["name"])
        return found

    def wishes(self, wish: str) -> list[dict[str, Any]]:
        """Return the ConfigMaps with this value of the label."""
        return [m for m in self.server.list("configmaps") if labels_of(m).get(WISH) == wish]

    def drain_of_mark(self, owner: str) -> JsonObject | None:
        """Return the drain that a mark of a node names."""
        name, _, uid = owner.partition("/")
        drain = self.server.find("nodedrains", name, GROUP)
        return drain if drain is not None and drain["metadata"]["uid"] == uid else None

    def rollout_of(self, replacement: JsonObject) -> JsonObject | None:
        """Return the rollout of a replacement."""
        uid = owner_uid(replacement)
        return next((r for r in self.of("noderollouts") if r["metadata"]["uid"] == uid), None)

    def pod(self, namespace: str, name: str) -> JsonObject | None:
        """Return a pod."""
        for pod in self.server.list("pods"):
            if (pod["metadata"]["namespace"], pod["metadata"]["name"]) == (namespace, name):
                return pod
        return None

    def of(self, plural: str) -> list[dict[str, Any]]:
        """Return all objects of one of the operator's kinds."""
        return self.server.list(plural, GROUP)


def step_of(replacement: JsonObject) -> str:
    """Return the step of a replacement."""
    step = (replacement.get("status") or {}).get("step") or {}
    return str(step.get("name", "Waiting"))


def attempts_of(replacement: JsonObject) -> int:
    """Return how many attempts have failed."""
    return int((replacement.get("status") or {}).get("attempts", 0))


def is_stalled(replacement: JsonObject) -> bool:
    """Return whether others may start beside a node in this step."""
    return is_in_flight(replacement) and bool(replacement["status"].get("stalledSince"))


def is_over(drain: JsonObject) -> bool:
    """Return whether a drain has ended."""
    return (drain.get("status") or {}).get("phase") in {"Completed", "Failed"}


def is_in_flight(replacement: JsonObject) -> bool:
    """Return whether a replacement has a slot."""
    return step_of(replacement) not in {"Waiting", *FINISHED}


def priority_of(replacement: JsonObject) -> int:
    """Return the priority of a replacement."""
    return int((replacement["spec"].get("replacement") or {}).get("priority", 0))


def phase_of(rollout: JsonObject) -> str:
    """Return the phase in the status of an object."""
    return str((rollout.get("status") or {}).get("phase", ""))


def owner_uid(obj: JsonObject) -> str:
    """Return the uid of the controller of an object; empty without one."""
    owners = obj["metadata"].get("ownerReferences") or ()
    return next((owner["uid"] for owner in owners if owner.get("controller")), "")


def is_cordoned(node: JsonObject) -> bool:
    """Return whether a node is cordoned."""
    return bool((node.get("spec") or {}).get("unschedulable"))


def mark_of(node: JsonObject) -> str:
    """Return the name and uid of the drain that cordoned a node; empty without one."""
    return str((node["metadata"].get("annotations") or {}).get(CORDONED_BY_ANNOTATION, ""))


def labels_of(node: JsonObject) -> Mapping[str, str]:
    """Return the labels of an object."""
    return node["metadata"].get("labels") or {}


def is_finished_job(job: JsonObject) -> bool:
    """Return whether a Job has ended, with success or without."""
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(c["type"] in {"Complete", "Failed"} and c["status"] == "True" for c in conditions)


def node_of_job(job: JsonObject) -> str:
    """Return the name of the node that a Job of an action is bound to."""
    affinity = job["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return str(terms[0]["matchFields"][0]["values"][0])
