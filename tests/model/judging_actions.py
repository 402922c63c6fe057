"""Check actions, their verification, preparations, and what a cancellation stops."""

from collections.abc import Iterator
from typing import Final

from tests.model.facts import (
    FINISHED,
    Facts,
    JsonObject,
    is_cordoned,
    is_finished_job,
    is_in_flight,
    mark_of,
    node_of_job,
    owner_uid,
    step_of,
)
from tests.model.judging_drains import DrainJudge

from navarchos.meta import parse_time
from navarchos.operator.marks import EXCLUDE_LABEL
from navarchos.operator.names import ACTION_LABEL, DRAIN_HOOK_ANNOTATION, HOOK_ANSWER_PREFIX
from navarchos.testing.apiserver.store import Change

__all__ = ["ActionJudge"]

_DONE: Final = "Done"


class ActionJudge:
    """Judges what happens to a node besides its drain."""

    def __init__(self, facts: Facts, drains: DrainJudge) -> None:
        self._facts = facts
        self._drains = drains
        self._jobs: dict[tuple[str, str], bool] = {}  # by owner and name: whether a user deleted it
        self._given_up: set[str] = set()  # uids of NodeDrains that another client deleted
        self._unmarked: set[str] = set()  # uids of nodes from which another client took a mark

    def changed(self, change: Change, by_operator: bool) -> None:
        """Check a change of any object."""
        match change.resource.plural:
            case "jobs":
                self._job_changed(change, by_operator)
            case "nodes":
                self._node_changed(change, by_operator)
            case "nodereplacements":
                self._replacement_changed(change, by_operator)
            case "nodedrains":
                self._drain_changed(change, by_operator)
            case _:
                pass

    def about_to_evict(self, namespace: str, name: str, verb: str) -> None:
        """Check that a pod which leaves by itself, or which works on its node, is not evicted."""
        pod = self._facts.pod(namespace, name)
        if pod is None or (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}:
            return
        if DRAIN_HOOK_ANNOTATION in (pod["metadata"].get("annotations") or {}):
            self._facts.report(f"{verb} of {namespace}/{name}, which has a hook")
        node = pod["spec"].get("nodeName", "")
        if ACTION_LABEL in (pod["metadata"].get("labels") or {}) and self._is_acting(node):
            self._facts.report(f"{verb} of {namespace}/{name}, which belongs to an action")

    def _is_acting(self, node: str) -> bool:
        """Return whether only replacements with an action have drains of a node."""
        acting = {
            r["metadata"]["uid"]
            for r in self._facts.of("nodereplacements")
            if r["spec"].get("action")
        }
        drains = [d for d in self._facts.of("nodedrains") if d["spec"]["nodeName"] == node]
        return all(owner_uid(drain) in acting for drain in drains)

    # Jobs

    def _job_changed(self, change: Change, by_operator: bool) -> None:
        job = change.object
        key = owner_uid(job), job["metadata"]["name"]
        if change.type == "ADDED":
            self._judge_job(job, key)
            self._jobs[key] = False
        elif not by_operator:
            is_ending = change.type == "DELETED" or "deletionTimestamp" in job["metadata"]
            self._jobs[key] = is_ending or self._jobs.get(key, False)

    def _judge_job(self, job: JsonObject, key: tuple[str, str]) -> None:
        name, node = job["metadata"]["name"], node_of_job(job)
        owner = self._owner(job)
        if owner is None:
            self._facts.report(f"Job {name} was created, and its replacement does not exist")
            return
        if key in self._jobs and (not self._jobs[key] or _has_begun(owner)):
            self._facts.report(f"Job {name} was created twice")
        for other in self._unfinished():
            if other["metadata"]["uid"] != job["metadata"]["uid"] and node_of_job(other) == node:
                text = f"Job {name} was created beside Job {other['metadata']['name']} on {node}"
                self._facts.report(text)
        if step_of(owner) != "Acting":
            self._facts.report(f"Job {name} was created in the step {step_of(owner)}")
        self._judge_permission(name, owner)
        self._judge_state(name, owner)

    def _judge_permission(self, name: str, owner: JsonObject) -> None:
        """Check that nothing begins while it is paused or deleted (NP-12)."""
        rollout = self._facts.rollout_of(owner)
        if self._facts.is_paused(owner) and (rollout is None or self._facts.is_paused(rollout)):
            self._facts.report(f"Job {name} was created while its replacement is paused")
        if owner["metadata"].get("deletionTimestamp") and self._facts.is_old(owner):
            self._facts.report(f"Job {name} was created, and its replacement is being deleted")
        is_gone = rollout is None or rollout["metadata"].get("deletionTimestamp")
        if is_gone and self._facts.is_old(owner, *([rollout] if rollout is not None else [])):
            self._facts.report(f"Job {name} was created, and its rollout is deleted")

    def _judge_state(self, name: str, owner: JsonObject) -> None:
        """Check that the node is in the state that the action asks for."""
        wanted = owner["spec"]["action"].get("node", "Drained")
        node = self._facts.known_node(owner)
        if node is None or wanted == "InService":
            return
        if node["metadata"]["uid"] in self._drains.opened_by_others:
            return
        if not is_cordoned(node) and self._own_drain(owner) not in self._given_up:
            self._facts.report(f"Job {name} was created, and its node is not cordoned")
        if wanted == "Drained" and (left := [*self._pods_to_leave(owner["spec"]["nodeName"])]):
            self._facts.report(f"Job {name} was created, and {', '.join(left)} are on its node")

    def _pods_to_leave(self, node: str) -> Iterator[str]:
        for pod in self._facts.server.list("pods"):
            metadata = pod["metadata"]
            if pod["spec"].get("nodeName") != node or metadata["namespace"] == "kube-system":
                continue
            is_finished = (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}
            if not is_finished and ACTION_LABEL not in (metadata.get("labels") or {}):
                yield metadata["name"]

    def _unfinished(self) -> list[JsonObject]:
        return [j for j in self._facts.server.list("jobs", "batch") if not is_finished_job(j)]

    # Replacements

    def _replacement_changed(self, change: Change, by_operator: bool) -> None:
        after, before = change.object, change.previous
        name, uid = after["metadata"]["name"], after["metadata"]["uid"]
        if change.type == "DELETED":
            self._judge_no_job(f"{name} was deleted", uid)
            return
        if before is None or not by_operator or step_of(before) == step_of(after):
            return
        if is_in_flight(before) and not is_in_flight(after):
            self._judge_no_job(f"{name} is {step_of(after)}", uid)
        if step_of(before) == "Cancelled":
            self._facts.report(f"{name} was cancelled, and is {step_of(after)}")
        if step_of(after) == "Cancelled" and step_of(before) != "Waiting":
            self._facts.report(f"{name} was cancelled in the step {step_of(before)}")
        if step_of(after) == "Reserved":
            self._judge_cancel(after)
        if step_of(before) == "Verifying" and step_of(after) in {"Returning", *FINISHED}:
            self._judge_verified(after)

    def _judge_no_job(self, what: str, uid: str) -> None:
        for job in self._unfinished():
            if owner_uid(job) == uid:
                self._facts.report(f"{what}, and Job {job['metadata']['name']} has not ended")

    def _judge_cancel(self, started: JsonObject) -> None:
        name, rollout = started["metadata"]["name"], self._facts.rollout_of(started)
        if started["spec"].get("cancel") and self._facts.is_known(started):
            self._facts.report(f"{name} started, and is cancelled")
        if rollout is not None and rollout["spec"].get("cancel") and self._facts.is_known(rollout):
            self._facts.report(f"{name} started, and its rollout is cancelled")

    def _judge_verified(self, ended: JsonObject) -> None:
        """Check that the node was Ready, as far as the operator can know it."""
        node = self._facts.known_node(ended)
        if node is None or not (ended["spec"].get("action") or {}).get("verify"):
            return
        conditions = (node.get("status") or {}).get("conditions") or ()
        ready = next((c for c in conditions if c["type"] == "Ready"), None)
        if ready is None or ready["status"] == "True":
            return
        since = parse_time(ready["lastTransitionTime"])
        age = (self._facts.scheduler.now() - since).total_seconds()
        calm = self._facts.scheduler.seconds - self._facts.calm_since
        if min(age, calm) > self._facts.patience:
            self._facts.report(f"{ended['metadata']['name']} was verified on a node not Ready")

    # Preparations

    def _drain_changed(self, change: Change, by_operator: bool) -> None:
        after, before = change.object, change.previous
        metadata = after["metadata"]
        if metadata.get("deletionTimestamp") and not by_operator:
            self._given_up.add(metadata["uid"])
        if before is None or change.type == "DELETED":
            return
        status = after.get("status") or {}
        was = (before.get("status") or {}).get("phase")
        if (was, status.get("phase"), status.get("reason")) != (
            "Preparing", "Failed", "PrepareTimeout",
        ):  # fmt: skip
            return
        node = self._facts.server.find("nodes", after["spec"]["nodeName"])
        if not after["spec"].get("prepare") or node is None:
            return  # without `prepare` hooks are asked after the cordon
        if mark_of(node) == f"{metadata['name']}/{metadata['uid']}":
            self._facts.report(f"{metadata['name']} failed to prepare, and its node is cordoned")

    def _node_changed(self, change: Change, by_operator: bool) -> None:
        node, before = change.object, change.previous
        if before is None or change.type == "DELETED":
            return
        uid = node["metadata"]["uid"]
        if not by_operator:
            if _is_marked(before) and not _is_marked(node):
                self._unmarked.add(uid)
            return
        if is_cordoned(node) and not is_cordoned(before):
            self._judge_cordon(node)
        if is_cordoned(before) and not is_cordoned(node):
            self._judge_uncordon(before)

    def _judge_cordon(self, node: JsonObject) -> None:
        """Check that the preparation of a node has ended before its cordon (IG-70)."""
        drain = self._facts.drain_of_mark(mark_of(node))
        prepare = drain["spec"].get("prepare") if drain is not None else None
        if drain is None or not prepare or self._is_skipped(drain, prepare):
            return
        answers = drain["metadata"].get("annotations") or {}
        open_ = [
            h for h in prepare.get("hooks", ()) if answers.get(HOOK_ANSWER_PREFIX + h) != _DONE
        ]
        name = node["metadata"]["name"]
        if open_:
            self._facts.report(f"node {name} was cordoned before hook {', '.join(open_)} answered")
        is_taken = node["metadata"]["uid"] in self._unmarked
        if prepare.get("excludeFromExternalLoadBalancers") and not (is_taken or _is_marked(node)):
            self._facts.report(f"node {name} was cordoned without the mark of its preparation")

    def _is_skipped(self, drain: JsonObject, prepare: JsonObject) -> bool:
        began = (drain.get("status") or {}).get("prepareTimestamp")
        if prepare.get("onTimeout") != "Proceed" or not began:
            return False
        age = (self._facts.scheduler.now() - parse_time(began)).total_seconds()
        return age >= float(prepare.get("timeoutSeconds", 300))

    def _judge_uncordon(self, before: JsonObject) -> None:
        """Check that no action runs on a node that is uncordoned (UP-72)."""
        _, _, uid = mark_of(before).partition("/")
        drain = self._facts.drain_of_mark(mark_of(before))
        if drain is None or uid in self._given_up:
            return
        for job in self._unfinished():
            if owner_uid(job) == owner_uid(drain):
                self._facts.report(
                    f"node {before['metadata']['name']} was uncordoned, and Job "
                    f"{job['metadata']['name']} has not ended"
                )

    def _owner(self, child: JsonObject) -> JsonObject | None:
        uid = owner_uid(child)
        found = self._facts.of("nodereplacements")
        return next((each for each in found if each["metadata"]["uid"] == uid), None)

    def _own_drain(self, replacement: JsonObject) -> str:
        """Return the uid of the drain that is being deleted, if any; otherwise an empty text."""
        uid = replacement["metadata"]["uid"]
        drains = [d for d in self._facts.of("nodedrains") if owner_uid(d) == uid]
        return next(
            (d["metadata"]["uid"] for d in drains if d["metadata"].get("deletionTimestamp")), ""
        )


def _has_begun(replacement: JsonObject) -> bool:
    conditions = (replacement.get("status") or {}).get("conditions") or ()
    return any(
        c["type"] == "ActionCompleted" and c.get("reason") == "ActionRunning" for c in conditions
    )


def _is_marked(node: JsonObject) -> bool:
    return EXCLUDE_LABEL in (node["metadata"].get("labels") or {})
