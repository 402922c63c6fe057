"""kill -9 of a manager directly after its writes, during rollouts with a Job on each node."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from tests.cases import manifests
from tests.cases.case import Case
from tests.cases.gateway import Gateway, gateway
from tests.cases.managers import ManagerProcess
from tests.cases.waiting import LATE, wait_for

from navarchos.client import Propagation
from navarchos.operator.names import ACTION_FINALIZER, CORDONED_BY_ANNOTATION, DRAIN_COMPLETED_LABEL

IS_NIGHTLY: Final = "NAVARCHOS_SEEDS" in os.environ
WRITES_PER_LIFE: Final = 1 if IS_NIGHTLY else 7
STEP: Final = 1 if IS_NIGHTLY else 16
POLICIES: Final = (Propagation.FOREGROUND, *[Propagation.BACKGROUND] * IS_NIGHTLY)

pytestmark = pytest.mark.timeout(14_000 if IS_NIGHTLY else 240)


class Lives:
    """Managers of one case, one after the other, and the rollouts that they carry out."""

    def __init__(self, case: Case, network: Gateway) -> None:
        self.case = case
        self.network = network
        # A lease would only delay the next process.
        arguments = "--leader-election=false"
        self.manager: ManagerProcess = case.new_manager(arguments, kubeconfig=network.kubeconfig)

    def begin(self, *, writes: int | None = None) -> None:
        """Start a process that is killed after a number of writes."""
        self.network.begin(self.manager.kill, after=writes)
        self.manager.launch()

    def roll(self, name: str, nodes: list[str], *, runs_for: str = "0.2s") -> None:
        """Create a rollout with a Job on each node."""
        case = self.case
        work = manifests.job(case.name, "work", 1, runs_for=runs_for)["spec"]
        template = {"spec": {**work, "backoffLimit": 0}}
        job = {"namespace": case.name, "template": template}
        names = [{"name": node} for node in nodes]
        spec = {"nodeSelectors": [], "nodeNames": names, "action": {"job": job}}
        case.create(manifests.rollout(case.name, name, **spec))

    def writes(self) -> list[str]:
        """Return the writes of all processes."""
        return [write.text for write in self.network.writes]

    def stop(self) -> None:
        """Stop the last process, unless it was killed."""
        if self.network.spare() and self.manager.is_started:
            # A process that has just been started does not handle the signal yet.
            wait_for("the process to be ready", self.manager.is_ready)
            assert self.manager.stop() == 0

    def wait_until(self, what: str, done: Callable[[], bool], writes: int | None) -> int:
        """Start a process for each killed one until something is done; return their number."""
        killed = 0

        def is_done() -> bool:
            nonlocal killed
            if self.network.is_dead:
                killed += 1
                self.begin(writes=writes)
            return done()

        wait_for(what, is_done, LATE if writes is None else 10 * LATE)
        return killed

    def wait_for_the_end(self, name: str, *, writes: int | None = None) -> int:
        """Wait until a rollout has completed; return the number of killed processes.

        Args:
            name: The name of the rollout.
            writes: The number of writes of each further process; any number if it is absent.
        """

        def is_over() -> bool:
            return self.case.phase("NodeRollout", name) in {"Completed", "Halted"}

        return self.wait_until(f"the end of rollout {name}", is_over, writes)

    def end_of(self, name: str, nodes: list[str]) -> dict[str, Any]:
        """Return what a rollout leaves, without times and uids."""
        case = self.case
        replacements = [case.target.get("NodeReplacement", f"{name}-{node}") for node in nodes]
        return {
            "phase": case.phase("NodeRollout", name),
            "completed": case.status("NodeRollout", name).get("replacementsCompleted"),
            "replacements": [_end_of_replacement(each, name) for each in replacements],
            "jobs": sorted(
                (each["metadata"]["name"].removeprefix(name), each["status"].get("succeeded"))
                for each in case.target.list("Job", case.name)
                if each["metadata"]["name"].startswith(f"{name}-")
            ),
            "nodes": [_end_of_node(case.node(node)) for node in nodes],
            "drains": [each["metadata"]["name"] for each in case.target.list("NodeDrain")],
        }

    def created(self, name: str) -> list[str]:
        """Return the names of the Jobs that were created for a rollout, each time."""
        return [
            write.answer.removeprefix(name)
            for write in self.network.writes
            if write.created and write.text.endswith("/jobs") and write.answer.startswith(name)
        ]


def _end_of_replacement(replacement: dict[str, Any], rollout: str) -> dict[str, Any]:
    metadata, status = replacement["metadata"], replacement["status"]
    return {
        "step": (status["step"]["name"], status["step"].get("reason")),
        "attempts": status.get("attempts", 0),
        "failures": [each["reason"] for each in status.get("failures", ())],
        "finalizers": metadata.get("finalizers", []),
        "conditions": sorted(
            (each["type"], each["status"], each["reason"], each.get("message", ""))
            for each in status["conditions"]
            if "Job" not in each.get("message", "")
        ),
    }


def _end_of_node(node: dict[str, Any]) -> dict[str, Any]:
    metadata, spec = node["metadata"], node["spec"]
    return {
        "unschedulable": spec.get("unschedulable", False),
        "taints": spec.get("taints", []),
        "annotations": sorted(
            key for key in metadata.get("annotations", ()) if key == CORDONED_BY_ANNOTATION
        ),
        "is labelled": DRAIN_COMPLETED_LABEL in metadata["labels"],
    }


@pytest.fixture
def lives(case: Case, tmp_path: Path) -> Iterator[Lives]:
    with gateway(case.account, tmp_path) as network:
        lives = Lives(case, network)
        yield lives
        lives.stop()


def populate(case: Case, count: int) -> list[str]:
    """Add nodes with two pods each, and capacity for these pods."""
    nodes = case.add_nodes(count)
    case.add(
        manifests.deployment(case.name, "web", 2 * count),
        manifests.daemon_set(case.name, "agent"),
    )
    case.add_nodes(1, first=count + 1)
    case.settle()
    return nodes


@pytest.mark.rule("NP-11")
@pytest.mark.rule("UP-70")
def test_processes_that_are_killed_after_a_few_writes_carry_out_a_rollout_together(
    lives: Lives,
) -> None:
    """Each process but the last one dies after the same number of writes: one in `make nightly`."""
    nodes = populate(lives.case, 2)
    lives.roll("whole", nodes)
    lives.begin()
    assert lives.wait_for_the_end("whole") == 0
    expected, length = lives.end_of("whole", nodes), len(lives.writes())
    lives.stop()
    assert length > 40, "these are too few writes for a whole rollout of two nodes"
    lives.roll("parts", nodes)
    lives.begin(writes=WRITES_PER_LIFE)
    killed = lives.wait_for_the_end("parts", writes=WRITES_PER_LIFE)
    # Some writes of a process that lives on are left out: they report what is past by then.
    assert killed >= length // WRITES_PER_LIFE // 2, lives.writes()
    assert lives.end_of("parts", nodes) == expected
    jobs = [f"-{node}-job1" for node in nodes]
    assert sorted(lives.created("parts")) == jobs, "a Job was created twice, or not at all"
    assert lives.case.checker.evictions(lives.case.name) >= 4


@pytest.mark.rule("NP-11")
@pytest.mark.rule("UP-70")
def test_a_process_killed_after_any_write_changes_nothing_in_the_end(lives: Lives) -> None:
    """After each write in turn in `make nightly`, otherwise after a few."""
    nodes = populate(lives.case, 1)
    expected: dict[str, Any] = {}
    for number in range(0, 200, STEP):
        name, before = f"r{number}", len(lives.writes())
        lives.roll(name, nodes)
        lives.begin(writes=number or None)  # the first rollout is not interrupted
        killed = lives.wait_for_the_end(name)
        found = lives.end_of(name, nodes)
        assert found == (expected := expected or found), lives.writes()[before:]
        assert lives.created(name) == [f"-{nodes[0]}-job1"], lives.writes()[before:]
        lives.stop()
        if number and not killed:
            assert number > 15, "these are too few writes for a whole rollout"
            return
    raise AssertionError("no process has survived")


@pytest.mark.rule("NP-11")
@pytest.mark.rule("NP-12")
@pytest.mark.parametrize("policy", POLICIES)
def test_processes_that_are_killed_after_each_write_give_the_node_of_a_deleted_rollout_back(
    lives: Lives, policy: Propagation
) -> None:
    case = lives.case
    nodes = populate(case, 1)
    (node,) = nodes
    lives.roll("deleted", nodes, runs_for="300s")
    lives.begin()
    replacement = f"deleted-{node}"

    def is_acting() -> bool:
        found = case.target.find("NodeReplacement", replacement) or {"metadata": {}}
        is_held = ACTION_FINALIZER in found["metadata"].get("finalizers", ())
        return is_held and lives.created("deleted") != []

    lives.wait_until("the Job", is_acting, None)
    assert case.is_cordoned(node)
    lives.stop()
    case.target.of("NodeRollout").delete("deleted", propagation=policy)
    lives.begin(writes=1)

    def is_gone() -> bool:
        return not any(map(case.target.list, ("NodeRollout", "NodeReplacement", "NodeDrain")))

    killed = lives.wait_until("the end of the deletion", is_gone, 1)
    # After the finalizer of the action, and the uncordon; the finalizer of the drain is the last.
    assert killed >= 2, lives.writes()
    assert _end_of_node(case.node(node)) == {
        "unschedulable": False,
        "taints": [],
        "annotations": [],
        "is labelled": False,
    }
    wait_for("the Job to be gone", lambda: case.target.list("Job", case.name) == [])
    assert lives.created("deleted") == [f"-{node}-job1"]
