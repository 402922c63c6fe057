"""When to ask again."""

from collections.abc import Callable
from typing import Final

from navarchos.backoff import Backoff
from navarchos.clock import uniform
from navarchos.drain.eviction import Outcome

__all__ = ["retry_delay"]

_CAP: Final = 30.0
_FACTOR: Final = 1.5
_JITTER: Final = 0.2


def retry_delay(
    outcome: Outcome, failures: int, *, base: float, rand: Callable[[], float] = uniform
) -> float:
    """Return the seconds until a pod may be asked to go again.

    What the server advised is obeyed. Otherwise the delay grows from `base` to half
    a minute (or stays at `base`, if that is more): a budget may be exhausted for
    hours, and a thousand pods behind it must not become a load. A fifth of it is
    random, so that pods refused together do not come back together.

    A pod that is on its way is asked again after `base` only if it is then still
    there: the deletion may have been lost, or made void by the uid.

    Args:
        outcome: The last answer.
        failures: Answers in a row that did not move the pod, this one not counted.
        base: First delay in seconds.
        rand: Source of numbers in [0, 1).
    """
    if outcome.retry_after:  # 0 is what an exhausted budget says, and no advice
        return outcome.retry_after * (1 + rand() * _JITTER)
    policy = Backoff(base, factor=_FACTOR, cap=max(base, _CAP), jitter=_JITTER)
    return policy.delay(0 if outcome.answer.is_done else failures, rand=rand)
