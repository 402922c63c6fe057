"""Check gates, windows and waves: when nodes of a rollout may start."""

from datetime import timedelta
from typing import Final

from tests.model.facts import FINISHED, Facts, JsonObject, owner_uid, step_of
from tests.model.systems import HEALTH

from navarchos.meta import parse_time

__all__ = ["GateJudge"]

_MOMENT: Final = 1.0


class GateJudge:
    """Judges when nodes start."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._lost_children: set[str] = set()  # uids of rollouts with a deleted replacement

    def lost(self, replacement: JsonObject) -> None:
        """Remember that another client has deleted a replacement."""
        self._lost_children.add(owner_uid(replacement))

    def judge_times(self, started: JsonObject, rollout: JsonObject) -> None:
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
        windows = strategy.get("windows") or ()
        times = [f"{moment:%H:%M:%S}" for moment in moments]
        if windows and not any(w["start"] <= each <= w["end"] for w in windows for each in times):
            self._facts.report(f"{name} started at {at}, outside all windows")

    def judge_gates(self, name: str, rollout: JsonObject) -> None:
        """Check that a node starts while no gate of its rollout has been closed for long."""
        for health in self._facts.wishes(HEALTH) if rollout["spec"].get("gates") else ():
            if health["data"].get("is") != "well" and self._facts.is_known(health):
                self._facts.report(f"{name} started, and a gate of its rollout is closed")

    def judge_waves(self, started: JsonObject, rollout: JsonObject) -> None:
        """Check that the first node beyond a wave starts when the wave is over (NP-43)."""
        waves = (rollout["spec"].get("strategy") or {}).get("waves") or ()
        uid, name = rollout["metadata"]["uid"], started["metadata"]["name"]
        if not waves or (started["status"].get("attempts") or 0) > 0:
            return
        if uid in self._lost_children:
            return  # the remaining ones do not show how many nodes have begun
        others = [
            child
            for child in self._facts.of("nodereplacements")
            if owner_uid(child) == uid and child["metadata"]["name"] != name
        ]
        begun = [r for r in others if (r.get("status") or {}).get("startTimestamp")]
        approved = {a["number"] for a in rollout["status"].get("wave", {}).get("approvals") or ()}
        for number, wave in enumerate(waves, 1):
            if wave["upTo"] != len(begun):
                continue
            beyond = f"{name} started beyond wave {number}"
            for other in begun:
                if step_of(other) not in FINISHED:
                    self._facts.report(
                        f"{beyond}, and {other['metadata']['name']} has not finished"
                    )
            if wave.get("approval") and number not in approved:
                self._facts.report(f"{beyond}, which is not approved")
