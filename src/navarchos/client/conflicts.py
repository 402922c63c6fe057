"""Repeating a read-change-write that lost a race."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from navarchos.backoff import Backoff
from navarchos.client.errors import AlreadyExists, Conflict
from navarchos.clock import SYSTEM_CLOCK, Clock, uniform
from navarchos.errors import ConfigError
from navarchos.stopping import StopToken

if TYPE_CHECKING:
    from tenacity import RetryCallState

__all__ = ["FEW_WRITERS", "MANY_WRITERS", "ConflictPolicy", "retry_on_conflict"]

R = TypeVar("R")


class ConflictPolicy(msgspec.Struct, frozen=True):
    """How often, and how far apart.

    Attributes:
        tries: All in all, at least 1.
        backoff: Waits between them.
    """

    tries: int
    backoff: Backoff

    def __post_init__(self) -> None:
        if self.tries < 1:
            raise ConfigError("tries", self.tries, "it must be at least 1")


FEW_WRITERS: Final = ConflictPolicy(5, Backoff(0.01, factor=1.0, jitter=0.1))
"""client-go's `DefaultRetry`: a handful of clients write the object, rarely."""

MANY_WRITERS: Final = ConflictPolicy(4, Backoff(0.01, factor=5.0, jitter=0.1))
"""client-go's `DefaultBackoff`: others write all the time; step back further."""


def retry_on_conflict(
    fn: Callable[[], R],
    *,
    policy: ConflictPolicy = FEW_WRITERS,
    clock: Clock = SYSTEM_CLOCK,
    stop: StopToken | None = None,
    rand: Callable[[], float] = uniform,
) -> R:
    """Call `fn` until it does not end in `Conflict`; return what it returns.

    `fn` must read the object afresh each time, or it loses again.

    Args:
        fn: Reads, changes and writes.
        policy: How often to try.
        clock: Source of the waits.
        stop: Ends a wait, with `Stopped`.
        rand: Source of jitter.

    Raises:
        Conflict: The last one, when the tries are used up (CL-09). An
            `AlreadyExists` is raised at once: trying again cannot help.
    """
    # Loaded only now: few of those that import the client call this.
    from tenacity import Retrying, retry_if_exception, stop_after_attempt

    waiting = stop if stop is not None else StopToken(clock=clock)

    def wait(state: "RetryCallState") -> float:
        return policy.backoff.delay(state.attempt_number - 1, rand=rand)

    def sleep(seconds: float) -> None:
        waiting.wait(seconds)
        waiting.raise_if_set()

    retrying = Retrying(
        retry=retry_if_exception(_is_lost_race),
        stop=stop_after_attempt(policy.tries),
        wait=wait,
        sleep=sleep,
        reraise=True,
    )
    return retrying(fn)


def _is_lost_race(error: BaseException) -> bool:
    return isinstance(error, Conflict) and not isinstance(error, AlreadyExists)
