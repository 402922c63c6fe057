"""Clusters with one fault each, and for each fault a healthy twin.

`navarchos plan` must find every fault, and must find nothing in a healthy twin.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from tests.unit.operator.preflight.conftest import Cluster

from navarchos.operator.api.v1alpha1 import GROUP
from navarchos.operator.preflight import PlanFinding, PredictedRollout, Severity
from navarchos.testing.apiserver import Fault

Make = Callable[[], Cluster]
Prepare = Callable[[Cluster, bool], None]
"""Adds a fault to a cluster; or, if the flag is False, the most similar healthy state."""

FAULTS: dict[str, tuple[str, Severity, Prepare]] = {}
ON_SERVER: set[str] = set()
"""The faults that are only found on a server."""

HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
CONTROL_PLANE = {"node-role.kubernetes.io/control-plane": ""}
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


def fault(
    reason: str, severity: Severity, *, on_server: bool = False
) -> Callable[[Prepare], Prepare]:
    def register(prepare: Prepare) -> Prepare:
        FAULTS[prepare.__name__] = (reason, severity, prepare)
        if on_server:
            ON_SERVER.add(prepare.__name__)
        return prepare

    return register


def planned(name: str, cluster: Cluster, *, broken: bool) -> PredictedRollout:
    FAULTS[name][2](cluster, broken)
    return cluster.plan_on_server() if name in ON_SERVER else cluster.plan()


@fault("BudgetNeverAllows", Severity.BLOCKS)
def impossible_budget(cluster: Cluster, broken: bool) -> None:
    cluster.budget("web", healthy=2, desired=2 if broken else 1)


@fault("BudgetExhausted", Severity.DELAYS)
def exhausted_budget(cluster: Cluster, broken: bool) -> None:
    cluster.budget("web", healthy=2 if broken else 3, desired=2, expected=3)


@fault("BudgetNotObserved", Severity.DELAYS)
def unprocessed_budget(cluster: Cluster, broken: bool) -> None:
    cluster.budget("web", healthy=2, desired=1, observed=0 if broken else 1)


@fault("MultipleBudgets", Severity.BLOCKS)
def two_budgets_of_one_pod(cluster: Cluster, broken: bool) -> None:
    cluster.budget("second", app="web" if broken else "second", healthy=2, desired=1)


@fault("UnhealthyPodHeld", Severity.DELAYS)
def unready_pod_with_a_budget(cluster: Cluster, broken: bool) -> None:
    cluster.pod("web-1", app="web", ready=False)
    policy = "IfHealthyBudget" if broken else "AlwaysAllow"
    cluster.budget("web", healthy=1, desired=2, expected=3, policy=policy)


@fault("UnmanagedPod", Severity.BLOCKS)
def pod_without_a_controller(cluster: Cluster, broken: bool) -> None:
    cluster.pod("bare", owner=None if broken else ("example.org/v1", "Replicas", "bare"))


@fault("LocalStorage", Severity.BLOCKS)
def local_data(cluster: Cluster, broken: bool) -> None:
    cluster.spec["drain"] = {"deleteEmptyDirData": False}
    volume = {"name": "v", "emptyDir": {}} if broken else {"name": "v", "configMap": {"name": "c"}}
    cluster.pod("cache", volumes=[volume])


@fault("DaemonSetGone", Severity.BLOCKS)
def pod_of_a_deleted_daemon_set(cluster: Cluster, broken: bool) -> None:
    cluster.pod("late", owner=("apps/v1", "DaemonSet", "gone" if broken else "logs"))


@fault("DaemonSetNotIgnored", Severity.BLOCKS)
def daemon_set_that_is_not_ignored(cluster: Cluster, broken: bool) -> None:
    cluster.spec["drain"] = {"ignoreDaemonSets": not broken}


@fault("NoCapacity", Severity.DELAYS)
def no_capacity_for_one_pod(cluster: Cluster, broken: bool) -> None:
    cluster.node("old", "a", cpu="16")
    cluster.pod("big", cpu="4500m" if broken else "3500m")


@fault("NoCapacity", Severity.DELAYS)
def no_capacity_for_all_pods_together(cluster: Cluster, broken: bool) -> None:
    cluster.node("old", "a", cpu="16")
    for name in ("one", "two", "three"):
        cluster.pod(name, cpu="3" if broken else "1500m")


@fault("NoOtherNode", Severity.DELAYS)
def labels_that_no_other_node_has(cluster: Cluster, broken: bool) -> None:
    cluster.node("old", "a", labels={"disk": "ssd"})
    cluster.node("far", "b", labels={} if broken else {"disk": "ssd"})
    cluster.pod("picky", nodeSelector={"disk": "ssd"})


@fault("NoOtherNode", Severity.BLOCKS)
def pod_that_names_its_node(cluster: Cluster, broken: bool) -> None:
    values = ["old"] if broken else ["old", "far"]
    term = {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": values}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    cluster.pod("pinned", affinity={"nodeAffinity": required})


@fault("NoOtherNode", Severity.DELAYS)
def taints_on_all_other_nodes(cluster: Cluster, broken: bool) -> None:
    taint = {"key": "team", "value": "b", "effect": "NoSchedule"}
    cluster.node("other", "a", taints=[taint])
    cluster.node("far", "b", taints=[taint if broken else {**taint, "effect": "PreferNoSchedule"}])


@fault("NoOtherNode", Severity.DELAYS)
def as_many_replicas_as_nodes(cluster: Cluster, broken: bool) -> None:
    term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": "db"}}}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    for node in ("old", "other", "far") if broken else ("old", "other"):
        cluster.pod(f"db-{node}", node, app="db", affinity=apart)


@fault("NoOtherNode", Severity.DELAYS)
def pods_that_exclude_others_from_their_nodes(cluster: Cluster, broken: bool) -> None:
    term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": "web"}}}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    for node in ("other", "far") if broken else ("other",):
        cluster.pod(f"db-{node}", node, app="db", affinity=apart)


@fault("NoOtherNode", Severity.DELAYS)
def cordons_on_all_other_nodes(cluster: Cluster, broken: bool) -> None:
    cluster.node("other", "a", unschedulable=True)
    cluster.node("far", "b", unschedulable=True)
    key = "node.kubernetes.io/unschedulable"
    tolerations = [] if broken else [{"key": key, "operator": "Exists"}]
    cluster.pod("web-1", app="web", tolerations=tolerations)


def _volume(cluster: Cluster, key: str, value: str) -> None:
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
    cluster.add(
        "v1",
        "PersistentVolume",
        "disk",
        "",
        spec={
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "csi": {"driver": "csi.example.org", "volumeHandle": "1"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        },
    )
    claim = {
        "volumeName": "disk",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    cluster.add("v1", "PersistentVolumeClaim", "disk", spec=claim)
    cluster.pod("db", volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": "disk"}}])


@fault("VolumeBound", Severity.DELAYS)
def volume_in_a_zone_without_another_node(cluster: Cluster, broken: bool) -> None:
    cluster.node("other", "b" if broken else "a")
    _volume(cluster, ZONE, "a")


@fault("VolumeBound", Severity.BLOCKS)
def volume_on_the_node_itself(cluster: Cluster, broken: bool) -> None:
    _volume(cluster, HOSTNAME if broken else ZONE, "old" if broken else "a")


@fault("DoNotEvict", Severity.NOTE)
def pod_with_a_do_not_evict_annotation(cluster: Cluster, broken: bool) -> None:
    annotations = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false" if broken else "true"}
    cluster.pod("job", metadata={"annotations": annotations})


@fault("NamespaceTerminating", Severity.DELAYS)
def namespace_that_is_being_deleted(cluster: Cluster, broken: bool) -> None:
    deletion = {"deletionTimestamp": "2026-01-01T11:30:00Z"} if broken else {}
    spec = {"finalizers": ["kubernetes"]}
    cluster.add("v1", "Namespace", "shop", "", metadata=deletion, spec=spec)


@fault("WebhookDenied", Severity.BLOCKS, on_server=True)
def webhook_that_denies_evictions(cluster: Cluster, broken: bool) -> None:
    rule = {"apiGroups": [""], "operations": ["CREATE"], "resources": ["pods/eviction"]}
    hook = {"metadata": {"name": "guard"}, "webhooks": [{"name": "guard", "rules": [rule]}]}
    cluster.answers[WEBHOOKS] = (200, {"metadata": {}, "items": [hook]})
    if broken:
        message = 'admission webhook "guard" denied the request: not now'
        cluster.faults.append(Fault(verb="evict", status=403, message=message, times=None))


@fault("LongGracePeriod", Severity.DELAYS)
def grace_period_beyond_the_timeout(cluster: Cluster, broken: bool) -> None:
    cluster.pod("slow", terminationGracePeriodSeconds=1800 if broken else 600)


@fault("PodFinalizer", Severity.DELAYS)
def finalizer_on_a_pod(cluster: Cluster, broken: bool) -> None:
    held = "example.org/backup" if broken else "batch.kubernetes.io/job-tracking"
    cluster.pod("held", metadata={"finalizers": [held]})


@fault("StuckTerminating", Severity.DELAYS)
def pod_that_does_not_terminate(cluster: Cluster, broken: bool) -> None:
    at = datetime.now(UTC) + timedelta(seconds=-600 if broken else 20)
    deletion = {"deletionTimestamp": f"{at:%Y-%m-%dT%H:%M:%SZ}", "deletionGracePeriodSeconds": 30}
    cluster.pod("going", metadata=deletion)


@fault("NodeNotReady", Severity.DELAYS)
def node_that_is_not_ready(cluster: Cluster, broken: bool) -> None:
    cluster.node("old", "a", ready=not broken)


@fault("CordonedBefore", Severity.NOTE)
def foreign_cordon(cluster: Cluster, broken: bool) -> None:
    cluster.node("old", "a", unschedulable=broken)


@fault("NodeBusy", Severity.NOTE)
def two_rollouts_of_one_node(cluster: Cluster, broken: bool) -> None:
    cluster.rollout("first", nodeNames=[{"name": "old"}])
    cluster.add(
        f"{GROUP}/v1alpha1",
        "NodeReplacement",
        "first-old",
        "",
        spec={"nodeName": "old" if broken else "far"},
    )


@fault("NodeNotFound", Severity.NOTE)
def name_of_no_node(cluster: Cluster, broken: bool) -> None:
    cluster.spec["nodeNames"].append({"name": "typo" if broken else "far"})


@fault("SelectorMatchesNothing", Severity.NOTE)
def selector_that_matches_nothing(cluster: Cluster, broken: bool) -> None:
    cluster.spec["nodeSelectors"] = [{"matchLabels": {ZONE: "z" if broken else "b"}}]


@fault("NothingMayStart", Severity.BLOCKS)
def max_concurrent_of_zero(cluster: Cluster, broken: bool) -> None:
    cluster.spec["strategy"] = {"maxConcurrent": 0 if broken else 1}


@fault("NothingMayStart", Severity.NOTE)
def percentage_that_rounds_to_zero(cluster: Cluster, broken: bool) -> None:
    cluster.spec["strategy"] = {"maxConcurrent": "0%" if broken else "1%"}


@fault("ControlPlaneAlone", Severity.NOTE)
def single_control_plane_node(cluster: Cluster, broken: bool) -> None:
    cluster.node("old", "a", labels=CONTROL_PLANE)
    cluster.node("far", "b", labels={} if broken else CONTROL_PLANE)


@fault("ControlPlaneNotReady", Severity.DELAYS)
def control_plane_node_that_is_not_ready(cluster: Cluster, broken: bool) -> None:
    cluster.node("old", "a", labels=CONTROL_PLANE)
    cluster.node("other", "a", labels=CONTROL_PLANE)
    cluster.node("far", "b", labels=CONTROL_PLANE, ready=not broken)


@fault("Forbidden", Severity.BLOCKS, on_server=True)
def manager_without_permissions(cluster: Cluster, broken: bool) -> None:
    cluster.add("v1", "ServiceAccount", "navarchos", "kube-system")
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    cluster.answers[path] = (201, {"metadata": {}, "status": {"allowed": not broken}})


@fault("NoEvictionApi", Severity.NOTE, on_server=True)
def server_without_evictions(cluster: Cluster, broken: bool) -> None:
    if broken:
        cluster.answers["/api/v1"] = (200, {"kind": "APIResourceList", "resources": []})


@fault("ManagerNotRunning", Severity.DELAYS, on_server=True)
def manager_with_an_expired_lease(cluster: Cluster, broken: bool) -> None:
    renewed = datetime.now(UTC) - timedelta(seconds=600 if broken else 5)
    spec = {
        "holderIdentity": "navarchos-1",
        "leaseDurationSeconds": 15,
        "renewTime": f"{renewed:%Y-%m-%dT%H:%M:%S.%fZ}",
    }
    name = "navarchos-leader-election"
    cluster.add("coordination.k8s.io/v1", "Lease", name, "kube-system", spec=spec)


@fault("NotChecked", Severity.NOTE, on_server=True)
def caller_without_a_permission(cluster: Cluster, broken: bool) -> None:
    if broken:
        cluster.faults.append(
            Fault(verb="list", resource="persistentvolumes", status=403, times=None)
        )


def found(predicted: PredictedRollout) -> list[PlanFinding]:
    return [*predicted.findings, *(f for node in predicted.nodes for f in node.findings)]


def reasons(predicted: PredictedRollout) -> set[tuple[str, Severity]]:
    return {(finding.reason, finding.severity) for finding in found(predicted)}


def test_there_are_at_least_twenty_faults() -> None:
    assert len(FAULTS) >= 20


@fault("DrainHook", Severity.NOTE)
def pod_with_a_hook(cluster: Cluster, broken: bool) -> None:
    annotations = {f"{GROUP}/drain-hook": "ingress" if broken else ""}
    cluster.pod("web-2", app="web", metadata={"annotations": annotations})


@fault("NodePrepared", Severity.NOTE)
def rollout_that_prepares_its_nodes(cluster: Cluster, broken: bool) -> None:
    cluster.spec["drain"] = {"prepare": {"settleSeconds": 30 if broken else 0}}


@pytest.mark.rule("IG-77")
@fault("ReplacedFirst", Severity.NOTE, on_server=True)
def single_replica_that_is_replaced_first(cluster: Cluster, broken: bool) -> None:
    """Its budget allows no eviction, and does not delay the pod."""
    labels = {"app": "one"}
    container = {"name": "c", "image": "i"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {
        "replicas": 1 if broken else 2,
        "selector": {"matchLabels": labels},
        "template": template,
    }
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "one", "uid": "uid-one"}
    cluster.add("apps/v1", "Deployment", "one", metadata={"uid": "uid-one"}, spec=spec)
    owners = {"uid": "uid-ReplicaSet-one", "ownerReferences": [{**owner, "controller": True}]}
    cluster.add("apps/v1", "ReplicaSet", "one", metadata=owners, spec=spec)
    cluster.pod("one-1", app="one", owner=("apps/v1", "ReplicaSet", "one"))
    cluster.budget("one", healthy=1 if broken else 2, desired=1)
    cluster.spec["drain"] = {"replaceFirst": "SingleReplica"}


@pytest.mark.rule("IG-77")
def test_a_permission_that_users_grant_is_checked_where_it_is_needed(make_cluster: Make) -> None:
    cluster = make_cluster()
    manager_without_permissions(cluster, True)
    assert reasons(cluster.plan_on_server()) == {("Forbidden", Severity.BLOCKS)}
    cluster.spec["drain"] = {"replaceFirst": "SingleReplica"}
    messages = {finding.severity: finding.message for finding in found(cluster.plan_on_server())}
    assert messages.keys() == {Severity.BLOCKS, Severity.DELAYS}
    assert "patch deployments, which drain.replaceFirst needs" in messages[Severity.DELAYS]


@pytest.mark.parametrize("name", FAULTS)
def test_every_prepared_fault_is_found(name: str, make_cluster: Make) -> None:
    reason, severity, _ = FAULTS[name]
    predicted = planned(name, make_cluster(), broken=True)
    assert reasons(predicted) == {(reason, severity)}
    assert predicted.is_blocked is (severity is Severity.BLOCKS)
    assert all(finding.message and finding.next_action for finding in found(predicted))


@pytest.mark.parametrize("name", FAULTS)
def test_the_healthy_twin_of_every_fault_gives_no_alarm(name: str, make_cluster: Make) -> None:
    assert found(planned(name, make_cluster(), broken=False)) == []


def test_no_fault_is_found_on_another_node(make_cluster: Make) -> None:
    """One node has all faults of pods; the rollout replaces another node."""
    cluster = make_cluster()
    impossible_budget(cluster, True)
    pod_without_a_controller(cluster, True)
    pod_of_a_deleted_daemon_set(cluster, True)
    pod_that_names_its_node(cluster, True)
    pod_with_a_do_not_evict_annotation(cluster, True)
    finalizer_on_a_pod(cluster, True)
    grace_period_beyond_the_timeout(cluster, True)
    cluster.spec["nodeNames"] = [{"name": "far"}]
    assert found(cluster.plan()) == []


def test_a_plan_sends_few_requests(make_cluster: Make) -> None:
    """One list for each kind, and one dry run for each workload, not for each pod."""
    cluster = make_cluster()
    webhook_that_denies_evictions(cluster, False)
    for number in range(30):
        cluster.pod(f"many-{number}", app="many", owner=("example.org/v1", "Replicas", "many"))
    cluster.plan_on_server()
    assert cluster.requests.get("evict", 0) == 2  # for `web` and for `many`
    assert cluster.requests.get("list", 0) <= 12
    assert cluster.requests.get("delete", 0) == 0
