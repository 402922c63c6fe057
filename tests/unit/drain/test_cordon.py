import pytest

from navarchos.client.bodies import merge_apply
from navarchos.drain import CordonState, cordon_patch, cordon_state, uncordon_patch

KEY = "example.org/cordoned-by"


@pytest.mark.rule("OP-41")
@pytest.mark.parametrize(
    ("unschedulable", "annotations", "expected"),
    [
        (False, {}, CordonState.OPEN),
        (False, {KEY: "me"}, CordonState.OPEN),
        (True, {}, CordonState.FOREIGN),
        (True, {KEY: "you"}, CordonState.FOREIGN),
        (True, {KEY: "me"}, CordonState.OURS),
    ],
)
def test_a_cordon_is_ours_only_if_the_node_says_so(
    unschedulable: bool, annotations: dict[str, str], expected: CordonState
) -> None:
    state = cordon_state(unschedulable=unschedulable, annotations=annotations, key=KEY, owner="me")
    assert state is expected


def test_without_an_annotation_every_cordon_is_foreign() -> None:
    state = cordon_state(unschedulable=True, annotations={"": ""}, key="", owner="")
    assert state is CordonState.FOREIGN


@pytest.mark.rule("OP-41")
@pytest.mark.rule("N-20")
def test_uncordoning_undoes_exactly_the_changes_of_cordoning() -> None:
    node = {
        "metadata": {"name": "n1", "annotations": {"other": "x"}},
        "spec": {"taints": [{"key": "t"}]},
    }
    cordoned = merge_apply(node, cordon_patch(KEY, "me"))
    assert cordoned == {
        "metadata": {"name": "n1", "annotations": {"other": "x", KEY: "me"}},
        "spec": {"taints": [{"key": "t"}], "unschedulable": True},
    }
    assert merge_apply(cordoned, uncordon_patch(KEY)) == node
