"""Declarations of systems: permissions, manifests and caches of a selection."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from tests.cases.tides import TIDE_RESOURCE, TIDES

from navarchos.client import Resource
from navarchos.informers import KindOptions
from navarchos.meta import Object, ObjectMeta
from navarchos.operator import setup, systems
from navarchos.operator.actions import Actions
from navarchos.operator.api.v1alpha1 import ActionKind
from navarchos.operator.cache_transforms import KINDS
from navarchos.operator.deployment import manifests, to_files
from navarchos.operator.nodes import NODES, Node
from navarchos.operator.owners import Owners
from navarchos.operator.preflight import (
    PlanFinding,
    PodCounts,
    PredictedNode,
    PredictedRollout,
    Severity,
    with_findings,
)
from navarchos.operator.systems import ROLLOUTS, System

SETS = {
    "rollouts": (ROLLOUTS,),
    "tides": (TIDES,),
    "both": (ROLLOUTS, TIDES),
}


def found(kind: str, *selected: System) -> list[Any]:
    return [each for each in manifests(selected) if each["kind"] == kind]


def container(*selected: System) -> Any:
    (deployment,) = found("Deployment", *selected)
    return deployment["spec"]["template"]["spec"]["containers"][0]


def grants(*selected: System) -> set[tuple[str, str, str]]:
    """Return namespace, kind and verb of each permission of the manager."""
    return {
        (role["metadata"].get("namespace", ""), resource, verb)
        for role in (*found("ClusterRole", *selected), *found("Role", *selected))
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@pytest.mark.rule("NP-50")
def test_the_deployment_selects_the_controllers_of_its_roles() -> None:
    assert container(ROLLOUTS)["args"][0] == "--leader-election=true"
    assert container(TIDES)["args"][0] == "--controllers=tides"
    assert container(ROLLOUTS, TIDES)["args"][0] == "--controllers=rollouts,tides"
    assert container(ROLLOUTS, TIDES)["args"][1:] == container(ROLLOUTS)["args"]


def test_a_system_that_waits_for_its_kinds_does_not_make_the_pods_unready() -> None:
    """The manager's budget would refuse the evictions of its unready pods."""
    assert container(ROLLOUTS)["readinessProbe"]["httpGet"]["path"] == "/readyz"
    probe = container(ROLLOUTS, TIDES)["readinessProbe"]
    assert probe["httpGet"]["path"] == "/readyz?exclude=tides"


@pytest.mark.rule("NP-50")
@pytest.mark.rule("NP-51")
def test_permissions_are_those_of_the_selected_systems() -> None:
    tides = {("", "tides", verb) for verb in ("list", "watch", "patch")}
    harbour = {("harbour", "tides", "get")}
    assert grants(ROLLOUTS, TIDES) == grants(ROLLOUTS) | tides | harbour
    assert not {grant for grant in grants(ROLLOUTS) if grant[1] == "tides"}
    # Drains are all that tides need of the operator: no replacement is created, no node tainted.
    assert grants(TIDES) < grants(ROLLOUTS, TIDES)
    assert ("", "nodereplacements", "create") in grants(ROLLOUTS)
    assert ("", "nodereplacements", "create") not in grants(TIDES)
    assert ("", "nodedrains/status", "patch") in grants(TIDES)


@pytest.mark.rule("NP-50")
def test_every_role_is_bound_and_fewer_systems_leave_no_permission_behind() -> None:
    """The same names for each selection, so that `kubectl apply` takes permissions away."""
    for kind in ("ClusterRole", "ClusterRoleBinding", "Deployment", "ServiceAccount"):
        names = {
            tuple(
                each["metadata"]["name"]
                for each in found(kind, *selected)
                if all(each not in system.manifests() for system in selected)
            )
            for selected in SETS.values()
        }
        assert len(names) == 1, kind
    for selected in SETS.values():
        bound = [each["metadata"].get("namespace") for each in found("RoleBinding", *selected)]
        assert bound == [each["metadata"].get("namespace") for each in found("Role", *selected)]


def test_further_manifests_have_files_with_the_name_of_their_kind() -> None:
    files = to_files(manifests((ROLLOUTS, TIDES)))
    assert set(files) - set(to_files(manifests())) == {"configmap.yaml"}
    kinds = [each["kind"] for each in manifests((ROLLOUTS, TIDES))]
    assert kinds[-2:] == ["ConfigMap", "Deployment"]


def test_without_another_system_nothing_changes() -> None:
    assert manifests((ROLLOUTS,)) == manifests()
    assert systems.parts_of([ROLLOUTS]) == setup.ALL_PARTS
    assert systems.cached_kinds([ROLLOUTS]).keys() == KINDS.keys()


def test_caches_keep_what_the_selected_systems_read() -> None:
    options = KindOptions[Any](namespace="harbour")
    tides = replace(
        TIDES,
        node_annotations=("tides.example.org/*",),
        cached_kinds={TIDE_RESOURCE: options},
    )
    both = systems.cached_kinds([ROLLOUTS, tides])
    assert both[TIDE_RESOURCE] is options
    node = Node(metadata=ObjectMeta(name="a", annotations={"tides.example.org/level": "3"}))
    for selected, kept in (([ROLLOUTS, tides], 1), ([ROLLOUTS], 0)):
        transform = systems.cached_kinds(selected)[NODES].transform
        assert transform is not None
        assert len(transform(node).metadata.annotations) == kept


def test_a_system_may_register_its_owners_while_another_thread_reads_them() -> None:
    """A system is added late when its definitions are installed late."""
    owners, kinds = Owners(), (TIDE_RESOURCE, NODES)

    def register_one_more() -> Iterable[Any]:
        more = Resource("example.org", "v1", "more", "More", namespaced=False, type=Object)
        owners.register(more, tuple)
        return ()

    owners.register(kinds[0], register_one_more)
    owners.register(kinds[1], tuple)
    assert owners.views() == {}
    assert len(owners.kinds) == 4


def test_a_system_may_register_its_actions_while_another_thread_reads_them() -> None:
    actions = Actions()
    action: Any = object()

    def register_one_more(_: object) -> None:
        actions.register(ActionKind.REBOOT, action)

    actions.register(ActionKind.PLAN, action, observe=register_one_more)
    actions.register(ActionKind.JOB, action, observe=lambda _: None)
    actions.observe([])
    assert actions.available == {ActionKind.PLAN, ActionKind.JOB, ActionKind.REBOOT}


def test_admission_runs_again_when_a_system_was_added() -> None:
    """Nodes may have waited for what the system has registered."""
    woken: list[str] = []

    class Parts:
        owners = Owners()

    class Manager:
        """Adds a feature when the test says so."""

        def add_feature(
            self, name: str, kinds: object, add: Any, *, hint: str, reads: object
        ) -> None:
            assert reads == {"": [TIDE_RESOURCE], "harbour": []}, "what its informers read"
            woken.append(f"{name}: {hint}")
            add()

    Parts.owners.listen(lambda uid: woken.append(uid or "all"))
    tides = replace(TIDES, add=lambda _: woken.append("added"))
    systems.add_features(Manager(), Parts(), [ROLLOUTS, tides])  # type: ignore[arg-type]  # by test
    hint = "install the CustomResourceDefinitions: kubectl create -f config/crds/tides"
    assert woken == [f"tides: {hint}", "added", "all"]


FINDING = PlanFinding(severity=Severity.NOTE, reason="Flooded", message="the tide is high")
BLOCKING = PlanFinding(severity=Severity.BLOCKS, reason="Flooded", message="the tide is high")


@pytest.mark.parametrize(
    ("finding", "before", "after"),
    [(FINDING, False, False), (FINDING, True, True), (BLOCKING, False, True)],
)
def test_findings_of_a_system_are_added_to_the_nodes(
    finding: PlanFinding, before: bool, after: bool
) -> None:
    counts = PodCounts(evict=0, wait=0, ignore=0, refuse=0)
    nodes = tuple(
        PredictedNode(order=1, name=name, priority=0, starts="Now", pods=counts, findings=())
        for name in "ab"
    )
    planned = PredictedRollout(name="roll", nodes=nodes, budgets=(), findings=(), is_blocked=before)
    changed = with_findings(planned, {"b": [finding], "unknown": [BLOCKING]})
    assert [node.findings for node in changed.nodes] == [(), (finding,)]
    assert changed.is_blocked is after
