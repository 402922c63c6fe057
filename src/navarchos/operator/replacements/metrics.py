"""Gauges of nodes, replacements and rollouts by step, phase and state (OP-65)."""

from collections import Counter
from collections.abc import Collection
from datetime import datetime
from typing import Final

from navarchos.instrument import Instruments
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.replacements.snapshot import ClusterSnapshot

__all__ = ["MAX_PRIORITIES", "ReplacementMetrics"]

MAX_PRIORITIES: Final = 20
"""Priorities with a separate label value; lower priorities share the value `other`."""


class ReplacementMetrics:
    """Publishes gauges. Every label value comes from a closed or bounded set."""

    def __init__(self, instruments: Instruments) -> None:
        self._nodes = instruments.gauge(
            "navarchos_nodes", "NodeReplacements, by step of the node pipeline.", ["step"]
        )
        self._replacements = instruments.gauge(
            "navarchos_replacements",
            "NodeReplacements, by phase and priority.",
            ["phase", "priority"],
        )
        self._rollouts = instruments.gauge(
            "navarchos_rollouts", "NodeRollouts, by phase.", ["phase"]
        )
        self._slots = instruments.gauge(
            "navarchos_slots",
            "Nodes in flight that occupy a slot, by kind of the object that holds it.",
            ["kind"],
        )
        self._progress = instruments.gauge(
            "navarchos_rollout_nodes",
            "Nodes of all rollouts that are not completed, by state.",
            ["state"],
        )

        self._gates = instruments.gauge(
            "navarchos_gates", "Gates of unfinished rollouts, by state.", ["state"]
        )
        self._outside = instruments.gauge(
            "navarchos_rollouts_outside_window",
            "NodeRollouts, and NodeReplacements without one, whose nodes wait for a window.",
        )
        self._opening = instruments.gauge(
            "navarchos_next_window_timestamp_seconds",
            "Unix time at which the next window opens for which nodes wait; 0 if none.",
        )

    def publish(self, snapshot: ClusterSnapshot) -> None:
        """Set every gauge from a snapshot."""
        steps = Counter(r.status.current for r in snapshot.replacements)
        for step in api.Step:
            self._nodes.labels(step).set(steps[step])
        self._publish_slots(snapshot)
        self._publish_priorities(snapshot)
        phases = Counter(
            rollout.status.phase or api.RolloutPhase.NEW
            for uid, rollout in snapshot.rollouts.items()
            if uid not in snapshot.other_owners
        )
        for phase in api.RolloutPhase:
            self._rollouts.labels(phase).set(phases[phase])
        self._publish_progress(snapshot)
        gates = Counter(
            record.verdict.state for each in snapshot.gates.values() for record in each.values()
        )
        for gate_state in api.GateState:
            self._gates.labels(gate_state).set(gates[gate_state])

    def publish_windows(self, openings: Collection[datetime]) -> None:
        """Set the gauges of windows from the openings for which nodes wait (NP-41)."""
        self._outside.set(len(openings))
        self._opening.set(min((opening.timestamp() for opening in openings), default=0.0))

    def _publish_slots(self, snapshot: ClusterSnapshot) -> None:
        own = {r.spec.node_name for r in snapshot.replacements if r.status.occupies_slot}
        held = Counter(holder.kind for holder in snapshot.holders.values())
        # The last value of a kind that holds no slot any more must disappear.
        self._slots.clear()
        self._slots.labels(api.NODE_REPLACEMENTS.kind).set(len(own | snapshot.orphaned))
        for kind, count in held.items():
            self._slots.labels(kind).set(count)

    def _publish_priorities(self, snapshot: ClusterSnapshot) -> None:
        counts = Counter(
            (r.status.current.phase, r.spec.replacement.priority) for r in snapshot.replacements
        )
        shown = sorted({priority for _, priority in counts}, reverse=True)[:MAX_PRIORITIES]
        totals: Counter[tuple[api.ReplacementPhase, str]] = Counter()
        for (phase, priority), count in counts.items():
            totals[phase, str(priority) if priority in shown else "other"] += count
        # The last value of a priority that is not used any more must disappear.
        self._replacements.clear()
        for (phase, label), count in totals.items():
            self._replacements.labels(phase, label).set(count)

    def _publish_progress(self, snapshot: ClusterSnapshot) -> None:
        unfinished = [
            rollout.status
            for uid, rollout in snapshot.rollouts.items()
            if rollout.status.phase is not api.RolloutPhase.COMPLETED
            and uid not in snapshot.other_owners
        ]
        for state, count in (
            ("planned", sum(len(status.nodes) for status in unfinished)),
            ("completed", sum(status.replacements_completed_count for status in unfinished)),
            ("failed", sum(status.replacements_failed_count for status in unfinished)),
            ("in_flight", sum(status.in_flight_count for status in unfinished)),
            ("stalled", sum(status.stalled_count for status in unfinished)),
        ):
            self._progress.labels(state).set(count)
