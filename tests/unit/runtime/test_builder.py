from collections.abc import Callable

import pytest
from tests.unit.runtime.conftest import (
    PARTS,
    THINGS,
    FakeClient,
    Feed,
    Running,
    Script,
    Thing,
    make_thing,
    owner,
)

from navarchos.client import Resource
from navarchos.errors import ConfigError
from navarchos.informers import SharedInformer
from navarchos.runtime import (
    Builder,
    Channel,
    Manager,
    Request,
    resource_version_changed,
    when,
)
from navarchos.testing import FakeClock
from navarchos.workqueue import ItemExponential

NODES = Resource("", "v1", "nodes", "Node", namespaced=False, type=Thing)


@pytest.fixture
def manager(client: FakeClient, fake_clock: FakeClock) -> Manager:
    return Manager(client, clock=fake_clock)  # type: ignore[arg-type]  # a client for tests


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def start(
    manager: Manager, fake_clock: FakeClock, run: Callable[..., Running]
) -> Callable[[], Running]:
    def begin() -> Running:
        running = run(manager.run)
        fake_clock.settle()
        return running

    return begin


def names(script: Script) -> list[str]:
    taken = [request.name for request in script.calls]
    script.calls.clear()
    return taken


@pytest.mark.rule("CT-25")
def test_what_cannot_work_is_refused(manager: Manager, script: Script) -> None:
    with pytest.raises(ConfigError, match="the controller is for things"):
        Builder(manager).for_(THINGS).for_(PARTS)
    with pytest.raises(ConfigError, match="say for_ first"):
        Builder(manager, "x").owns(PARTS)
    with pytest.raises(ConfigError, match="needs for_, owns or watches"):
        Builder(manager, "x").build(script)
    with pytest.raises(ConfigError, match="needs a name"):
        Builder(manager).watches(PARTS, map=lambda _: []).build(script)
    builder = Builder(manager).for_(THINGS)
    builder.build(script)
    with pytest.raises(ConfigError, match="makes one controller"):
        builder.build(script)


@pytest.mark.rule("CT-25")
def test_the_name_is_the_kind_by_default(manager: Manager, script: Script) -> None:
    assert Builder(manager).for_(THINGS).build(script).name == "thing"


@pytest.mark.rule("CT-01")
def test_two_controllers_cannot_share_a_name(manager: Manager, script: Script) -> None:
    Builder(manager).for_(THINGS).build(script)
    with pytest.raises(ConfigError, match="another controller has this name"):
        Builder(manager).for_(THINGS).build(script)


@pytest.mark.rule("CT-26")
def test_objects_owned_and_watched_lead_to_the_object_they_are_about(
    manager: Manager,
    client: FakeClient,
    script: Script,
    start: Callable[[], Running],
    fake_clock: FakeClock,
) -> None:
    (
        Builder(manager)
        .for_(THINGS)
        .owns(PARTS)
        .watches(NODES, map=lambda node: [Request("", f"on-{node.metadata.name}")])
        .build(script)
    )
    client.source(THINGS).put(make_thing("a"))
    start()
    assert names(script) == ["a"]
    references = (owner("b"), owner("c", controller=False))
    client.source(PARTS).put(make_thing("part", owner_references=references))
    client.source(NODES).put(make_thing("node-1", namespace=""))
    fake_clock.settle()
    assert sorted(names(script)) == ["b", "on-node-1"]


@pytest.mark.rule("CT-26")
def test_every_owner_can_be_asked_for(
    manager: Manager,
    client: FakeClient,
    script: Script,
    start: Callable[[], Running],
    fake_clock: FakeClock,
) -> None:
    Builder(manager).for_(THINGS).owns(PARTS, every_owner=True).build(script)
    start()
    references = (owner("b"), owner("c", controller=False))
    client.source(PARTS).put(make_thing("part", owner_references=references))
    fake_clock.settle()
    assert names(script) == ["b", "c"]


@pytest.mark.rule("CT-26")
def test_common_filters_come_before_a_watchs_own_and_spare_other_sources(
    manager: Manager,
    client: FakeClient,
    script: Script,
    start: Callable[[], Running],
    fake_clock: FakeClock,
) -> None:
    asked: list[str] = []
    channel, feed = Channel(), Feed()

    def is_big(thing: Thing) -> bool:
        asked.append(thing.metadata.name)
        return thing.spec.size > 5

    (
        Builder(manager)
        .for_(THINGS, when=when(is_big))
        .where(when(lambda thing: thing.metadata.name != "hidden"))
        .watches_channel(channel)
        .watches_source(feed)
        .build(script)
    )
    start()
    for name, size in (("hidden", 9), ("small", 1), ("big", 9)):
        client.source(THINGS).put(make_thing(name, size=size))
    channel.send(Request("", "from-channel"))
    feed.send("from-feed")
    fake_clock.settle()
    assert sorted(names(script)) == ["big", "from-channel", "from-feed"]
    assert asked == ["small", "big"]


def test_settings_reach_the_controller(manager: Manager, script: Script) -> None:
    limiter = ItemExponential[Request](7.0, 60.0)
    controller = (
        Builder(manager, "things")
        .for_(THINGS, when=resource_version_changed)
        .with_workers(3)
        .with_rate_limiter(limiter)
        .with_reconcile_timeout(30)
        .without_recovery()
        .without_leader_election()
        .build(script)
    )
    assert not controller.needs_leader_election
    limiter.when(Request("ns", "a"))
    assert controller.queue.num_requeues(Request("ns", "a")) == 1
    sample = manager.instruments.registry.get_sample_value
    labels = {"controller": "things"}
    assert sample("controller_runtime_max_concurrent_reconciles", labels) == 3


def test_a_watch_can_be_narrowed(manager: Manager, script: Script) -> None:
    watches = Builder(manager, "x").watches(
        THINGS, map=lambda _: [], namespace="ns", label_selector="a=b", field_selector="c=d"
    )
    watches.build(script)
    informer: SharedInformer[Thing] = manager.informers.find(
        THINGS, namespace="ns", label_selector="a=b", field_selector="c=d"
    )
    assert informer.resource == THINGS
