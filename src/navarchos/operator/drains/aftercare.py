"""When an empty node is looked at once more. Pure.

A scheduler that was cut off from the API server decides on nodes as it last saw them: one
was seen to bind pods four seconds after a cordon, once the server was back. Nothing in the
API tells when it has caught up, and to wait for the worst case on every node would cost a
minute each. So a drain ends as soon as a node may be believed to be empty, and for a
minute it is looked at again.
"""

from datetime import datetime
from typing import Final

from navarchos.meta import controller_of
from navarchos.operator.api.v1alpha1 import NodeDrain, NodeDrainStatus
from navarchos.operator.drains.status import DrainReason

__all__ = ["is_handed_over", "next_looks"]

_LOOKS: Final = (3.0, 15.0, 60.0)
"""Seconds after the end of a drain. Reflectors of client-go back off up to 30 s, and double
that by jitter: a scheduler is back within a minute."""

_OVERDUE: Final = 15.0
"""Seconds by which the last look may be late."""


def is_handed_over(drain: NodeDrain) -> bool:
    """Tell whether its replacement has taken over its report.

    The mark of that is that the cordon stays: it is written with the report in hand, and
    the replacement's status right after it.
    """
    return controller_of(drain.metadata) is not None and not drain.spec.uncordon_on_delete


def next_looks(status: NodeDrainStatus, now: datetime) -> tuple[bool, float | None]:
    """Tell whether a look is due, and in how many seconds the next one is, if there is one.

    A function of the status alone, so that it makes no difference which process looks.
    """
    ended_at = status.completion_timestamp
    if ended_at is None or status.reason != DrainReason.NODE_DRAINED:
        return False, None
    elapsed = (now - ended_at).total_seconds()
    if elapsed > _LOOKS[-1] + _OVERDUE:
        return False, None
    return elapsed >= _LOOKS[0], min((at - elapsed for at in _LOOKS if at > elapsed), default=None)
