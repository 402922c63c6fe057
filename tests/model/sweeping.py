"""Play a rollout from beginning to end, with one crash at a chosen request.

Requests are numbered. Every request of the operator's process counts, including reads,
watches, events and leader election.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tests.model.ending import faults_at_the_end
from tests.model.judging import GROUP, OPERATOR, Verdict, step_of
from tests.model.run import Run

from navarchos.operator.names import DRAIN_COMPLETED_LABEL

__all__ = ["SETTINGS", "Outcome", "Setting", "Sweep", "sweep"]

_SEED: Final = 1
_FIRST: Final = f"{OPERATOR}1"


@dataclass(frozen=True, slots=True)
class Setting:
    """A rollout with its circumstances.

    Attributes:
        spec: The spec of the rollout.
        acts: Actions of a user, by seconds after the creation.
        budgets: Budgets by workload, instead of the usual ones.
        is_timed: Whether the result depends on timing, so that only the promises about
            the end are compared.
    """

    spec: Mapping[str, Any]
    acts: Mapping[float, Callable[[Run], None]] | None = None
    budgets: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    is_timed: bool = False


@dataclass(frozen=True)
class Outcome:
    """The result of a rollout, which must not depend on crashes."""

    phase: str
    completed: frozenset[str]
    failed: frozenset[str]
    steps: Mapping[str, str]
    closed: frozenset[str]
    drained: frozenset[str]


def _strategy(**fields: Any) -> dict[str, Any]:
    return {"pendingPods": "Ignore", **fields}


def _pause(run: Run) -> None:
    _edit(run, "PATCH", {"spec": {"paused": True}})


def _go_on(run: Run) -> None:
    _edit(run, "PATCH", {"spec": {"paused": False}})


def _delete(run: Run) -> None:
    _edit(run, "DELETE", None)


def _relax(run: Run) -> None:
    run.cluster.set_budget("web", {"maxUnavailable": 9})


def _join(run: Run) -> None:
    run.deployment.start()


def _hand_over(run: Run) -> None:
    if run.deployment.leader is not None:
        run.deployment.leader.stop.stop("stopped")


def _edit(run: Run, method: str, body: Any) -> None:
    run.server.request(method, f"/apis/{GROUP}/v1alpha1/noderollouts/r", body)


_ALL: Final = {"nodeSelectors": [{"matchAll": True}]}
_BY_PRIORITY: Final = {
    "nodeNames": [
        {"name": "n1", "replacement": {"priority": 1}},
        {"name": "n2", "replacement": {"priority": 9}},
    ]
}

# Pods may be evicted although the last nodes are cordoned too; which node fails is random.
_ROOM: Final = {"web": {"maxUnavailable": 9}, "db": {"maxUnavailable": 9}}

SETTINGS: Final[Mapping[str, Setting]] = {
    "three at once": Setting(
        {**_ALL, "strategy": _strategy(maxConcurrent=3)},
        budgets=_ROOM,
    ),
    "by priority": Setting({**_BY_PRIORITY, "strategy": _strategy()}),
    "halted": Setting(
        {**_ALL, "strategy": _strategy(retries=0), "drain": {"timeoutSeconds": 30}},
        budgets={"web": {"maxUnavailable": 0}},
    ),
    "stalled for a while": Setting(
        {
            **_ALL,
            "strategy": _strategy(maxFailures=9),
            "drain": {"timeoutSeconds": 20, "onTimeout": "Hold", "evictionRetrySeconds": 60},
        },
        acts={120.0: _relax},
        budgets={**_ROOM, "web": {"maxUnavailable": 0}},
    ),
    "paused for a while": Setting(
        {**_ALL, "strategy": _strategy()}, acts={4.0: _pause, 12.0: _go_on}, budgets=_ROOM
    ),
    "handed over": Setting(
        {**_ALL, "strategy": _strategy()}, acts={3.0: _join, 12.0: _hand_over}, budgets=_ROOM
    ),
    "tainted": Setting({**_ALL, "strategy": _strategy(taintWaitingNodes=True)}, budgets=_ROOM),
    "deleted": Setting({**_ALL, "strategy": _strategy()}, acts={5.0: _delete}, is_timed=True),
}
"""Settings by name."""


class Sweep(Run):
    """One pass of a sweep.

    Args:
        setting: The rollout and its circumstances.
        before: The number of the request before which the process dies; 0 for none.
        after: The number of the request whose answer is lost with the process.
        rand: Makes the draws of the run; random ones by default.
    """

    def __init__(
        self,
        setting: Setting,
        *,
        before: int = 0,
        after: int = 0,
        rand: random.Random | None = None,
    ) -> None:
        super().__init__(_SEED, rand)
        self._setting = setting
        self._kill = (before, after)
        for workload, rule in setting.budgets.items():
            self.cluster.set_budget(workload, rule)
        self.cluster.count_budgets()

    @property
    def requests(self) -> int:
        """The number of requests of the first process."""
        return self.trouble.requests[_FIRST]

    def sweep(self) -> Outcome:
        """Play the pass to its end.

        Raises:
            Verdict: An invariant was violated.
        """
        before, after = self._kill
        self.trouble.kill_before = (_FIRST, before) if before else None
        self.trouble.kill_after = (_FIRST, after) if after else None
        _create(self, self._setting.spec)
        began = self.scheduler.seconds
        acts = sorted((self._setting.acts or {}).items(), key=lambda pair: pair[0])
        for at, act in acts:
            while self.scheduler.seconds < began + at:
                self.step(0.5)
            act(self)
        self._wait_for_the_end()
        faults = faults_at_the_end(self.server, self.judge, self.people)
        twice = [uid for uid, times in self.judge.drains.evicted.items() if times > 1]
        if twice:
            faults.append(f"pods were evicted twice: {', '.join(twice)}")
        if faults:
            raise Verdict("; ".join(faults))
        return self._outcome()

    def _replicas(self) -> int:
        return 1

    def _outcome(self) -> Outcome:
        if self._setting.is_timed:
            return Outcome("", frozenset(), frozenset(), {}, frozenset(), frozenset())
        (rollout,) = self._of("noderollouts")
        status = rollout["status"]
        nodes = self.server.list("nodes")
        return Outcome(
            phase=status["phase"],
            completed=frozenset(status.get("replacementsCompleted") or ()),
            failed=frozenset(status.get("replacementsFailed") or ()),
            steps={r["spec"]["nodeName"]: step_of(r) for r in self._of("nodereplacements")},
            closed=frozenset(
                n["metadata"]["name"] for n in nodes if n["spec"].get("unschedulable")
            ),
            drained=frozenset(
                n["metadata"]["name"]
                for n in nodes
                if DRAIN_COMPLETED_LABEL in (n["metadata"].get("labels") or {})
            ),
        )


def _create(run: Run, spec: Mapping[str, Any]) -> None:
    body = {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "NodeRollout",
        "metadata": {"name": "r"},
        "spec": spec,
    }
    answer = run.server.request("POST", f"/apis/{GROUP}/v1alpha1/noderollouts", body)
    assert answer.status == 201, answer.body


def sweep(name: str, step: int) -> tuple[list[str], int]:
    """Sweep a setting.

    Args:
        name: The name of the setting.
        step: The distance between two requests with a crash.

    Returns:
        The violations, and the number of passes.
    """
    setting, wrong, passes = SETTINGS[name], [], 1
    whole = Sweep(setting)
    try:
        expected = whole.sweep()
    finally:
        whole.close()
    for number in range(1, whole.requests + 1):
        if number % step:
            continue
        # With a larger step, "before" and "after" alternate.
        modes = ("before", "after") if step == 1 else (("before", "after")[number // step % 2],)
        for mode in modes:
            passes += 1
            one = (
                Sweep(setting, before=number) if mode == "before" else Sweep(setting, after=number)
            )
            try:
                found = one.sweep()
                if found != expected:
                    wrong.append(f"{name}: killed {mode} #{number}: {found} is not {expected}")
            except Verdict as verdict:
                wrong.append(f"{name}: killed {mode} #{number}: {verdict}")
            finally:
                one.close()
    return wrong, passes
