"""The commands that plan, watch, pause, resume and abort rollouts, and drain a node."""

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from typing import Any

import pytest
from tests.cases import manifests
from tests.cases.case import Case
from tests.cases.waiting import wait_for
from tests.integration.conftest import CommandLine, Finished

from navarchos.client import Invalid

pytestmark = pytest.mark.timeout(240)


class Terminal:
    """The command line, with the kubeconfig of a case."""

    def __init__(self, navarchos: CommandLine, case: Case) -> None:
        self._navarchos = navarchos
        self._at = ("--kubeconfig", str(case.target.kubeconfig))

    def run(self, *arguments: str, status: int = 0) -> Finished:
        done = self._navarchos.run(*arguments, *self._at)
        assert done.status == status, done.stdout + done.stderr
        return done

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        return self._navarchos.start(*arguments, *self._at)

    def rollout(self, name: str) -> dict[str, Any]:
        (found,) = self.run("status", name, "-o", "json").result["rollouts"]
        assert isinstance(found, dict)
        return found


@pytest.fixture
def terminal(navarchos: CommandLine, case: Case) -> Terminal:
    return Terminal(navarchos, case)


def block_evictions(case: Case) -> None:
    """Add pods that a budget protects from eviction."""
    case.add(
        manifests.deployment(case.name, "web", 2),
        manifests.budget(case.name, "web", minAvailable=2),
    )


@pytest.mark.rule("N-9")
def test_a_rollout_is_planned_watched_paused_resumed_and_aborted(
    case: Case, terminal: Terminal, tmp_path: Any
) -> None:
    first, second = case.add_nodes(2)
    block_evictions(case)
    manifest = manifests.rollout(case.name, nodeSelectors=[])
    manifest["spec"]["nodeNames"] = [
        {"name": first},
        {"name": second, "replacement": {"priority": -1}},
    ]
    path = tmp_path / "rollout.json"
    path.write_text(json.dumps(manifest), encoding="utf-8")

    planned = terminal.run("plan", "-f", str(path), "-o", "json", status=1).result
    (rollout,) = planned["rollouts"]
    assert [(n["name"], n["starts"]) for n in rollout["nodes"]] == [
        (first, "Now"),
        (second, "HigherPriority"),
    ]
    budget = f"{case.name}/web"
    reasons = {(f["reason"], *f["budgets"]) for n in rollout["nodes"] for f in n["findings"]}
    assert reasons == {("BudgetNeverAllows", budget)}
    assert [b["name"] for b in rollout["budgets"] if b["isBlocking"]] == [budget]
    assert case.target.list("NodeRollout") == []

    case.manager()
    case.create(manifest)
    wait_for("a blocker", lambda: terminal.rollout(case.name)["blocked"])
    seen = terminal.rollout(case.name)
    assert [node["node"] for node in seen["inFlight"]] == [first]
    blocker = seen["blocked"][0]
    assert (blocker["namespace"], blocker["node"], blocker["budget"]) == (case.name, first, budget)
    assert blocker["since"]
    assert blocker["nextAction"] == "evicted as soon as the budget allows it"
    shown = terminal.run("status").stdout
    assert f"{blocker['pod']} on {first}  BlockedByBudget {budget} for " in shown

    paused = terminal.run("pause", case.name, "-o", "json").result
    assert (paused["action"], paused["changed"]) == ("Paused", True)
    assert list(paused["nodes"]) == [first]
    wait_for("the pause", lambda: terminal.rollout(case.name)["paused"])
    assert terminal.rollout(case.name)["nextAction"] == f"navarchos resume {case.name}"
    assert "was paused already" in terminal.run("pause", case.name).stdout
    assert "the pause is over" in terminal.run("resume", case.name).stdout
    assert "neither paused nor halted" in terminal.run("resume", case.name).stdout

    aborted = terminal.run("abort", case.name, "-o", "json").result
    assert aborted["nodes"] == {first: "Uncordoned"}
    for kind in ("NodeRollout", "NodeReplacement", "NodeDrain"):
        assert case.target.list(kind) == []
    assert not case.is_cordoned(first)


@pytest.mark.rule("NP-12")
def test_a_rollout_is_cancelled_while_a_node_is_in_flight(case: Case, terminal: Terminal) -> None:
    first, second = case.add_nodes(2)
    block_evictions(case)
    case.manager()
    case.roll(nodeSelectors=[], nodeNames=[{"name": first}, {"name": second}])
    (busy,) = wait_for(
        "a node in flight", lambda: [n["node"] for n in terminal.rollout(case.name)["inFlight"]]
    )
    (other,) = {first, second} - {busy}

    cancelled = terminal.run("cancel", case.name, "-o", "json").result
    assert (cancelled["action"], cancelled["changed"]) == ("Cancelled", True)
    assert list(cancelled["nodes"]) == [busy]
    wait_for("the cancellation", lambda: terminal.rollout(case.name)["cancelled"])
    assert "was cancelled already" in terminal.run("cancel", case.name).stdout
    assert "1 cancelled" in terminal.run("status", case.name).stdout
    planned = terminal.run("plan", case.name, "-o", "json", status=1).result
    assert [n["name"] for n in planned["rollouts"][0]["nodes"]] == [busy], "it never starts"

    case.change_budget("web", minAvailable=0)
    last = terminal.run("status", case.name, "--watch", "-o", "json").result["rollouts"][0]
    assert (last["phase"], last["completed"], last["cancelled"]) == ("Completed", 1, 1)
    assert case.is_cordoned(busy)
    assert not case.is_cordoned(other)
    assert "is Completed" in terminal.run("cancel", case.name, status=1).stderr


@pytest.mark.long
def test_a_halted_rollout_is_watched_and_resumed_after_a_fix(
    case: Case, terminal: Terminal
) -> None:
    (name,) = case.add_nodes(1)
    case.add(manifests.pod(case.name, "bare", name))
    case.manager()
    case.roll(strategy={"retries": 0})
    watched = terminal.run("status", case.name, "--watch", status=1)
    assert "fix the failures" in watched.stdout
    seen = terminal.rollout(case.name)
    assert [(f["node"], f["reason"]) for f in seen["failed"]] == [(name, "PodsRefused")]
    case.target.of("Pod").delete("bare", case.name)
    wait_for("the pod to be deleted", lambda: not case.pods(name))
    assert "failed nodes are tried again" in terminal.run("resume", case.name).stdout
    last = terminal.run("status", case.name, "--watch", "-o", "json").result
    assert last["rollouts"][0]["phase"] == "Completed"
    refused = terminal.run("pause", case.name, status=1)
    assert "is Completed" in refused.stderr


def test_the_drain_command_reports_and_the_drain_continues_after_ctrl_c(
    case: Case, terminal: Terminal
) -> None:
    first, second = case.add_nodes(2)
    block_evictions(case)
    case.target.patch("Node", second, {"spec": {"unschedulable": True}})
    case.manager()
    process = terminal.start("drain", first, "-o", "json")
    assert process.stdout is not None
    for line in process.stdout:
        if json.loads(line)["blocked"]:
            break
    os.kill(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    (drain,) = case.target.list("NodeDrain")
    name = drain["metadata"]["name"]
    assert said.strip().endswith(f"kubectl delete ndrain {name}")
    assert drain["metadata"].get("deletionTimestamp") is None
    assert name in terminal.run("status").stdout

    case.change_budget("web", minAvailable=0)
    case.target.patch("Node", second, {"spec": {"unschedulable": False}})
    case.wait_for_phase("Completed", "NodeDrain", name)
    case.target.of("NodeDrain").delete(name)
    wait_for("the node to be uncordoned", lambda: not case.is_cordoned(first))
    last = terminal.run("drain", first, "-o", "json").result
    assert (last["node"], last["phase"], last["remaining"]) == (first, "Completed", 0)
    assert last["blocked"] == []


@pytest.mark.rule("NP-43")
def test_a_wave_is_approved(case: Case, terminal: Terminal) -> None:
    case.manager()
    names = case.add_nodes(2)
    manifest = manifests.rollout(case.name, nodeSelectors=[])
    manifest["spec"]["nodeNames"] = [{"name": name} for name in names]
    manifest["spec"]["strategy"] = {"waves": [{"upTo": 1, "approval": True}, {"upTo": "100%"}]}
    case.add(manifest)
    wait_for(
        "the first wave to end",
        lambda: (case.status().get("wave") or {}).get("state") == "AwaitingApproval",
    )
    found = terminal.rollout(case.name)
    assert (found["wave"]["number"], found["completed"]) == (1, 1)
    assert found["nextAction"] == f"navarchos approve {case.name}"
    shown = terminal.run("status", case.name).stdout
    assert "wave       1 of 2, up to 1 node  AwaitingApproval" in shown
    refused = terminal.run("approve", case.name, "--wave", "2", status=1)
    assert f"wave 2 of rollout {case.name} does not wait for an approval" in refused.stderr
    assert f"wave 1 of {case.name} is approved" in terminal.run("approve", case.name).stdout
    case.wait_for_phase("Completed")
    (approval,) = case.status()["wave"]["approvals"]
    assert approval["number"] == 1
    assert approval["by"]
    refused = terminal.run("approve", case.name, status=1)
    assert f"rollout {case.name} is Completed" in refused.stderr


@pytest.mark.rule("NP-41")
def test_the_server_refuses_invalid_windows_and_waves(case: Case) -> None:
    refused: tuple[dict[str, Any], ...] = (
        {"windows": [{"timeZone": "Mars/Olympus"}]},
        {"windows": [{"timeZone": "Local"}]},
        {"windows": [{"timeZone": "+05:00"}]},
        {"windows": [{"days": ["7"]}]},
        {"windows": [{"start": "9:5"}]},
        {"windows": [{"start": "9am", "end": "9am"}]},
        {"windows": [{}] * 21},
        {"blackouts": [{"from": "2026-12-20T00:00:00Z", "to": "2026-12-20T00:00:00Z"}]},
        {"onWindowEnd": "Stop"},
        {"waves": [{"upTo": 2}, {"upTo": 1}]},
        {"waves": [{"upTo": "20%"}, {"upTo": "9%"}]},
        {"waves": [{"upTo": 0}]},
        {"waves": [{"upTo": "0%"}]},
    )
    for strategy in refused:
        manifest = manifests.rollout(case.name, nodeSelectors=[])
        manifest["spec"]["strategy"] = strategy
        with pytest.raises(Invalid):
            case.create(manifest)


@pytest.mark.rule("NP-41")
def test_a_rollout_outside_its_window_waits(case: Case, terminal: Terminal) -> None:
    case.manager()
    names = case.add_nodes(1)
    manifest = manifests.rollout(case.name, nodeSelectors=[])
    manifest["spec"]["nodeNames"] = [{"name": names[0]}]
    # Windows for every day, and a blackout that lasts longer than this test.
    manifest["spec"]["strategy"] = {
        "windows": [
            {"days": ["Mon", "2", "we"], "timeZone": "Europe/Berlin"},
            {"days": ["THU", "friday", "sa", "0"], "start": "12am", "end": "11:59pm"},
        ],
        "blackouts": [{"from": "2020-01-01T00:00:00Z", "to": "2120-01-01T00:00:00Z"}],
        "waves": [
            {"upTo": 1, "soakSeconds": 60},
            {"upTo": "10%", "approval": True},
            {"upTo": "100%"},
        ],
    }
    case.add(manifest)
    wait_for(
        "the reason of the wait",
        lambda: (terminal.rollout(case.name)["waiting"] or {}).get("reason") == "OutsideWindow",
    )
    assert "the next window opens at 2120-01-01" in terminal.run("status", case.name).stdout
    assert "OutsideWindow" in terminal.run("plan", case.name).stdout
    assert not case.is_cordoned(names[0])


@pytest.mark.rule("NP-31")
def test_a_plan_evaluates_the_gates_of_each_kind(
    case: Case, terminal: Terminal, tmp_path: Any
) -> None:
    """Gates that wait for the cluster delay the rollout; one that cannot be judged blocks it."""
    (name,) = case.add_nodes(1)
    case.add(manifests.deployment(case.name, "web", 1))
    web = {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": case.name, "name": "web"}
    gates: dict[str, dict[str, Any]] = {
        "ready": {"object": web, "for": "jsonpath={.status.readyReplicas}=1"},
        "pods": {"evictedPods": {}},
        "nodes": {"nodes": {"maxUnready": 100}},
        "scale": {"object": web, "for": "jsonpath={.status.readyReplicas}=2"},
        "alerts": {"alerts": {"url": "http://127.0.0.1:9"}},
        "absent": {"object": {**web, "kind": "Absent"}, "for": "condition=Available"},
        "path": {"object": web, "for": "jsonpath={.a[x]}=1"},
    }
    path = tmp_path / "rollout.json"

    def write(names: Sequence[str]) -> None:
        spec: dict[str, Any] = {"nodeNames": [{"name": name}], "nodeSelectors": []}
        spec["gates"] = [{"name": each, **gates[each]} for each in names]
        path.write_text(json.dumps(manifests.rollout(case.name, **spec)), encoding="utf-8")

    def plan(status: int) -> tuple[str, dict[str, str], bool]:
        planned = terminal.run("plan", "-f", str(path), "-o", "json", status=status).result
        (rollout,) = planned["rollouts"]
        found = [each for each in rollout["findings"] if each["reason"] == "GateClosed"]
        (node,) = rollout["nodes"]
        return (
            node["starts"],
            {each["message"].split()[1]: each["severity"] for each in found},
            planned["isBlocked"],
        )

    write(("ready", "pods", "nodes"))
    assert plan(0) == ("Now", {}, False)
    write(("ready", "pods", "nodes", "scale", "alerts"))
    assert plan(0) == ("Gate", {"scale": "Delays", "alerts": "Delays"}, False)
    write(tuple(gates))
    blocked = {"scale": "Delays", "alerts": "Delays", "absent": "Blocks", "path": "Blocks"}
    assert plan(1) == ("Gate", blocked, True)
    text = terminal.run("plan", "-f", str(path), status=1).stdout
    for line in (
        f"gate scale is closed: Deployment {case.name}/web: {{.status.readyReplicas}}=1",
        "gate alerts is closed: AlertQueryFailed: http://127.0.0.1:9",
        "gate absent is closed: the server has no kind Absent in apps/v1",
        "gate path is closed: for='jsonpath={.a[x]}=1': the path cannot be read from '[x]'",
    ):
        assert line in text
    assert case.target.list("NodeRollout") == []
