"""The operator's objects, read once or followed by watches."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from navarchos.cli.errors import CommandError, ExitStatus
from navarchos.cli.summary import OUT_OF_DATE, Summary, summarize
from navarchos.client import Client, ClientError
from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.informers import SharedInformer
from navarchos.meta import format_time
from navarchos.operator.api.v1alpha1 import (
    NODE_DRAINS,
    NODE_REPLACEMENTS,
    NODE_ROLLOUTS,
    NodeDrain,
    NodeReplacement,
    NodeRollout,
)
from navarchos.operator.leadership import leader_problem
from navarchos.runtime import list_all

__all__ = [
    "CHECK_INTERVAL",
    "OUT_OF_DATE",
    "Follower",
    "Freshness",
    "FreshnessNotifier",
    "leader_warning",
    "open_follower",
    "read",
]

_SYNC_LIMIT: Final = 30.0


def read(client: Client, name: str = "") -> Summary:
    """Return how things stand, from one list of each kind, or of one rollout only.

    Raises:
        NotFound: There is no rollout of that name, or no such kind.
    """
    rollouts = client.resource(NODE_ROLLOUTS)
    found = [rollouts.get(name)] if name else list(list_all(client, NODE_ROLLOUTS))
    drains = list_all(client, NODE_DRAINS)
    summary = summarize(found, list_all(client, NODE_REPLACEMENTS), drains)
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
            raise CommandError(
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
def open_follower(client: Client) -> Iterator[Follower]:
    """Follow until the block is left, by Ctrl-C as well."""
    follower = Follower(client)
    try:
        follower.start()
        yield follower
    finally:
        follower.stop()


CHECK_INTERVAL: Final = 5.0
"""Seconds between two looks: nothing tells that nobody is at work any more."""


class _Watched(Protocol):
    @property
    def is_stale(self) -> bool: ...


def leader_warning(client: Client) -> str:
    """Return why the objects may not be how things are: nobody keeps them up to date.

    Raises:
        ClientError: The server did not answer.
    """
    why = leader_problem(client, datetime.now(UTC))
    return f"no manager seems to be at work: {why}" if why else ""


class Freshness:
    """Tells when a watch shows what has been, and since when.

    A text stays as long as its fact, so that nothing is shown twice.

    Threads: for one thread.
    """

    def __init__(self, client: Client, watched: _Watched, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._client = client
        self._watched = watched
        self._clock = clock
        self._lost = ""
        self._managed = ""
        self._asked_at: float | None = None

    def out_of_date_because(self) -> str:
        """Return why what is shown may be out of date; empty when it is not."""
        if self._watched.is_stale:
            return self._is_lost()
        now = self._clock.monotonic()
        if self._lost or self._asked_at is None or now - self._asked_at >= CHECK_INTERVAL:
            try:
                self._managed = leader_warning(self._client)
            except ClientError:
                return self._is_lost()
            self._asked_at = now
        self._lost = ""
        return self._managed

    def _is_lost(self) -> str:
        self._lost = self._lost or (
            f"{self._client.config.host} has not been heard of since "
            f"{format_time(self._clock.now())}"
        )
        return self._lost


class FreshnessNotifier:
    """Says once when what somebody waits for may be out of date, and when it no longer is.

    Threads: for one thread.
    """

    def __init__(self, freshness: Freshness, say: Callable[[str], object]) -> None:
        self._freshness = freshness
        self._say = say
        self._said = ""

    def poll(self) -> None:
        """Look whether there is something to say."""
        why = self._freshness.out_of_date_because()
        if why != self._said:
            self._said = why
            self._say(f"{OUT_OF_DATE}: {why}" if why else "up to date again")
