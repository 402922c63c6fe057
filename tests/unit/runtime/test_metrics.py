"""All that a manager shows at `/metrics`, walked through."""

import re
from pathlib import Path

import pytest
from prometheus_client.metrics_core import Metric
from tests.unit.runtime.conftest import THINGS, Script

from navarchos.client import Client, ClientConfig
from navarchos.client.transport import BufferedResponse, FunctionTransport
from navarchos.instrument import Instruments
from navarchos.runtime import Builder, LeaderElectionOptions, Manager, ManagerOptions
from navarchos.testing import FakeClock

PAGE = Path(__file__).parents[3] / "docs" / "controllers.md"
ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| ([\w, ]+) \|", re.MULTILINE)

QUEUE = {"name", "controller"}
DEFINED: dict[str, tuple[str, set[str]]] = {
    "workqueue_depth": ("gauge", {*QUEUE, "priority"}),
    "workqueue_adds_total": ("counter", QUEUE),
    "workqueue_retries_total": ("counter", QUEUE),
    "workqueue_queue_duration_seconds": ("histogram", QUEUE),
    "workqueue_work_duration_seconds": ("histogram", QUEUE),
    "workqueue_unfinished_work_seconds": ("gauge", QUEUE),
    "workqueue_longest_running_processor_seconds": ("gauge", QUEUE),
    "controller_runtime_reconcile_total": ("counter", {"controller", "result"}),
    "controller_runtime_reconcile_errors_total": ("counter", {"controller"}),
    "controller_runtime_terminal_reconcile_errors_total": ("counter", {"controller"}),
    "controller_runtime_reconcile_panics_total": ("counter", {"controller"}),
    "controller_runtime_reconcile_timeouts_total": ("counter", {"controller"}),
    "controller_runtime_reconcile_time_seconds": ("histogram", {"controller"}),
    "controller_runtime_max_concurrent_reconciles": ("gauge", {"controller"}),
    "controller_runtime_active_workers": ("gauge", {"controller"}),
    "leader_election_master_status": ("gauge", {"name"}),
    "leader_election_slowpath_total": ("counter", {"name"}),
}
"""What exists at zero before anything happened: MT-01 to MT-06."""

OF_REQUESTS: dict[str, tuple[str, set[str]]] = {
    "rest_client_requests_total": ("counter", {"code", "method", "host"}),
}
"""Series that exist from the first request on, because their status codes are not known before."""

VALUES = {
    "name": {"thing", "our-lease"},
    "controller": {"thing"},
    "priority": {"0"},
    "result": {"success", "error", "requeue", "requeue_after"},
    "code": {"200"},
    "method": {"GET"},
    "host": {"127.0.0.1:1"},
}


@pytest.fixture
def families(fake_clock: FakeClock) -> dict[str, Metric]:
    instruments = Instruments()
    config = ClientConfig("http://127.0.0.1:1")
    transport = FunctionTransport(lambda _: BufferedResponse(200, {}, b"{}"))
    with Client(config, instruments=instruments, transport=transport) as client:
        lease = LeaderElectionOptions(name="our-lease", namespace="ns")
        manager = Manager(
            client,
            options=ManagerOptions(leader_election=lease),
            clock=fake_clock,
            instruments=instruments,
        )
        Builder(manager).for_(THINGS).build(Script())
        client.raw("GET", "/version")
    return {
        family.name + ("_total" if family.type == "counter" else ""): family
        for family in instruments.registry.collect()
    }


@pytest.mark.rule("MT-01", "MT-02", "MT-03", "MT-04", "MT-05", "MT-06", "MT-07")
def test_a_manager_shows_the_metrics_that_are_defined_and_no_other(
    families: dict[str, Metric],
) -> None:
    known = {**DEFINED, **OF_REQUESTS}
    assert set(known) <= set(families)
    contract = ("workqueue_", "controller_runtime_", "leader_election_")
    assert {name for name in families if name.startswith(contract)} == set(DEFINED)
    for name, (kind, labels) in known.items():
        samples = [s for s in families[name].samples if not s.name.endswith("_created")]
        assert families[name].type == kind, name
        assert samples, f"{name} has no series"
        assert {frozenset(set(s.labels) - {"le"}) for s in samples} == {frozenset(labels)}, name


@pytest.mark.rule("MT-05", "MT-06")
def test_every_series_exists_at_zero_before_anything_happened(families: dict[str, Metric]) -> None:
    counted = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for name in DEFINED
        for sample in families[name].samples
        if not sample.name.endswith("_created") and sample.value
    }
    workers = ("controller_runtime_max_concurrent_reconciles", ("controller", "thing"))
    assert counted == {workers: 1}
    results = families["controller_runtime_reconcile_total"].samples
    assert {s.labels["result"] for s in results} == VALUES["result"]


@pytest.mark.rule("MT-05", "MT-07")
def test_labels_take_their_values_out_of_closed_sets(families: dict[str, Metric]) -> None:
    for name in (*DEFINED, *OF_REQUESTS):
        for sample in families[name].samples:
            for label, value in sample.labels.items():
                assert label == "le" or value in VALUES[label], (name, label, value)


def test_the_page_on_controllers_lists_the_same_metrics() -> None:
    told = {
        name: (kind, set(labels.split(", ")))
        for name, kind, labels in ROW.findall(PAGE.read_text(encoding="utf-8"))
    }
    ours = ("workqueue_", "controller_runtime_")
    assert told == {name: what for name, what in DEFINED.items() if name.startswith(ours)}
