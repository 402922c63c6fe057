import gc

import pytest
from prometheus_client import CollectorRegistry

from navarchos.errors import ConfigError
from navarchos.instrument import Instruments


def test_two_components_share_a_family() -> None:
    instruments = Instruments(CollectorRegistry())
    first = instruments.counter("jobs_total", "Jobs.", ("name",))
    assert instruments.counter("jobs_total", "Jobs.", ("name",)) is first


def test_a_family_is_registered_in_the_given_registry_only() -> None:
    registry = CollectorRegistry()
    Instruments(registry).gauge("depth", "Depth.").set(3)
    assert registry.get_sample_value("depth") == 3


@pytest.mark.parametrize(("kind", "labels"), [("gauge", ("name",)), ("counter", ("other",))])
def test_a_family_of_another_type_is_refused(kind: str, labels: tuple[str, ...]) -> None:
    instruments = Instruments()
    instruments.counter("jobs_total", "Jobs.", ("name",))
    with pytest.raises(ConfigError):
        getattr(instruments, kind)("jobs_total", "Jobs.", labels)


def test_a_sum_is_computed_at_each_scrape_over_the_existing_parts() -> None:
    class Part:
        size = 1

    def size(part: Part) -> float:
        return part.size

    instruments = Instruments()
    labels = {"name": "a"}
    parts = [Part(), Part()]
    for part in parts:
        instruments.sum("sizes", "Sizes.", labels, size).add(part)
    parts[0].size = 5
    assert instruments.registry.get_sample_value("sizes", labels) == 6
    del part, parts[0]
    gc.collect()
    assert instruments.registry.get_sample_value("sizes", labels) == 1
