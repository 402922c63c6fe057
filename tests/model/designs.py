"""Designed runs of slots, gates, windows and waves: situations that random runs seldom reach.

Whole managers in virtual time, with the same judge as random runs. A design says what happens
when, and checks when nodes start.
"""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from tests.model.cluster import Workload
from tests.model.facts import GROUP, is_cordoned, mark_of, phase_of, step_of
from tests.model.judging import Verdict
from tests.model.run import Run
from tests.model.scheduling import EPOCH, Process
from tests.model.serving import Lost
from tests.model.systems import CHECKS, HEALTH, NEEDS, UPDATES, WISH, add_systems

from navarchos.meta import format_time
from navarchos.operator.names import APPROVE_ANNOTATION
from navarchos.operator.nodes import CONTROL_PLANE_LABEL
from navarchos.testing.apiserver.handler import ApiCall
from navarchos.testing.apiserver.store import Change

__all__ = ["DESIGNS", "play_design"]

_SEED: Final = 3
_STEP: Final = 0.25
_SOON: Final = 1.0
"""Seconds within which admission follows what other systems and gates report (NP-01, NP-30)."""

_LONGEST: Final = 300.0
_ROLLOUTS: Final = f"/apis/{GROUP}/v1alpha1/noderollouts"
_REPLACEMENTS: Final = f"/apis/{GROUP}/v1alpha1/nodereplacements"
_DRAINS: Final = f"/apis/{GROUP}/v1alpha1/nodedrains"
_MAPS: Final = "/api/v1/namespaces/default/configmaps"
_GATE: Final[Mapping[str, Any]] = {
    "name": HEALTH,
    "object": {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "default", "name": HEALTH},
    "for": "jsonpath={.data.is}=well",
}


class Stage(Run):
    """Six nodes and one operator, with other systems, and without random faults.

    Attributes:
        starts: When nodes started, in seconds, and their names, in order.
    """

    def __init__(self, begins_at: datetime = EPOCH) -> None:
        super().__init__(_SEED, begins_at=begins_at)
        self.starts: list[tuple[float, str]] = []
        self.deployment.further = add_systems
        self.server.store.subscribe(self._on_change)
        for name in self.cluster.workloads:
            self.cluster.set_budget(name, {"maxUnavailable": 9})
        self.cluster.count_budgets()
        self.wait(lambda: self.deployment.leader is not None)

    @property
    def seconds(self) -> float:
        """The virtual time."""
        return self.scheduler.seconds

    @property
    def nodes(self) -> list[str]:
        """The names of the nodes that have started, in order."""
        return [node for _, node in self.starts]

    def add_rollout(self, name: str = "r", **spec: Any) -> None:
        """Create a rollout of all nodes that drains them one after the other."""
        strategy = {"pendingPods": "Ignore", **spec.pop("strategy", {})}
        body = {
            "apiVersion": f"{GROUP}/v1alpha1",
            "kind": "NodeRollout",
            "metadata": {"name": name},
            "spec": {"nodeSelectors": [{"matchAll": True}], "strategy": strategy, **spec},
        }
        self.ask("POST", _ROLLOUTS, body)

    def add_map(self, wish: str, node: str = "n1", **data: str) -> None:
        """Create a ConfigMap: a wish of a system, a reason to keep a node, or the health."""
        metadata = {"name": HEALTH if wish == HEALTH else f"{wish}-{node}", "labels": {WISH: wish}}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        self.ask("POST", _MAPS, {**body, "data": {"node": node, **data}})

    def add_drain(self, node: str, **spec: Any) -> None:
        """Hold a node by a drain of a user, which is paused unless the spec says more."""
        uid = self.server.find("nodes", node)["metadata"]["uid"]  # type: ignore[index]
        spec = {"nodeName": node, "nodeUID": uid, **(spec or {"paused": True})}
        body = {"apiVersion": f"{GROUP}/v1alpha1", "kind": "NodeDrain"}
        self.ask("POST", _DRAINS, {**body, "metadata": {"name": "by-hand"}, "spec": spec})

    def set_health(self, value: str) -> None:
        """Open or close the gates."""
        self.ask("PATCH", f"{_MAPS}/{HEALTH}", {"data": {"is": value}})

    def approve(self, wave: int) -> None:
        """Approve a wave."""
        text = json.dumps({"wave": wave, "by": "user", "at": str(self.seconds)})
        body = {"metadata": {"annotations": {APPROVE_ANNOTATION: text}}}
        self.ask("PATCH", f"{_ROLLOUTS}/r", body)

    def rollout(self, name: str = "r") -> dict[str, Any]:
        """Return a rollout."""
        return next(r for r in self._of("noderollouts") if r["metadata"]["name"] == name)

    def waits(self) -> dict[str, str]:
        """Return why each node waits, by its name: the reason and the message."""
        found = {}
        for each in self._of("nodereplacements"):
            conditions = (each.get("status") or {}).get("conditions") or ()
            for condition in conditions:
                if (condition["type"], condition["status"]) == ("Waiting", "True"):
                    text = f"{condition['reason']}: {condition.get('message', '')}"
                    found[each["spec"]["nodeName"]] = text
        return found

    def ask(self, method: str, path: str, body: Any = None) -> None:
        """Send a request as a user does."""
        answer = self.server.request(method, path, body, agent="user")
        expect(answer.status < 300, f"{method} {path}: {answer.body!r}")

    def wait(self, done: Callable[[], bool], longest: float = _LONGEST) -> float:
        """Let time pass until a condition holds; return the elapsed seconds."""
        began = self.seconds
        while not done():
            expect(self.seconds < began + longest, f"nothing within {longest:.0f} s: {self}")
            self.step(_STEP)
        return self.seconds - began

    def pass_time(self, seconds: float) -> None:
        """Let time pass."""
        ends = self.seconds + seconds
        while self.seconds < ends:
            self.step(_STEP)

    def expect_start(self, earliest: float, latest: float) -> None:
        """Check that another node starts, between two times in seconds from now."""
        began, known = self.seconds, len(self.starts)
        self.wait(lambda: len(self.starts) > known, latest + _SOON)
        after = self.starts[known][0] - began
        text = f"a node started after {after:.2f} s, not after {earliest:.1f} to {latest:.1f} s"
        expect(earliest <= after <= latest, text)

    def expect_none(self, seconds: float) -> None:
        """Check that no node starts for some time."""
        known = len(self.starts)
        self.pass_time(seconds)
        expect(len(self.starts) == known, f"{self.nodes[known:]} started, and may not: {self}")

    def expect_over(self, node: str) -> None:
        """Wait until the replacement of a node is Done."""
        self.wait(lambda: self.step_of(node) == "Done")

    def is_cordoned(self, name: str) -> bool:
        """Return whether a node is cordoned."""
        node = self.server.find("nodes", name)
        return node is not None and is_cordoned(node)

    def owner_of_cordon(self, name: str) -> str:
        """Return which drain has cordoned a node."""
        node = self.server.find("nodes", name)
        return mark_of(node) if node is not None else ""

    def drains(self) -> list[dict[str, Any]]:
        """Return all drains."""
        return self._of("nodedrains")

    def step_of(self, node: str) -> str:
        """Return the step of a node."""
        found = [r for r in self._of("nodereplacements") if r["spec"]["nodeName"] == node]
        return step_of(found[0]) if found else ""

    def __str__(self) -> str:
        return f"{self.starts}, {self.waits()}"

    def _on_change(self, change: Change) -> None:
        before, after = change.previous, change.object
        if change.resource.plural != "nodereplacements" or change.type == "DELETED":
            return
        if step_of(after) == "Reserved" and (before is None or step_of(before) != "Reserved"):
            self.starts.append((self.seconds, after["spec"]["nodeName"]))

    def _nodes(self) -> int:
        return 6

    def _replicas(self) -> int:
        return 1

    def _workloads(self) -> list[Workload]:
        return [Workload("web", 4)]


def expect(is_so: bool, text: str) -> None:
    """Check something.

    Raises:
        Verdict: It is not so.
    """
    if not is_so:
        raise Verdict(text)


# Slots


def _every_holder_counts(stage: Stage) -> None:
    """A drain of a user and a node of another system use up the limit of a rollout (NP-04)."""
    stage.add_drain("n1")
    stage.add_map(UPDATES, "n2", seconds="60")
    stage.wait(lambda: any("started" in m["data"] for m in stage.server.list("configmaps")))
    stage.add_rollout(strategy={"maxConcurrent": 2})
    stage.expect_none(20.0)
    waits = stage.waits()
    expect("NodeDrain by-hand" in waits["n1"], f"the wait of n1 does not name its drain: {waits}")
    named = "2 of 2 nodes in flight: ConfigMap updates-n2, NodeDrain by-hand (created by a user)"
    expect(f"MaxConcurrent: {named}" in waits.values(), f"the holders are not named: {waits}")
    stage.ask("DELETE", f"{_DRAINS}/by-hand")
    stage.expect_start(0.0, _SOON)
    expect(stage.nodes[0] != "n2", "n2 started, and another system holds it")
    stage.wait(lambda: len(stage.starts) == 6)


def _the_zone_of_a_holder(stage: Stage) -> None:
    """With `topologyKey`, no node starts beside a held node of another zone (NP-04)."""
    stage.add_drain("n1")
    stage.add_rollout(strategy={"maxConcurrent": 6, "topologyKey": "zone"})
    stage.wait(lambda: len(stage.starts) == 2)
    stage.expect_over(stage.nodes[1])
    stage.expect_none(10.0)
    expect(sorted(stage.nodes) == ["n3", "n5"], f"n1 is in zone a, as n3 and n5 are: {stage}")
    expect("Topology" in stage.waits()["n2"], f"n2 waits for another reason: {stage}")
    expect("NodeDrain by-hand" in stage.waits()["n2"], f"n2 does not name the holder: {stage}")
    stage.ask("DELETE", f"{_DRAINS}/by-hand")
    stage.wait(lambda: len(stage.starts) == 6)


def _a_holder_of_the_control_plane(stage: Stage) -> None:
    """No control-plane node starts while another one is held, and it delays no node (NP-04)."""
    for node in ("n1", "n2"):
        labels = {CONTROL_PLANE_LABEL: ""}
        stage.ask("PATCH", f"/api/v1/nodes/{node}", {"metadata": {"labels": labels}})
    stage.add_drain("n1")
    stage.add_rollout(strategy={"maxConcurrent": 6})
    stage.wait(lambda: len(stage.starts) == 4)
    stage.expect_none(20.0)
    expect("n2" not in stage.nodes, f"n2 started beside n1: {stage}")
    text = stage.waits()["n2"]
    expect("ControlPlane" in text and "NodeDrain by-hand" in text, f"n2 waits for: {text}")
    stage.ask("DELETE", f"{_DRAINS}/by-hand")
    stage.expect_start(0.0, _SOON)
    stage.wait(lambda: len(stage.starts) == 6)


def _a_lost_answer_of_another_system(stage: Stage) -> None:
    """A slot that another system has taken counts although its answer was lost (NP-03)."""
    after, held_until = stage.trouble.after, stage.trouble.held_until
    lost_at: list[float] = []

    def lose(process: Process, call: ApiCall) -> None:
        if (call.verb, call.resource) == ("create", "nodedrains") and not lost_at:
            lost_at.append(stage.seconds)
            raise Lost
        after(process, call)

    def lag(process: Process, resource: str) -> float:
        if resource == "nodedrains" and lost_at:
            return lost_at[0] + 40.0
        return held_until(process, resource)

    stage.trouble.after = lose  # type: ignore[method-assign]
    stage.trouble.held_until = lag  # type: ignore[method-assign]
    # The rollout has been created and its nodes are ready to start, but for the gate.
    stage.add_map(HEALTH, **{"is": "ill"})
    stage.add_rollout(gates=[_GATE])
    stage.wait(lambda: "Gate" in "".join(stage.waits().values()))
    stage.add_map(CHECKS, "n2", seconds="30")
    stage.wait(lambda: bool(lost_at))
    stage.set_health("well")
    stage.expect_none(20.0)
    stage.expect_start(0.0, 60.0)


def _a_user_cordons_first(stage: Stage) -> None:
    """A node that a rollout has drained stays cordoned when the drain of a user ends (OP-41)."""
    after = stage.trouble.after

    def cordon(process: Process, call: ApiCall) -> None:
        after(process, call)
        if stage.starts and not any(d["metadata"]["name"] == "by-hand" for d in stage.drains()):
            stage.add_drain(stage.nodes[0], evict=False)

    stage.trouble.after = cordon  # type: ignore[method-assign]
    stage.add_rollout(strategy={"maxConcurrent": 1})
    stage.wait(lambda: bool(stage.starts))
    node = stage.nodes[0]
    stage.wait(lambda: "by-hand" in stage.owner_of_cordon(node), 1.0)
    stage.expect_over(node)
    stage.trouble.after = after  # type: ignore[method-assign]
    stage.ask("DELETE", f"{_DRAINS}/by-hand")
    stage.wait(lambda: not any(d["metadata"]["name"] == "by-hand" for d in stage.drains()))
    expect(stage.is_cordoned(node), f"{node} was uncordoned with the drain of a user")
    stage.wait(lambda: len(stage.starts) == 6)


def _objections(stage: Stage) -> None:
    """A node that a system needs waits, and delays no other node (NP-05)."""
    stage.add_map(NEEDS, "n1")
    stage.add_map(NEEDS, "n3")
    stage.add_rollout()
    stage.wait(lambda: len(stage.starts) == 4)
    stage.expect_over(stage.nodes[3])
    expect(sorted(stage.nodes) == ["n2", "n4", "n5", "n6"], f"others started: {stage}")
    stage.expect_none(10.0)
    waits = stage.waits()
    wanted = {name: f"NodeNeeded: needs-{name} needs it" for name in ("n1", "n3")}
    expect(waits == wanted, f"they wait for another reason: {waits}")
    stage.ask("DELETE", f"{_MAPS}/needs-n3")
    stage.expect_start(0.0, _SOON)
    expect(stage.nodes[-1] == "n3", f"n3 did not start: {stage}")
    stage.expect_over("n3")
    stage.expect_none(10.0)


# Gates


def _a_gate_flaps(stage: Stage) -> None:
    """No node starts while a gate is never open for `stableSeconds` (NP-30)."""
    stage.add_map(HEALTH, **{"is": "ill"})
    stage.add_rollout(gates=[{**_GATE, "stableSeconds": 5}])
    for number in range(20):
        stage.expect_none(3.5)
        stage.set_health("ill" if number % 2 else "well")
    stage.set_health("well")
    stage.expect_start(4.9, 5.0 + _SOON)


def _a_gate_times_out(stage: Stage) -> None:
    """A closed gate halts what it alone keeps from starting, after its own timeout (NP-30)."""
    stage.add_map(HEALTH, **{"is": "ill"})
    period = {"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T01:00:00Z"}
    gate = {**_GATE, "stableSeconds": 10}
    halting = {**gate, "timeoutSeconds": 30}
    stage.add_rollout("halted", gates=[halting])
    stage.add_rollout("patient", gates=[{**gate, "timeoutSeconds": 0}])
    stage.add_rollout("paused", gates=[halting], paused=True)
    stage.add_rollout("later", gates=[halting], strategy={"blackouts": [period]})
    stage.pass_time(25.0)
    stage.set_health("well")
    stage.expect_none(5.0)
    stage.set_health("ill")  # the time begins again
    elapsed = stage.wait(lambda: phase_of(stage.rollout("halted")) == "Halted")
    expect(29.0 <= elapsed <= 30.0 + _SOON, f"it was halted after {elapsed:.2f} s")
    stage.pass_time(60.0)
    for name in ("patient", "paused", "later"):
        expect(phase_of(stage.rollout(name)) == "InProgress", f"{name} is halted")
    stage.set_health("well")
    stage.expect_start(9.9, 10.0 + _SOON)
    expect(phase_of(stage.rollout("halted")) == "Halted", "a halt ended by itself")


def _a_gate_after(stage: Stage) -> None:
    """A drained node counts as done only behind gates with `after`, and keeps its slot (NP-30)."""
    stage.add_map(HEALTH, **{"is": "well"})
    stage.add_rollout(gates=[{**_GATE, "after": True, "stableSeconds": 4}])
    stage.wait(lambda: len(stage.starts) == 1)
    stage.set_health("ill")
    node = stage.nodes[0]
    stage.wait(lambda: stage.step_of(node) == "Verifying")
    stage.expect_none(30.0)
    expect(stage.step_of(node) == "Verifying", f"{node} did not wait for the gate")
    stage.set_health("well")
    elapsed = stage.wait(lambda: stage.step_of(node) == "Done")
    expect(3.9 <= elapsed <= 4.0 + _SOON, f"{node} was done after {elapsed:.2f} s")


# Waves


def _a_wave_soaks(stage: Stage) -> None:
    """A wave soaks from the last node on, and again from the opening of the gates on (NP-43)."""
    stage.add_map(HEALTH, **{"is": "well"})
    waves = [{"upTo": 1, "soakSeconds": 20}, {"upTo": "100%"}]
    stage.add_rollout(gates=[_GATE], strategy={"waves": waves})
    stage.wait(lambda: len(stage.starts) == 1)
    stage.expect_over(stage.nodes[0])
    stage.expect_none(10.0)
    stage.set_health("ill")
    stage.expect_none(15.0)
    stage.set_health("well")
    stage.expect_start(19.0, 20.0 + _SOON)


def _a_wave_needs_an_approval(stage: Stage) -> None:
    """An approval counts only for the wave that waits for it (NP-43)."""
    waves = [{"upTo": 2, "approval": True}, {"upTo": 4}]
    stage.add_rollout(strategy={"waves": waves})
    stage.wait(lambda: len(stage.starts) == 1)
    stage.approve(1)
    stage.wait(lambda: len(stage.starts) == 2)
    stage.expect_over(stage.nodes[1])
    stage.expect_none(10.0)
    stage.approve(2)
    stage.expect_none(10.0)
    stage.approve(1)
    stage.expect_start(0.0, _SOON)


def _a_replacement_of_a_wave_is_deleted(stage: Stage) -> None:
    """A finished node of a wave counts after its replacement was deleted (NP-43)."""
    waves = [{"upTo": 1, "soakSeconds": 20}, {"upTo": 4}]
    stage.add_rollout(strategy={"waves": waves})
    stage.wait(lambda: len(stage.starts) == 1)
    stage.expect_over(stage.nodes[0])
    stage.pass_time(5.0)
    (done,) = [r for r in stage._of("nodereplacements") if step_of(r) == "Done"]
    stage.ask("DELETE", f"{_REPLACEMENTS}/{done['metadata']['name']}")
    stage.expect_start(13.0, 15.0 + _SOON)
    expect(len(set(stage.nodes)) == 2, f"a finished node started again: {stage}")
    node = stage.server.find("nodes", stage.nodes[0])
    expect(node is not None and bool(mark_of(node)), "the drained node is uncordoned")


# Windows


def _a_window_ends(stage: Stage) -> None:
    """With `onWindowEnd: GiveBack` a node that is not empty is given back in time (NP-41)."""
    stage.cluster.set_budget("web", {"maxUnavailable": 0})
    stage.cluster.count_budgets()
    begins = stage.scheduler.now() + timedelta(seconds=30)
    period = {"from": format_time(begins), "to": format_time(begins + timedelta(seconds=60))}
    strategy = {"blackouts": [period], "onWindowEnd": "GiveBack"}
    stage.add_rollout(strategy=strategy)
    stage.expect_start(0.0, 2 * _SOON)
    node = stage.nodes[0]
    stage.wait(lambda: stage.step_of(node) == "Draining")
    left = (begins - stage.scheduler.now()).total_seconds()
    elapsed = stage.wait(lambda: not stage.is_cordoned(node))
    expect(left - _SOON <= elapsed <= left + _SOON, f"{node} was given back after {elapsed:.2f} s")
    stage.expect_none((begins - stage.scheduler.now()).total_seconds() + 58.0)
    stage.expect_start(0.0, 2.0 + _SOON)


def _a_node_does_not_fit(stage: Stage) -> None:
    """With `fitWindow` no node starts that usually takes longer than its window (NP-42)."""
    ends = stage.scheduler.now() + timedelta(seconds=120)
    period = {"from": format_time(ends), "to": format_time(ends + timedelta(seconds=60))}
    stage.add_map(NEEDS, "n6")
    stage.add_rollout(strategy={"blackouts": [period], "fitWindow": True})
    stage.wait(lambda: len(stage.starts) == 5)
    stage.expect_over(stage.nodes[4])
    stage.expect_none((ends - stage.scheduler.now()).total_seconds() - 2.0)
    stage.ask("DELETE", f"{_MAPS}/needs-n6")
    stage.expect_none(1.5)
    expect("DoesNotFit: the window closes" in stage.waits()["n6"], f"it does not say so: {stage}")
    stage.expect_none(60.0)
    stage.expect_start(0.0, 0.75 + _SOON)


_BERLIN: Final = "Europe/Berlin"


def _window(start: str, end: str) -> dict[str, Any]:
    return {"windows": [{"start": start, "end": end, "timeZone": _BERLIN}]}


def _clocks_go_forward(stage: Stage) -> None:
    """A window at a skipped hour opens later by the gap (NP-40): 02:30 is 03:30, 01:30 UTC."""
    stage.add_rollout(strategy=_window("02:30", "02:45"))
    stage.wait(lambda: bool(stage.waits()))
    text = "the next window opens at 2026-03-29 03:30:00 Europe/Berlin"
    expect(f"OutsideWindow: {text}" in stage.waits().values(), f"{stage.waits()}")
    opens = (datetime(2026, 3, 29, 1, 30, tzinfo=UTC) - stage.scheduler.now()).total_seconds()
    stage.expect_start(opens, opens + _SOON)


def _clocks_go_back(stage: Stage) -> None:
    """A window at a repeated hour ends at the second occurrence of its end: 02:45 is 01:45 UTC.

    A node still starts shortly before it, and none after it.
    """
    until = datetime(2026, 10, 25, 1, 44, tzinfo=UTC)
    blackout = {"from": "2026-10-25T00:00:00Z", "to": f"{until:%Y-%m-%dT%H:%M:%SZ}"}
    strategy = {**_window("02:30", "02:45"), "blackouts": [blackout], "settleSeconds": 90}
    stage.add_rollout(strategy=strategy)
    opens = (until - stage.scheduler.now()).total_seconds()
    stage.expect_start(opens, opens + _SOON)
    stage.expect_none(240.0)
    text = "the next window opens at 2026-10-26 02:30:00 Europe/Berlin"
    expect(f"OutsideWindow: {text}" in stage.waits().values(), f"{stage.waits()}")


DESIGNS: Final[Mapping[str, Callable[[Stage], None]]] = {
    "every holder counts": _every_holder_counts,
    "the zone of a holder": _the_zone_of_a_holder,
    "a holder of the control plane": _a_holder_of_the_control_plane,
    "a lost answer of another system": _a_lost_answer_of_another_system,
    "a user cordons first": _a_user_cordons_first,
    "objections": _objections,
    "a gate flaps": _a_gate_flaps,
    "a gate times out": _a_gate_times_out,
    "a gate after": _a_gate_after,
    "a wave soaks": _a_wave_soaks,
    "a wave needs an approval": _a_wave_needs_an_approval,
    "a replacement of a wave is deleted": _a_replacement_of_a_wave_is_deleted,
    "a window ends": _a_window_ends,
    "a node does not fit": _a_node_does_not_fit,
    "clocks go forward": _clocks_go_forward,
    "clocks go back": _clocks_go_back,
}
"""What happens, by name."""

_BEGINNINGS: Final = {
    "clocks go forward": datetime(2026, 3, 29, 1, 25, tzinfo=UTC),
    "clocks go back": datetime(2026, 10, 25, 1, 42, tzinfo=UTC),
}
"""When designs begin. The others begin with the year."""


def play_design(name: str) -> str:
    """Play a designed run; return what is wrong, in words, or an empty text."""
    stage = Stage(_BEGINNINGS.get(name, EPOCH) - timedelta(seconds=12))
    try:
        DESIGNS[name](stage)
    except Verdict as verdict:
        return f"{name}: {verdict}"
    finally:
        stage.close()
    return ""
