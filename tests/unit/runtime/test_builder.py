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
from navarchos.errors import ConfigError, ThreadCrashed
from navarchos.informers import SharedInformer, SyncTimeout
from navarchos.runtime import (
    Builder,
    Channel,
    Controller,
    ControllerOptions,
    Manager,
    ManagerOptions,
    ReconcileObjects,
    Request,
    Result,
    current_reconcile,
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
def test_invalid_builders_are_refused(manager: Manager, script: Script) -> None:
    with pytest.raises(ConfigError, match="for_ was already called with things"):
        Builder(manager).for_(THINGS).for_(PARTS)
    with pytest.raises(ConfigError, match="call for_ before owns"):
        Builder(manager, "x").owns(PARTS)
    with pytest.raises(ConfigError, match="requires for_, owns or watches"):
        Builder(manager, "x").build(script)
    with pytest.raises(ConfigError, match="requires a name"):
        Builder(manager).watches(PARTS, map=lambda _: []).build(script)
    builder = Builder(manager).for_(THINGS)
    builder.build(script)
    with pytest.raises(ConfigError, match="was already called"):
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
        .watches_raw(feed)
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


def test_the_options_of_a_builder_reach_the_controller(
    manager: Manager, script: Script, start: Callable[[], Running], fake_clock: FakeClock
) -> None:
    limiter = ItemExponential[Request](7.0, 60.0)
    options = ControllerOptions(workers=3, limiter=limiter, reconcile_timeout=30)
    channel = Channel()
    script.answers = [ValueError("a panic")]
    deadlines: list[float | None] = []
    script.before = lambda _: deadlines.append(current_reconcile().time_left())
    controller = Builder(manager, "x", options=options).watches_channel(channel).build(script)
    assert workers_of(manager, controller) == 3
    start()
    channel.send(Request("ns", "a"))
    fake_clock.settle()
    fake_clock.advance(6)
    fake_clock.settle()
    assert names(script) == ["a"], "the limiter delays the retry by 7 s"
    fake_clock.advance(2)
    fake_clock.settle()
    assert names(script) == ["a"], "tried again"
    assert deadlines == [30, 30]


@pytest.mark.rule("RT-28")
def test_a_change_predicate_drops_resyncs_but_not_requeue_after(
    client: FakeClient, fake_clock: FakeClock, run: Callable[..., Running]
) -> None:
    options = ManagerOptions(sync_period=60)
    manager = Manager(client, options=options, clock=fake_clock)  # type: ignore[arg-type]  # a client for tests
    filtered, plain = Script(), Script()
    filtered.answers = [Result(requeue_after=500)]
    Builder(manager, "filtered").for_(THINGS, when=resource_version_changed).build(filtered)
    Builder(manager, "plain").for_(THINGS).build(plain)
    client.source(THINGS).put(make_thing("a"))
    run(manager.run)
    fake_clock.settle()
    for _ in range(4):
        fake_clock.advance(100)
        fake_clock.settle()
    assert len(plain.calls) >= 4
    assert len(filtered.calls) == 1
    fake_clock.advance(100)
    fake_clock.settle()
    assert len(filtered.calls) == 2


def manager_with(client: FakeClient, clock: FakeClock, **defaults: object) -> Manager:
    options = ManagerOptions(controllers=ControllerOptions(**defaults))  # type: ignore[arg-type]  # as given
    return Manager(client, options=options, clock=clock)  # type: ignore[arg-type]  # a client for tests


def workers_of(manager: Manager, controller: Controller) -> float | None:
    return manager.instruments.registry.get_sample_value(
        "controller_runtime_max_concurrent_reconciles", {"controller": controller.name}
    )


@pytest.mark.rule("CT-02")
def test_by_default_one_worker_without_a_time_limit_survives_a_panic(
    manager: Manager, script: Script, start: Callable[[], Running], fake_clock: FakeClock
) -> None:
    channel = Channel()
    script.answers = [ValueError("a panic")]
    deadlines: list[float | None] = []
    script.before = lambda _: deadlines.append(current_reconcile().deadline)
    controller = Builder(manager, "x").watches_channel(channel).build(script)
    start()
    channel.send(Request("ns", "a"))
    fake_clock.settle()
    fake_clock.advance(1)
    fake_clock.settle()
    assert names(script) == ["a", "a"]
    assert deadlines == [None, None]
    assert workers_of(manager, controller) == 1


@pytest.mark.rule("CT-02")
def test_by_default_a_source_may_take_two_minutes_to_sync(
    manager: Manager, start: Callable[[], Running], fake_clock: FakeClock
) -> None:
    Builder(manager, "x").watches_raw(Feed(synced=False)).build(Script())
    running = start()
    fake_clock.advance(119)
    fake_clock.settle()
    assert running.error is None
    fake_clock.advance(1)
    assert isinstance(running.join().error, SyncTimeout)


@pytest.mark.rule("CT-02")
def test_the_managers_options_apply_to_a_builder_without_options(
    client: FakeClient, fake_clock: FakeClock, script: Script, run: Callable[..., Running]
) -> None:
    manager = manager_with(client, fake_clock, workers=7, recover=False, reconcile_timeout=30.0)
    channel = Channel()
    script.answers = [ValueError("a panic")]
    deadlines: list[float | None] = []
    script.before = lambda _: deadlines.append(current_reconcile().time_left())
    plain = Builder(manager, "plain").watches_channel(channel).build(script)
    assert workers_of(manager, plain) == 7
    running = run(manager.run)
    fake_clock.settle()
    channel.send(Request("ns", "a"))
    assert isinstance(running.join().error, ThreadCrashed), "a panic without recovery"
    assert deadlines == [30]


@pytest.mark.rule("CT-02")
def test_the_options_of_a_builder_replace_those_of_the_manager(
    client: FakeClient, fake_clock: FakeClock, script: Script, run: Callable[..., Running]
) -> None:
    manager = manager_with(client, fake_clock, workers=7, recover=False)
    channel = Channel()
    script.answers = [ValueError("a panic")]
    own = ControllerOptions(workers=2)
    controller = Builder(manager, "own", options=own).watches_channel(channel).build(script)
    assert workers_of(manager, controller) == 2
    running = run(manager.run)
    fake_clock.settle()
    channel.send(Request("ns", "a"))
    fake_clock.settle()
    fake_clock.advance(1)
    fake_clock.settle()
    assert names(script) == ["a", "a"]
    assert running.error is None


@pytest.mark.rule("CT-02")
def test_workers_can_be_set_by_kind_and_group(
    client: FakeClient, fake_clock: FakeClock, script: Script
) -> None:
    manager = manager_with(
        client,
        fake_clock,
        workers=2,
        workers_by_kind={"Thing.example.org": 5, "Node": 3, "Part": 9, "Part.example.com": 9},
    )
    builders = {
        "things": Builder(manager).for_(THINGS),
        "nodes": Builder(manager).for_(NODES),
        "parts": Builder(manager).for_(PARTS),
        "own": Builder(manager, "own", options=ControllerOptions()).for_(THINGS),
        "none": Builder(manager, "none").watches(THINGS, map=lambda _: []),
    }
    workers = {name: workers_of(manager, built.build(script)) for name, built in builders.items()}
    assert workers == {"things": 5, "nodes": 3, "parts": 2, "own": 1, "none": 2}


def test_a_debounce_reaches_the_controller(
    manager: Manager,
    client: FakeClient,
    script: Script,
    start: Callable[[], Running],
    fake_clock: FakeClock,
) -> None:
    Builder(manager, options=ControllerOptions(debounce=2)).for_(THINGS).build(script)
    start()
    for size in range(5):
        client.source(THINGS).put(make_thing("a", size=size))
        fake_clock.settle()
    assert names(script) == []
    fake_clock.advance(2)
    fake_clock.settle()
    assert names(script) == ["a"]


@pytest.mark.rule("CT-27")
def test_the_function_is_called_while_the_object_exists(
    manager: Manager,
    client: FakeClient,
    start: Callable[[], Running],
    fake_clock: FakeClock,
) -> None:
    seen: list[tuple[str, int]] = []

    def reconcile(thing: Thing) -> Result:
        seen.append((thing.metadata.name, thing.spec.size))
        return Result(requeue_after=60)

    controller = (
        Builder(manager).for_(THINGS).build(ReconcileObjects(manager.lister(THINGS), reconcile))
    )
    client.source(THINGS).put(make_thing("a", size=7))
    start()
    assert seen == [("a", 7)]
    client.source(THINGS).delete("ns/a")
    fake_clock.settle()
    assert seen == [("a", 7)]
    sample = manager.instruments.registry.get_sample_value
    labels = {"controller": controller.name}
    assert sample("controller_runtime_reconcile_errors_total", labels) == 0
    labels["result"] = "success"
    assert sample("controller_runtime_reconcile_total", labels) == 1


def test_a_watch_can_be_narrowed(manager: Manager, script: Script) -> None:
    watches = Builder(manager, "x").watches(
        THINGS, map=lambda _: [], namespace="ns", label_selector="a=b", field_selector="c=d"
    )
    watches.build(script)
    informer: SharedInformer[Thing] = manager.informers.find(
        THINGS, namespace="ns", label_selector="a=b", field_selector="c=d"
    )
    assert informer.resource == THINGS
