"""Who has cordoned a node, by its `managedFields`."""

from typing import Any

import msgspec
import pytest

from navarchos.operator.drains.cordon import OwnedNode, is_cordoned_by_others

CORDON: dict[str, Any] = {"f:spec": {"f:unschedulable": {}}}
LABELS: dict[str, Any] = {"f:metadata": {"f:labels": {"f:a": {}}}}


def node(*owners: tuple[str, dict[str, Any]]) -> OwnedNode:
    entries = [{"manager": manager, "fieldsV1": fields} for manager, fields in owners]
    wire = {"metadata": {"name": "n1", "managedFields": entries}, "spec": {"unschedulable": True}}
    return msgspec.convert(wire, OwnedNode)


@pytest.mark.rule("OP-41")
@pytest.mark.parametrize(
    ("owners", "others"),
    [
        ((), False),
        ((("navarchos-manager", CORDON), ("kubectl", LABELS)), False),
        ((("kubectl", CORDON), ("navarchos-manager", LABELS)), True),
        ((("navarchos-manager", CORDON), ("argocd", CORDON)), True),
        ((("before-first-apply", CORDON), ("argocd", LABELS)), False),
        ((("kubelet", {"f:spec": {"f:podCIDR": {}}}),), False),
    ],
    ids=["not-recorded", "ours", "another-client", "shared", "no-owner", "other-field"],
)
def test_a_cordon_belongs_to_another_client_that_has_set_it_too(
    owners: tuple[tuple[str, dict[str, Any]], ...], others: bool
) -> None:
    assert is_cordoned_by_others(node(*owners)) is others
