"""Play one run of the model, decided by its seed: minutes of chaos, then an orderly end."""

import random
from datetime import datetime
from functools import cache
from typing import Any, Final

from tests.model.actors import Actors
from tests.model.cluster import Cluster, Workload
from tests.model.ending import faults_at_the_end
from tests.model.judging import PATIENCE, Judge, Verdict
from tests.model.operators import identities
from tests.model.people import People
from tests.model.scheduling import EPOCH, Scheduler
from tests.model.serving import Server
from tests.model.staffing import Deployment
from tests.model.systems import Holders, add_systems
from tests.model.trouble import Shaken, Trace

from navarchos.operator.api.v1alpha1.definitions import manifests

__all__ = ["Run", "definitions", "run"]

_STEP: Final = 1.0
_PATIENCE: Final = 3600.0
_QUIET: Final = 120.0
_STEADY: Final = 5
_SHARE: Final = 0.25
"""Of the runs, how many have other systems beside rollouts."""

_SHARE_OF_ACTIONS: Final = 0.15
"""Of the runs, how many have actions, preparations and cancellations."""

_TURNS: Final = 1000
"""About thirty are usual in that time; a busy loop has hundreds of thousands."""


@cache
def definitions() -> list[dict[str, Any]]:
    """Return the operator's kinds without validation rules that are slow to evaluate.

    Other tests evaluate all of them.
    """
    return [_without_rules(definition) for definition in manifests()]


def _without_rules(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _without_rules(each)
            for key, each in value.items()
            if key != "x-kubernetes-validations"
        }
    return [_without_rules(each) for each in value] if isinstance(value, list) else value


class Run:
    """All parts of one run."""

    def __init__(
        self, seed: int, rand: random.Random | None = None, begins_at: datetime = EPOCH
    ) -> None:
        # The library's own jitter and the server's names are drawn from the module's source.
        random.seed(seed)
        self.seed = seed
        self.rand = rand or random.Random(seed)
        self.scheduler = Scheduler(self.rand, begins_at)
        self.trace = Trace(self.scheduler)
        self.server = Server(self.scheduler, definitions(), identities(self.rand))
        self.judge = Judge(self.scheduler, self.server)
        self.trouble = Shaken(self.scheduler, self.rand, self.trace, self.judge)
        self.cluster = Cluster(
            self.scheduler,
            self.server,
            self.rand,
            self._nodes(),
            self._workloads(),
            control_plane=self.rand.choice([0, 0, 2]),
        )
        self.people = People(
            self.scheduler,
            self.server,
            self.cluster,
            self.trouble,
            self.judge,
            self.rand,
            self.trace,
        )
        self.deployment = Deployment(
            self.scheduler,
            self.server,
            self.trouble,
            self.judge,
            self.rand,
            self.trace,
            self._replicas(),
        )
        # Further features have another source of draws, so that the other runs stay the same.
        self.further = random.Random(f"further {seed}")
        gates = random.Random(f"gates {seed}")
        self.holders = Holders(self.server, self.cluster, self.further, gates, self.trace.add)
        self.has_systems = self.further.random() < _SHARE
        self.acting = random.Random(f"acting {seed}")
        self.actors = Actors(self.server, self.cluster, self.acting, self.trace.add)
        self.has_actions = self.acting.random() < _SHARE_OF_ACTIONS

    def play(self) -> None:
        """Play the run to its end.

        Raises:
            Verdict: An invariant was violated.
        """
        self._choose_features()
        self.people.add_rollout()
        if self.rand.random() < 0.4:
            self.people.add_rollout()
        self._chaos(self.rand.uniform(60.0, 240.0))
        self._heal()
        self._wait_for_the_end()
        self._judge_the_end()
        self._expect_silence()
        self._clear_away()

    def close(self) -> None:
        """End every process, so that nothing of the run remains."""
        self.deployment.close()

    def step(self, seconds: float = _STEP) -> None:
        """Let time pass, with the actors of the cluster."""
        self.deployment.step()
        self.people.step()
        self.holders.step()
        self.actors.step()
        self.cluster.step()
        self.scheduler.sleep(seconds)
        self._look()

    def _choose_features(self) -> None:
        if self.has_systems:
            self.deployment.further = add_systems
            self.holders.begin()
        if self.has_actions:
            self.actors.begin()
        self.people.add_fields = self._add_fields

    def _add_fields(self, spec: dict[str, Any]) -> None:
        if self.has_systems:
            self.holders.add_fields(spec)
        if self.has_actions:
            self.actors.add_fields(spec)

    def _nodes(self) -> int:
        return self.rand.choice([2, 3, 3, 4])

    def _workloads(self) -> list[Workload]:
        rand = self.rand
        return [
            Workload("web", rand.randint(2, 4), {"maxUnavailable": 1}),
            Workload("db", rand.randint(1, 3), rand.choice([{}, {"minAvailable": 1}])),
        ]

    def _replicas(self) -> int:
        return self.rand.choice([1, 1, 1, 2])

    def _chaos(self, seconds: float) -> None:
        rand = self.rand
        self.trouble.rate = rand.choice([0.0, 0.01, 0.05])
        self.trouble.most_lag = rand.choice([0.0, 3.0, 30.0])
        self.judge.facts.patience = PATIENCE + self.trouble.most_lag
        self.deployment.begin_trouble()
        ends = self.scheduler.seconds + seconds
        pace = rand.choice([0.05, 0.15, 0.3])
        while self.scheduler.seconds < ends:
            self.step(rand.uniform(0.2, 1.5))
            if rand.random() < pace:
                self.people.act()
            if self.has_systems and self.further.random() < pace:
                self.holders.act()
            if self.has_actions and self.acting.random() < pace:
                self.actors.act()
            if rand.random() < 0.03:
                self._disturb()

    def _disturb(self) -> None:
        """Apply a fault to the operator itself."""
        leader = self.deployment.leader
        if leader is None:
            return
        name = leader.process.name
        match self.rand.randrange(9):
            case 0 | 1:
                number = self.trouble.requests[name] + self.rand.randint(1, 12)
                self.trouble.kill_before = (name, number)
            case 2 | 3:
                number = self.trouble.requests[name] + self.rand.randint(1, 12)
                self.trouble.kill_after = (name, number)
            case 4:
                self.deployment.tell_to_go(leader)
            case 5:
                self.deployment.freeze(leader)
            case 6:
                self.deployment.silence(leader)
            case _:
                self.trace.add(name, "watches are cut, history is forgotten")
                self.judge.disturbed(self.scheduler.seconds + 5.0)
                if self.rand.random() < 0.5:
                    self.server.store.compact()
                self.server.break_watches(leader.process, lambda: self.rand.random() < 0.5)

    def _heal(self) -> None:
        self.trace.add("run", "no further faults from here on")
        self.trouble.heal()
        self.server.wake_watches()
        self.trouble.kill_before = self.trouble.kill_after = None
        self.people.heal()
        self.holders.heal()
        self.actors.heal()
        self.deployment.heal()
        self.judge.disturbed(self.scheduler.seconds + 30.0)

    def _wait_for_the_end(self) -> None:
        ends = self.scheduler.seconds + _PATIENCE
        over_for = 0
        while over_for < _STEADY:
            if self.scheduler.seconds >= ends:
                raise Verdict(f"not over after {_PATIENCE:.0f} s: {self._standing()}")
            self.step(2.0)
            # Objects that no process could finish only seem to be unfinished.
            is_led = self.deployment.leader is not None
            over_for = over_for + 1 if is_led and self._is_over() else 0

    def _is_over(self) -> bool:
        rollouts = self._of("noderollouts")
        ended = all(_phase(r) in {"Completed", "Halted"} for r in rollouts)
        held = any(_phase(d) not in {"Completed", "Failed"} for d in self._of("nodedrains"))
        moving = any(_phase(r) == "InProgress" for r in self._of("nodereplacements"))
        going = any(
            obj["metadata"].get("deletionTimestamp")
            for plural in ("noderollouts", "nodereplacements", "nodedrains")
            for obj in self._of(plural)
        )
        return ended and self.holders.is_over and not held and not moving and not going

    def _expect_silence(self) -> None:
        """Check that without changes nothing is written (A6) and few threads wake up."""
        # Empty nodes are checked again for a minute, and a drain with late pods continues.
        for _ in range(40):
            self.step(2.0)
        self._wait_for_the_end()
        before, turns = self.trouble.writes.total(), self.scheduler.turns
        self.scheduler.sleep(_QUIET)
        written, turns = self.trouble.writes.total() - before, self.scheduler.turns - turns
        if written:
            raise Verdict(f"{written} writes in {_QUIET:.0f} s without changes")
        if turns > _TURNS:
            raise Verdict(f"threads woke {turns} times in {_QUIET:.0f} s without work")

    def _clear_away(self) -> None:
        """Delete all rollouts and check that drained nodes stay cordoned and others do not."""
        self.people.delete_rollouts()
        self._wait_for_the_end()
        self._judge_the_end()
        if any(map(self._of, ("noderollouts", "nodereplacements", "nodedrains"))):
            raise Verdict(f"objects of deleted rollouts remain: {self._standing()}")

    def _judge_the_end(self) -> None:
        self._look()
        faults = faults_at_the_end(self.server, self.judge, self.people)
        if faults:
            raise Verdict("; ".join(faults))

    def _look(self) -> None:
        self.deployment.look()
        self.judge.look_at_the_books()
        if self.judge.violations:
            raise Verdict("; ".join(self.judge.violations[:3]))

    def _standing(self) -> str:
        found = []
        for plural in ("noderollouts", "nodereplacements", "nodedrains"):
            for obj in self._of(plural):
                step = ((obj.get("status") or {}).get("step") or {}).get("name", "")
                found.append(
                    f"{obj['kind']} {obj['metadata']['name']} {_phase(obj)} {step}".strip()
                )
        return ", ".join(found)

    def _of(self, plural: str) -> list[dict[str, Any]]:
        return self.server.list(plural, "navarchos.pusher.com")


def _phase(obj: dict[str, Any]) -> str:
    return str((obj.get("status") or {}).get("phase", ""))


def run(
    seed: int, *, with_systems: bool = False, with_actions: bool = False
) -> tuple[str, list[str]]:
    """Play one run.

    Args:
        seed: Decides everything.
        with_systems: Whether the run has other systems beside rollouts in any case.
        with_actions: Whether its rollouts have actions and preparations in any case.

    Returns:
        The violation, or an empty text, and the trace, line by line.
    """
    one = Run(seed)
    one.has_systems = one.has_systems or with_systems
    one.has_actions = one.has_actions or with_actions
    try:
        one.play()
    except Verdict as verdict:
        return str(verdict), one.trace.lines
    finally:
        one.close()
    return "", one.trace.lines
