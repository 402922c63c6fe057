"""Sources of informers that a test can hold back and look into."""

import threading
from typing import Any

from tests.integration.framework.kinds import ConfigMap
from tests.integration.framework.waiting import LIMIT

from navarchos.client import Resource, ResourceClient, WatchStream
from navarchos.informers.source import Page

__all__ = ["GatedWatches"]


class GatedWatches:
    """A kind with a gate before each watch, and a count of what is asked for.

    Args:
        maps: Where it comes from.
        seconds: After which the server ends a watch; `None` for the client's own.
        from_etcd: Ask for lists in such a way that the server heeds the size of pages.

    Attributes:
        pages: How many were asked for, each list one or more.
        watched_from: The version that each watch began at.
        gate: Closed, the next watch waits.
        is_waiting: Whether one does.
    """

    def __init__(
        self,
        maps: ResourceClient[ConfigMap],
        *,
        seconds: int | None = None,
        from_etcd: bool = False,
    ) -> None:
        self._maps = maps
        self._limit = {} if seconds is None else {"timeout_seconds": seconds}
        self._from_etcd = from_etcd
        self.pages = 0
        self.watched_from: list[str] = []
        self.gate = threading.Event()
        self.gate.set()
        self.is_waiting = threading.Event()

    @property
    def resource(self) -> Resource[ConfigMap]:
        return self._maps.resource

    @property
    def streams_lists(self) -> bool:
        return self._maps.streams_lists

    def list_page(self, namespace: str = "", **options: Any) -> Page[ConfigMap]:
        self.pages += 1
        if self._from_etcd:
            options["resource_version"] = ""
        return self._maps.list_page(namespace, **options)

    def watch(self, namespace: str = "", **options: Any) -> WatchStream[ConfigMap]:
        if not self.gate.is_set():
            self.is_waiting.set()
            assert self.gate.wait(LIMIT)
        self.watched_from.append(options["resource_version"])
        return self._maps.watch(namespace, **self._limit, **options)
