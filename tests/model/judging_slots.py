"""Check limits: of nodes in flight, of attempts, of failures, and the order of starts."""

from collections.abc import Mapping, Sequence
from typing import Final

from tests.model.facts import (
    FINISHED,
    Facts,
    JsonObject,
    attempts_of,
    is_in_flight,
    is_stalled,
    labels_of,
    owner_uid,
    phase_of,
    priority_of,
    step_of,
)
from tests.model.judging_gates import GateJudge
from tests.model.systems import LIMIT, NEEDS

from navarchos.meta import parse_time
from navarchos.operator.nodes import CONTROL_PLANE_LABEL
from navarchos.testing.apiserver.store import Change

__all__ = ["SlotJudge"]

_MOMENT: Final = 1.0


class SlotJudge:
    """Judges which nodes start, beside which others, and how often."""

    def __init__(self, facts: Facts, gates: GateJudge) -> None:
        self._facts = facts
        self._gates = gates

    def replacement_changed(self, change: Change) -> None:
        """Check an update of a replacement by the operator."""
        before, after = change.previous, change.object
        if before is None or change.type == "DELETED":
            return
        tried = attempts_of(after) - attempts_of(before)
        if tried > 1:
            self._facts.report(f"{after['metadata']['name']} counts {tried} attempts for one")
        if step_of(after) == "Waiting" and (tried or step_of(before) == "Releasing"):
            self._judge_retry(after)
        if step_of(after) == "Reserved" and step_of(before) != "Reserved":
            self._judge_start(after)
        if is_stalled(after) and not is_stalled(before):
            self._judge_stuck(after)
        if step_of(after) == "Done" and step_of(before) not in FINISHED:
            rollout = self._facts.rollout_of(after)
            if rollout is not None:
                self._gates.judge_end(before, after, rollout)

    def _judge_retry(self, waiting: JsonObject) -> None:
        status, allowed = waiting["status"], waiting["spec"]["strategy"].get("retries", 0)
        counted = attempts_of(waiting) - int(status.get("resetAttempts", 0))
        if counted > allowed:
            self._facts.report(
                f"{waiting['metadata']['name']} is tried again after {counted} attempts, "
                f"although it has {allowed} retries"
            )

    def _judge_stuck(self, stalled: JsonObject) -> None:
        """Check that no more nodes are stalled or failed than may fail."""
        rollout = self._facts.rollout_of(stalled)
        name = stalled["metadata"]["name"]
        if rollout is None:
            self._facts.report(f"{name} released its slot, and no rollout allows that")
            return
        allowed = int((rollout["spec"].get("strategy") or {}).get("maxFailures", 0))
        uid = rollout["metadata"]["uid"]
        children = [r for r in self._facts.of("nodereplacements") if owner_uid(r) == uid]
        without = [r for r in children if is_stalled(r) or step_of(r) == "Failed"]
        if len(without) > allowed and self._facts.is_old(rollout, *children):
            self._facts.report(
                f"{name} released its slot, {len(without)} nodes of its rollout are stalled or "
                f"failed, and {allowed} may be"
            )

    def _judge_start(self, started: JsonObject) -> None:
        name, uid = started["metadata"]["name"], started["metadata"]["uid"]
        node = started["spec"]["nodeName"]
        in_flight = [r for r in self._facts.of("nodereplacements") if is_in_flight(r)]
        busy = {r["spec"]["nodeName"] for r in in_flight if not is_stalled(r)}
        busy |= self._facts.held_by_orphans()
        others = self._facts.held_by_others()
        busy |= others.keys()
        limit = started["spec"]["strategy"]["maxConcurrent"]
        if len(busy) > limit:
            self._facts.report(
                f"{name} started with {len(busy)} nodes in flight ({', '.join(sorted(busy))}), "
                f"and {limit} may be"
            )
        if sum(r["spec"]["nodeName"] == node for r in in_flight) > 1:
            self._facts.report(f"{name} started, and another replacement works on node {node}")
        self._judge_other_holders(name, node, others)
        if started["spec"].get("paused"):
            self._facts.report(f"{name} started, and is paused")
        rollout = self._facts.rollout_of(started)
        if rollout is not None and self._facts.is_paused(rollout):
            self._facts.report(f"{name} started, and its rollout is paused")
        if (
            rollout is not None
            and phase_of(rollout) == "Halted"
            and self._facts.is_old(rollout, started)
        ):
            self._facts.report(f"{name} started, and its rollout is halted")
        company = [self._facts.known_node(r) for r in in_flight if r["metadata"]["uid"] != uid]
        company += [self._facts.server.find("nodes", other) for other in others]
        self._judge_company(started, company)
        self._judge_settling(started)
        if rollout is not None:
            self._gates.judge_start(started, rollout)
        for other in self._facts.of("nodereplacements"):
            if other["metadata"]["uid"] != uid and self._goes_before(other, started):
                self._facts.report(f"{name} started before {other['metadata']['name']}")

    def _judge_other_holders(self, name: str, node: str, others: Mapping[str, str]) -> None:
        """Check that a started node was neither held nor needed."""
        if node in others:
            self._facts.report(f"{name} started, and {others[node]} holds node {node}")
        for need in self._facts.wishes(NEEDS):
            if need["data"]["node"] == node and self._facts.is_known(need):
                self._facts.report(
                    f"{name} started, although {need['metadata']['name']} needs its node"
                )

    def judge_other_system(self, change: Change) -> None:
        """Check that another system than rollouts starts a node only within its limit."""
        started, plural = change.object["metadata"]["name"], change.resource.plural
        if (plural, change.type) == ("nodedrains", "ADDED") and not owner_uid(change.object):
            node = change.object["spec"]["nodeName"]
        elif (plural, change.type) == ("configmaps", "MODIFIED"):
            node = change.object["data"]["node"]
        else:
            return
        found = [r for r in self._facts.of("nodereplacements") if is_in_flight(r)]
        of_rollouts = {r["spec"]["nodeName"] for r in found} | self._facts.held_by_orphans()
        others = self._facts.held_by_others()
        busy = of_rollouts | others.keys()
        if len(busy) > LIMIT:
            self._facts.report(
                f"{started} started with {len(busy)} nodes in flight ({', '.join(sorted(busy))}), "
                f"and {LIMIT} may be"
            )
        # A drain of a former node of this name holds nothing.
        if node in of_rollouts or others.get(node, started) != started:
            self._facts.report(f"{started} started, and another system works on node {node}")

    def _judge_company(self, started: JsonObject, others: Sequence[JsonObject | None]) -> None:
        """Check that nodes in flight share a topology value, with one control-plane node."""
        name, strategy = started["metadata"]["name"], started["spec"]["strategy"]
        node = self._facts.known_node(started)
        key, policy = strategy.get("topologyKey"), strategy.get("controlPlane")
        for other in others:
            if node is None or other is None:
                continue
            beside = f"{name} started beside node {other['metadata']['name']}"
            if key and labels_of(other).get(key) != labels_of(node).get(key):
                self._facts.report(f"{beside}, which has another {key}")
            is_control_plane = all(CONTROL_PLANE_LABEL in labels_of(each) for each in (node, other))
            if is_control_plane and other is not node and policy != "Ignore":
                self._facts.report(f"{beside}, and both are of the control plane")

    def _judge_settling(self, started: JsonObject) -> None:
        now = self._facts.scheduler.now()
        for other in self._facts.of("nodereplacements"):
            seconds = other["spec"]["strategy"].get("settleSeconds", 0)
            if step_of(other) != "Done" or other["status"]["step"].get("reason") != "Drained":
                continue
            age = (now - parse_time(other["status"]["completionTimestamp"])).total_seconds()
            # A node that starts at the same moment cannot take it into account.
            if _MOMENT < age < seconds and self._facts.calm_since < self._facts.scheduler.seconds:
                self._facts.report(
                    f"{started['metadata']['name']} started {age:.1f} s after "
                    f"{other['metadata']['name']} was drained, and the settle time is {seconds} s"
                )

    def _goes_before(self, other: JsonObject, started: JsonObject) -> bool:
        if priority_of(other) <= priority_of(started) or step_of(other) in FINISHED:
            return False
        needed = {need["data"]["node"] for need in self._facts.wishes(NEEDS)}
        # A node that another system needs delays no other node.
        is_held = other["spec"].get("paused") or other["spec"]["nodeName"] in needed
        if other["metadata"].get("deletionTimestamp") or is_held or other["spec"].get("cancel"):
            return False
        rollout = self._facts.rollout_of(other)
        if rollout is None or rollout["metadata"].get("deletionTimestamp"):
            return False
        # A rollout that may start no node at all delays no other rollout.
        if rollout["spec"].get("gates"):
            return False
        if {"windows", "blackouts", "waves"} & (rollout["spec"].get("strategy") or {}).keys():
            return False
        spec = rollout["spec"]
        frozen = spec.get("paused") or spec.get("cancel") or phase_of(rollout) == "Halted"
        frozen = frozen or self._is_about_to_halt(rollout)
        return not frozen and self._facts.is_old(rollout, other)

    def _is_about_to_halt(self, rollout: JsonObject) -> bool:
        """Return whether too many nodes have failed, even if Halted has not been written yet."""
        uid, strategy = rollout["metadata"]["uid"], rollout["spec"].get("strategy") or {}
        children = [r for r in self._facts.of("nodereplacements") if owner_uid(r) == uid]
        failed = sum(step_of(child) == "Failed" for child in children)
        attempts = sum(len((r.get("status") or {}).get("failures") or ()) for r in children)
        allowed = int(strategy.get("maxFailures", 0))
        return failed > allowed or attempts > allowed + 1
