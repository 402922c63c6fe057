"""A control plane that is older and stricter than the newest: lists instead of streams.

Servers before 1.34 do not stream lists, so informers list. Some servers, such as
OpenShift, require permission to update the finalizers of the owner from a client that
sets `blockOwnerDeletion`.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cases import clusters, manifests
from tests.cases.case import Case
from tests.cases.fixtures import run_case
from tests.cases.installing import install
from tests.cases.kubectl import Kubectl
from tests.cases.target import Target

from navarchos.testing.controlplane import AuditEvent, ControlPlane
from navarchos.testing.controlplane.guard import Guard

pytestmark = pytest.mark.timeout(240)

ARGUMENTS = (
    "--feature-gates=WatchList=false",
    "--enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement",
)


@pytest.fixture(scope="module")
def older(
    kubectl_path: Path, tmp_path_factory: pytest.TempPathFactory, older_log: list[AuditEvent]
) -> Iterator[Target]:
    directory = tmp_path_factory.mktemp("older")
    with ControlPlane(arguments={"kube-apiserver": ARGUMENTS}) as plane:
        plane.kwok()
        with clusters.real(plane, directory) as target:
            install(Kubectl(kubectl_path, target.kubeconfig, directory))
            yield target
        older_log.extend(plane.audit_events())


@pytest.fixture
def older_case(
    request: pytest.FixtureRequest, older: Target, guard: Guard, tmp_path: Path
) -> Iterator[Case]:
    account = tmp_path / "account"
    older.write_account_kubeconfig(account, "kube-system", "navarchos")
    with run_case(request.node, older, guard, account) as running:
        yield running


def test_a_rollout_without_streaming_lists_and_with_guarded_owners(older_case: Case) -> None:
    nodes = older_case.add_nodes(2)
    older_case.add(
        manifests.deployment(older_case.name, "web", 4),
        manifests.daemon_set(older_case.name, "agent"),
        manifests.budget(older_case.name, "web", maxUnavailable=1),
    )
    older_case.add_nodes(1, first=3)
    older_case.manager()
    # A follower watches the Lease. Without streaming lists it lists the Lease first.
    older_case.manager(name="follower")
    job = manifests.job(older_case.name, "work", 1, runs_for="0.2s")["spec"]
    older_case.roll(
        nodeSelectors=[],
        nodeNames=[{"name": name} for name in nodes],
        gates=[{"name": "pods", "evictedPods": {}}],
        action={
            "job": {"namespace": older_case.name, "template": {"spec": {**job, "backoffLimit": 0}}},
            "afterwards": "Keep",
        },
    )
    older_case.wait_for_phase("Completed")
    older_case.checker.settle()
    assert older_case.checker.drained == tuple(nodes)
    assert older_case.target.audit is not None
    references = [e.object_ref for e in older_case.target.audit() if e.verb == "list"]
    listed = {found.resource for found in references if found is not None}
    # The informers of the action and of the gate start only with such a rollout.
    assert listed >= {"leases", "jobs", "replicasets", "statefulsets"}
