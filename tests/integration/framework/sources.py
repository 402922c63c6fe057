"""Sources of informers that a test can hold back and look into."""

import threading
from typing import Any

from msgspec.structs import replace
from tests.integration.framework.kinds import ConfigMap
from tests.integration.framework.waiting import LIMIT

from navarchos.client import Resource, ResourceClient, WatchStream
from navarchos.client.options import ListOptions, WatchOptions
from navarchos.informers.source import Page
from navarchos.stopping import StopToken

__all__ = ["GatedWatches"]


LIST_ALL = ListOptions()
WATCH_ALL = WatchOptions()


class GatedWatches:
    """A kind with a gate before each watch, and a count of the requests.

    Args:
        maps: Where it comes from.
        seconds: After which the server ends a watch; `None` for the client's own.
        from_etcd: Ask for lists in such a way that the server honours the page size.

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
        self._seconds = seconds
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

    def list_page(
        self, namespace: str = "", options: ListOptions = LIST_ALL, **more: Any
    ) -> Page[ConfigMap]:
        self.pages += 1
        if self._from_etcd:
            options = replace(options, resource_version="")
        return self._maps.list_page(namespace, options, **more)

    def watch(
        self,
        namespace: str = "",
        options: WatchOptions = WATCH_ALL,
        *,
        stop: StopToken | None = None,
    ) -> WatchStream[ConfigMap]:
        if not self.gate.is_set():
            self.is_waiting.set()
            assert self.gate.wait(LIMIT)
        self.watched_from.append(options.resource_version)
        options = replace(options, timeout_seconds=self._seconds)
        return self._maps.watch(namespace, options, stop=stop)
