"""Two systems beside rollouts in the operator's processes, and users who hold nodes.

The systems are doubles of real ones. Each has an admission with its own limit, and takes
slots in one of the two ways, by NodeDrains or by a registered source. Their wishes are
ConfigMaps, so that all state is in objects, as it is for real systems.
"""

import json
import random
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

import msgspec
from tests.model.cluster import Cluster
from tests.model.serving import Server

from navarchos.client import Resource
from navarchos.clock import Clock
from navarchos.meta import EPOCH, Object, format_time, parse_time
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.names import APPROVE_ANNOTATION
from navarchos.operator.nodes import Node
from navarchos.operator.setup import OperatorParts
from navarchos.operator.slots import Holder, Slots
from navarchos.runtime import DONE, Builder, CachedClient, Channel, Reconciler, Request, Result

__all__ = ["CHECKS", "HEALTH", "LIMIT", "NEEDS", "UPDATES", "WISH", "Holders", "add_systems"]

LIMIT: Final = 2
"""Nodes in flight, of all systems, beside which neither double starts another one."""

WISH: Final = "wish"
"""The label of the ConfigMaps, and its values: two systems, and the reasons to keep a node."""

CHECKS, UPDATES, NEEDS = "checks", "updates", "needs"

_DRAINS: Final = f"/apis/{api.NODE_DRAINS.group}/v1alpha1/nodedrains"
HEALTH: Final = "health"
"""The label, and the name, of the ConfigMap that gates observe."""

_ROLLOUTS: Final = f"/apis/{api.NODE_ROLLOUTS.group}/v1alpha1/noderollouts"
_MAPS: Final = "/api/v1/namespaces/default/configmaps"
_ALL: Final = Request("", "all")


class _Wish(Object, frozen=True):
    data: dict[str, str] = msgspec.field(default_factory=dict)

    @property
    def node(self) -> str:
        return self.data["node"]

    @property
    def started_at(self) -> datetime | None:
        text = self.data.get("started", "")
        return parse_time(text) if text else None


_WISHES: Final = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True, type=_Wish)


def add_systems(operator: OperatorParts) -> None:
    """Add both systems to a process that does not run yet."""
    wishes = operator.manager.cached_client(_WISHES)
    for kind in (_Checks, _Updates):
        system = kind(operator, wishes)
        controller = (
            Builder(operator.manager, system.name)
            .watches(_WISHES, map=_always)
            .watches(api.NODE_DRAINS, map=_always)
            .watches_channel(system.channel, "slots")
            .build(system)
        )
        notify = partial(controller.queue.add, _ALL)
        operator.slots.add_admission(system.name, notify, confirm=system.confirm)
    operator.slots.add_objection(NEEDS, lambda node: _need(wishes, node))
    wishes.informer.add_handler(
        on_add=lambda wish, _: _needs_changed(operator, wish),
        on_update=lambda _, wish: _needs_changed(operator, wish),
        on_delete=lambda _: operator.slots.notify(NEEDS),
    )


def _needs_changed(operator: OperatorParts, wish: _Wish) -> None:
    if wish.metadata.labels.get(WISH) == NEEDS:
        operator.slots.notify(NEEDS)


def _always(_: object) -> Iterable[Request]:
    return (_ALL,)


def _need(wishes: CachedClient[_Wish], node: str) -> str | None:
    found = (w for w in wishes.list() if w.metadata.labels.get(WISH) == NEEDS)
    return next((f"{w.metadata.name} needs it" for w in found if w.node == node), None)


class _System(Reconciler):
    """A system with one admission, which also ends the work that it has started."""

    name: str

    def __init__(self, operator: OperatorParts, wishes: CachedClient[_Wish]) -> None:
        self.channel = Channel()
        self._operator = operator
        self._slots: Slots = operator.slots
        self._clock: Clock = operator.manager.clock
        self._wishes = wishes
        self._unconfirmed: dict[str, None] = {}

    def reconcile(self, request: Request) -> Result:
        """Start the nodes that may start, and end the work whose time is over."""
        with self._slots.turn():
            held = self._slots.holders()
            for wish in self._mine():
                node = self._operator.clients.nodes.find(wish.node)
                if node is None or self._begun(wish) is not None:
                    continue
                if wish.node in held or len(held) >= LIMIT or self._slots.objection(wish.node):
                    continue
                self._unconfirmed[self._key(wish)] = None
                self._start(wish, node)
                del self._unconfirmed[self._key(wish)]
                held[wish.node] = Holder("ConfigMap", wish.metadata.name)
        return self._end_all()

    def confirm(self) -> None:
        """Read the objects whose last write may have succeeded."""
        for key in list(self._unconfirmed):
            self._read(key)
            del self._unconfirmed[key]

    def _end_all(self) -> Result:
        now, due = self._clock.now(), []
        for wish in self._mine():
            begun = self._begun(wish)
            end = EPOCH if begun is None else begun + timedelta(seconds=int(wish.data["seconds"]))
            if self._operator.clients.nodes.find(wish.node) is None or (begun and end <= now):
                self._wishes.delete(wish)
                self._slots.notify(self.name)
            elif begun:
                due.append((end - now).total_seconds())
        self._clean_up()
        return Result(requeue_after=min(due) + 0.1) if due else DONE

    def _mine(self) -> list[_Wish]:
        found = [w for w in self._wishes.list() if w.metadata.labels.get(WISH) == self.name]
        return sorted(found, key=lambda wish: wish.metadata.name)

    def _key(self, wish: _Wish) -> str:
        return wish.metadata.name

    def _begun(self, wish: _Wish) -> datetime | None:
        raise NotImplementedError

    def _start(self, wish: _Wish, node: Node) -> None:
        raise NotImplementedError

    def _read(self, key: str) -> None:
        raise NotImplementedError

    def _clean_up(self) -> None:
        pass


class _Checks(_System):
    """Holds slots through NodeDrains, as a NodeReboot does."""

    name = CHECKS

    def _begun(self, wish: _Wish) -> datetime | None:
        drain = self._operator.clients.drains.find(wish.metadata.name)
        return None if drain is None else drain.metadata.creation_timestamp or EPOCH

    def _start(self, wish: _Wish, node: Node) -> None:
        self._operator.clients.drains.create(
            {
                "apiVersion": f"{api.NODE_DRAINS.group}/v1alpha1",
                "kind": "NodeDrain",
                "metadata": {"name": wish.metadata.name},
                "spec": {"nodeName": wish.node, "nodeUID": node.metadata.uid, "evict": False},
            }
        )

    def _read(self, key: str) -> None:
        drains = self._operator.clients.drains
        found = drains.fetch(key)
        if found is not None:
            drains.observe(found)

    def _clean_up(self) -> None:
        wanted = {wish.metadata.name for wish in self._mine()}
        for drain in self._operator.clients.drains.list():
            name = drain.metadata.name
            is_mine = name.startswith(self.name) and drain.metadata.deletion_timestamp is None
            if is_mine and name not in wanted:
                self._operator.clients.drains.delete(drain)


class _Updates(_System):
    """Reports its slots itself, as Plans in published mode do."""

    name = UPDATES

    def __init__(self, operator: OperatorParts, wishes: CachedClient[_Wish]) -> None:
        super().__init__(operator, wishes)
        operator.slots.add_source(self.name, self._holders)

    def _holders(self) -> Mapping[str, Holder]:
        begun = [wish for wish in self._mine() if wish.started_at is not None]
        return {wish.node: Holder("ConfigMap", wish.metadata.name) for wish in begun}

    def _begun(self, wish: _Wish) -> datetime | None:
        return wish.started_at

    def _start(self, wish: _Wish, node: Node) -> None:
        self._wishes.patch(wish, {"data": {"started": format_time(self._clock.now())}})

    def _read(self, key: str) -> None:
        found = self._wishes.fetch(key, "default")
        if found is not None:
            self._wishes.observe(found)


class Holders:
    """Users of further features.

    They hold nodes, need nodes, let one of the systems have a node, restrict when nodes of a
    rollout may start, and approve waves.
    """

    def __init__(
        self,
        server: Server,
        cluster: Cluster,
        rand: random.Random,
        gates: random.Random,
        trace: Callable[[str, str], None],
    ) -> None:
        self._server = server
        self._cluster = cluster
        self._rand = rand
        self._gates = gates
        self._trace = trace
        self._made = 0
        self._is_healing = False
        self._acts: tuple[tuple[int, Callable[[], None]], ...] = (
            (6, self.add_wish),
            (4, self.add_need),
            (1, self.remove_need),
            (2, self.add_drain),
            (2, self.change_drain),
            (3, self.approve),
            (2, self.toggle_health),
        )

    def begin(self) -> None:
        """Hold and need nodes before the first rollout exists."""
        for act in (self.add_need, self.add_wish, self.add_drain, self.toggle_health):
            if self._rand.random() < 0.3:
                act()

    def act(self) -> None:
        """Make one change."""
        weights = [weight for weight, _ in self._acts]
        self._rand.choices([act for _, act in self._acts], weights)[0]()

    def add_wish(self) -> None:
        """Let one of the systems have a node."""
        system = self._rand.choice([CHECKS, UPDATES])
        self._add(system, seconds=str(self._rand.choice([1, 5, 20])))

    def add_need(self) -> None:
        """Keep a node in service."""
        self._add(NEEDS)

    def remove_need(self) -> None:
        """Let a node start again."""
        found = self._maps(NEEDS)
        if found:
            self._ask("DELETE", f"{_MAPS}/{self._rand.choice(found)['metadata']['name']}")

    def add_drain(self) -> None:
        """Drain a node by hand."""
        node = self._rand.choice(self._server.list("nodes"))["metadata"]
        spec = {
            "nodeName": node["name"],
            "nodeUID": node["uid"],
            "evict": self._rand.random() < 0.5,
            "paused": self._rand.random() < 0.2,
            "timeoutSeconds": 30,
        }
        self._made += 1
        drain = {"apiVersion": f"{api.NODE_DRAINS.group}/v1alpha1", "kind": "NodeDrain",
                 "metadata": {"name": f"by-hand-{self._made}"}, "spec": spec}  # fmt: skip
        self._ask("POST", _DRAINS, drain)

    def change_drain(self) -> None:
        """Pause, resume or delete a drain that was created by hand."""
        found = self._drains()
        if not found:
            return
        drain = self._rand.choice(found)
        path = f"{_DRAINS}/{drain['metadata']['name']}"
        if self._rand.random() < 0.6:
            self._ask("DELETE", path)
        else:
            self._ask("PATCH", path, {"spec": {"paused": not drain["spec"].get("paused")}})

    def add_fields(self, spec: dict[str, Any]) -> None:
        """Let some rollouts have windows, blackouts or waves."""
        strategy, rand = spec["strategy"], self._rand
        begin = timedelta(seconds=rand.uniform(20.0, 90.0))
        end = begin + timedelta(seconds=rand.uniform(20.0, 120.0))
        now = self._server.scheduler.now()
        if rand.random() < 0.3:
            period = {"from": format_time(now + begin), "to": format_time(now + end)}
            strategy["blackouts"] = [period]
        elif rand.random() < 0.3:
            window = {"start": f"{now + begin:%H:%M:%S}", "end": f"{now + end:%H:%M:%S}"}
            strategy["windows"] = [window]
        if rand.random() < 0.3:
            strategy["onWindowEnd"] = "GiveBack"
        if rand.random() < 0.4:
            observed = {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "default"}
            gate: dict[str, Any] = {
                "name": HEALTH,
                "object": observed | {"name": HEALTH},
                "onMissing": "Pass",
            }
            stable = rand.choice([0, 5])
            gate |= {"for": "jsonpath={.data.is}=well", "stableSeconds": stable}
            spec["gates"] = [gate | self._further_gate_fields()]
        if rand.random() < 0.4:
            strategy["waves"] = [
                {"upTo": 1, "soakSeconds": rand.choice([0, 20]), "approval": rand.random() < 0.4},
                {"upTo": 2, "soakSeconds": rand.choice([0, 20]), "approval": rand.random() < 0.4},
            ]

    def _further_gate_fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        if self._gates.random() < 0.3:
            fields["after"] = True
        if self._gates.random() < 0.5:
            fields["timeoutSeconds"] = self._gates.choice([0, 10, 30])
        return fields

    def toggle_health(self, value: str = "") -> None:
        """Open or close the gates."""
        found = self._maps(HEALTH)
        if not found:
            self._add(HEALTH, name=HEALTH)
            return
        value = value or ("ill" if found[0]["data"].get("is") == "well" else "well")
        self._ask("PATCH", f"{_MAPS}/{HEALTH}", {"data": {"is": value}})

    def approve(self) -> None:
        """Approve the wave of a rollout, whether it waits for an approval or not."""
        found = self._rollouts()
        if found:
            rollout = self._rand.choice(found)
            wave = (rollout.get("status") or {}).get("wave") or {}
            self._approve(rollout, int(wave.get("number", 1)) + self._rand.choice([0, 0, 0, 1]))

    def step(self) -> None:
        """End waits that only a user can end, once the users have begun to heal the run."""
        for rollout in self._rollouts() if self._is_healing else ():
            wave = (rollout.get("status") or {}).get("wave") or {}
            if wave.get("state") == "AwaitingApproval":
                self._approve(rollout, wave["number"])
            strategy = rollout["spec"].get("strategy") or {}
            if "windows" in strategy:
                path = f"{_ROLLOUTS}/{rollout['metadata']['name']}"
                self._ask("PATCH", path, {"spec": {"strategy": {"windows": None}}})

    def _approve(self, rollout: Mapping[str, Any], number: int) -> None:
        at = format_time(self._server.scheduler.now())
        text = json.dumps({"wave": number, "by": "user", "at": at})
        path = f"{_ROLLOUTS}/{rollout['metadata']['name']}"
        self._ask("PATCH", path, {"metadata": {"annotations": {APPROVE_ANNOTATION: text}}})

    def _rollouts(self) -> list[dict[str, Any]]:
        return self._server.list("noderollouts", api.NODE_ROLLOUTS.group)

    def heal(self) -> None:
        """End everything that only a user can end."""
        self._is_healing = True
        self.toggle_health("well")
        self.toggle_health("well")
        for need in self._maps(NEEDS):
            self._ask("DELETE", f"{_MAPS}/{need['metadata']['name']}")
        for drain in self._drains():
            self._ask("DELETE", f"{_DRAINS}/{drain['metadata']['name']}")

    @property
    def is_over(self) -> bool:
        """Whether no node is held or needed any more."""
        return not (self._maps(CHECKS) or self._maps(UPDATES) or self._maps(NEEDS))

    def _add(self, wish: str, name: str = "", **data: str) -> None:
        node = self._rand.choice(self._cluster.names)
        metadata = {"name": name or f"{wish}-{node}", "labels": {WISH: wish}}
        self._ask("POST", _MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata,
                                  "data": {"node": node, **data}})  # fmt: skip

    def _maps(self, wish: str) -> list[dict[str, Any]]:
        found = self._server.list("configmaps")
        return [m for m in found if (m["metadata"].get("labels") or {}).get(WISH) == wish]

    def _drains(self) -> list[dict[str, Any]]:
        found = self._server.list("nodedrains", api.NODE_DRAINS.group)
        return [drain for drain in found if drain["metadata"]["name"].startswith("by-hand")]

    def _ask(self, method: str, path: str, body: Any = None) -> None:
        answer = self._server.request(method, path, body, agent="user")
        self._trace("user", f"{method} {path.rpartition('/v1')[2]} {body or ''}: {answer.status}")
