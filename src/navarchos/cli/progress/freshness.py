"""Whether what a watch shows is how things are."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, Protocol

from navarchos.client import Client, ClientError
from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.meta import format_time
from navarchos.operator.leadership import why_nobody_leads

__all__ = ["EVERY", "OUT_OF_DATE", "Freshness", "Notice", "why_not_current"]

EVERY: Final = 5.0
"""Seconds between two looks: nothing tells that nobody is at work any more."""


OUT_OF_DATE: Final = "this may be out of date"


class _Watched(Protocol):
    @property
    def is_stale(self) -> bool: ...


def why_not_current(client: Client) -> str:
    """Return why the objects may not be how things are: nobody keeps them up to date.

    Raises:
        ClientError: The server did not answer.
    """
    why = why_nobody_leads(client, datetime.now(UTC))
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

    def why_stale(self) -> str:
        """Return why what is shown may be out of date; empty when it is not."""
        if self._watched.is_stale:
            return self._is_lost()
        now = self._clock.monotonic()
        if self._lost or self._asked_at is None or now - self._asked_at >= EVERY:
            try:
                self._managed = why_not_current(self._client)
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


class Notice:
    """Says once when what somebody waits for may be out of date, and when it no longer is.

    Threads: for one thread.
    """

    def __init__(self, freshness: Freshness, say: Callable[[str], object]) -> None:
        self._freshness = freshness
        self._say = say
        self._said = ""

    def look(self) -> None:
        """Look whether there is something to say."""
        why = self._freshness.why_stale()
        if why != self._said:
            self._said = why
            self._say(f"{OUT_OF_DATE}: {why}" if why else "up to date again")
