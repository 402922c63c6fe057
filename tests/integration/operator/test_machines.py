"""The published example, while a cloud replaces drained machines."""

from dataclasses import replace
from importlib.resources import files

import pytest
import yaml
from tests.cases import manifests
from tests.cases.case import Case
from tests.cases.machines import Machines
from tests.cases.waiting import wait_for

from navarchos.clock import SYSTEM_CLOCK
from navarchos.operator.names import DRAIN_COMPLETED_LABEL
from navarchos.testing.cluster.nodes import IMPORTANT_NODE, Machine, machines, node_manifest

pytestmark = [pytest.mark.timeout(240), pytest.mark.long]

EXAMPLE = files("navarchos.cli") / "examples" / "rollout.yml"


def make_machines(case: Case, count: int, annotations: dict[str, str]) -> list[Machine]:
    """Return machines of all roles whose nodes belong to the case, and register them."""
    labels = {manifests.CASE_LABEL: case.name}
    made = [
        replace(machine, labels=labels, annotations=annotations) for machine in machines(count, 8)
    ]
    now = SYSTEM_CLOCK.now()
    case.target.create(*(node_manifest(machine, at=now) for machine in made))
    return made


@pytest.mark.parametrize("runner", ["kwok", "simulator"])
def test_the_published_example_replaces_every_selected_machine(case: Case, runner: str) -> None:
    if runner == "kwok" and not case.target.runs_kwok:
        pytest.skip("the kubelets of this cluster are the simulator's")
    theirs = runner == "kwok"
    annotations = {"kwok.x-k8s.io/node": "fake"} if theirs else {}
    fleet = make_machines(case, 9, annotations)
    meant = [machine.name for machine in fleet if machine.role != "master"]
    with Machines(case.target, fleet, kubelets=not theirs and case.target.runs_kwok) as cloud:
        case.wait_until_ready([machine.name for machine in fleet])
        case.add(
            manifests.deployment(case.name, "web", 12),
            manifests.stateful_set(case.name, "db", 3),
            manifests.daemon_set(case.name, "agent"),
            manifests.budget(case.name, "web", maxUnavailable="25%"),
            manifests.budget(case.name, "db", maxUnavailable=1),
        )
        case.manager()
        example = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
        name = case.create(example)["metadata"]["name"]
        status = case.wait_for_phase("Completed", name=name, timeout=120)
        assert sorted(status["replacementsCompleted"]) == sorted(meant)
        assert [(each["priority"], each["completed"]) for each in status["plan"]] == [
            (40, 1),
            *((priority, count_of(fleet, role)) for priority, role in ROLES),
        ]
        case.checker.settle()
        roles = {machine.name: machine.role for machine in fleet}
        assert [roles[each] for each in case.checker.drained] == [
            "support",
            *(role for _, role in ROLES for _ in range(count_of(fleet, role))),
        ]
        assert case.checker.drained[0] == IMPORTANT_NODE
        wait_for("every machine to be replaced", lambda: cloud.replaced == len(meant))
        case.settle()
    nodes = case.target.list("Node", label_selector=f"{manifests.CASE_LABEL}={case.name}")
    assert len(nodes) == len(fleet)
    names = {node["metadata"]["name"] for node in nodes}
    assert not names & set(meant)
    assert not any(DRAIN_COMPLETED_LABEL in node["metadata"]["labels"] for node in nodes)


ROLES = ((30, "support"), (20, "worker"), (10, "spot-worker"))


def count_of(fleet: list[Machine], role: str) -> int:
    """Return the number of machines that the example selects by role, not by name."""
    return sum(each.role == role and each.name != IMPORTANT_NODE for each in fleet)
