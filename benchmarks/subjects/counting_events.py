"""Count the calls that one event of a watch takes, from its bytes to the store.

python -m benchmarks.subjects.counting_events EVENTS
"""

import json
import sys
from collections.abc import Iterator
from typing import Any, Final, cast

from benchmarks.subjects.reporting import Reporter
from navarchos.client.decoding import Codec
from navarchos.client.resource import Resource
from navarchos.client.watching import WatchStream
from navarchos.informers.ingest import Ingest, SkippedObjects
from navarchos.informers.interning import Interner
from navarchos.informers.metrics import InformerMetrics
from navarchos.informers.overlay import Overlay
from navarchos.informers.processor import EventProcessor
from navarchos.informers.store import WritableStore
from navarchos.instrument import Instruments
from navarchos.meta import Object
from navarchos.stopping import StopToken

_NAMES: Final = 10


class Thing(Object, frozen=True):
    """An object of which the cache keeps the metadata."""


THINGS: Final = Resource("example.org", "v1", "things", "Thing", namespaced=True, type=Thing)


class Response:
    """The body of a watch: one change in each chunk."""

    is_outdated = False

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks

    def read_some(self, timeout: float | None, *, batch: bool = False) -> bytes:
        """Return the next chunk; empty at the end."""
        return next(self._chunks, b"")

    def close(self) -> None:
        """Do nothing."""


def changes(events: int) -> Iterator[bytes]:
    """Yield changes of a few objects, as a server sends them."""
    for number in range(events):
        name = f"t-{number % _NAMES}"
        metadata = {"name": name, "namespace": "a", "uid": name, "resourceVersion": f"{number + 1}"}
        thing = {"apiVersion": "example.org/v1", "kind": "Thing", "metadata": metadata}
        event = {"type": "MODIFIED", "object": thing}
        yield json.dumps(event, separators=(",", ":")).encode() + b"\n"


def stream(events: int) -> WatchStream[Thing]:
    """Return a watch of these changes, all of them in memory."""
    return WatchStream(
        cast("Any", Response(iter(list(changes(events))))),
        Codec(THINGS),
        stop=StopToken(),
        silence=lambda: None,
        on_bookmark=lambda: None,
    )


def main() -> None:
    """Report the stage `counted`."""
    events = int(sys.argv[1])
    reporter = Reporter()
    metrics = InformerMetrics(Instruments(), "things")
    store: WritableStore[Thing] = WritableStore()
    processor = EventProcessor(store, Overlay(store), name="things", objects=metrics.objects)
    skipped, interner = SkippedObjects("things", metrics), Interner(THINGS.type)
    ingest = Ingest(processor, kind="things", skipped=skipped, interner=interner)
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    # The first stream makes the objects known; the second one only changes them.
    for watch in (stream(events), stream(events)):
        calls = 0
        sys.setprofile(count)
        for event in watch:
            ingest.take_event(event)
        sys.setprofile(None)
    reporter.end("counted", stored=len(store), calls_per_event=calls / events)


if __name__ == "__main__":
    main()
