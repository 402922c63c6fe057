"""Rollouts over nodes with every kind of workload, carried out by the shipped account."""

from tests.e2e import manifests
from tests.e2e.cases import Case


def test_nodes_with_every_workload_are_drained_one_at_a_time(case: Case) -> None:
    nodes = case.add_nodes(3)
    case.add(
        manifests.deployment(case.name, "web", 6),
        manifests.stateful_set(case.name, "db", 3),
        manifests.daemon_set(case.name, "agent"),
        manifests.job(case.name, "batch", 2),
        manifests.budget(case.name, "web", maxUnavailable=1),
        manifests.budget(case.name, "db", maxUnavailable=1),
    )
    case.manager()
    case.add_nodes(2, first=4, spare="true")
    case.roll(
        nodeSelectors=[
            {
                "matchExpressions": [
                    {"key": manifests.CASE_LABEL, "operator": "In", "values": [case.name]},
                    {"key": "spare", "operator": "DoesNotExist"},
                ]
            }
        ]
    )
    status = case.wait_for_phase("Completed")
    assert status["replacementsCompleted"] == nodes
    assert case.checker.drained == tuple(nodes)
    assert all(case.is_cordoned(node) for node in nodes)
    for node in nodes:
        assert {p["metadata"]["labels"]["app"] for p in case.pods(node)} == {"agent"}
