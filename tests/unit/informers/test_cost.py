"""How often an event of a watch is parsed."""

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from navarchos.client.decoding import Codec
from navarchos.client.resource import Resource
from navarchos.client.watching import WatchStream
from navarchos.meta import Object
from navarchos.stopping import StopToken

EVENTS = 200


class Thing(Object, frozen=True):
    """An object of which the cache keeps the metadata."""


THINGS = Resource("example.org", "v1", "things", "Thing", namespaced=True, type=Thing)


class Sent:
    """The body of a watch: one change in each chunk."""

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
