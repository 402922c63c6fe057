"""Objects that cannot be decoded, between the watch and the store."""

from collections.abc import Callable
from typing import Any

import pytest

from navarchos.client.errors import DecodeError
from navarchos.client.watching import WatchEvent
from navarchos.informers.ingest import Ingest, SkippedObjects
from navarchos.informers.interning import Interner
from navarchos.informers.metrics import InformerMetrics
from navarchos.informers.overlay import Overlay
from navarchos.informers.paged_list import FetchedList
from navarchos.informers.processor import EventProcessor
from navarchos.informers.store import WritableStore
from navarchos.instrument import Instruments
from navarchos.meta import Object, ResourceVersion

Make = Callable[..., Any]


class Parts:
    """An ingest with its store and its metrics."""

    def __init__(self) -> None:
        self.instruments = Instruments()
        metrics = InformerMetrics(self.instruments, "things")
        self.store = WritableStore[Any]()
        processor = EventProcessor(
            self.store, Overlay(self.store), name="things", objects=metrics.objects
        )
        self.skipped = SkippedObjects("things", metrics)
        self.ingest = Ingest(
            processor, kind="things", skipped=self.skipped, interner=Interner(Object)
        )

    def failures(self) -> float | None:
        name = "navarchos_informer_decode_failures_total"
        return self.instruments.registry.get_sample_value(name, {"resource": "things"})


@pytest.fixture
def parts() -> Parts:
    return Parts()


@pytest.mark.rule("RF-19")
@pytest.mark.parametrize("failure", [DecodeError("odd"), None], ids=["without a name", "nothing"])
def test_a_deletion_of_an_unknown_object_is_skipped(
    parts: Parts, thing: Make, failure: DecodeError | None
) -> None:
    parts.store.put("ns/a", thing("a"), ResourceVersion("1"))
    event = WatchEvent[Any]("DELETED", None, ResourceVersion("2"), failure=failure)
    assert parts.ingest.take_event(event) is False
    assert parts.store.keys() == ["ns/a"]
    assert parts.store.resource_version == "1"


def test_an_object_of_a_list_that_cannot_be_decoded_is_counted_and_recorded(parts: Parts) -> None:
    failures = [DecodeError("odd", namespace="ns", name="a"), DecodeError("without a name")]
    parts.ingest.take_list(FetchedList(ResourceVersion("5"), [], failures, 1))
    assert parts.failures() == 2
    assert parts.skipped.snapshot() == {"ns/a": failures[0]}
    assert parts.store.resource_version == "5"
