"""Check gates, windows and waves: when nodes of a rollout may start, and when gates halt it."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Final

from tests.model.facts import (
    FINISHED,
    Facts,
    JsonObject,
    labels_of,
    owner_uid,
    phase_of,
    step_of,
)
from tests.model.systems import HEALTH, WISH

from navarchos.meta import parse_time
from navarchos.testing.apiserver.store import Change

__all__ = ["GateJudge"]

_MOMENT: Final = 1.0
"""Seconds between a decision and its write, and by which a stored time is rounded."""

_GATE_TIMEOUT: Final = 1800
"""The default of `timeoutSeconds`."""


class GateJudge:
    """Judges when nodes start, and when a gate halts a rollout.

    All gates observe one ConfigMap: they are open while it is well, or does not exist.
    """

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._well_since: float | None = 0.0  # None while the gates are closed
        self._ill_since: float | None = None  # of the last time that the gates closed

    def health_changed(self, change: Change) -> None:
        """Remember since when the gates have been open or closed."""
        if labels_of(change.object).get(WISH) != HEALTH:
            return
        is_well = change.type == "DELETED" or change.object["data"].get("is") == "well"
        if is_well and self._well_since is None:
            self._well_since = self._facts.scheduler.seconds
        elif not is_well and self._well_since is not None:
            self._well_since = None
            self._ill_since = self._facts.scheduler.seconds

    # Starts

    def judge_start(self, started: JsonObject, rollout: JsonObject) -> None:
        """Check that a node of a rollout may start now."""
        self._judge_times(started, rollout)
        self._judge_gates(f"{started['metadata']['name']} started", _gates(rollout))
        self._judge_waves(started, rollout)

    def _judge_times(self, started: JsonObject, rollout: JsonObject) -> None:
        """Check that a node starts inside a window and outside all blackouts (NP-41)."""
        name, strategy = started["metadata"]["name"], rollout["spec"].get("strategy") or {}
        at = parse_time(started["status"]["step"]["startedAt"])
        # The decision is a moment older than its record.
        moments = (at, at - timedelta(seconds=_MOMENT))
        if not self._facts.is_known(rollout):
            return
        for period in strategy.get("blackouts") or ():
            begin, end = parse_time(period["from"]), parse_time(period["to"])
            if all(begin <= moment < end for moment in moments):
                self._facts.report(f"{name} started at {at}, inside a blackout")
        # Only designed runs have windows of another time zone; they check the instants themselves.
        windows = [w for w in strategy.get("windows") or () if not w.get("timeZone")]
        times = [f"{moment:%H:%M:%S}" for moment in moments]
        if windows and not any(w["start"] <= each <= w["end"] for w in windows for each in times):
            self._facts.report(f"{name} started at {at}, outside all windows")

    def _judge_gates(self, what: str, gates: Iterable[JsonObject]) -> None:
        """Check that something happens while gates are open, and have been for long enough."""
        kept = list(gates)
        for health in self._facts.wishes(HEALTH) if kept else ():
            if health["data"].get("is") != "well" and self._facts.is_known(health):
                self._facts.report(f"{what}, and a gate of its rollout is closed")
        stable = max((int(gate.get("stableSeconds", 0)) for gate in kept), default=0)
        self._judge_stable(what, stable)

    def _judge_stable(self, what: str, seconds: int) -> None:
        """Check that gates have been open for so long (NP-30), as far as the leader can know."""
        since = self._well_since
        if since is None or since <= max(self._facts.calm_since, self._facts.lease.held_since):
            return
        # A decision that is older than the closing of the gate is no fault.
        if _MOMENT < (age := self._facts.scheduler.seconds - since) < seconds - _MOMENT:
            self._facts.report(f"{what} {age:.1f} s after its gates opened, not after {seconds} s")

    def _judge_waves(self, started: JsonObject, rollout: JsonObject) -> None:
        """Check that the first node beyond a wave starts when the wave is over (NP-43)."""
        waves = (rollout["spec"].get("strategy") or {}).get("waves") or ()
        if not waves or (started["status"].get("attempts") or 0) > 0:
            return
        name = started["metadata"]["name"]
        others = [child for child in self._children(rollout) if child["metadata"]["name"] != name]
        # A node can fail before its start, by `pendingPodsTimeoutSeconds`.
        begun = [
            r
            for r in others
            if step_of(r) == "Failed" or (r.get("status") or {}).get("startTimestamp")
        ]
        # Nodes whose replacement was deleted after its end are finished.
        count = len(begun) + len(self._ended_before(rollout))
        approved = {a["number"] for a in rollout["status"].get("wave", {}).get("approvals") or ()}
        for number, wave in enumerate(waves, 1):
            if wave["upTo"] != count:
                continue
            beyond = f"{name} started beyond wave {number}"
            unfinished = [r["metadata"]["name"] for r in begun if step_of(r) not in FINISHED]
            for other in unfinished:
                self._facts.report(f"{beyond}, and {other} has not finished")
            if wave.get("approval") and number not in approved:
                self._facts.report(f"{beyond}, which is not approved")
            if not unfinished:
                self._judge_soak(beyond, wave, begun, has_gates=bool(_gates(rollout)))

    def _judge_soak(
        self, beyond: str, wave: JsonObject, finished: list[dict[str, Any]], *, has_gates: bool
    ) -> None:
        """Check that a wave has soaked, with open gates."""
        seconds = int(wave.get("soakSeconds", 0))
        now = self._facts.scheduler.now()
        ends = [parse_time(r["status"]["completionTimestamp"]) for r in finished]
        age = min(((now - end).total_seconds() for end in ends), default=float(seconds))
        if age < seconds - _MOMENT:
            self._facts.report(f"{beyond} {age:.1f} s after its last node, not after {seconds} s")
        if has_gates:
            self._judge_stable(beyond, seconds)

    # Ends

    def judge_end(self, before: JsonObject, after: JsonObject, rollout: JsonObject) -> None:
        """Check that a drained node counts as done only while gates with `after` are open."""
        gates = [gate for gate in _gates(rollout) if gate.get("after")]
        step = after["status"].get("step") or {}
        if gates and (step.get("name"), step.get("reason")) == ("Done", "Drained"):
            self._judge_gates(f"{after['metadata']['name']} counted as done", gates)

    def rollout_changed(self, change: Change) -> None:
        """Check that a gate halts a rollout only when it was closed for its timeout."""
        before, after = change.previous, change.object
        halt, name = _timeout_of(after), after["metadata"]["name"]
        if halt is None or before is None or _timeout_of(before) is not None:
            return
        limits = [_timeout(gate) for gate in _gates(after) if _timeout(gate)]
        if not limits:
            self._facts.report(f"{name} was halted by a gate, and no gate has a timeout")
            return
        if not any(_waits_at_gate(child) for child in self._children(after)):
            self._facts.report(f"{name} was halted by a gate, and no node waits for one")
        opened = self._well_since or self._facts.scheduler.seconds
        closed_at = self._ill_since or 0.0
        # After a fault, the leader may not know that the gate was open for a short time.
        is_sure = closed_at > max(self._facts.calm_since, self._facts.lease.held_since)
        closed_for = max(opened - closed_at, 0.0)
        if self._ill_since is None or (is_sure and closed_for < min(limits) - _MOMENT):
            self._facts.report(f"{name} was halted by a gate after {closed_for:.1f} s")

    def look(self) -> None:
        """Check that a rollout is halted once a gate was closed for its timeout."""
        now, closed_at = self._facts.scheduler.seconds, self._ill_since
        patience = self._facts.patience
        if self._well_since is not None or closed_at is None:
            return
        if max(self._facts.calm_since, self._facts.lease.held_since) + patience >= now:
            return
        for rollout in self._facts.of("noderollouts"):
            limits = [_timeout(gate) for gate in _gates(rollout) if _timeout(gate)]
            metadata = rollout["metadata"]
            is_frozen = rollout["spec"].get("paused") or metadata.get("deletionTimestamp")
            if not limits or is_frozen or phase_of(rollout) != "InProgress":
                continue
            # A pause or a resume lets the time begin again.
            edited = self._facts.foreign.get(metadata["uid"], 0.0)
            overdue = now - min(limits) - patience
            if max(closed_at, edited) < overdue and self._has_waited(rollout, overdue):
                self._facts.report(
                    f"{metadata['name']} is not halted, and its gates have been closed for "
                    f"{now - closed_at:.1f} s"
                )

    def _has_waited(self, rollout: JsonObject, since: float) -> bool:
        """Return whether a node has waited for a gate since then."""
        moment = self._facts.scheduler.now() - timedelta(
            seconds=self._facts.scheduler.seconds - since
        )
        return any(
            _waits_at_gate(child) and parse_time(child["status"]["step"]["startedAt"]) < moment
            for child in self._children(rollout)
        )

    def _children(self, rollout: JsonObject) -> list[dict[str, Any]]:
        uid = rollout["metadata"]["uid"]
        return [r for r in self._facts.of("nodereplacements") if owner_uid(r) == uid]

    def _ended_before(self, rollout: JsonObject) -> set[str]:
        """Return the nodes whose replacement was deleted after it had finished."""
        status = rollout.get("status") or {}
        recorded = {
            *(status.get("replacementsCompleted") or ()),
            *(status.get("replacementsFailed") or ()),
        }
        return recorded - {child["spec"]["nodeName"] for child in self._children(rollout)}


def _gates(rollout: JsonObject) -> list[dict[str, Any]]:
    return list(rollout["spec"].get("gates") or ())


def _timeout(gate: JsonObject) -> int:
    return int(gate.get("timeoutSeconds", _GATE_TIMEOUT))


def _waits_at_gate(child: JsonObject) -> bool:
    step = (child.get("status") or {}).get("step") or {}
    return bool(step.get("name") == "Waiting" and step.get("reason") == "Gate")


def _timeout_of(rollout: JsonObject) -> JsonObject | None:
    """Return the condition of a rollout that a gate has halted."""
    conditions = (rollout.get("status") or {}).get("conditions") or ()
    return next(
        (
            c
            for c in conditions
            if (c["type"], c["status"], c["reason"]) == ("Halted", "True", "GateTimeout")
        ),
        None,
    )
