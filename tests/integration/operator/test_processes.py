"""A manager is killed or stopped, or has a follower; the rollout ends in the same way."""

import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from tests.cases import manifests
from tests.cases.case import Case
from tests.cases.managers import LEASE, LEASE_NAMESPACE, QUICK_LEASE
from tests.cases.waiting import wait_for

from navarchos.operator.names import CORDONED_BY_ANNOTATION
from navarchos.testing.controlplane.credentials import Authority
from navarchos.testing.controlplane.layout import HOST

pytestmark = pytest.mark.timeout(240)


def populate(case: Case, count: int) -> list[str]:
    """Add nodes to drain, slow pods on them, and capacity for the new pods.

    The budget allows more disruptions than needed. When a client is killed during an eviction,
    the API server may have counted the disruption without deleting the pod; the disruption
    controller corrects that after two minutes.
    """
    nodes = case.add_nodes(count)
    case.add(
        manifests.deployment(case.name, "web", 3 * count, ends_in="0.5s"),
        manifests.daemon_set(case.name, "agent"),
        manifests.budget(case.name, "web", maxUnavailable=3 * count - 2),
    )
    case.add_nodes(1, first=count + 1)
    return nodes


def roll(case: Case, nodes: list[str], **spec: object) -> None:
    case.roll(nodeSelectors=[], nodeNames=[{"name": name} for name in nodes], **spec)


def assert_all_is_done(case: Case, nodes: list[str]) -> None:
    status = case.wait_for_phase("Completed", timeout=90)
    assert sorted(status["replacementsCompleted"]) == nodes
    assert status.get("replacementsFailedCount", 0) == 0
    case.checker.settle()
    assert sorted(case.checker.drained) == nodes
    # Nothing was repeated: each node was cordoned once and drained once.
    assert sorted(case.checker.cordoned) == nodes
    names = [each["metadata"]["name"] for each in case.target.list("NodeReplacement")]
    assert sorted(names) == sorted(map(case.replacement, nodes))
    case.settle()


def holder(case: Case) -> str:
    lease = case.target.find("Lease", LEASE, LEASE_NAMESPACE)
    return str(((lease or {}).get("spec") or {}).get("holderIdentity", ""))


@pytest.mark.long
def test_a_restarted_manager_continues_after_a_kill(case: Case) -> None:
    nodes = populate(case, 4)
    manager = case.manager(*QUICK_LEASE)
    roll(case, nodes)
    for number in (1, 2, 3):
        wait_for(f"node {number} to be cordoned", lambda: len(case.checker.cordoned) >= number)  # noqa: B023 - called at once
        manager.kill()
        manager.start()
    assert_all_is_done(case, nodes)


@pytest.mark.parametrize(
    "moment",
    [
        pytest.param("planned", marks=pytest.mark.long),
        pytest.param("reserved", marks=pytest.mark.long),
        "draining",
    ],
)
def test_a_manager_killed_at_a_bad_moment_ends_the_same(case: Case, moment: str) -> None:
    nodes = populate(case, 2)
    manager = case.manager(*QUICK_LEASE)
    seen = {
        "planned": lambda: case.status().get("startTimestamp"),
        "reserved": lambda: (
            case.phase("NodeReplacement", case.replacement(nodes[0])) == "InProgress"
        ),
        "draining": lambda: case.phase("NodeDrain", case.replacement(nodes[0])) == "Draining",
    }
    roll(case, nodes)
    wait_for(f"the rollout to be {moment}", seen[moment])
    manager.kill()
    manager.start()
    assert_all_is_done(case, nodes)


@pytest.mark.long
def test_a_rollout_deleted_while_no_manager_runs_is_cleaned_up_later(case: Case) -> None:
    (name,) = case.add_nodes(1)
    case.add(
        manifests.deployment(case.name, "web", 1),
        manifests.budget(case.name, "web", minAvailable=1),
    )
    manager = case.manager(*QUICK_LEASE)
    case.roll()
    drain = case.replacement(name)
    wait_for("a blocker", lambda: case.status("NodeDrain", drain).get("blockers"))
    manager.kill()
    case.delete("NodeRollout")
    wait_for("its replacement to be deleted", lambda: not case.target.list("NodeReplacement"))
    assert case.is_cordoned(name)
    manager.start()
    wait_for("the drain to go", lambda: not case.target.list("NodeDrain"))
    assert not case.is_cordoned(name)
    assert CORDONED_BY_ANNOTATION not in case.node(name)["metadata"].get("annotations", {})


@pytest.mark.long
def test_the_follower_takes_over_when_the_leader_is_stopped(case: Case) -> None:
    nodes = populate(case, 4)
    first = case.manager(name="first")
    wait_for("a leader", lambda: holder(case))
    second = case.manager(name="second")
    leader = holder(case)
    roll(case, nodes)
    wait_for("the second node to be cordoned", lambda: len(case.checker.cordoned) >= 2)
    assert first.stop() == 0
    wait_for("the other manager to lead", lambda: holder(case) not in {"", leader})
    assert_all_is_done(case, nodes)
    assert second.exit_status() is None


@pytest.mark.long
def test_the_follower_takes_over_when_the_leader_is_killed(case: Case) -> None:
    nodes = populate(case, 3)
    first = case.manager(*QUICK_LEASE, name="first")
    leader = wait_for("a leader", lambda: holder(case))
    case.manager(*QUICK_LEASE, name="second")
    roll(case, nodes)
    wait_for("a node to be cordoned", lambda: case.checker.cordoned)
    first.kill()
    wait_for("the other manager to lead", lambda: holder(case) not in {"", leader})
    assert_all_is_done(case, nodes)


@pytest.mark.long
def test_a_manager_becomes_ready_and_serves_its_metrics(case: Case) -> None:
    nodes = populate(case, 1)
    manager = case.manager()
    roll(case, nodes)
    assert_all_is_done(case, nodes)
    metrics = wait_for("it to lead", lambda: manager.is_leader() and manager.metrics())
    assert 'rest_client_requests_total{code="403"' not in metrics
    events: dict[str, Any] = wait_for(
        "the last event", lambda: "RolloutCompleted" in (e := case.events(case.name)) and e
    )
    assert {"ReplacementsCreated", "RolloutCompleted"} <= events.keys()
    of_drain = case.events(case.replacement(nodes[0]))
    assert {"ReplacementStarted", "NodeCordoned", "PodEvicted", "NodeDrained"} <= of_drain.keys()
    assert manager.stop() == 0


@pytest.mark.rule("MG-16")
def test_secure_metrics_require_authorization_and_profiles_an_option(
    case: Case, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue_server("tls", [HOST])
    manager = case.manager(
        *("--metrics-secure", f"--metrics-cert-path={pair.certificate.parent}"),
        *(f"--metrics-cert-name={pair.certificate.name}", f"--metrics-cert-key={pair.key.name}"),
        f"--profiling-addr={HOST}:0",
    )
    context = ssl.create_default_context(cafile=str(authority.files.certificate))
    url = f"https://{HOST}:{manager.port('metrics')}/metrics"
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(url, context=context, timeout=20)
    with urllib.request.urlopen(
        f"http://{HOST}:{manager.port('profiling')}/debug/threads", timeout=20
    ) as answer:
        assert b"MainThread" in answer.read()
