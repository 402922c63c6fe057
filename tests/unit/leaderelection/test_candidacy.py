"""The LeaseCandidate of coordinated election, on a server that serves the kind."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from tests.cases.waiting import wait_for

from navarchos.client import Client, ClientConfig, NotFound
from navarchos.clock import SYSTEM_CLOCK
from navarchos.leaderelection import LEASE_CANDIDATES, LEASES, Candidacy, Coordination
from navarchos.meta import format_micro_time
from navarchos.testing.apiserver import ApiServer
from navarchos.testing.definitions import install_definitions

NAMESPACE, LEASE, IDENTITY = "default", "lease", "candidate-a"
LIMIT = 20.0

DEFINITION: dict[str, object] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "leasecandidates.coordination.k8s.io",
        "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
    },
    "spec": {
        "group": "coordination.k8s.io",
        "names": {
            "kind": "LeaseCandidate",
            "listKind": "LeaseCandidateList",
            "plural": "leasecandidates",
            "singular": "leasecandidate",
        },
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1beta1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}


@pytest.fixture
def client() -> Iterator[Client]:
    with ApiServer() as server, Client(ClientConfig(server.url)) as client:
        install_definitions(client, DEFINITION)
        yield client


@pytest.fixture
def candidacy(client: Client) -> Iterator[Candidacy]:
    coordination = Coordination("1.5.0", "1.4.0")
    candidacy = Candidacy(client, NAMESPACE, LEASE, IDENTITY, coordination, clock=SYSTEM_CLOCK)
    yield candidacy
    candidacy.withdraw()


@pytest.fixture
def spec(client: Client) -> Callable[[], dict[str, Any]]:
    """Returns the spec of the candidate; empty without one."""

    def read() -> dict[str, Any]:
        try:
            found = client.resource(LEASE_CANDIDATES).get(IDENTITY, NAMESPACE)
        except NotFound:
            return {}
        fields: dict[str, Any] = found["spec"]
        return fields

    return read


@pytest.mark.rule("LE-22")
def test_a_candidate_is_created_and_deleted(
    candidacy: Candidacy, spec: Callable[[], dict[str, Any]]
) -> None:
    candidacy.start()
    wait_for("the candidate", spec, LIMIT)
    fields = spec()
    assert fields.pop("renewTime")
    assert fields == {
        "leaseName": LEASE,
        "binaryVersion": "1.5.0",
        "emulationVersion": "1.4.0",
        "strategy": "OldestEmulationVersion",
    }
    candidacy.withdraw()
    assert spec() == {}


@pytest.mark.rule("LE-22")
def test_a_candidate_answers_each_ping_and_is_created_again(
    client: Client, candidacy: Candidacy, spec: Callable[[], dict[str, Any]]
) -> None:
    candidates = client.resource(LEASE_CANDIDATES)
    candidacy.start()
    wait_for("the candidate", spec, LIMIT)
    for _ in range(2):
        before = spec()["renewTime"]
        ping = {"spec": {"pingTime": format_micro_time(SYSTEM_CLOCK.now())}}
        candidates.patch(IDENTITY, ping, NAMESPACE)
        wait_for("a renewal", partial(_is_renewed, spec, before), LIMIT)
    candidates.delete(IDENTITY, NAMESPACE)
    wait_for("the candidate", spec, LIMIT)


@pytest.mark.rule("LE-22")
def test_a_lease_without_a_holder_gets_a_placeholder_first(
    client: Client, candidacy: Candidacy, spec: Callable[[], dict[str, Any]]
) -> None:
    """The API server of Kubernetes 1.36 panics for a candidate of a lease without a holder."""
    leases = client.resource(LEASES)
    leases.create({"metadata": {"name": LEASE}, "spec": {"leaseTransitions": 3}}, NAMESPACE)
    candidacy.start()
    wait_for("the candidate", spec, LIMIT)
    found = leases.get(LEASE, NAMESPACE)["spec"]
    assert isinstance(found, dict)
    assert (found["holderIdentity"], found["leaseTransitions"]) == ("nobody", 3)


def _is_renewed(spec: Callable[[], dict[str, Any]], before: str) -> bool:
    return str(spec()["renewTime"]) > before
