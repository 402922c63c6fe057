"""Roles grant exactly the declared permissions, each once."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from navarchos.client import Resource
from navarchos.client.owners import owner_reference
from navarchos.client.rbac import VERBS, PolicyRule, block_owner_deletion_rbac
from navarchos.errors import ConfigError
from navarchos.informers.source import informer_rbac
from navarchos.leaderelection import lease_rbac
from navarchos.meta import ObjectMeta
from navarchos.runtime.rbac import Subject, policy_rules, role, role_binding

PODS = Resource("", "v1", "pods", "Pod", namespaced=True, type=dict)
NODES = Resource("", "v1", "nodes", "Node", namespaced=False, type=dict)
WIDGETS = Resource("example.com", "v1", "widgets", "Widget", namespaced=True, type=dict)


def test_kinds_of_one_group_share_a_rule_when_the_verbs_are_the_same() -> None:
    assert policy_rules([*informer_rbac(PODS), *informer_rbac(NODES)]) == [
        {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["list", "watch"]}
    ]


def test_groups_never_share_a_rule() -> None:
    """It would grant kinds that exist in neither, or in the wrong one."""
    groups = [rule["apiGroups"] for rule in policy_rules(informer_rbac(PODS, WIDGETS))]
    assert groups == [[""], ["example.com"]]


def test_permissions_of_several_parts_are_granted_once_with_reads_first() -> None:
    rights = [
        PolicyRule(PODS, ("delete",)),
        PolicyRule(PODS, ("watch", "list")),
        PolicyRule(PODS, ("list",)),
    ]
    assert policy_rules(rights) == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch", "delete"]}
    ]


def test_a_subresource_is_granted_separately() -> None:
    (rule,) = policy_rules([PolicyRule(PODS, ("create",), subresource="eviction")])
    assert rule["resources"] == ["pods/eviction"]


def test_a_projection_makes_no_difference() -> None:
    slim = PODS.projected(ObjectMeta)
    assert policy_rules([PolicyRule(slim, ("get",)), PolicyRule(PODS, ("get",))]) == policy_rules(
        [PolicyRule(PODS, ("get",))]
    )


def test_names_are_left_out_where_all_objects_are_granted() -> None:
    rights = [PolicyRule(PODS, ("get", "patch"), names=("a",)), PolicyRule(PODS, ("get",))]
    assert policy_rules(rights) == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"], "verbs": ["patch"]},
    ]


def test_names_with_the_same_verbs_share_a_rule() -> None:
    rights = [PolicyRule(PODS, ("get",), names=("b",)), PolicyRule(PODS, ("get",), names=("a",))]
    (rule,) = policy_rules(rights)
    assert rule["resourceNames"] == ["a", "b"]


def test_a_lease_is_created_under_any_name_and_then_only_it_is_touched() -> None:
    """RBAC is asked before a new object has a name."""
    create, others = policy_rules(lease_rbac("mine"))
    assert create["verbs"] == ["create"]
    assert "resourceNames" not in create
    assert others["resourceNames"] == ["mine"]
    assert others["verbs"] == ["get", "list", "watch", "update"]


def test_owning_with_a_hold_on_deletion_takes_a_right_that_no_request_shows() -> None:
    owner = {"metadata": {"name": "w", "uid": "1"}}
    reference = owner_reference(owner, WIDGETS)
    right = block_owner_deletion_rbac(WIDGETS)
    assert reference.block_owner_deletion
    assert right.asked_by_admission
    assert policy_rules([right]) == [
        {"apiGroups": ["example.com"], "resources": ["widgets/finalizers"], "verbs": ["update"]}
    ]


@pytest.mark.parametrize("verbs", [(), ("*",), ("get", "evict")])
def test_verbs_are_named_one_by_one(verbs: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="must be one of get, list, watch"):
        PolicyRule(PODS, verbs)  # type: ignore[arg-type]  # what a caller without types writes


def test_creating_cannot_be_limited_to_names() -> None:
    with pytest.raises(ConfigError, match="cannot limit `create` to names"):
        PolicyRule(PODS, ("create",), names=("a",))


RULES = st.builds(
    PolicyRule,
    st.sampled_from([PODS, NODES, WIDGETS]),
    st.lists(st.sampled_from([v for v in VERBS if v != "create"]), min_size=1).map(tuple),
    subresource=st.sampled_from(["", "status"]),
    names=st.sampled_from([(), ("a",), ("b",), ("a", "b")]),
)
Grant = tuple[str, str, str, str]
"""A group, a kind, a verb, and the name of an object; `*` for all."""


def grants(rules: list[dict[str, list[str]]]) -> list[Grant]:
    return [
        grant
        for rule in rules
        for grant in itertools.product(
            rule["apiGroups"], rule["resources"], rule["verbs"], rule.get("resourceNames", ["*"])
        )
    ]


@given(st.lists(RULES, max_size=8))
def test_rules_grant_exactly_what_was_declared_and_nothing_twice(rights: list[PolicyRule]) -> None:
    declared = {
        (right.resource.group, right.target, verb, name)
        for right in rights
        for verb in right.verbs
        for name in right.names or ("*",)
    }
    wanted = {g for g in declared if g[3] == "*" or (*g[:3], "*") not in declared}
    found = grants(policy_rules(rights))
    assert len(found) == len(set(found))
    assert set(found) == wanted


@given(st.lists(RULES, max_size=8), st.randoms(use_true_random=False))
def test_the_order_of_declarations_makes_no_difference(
    rights: list[PolicyRule], random: object
) -> None:
    shuffled = list(rights)
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis hands out a Random
    assert policy_rules(shuffled) == policy_rules(rights)


def test_a_role_without_a_namespace_is_one_of_the_cluster() -> None:
    made = role("w", informer_rbac(PODS), labels={"app": "w"})
    assert made["kind"] == "ClusterRole"
    assert made["metadata"] == {"name": "w", "labels": {"app": "w"}}


def test_a_binding_refers_to_the_role_of_its_name_and_scope() -> None:
    cluster = role_binding("w", Subject("account", "tools"))
    assert cluster["kind"] == "ClusterRoleBinding"
    role_ref = cluster["roleRef"]
    assert isinstance(role_ref, dict)
    assert role_ref["kind"] == "ClusterRole"
    local = role_binding("w", Subject("account", "tools"), namespace="apps")
    assert local["kind"] == "RoleBinding"
    assert local["metadata"] == {"name": "w", "namespace": "apps"}
    assert local["roleRef"] == {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "Role",
        "name": "w",
    }
    assert local["subjects"] == [
        {"kind": "ServiceAccount", "name": "account", "namespace": "tools"}
    ]
