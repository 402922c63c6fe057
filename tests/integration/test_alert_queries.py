"""Queries of alerts, in the query language of a real Prometheus."""

import msgspec
import pytest
from tests.cases.prometheus import Prometheus

from navarchos.clock import SYSTEM_CLOCK
from navarchos.instrument import Instruments
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.gates.alerts import (
    AlertPollers,
    AlertQuery,
    PrometheusReader,
    query_of_gate,
)
from navarchos.testing.clock import FakeClock

pytestmark = pytest.mark.timeout(240)


@pytest.mark.rule("RB-65")
def test_a_real_prometheus_evaluates_each_row_of_the_query_table(prometheus: Prometheus) -> None:
    prometheus.start(firing=["RebootRequired", "NodeDown", 'a"b7'], pending=["NodeSlow"])
    active = prometheus.active
    assert active() == ("NodeDown", "NodeSlow", "RebootRequired", 'a"b7')
    assert active(states="Firing") == ("NodeDown", "RebootRequired", 'a"b7')
    # An anchored filter must match the whole name, and other filters match anywhere in it.
    assert active(filter="^Reboot$") == ("NodeDown", "NodeSlow", "RebootRequired", 'a"b7')
    assert active(filter="^RebootRequired$") == ("NodeDown", "NodeSlow", 'a"b7')
    assert active(filter="eDow", match="Only") == ("NodeDown",)
    assert active(filter="Reboot|Node") == ('a"b7',)
    assert active(filter="(?i)node", match="Only") == ("NodeDown", "NodeSlow")
    only = active(filter="Reboot|Node", match="Only", states="Firing")
    assert only == ("NodeDown", "RebootRequired")
    assert active(filter=r'a"b\d') == ("NodeDown", "NodeSlow", "RebootRequired")
    prometheus.set_alerts()
    assert active() == ()


@pytest.mark.rule("RB-66")
def test_a_query_follows_alerts_in_turns_of_15_seconds(prometheus: Prometheus) -> None:
    clock = FakeClock()
    seen: list[tuple[float, tuple[str, ...], str]] = []
    query = query_of_gate(msgspec.convert({"url": prometheus.url}, api.AlertsGate))

    def note(_: AlertQuery) -> None:
        result = pollers.result(query)
        assert result is not None
        seen.append((clock.monotonic() - began, result.alerts, result.failure))

    pollers = AlertPollers(
        PrometheusReader(SYSTEM_CLOCK), on_result=note, clock=clock, instruments=Instruments()
    )
    began = clock.monotonic()
    try:
        prometheus.start(firing=["WebDown"])
        pollers.want({query: 0})
        clock.advance(14.9)
        assert seen == [(0.0, ("WebDown",), "")]
        prometheus.stop()
        clock.advance(14.9)
        assert seen[1:] == [(15.0, (), f"{prometheus.url} did not answer: Connection refused")]
        prometheus.start()
        clock.advance(0.3)
        assert seen[2:] == [(30.0, (), "")]
        pollers.want({})
        clock.advance(600.0)
        assert len(seen) == 3
    finally:
        pollers.close()
