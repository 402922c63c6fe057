"""Replacements that another kind owns: paused, cancelled and abandoned with their owner."""

from typing import Any

import pytest
from msgspec.structs import replace
from tests.cases.waiting import wait_for
from tests.unit.operator.conftest import Make, Operator
from tests.unit.operator.test_setup import operator_runs

from navarchos.client import Client, ClientConfig, Resource
from navarchos.errors import ConfigError
from navarchos.meta import Object, ObjectMeta, OwnerReference
from navarchos.operator.api.v1alpha1 import (
    NODE_REPLACEMENTS,
    NODE_ROLLOUTS,
    DrainPhase,
    NodeReplacement,
    NodeRollout,
    NodeRolloutSpec,
    RolloutStrategy,
    Step,
)
from navarchos.operator.owners import ROLLOUT_KIND, OwnerKind, Owners, kind_of, owner_view
from navarchos.operator.reasons import WaitReason
from navarchos.operator.replacements.admission import admit
from navarchos.operator.replacements.snapshot import ClusterSnapshot
from navarchos.operator.setup import OperatorParts
from navarchos.testing.apiserver import ApiServer

pytestmark = pytest.mark.rule("NP-22")

VERSIONS = Resource("example.com", "v1", "versions", "Version", namespaced=False, type=Object)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False, type=Object)
KIND = OwnerKind("example.com", "Version")


def view(name: str = "v1", *, deleting: bool = False, **spec: Any) -> NodeRollout:
    strategy = RolloutStrategy(**spec.pop("strategy", {}))
    metadata = ObjectMeta(
        name=name, uid=f"uid-{name}", deletion_timestamp=Make.now if deleting else None
    )
    return owner_view(metadata, NodeRolloutSpec(strategy=strategy, **spec))


def owned(replacement: NodeReplacement, owner: str = "v1", *, kind: str = "Version") -> Any:
    reference = OwnerReference(
        api_version="example.com/v1", kind=kind, name=owner, uid=f"uid-{owner}", controller=True
    )
    metadata = replacement.metadata
    return replace(replacement, metadata=replace(metadata, owner_references=(reference,)))


def snapshot(make: Make, *replacements: NodeReplacement, views: Any) -> ClusterSnapshot:
    rollouts = [make.rollout(), *views]
    return ClusterSnapshot(
        replacements=replacements,
        rollouts={rollout.metadata.uid: rollout for rollout in rollouts},
        nodes={r.spec.node_name: make.node(r.spec.node_name) for r in replacements},
        other_owners={each.metadata.uid: f"Version {each.metadata.name}" for each in views},
        owner_kinds=frozenset({ROLLOUT_KIND, KIND}),
    )


def test_a_version_of_a_group_does_not_matter() -> None:
    reference = OwnerReference(api_version="example.com/v2", kind="Version", name="v1", uid="u")
    assert kind_of(reference) == KIND
    core = OwnerReference(api_version="v1", kind="Namespace", name="v1", uid="u")
    assert kind_of(core) == OwnerKind("", "Namespace")


@pytest.mark.parametrize("resource", [VERSIONS, NODE_ROLLOUTS])
def test_a_kind_is_registered_once_and_rollouts_are_always(resource: Resource[Any]) -> None:
    owners = Owners()
    assert owners.kinds == {ROLLOUT_KIND}
    owners.register(VERSIONS, list)
    assert owners.kinds == {ROLLOUT_KIND, KIND}
    with pytest.raises(ConfigError, match="registered already"):
        owners.register(resource, list)


def test_a_paused_owner_holds_its_replacements_and_delays_no_other(make: Make) -> None:
    priority: Any = {"replacement": {"priority": 9}}
    mine = owned(make.replacement("a", **priority))
    decisions = admit(
        snapshot(make, mine, make.replacement("b"), views=[view(paused=True)]), make.now
    )
    assert decisions.start == ("roll-b",)
    assert decisions.waiting == {"roll-a": WaitReason.ROLLOUT_PAUSED}
    assert decisions.details["roll-a"] == "Version v1 is paused"


def test_the_failures_of_an_owner_halt_its_replacements(make: Make) -> None:
    failed = owned(make.replacement("a", step=Step.FAILED, failed_at=(-9, -8), done=-8))
    waiting = owned(make.replacement("b"))
    stranger = owned(make.replacement("c"), "v2")
    decisions = admit(
        snapshot(make, failed, waiting, stranger, views=[view(), view("v2")]), make.now
    )
    assert decisions.waiting["roll-b"] is WaitReason.ROLLOUT_HALTED
    assert decisions.details["roll-b"] == "Version v1 is halted after too many failures"
    assert decisions.start == ("roll-c",)
    allowed = view(strategy={"max_failures": 1})
    decisions = admit(snapshot(make, failed, waiting, views=[allowed]), make.now)
    assert decisions.start == ("roll-b",)


def test_a_wait_of_one_owner_does_not_hold_another(make: Make) -> None:
    narrow: Any = {"strategy": {"topologyKey": "zone"}}
    wide: Any = {"strategy": {"maxConcurrent": 3}}
    seen = snapshot(
        make,
        make.replacement("x", step=Step.DRAINING),
        owned(make.replacement("a", **narrow)),
        owned(make.replacement("b", **wide), "v2"),
        views=[view(), view("v2")],
    )
    decisions = admit(seen, make.now)
    assert decisions.start == ("roll-b",)
    assert decisions.waiting == {"roll-a": WaitReason.MAX_CONCURRENT}


@pytest.mark.rule("MA-10")
def test_nodes_of_all_owners_are_counted_together(make: Make) -> None:
    """One limit for the whole cluster, whatever owns the replacements."""
    busy = owned(make.replacement("a", step=Step.DRAINING))
    seen = snapshot(make, busy, make.replacement("b"), views=[view()])
    assert admit(seen, make.now).waiting == {"roll-b": WaitReason.MAX_CONCURRENT}
    mine, other = owned(make.replacement("c")), make.replacement("d", step=Step.DRAINING)
    seen = snapshot(make, mine, other, views=[view()])
    assert admit(seen, make.now).waiting == {"roll-c": WaitReason.MAX_CONCURRENT}
    first, second = owned(make.replacement("e")), make.replacement("f")
    decisions = admit(snapshot(make, first, second, views=[view()]), make.now)
    assert len(decisions.start) == 1, "the last slot was taken twice"


def test_the_replacements_of_a_cancelled_owner_are_cancelled(make: Make) -> None:
    seen = snapshot(make, owned(make.replacement("a")), views=[view(cancel=True)])
    assert admit(seen, make.now).cancelled == ("roll-a",)


@pytest.mark.parametrize("views", [[], [view(deleting=True)]], ids=["gone", "deleting"])
def test_the_replacements_of_a_deleted_owner_do_not_start(make: Make, views: Any) -> None:
    decisions = admit(snapshot(make, owned(make.replacement("a")), views=views), make.now)
    assert (decisions.start, dict(decisions.waiting)) == ((), {})


def test_an_unknown_kind_of_owner_is_as_no_owner(make: Make) -> None:
    unknown = owned(make.replacement("a"), kind="Unknown")
    assert admit(snapshot(make, unknown, views=[]), make.now).start == ("roll-a",)


def add_owned(
    client: Client,
    server: ApiServer,
    node: str,
    kind: Resource[Object] = VERSIONS,
    uid: str = "uid-v1",
) -> None:
    server.install({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})
    owner = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": "v1",
        "uid": uid,
        "controller": True,
    }
    metadata = {"name": node, "ownerReferences": [owner]}
    client.resource(NODE_REPLACEMENTS).create({"metadata": metadata, "spec": {"nodeName": node}})


def test_a_node_in_flight_is_paused_and_resumed_with_its_owner(operator: Operator) -> None:
    views = [view()]
    operator.owners.register(VERSIONS, lambda: views)
    operator.restart()
    add_owned(operator.client, operator.server, "a")
    operator.settle()
    operator.play("a", DrainPhase.DRAINING)
    views[:] = [view(paused=True)]
    operator.settle()
    assert operator.drain("a").spec.paused
    views[:] = [view()]
    operator.settle()
    assert not operator.drain("a").spec.paused
    assert operator.steps() == {"a": Step.DRAINING}


@pytest.mark.parametrize(("deleted", "drains"), [(True, []), (False, ["a"])])
def test_a_reserved_node_of_a_deleted_owner_is_not_cordoned(
    operator: Operator, deleted: bool, drains: list[str]
) -> None:
    operator.owners.register(VERSIONS, lambda: [view(deleting=deleted)])
    operator.restart()
    add_owned(operator.client, operator.server, "a")
    uid = operator.node("a").metadata.uid
    replacements = operator.client.resource(NODE_REPLACEMENTS)
    replacements.patch("a", {"spec": {"nodeUID": uid}})
    replacements.patch("a", {"status": {"step": {"name": "Reserved"}}}, subresource="status")
    operator.settle()
    assert operator.steps() == {"a": Step.RESERVED}
    assert operator.drains() == drains, "the cordon would be undone at once"


def test_a_change_of_an_owner_wakes_admission_and_its_replacements(server: ApiServer) -> None:
    """The whole operator, which decides again only when something asks it to."""
    views, assembled = [view(paused=True)], []

    def assemble(parts: OperatorParts) -> None:
        parts.owners.register(NAMESPACES, lambda: views)
        assembled.append(parts.owners)

    with Client(ClientConfig(host=server.url)) as client, operator_runs(client, assemble=assemble):
        # The owner must exist: the garbage collector deletes the replacement otherwise.
        owner = client.resource(NAMESPACES).create({"metadata": {"name": "v1"}}).metadata
        views[:] = [replace(views[0], metadata=owner)]
        add_owned(client, server, "a", NAMESPACES, owner.uid)
        replacements = client.resource(NODE_REPLACEMENTS)
        wait_for("the pause", lambda: replacements.get("a").spec.paused)
        views[:] = [replace(view(), metadata=owner)]
        assembled[0].changed(owner.uid)
        wait_for("the end", lambda: replacements.get("a").status.current is Step.DONE)
