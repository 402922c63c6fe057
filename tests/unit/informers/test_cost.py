"""What one event of a watch costs, in calls: times depend on the machine, calls do not."""

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from navarchos.client.decoding import Codec
from navarchos.client.resource import Resource
from navarchos.client.watching import WatchStream
from navarchos.informers.ingest import Ingest, SkippedObjects
from navarchos.informers.interning import Interner
from navarchos.informers.metrics import InformerMetrics
from navarchos.informers.overlay import Overlay
from navarchos.informers.position import CachePosition
from navarchos.informers.processor import EventProcessor
from navarchos.informers.store import WritableStore
from navarchos.instrument import Instruments
from navarchos.meta import Object
from navarchos.stopping import StopToken

EVENTS = 200

MOST_CALLS = 84
"""Per event, from the bytes to the store; 78 on CPython 3.11, and 172 before they were cut."""


class Thing(Object, frozen=True):
    """An object of which the cache keeps the metadata."""


THINGS = Resource("example.org", "v1", "things", "Thing", namespaced=True, type=Thing)


class Sent:
    """What a server sends: one change in a chunk."""

    is_outdated = False

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks

    def read_some(self, timeout: float | None, *, batch: bool = False) -> bytes:
        return next(self._chunks, b"")

    def close(self) -> None:
        pass


def changes() -> Iterator[bytes]:
    for number in range(EVENTS):
        meta = {"name": f"t-{number % 10}", "namespace": "a", "uid": f"uid-{number % 10}"}
        thing = {
            "apiVersion": "example.org/v1",
            "kind": "Thing",
            "metadata": {**meta, "resourceVersion": f"{number + 1}"},
        }
        event = {"type": "MODIFIED", "object": thing}
        yield json.dumps(event, separators=(",", ":")).encode() + b"\n"


def stream() -> WatchStream[Thing]:
    answer: Any = Sent(iter(list(changes())))
    return WatchStream(
        answer,
        Codec(THINGS),
        resource="things",
        stop=StopToken(),
        silence=lambda: None,
        on_bookmark=lambda: None,
    )


def calls_in(work: Callable[[], object]) -> Counter[str]:
    """Count the calls of functions, Python's and built-in ones, by name."""
    found: Counter[str] = Counter()

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            found[frame.f_code.co_qualname] += 1
        elif event == "c_call":
            found[argument.__qualname__] += 1

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return found


def test_an_event_is_parsed_once() -> None:
    seen: list[Any] = []
    found = calls_in(lambda: seen.extend(stream()))
    assert [event.type for event in seen] == ["MODIFIED"] * EVENTS
    assert found[msgspec.json.Decoder.decode.__qualname__] == EVENTS


def test_an_event_that_changes_a_cached_object_costs_few_calls() -> None:
    metrics, progress = InformerMetrics(Instruments(), "things"), CachePosition()
    store: WritableStore[Thing] = WritableStore()
    intake = EventProcessor(store, Overlay(store), progress, name="things", objects=metrics.objects)
    skipped, sharing = SkippedObjects("things", metrics), Interner(THINGS.type)
    ingest = Ingest(intake, resource="things", skipped=skipped, sharing=sharing)

    def follow() -> None:
        for event in stream():
            assert ingest.take_event(event)

    follow()  # from here on each event is of an object that is known
    calls = calls_in(follow).total() / EVENTS
    assert store.resource_version == f"{EVENTS}"
    assert calls <= MOST_CALLS
