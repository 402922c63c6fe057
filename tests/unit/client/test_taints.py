"""Taints and tolerations."""

import pytest

from navarchos.client.taints import Taint, Toleration, is_tolerated

CORDON = Taint("node.kubernetes.io/unschedulable", effect="NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        (Toleration(operator="Exists"), True),
        (Toleration("node.kubernetes.io/unschedulable", "Exists", effect="NoSchedule"), True),
        (Toleration("node.kubernetes.io/unschedulable", "Exists", effect="NoExecute"), False),
        (Toleration("node.kubernetes.io/unschedulable"), True),
        (Toleration("node.kubernetes.io/unschedulable", value="x"), False),
        (Toleration("other", "Exists"), False),
        (Toleration(), False),
    ],
)
def test_a_toleration_matches_by_key_effect_and_value(
    toleration: Toleration, expected: bool
) -> None:
    assert is_tolerated(CORDON, (toleration,)) is expected
