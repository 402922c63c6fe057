"""Check evictions, cordons and labels of nodes."""

from tests.model.facts import (
    Facts,
    JsonObject,
    is_cordoned,
    labels_of,
    mark_of,
    owner_uid,
    phase_of,
)

from navarchos.operator.names import DRAIN_COMPLETED_LABEL
from navarchos.testing.apiserver.store import Change

__all__ = ["DrainJudge"]


class DrainJudge:
    """Judges evictions, cordons and labels.

    Attributes:
        evicted: How often the operator evicted or deleted each pod, by uid.
        opened_by_others: Nodes that another client has uncordoned, by uid.
        kept_cordons: Marks of drains that kept their cordon, as their spec says.
    """

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self.evicted: dict[str, int] = {}
        self.opened_by_others: set[str] = set()
        self.kept_cordons: set[str] = set()
        self._drained: set[str] = set()  # uids of nodes whose completed drain was deleted
        self._bound: dict[str, float] = {}  # by the uid of the pod
        self._appeared: dict[str, float] = {}  # by the uid of the node

    def about_to_evict(self, namespace: str, name: str, body: JsonObject, verb: str) -> None:
        """Check an eviction or deletion of a pod before it is served."""
        pod = self._facts.pod(namespace, name)
        options = body.get("deleteOptions") or body
        if not (options.get("preconditions") or {}).get("uid"):
            self._facts.report(
                f"{verb} of {namespace}/{name} without the uid of the pod as a precondition"
            )
        if pod is None or options.get("preconditions", {}).get("uid") != pod["metadata"]["uid"]:
            return
        node = self._facts.server.find("nodes", pod["spec"].get("nodeName", ""))
        drains = [
            drain
            for drain in self._facts.of("nodedrains")
            if drain["spec"]["nodeName"] == pod["spec"].get("nodeName")
        ]
        if not drains:
            return
        if all(self._must_rest(drain) for drain in drains):
            self._facts.report(f"{verb} of {namespace}/{name} while its drain is paused")
        if node is None:
            return
        uid = node["metadata"]["uid"]
        on_this = any(drain["spec"].get("nodeUID") in {uid, "", None} for drain in drains)
        came = self._bound.get(pod["metadata"]["uid"], 0.0)
        if not on_this and came > self._appeared.get(uid, 0.0):
            self._facts.report(
                f"{verb} of {namespace}/{name}, which runs on a new node of the name "
                f"{node['metadata']['name']} and not on the drained one"
            )

    def pod_changed(self, change: Change, by_operator: bool) -> None:
        """Count evictions, and remember where pods run."""
        uid = change.object["metadata"]["uid"]
        if change.object["spec"].get("nodeName"):
            self._bound.setdefault(uid, self._facts.scheduler.seconds)
        before = change.previous
        if not by_operator or (before and before["metadata"].get("deletionTimestamp")):
            return
        if change.type == "DELETED" or change.object["metadata"].get("deletionTimestamp"):
            self.evicted[uid] = self.evicted.get(uid, 0) + 1

    def node_changed(self, change: Change, by_operator: bool) -> None:
        """Check who cordons, uncordons and labels a node."""
        node, before = change.object, change.previous
        uid, name = node["metadata"]["uid"], node["metadata"]["name"]
        if change.type == "ADDED" or before is None:
            self._appeared[uid] = self._facts.scheduler.seconds
            return
        was, closed = is_cordoned(before), is_cordoned(node) and change.type != "DELETED"
        if not by_operator:
            if was and not closed:
                self.opened_by_others.add(uid)
            return
        if was and not closed:
            self._judge_opening(name, mark_of(before))
        elif closed and not was:
            self._judge_closing(name, uid, mark_of(node))
        label = labels_of(node).get(DRAIN_COMPLETED_LABEL)
        if label is not None and label != labels_of(before).get(DRAIN_COMPLETED_LABEL):
            self._judge_label(name, uid)

    def _judge_opening(self, name: str, owner: str) -> None:
        """Check that only the drain that set a cordon undoes it."""
        if not owner:
            self._facts.report(f"node {name}, which another client had cordoned, was uncordoned")
            return
        drain = self._facts.drain_of_mark(owner)
        if drain is None or not drain["metadata"].get("deletionTimestamp"):
            self._facts.report(
                f"node {name} was uncordoned, and its drain {owner} is not being deleted"
            )
        elif drain["spec"].get("uncordonOnDelete") is False:
            self._facts.report(
                f"node {name} was uncordoned, and uncordonOnDelete of {owner} is false"
            )

    def _judge_closing(self, name: str, uid: str, owner: str) -> None:
        drain = self._facts.drain_of_mark(owner)
        if drain is None:
            self._facts.report(
                f"node {name} was cordoned for a drain that does not exist: {owner!r}"
            )
        elif drain["spec"].get("nodeUID") != uid:
            self._facts.report(f"node {name} was cordoned, and its drain names another uid")

    def _judge_label(self, name: str, uid: str) -> None:
        done = [
            drain
            for drain in self._facts.of("nodedrains")
            if drain["spec"].get("nodeUID") == uid
            and (drain.get("status") or {}).get("phase") == "Completed"
        ]
        if not done and uid not in self._drained:
            self._facts.report(
                f"node {name} was labelled as drained, and no drain of its uid has ended"
            )

    def _must_rest(self, drain: JsonObject) -> bool:
        """Return whether no eviction may be sent for a drain.

        If its report has been taken over, its rollout decides, because its own spec may be
        out of date.
        """
        above = owner_uid(drain)
        if not above or drain["spec"].get("uncordonOnDelete", True):
            return self._facts.is_paused(drain)
        replacements = {
            each["metadata"]["uid"]: each for each in self._facts.of("nodereplacements")
        }
        replacement = replacements.get(above)
        rollout = self._facts.rollout_of(replacement) if replacement is not None else None
        return rollout is not None and self._facts.is_paused(rollout)

    def drain_changed(self, change: Change) -> None:
        """Remember which drains keep their cordon."""
        metadata = change.object["metadata"]
        if change.type == "DELETED" and change.object["spec"].get("uncordonOnDelete") is False:
            self.kept_cordons.add(f"{metadata['name']}/{metadata['uid']}")
            if phase_of(change.object) == "Completed":
                self._drained.add(change.object["spec"].get("nodeUID", ""))
