"""The detailed metrics of a client."""

import pytest
from prometheus_client import CollectorRegistry

from navarchos.client import Client, ClientConfig
from navarchos.drain import PODS
from navarchos.instrument import Instruments
from navarchos.testing.apiserver import ApiServer

SECONDS = [0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60]
OPT_IN = {
    "rest_client_request_duration_seconds": ({"verb", "host"}, SECONDS),
    "rest_client_dns_resolution_duration_seconds": ({"host"}, SECONDS),
    "rest_client_request_size_bytes": ({"verb", "host"}, None),
    "rest_client_response_size_bytes": ({"verb", "host"}, None),
    "rest_client_rate_limiter_duration_seconds": ({"verb", "host"}, SECONDS),
}
SIZES = [64, 256, 512, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216]


def requested(*, detailed: bool) -> tuple[CollectorRegistry, str]:
    """Create a pod and list pods over HTTP."""
    instruments = Instruments(detailed=detailed)
    with ApiServer() as server:
        config = ClientConfig(server.url, qps=1000.0)
        with Client(config, instruments=instruments) as client:
            pod = {"metadata": {"name": "some-name"}, "spec": {"containers": [CONTAINER]}}
            client.resource(PODS).create(pod, "default")
            client.resource(PODS).list("default")
        return instruments.registry, server.url.removeprefix("http://")


CONTAINER = {"name": "app", "image": "registry.example/app:1"}


@pytest.mark.rule("MT-08")
def test_sizes_and_durations_of_requests_can_be_enabled() -> None:
    registry, host = requested(detailed=True)
    families = {family.name: family for family in registry.collect()}
    for name, (labels, bounds) in OPT_IN.items():
        samples = [s for s in families[name].samples if s.name.endswith("_bucket")]
        assert samples, name
        assert {frozenset(s.labels) for s in samples} == {frozenset(labels | {"le"})}, name
        told = sorted({float(s.labels["le"]) for s in samples})[:-1]
        assert told == (bounds or SIZES), name
    for method in ("GET", "POST"):
        request = {"verb": method, "host": host}
        for name in ("duration_seconds", "size_bytes"):
            assert registry.get_sample_value(f"rest_client_request_{name}_count", request) == 1
        received = registry.get_sample_value("rest_client_response_size_bytes_sum", request)
        assert received is not None
        assert received > 100
    post, get = ({"verb": method, "host": host} for method in ("POST", "GET"))
    sent = registry.get_sample_value("rest_client_request_size_bytes_sum", post)
    assert sent is not None
    assert sent > 50
    assert registry.get_sample_value("rest_client_request_size_bytes_sum", get) == 0
    # The second request used the connection of the first.
    looked_up = {"host": host}
    name = "rest_client_dns_resolution_duration_seconds_count"
    assert registry.get_sample_value(name, looked_up) == 1


@pytest.mark.rule("MT-08")
def test_detailed_metrics_are_not_registered_by_default() -> None:
    registry, _ = requested(detailed=False)
    names = {family.name for family in registry.collect()}
    assert names & set(OPT_IN) == {"rest_client_rate_limiter_duration_seconds"}


@pytest.mark.rule("MT-08")
def test_no_label_contains_the_name_of_an_object() -> None:
    registry, _ = requested(detailed=True)
    values = {
        value
        for family in registry.collect()
        for sample in family.samples
        for value in sample.labels.values()
    }
    assert "POST" in values
    assert not [value for value in values if "some-name" in value]
