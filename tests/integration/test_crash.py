"""kill -9 of the manager during a rollout: the result is the same."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from navarchos.cli.sandbox.observer import Observer, Snapshot
from navarchos.operator.api.v1alpha1 import RolloutPhase, Step
from navarchos.operator.api.v1alpha1.definitions import manifests
from navarchos.operator.names import CORDONED_BY_ANNOTATION, DRAIN_COMPLETED_LABEL
from navarchos.testing.apiserver import ApiServer, Change, Fault
from navarchos.testing.cluster import Cluster, ClusterOptions

GROUP = "navarchos.pusher.com"
ROLLOUT: Mapping[str, object] = {
    "apiVersion": f"{GROUP}/v1alpha1",
    "kind": "NodeRollout",
    "metadata": {"name": "all"},
    "spec": {"nodeSelectors": [{"matchAll": True}], "strategy": {"maxConcurrent": 2}},
}
LIMIT = 60.0


class World:
    """A cluster whose server keeps running when a manager is killed."""

    def __init__(self, directory: Path) -> None:
        self.server = ApiServer(crds=manifests())
        self.cluster = Cluster(
            self.server,
            options=ClusterOptions(
                nodes=6, pods_per_node=3, speed=50.0, terminate_label=DRAIN_COMPLETED_LABEL
            ),
        )
        self.observer = Observer()
        self.kubeconfig = directory / "kubeconfig"
        self.log = directory / "manager.log"
        self.manager: subprocess.Popen[bytes] | None = None

    def start_manager(self) -> None:
        with self.log.open("ab") as log:
            self.manager = subprocess.Popen(
                [
                    *(sys.executable, "-m", "navarchos.cli", "manager"),
                    *("--kubeconfig", str(self.kubeconfig)),
                    *("--metrics-addr", "0", "--health-addr", "0"),
                ],
                stdout=log,
                stderr=log,
            )

    def kill_manager(self) -> None:
        assert self.manager is not None
        self.manager.kill()
        self.manager.wait()

    def wait_until(self, reached: Callable[[Snapshot], bool]) -> Snapshot:
        seen, limit = 0, time.monotonic() + LIMIT
        while time.monotonic() < limit:
            snapshot = self.observer.snapshot()
            if reached(snapshot):
                return snapshot
            seen = self.observer.wait(seen, 0.5)
        raise AssertionError(f"not reached; the manager said:\n{self.log.read_text()[-4000:]}")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    world.server.start()
    world.server.subscribe(world.observer.on_change)
    world.server.write_kubeconfig(world.kubeconfig)
    world.cluster.populate()
    world.cluster.start()
    yield world
    if world.manager is not None:
        world.kill_manager()
    world.cluster.stop()
    world.server.stop()


def steps(snapshot: Snapshot) -> list[Step]:
    return [replacement.status.current for replacement in snapshot.replacements]


def is_done(snapshot: Snapshot) -> bool:
    return any(r.status.phase is RolloutPhase.COMPLETED for r in snapshot.rollouts)


MOMENTS: dict[str, Callable[[Snapshot], bool]] = {
    "some replacements exist": lambda s: 0 < len(s.replacements) < 6 or Step.RESERVED in steps(s),
    "a slot is taken": lambda s: Step.RESERVED in steps(s) or Step.DRAINING in steps(s),
    "a node is being drained": lambda s: Step.DRAINING in steps(s),
    "half of them are done": lambda s: steps(s).count(Step.DONE) >= 3,
}


@pytest.mark.rule("OP-26")
@pytest.mark.rule("OP-22")
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_restarted_manager_continues_after_a_kill(world: World, moment: str) -> None:
    before = {node["metadata"]["name"] for node in world.server.list("nodes")}
    world.start_manager()
    world.server.install(ROLLOUT)
    world.wait_until(MOMENTS[moment])
    world.kill_manager()
    world.start_manager()
    end = world.wait_until(is_done)

    (rollout,) = end.rollouts
    assert set(rollout.status.replacements_completed) == before
    assert rollout.status.replacements_failed == ()
    assert sorted(end.order) == sorted(before)
    assert end.max_in_flight <= 2
    assert world.cluster.violations == []
    assert steps(end) == [Step.DONE] * len(before)
    assert cordoned_and_not_drained(world) == []


@pytest.mark.rule("OP-26")
def test_an_eviction_interrupted_by_an_api_server_crash_uses_the_budget_only_for_a_while(
    world: World,
) -> None:
    """The server crashes between the budget and the pod, and closes the connection."""
    charged: list[str] = []

    def look(change: Change) -> None:
        if change.resource.plural != "poddisruptionbudgets" or change.type != "MODIFIED":
            return
        if "ledger-0" in (change.object["status"].get("disruptedPods") or {}):
            pod = world.server.get("pods", "ledger-0", "billing")
            charged.append(pod["metadata"]["uid"])

    first = world.server.get("pods", "ledger-0", "billing")["metadata"]["uid"]
    world.server.subscribe(look)
    world.server.faults.add(Fault(verb="evict", name="ledger-0", spend_budget_only=True, times=1))
    world.start_manager()
    world.server.install(ROLLOUT)
    # Not when the fault is used up: the budget is charged after that, in the same request.
    world.wait_until(lambda _: bool(charged))
    assert not world.server.faults.pending
    assert charged[0] == first, "the budget is charged and the pod is as it was"
    world.kill_manager()
    world.start_manager()
    end = world.wait_until(is_done)

    (rollout,) = end.rollouts
    assert rollout.status.replacements_failed == ()
    assert steps(end) == [Step.DONE] * 6
    assert world.cluster.violations == []
    assert world.server.get("pods", "ledger-0", "billing")["metadata"]["uid"] != first


def cordoned_and_not_drained(world: World) -> list[str]:
    left = []
    for node in world.server.list("nodes"):
        metadata = node["metadata"]
        ours = CORDONED_BY_ANNOTATION in metadata.get("annotations", {})
        drained = DRAIN_COMPLETED_LABEL in metadata.get("labels", {})
        if ours and not drained:
            left.append(metadata["name"])
    return left
