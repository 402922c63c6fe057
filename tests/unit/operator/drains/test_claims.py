"""Who has closed a node, by the server's own books."""

from typing import Any

import msgspec
import pytest

from navarchos.operator.drains.claims import ClaimedNode, is_closed_by_others

CORDON = {"f:spec": {"f:unschedulable": {}}}
LABELS = {"f:metadata": {"f:labels": {"f:a": {}}}}


def node(*claims: tuple[str, dict[str, Any]]) -> ClaimedNode:
    entries = [{"manager": manager, "fieldsV1": fields} for manager, fields in claims]
    wire = {"metadata": {"name": "n1", "managedFields": entries}, "spec": {"unschedulable": True}}
    return msgspec.convert(wire, ClaimedNode)


@pytest.mark.rule("OP-41")
@pytest.mark.parametrize(
    ("claims", "others"),
    [
        ((), False),
        ((("navarchos-manager", CORDON), ("kubectl", LABELS)), False),
        ((("kubectl", CORDON), ("navarchos-manager", LABELS)), True),
        ((("navarchos-manager", CORDON), ("argocd", CORDON)), True),
        ((("before-first-apply", CORDON), ("argocd", LABELS)), False),
        ((("kubelet", {"f:spec": {"f:podCIDR": {}}}),), False),
    ],
    ids=["no-books", "ours", "anothers", "shared", "nobodys", "untold"],
)
def test_a_cordon_belongs_to_whoever_else_has_a_part_in_it(
    claims: tuple[tuple[str, dict[str, Any]], ...], others: bool
) -> None:
    assert is_closed_by_others(node(*claims)) is others
