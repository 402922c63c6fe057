"""Writes events to the server."""

from typing import Final

from navarchos.client import AlreadyExists, Client, NotFound
from navarchos.client.rbac import PolicyRule
from navarchos.events.model import EVENTS, Reporter, Snapshot, new_event, next_in_series

__all__ = ["RBAC", "EventSink"]

RBAC: Final = (PolicyRule(EVENTS, ("create", "patch")),)
"""What writing events asks of the server, in the namespaces of what they are about.

Events about objects without a namespace are written to `default`.
"""


class EventSink:
    """Creates events, and patches those that the server has.

    Threads: safe from any thread, as the client is.
    """

    def __init__(self, client: Client, reporter: Reporter) -> None:
        self._events = client.resource(EVENTS)
        self._reporter = reporter

    def write(self, event: Snapshot, *, timeout: float | None) -> None:
        """Bring the server up to date; repeating it changes nothing.

        Events expire on the server (after an hour by default); a series that
        goes on longer is then created anew (EV-11, EV-17).

        Raises:
            ClientError: As the client does.
        """
        if event.stored:
            try:
                return self._patch(event, timeout)
            except NotFound:
                pass
        try:
            self._events.create(
                new_event(event, self._reporter), event.facts.namespace, timeout=timeout
            )
        except AlreadyExists:
            # An earlier try arrived, though its answer did not.
            if event.count > 1:
                self._patch(event, timeout)

    def _patch(self, event: Snapshot, timeout: float | None) -> None:
        self._events.patch(
            event.name, next_in_series(event), event.facts.namespace, timeout=timeout
        )
