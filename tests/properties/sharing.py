"""Three systems that share slots in one process: rollouts, and two doubles of other systems.

Complete managers run in virtual time on the server of the model, with lost answers, lagging
watches, crashes and changes of leader. `python -m tests.properties.sharing 17` plays one run.
"""

import argparse
import logging
import os
import random
import sys
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from typing import Any, Final

import structlog
from tests.model.judging import GROUP, PATIENCE, Judge, Verdict, step_of
from tests.model.operators import identities
from tests.model.run import definitions
from tests.model.scheduling import Process, Scheduler
from tests.model.serving import Lost, Server
from tests.model.staffing import Deployment
from tests.model.trouble import Shaken, Trace

from navarchos.client import AlreadyExists
from navarchos.client.owners import owner_reference
from navarchos.operator.api.v1alpha1 import NODE_DRAINS
from navarchos.operator.names import DRAIN_FINALIZER
from navarchos.operator.nodes import NODES, Node
from navarchos.operator.setup import OperatorParts
from navarchos.operator.slots import Holder
from navarchos.runtime import OUTDATED_READ, Builder, CachedClient, Reconciler, Request, Result
from navarchos.testing.apiserver.handler import ApiCall
from navarchos.testing.apiserver.store import Change

JsonObject = Mapping[str, Any]

_NODES: Final = 5
_SECONDS: Final = 4.0
"""How long a double keeps a node."""

_CHECKED: Final = "checked"
_PLAN: Final = "plan"
_DONE: Final = "done"
_KINDS: Final = {"nodedrains", "nodereplacements", "nodes"}
_PATIENCE: Final = 1800.0
_ENDED: Final = {"Done", "Failed"}


class Double(Reconciler):
    """A system that takes each node out of service once, for some seconds."""

    name = ""

    def __init__(self, parts: OperatorParts, limit: int) -> None:
        self.parts = parts
        self.limit = limit
        self.unconfirmed: dict[tuple[CachedClient[Any], str], None] = {}
        self.has_written = False
        manager, request = parts.manager, Request("doubles", self.name)

        def due(_: object) -> tuple[Request]:
            return (request,)

        builder = Builder(manager, self.name, options=manager.options.controllers_with(workers=1))
        controller = builder.watches(NODES, map=due).watches(NODE_DRAINS, map=due).build(self)
        parts.slots.add_admission(
            self.name,
            lambda: controller.queue.add(request),
            confirm=self.confirm,
            kinds=(NODES.kind,),
        )

    def confirm(self) -> None:
        """Read the objects whose last write had no response."""
        for client, name in list(self.unconfirmed):
            found = client.fetch(name)
            if found is not None:
                client.observe(found)
            del self.unconfirmed[client, name]

    @contextmanager
    def writing(self, client: CachedClient[Any], name: str) -> Any:
        """Remember an object until the response to its write arrives."""
        self.unconfirmed[client, name] = None
        self.has_written = True
        try:
            yield
        except (AlreadyExists, *OUTDATED_READ):
            del self.unconfirmed[client, name]
            raise
        del self.unconfirmed[client, name]

    def reconcile(self, request: Request) -> Result:
        """Return nodes whose time is over, and take others, in one turn."""
        try:
            with self.parts.slots.turn():
                after = self.admit()
        except (AlreadyExists, *OUTDATED_READ):
            return Result(requeue_after=0.1)
        if self.has_written:
            self.parts.slots.notify(self.name)
            self.has_written = False
        return Result(requeue_after=after) if after is not None else Result()

    def admit(self) -> float | None:
        holders = self.parts.slots.holders()
        times = []
        for node in sorted(self.parts.clients.nodes.list(), key=lambda node: node.metadata.name):
            left = self.seconds_left(node)
            if left is not None and left <= 0:
                self.give_back(node)
            elif left is not None:
                times.append(left)
            elif self.is_over(node) or node.metadata.name in holders:
                continue
            elif len(holders) < self.limit:
                self.take(node)
                holders[node.metadata.name] = Holder("Double", self.name)
                times.append(_SECONDS)
        return min(times, default=None)

    def seconds_left(self, node: Node) -> float | None:
        """Return the seconds for which the system still needs a node that it has."""
        raise NotImplementedError

    def is_over(self, node: Node) -> bool:
        """Return whether the node has had its turn."""
        raise NotImplementedError

    def take(self, node: Node) -> None:
        """Take a slot."""
        raise NotImplementedError

    def give_back(self, node: Node) -> None:
        """Free the slot."""
        raise NotImplementedError


class Checks(Double):
    """Takes slots by NodeDrains that it owns."""

    name = "checks"

    def seconds_left(self, node: Node) -> float | None:
        drain = self.parts.clients.drains.find(f"check-{node.metadata.name}")
        if drain is None:
            return None
        created = drain.metadata.creation_timestamp
        assert created is not None
        return _SECONDS - (self.parts.manager.clock.now() - created).total_seconds()

    def is_over(self, node: Node) -> bool:
        return node.metadata.labels.get(_CHECKED) == _DONE

    def take(self, node: Node) -> None:
        name = f"check-{node.metadata.name}"
        owner = owner_reference(node, NODES, controller=True)
        metadata = {
            "name": name,
            # From the start: a cache that lacks a finalizer shows a deleted drain as gone.
            "finalizers": [DRAIN_FINALIZER],
            "ownerReferences": [
                {
                    "apiVersion": owner.api_version,
                    "kind": owner.kind,
                    "name": owner.name,
                    "uid": owner.uid,
                    "controller": True,
                }
            ],
        }
        spec = {"nodeName": node.metadata.name, "paused": True}
        with self.writing(self.parts.clients.drains, name):
            self.parts.clients.drains.create({"metadata": metadata, "spec": spec})

    def give_back(self, node: Node) -> None:
        if not self.is_over(node):
            with self.writing(self.parts.clients.nodes, node.metadata.name):
                self.parts.clients.nodes.patch(node, {"metadata": {"labels": {_CHECKED: _DONE}}})
        drain = self.parts.clients.drains.find(f"check-{node.metadata.name}")
        if drain is not None and drain.metadata.deletion_timestamp is None:
            self.parts.clients.drains.delete(drain)


class Plans(Double):
    """Takes slots by labels of nodes, and reports them as a source."""

    name = "plans"

    def __init__(self, parts: OperatorParts, limit: int) -> None:
        super().__init__(parts, limit)
        parts.slots.add_source(self.name, self.holders)

    def holders(self) -> dict[str, Holder]:
        """Return the nodes that have the label."""
        return {
            node.metadata.name: Holder("Plan", "os")
            for node in self.parts.clients.nodes.list()
            if self.seconds_left(node) is not None
        }

    def seconds_left(self, node: Node) -> float | None:
        since = node.metadata.labels.get(_PLAN, _DONE)
        if since == _DONE:
            return None
        return int(since) + _SECONDS - self.parts.manager.clock.now().timestamp()

    def is_over(self, node: Node) -> bool:
        return node.metadata.labels.get(_PLAN) == _DONE

    def take(self, node: Node) -> None:
        self._label(node, str(int(self.parts.manager.clock.now().timestamp())))

    def give_back(self, node: Node) -> None:
        self._label(node, _DONE)

    def _label(self, node: Node, value: str) -> None:
        with self.writing(self.parts.clients.nodes, node.metadata.name):
            self.parts.clients.nodes.patch(node, {"metadata": {"labels": {_PLAN: value}}})


class SlotJudge:
    """Counts the nodes in flight on the server, after every write."""

    def __init__(self, server: Server, limit: int, report: Callable[[str], None]) -> None:
        self._server = server
        self._limit = limit
        self._report = report
        self._held: dict[str, set[str]] = {}
        server.store.subscribe(self._on_change)

    def _on_change(self, change: Change) -> None:
        held = self._holders()
        began = {node for node, systems in held.items() if systems - self._held.get(node, set())}
        if began and len(held) > self._limit:
            self._report(f"{len(held)} nodes in flight, and the limit is {self._limit}: {held}")
        for node in began:
            if len(held[node]) > 1:
                self._report(f"node {node} is held by {sorted(held[node])}")
        self._held = held

    def _holders(self) -> dict[str, set[str]]:
        held: dict[str, set[str]] = {}
        for replacement in self._server.list("nodereplacements", GROUP):
            if step_of(replacement) not in {"Waiting", *_ENDED}:
                held.setdefault(replacement["spec"]["nodeName"], set()).add("rollouts")
        for drain in self._server.list("nodedrains", GROUP):
            if drain["metadata"]["name"].startswith("check-"):
                held.setdefault(drain["spec"]["nodeName"], set()).add("checks")
        for node in self._server.list("nodes"):
            if _label(node, _PLAN) not in {"", _DONE}:
                held.setdefault(node["metadata"]["name"], set()).add("plans")
        return held


class _LostAnswers(Shaken):
    """Also loses answers to writes that take or free slots, while the watch of the kind lags."""

    def after(self, process: Process, call: ApiCall) -> None:
        super().after(process, call)
        is_write = call.verb in {"create", "patch"}
        if self.rate and is_write and call.resource in _KINDS and self._rand.random() < self.rate:
            now = self._scheduler.seconds
            self._held[process.name, call.resource] = now + self._rand.uniform(1.0, 5.0)
            self._judge.disturbed(now + 30.0)
            self._trace.add(process.name, f"the answer to {call.verb} {call.resource} is lost")
            raise Lost


class SharedRun:
    """All parts of one run."""

    def __init__(self, seed: int) -> None:
        random.seed(seed)
        self.rand = rand = random.Random(seed)
        self.scheduler = scheduler = Scheduler(rand)
        self.trace = Trace(scheduler)
        self.server = Server(scheduler, definitions(), identities(rand))
        self.judge = Judge(scheduler, self.server)
        self.trouble = _LostAnswers(scheduler, rand, self.trace, self.judge)
        self.limit = rand.choice([1, 1, 2])
        SlotJudge(self.server, self.limit, self._report)
        self.deployment = Deployment(
            scheduler,
            self.server,
            self.trouble,
            self.judge,
            rand,
            self.trace,
            rand.choice([1, 1, 2]),
        )
        self.deployment.further = self._add_doubles
        for number in range(_NODES):
            self._add_node(f"n{number}")
        spec = {"nodeSelectors": [{"matchAll": True}], "strategy": {"maxConcurrent": self.limit}}
        self.server.install(
            {
                "apiVersion": f"{GROUP}/v1alpha1",
                "kind": "NodeRollout",
                "metadata": {"name": "roll"},
                "spec": spec,
            }
        )

    def play(self) -> None:
        """Play the run to its end.

        Raises:
            Verdict: Two systems exceeded the limit, or the run does not end.
        """
        self.trouble.rate = self.rand.choice([0.0, 0.05, 0.15])
        self.trouble.most_lag = self.rand.choice([0.0, 3.0, 30.0])
        self.judge.facts.patience = PATIENCE + self.trouble.most_lag
        self.deployment.begin_trouble()
        ends = self.scheduler.seconds + self.rand.uniform(40.0, 90.0)
        while self.scheduler.seconds < ends:
            self._step(self.rand.uniform(0.2, 1.5))
            if self.rand.random() < 0.05:
                self._disturb()
        self.trouble.heal()
        self.server.wake_watches()
        self.trouble.kill_before = self.trouble.kill_after = None
        self.deployment.heal()
        self.judge.disturbed(self.scheduler.seconds + 30.0)
        ends = self.scheduler.seconds + _PATIENCE
        while not self._is_over():
            if self.scheduler.seconds >= ends:
                raise Verdict(f"not over after {_PATIENCE:.0f} s")
            self._step(2.0)

    def close(self) -> None:
        """End every process."""
        self.deployment.close()

    def _add_doubles(self, parts: OperatorParts) -> None:
        Checks(parts, self.limit)
        Plans(parts, self.limit)

    def _add_node(self, name: str) -> None:
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        self.server.install(
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": ready}
        )

    def _step(self, seconds: float) -> None:
        self.deployment.step()
        if self.server.has_garbage:
            self.server.collect()
        self.scheduler.sleep(seconds)
        self.deployment.look()
        if self.judge.violations:
            raise Verdict("; ".join(self.judge.violations[:3]))

    def _disturb(self) -> None:
        leader = self.deployment.leader
        if leader is None:
            return
        name = leader.process.name
        number = self.trouble.requests[name] + self.rand.randint(1, 8)
        match self.rand.randrange(6):
            case 0:
                self.trouble.kill_before = (name, number)
            case 1 | 2:
                self.trouble.kill_after = (name, number)
            case 3:
                self.deployment.tell_to_go(leader)
            case 4:
                self.deployment.freeze(leader)
            case _:
                self.trace.add(name, "watches are cut")
                self.judge.disturbed(self.scheduler.seconds + 5.0)
                self.server.break_watches(leader.process, lambda: self.rand.random() < 0.5)

    def _is_over(self) -> bool:
        nodes = self.server.list("nodes")
        replacements = self.server.list("nodereplacements", GROUP)
        return (
            len(replacements) == len(nodes)
            and all(step_of(each) in _ENDED for each in replacements)
            and all(_label(node, _CHECKED) == _label(node, _PLAN) == _DONE for node in nodes)
        )

    def _report(self, text: str) -> None:
        self.judge.violations.append(f"{self.scheduler.seconds:.3f}: {text}")


def _label(node: JsonObject, key: str) -> str:
    return str((node["metadata"].get("labels") or {}).get(key, ""))


def play(seed: int) -> tuple[str, list[str]]:
    """Play one run; return the violation, or an empty text, and the trace."""
    run = SharedRun(seed)
    try:
        run.play()
    except Verdict as verdict:
        return str(verdict), run.trace.lines
    finally:
        run.close()
    return "", run.trace.lines


def main() -> int:
    """Play the runs that the command line selects; return 1 if one of them fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.properties.sharing")
    parser.add_argument("seeds", type=int, nargs="*", metavar="SEED", help="runs to trace")
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--log", action="store_true", help="show the operator's own log")
    given = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.properties.sharing", *sys.argv[1:]])
    if not given.log:
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    failures = 0
    for seed in given.seeds or range(given.first, given.first + given.count):
        wrong, lines = play(seed)
        if given.seeds or wrong:
            shown = lines if given.seeds else lines[-60:]
            sys.stdout.writelines(f"{line}\n" for line in [*shown, f"seed {seed}: {wrong}"])
            sys.stdout.flush()
        failures += bool(wrong)
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
