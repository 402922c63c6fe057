"""Rollouts, replacements and drains: read once, or followed by watches with their freshness."""

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
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.deployment.settings import leader_problem
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
    """Return a summary of the cluster, or of one rollout, from one list of each kind.

    Raises:
        NotFound: The rollout does not exist, or the kind is not installed.
    """
    rollouts = client.resource(api.NODE_ROLLOUTS)
    found = [rollouts.get(name)] if name else list(list_all(client, api.NODE_ROLLOUTS))
    drains = list_all(client, api.NODE_DRAINS)
    summary = summarize(found, list_all(client, api.NODE_REPLACEMENTS), drains)
    return Summary(rollouts=summary.rollouts, drains=() if name else summary.drains)


class Follower:
    """Follows rollouts, replacements and drains by watches.

    Threads: one thread uses `wait_until` and the lists; handlers only wake it.
    """

    def __init__(self, client: Client, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._changed = threading.Condition(threading.Lock())
        self._version = 0  # guarded by _changed
        self._rollouts = SharedInformer(client.resource(api.NODE_ROLLOUTS))
        self._replacements = SharedInformer(client.resource(api.NODE_REPLACEMENTS))
        self._drains = SharedInformer(client.resource(api.NODE_DRAINS))
        self._informers: tuple[SharedInformer[Any], ...] = (
            self._rollouts,
            self._replacements,
            self._drains,
        )

    def start(self) -> None:
        """Start the watches, and return when the current state is known.

        Raises:
            CommandError: The watches took too long to start.
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
                f"no answer to the watches within {_SYNC_LIMIT:g} s",
                status=ExitStatus.UNREACHABLE,
            )

    def stop(self) -> None:
        """End the watches."""
        for informer in self._informers:
            informer.stop()
        for informer in self._informers:
            informer.join(_SYNC_LIMIT)

    @property
    def rollouts(self) -> list[api.NodeRollout]:
        """All rollouts."""
        return self._rollouts.lister.list()

    @property
    def replacements(self) -> list[api.NodeReplacement]:
        """All replacements."""
        return self._replacements.lister.list()

    @property
    def drains(self) -> list[api.NodeDrain]:
        """All drains."""
        return self._drains.lister.list()

    @property
    def is_disconnected(self) -> bool:
        """Whether a watch has lost its connection, so that changes may be missing."""
        return any(informer.is_disconnected for informer in self._informers)

    def wait_until(
        self, done: Callable[[], bool], timeout: float | None = None, *, every: float | None = None
    ) -> bool:
        """Call `done` now and after each change until it returns True; False on a timeout.

        Args:
            done: The condition.
            timeout: Seconds; `None` means no limit.
            every: Also call `done` if nothing has changed for this many seconds.
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
    """Follow until the block ends, also by Ctrl-C."""
    follower = Follower(client)
    try:
        follower.start()
        yield follower
    finally:
        follower.stop()


CHECK_INTERVAL: Final = 5.0
"""Seconds between two checks of the Lease: no watch reports that a manager has ended."""


class _Watched(Protocol):
    @property
    def is_disconnected(self) -> bool: ...


def leader_warning(client: Client) -> str:
    """Return why the status of objects may be out of date: no manager updates it.

    Raises:
        ClientError: The server did not answer.
    """
    why = leader_problem(client, datetime.now(UTC))
    return f"no active manager found: {why}" if why else ""


class Freshness:
    """Finds out whether the followed objects may be out of date, and since when.

    The text does not change while its cause lasts, so that it is shown only once.

    Threads: for one thread.
    """

    def __init__(self, client: Client, watched: _Watched, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._client = client
        self._watched = watched
        self._clock = clock
        self._lost = ""
        self._no_leader = ""
        self._checked_at: float | None = None

    def out_of_date_because(self) -> str:
        """Return why the followed objects may be out of date; an empty string if they are not."""
        if self._watched.is_disconnected:
            return self._connection_lost()
        now = self._clock.monotonic()
        if self._lost or self._checked_at is None or now - self._checked_at >= CHECK_INTERVAL:
            try:
                self._no_leader = leader_warning(self._client)
            except ClientError:
                return self._connection_lost()
            self._checked_at = now
        self._lost = ""
        return self._no_leader

    def _connection_lost(self) -> str:
        self._lost = self._lost or (
            f"no response from {self._client.config.host} since {format_time(self._clock.now())}"
        )
        return self._lost


class FreshnessNotifier:
    """Reports once when the followed objects may be out of date, and once when they are current.

    Threads: for one thread.
    """

    def __init__(self, freshness: Freshness, report: Callable[[str], object]) -> None:
        self._freshness = freshness
        self._report = report
        self._reported = ""

    def poll(self) -> None:
        """Check the freshness, and report a change of it."""
        why = self._freshness.out_of_date_because()
        if why != self._reported:
            self._reported = why
            self._report(f"{OUT_OF_DATE}: {why}" if why else "up to date again")
