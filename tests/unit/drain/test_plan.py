"""What happens to each pod: the rules of kubectl, without its faults."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from navarchos.client.selectors import Selector
from navarchos.drain import DrainOptions, Pod, PodAction, PodReason, classify

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
MakePod = Callable[..., Pod]


def exists(namespace: str, name: str) -> bool:
    return True


def gone(namespace: str, name: str) -> bool:
    return False


def finding(
    pod: Pod, options: DrainOptions, found: Callable[[str, str], bool] = exists
) -> tuple[PodAction, PodReason]:
    plan = classify([pod], options, found, now=NOW)
    (planned,) = (*plan.evict, *plan.wait, *plan.ignore, *plan.refuse)
    return planned.finding.action, planned.finding.reason


TABLE: list[tuple[str, dict[str, Any], dict[str, Any], PodAction, PodReason]] = [
    ("a pod of a controller", {}, {}, PodAction.EVICT, PodReason.ORDINARY),
    ("a bare pod", {"owner": None}, {}, PodAction.REFUSE, PodReason.UNMANAGED),
    ("a bare pod, forced", {"owner": None}, {"force": True}, PodAction.EVICT, PodReason.UNMANAGED),
    (
        "a bare pod that has succeeded",
        {"owner": None, "phase": "Succeeded"},
        {},
        PodAction.EVICT,
        PodReason.FINISHED,
    ),
    (
        "a bare pod that has failed, with local data",
        {"owner": None, "phase": "Failed", "empty_dir": True},
        {},
        PodAction.EVICT,
        PodReason.FINISHED,
    ),
    ("local data", {"empty_dir": True}, {}, PodAction.REFUSE, PodReason.LOCAL_STORAGE),
    (
        "local data whose loss is accepted",
        {"empty_dir": True},
        {"delete_empty_dir_data": True},
        PodAction.EVICT,
        PodReason.LOCAL_STORAGE,
    ),
    (
        "local data of a bare pod, only its loss accepted",
        {"empty_dir": True, "owner": None},
        {"delete_empty_dir_data": True},
        PodAction.REFUSE,
        PodReason.UNMANAGED,
    ),
    ("a static pod", {"mirror": True, "owner": None}, {}, PodAction.IGNORE, PodReason.MIRROR),
    (
        "a static pod, forced",
        {"mirror": True, "owner": None},
        {"force": True},
        PodAction.IGNORE,
        PodReason.MIRROR,
    ),
    (
        "a bare pod that terminates needs no option",
        {"owner": None, "terminating_at": "2026-01-01T12:00:30Z"},
        {},
        PodAction.WAIT,
        PodReason.TERMINATING,
    ),
    (
        "terminating for long, waited for by default",
        {"terminating_at": "2026-01-01T11:00:00Z"},
        {},
        PodAction.WAIT,
        PodReason.TERMINATING,
    ),
    (
        "terminating for longer than the drain waits",
        {"terminating_at": "2026-01-01T11:59:49Z"},
        {"skip_wait_for_delete_timeout": 10.0},
        PodAction.IGNORE,
        PodReason.TERMINATING_TOO_LONG,
    ),
    (
        "the wait counts from the end of the grace period",
        {"terminating_at": "2026-01-01T11:59:50Z"},
        {"skip_wait_for_delete_timeout": 10.0},
        PodAction.WAIT,
        PodReason.TERMINATING,
    ),
]


@pytest.mark.rule("OP-42")
@pytest.mark.rule("OP-45")
@pytest.mark.parametrize(
    ("facts", "options", "action", "reason"),
    [row[1:] for row in TABLE],
    ids=[row[0] for row in TABLE],
)
def test_each_pod_gets_the_action_that_kubectl_gives_it(
    make_pod: MakePod,
    facts: dict[str, Any],
    options: dict[str, Any],
    action: PodAction,
    reason: PodReason,
) -> None:
    assert finding(make_pod(**facts), DrainOptions(**options)) == (action, reason)


@pytest.mark.rule("OP-42")
@pytest.mark.parametrize(
    ("found", "options", "phase", "expected"),
    [
        (exists, {}, "Running", (PodAction.REFUSE, PodReason.DAEMON_SET_NOT_IGNORED)),
        (exists, {"ignore_daemon_sets": True}, "Running", (PodAction.IGNORE, PodReason.DAEMON_SET)),
        (
            exists,
            {"ignore_daemon_sets": True, "force": True},
            "Running",
            (PodAction.IGNORE, PodReason.DAEMON_SET),
        ),
        (
            gone,
            {"ignore_daemon_sets": True},
            "Running",
            (PodAction.REFUSE, PodReason.DAEMON_SET_GONE),
        ),
        (gone, {"force": True}, "Running", (PodAction.EVICT, PodReason.DAEMON_SET_GONE)),
        (exists, {}, "Succeeded", (PodAction.EVICT, PodReason.FINISHED)),
        (gone, {}, "Failed", (PodAction.EVICT, PodReason.FINISHED)),
    ],
)
def test_a_pod_of_a_daemon_set_stays_unless_the_daemon_set_is_gone(
    make_pod: MakePod,
    daemon_set: Mapping[str, Any],
    found: Callable[[str, str], bool],
    options: dict[str, Any],
    phase: str,
    expected: tuple[PodAction, PodReason],
) -> None:
    pod = make_pod(owner=daemon_set, phase=phase)
    assert finding(pod, DrainOptions(**options), found) == expected


def test_a_terminating_pod_of_a_deleted_daemon_set_is_waited_for(
    make_pod: MakePod, daemon_set: Mapping[str, Any]
) -> None:
    pod = make_pod(owner=daemon_set, terminating_at="2026-01-01T12:00:30Z")
    options = DrainOptions(ignore_daemon_sets=True)
    assert finding(pod, options, gone) == (PodAction.WAIT, PodReason.TERMINATING)
    assert finding(pod, options, exists) == (PodAction.IGNORE, PodReason.DAEMON_SET)


def test_only_a_daemon_set_of_apps_v1_counts_as_one(make_pod: MakePod) -> None:
    owner = {"apiVersion": "example.org/v1", "kind": "DaemonSet", "name": "x", "uid": "x"}
    assert finding(make_pod(owner=owner), DrainOptions()) == (PodAction.EVICT, PodReason.ORDINARY)


def test_a_failed_look_up_of_a_daemon_set_fails_the_plan(
    make_pod: MakePod, daemon_set: Mapping[str, Any]
) -> None:
    def broken(namespace: str, name: str) -> bool:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        classify([make_pod(owner=daemon_set)], DrainOptions(), broken, now=NOW)


@pytest.mark.rule("OP-42")
def test_the_pod_selector_also_excludes_pods_that_would_be_refused(
    make_pod: MakePod,
) -> None:
    only = DrainOptions(pod_selector=Selector.parse("app=web"))
    assert finding(make_pod(owner=None), only) == (PodAction.IGNORE, PodReason.NOT_SELECTED)
    assert finding(make_pod(labels={"app": "web"}), only) == (PodAction.EVICT, PodReason.ORDINARY)


def test_a_refusal_names_the_field_that_would_allow_the_eviction(
    make_pod: MakePod, daemon_set: Mapping[str, Any]
) -> None:
    pods = [
        make_pod("bare", owner=None),
        make_pod("data", empty_dir=True),
        make_pod("agent", owner=daemon_set),
    ]
    plan = classify(pods, DrainOptions(), exists, now=NOW)
    messages = {planned.name: planned.finding.message for planned in plan.refuse}
    assert "force: true" in messages["default/bare"]
    assert "deleteEmptyDirData: true" in messages["default/data"]
    assert "ignoreDaemonSets: true" in messages["default/agent"]


@pytest.mark.rule("N-19")
def test_system_critical_pods_come_last_and_the_order_is_stable(make_pod: MakePod) -> None:
    pods = [
        make_pod("dns", "a", priority_class="system-cluster-critical"),
        make_pod("b", "z"),
        make_pod("a", "z"),
        make_pod("c", "b"),
    ]
    for given_pods in (pods, pods[::-1]):
        plan = classify(given_pods, DrainOptions(), exists, now=NOW)
        assert [planned.name for planned in plan.evict] == ["b/c", "z/a", "z/b", "a/dns"]


facts = st.fixed_dictionaries(
    {
        "owner": st.sampled_from([None, "ReplicaSet", "DaemonSet"]),
        "phase": st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Unknown"]),
        "empty_dir": st.booleans(),
        "mirror": st.booleans(),
        "terminating_at": st.sampled_from(["", "2026-01-01T11:00:00Z", "2026-01-01T13:00:00Z"]),
        "labels": st.sampled_from([{}, {"app": "web"}]),
        "priority_class": st.sampled_from(["", "system-node-critical"]),
    }
)
options_ = st.builds(
    DrainOptions,
    force=st.booleans(),
    ignore_daemon_sets=st.booleans(),
    delete_empty_dir_data=st.booleans(),
    skip_wait_for_delete_timeout=st.sampled_from([0.0, 60.0]),
    pod_selector=st.sampled_from([Selector.everything(), Selector.parse("app=web")]),
)


@pytest.mark.rule("OP-42")
@given(many=st.lists(facts, max_size=12), options=options_, present=st.booleans())
def test_every_pod_is_in_exactly_one_group(
    make_pod: MakePod, many: list[dict[str, Any]], options: DrainOptions, present: bool
) -> None:
    pods = []
    for number, fact in enumerate(many):
        kind = fact["owner"]
        owner = kind and {"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "o"}
        pods.append(make_pod(f"p{number}", **{**fact, "owner": owner}))
    plan = classify(pods, options, lambda _, __: present, now=NOW)
    grouped = [*plan.evict, *plan.wait, *plan.ignore, *plan.refuse]
    assert sorted(planned.uid for planned in grouped) == sorted(pod.metadata.uid for pod in pods)
    assert plan.is_drained == (len(plan.to_go) == 0)
    # With any options: a static pod, which only its kubelet can end, is never evicted, and
    # neither is a pod that terminates.
    for planned in plan.evict:
        assert not planned.pod.is_terminating
        assert not planned.pod.is_mirror
