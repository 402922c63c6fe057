"""A small cluster on the in-process server, observed through the API."""

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from tests.cases.waiting import wait_for

from navarchos.client import (
    Client,
    ClientConfig,
    Conflict,
    ConnectFailed,
    NotFound,
    ResourceClient,
    ServerError,
    TooManyRequests,
)
from navarchos.errors import AlreadyStarted, NotStarted
from navarchos.testing.apiserver import ApiServer, Fault
from navarchos.testing.cluster import Cluster, ClusterOptions, Span
from navarchos.testing.cluster.kinds import (
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    JOBS,
    NODES,
    PODS,
    Node,
    Pod,
)

LIMIT = 30.0
NEVER = Span(1e9, 1e9)
DONE = "example.com/replace"
HOST = "kubernetes.io/hostname"
TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "extra"}},
    "spec": {"containers": [{"name": "c", "image": "c:1"}]},
}


class Play:
    """A cluster, a client, and a way to wait for changes."""

    def __init__(self, server: ApiServer, client: Client, options: dict[str, Any]) -> None:
        self.server = server
        settings: dict[str, Any] = {
            "nodes": 6,
            "pods_per_node": 6,
            "speed": 100.0,
            "terminate_label": DONE,
            "job_pod_run": NEVER,
        }
        self.cluster = Cluster(server, options=ClusterOptions(**{**settings, **options}))
        self.client = client
        self.pods: ResourceClient[Pod] = client.resource(PODS)
        self.nodes: ResourceClient[Node] = client.resource(NODES)

    def start(self, *, cordoned: str = "") -> None:
        """Start the cluster; the scheduler knows a cordon from before the start."""
        self.cluster.populate()
        if cordoned:
            self.cordon(cordoned)
        self.cluster.start()
        assert self.cluster.wait_until_ready(LIMIT)

    def wait_until(self, reached: Callable[[], bool]) -> None:
        wait_for("what the test is about", reached, LIMIT)

    def find(self, **labels: str) -> list[dict[str, Any]]:
        return [
            pod
            for pod in self.server.list("pods")
            if labels.items() <= pod["metadata"].get("labels", {}).items()
        ]

    def ready(self, **labels: str) -> list[dict[str, Any]]:
        return [pod for pod in self.find(**labels) if is_ready(pod)]

    def movable_on(self, node: str) -> list[dict[str, Any]]:
        return [
            pod
            for pod in self.server.list("pods")
            if pod["spec"].get("nodeName") == node and owner_kind(pod) not in {"DaemonSet", "Node"}
        ]

    def evict(self, pod: dict[str, Any]) -> None:
        metadata = pod["metadata"]
        self.pods.evict(metadata["name"], metadata["namespace"], uid=metadata["uid"])

    def cordon(self, node: str, *, on: bool = True) -> None:
        self.nodes.patch(node, {"spec": {"unschedulable": on}})

    def budget(self, name: str) -> dict[str, Any]:
        found = self.server.list("poddisruptionbudgets", group="policy")
        return next(b["status"] for b in found if b["metadata"]["name"] == name)


def is_ready(pod: dict[str, Any]) -> bool:
    if "deletionTimestamp" in pod["metadata"]:
        return False
    conditions = pod["status"].get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def owner_kind(pod: dict[str, Any]) -> str:
    owners = pod["metadata"].get("ownerReferences", [])
    return owners[0]["kind"] if owners else ""


MakePlay = Callable[..., Play]


@pytest.fixture
def make_play() -> Iterator[MakePlay]:
    """Provide a cluster of six nodes; stop it at the end."""
    plays: list[Play] = []
    with ApiServer() as server, a_client(server) as client:

        def make(**options: Any) -> Play:
            plays.append(Play(server, client, options))
            return plays[-1]

        yield make
        for play in plays:
            play.cluster.stop()


def a_client(server: ApiServer) -> Client:
    return Client(ClientConfig(host=server.url, user_agent="a-person"))


@pytest.fixture
def play(make_play: MakePlay) -> Play:
    """Return a running cluster."""
    play = make_play()
    play.start()
    return play


def test_a_populated_cluster_is_settled_and_stays_so(play: Play) -> None:
    # The taint of a cordon shows that the controllers run.
    play.cordon("node-2")
    play.wait_until(lambda: is_tainted(play, "node-2"))
    requests = play.server.requests
    assert (requests["create"], requests["delete"], requests["patch"]) == (0, 0, 2)
    assert len(play.server.list("nodes")) == 6
    assert len(play.ready()) == len(play.server.list("pods")) == 36
    assert play.cluster.violations == []


def test_pods_that_are_evicted_one_by_one_run_elsewhere_in_the_end(make_play: MakePlay) -> None:
    play = make_play()
    play.start(cordoned="node-3")
    before = len(play.server.list("pods"))
    moved = play.movable_on("node-3")
    assert moved
    for pod in moved:
        play.wait_until(lambda pod=pod: may_go(play, pod))  # type: ignore[misc]  # bound now
        play.evict(pod)
    play.wait_until(lambda: not play.movable_on("node-3") and len(play.ready()) == before)
    assert play.cluster.wait_until_ready(LIMIT)
    assert play.cluster.violations == []
    stats = play.cluster.stats
    assert (stats.evictions_granted, stats.evictions_refused) == (len(moved), 0)
    assert stats.pods_moved == len(moved)


def may_go(play: Play, pod: dict[str, Any]) -> bool:
    name = pod["metadata"]["labels"].get("app", "")
    budgets = play.server.list("poddisruptionbudgets", group="policy")
    if not any(b["metadata"]["name"] == name for b in budgets):
        return True
    return bool(play.budget(name)["disruptionsAllowed"])


def test_a_budget_refuses_the_eviction_that_would_break_it(make_play: MakePlay) -> None:
    play = make_play(nodes=12, pods_per_node=8, pod_start=NEVER)
    play.start()
    first, second, _ = play.find(app="api")
    assert play.budget("api")["disruptionsAllowed"] == 1
    play.evict(first)
    with pytest.raises(TooManyRequests) as refused:
        play.evict(second)
    assert [cause.type for cause in refused.value.causes] == ["DisruptionBudget"]
    play.wait_until(lambda: play.budget("api")["currentHealthy"] == 2)
    with pytest.raises(TooManyRequests, match="budget"):
        play.evict(second)
    assert play.budget("api")["desiredHealthy"] == 2
    assert play.cluster.stats.evictions_refused == 2
    assert play.cluster.violations == []


def test_an_eviction_that_nothing_follows_is_forgotten_after_a_while(play: Play) -> None:
    (pod, *_) = play.find(app="ledger")
    status = {
        "disruptionsAllowed": 0,
        "disruptedPods": {pod["metadata"]["name"]: "2026-01-01T00:00:00Z"},
    }
    budgets = play.client.resource(DISRUPTION_BUDGETS)
    budgets.patch("ledger", {"status": status}, "billing", subresource="status")
    play.wait_until(lambda: not play.budget("ledger").get("disruptedPods"))
    assert play.budget("ledger")["disruptionsAllowed"] == 1


def test_the_slot_of_an_eviction_that_was_cut_off_comes_back_after_a_while(play: Play) -> None:
    (pod, *_) = play.find(app="ledger")
    play.server.faults.add(Fault(spend_budget_only=True))
    with pytest.raises(ConnectFailed):
        play.evict(pod)
    assert play.budget("ledger")["disruptionsAllowed"] == 0
    assert list(play.budget("ledger")["disruptedPods"]) == [pod["metadata"]["name"]]
    play.wait_until(lambda: play.budget("ledger")["disruptionsAllowed"] == 1)
    play.evict(pod)


def test_a_pod_that_is_deleted_below_its_budget_is_a_violation(make_play: MakePlay) -> None:
    play = make_play(nodes=12, pods_per_node=8, pod_start=NEVER)
    play.start()
    first, second, _ = play.find(app="api")
    for pod in (first, second):
        play.pods.delete(pod["metadata"]["name"], pod["metadata"]["namespace"])
    (violation,) = play.cluster.violations
    assert violation.what == "BudgetViolated"
    assert violation.object == f"{second['metadata']['namespace']}/{second['metadata']['name']}"
    assert "a-person" in violation.detail


def test_a_labelled_node_is_replaced_and_the_daemon_comes_to_the_new_one(play: Play) -> None:
    old = play.server.get("nodes", "node-3")
    play.nodes.patch("node-3", {"metadata": {"labels": {DONE: "yes"}}})
    play.wait_until(lambda: play.cluster.stats.nodes_replaced == 1)
    assert play.cluster.wait_until_ready(LIMIT)
    names = {node["metadata"]["name"] for node in play.server.list("nodes")}
    assert "node-3" not in names
    new = play.server.get("nodes", "node-3-r1")
    for label in ("kubernetes.io/role", "topology.kubernetes.io/zone"):
        assert new["metadata"]["labels"][label] == old["metadata"]["labels"][label]
    assert DONE not in new["metadata"]["labels"]
    assert new["metadata"]["uid"] != old["metadata"]["uid"]
    kinds = {owner_kind(pod) for pod in play.ready() if pod["spec"]["nodeName"] == "node-3-r1"}
    assert {"DaemonSet", "Node"} <= kinds
    assert not [pod for pod in play.find() if pod["spec"].get("nodeName") == "node-3"]


def test_a_successor_is_replaced_in_its_turn(play: Play) -> None:
    for turn, name in enumerate(("node-1", "node-1-r1"), 1):
        play.nodes.patch(name, {"metadata": {"labels": {DONE: "yes"}}})
        play.wait_until(lambda turn=turn: play.cluster.stats.nodes_replaced == turn)  # type: ignore[misc]  # bound now
    assert play.server.get("nodes", "node-1-r2")


def test_a_pod_of_a_stateful_set_comes_back_under_its_name_again_and_again(
    make_play: MakePlay,
) -> None:
    play = make_play(nodes=12, pods_per_node=8, speed=1000.0)
    play.start()
    count = len(play.find(app="ledger"))
    for _ in range(10):
        play.wait_until(lambda: play.budget("ledger")["disruptionsAllowed"] == 1)
        (pod,) = play.find(app="ledger", **{"apps.kubernetes.io/pod-index": "0"})
        play.evict(pod)
        play.wait_until(lambda: len(play.ready(app="ledger")) == count)
    assert play.cluster.violations == []
    assert play.cluster.stats.evictions_granted == 10


def test_a_cordon_shows_as_a_taint_until_it_is_lifted(play: Play) -> None:
    play.cordon("node-2")
    play.wait_until(lambda: is_tainted(play, "node-2"))
    play.cordon("node-2", on=False)
    play.wait_until(lambda: not is_tainted(play, "node-2"))


def is_tainted(play: Play, node: str) -> bool:
    taints = play.server.get("nodes", node)["spec"].get("taints", [])
    return any(taint["key"] == "node.kubernetes.io/unschedulable" for taint in taints)


def test_a_pod_that_fits_nowhere_says_so_and_is_bound_once_a_node_opens(
    make_play: MakePlay,
) -> None:
    play = make_play(nodes=1, pods_per_node=3)
    play.start(cordoned="important-node")
    play.pods.create({"metadata": {"name": "lonely"}, "spec": TEMPLATE["spec"]}, "default")

    def pod() -> dict[str, Any]:
        return play.server.get("pods", "lonely", "default")

    play.wait_until(lambda: bool(pod()["status"].get("conditions")))
    assert pod()["status"]["conditions"][0]["reason"] == "Unschedulable"
    play.cordon("important-node", on=False)
    play.wait_until(lambda: is_ready(pod()))


def test_workloads_that_a_person_creates_come_up(play: Play) -> None:
    labels = {"matchLabels": {"app": "extra"}}
    spec = {"replicas": 3, "selector": labels, "template": TEMPLATE}
    play.client.resource(DEPLOYMENTS).create(
        {"metadata": {"name": "extra"}, "spec": spec}, "default"
    )
    budget = {"metadata": {"name": "extra"}, "spec": {"maxUnavailable": 1, "selector": labels}}
    play.client.resource(DISRUPTION_BUDGETS).create(budget, "default")

    def status() -> dict[str, Any]:
        found = play.server.get("deployments", "extra", "default", group="apps")
        status: dict[str, Any] = found.get("status", {})
        return status

    play.wait_until(lambda: status().get("availableReplicas") == 3)
    assert status()["conditions"][0]["type"] == "Available"
    play.wait_until(lambda: play.budget("extra").get("disruptionsAllowed") == 1)
    assert play.budget("extra")["expectedPods"] == 3
    assert len({pod["spec"]["nodeName"] for pod in play.ready(app="extra")}) == 3


def test_a_deployment_is_scaled_and_gets_another_template(play: Play) -> None:
    deployments = play.client.resource(DEPLOYMENTS)
    labels = {"matchLabels": {"app": "extra"}}
    spec = {"replicas": 1, "selector": labels, "template": TEMPLATE}
    deployments.create({"metadata": {"name": "extra"}, "spec": spec}, "default")
    play.wait_until(lambda: len(play.ready(app="extra")) == 1)
    deployments.patch("extra", {"spec": {"replicas": 4}}, "default")
    play.wait_until(lambda: len(play.ready(app="extra")) == 4)
    other = {"spec": {"containers": [{"name": "c", "image": "c:2"}]}}
    deployments.patch("extra", {"spec": {"replicas": 2, "template": other}}, "default")

    def images() -> set[str]:
        return {pod["spec"]["containers"][0]["image"] for pod in play.find(app="extra")}

    play.wait_until(lambda: images() == {"c:2"} and len(play.ready(app="extra")) == 2)


def test_a_job_runs_to_its_end(make_play: MakePlay) -> None:
    play = make_play(job_pod_run=Span(10.0, 20.0))
    play.start()
    template = {"spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}
    spec = {"parallelism": 2, "completions": 3, "template": template}
    play.client.resource(JOBS).create({"metadata": {"name": "sum"}, "spec": spec}, "default")

    def conditions() -> set[str]:
        status = play.server.get("jobs", "sum", "default", group="batch").get("status", {})
        return {c["type"] for c in status.get("conditions", []) if c["status"] == "True"}

    play.wait_until(lambda: "Complete" in conditions())
    assert play.server.get("jobs", "sum", "default", group="batch")["status"]["succeeded"] == 3


def job_status(play: Play, name: str) -> dict[str, Any]:
    found: dict[str, Any] = play.server.get("jobs", name, "default", group="batch")
    status: dict[str, Any] = found.get("status", {})
    return status


def test_a_job_whose_pods_fail_too_often_fails_and_takes_the_others_away(play: Play) -> None:
    template = {"spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}
    spec = {"parallelism": 2, "completions": 4, "backoffLimit": 1, "template": template}
    play.client.resource(JOBS).create({"metadata": {"name": "sum"}, "spec": spec}, "default")
    for failed in (1, 2):
        play.wait_until(lambda: len(play.ready(**{"job-name": "sum"})) == 2)
        (pod, *_) = play.ready(**{"job-name": "sum"})
        play.pods.patch(
            pod["metadata"]["name"],
            {"status": {"phase": "Failed", "conditions": []}},
            "default",
            subresource="status",
        )
        play.wait_until(lambda failed=failed: job_status(play, "sum").get("failed", 0) >= failed)  # type: ignore[misc]  # bound now
    play.wait_until(lambda: is_failed(play, "sum"))
    status = job_status(play, "sum")
    assert [c["type"] for c in status["conditions"]] == ["FailureTarget", "Failed"]
    assert {c["reason"] for c in status["conditions"]} == {"BackoffLimitExceeded"}
    assert status.get("active", 0) == status.get("terminating", 0) == 0
    assert [p["status"]["phase"] for p in play.find(**{"job-name": "sum"})] == ["Failed"] * 2


def is_failed(play: Play, name: str) -> bool:
    return any(c["type"] == "Failed" for c in job_status(play, name).get("conditions", []))


def test_a_pod_with_two_budgets_is_warned_of_and_one_budget_alone_is_kept_up_to_date(
    play: Play,
) -> None:
    labels = {"matchLabels": {"app": "extra"}}
    spec = {"replicas": 1, "selector": labels, "template": TEMPLATE}
    deployments = play.client.resource(DEPLOYMENTS)
    deployments.create({"metadata": {"name": "extra"}, "spec": spec}, "default")
    play.wait_until(lambda: len(play.ready(app="extra")) == 1)
    for name in ("first", "second"):
        rule = {"minAvailable": 1, "selector": labels}
        budget = {"metadata": {"name": name}, "spec": rule}
        play.client.resource(DISRUPTION_BUDGETS).create(budget, "default")
        play.wait_until(lambda name=name: play.budget(name).get("currentHealthy") == 1)  # type: ignore[misc]  # bound now
    deployments.patch("extra", {"spec": {"replicas": 3}}, "default")
    play.wait_until(lambda: play.budget("first").get("currentHealthy") == 3)

    def warnings() -> list[str]:
        found = play.server.list("events", group="events.k8s.io")
        return [e["note"] for e in found if e["reason"] == "MultiplePodDisruptionBudgets"]

    play.wait_until(lambda: bool(warnings()))
    assert '  Chose "first" arbitrarily.' in warnings()[0]
    assert play.budget("second")["currentHealthy"] == 1
    with pytest.raises(ServerError, match="more than one PodDisruptionBudget"):
        play.evict(play.ready(app="extra")[0])


def test_pods_that_keep_away_from_each_other_come_to_nodes_of_their_own(play: Play) -> None:
    term = {"labelSelector": {"matchLabels": {"app": "extra"}}, "topologyKey": HOST}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    template = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "affinity": affinity}}
    spec = {"replicas": 7, "selector": {"matchLabels": {"app": "extra"}}, "template": template}
    play.client.resource(DEPLOYMENTS).create(
        {"metadata": {"name": "extra"}, "spec": spec}, "default"
    )
    roomy = len([n for n in play.server.list("nodes") if not n["spec"].get("taints")])
    play.wait_until(lambda: len(play.ready(app="extra")) == roomy)
    play.wait_until(lambda: "Unschedulable" in str(play.find(app="extra")))
    assert len({pod["spec"]["nodeName"] for pod in play.ready(app="extra")}) == roomy


def test_a_bare_pod_is_gone_for_good(make_play: MakePlay) -> None:
    play = make_play(bare_pods=1)
    play.start()
    play.pods.delete("bare-1", "default")
    play.wait_until(lambda: not play.server.list("pods", "default"))
    assert play.cluster.wait_until_ready(LIMIT)
    assert play.server.list("pods", "default") == []


def test_a_mirror_pod_that_is_deleted_is_shown_again(play: Play) -> None:
    old = play.server.get("pods", "kube-proxy-node-1", "kube-system")["metadata"]["uid"]
    play.pods.delete("kube-proxy-node-1", "kube-system")

    def fresh() -> bool:
        pods = play.find(**{"k8s-app": "kube-proxy"})
        return any(
            p["metadata"]["name"] == "kube-proxy-node-1" and p["metadata"]["uid"] != old
            for p in pods
        )

    play.wait_until(fresh)


def test_ready_means_that_what_was_created_just_before_has_come_up(make_play: MakePlay) -> None:
    play = make_play()
    play.start()
    for number in range(3):
        labels = {"app": f"late-{number}"}
        template = {**TEMPLATE, "metadata": {"labels": labels}}
        spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
        body = {"metadata": {"name": f"late-{number}"}, "spec": spec}
        play.client.resource(DEPLOYMENTS).create(body, "default")
        assert play.cluster.wait_until_ready(LIMIT)
        assert len(play.ready(**labels)) == 1


def test_it_is_started_once_and_stopped_as_often_as_you_like(make_play: MakePlay) -> None:
    cluster = make_play().cluster
    with pytest.raises(NotStarted):
        cluster.wait_until_ready(0)
    with cluster:
        cluster.populate()
        cluster.start()
        with pytest.raises(AlreadyStarted):
            cluster.start()
        assert cluster.wait_until_ready(LIMIT)
    cluster.stop()
    assert not [t.name for t in threading.enumerate() if t.name.startswith("nav-cluster")]


def test_a_cluster_that_is_stopped_while_it_starts_ends_and_leaves_the_server_alone(
    make_play: MakePlay,
) -> None:
    play = make_play()
    play.cluster.populate()
    play.cluster.start()
    play.cluster.stop()
    assert play.cluster.wait_until_ready(LIMIT) is False
    assert len(play.pods.list().items) == 36


def test_every_node_is_replaced_by_several_people_at_once_without_a_violation(
    make_play: MakePlay,
) -> None:
    play = make_play(nodes=12, pods_per_node=8, speed=500.0)
    play.start()
    names = [node["metadata"]["name"] for node in play.server.list("nodes")]
    with ThreadPoolExecutor(4) as people:
        list(people.map(lambda name: replace_node(play, name), names))
    play.wait_until(lambda: play.cluster.stats.nodes_replaced == len(names))
    assert play.cluster.wait_until_ready(LIMIT)
    assert play.cluster.violations == []
    assert len(play.server.list("nodes")) == len(names)
    assert not_running(play) == []
    assert len(play.find()) == 12 * 8


def not_running(play: Play) -> list[tuple[str, str]]:
    pods = [pod for pod in play.find() if not is_ready(pod)]
    return [(pod["metadata"]["name"], pod["status"]["phase"]) for pod in pods]


def replace_node(play: Play, node: str) -> None:
    play.cordon(node)

    def is_empty() -> bool:
        for pod in play.movable_on(node):
            if "deletionTimestamp" not in pod["metadata"]:
                with suppress(TooManyRequests, NotFound, Conflict):
                    play.evict(pod)
        return not play.movable_on(node)

    play.wait_until(is_empty)
    play.nodes.patch(node, {"metadata": {"labels": {DONE: "yes"}}})


class GivesUids(ApiServer):
    """Assigns a new uid to every object, as a real server does."""

    def install(self, *manifests: Mapping[str, object]) -> None:
        """Create objects without their given uids."""
        for manifest in manifests:
            metadata = {k: v for k, v in dict(manifest["metadata"]).items() if k != "uid"}  # type: ignore[call-overload]  # a dict
            super().install({**manifest, "metadata": metadata})


def test_a_cluster_settles_on_a_server_that_gives_the_uids() -> None:
    options = ClusterOptions(nodes=5, pods_per_node=5, speed=100.0, job_pod_run=NEVER)
    with GivesUids() as server, Cluster(server, options=options) as cluster:
        cluster.populate()
        before = {pod["metadata"]["uid"] for pod in server.list("pods")}
        cluster.start()
        assert cluster.wait_until_ready(LIMIT)
        assert {pod["metadata"]["uid"] for pod in server.list("pods")} == before
        assert server.requests["create"] == server.requests["delete"] == 0
