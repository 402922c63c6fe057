"""A second system for tests: it marks the objects of its kind."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import msgspec

from navarchos.client import Client, Resource
from navarchos.client.rbac import PolicyRule
from navarchos.crd import Definition, Manifest, Version, custom_resource_definition
from navarchos.informers.source import informer_rbac
from navarchos.meta import Object
from navarchos.operator.setup import OperatorParts, Part
from navarchos.operator.slots import Holder, ReportedSlots
from navarchos.operator.systems import StatusPart, System
from navarchos.runtime import DONE, Builder, CachedClient, Reconciler, Request, Result

if TYPE_CHECKING:
    from navarchos.operator.preflight import PlanFinding
    from navarchos.testing.apiserver import ApiServer
    from navarchos.testing.cluster import Cluster

__all__ = ["DEFINITION", "PROGRAM", "TIDES", "TIDE_RESOURCE", "Tide"]


PROGRAM: Final = """
import sys
from navarchos.cli import controllers
controllers.MODULES["tides"] = ("tests.cases.tides", "TIDES")
from navarchos.cli.commands import run
status = run(sys.argv[1:])
print("modules:", *sorted(sys.modules), file=sys.stderr)
sys.exit(status)
"""
"""The command line of a version that has this system, for `python -c`."""


class TideSpec(msgspec.Struct, frozen=True, rename="camel"):
    """What the sea does: a tide holds one node, and needs another one."""

    is_high: bool = False
    holds: str = ""
    needs: str = ""


class Tide(Object, frozen=True):
    """An object of the second system."""

    spec: TideSpec = TideSpec()


TIDE_RESOURCE: Final = Resource(
    "tides.example.org", "v1", "tides", "Tide", namespaced=False, type=Tide
)

DEFINITION: Final = custom_resource_definition(
    Definition(versions=(Version(resource=TIDE_RESOURCE),))
)

MARK: Final = {"metadata": {"labels": {"seen": "yes"}}}


class MarkTide(Reconciler):
    """Labels each tide once."""

    def __init__(self, tides: CachedClient[Tide]) -> None:
        self._tides = tides

    def reconcile(self, request: Request) -> Result:
        tide = self._tides.find(request.name)
        if tide is not None and "seen" not in tide.metadata.labels:
            self._tides.patch_any_version(tide, MARK)
        return DONE


def _add(operator: OperatorParts) -> None:
    tides = operator.manager.cached_client(TIDE_RESOURCE)
    Builder(operator.manager, "tides").for_(TIDE_RESOURCE).build(MarkTide(tides))


def _definitions() -> list[Manifest]:
    return [DEFINITION]


def _manifests() -> list[Manifest]:
    metadata = {"name": "tides", "namespace": "kube-system"}
    return [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}]


def _read(client: Client) -> list[str]:
    return sorted(tide.metadata.name for tide in client.resource(TIDE_RESOURCE).list().items)


def _lines(names: Sequence[str]) -> Iterable[str]:
    yield f"tides: {', '.join(names)}"


def _plan(client: Client, nodes: Collection[str]) -> "Mapping[str, Sequence[PlanFinding]]":
    """A node with the name of a tide is flooded: it cannot be drained while the tide is high."""
    # Imported here, so that a manager does not import it.
    from navarchos.operator.preflight import PlanFinding, Severity

    tides = client.resource(TIDE_RESOURCE).list().items
    return {
        tide.metadata.name: [
            PlanFinding(
                severity=Severity.BLOCKS if tide.spec.is_high else Severity.NOTE,
                reason="Flooded",
                message="the tide is high",
            )
        ]
        for tide in tides
        if tide.metadata.name in nodes
    }


def _slots(client: Client) -> ReportedSlots:
    tides = client.resource(TIDE_RESOURCE).list().items
    return ReportedSlots(
        holders={t.spec.holds: Holder("Tide", t.metadata.name) for t in tides if t.spec.holds},
        objections={t.spec.needs: "a ship leaves" for t in tides if t.spec.needs},
    )


@contextmanager
def _simulate(server: "ApiServer", _cluster: "Cluster") -> Iterator[None]:
    head = {"apiVersion": "tides.example.org/v1", "kind": "Tide"}
    server.install({**head, "metadata": {"name": "spring"}})
    yield
    server.install({**head, "metadata": {"name": "neap"}})


TIDES: Final = System(
    name="tides",
    about="tides",
    parts=frozenset({Part.DRAINS}),
    kinds=(TIDE_RESOURCE,),
    rbac={
        "": (*informer_rbac(TIDE_RESOURCE), PolicyRule(TIDE_RESOURCE, ("patch",))),
        "harbour": (PolicyRule(TIDE_RESOURCE, ("get",)),),
    },
    add=_add,
    definitions=_definitions,
    manifests=_manifests,
    status=StatusPart(_read, _lines),
    plan=_plan,
    slots=_slots,
    simulate=_simulate,
)
