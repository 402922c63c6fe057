"""A rolling restart, seen from the writes that the server received."""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from http import HTTPStatus
from itertools import pairwise
from typing import Final, NamedTuple

import pytest
from tests.integration.framework.kinds import CONFIG_MAPS, ConfigMap
from tests.integration.framework.waiting import LIMIT, until
from tests.servers import Served

from navarchos.client import Client, ResourceClient
from navarchos.informers import Scope, SharedInformer
from navarchos.runtime import (
    Builder,
    CachedClient,
    LeaderElectionOptions,
    Manager,
    ManagerOptions,
    Predicate,
    Reconciler,
    Request,
    Result,
    when,
)
from navarchos.stopping import StopToken
from navarchos.testing.managers import running_manager

DIARY: Final = "diary"
PROMISED: Final = 2.0
"""Seconds from the last write of one leader to the first of the next (OP-63)."""


class Writer(Reconciler):
    """Writes twice for each number, and never stops counting."""

    def __init__(self, maps: CachedClient[ConfigMap], name: str) -> None:
        self._maps = maps
        self._name = name

    def reconcile(self, request: Request) -> Result:
        """Write one number: on the cache alone, as reconcilers do."""
        found = self._maps.lister.get(request.name, request.namespace)
        number = int(found.data.get("number", "0")) + 1
        for step in ("begin", "end"):
            data = {"by": self._name, "number": str(number), "step": step}
            self._maps.patch_any_version(found, {"data": data})
            StopToken().wait(
                0.03
            )  # simulated work: a stop must not interrupt it between the two writes
        return Result(requeue_after=0.01)


class Entry(NamedTuple):
    at: float
    by: str
    number: int
    step: str


class Diary:
    """All that was written, in the order in which the server took it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: list[Entry] = []  # guarded by _lock

    def note(self, _: ConfigMap, new: ConfigMap) -> None:
        data = new.data
        with self._lock:
            self._entries.append(
                Entry(time.monotonic(), data["by"], int(data["number"]), data["step"])
            )

    @property
    def entries(self) -> list[Entry]:
        with self._lock:
            return list(self._entries)

    def last(self) -> Entry | None:
        found = self.entries
        return found[-1] if found else None


@pytest.fixture
def diary(client: Client, maps: ResourceClient[ConfigMap], namespace: str) -> Iterator[Diary]:
    maps.create({"metadata": {"name": DIARY}}, namespace)
    diary = Diary()
    informer = SharedInformer(maps, Scope(namespace=namespace))
    informer.add_handler(on_update=diary.note)
    informer.start()
    assert informer.wait_for_sync(LIMIT)
    yield diary
    informer.stop()
    assert informer.join(LIMIT)


class Replicas:
    """Replicas that come and go, with the timing that is shipped."""

    def __init__(self, served: Served, namespace: str, stack: ExitStack) -> None:
        self._served = served
        self._namespace = namespace
        self._stack = stack
        self._running: dict[str, ExitStack] = {}
        self.managers: dict[str, Manager] = {}

    def start(self, name: str) -> None:
        """Begin one, and wait until its caches are filled."""
        own = self._running[name] = self._stack.enter_context(ExitStack())
        lease = LeaderElectionOptions("rolling", self._namespace, identity=name)

        def set_up(manager: Manager) -> None:
            ours: Predicate[ConfigMap] = when(
                lambda found: found.metadata.key == (self._namespace, DIARY)
            )
            writer = Writer(manager.cached_client(CONFIG_MAPS), name)
            Builder(manager, "writer").for_(CONFIG_MAPS, when=ours).build(writer)

        options = ManagerOptions(leader_election=lease)
        config = replace(self._served.config, user_agent=name)
        manager = own.enter_context(running_manager(set_up, config, options=options))
        until(lambda: manager.probes.route("/readyz", {}).status == HTTPStatus.OK)
        self.managers[name] = manager

    def end(self, name: str) -> None:
        """Let one end in order, as a kubelet does."""
        self._running[name].close()


@pytest.mark.rule("OP-63")
@pytest.mark.rule("MG-12")
def test_a_rolling_restart_leaves_no_gap_and_cuts_no_reconcile(
    served: Served, namespace: str, diary: Diary
) -> None:
    with ExitStack() as stack:
        replicas = Replicas(served, namespace, stack)
        replicas.start("old-1")
        until(lambda: (last := diary.last()) is not None and last.number > 5)
        replicas.start("old-2")
        # As a Deployment does it: a new one is ready before an old one goes.
        for old, new in (("old-1", "new-1"), ("old-2", "new-2")):
            replicas.start(new)
            behind = diary.last()
            assert behind is not None
            standby = replicas.managers[new].lister(CONFIG_MAPS)
            until(lambda: int(standby.get(DIARY, namespace).data["number"]) >= behind.number)  # noqa: B023 - called at once
            replicas.end(old)
            until(lambda: diary.last().number > behind.number + 5)  # type: ignore[union-attr]  # noqa: B023 - called at once
        leader = diary.last()
        assert leader is not None
        assert leader.by.startswith("new")
        replicas.end(leader.by)
        until(lambda: diary.last().by != leader.by)  # type: ignore[union-attr]
    judge(diary.entries)


def judge(entries: list[Entry]) -> None:
    numbers = [(entry.number, entry.step) for entry in entries]
    counted = range(1, entries[-1].number + 1)
    wanted = [(number, step) for number in counted for step in ("begin", "end")]
    assert numbers == wanted, "a number is missing, came twice, or was left half done"
    by_number = {entry.number: entry.by for entry in entries}
    assert all(entry.by == by_number[entry.number] for entry in entries), "cut in the middle"
    pauses = {True: [0.0], False: [0.0]}
    for before, after in pairwise(entries):
        pauses[before.by == after.by].append(after.at - before.at)
    assert len(pauses[False]) > 2, "no other process has taken over"
    # A machine that keeps a leader waiting in the middle of its work may keep us, too.
    assert max(pauses[False]) <= PROMISED + max(pauses[True]), pauses[False]
