"""One pass over a drain that is under way: what it knows, and when the next is due."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from navarchos.drain import LATE_BINDING, DrainPlan
from navarchos.operator.api.v1alpha1 import NodeDrain, NodeDrainStatus
from navarchos.operator.drains.blockers import STUCK_AFTER
from navarchos.operator.drains.rules import Rules
from navarchos.operator.drains.status import NODE_CORDONED
from navarchos.runtime.conditions import find_condition

__all__ = ["Turn", "clocks_ahead", "late_binding_left"]

_CUT: Final = 1.0
"""Times in status are cut to whole seconds, so a span may be this much shorter."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What one pass knows.

    Attributes:
        drain: As it is stored.
        status: As it is going to be stored.
        rules: Its spec, read.
        now: The present time, in whole seconds.
        paused: Whether somebody wants no further eviction to be sent.
        may_send: Whether pods may be asked to go: not paused, and the node closed.
        closed_for: Seconds since this process closed the node; `None` if another
            one did, and then only the status tells.
    """

    drain: NodeDrain
    status: NodeDrainStatus
    rules: Rules
    now: datetime
    paused: bool = False
    may_send: bool = True
    closed_for: float | None = None

    @property
    def name(self) -> str:
        """The drain's name."""
        return self.drain.metadata.name

    @property
    def elapsed(self) -> float:
        """Seconds since the first eviction on the node; 0 before it."""
        start = self.status.start_timestamp
        return max(0.0, (self.now - start).total_seconds()) if start is not None else 0.0

    @property
    def time_is_up(self) -> bool:
        """Whether the timeout has passed. A paused drain has no timeout."""
        return not self.paused and self.rules.is_late(self.elapsed)

    def at_gate(self, *, may_send: bool, closed_for: float | None) -> "Turn":
        """Return the pass with what is known about the node's cordon."""
        return replace(self, may_send=may_send, closed_for=closed_for)

    def with_status(self, status: NodeDrainStatus) -> "Turn":
        """Return the pass with another status to be stored."""
        return replace(self, status=status)

    def with_drain(self, drain: NodeDrain) -> "Turn":
        """Return the pass with the drain as it has been stored now."""
        return replace(self, drain=drain)


def late_binding_left(turn: Turn) -> float:
    """Return the seconds until an empty node may be believed to be empty."""
    if turn.closed_for is not None:
        return max(0.0, LATE_BINDING - turn.closed_for)
    # The update, not the transition: a node that is cordoned once more starts anew.
    cordoned = find_condition(turn.status.conditions, NODE_CORDONED)
    if cordoned is None or cordoned.last_update_time is None:
        return LATE_BINDING
    passed = (turn.now - cordoned.last_update_time).total_seconds()
    return max(0.0, LATE_BINDING + _CUT - passed)


def clocks_ahead(turn: Turn, plan: DrainPlan) -> list[float]:
    """Return the seconds until time alone changes what a pass decides.

    Requests that wait for their turn are not among them.
    """
    ahead = []
    timeout = turn.rules.options.timeout
    if timeout is not None and not turn.paused and turn.elapsed < timeout:
        ahead.append(timeout - turn.elapsed)
    limits = [STUCK_AFTER, turn.rules.options.skip_wait_for_delete_timeout]
    for planned in plan.wait:
        overdue = planned.pod.overdue(turn.now)
        # Limits are passed only after their instant, hence at least a second.
        ahead += [max(1.0, x - overdue) for x in limits if overdue is not None and x >= overdue]
    return ahead
