"""The metrics of informers."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.runtime.conftest import THINGS, Thing, make_thing

from navarchos.informers import SharedInformer
from navarchos.informers.metrics import InformerMetrics
from navarchos.instrument import Instruments
from navarchos.stopping import StopToken
from navarchos.testing import FakeClock
from navarchos.testing.source import FakeSource

RESOURCE = {"resource": "things.example.org"}
Sample = Callable[..., float | None]


@pytest.fixture
def instruments() -> Instruments:
    return Instruments()


@pytest.fixture
def sample(instruments: Instruments) -> Sample:
    def read(name: str, **labels: str) -> float | None:
        name = f"navarchos_informer_{name}"
        return instruments.registry.get_sample_value(name, {**RESOURCE, **labels})

    return read


@pytest.fixture
def informer(fake_clock: FakeClock, instruments: Instruments) -> Iterator[SharedInformer[Thing]]:
    server = FakeSource(THINGS, clock=fake_clock)
    for name in ("a", "b"):
        server.put(make_thing(name))
    informer = SharedInformer(server, clock=fake_clock, instruments=instruments)
    yield informer
    informer.stop()
    assert informer.join(10)


@pytest.mark.rule("MT-09")
def test_what_waits_for_a_handler_and_how_long_it_takes_can_be_seen(
    fake_clock: FakeClock, informer: SharedInformer[Thing], sample: Sample
) -> None:
    gate = StopToken(clock=fake_clock)

    def slow(*_: Any) -> None:
        gate.wait()

    handler = informer.add_handler(on_add=slow).name
    assert sample("pending_notifications", handler=handler) == 0
    assert sample("handler_duration_seconds_count", handler=handler) == 0
    informer.start()
    fake_clock.settle()
    assert sample("pending_notifications", handler=handler) == 2
    fake_clock.advance(3)
    gate.stop()
    fake_clock.settle()
    assert sample("pending_notifications", handler=handler) == 0
    assert sample("handler_duration_seconds_count", handler=handler) == 2
    assert sample("handler_duration_seconds_sum", handler=handler) == 3


@pytest.mark.rule("MT-09")
def test_the_version_is_that_of_the_first_informer_of_a_resource(
    instruments: Instruments, sample: Sample
) -> None:
    first = InformerMetrics(instruments, RESOURCE["resource"])
    second = InformerMetrics(instruments, RESOURCE["resource"])
    other = InformerMetrics(instruments, "parts.example.org")
    first.show_version(lambda: "17")
    second.show_version(lambda: "4")
    other.show_version(lambda: "99")
    assert sample("last_resource_version") == 17
    name = "navarchos_informer_last_resource_version"
    parts = {"resource": "parts.example.org"}
    assert instruments.registry.get_sample_value(name, parts) == 99


@pytest.mark.rule("MT-09")
def test_a_version_with_more_digits_than_a_sample_holds_keeps_its_last_ones(
    instruments: Instruments, sample: Sample
) -> None:
    metrics = InformerMetrics(instruments, RESOURCE["resource"])
    versions = ["not a number", "12345678901234567892", "12345678901234567891"]
    metrics.show_version(versions.pop)
    assert sample("last_resource_version") == 678901234567891
    assert sample("last_resource_version") == 678901234567892
    assert sample("last_resource_version") == 678901234567892


def test_the_page_on_informers_names_every_metric(instruments: Instruments) -> None:
    InformerMetrics(instruments, "things")
    defined = {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in instruments.registry.collect()
    }
    page = Path(__file__).parents[3] / "docs" / "informers.md"
    named = re.findall(
        r"^\| `(navarchos_informer_\w+)`", page.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert set(named) == defined
    assert len(named) == len(defined)
