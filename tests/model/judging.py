"""Check invariants after every write and every request of the operator.

The state of the server counts, not the caches of any process. Where the operator cannot
know a change by another client yet, because caches may lag, the change counts only when it
is `Judge.patience` seconds old.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from tests.model.leading import LEASES, LeaseWatcher
from tests.model.scheduling import ProcessClock, Scheduler
from tests.model.serving import Server
from tests.model.systems import CHECKS, HEALTH, LIMIT, NEEDS, UPDATES, WISH

from navarchos.meta import parse_time
from navarchos.operator.names import CORDONED_BY_ANNOTATION, DRAIN_COMPLETED_LABEL
from navarchos.operator.nodes import CONTROL_PLANE_LABEL
from navarchos.testing.apiserver.store import Change
from navarchos.testing.cluster.invariants import InvariantChecker

__all__ = ["GROUP", "OPERATOR", "PATIENCE", "Judge", "Verdict", "is_over", "is_stalled", "step_of"]

JsonObject = Mapping[str, Any]

GROUP: Final = "navarchos.pusher.com"
OPERATOR: Final = "operator-"
"""The beginning of the user agents of the operator's processes."""

PATIENCE: Final = 15.0
"""Seconds after which the operator must know a change by another client, in addition to the
longest lag: some time for failing requests."""

LATE_BINDING: Final = 3.0
_MOMENT: Final = 1.0
_FINISHED: Final = ("Done", "Failed")
_MANY: Final = 20


class Verdict(AssertionError):
    """An invariant was broken."""


class Judge:
    """Listens to a server and records violations.

    Attributes:
        violations: Texts with the time; the run ends at the first one.
        evicted: How often the operator evicted or deleted each pod, by uid.
        lease: The leader by the Lease.
        patience: Seconds after which the operator must know a change by another client.
    """

    def __init__(self, scheduler: Scheduler, server: Server) -> None:
        self.violations: list[str] = []
        self.evicted: dict[str, int] = {}
        self.patience = PATIENCE
        self.lease = LeaseWatcher(scheduler, self._report)
        self._scheduler = scheduler
        self._server = server
        clock = ProcessClock(scheduler, scheduler.driver)
        self._checker = InvariantChecker(late_binding_tolerance=LATE_BINDING, clock=clock)
        self._calm_since = 0.0
        self._foreign: dict[str, float] = {}  # by uid: when another client changed it last
        self._bound: dict[str, float] = {}  # by the uid of the pod
        self._appeared: dict[str, float] = {}  # by the uid of the node
        self._paused: dict[str, float] = {}  # by uid: when spec.paused was set
        self._lost_children: set[str] = set()  # uids of rollouts with a deleted replacement
        self.opened_by_others: set[str] = set()  # uids of nodes
        self.kept_cordons: set[str] = (
            set()
        )  # marks of drains that kept their cordon, as their spec says
        server.store.subscribe(self._on_change)

    def disturbed(self, until: float = 0.0) -> None:
        """Record a fault of this duration: promises about time start again after it."""
        self._calm_since = max(self._calm_since, until, self._scheduler.seconds)

    def look_at_the_books(self) -> None:
        """Record the violations that the checker of budgets and cordons has found."""
        for found in self._checker.violations[: _MANY - len(self.violations)]:
            text = f"{found.what}: {found.object}: {found.detail}"
            if text not in self.violations:
                self.violations.append(text)

    def about_to_evict(self, namespace: str, name: str, body: JsonObject, verb: str) -> None:
        """Check an eviction or deletion of a pod before it is served."""
        pod = self._pod(namespace, name)
        options = body.get("deleteOptions") or body
        if not (options.get("preconditions") or {}).get("uid"):
            self._report(
                f"{verb} of {namespace}/{name} without the uid of the pod as a precondition"
            )
        if pod is None or options.get("preconditions", {}).get("uid") != pod["metadata"]["uid"]:
            return
        node = self._server.find("nodes", pod["spec"].get("nodeName", ""))
        drains = [
            drain
            for drain in self._of("nodedrains")
            if drain["spec"]["nodeName"] == pod["spec"].get("nodeName")
        ]
        if not drains:
            return
        if all(self._must_rest(drain) for drain in drains):
            self._report(f"{verb} of {namespace}/{name} while its drain is paused")
        if node is None:
            return
        uid = node["metadata"]["uid"]
        on_this = any(drain["spec"].get("nodeUID") in {uid, "", None} for drain in drains)
        came = self._bound.get(pod["metadata"]["uid"], 0.0)
        if not on_this and came > self._appeared.get(uid, 0.0):
            self._report(
                f"{verb} of {namespace}/{name}, which runs on a new node of the name "
                f"{node['metadata']['name']} and not on the drained one"
            )

    # Changes

    def _on_change(self, change: Change) -> None:
        if change.resource.plural == LEASES:
            self.lease.on_change(change)
            return
        if len(self.violations) >= _MANY:
            return
        self._checker.observe(change)
        by_operator = change.request is not None and change.request.user_agent.startswith(OPERATOR)
        metadata = change.object["metadata"]
        if by_operator:
            self._judge_other_system(change)
        elif change.resource.group == GROUP or WISH in _labels(change.object):
            self._foreign[metadata["uid"]] = self._scheduler.seconds
            if change.type == "DELETED":  # its successor has the same name
                self._foreign[metadata["name"]] = self._scheduler.seconds
        self._remember_pause(change)
        self._judge_change(change, by_operator)

    def _judge_change(self, change: Change, by_operator: bool) -> None:
        metadata = change.object["metadata"]
        match change.resource.plural:
            case "pods":
                self._pod_changed(change, by_operator)
            case "nodes":
                self._node_changed(change, by_operator)
            case "nodereplacements" if by_operator:
                self._replacement_changed(change)
            case "nodereplacements" if change.type == "DELETED":
                self._lost_children.add(_owner_uid(change.object))
            case "nodedrains" if change.type == "DELETED":
                if change.object["spec"].get("uncordonOnDelete") is False:
                    self.kept_cordons.add(f"{metadata['name']}/{metadata['uid']}")
            case _:
                pass

    def _remember_pause(self, change: Change) -> None:
        uid = change.object["metadata"]["uid"]
        if change.type != "DELETED" and (change.object.get("spec") or {}).get("paused"):
            self._paused.setdefault(uid, self._scheduler.seconds)
        else:
            self._paused.pop(uid, None)

    def _pod_changed(self, change: Change, by_operator: bool) -> None:
        uid = change.object["metadata"]["uid"]
        if change.object["spec"].get("nodeName"):
            self._bound.setdefault(uid, self._scheduler.seconds)
        before = change.previous
        if not by_operator or (before and before["metadata"].get("deletionTimestamp")):
            return
        if change.type == "DELETED" or change.object["metadata"].get("deletionTimestamp"):
            self.evicted[uid] = self.evicted.get(uid, 0) + 1

    def _node_changed(self, change: Change, by_operator: bool) -> None:
        node, before = change.object, change.previous
        uid, name = node["metadata"]["uid"], node["metadata"]["name"]
        if change.type == "ADDED" or before is None:
            self._appeared[uid] = self._scheduler.seconds
            return
        was, closed = _is_closed(before), _is_closed(node) and change.type != "DELETED"
        if not by_operator:
            if was and not closed:
                self.opened_by_others.add(uid)
            return
        if was and not closed:
            self._judge_opening(name, _mark(before))
        elif closed and not was:
            self._judge_closing(name, uid, _mark(node))
        if DRAIN_COMPLETED_LABEL in _labels(node) and _labels(node) != _labels(before):
            self._judge_label(name, uid)

    def _judge_opening(self, name: str, owner: str) -> None:
        """Check that only the drain that set a cordon undoes it."""
        if not owner:
            self._report(f"node {name}, which another client had cordoned, was uncordoned")
            return
        drain = self._owner_drain(owner)
        if drain is None or not drain["metadata"].get("deletionTimestamp"):
            self._report(f"node {name} was uncordoned, and its drain {owner} is not being deleted")
        elif drain["spec"].get("uncordonOnDelete") is False:
            self._report(f"node {name} was uncordoned, and uncordonOnDelete of {owner} is false")

    def _judge_closing(self, name: str, uid: str, owner: str) -> None:
        drain = self._owner_drain(owner)
        if drain is None:
            self._report(f"node {name} was cordoned for a drain that does not exist: {owner!r}")
        elif drain["spec"].get("nodeUID") != uid:
            self._report(f"node {name} was cordoned, and its drain names another uid")

    def _judge_label(self, name: str, uid: str) -> None:
        done = [
            drain
            for drain in self._of("nodedrains")
            if drain["spec"].get("nodeUID") == uid
            and (drain.get("status") or {}).get("phase") == "Completed"
        ]
        if not done:
            self._report(f"node {name} was labelled as drained, and no drain of its uid has ended")

    def _replacement_changed(self, change: Change) -> None:
        before, after = change.previous, change.object
        if before is None or change.type == "DELETED":
            return
        tried = _attempts(after) - _attempts(before)
        if tried > 1:
            self._report(f"{after['metadata']['name']} counts {tried} attempts for one")
        if step_of(after) == "Waiting" and (tried or step_of(before) == "Releasing"):
            self._judge_retry(after)
        if step_of(after) == "Reserved" and step_of(before) != "Reserved":
            self._judge_start(after)
        if is_stalled(after) and not is_stalled(before):
            self._judge_stuck(after)

    def _judge_retry(self, waiting: JsonObject) -> None:
        status, allowed = waiting["status"], waiting["spec"]["strategy"].get("retries", 0)
        counted = _attempts(waiting) - int(status.get("resetAttempts", 0))
        if counted > allowed:
            self._report(
                f"{waiting['metadata']['name']} is tried again after {counted} attempts, "
                f"although it has {allowed} retries"
            )

    def _judge_stuck(self, stalled: JsonObject) -> None:
        """Check that no more nodes are stalled or failed than may fail."""
        rollout = self._rollout_of(stalled)
        name = stalled["metadata"]["name"]
        if rollout is None:
            self._report(f"{name} released its slot, and no rollout allows that")
            return
        allowed = int((rollout["spec"].get("strategy") or {}).get("maxFailures", 0))
        uid = rollout["metadata"]["uid"]
        children = [r for r in self._of("nodereplacements") if _owner_uid(r) == uid]
        without = [r for r in children if is_stalled(r) or step_of(r) == "Failed"]
        if len(without) > allowed and self._is_old(rollout, *children):
            self._report(
                f"{name} released its slot, {len(without)} nodes of its rollout are stalled or "
                f"failed, and {allowed} may be"
            )

    def _judge_start(self, started: JsonObject) -> None:
        name, uid = started["metadata"]["name"], started["metadata"]["uid"]
        node = started["spec"]["nodeName"]
        in_flight = [r for r in self._of("nodereplacements") if _is_in_flight(r)]
        busy = {r["spec"]["nodeName"] for r in in_flight if not is_stalled(r)}
        busy |= self._held_by_orphans()
        others = self._held_by_others()
        busy |= others.keys()
        limit = started["spec"]["strategy"]["maxConcurrent"]
        if len(busy) > limit:
            self._report(
                f"{name} started with {len(busy)} nodes in flight ({', '.join(sorted(busy))}), "
                f"and {limit} may be"
            )
        if sum(r["spec"]["nodeName"] == node for r in in_flight) > 1:
            self._report(f"{name} started, and another replacement works on node {node}")
        self._judge_other_holders(name, node, others)
        if started["spec"].get("paused"):
            self._report(f"{name} started, and is paused")
        rollout = self._rollout_of(started)
        if rollout is not None and self._is_paused(rollout):
            self._report(f"{name} started, and its rollout is paused")
        if rollout is not None and _phase(rollout) == "Halted" and self._is_old(rollout, started):
            self._report(f"{name} started, and its rollout is halted")
        company = [self._known_node(r) for r in in_flight if r["metadata"]["uid"] != uid]
        company += [self._server.find("nodes", other) for other in others]
        self._judge_company(started, company)
        self._judge_settling(started)
        if rollout is not None:
            self._judge_times(started, rollout)
            self._judge_gates(name, rollout)
            self._judge_waves(started, rollout)
        for other in self._of("nodereplacements"):
            if other["metadata"]["uid"] != uid and self._goes_before(other, started):
                self._report(f"{name} started before {other['metadata']['name']}")

    def _judge_other_holders(self, name: str, node: str, others: Mapping[str, str]) -> None:
        """Check that a started node was neither held nor needed."""
        if node in others:
            self._report(f"{name} started, and {others[node]} holds node {node}")
        for need in self._wishes(NEEDS):
            if need["data"]["node"] == node and self._is_known(need):
                self._report(f"{name} started, although {need['metadata']['name']} needs its node")

    def _judge_other_system(self, change: Change) -> None:
        """Check that another system than rollouts starts a node only within its limit."""
        started, plural = change.object["metadata"]["name"], change.resource.plural
        if (plural, change.type) == ("nodedrains", "ADDED") and not _owner_uid(change.object):
            node = change.object["spec"]["nodeName"]
        elif (plural, change.type) == ("configmaps", "MODIFIED"):
            node = change.object["data"]["node"]
        else:
            return
        found = [r for r in self._of("nodereplacements") if _is_in_flight(r)]
        of_rollouts = {r["spec"]["nodeName"] for r in found} | self._held_by_orphans()
        others = self._held_by_others()
        busy = of_rollouts | others.keys()
        if len(busy) > LIMIT:
            self._report(
                f"{started} started with {len(busy)} nodes in flight ({', '.join(sorted(busy))}), "
                f"and {LIMIT} may be"
            )
        if node in of_rollouts or others.get(node) != started:
            self._report(f"{started} started, and another system works on node {node}")

    def _judge_company(self, started: JsonObject, others: Sequence[JsonObject | None]) -> None:
        """Check that nodes in flight share a topology value, with one control-plane node."""
        name, strategy = started["metadata"]["name"], started["spec"]["strategy"]
        node = self._known_node(started)
        key, policy = strategy.get("topologyKey"), strategy.get("controlPlane")
        for other in others:
            if node is None or other is None:
                continue
            beside = f"{name} started beside node {other['metadata']['name']}"
            if key and _labels(other).get(key) != _labels(node).get(key):
                self._report(f"{beside}, which has another {key}")
            is_control_plane = all(CONTROL_PLANE_LABEL in _labels(each) for each in (node, other))
            if is_control_plane and other is not node and policy != "Ignore":
                self._report(f"{beside}, and both are of the control plane")

    def _judge_times(self, started: JsonObject, rollout: JsonObject) -> None:
        """Check that a node starts inside a window and outside all blackouts (NP-41)."""
        name, strategy = started["metadata"]["name"], rollout["spec"].get("strategy") or {}
        at = parse_time(started["status"]["step"]["startedAt"])
        # The decision is a moment older than its record.
        moments = (at, at - timedelta(seconds=_MOMENT))
        if not self._is_known(rollout):
            return
        for period in strategy.get("blackouts") or ():
            begin, end = parse_time(period["from"]), parse_time(period["to"])
            if all(begin <= moment < end for moment in moments):
                self._report(f"{name} started at {at}, inside a blackout")
        windows = strategy.get("windows") or ()
        times = [f"{moment:%H:%M:%S}" for moment in moments]
        if windows and not any(w["start"] <= each <= w["end"] for w in windows for each in times):
            self._report(f"{name} started at {at}, outside all windows")

    def _judge_gates(self, name: str, rollout: JsonObject) -> None:
        """Check that a node starts while no gate of its rollout has been closed for long."""
        for health in self._wishes(HEALTH) if rollout["spec"].get("gates") else ():
            if health["data"].get("is") != "well" and self._is_known(health):
                self._report(f"{name} started, and a gate of its rollout is closed")

    def _judge_waves(self, started: JsonObject, rollout: JsonObject) -> None:
        """Check that the first node beyond a wave starts when the wave is over (NP-43)."""
        waves = (rollout["spec"].get("strategy") or {}).get("waves") or ()
        uid, name = rollout["metadata"]["uid"], started["metadata"]["name"]
        if not waves or (started["status"].get("attempts") or 0) > 0:
            return
        if uid in self._lost_children:
            return  # the remaining ones do not show how many nodes have begun
        others = [
            child
            for child in self._of("nodereplacements")
            if _owner_uid(child) == uid and child["metadata"]["name"] != name
        ]
        begun = [r for r in others if (r.get("status") or {}).get("startTimestamp")]
        approved = {a["number"] for a in rollout["status"].get("wave", {}).get("approvals") or ()}
        for number, wave in enumerate(waves, 1):
            if wave["upTo"] != len(begun):
                continue
            beyond = f"{name} started beyond wave {number}"
            for other in begun:
                if step_of(other) not in _FINISHED:
                    self._report(f"{beyond}, and {other['metadata']['name']} has not finished")
            if wave.get("approval") and number not in approved:
                self._report(f"{beyond}, which is not approved")

    def _judge_settling(self, started: JsonObject) -> None:
        now = self._scheduler.now()
        for other in self._of("nodereplacements"):
            seconds = other["spec"]["strategy"].get("settleSeconds", 0)
            if step_of(other) != "Done" or other["status"]["step"].get("reason") != "Drained":
                continue
            age = (now - parse_time(other["status"]["completionTimestamp"])).total_seconds()
            # A node that starts at the same moment cannot take it into account.
            if _MOMENT < age < seconds and self._calm_since < self._scheduler.seconds:
                self._report(
                    f"{started['metadata']['name']} started {age:.1f} s after "
                    f"{other['metadata']['name']} was drained, and the settle time is {seconds} s"
                )

    def _known_node(self, replacement: JsonObject) -> JsonObject | None:
        """Return the node of a replacement if it has the recorded uid."""
        node = self._server.find("nodes", replacement["spec"]["nodeName"])
        is_meant = node is not None and node["metadata"]["uid"] == replacement["spec"]["nodeUID"]
        return node if is_meant else None

    def _goes_before(self, other: JsonObject, started: JsonObject) -> bool:
        if _priority(other) <= _priority(started) or step_of(other) in _FINISHED:
            return False
        if other["metadata"].get("deletionTimestamp") or other["spec"].get("paused"):
            return False
        rollout = self._rollout_of(other)
        if rollout is None or rollout["metadata"].get("deletionTimestamp"):
            return False
        # A rollout that may start no node at all delays no other rollout.
        if rollout["spec"].get("gates"):
            return False
        if {"windows", "blackouts", "waves"} & (rollout["spec"].get("strategy") or {}).keys():
            return False
        frozen = rollout["spec"].get("paused") or _phase(rollout) == "Halted"
        frozen = frozen or self._is_about_to_halt(rollout)
        return not frozen and self._is_old(rollout, other)

    def _is_about_to_halt(self, rollout: JsonObject) -> bool:
        """Return whether too many nodes have failed, even if Halted has not been written yet."""
        uid, strategy = rollout["metadata"]["uid"], rollout["spec"].get("strategy") or {}
        children = [r for r in self._of("nodereplacements") if _owner_uid(r) == uid]
        failed = sum(step_of(child) == "Failed" for child in children)
        attempts = sum(len((r.get("status") or {}).get("failures") or ()) for r in children)
        allowed = int(strategy.get("maxFailures", 0))
        return failed > allowed or attempts > allowed + 1

    def _is_old(self, *objects: JsonObject) -> bool:
        """Return whether no other client has changed these objects recently."""
        latest = max(
            self._foreign.get(obj["metadata"][key], 0.0)
            for obj in objects
            for key in ("uid", "name")
        )
        # An object that another client created long ago may have been edited by the operator since.
        return max(latest, self._calm_since) + self.patience < self._scheduler.seconds

    def _is_known(self, obj: JsonObject) -> bool:
        """Return whether caches must show an object.

        It is old, or older than the leader: caches are not older than the leadership (NP-03).
        """
        changed = self._foreign.get(obj["metadata"]["uid"], 0.0)
        return changed < self.lease.held_since or self._is_old(obj)

    def _is_paused(self, obj: JsonObject) -> bool:
        """Return whether it was paused so long ago that the pause must have taken effect."""
        since = self._paused.get(obj["metadata"]["uid"])
        if since is None:
            return False
        return max(since, self._calm_since) + 10.0 < self._scheduler.seconds

    def _must_rest(self, drain: JsonObject) -> bool:
        """Return whether no eviction may be sent for a drain.

        If its report has been taken over, its rollout decides, because its own spec may be
        out of date.
        """
        above = _owner_uid(drain)
        if not above or drain["spec"].get("uncordonOnDelete", True):
            return self._is_paused(drain)
        replacements = {each["metadata"]["uid"]: each for each in self._of("nodereplacements")}
        replacement = replacements.get(above)
        rollout = self._rollout_of(replacement) if replacement is not None else None
        return rollout is not None and self._is_paused(rollout)

    def _held_by_orphans(self) -> set[str]:
        alive = {r["metadata"]["uid"] for r in self._of("nodereplacements")}
        nodes = {node["metadata"]["name"] for node in self._server.list("nodes")}
        return {
            drain["spec"]["nodeName"]
            for drain in self._of("nodedrains")
            if not is_over(drain)
            and drain["spec"]["nodeName"] in nodes
            and (owner := _owner_uid(drain))
            and owner not in alive
        }

    def _held_by_others(self) -> dict[str, str]:
        """Return the holders, by node, that rollouts must count besides their own nodes.

        It must know the holders of all its systems at once.
        """
        nodes = {node["metadata"]["name"]: node for node in self._server.list("nodes")}
        found = {}
        for drain in self._of("nodedrains"):
            name, spec = drain["metadata"]["name"], drain["spec"]
            node = nodes.get(spec["nodeName"])
            if node is None or _owner_uid(drain):
                continue
            is_meant = spec.get("nodeUID", "") in {"", node["metadata"]["uid"]}
            if is_meant and (name.startswith(CHECKS) or self._is_known(drain)):
                found[spec["nodeName"]] = name
        for wish in self._wishes(UPDATES):
            if wish["data"].get("started"):
                found.setdefault(wish["data"]["node"], wish["metadata"]["name"])
        return found

    def _wishes(self, wish: str) -> list[dict[str, Any]]:
        return [m for m in self._server.list("configmaps") if _labels(m).get(WISH) == wish]

    def _owner_drain(self, owner: str) -> JsonObject | None:
        name, _, uid = owner.partition("/")
        drain = self._server.find("nodedrains", name, GROUP)
        return drain if drain is not None and drain["metadata"]["uid"] == uid else None

    def _rollout_of(self, replacement: JsonObject) -> JsonObject | None:
        uid = _owner_uid(replacement)
        return next((r for r in self._of("noderollouts") if r["metadata"]["uid"] == uid), None)

    def _pod(self, namespace: str, name: str) -> JsonObject | None:
        for pod in self._server.list("pods"):
            if (pod["metadata"]["namespace"], pod["metadata"]["name"]) == (namespace, name):
                return pod
        return None

    def _of(self, plural: str) -> list[dict[str, Any]]:
        return self._server.list(plural, GROUP)

    def _report(self, text: str) -> None:
        self.violations.append(f"{self._scheduler.seconds:.3f}: {text}")


def step_of(replacement: JsonObject) -> str:
    """Return the step of a replacement."""
    step = (replacement.get("status") or {}).get("step") or {}
    return str(step.get("name", "Waiting"))


def _attempts(replacement: JsonObject) -> int:
    return int((replacement.get("status") or {}).get("attempts", 0))


def is_stalled(replacement: JsonObject) -> bool:
    """Return whether others may start beside a node in this step."""
    return _is_in_flight(replacement) and bool(replacement["status"].get("stalledSince"))


def is_over(drain: JsonObject) -> bool:
    """Return whether a drain has ended."""
    return (drain.get("status") or {}).get("phase") in {"Completed", "Failed"}


def _is_in_flight(replacement: JsonObject) -> bool:
    return step_of(replacement) not in {"Waiting", *_FINISHED}


def _priority(replacement: JsonObject) -> int:
    return int((replacement["spec"].get("replacement") or {}).get("priority", 0))


def _phase(rollout: JsonObject) -> str:
    return str((rollout.get("status") or {}).get("phase", ""))


def _owner_uid(obj: JsonObject) -> str:
    owners = obj["metadata"].get("ownerReferences") or ()
    return next((owner["uid"] for owner in owners if owner.get("controller")), "")


def _is_closed(node: JsonObject) -> bool:
    return bool((node.get("spec") or {}).get("unschedulable"))


def _mark(node: JsonObject) -> str:
    return str((node["metadata"].get("annotations") or {}).get(CORDONED_BY_ANNOTATION, ""))


def _labels(node: JsonObject) -> Mapping[str, str]:
    return node["metadata"].get("labels") or {}
