"""Check invariants after every write and every request of the operator.

The state of the server counts, not the caches of any process. Where the operator cannot
know a change by another client yet, because caches may lag, the change counts only when it
is `Facts.patience` seconds old.
"""

from typing import Final

from tests.model.facts import (
    GROUP,
    PATIENCE,
    Facts,
    JsonObject,
    is_over,
    is_stalled,
    labels_of,
    step_of,
)
from tests.model.judging_actions import ActionJudge
from tests.model.judging_drains import DrainJudge
from tests.model.judging_gates import GateJudge
from tests.model.judging_slots import SlotJudge
from tests.model.leading import LEASES, LeaseWatcher
from tests.model.scheduling import ProcessClock, Scheduler
from tests.model.serving import Server
from tests.model.systems import WISH

from navarchos.testing.apiserver.store import Change
from navarchos.testing.cluster.invariants import InvariantChecker

__all__ = ["GROUP", "OPERATOR", "PATIENCE", "Judge", "Verdict", "is_over", "is_stalled", "step_of"]

OPERATOR: Final = "operator-"
"""The beginning of the user agents of the operator's processes."""

LATE_BINDING: Final = 3.0
_MANY: Final = 20


class Verdict(AssertionError):
    """An invariant was broken."""


class Judge:
    """Listens to a server and records violations.

    Attributes:
        facts: What it knows, and the violations.
        drains: Judges evictions and cordons.
        slots: Judges starts of nodes.
        gates: Judges gates, windows and waves.
        actions: Judges actions and preparations.
    """

    def __init__(self, scheduler: Scheduler, server: Server) -> None:
        self.facts = Facts(scheduler, server)
        self.drains = DrainJudge(self.facts)
        self.gates = GateJudge(self.facts)
        self.actions = ActionJudge(self.facts, self.drains)
        self.slots = SlotJudge(self.facts, self.gates)
        clock = ProcessClock(scheduler, scheduler.driver)
        self._checker = InvariantChecker(late_binding_tolerance=LATE_BINDING, clock=clock)
        server.store.subscribe(self._on_change)

    @property
    def violations(self) -> list[str]:
        """Texts with the time; the run ends at the first one."""
        return self.facts.violations

    @property
    def lease(self) -> LeaseWatcher:
        """The leader by the Lease."""
        return self.facts.lease

    def disturbed(self, until: float = 0.0) -> None:
        """Record a fault of this duration: promises about time start again after it."""
        facts = self.facts
        facts.calm_since = max(facts.calm_since, until, facts.scheduler.seconds)

    def look_at_the_books(self) -> None:
        """Record missing halts, and the violations that the checker of budgets has found."""
        self.gates.look()
        for found in self._checker.violations[: _MANY - len(self.violations)]:
            text = f"{found.what}: {found.object}: {found.detail}"
            if text not in self.violations:
                self.violations.append(text)

    def about_to_evict(self, namespace: str, name: str, body: JsonObject, verb: str) -> None:
        """Check an eviction or deletion of a pod before it is served."""
        self.drains.about_to_evict(namespace, name, body, verb)
        self.actions.about_to_evict(namespace, name, verb)

    def _on_change(self, change: Change) -> None:
        if change.resource.plural == LEASES:
            self.lease.on_change(change)
            return
        if len(self.violations) >= _MANY:
            return
        self._checker.observe(change)
        by_operator = change.request is not None and change.request.user_agent.startswith(OPERATOR)
        if by_operator:
            self.slots.judge_other_system(change)
        elif change.resource.group == GROUP or WISH in labels_of(change.object):
            self.facts.remember_foreign(change)
        self.facts.remember_pause(change)
        self._judge_change(change, by_operator)
        self.actions.changed(change, by_operator)

    def _judge_change(self, change: Change, by_operator: bool) -> None:
        match change.resource.plural:
            case "pods":
                self.drains.pod_changed(change, by_operator)
            case "nodes":
                self.drains.node_changed(change, by_operator)
            case "nodereplacements" if by_operator:
                self.slots.replacement_changed(change)
            case "noderollouts" if by_operator:
                self.gates.rollout_changed(change)
            case "configmaps":
                self.gates.health_changed(change)
            case "nodedrains":
                self.drains.drain_changed(change)
            case _:
                pass
