"""The operator's objects, read once or followed by watches."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from navarchos.cli.exits import ExitStatus
from navarchos.cli.failure import Failure
from navarchos.cli.progress.summary import Summary, summarize
from navarchos.client import Client
from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.informers import SharedInformer
from navarchos.operator.api.v1alpha1 import (
    NODE_DRAINS,
    NODE_REPLACEMENTS,
    NODE_ROLLOUTS,
    NodeDrain,
    NodeReplacement,
    NodeRollout,
)
from navarchos.operator.kinds import all_of

__all__ = ["Follower", "following", "read"]

_SYNC_LIMIT: Final = 30.0


def read(client: Client, name: str = "") -> Summary:
    """Return how things stand, from one list of each kind, or of one rollout only.

    Raises:
        NotFound: There is no rollout of that name, or no such kind.
    """
    found = (
        [client.resource(NODE_ROLLOUTS).get(name)] if name else list(all_of(client, NODE_ROLLOUTS))
    )
    drains = all_of(client, NODE_DRAINS)
    summary = summarize(found, all_of(client, NODE_REPLACEMENTS), drains)
    return Summary(rollouts=summary.rollouts, drains=() if name else summary.drains)


class Follower:
    """The three kinds as their watches show them.

    Threads: `wait_until` and the lists are for one thread; handlers only wake it.
    """

    def __init__(self, client: Client, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._changed = threading.Condition(threading.Lock())
        self._version = 0  # guarded by _changed
        self._rollouts = SharedInformer(client.resource(NODE_ROLLOUTS))
        self._replacements = SharedInformer(client.resource(NODE_REPLACEMENTS))
        self._drains = SharedInformer(client.resource(NODE_DRAINS))
        self._informers: tuple[SharedInformer[Any], ...] = (
            self._rollouts,
            self._replacements,
            self._drains,
        )

    def start(self) -> None:
        """Begin to follow, and return when the present state is known.

        Raises:
            Failure: That took too long.
        """
        for informer in self._informers:
            informer.add_handler(
                on_add=lambda _obj, _initial: self._wake(),
                on_update=lambda _old, _new: self._wake(),
                on_delete=lambda _obj: self._wake(),
            )
            informer.start()
        if not all(informer.wait_for_sync(_SYNC_LIMIT) for informer in self._informers):
            raise Failure(
                f"the watches have shown nothing in {_SYNC_LIMIT:g} s",
                status=ExitStatus.UNREACHABLE,
            )

    def stop(self) -> None:
        """End the watches."""
        for informer in self._informers:
            informer.stop()
        for informer in self._informers:
            informer.join(_SYNC_LIMIT)

    @property
    def rollouts(self) -> list[NodeRollout]:
        """All rollouts."""
        return self._rollouts.lister.list()

    @property
    def replacements(self) -> list[NodeReplacement]:
        """All replacements."""
        return self._replacements.lister.list()

    @property
    def drains(self) -> list[NodeDrain]:
        """All drains."""
        return self._drains.lister.list()

    @property
    def is_stale(self) -> bool:
        """Whether a watch is known to be lost, so that changes may be missed."""
        return any(informer.is_disconnected for informer in self._informers)

    def wait_until(
        self, done: Callable[[], bool], timeout: float | None = None, *, every: float | None = None
    ) -> bool:
        """Ask `done` now and after each change until it says so; False when time is up.

        Args:
            done: What is waited for.
            timeout: Seconds; `None` is no limit.
            every: Ask also when nothing has changed for so many seconds.
        """
        deadline = None if timeout is None else self._clock.monotonic() + timeout
        while True:
            with self._changed:
                seen = self._version
            if done():
                return True
            left = None if deadline is None else deadline - self._clock.monotonic()
            if left is not None and left <= 0:
                return False
            with self._changed:
                if self._version == seen:
                    waits = [seconds for seconds in (left, every) if seconds is not None]
                    self._clock.wait(self._changed, min(waits, default=None))

    def _wake(self) -> None:
        with self._changed:
            self._version += 1
            self._changed.notify_all()


@contextmanager
def following(client: Client) -> Iterator[Follower]:
    """Follow until the block is left, by Ctrl-C as well."""
    follower = Follower(client)
    try:
        follower.start()
        yield follower
    finally:
        follower.stop()
