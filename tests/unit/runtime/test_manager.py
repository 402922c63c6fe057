"""The manager on virtual time, against scripted sources."""

import socket
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import structlog
from prometheus_client import CollectorRegistry, ProcessCollector
from tests.unit.runtime.conftest import (
    PARTS,
    THINGS,
    FakeClient,
    Feed,
    Running,
    Script,
    Thing,
    ThingSpec,
    make_thing,
)

from navarchos.client import Forbidden, ServerError
from navarchos.client.status import Status
from navarchos.errors import AlreadyStarted, AlreadyStopped, ConfigError, Stopped
from navarchos.informers import CacheMutated, KindOptions, SyncTimeout
from navarchos.instrument import Instruments
from navarchos.meta import key_of
from navarchos.runtime import (
    Builder,
    ControllerOptions,
    GracePeriodExceeded,
    Manager,
    ManagerOptions,
    Request,
)
from navarchos.runtime.endpoints import MetricsPages
from navarchos.stopping import StopToken
from navarchos.testing import FakeClock

WARM_UP = ControllerOptions(warm_up=True)


class Diary:
    """Writes down what happened, in order."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def task(self, name: str, *, gate: StopToken | None = None) -> "Task":
        return Task(self, name, gate)


class Task:
    """Runs until it is stopped and its gate is open."""

    def __init__(self, diary: Diary, name: str, gate: StopToken | None) -> None:
        self._diary = diary
        self._name = name
        self._gate = gate

    def run(self, stop: StopToken) -> None:
        self._diary.lines.append(f"{self._name} runs")
        stop.wait()
        self._diary.lines.append(f"{self._name} stopped")
        if self._gate is not None:
            self._gate.wait()
        self._diary.lines.append(f"{self._name} ends")


class Call:
    """A runnable out of a function."""

    def __init__(self, function: Callable[[StopToken], object]) -> None:
        self._function = function

    def run(self, stop: StopToken) -> None:
        self._function(stop)


def fail(error: BaseException) -> Call:
    def raise_it(_: StopToken) -> None:
        raise error

    return Call(raise_it)


class World:
    """A manager and what a test needs around it."""

    def __init__(self, client: FakeClient, clock: FakeClock, run: Callable[..., Running]) -> None:
        self.client = client
        self.clock = clock
        self.diary = Diary()
        self._run = run

    def manager(self, **options: Any) -> Manager:
        return Manager(
            self.client,  # type: ignore[arg-type]  # a client for tests
            options=ManagerOptions(**options),
            clock=self.clock,
        )

    def start(self, manager: Manager) -> Running:
        running = self._run(manager.run)
        self.clock.settle()
        return running

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.clock.settle()


@pytest.fixture
def world(client: FakeClient, fake_clock: FakeClock, run: Callable[..., Running]) -> World:
    return World(client, fake_clock, run)


@pytest.mark.rule("MG-01")
def test_runnables_start_when_caches_are_filled_and_leaders_come_last(world: World) -> None:
    manager = world.manager()
    informer = manager.informer(THINGS)
    world.client.source(THINGS).put(make_thing("a"))
    seen: list[Any] = []
    manager.add(Call(lambda _: seen.append(len(informer.lister.list()))), needs_leader=False)
    manager.add(Call(lambda _: seen.append(manager.elected.is_set())))
    assert not manager.elected.is_set()
    running = world.start(manager)
    assert seen[0] == 1
    assert manager.elected.is_set()
    assert running.end() is None


@pytest.mark.rule("MG-03")
def test_without_election_a_manager_is_elected_once_what_needs_it_has_started(
    world: World,
) -> None:
    """A thread that waits for the signal can add a runnable, which starts at once."""
    manager = world.manager()
    ran = threading.Event()
    in_time: list[bool] = []

    def add_one() -> None:
        manager.add(Call(lambda _: ran.set()))
        in_time.append(ran.wait(5))

    manager.elected.on_stop(add_one)
    assert not manager.elected.is_set()
    running = world.start(manager)
    assert in_time == [True]
    assert manager.elected.is_set()
    assert running.end() is None


@pytest.mark.rule("MG-08")
def test_groups_end_one_after_the_other_while_caches_still_serve(world: World) -> None:
    manager = world.manager()
    source = world.client.source(THINGS)
    lister = manager.lister(THINGS)
    plain, leading = StopToken(clock=world.clock), StopToken(clock=world.clock)
    manager.add(world.diary.task("plain", gate=plain), needs_leader=False)
    manager.add(world.diary.task("leading", gate=leading))
    running = world.start(manager)
    running.stop.stop()
    world.clock.settle()
    assert world.diary.lines[2:] == ["plain stopped"]
    plain.stop()
    world.clock.settle()
    assert world.diary.lines[3:] == ["plain ends", "leading stopped"]
    source.put(make_thing("late"))
    world.clock.settle()
    assert [thing.metadata.name for thing in lister.list()] == ["late"]
    leading.stop()
    assert running.join().error is None
    assert source.open_streams() == []


@pytest.mark.rule("MG-01")
@pytest.mark.rule("CT-08")
def test_a_controller_with_warm_up_fills_its_queue_before_leading(world: World) -> None:
    manager = world.manager()
    script, feeds = Script(), {"warm": Feed(synced=False), "cold": Feed()}
    warm = Builder(manager, "warm", options=WARM_UP).watches_raw(feeds["warm"]).build(script)
    Builder(manager, "cold").watches_raw(feeds["cold"]).build(script)
    running = world.start(manager)
    assert (feeds["warm"].starts, feeds["cold"].starts) == (1, 0)
    assert not manager.elected.is_set()
    feeds["warm"].send("a")
    assert len(warm.queue) == 1
    feeds["warm"].synced.stop()
    world.clock.settle()
    assert manager.elected.is_set()
    assert (feeds["warm"].starts, feeds["cold"].starts) == (1, 1)
    assert [request.name for request in script.calls] == ["a"]
    assert running.end() is None
    assert (feeds["warm"].stops, feeds["cold"].stops) == (1, 1)


@pytest.mark.rule("MG-08")
@pytest.mark.rule("CT-08")
def test_a_stop_during_the_warm_up_ends_it(world: World) -> None:
    manager = world.manager()
    feed = Feed(synced=False)
    Builder(manager, "warm", options=WARM_UP).watches_raw(feed).build(Script())
    running = world.start(manager)
    assert running.end() is None
    assert (feed.starts, feed.stops) == (1, 1)
    assert not manager.elected.is_set()


@pytest.mark.rule("CT-08")
def test_a_warm_up_that_takes_too_long_ends_the_manager(world: World) -> None:
    manager = world.manager(cache_sync_timeout=10)
    feed = Feed(synced=False)
    Builder(manager, "warm", options=WARM_UP).watches_raw(feed).build(Script())
    running = world.start(manager)
    world.clock.advance(10)
    running.join()
    assert isinstance(running.error, SyncTimeout)
    assert running.error.unsynced == ("feed of controller warm",)
    assert feed.stops == 1


@pytest.mark.rule("MG-05", "IF-08")
def test_a_second_run_is_an_error(world: World) -> None:
    manager = world.manager()
    world.start(manager)
    with pytest.raises(AlreadyStarted):
        manager.run()


@pytest.mark.rule("MG-04")
def test_a_runnable_added_later_runs_at_once_and_none_after_the_stop(world: World) -> None:
    manager = world.manager()
    running = world.start(manager)
    manager.add(world.diary.task("plain"), needs_leader=False)
    manager.add(world.diary.task("leading"))
    world.clock.settle()
    assert sorted(world.diary.lines) == ["leading runs", "plain runs"]
    assert running.end() is None
    with pytest.raises(AlreadyStopped):
        manager.add(world.diary.task("late"))


@pytest.mark.rule("MG-06")
@pytest.mark.parametrize("needs_leader", [True, False])
@pytest.mark.parametrize("error", [ValueError("odd"), SystemExit(3)])
def test_the_first_failure_ends_everything_and_is_raised(
    world: World, needs_leader: bool, error: BaseException
) -> None:
    manager = world.manager()
    manager.add(world.diary.task("other"))
    manager.add(fail(error), needs_leader=needs_leader)
    raised: list[BaseException] = []

    def run(_: StopToken) -> None:
        try:
            manager.run()
        except BaseException as caught:  # noqa: BLE001 - SystemExit is one of them
            raised.append(caught)

    world._run(run).join()
    assert raised == [error]
    assert world.diary.lines[-1:] in ([], ["other ends"])


@pytest.mark.rule("MG-06")
def test_later_failures_are_logged_and_dropped(world: World) -> None:
    manager = world.manager()

    def fail_late(stop: StopToken) -> None:
        stop.wait()
        raise ValueError("late")

    manager.add(Call(fail_late))
    running = world.start(manager)
    with structlog.testing.capture_logs() as logs:
        manager.add(fail(ValueError("first")))
        running.join()
    assert str(running.error) == "first"
    assert [line["event"] for line in logs if line["log_level"] == "warning"] == ["stop_failed"]


@pytest.mark.rule("MG-06")
def test_being_stopped_is_not_a_failure(world: World) -> None:
    manager = world.manager()

    def stopped(stop: StopToken) -> None:
        stop.wait()
        raise Stopped(stop.reason or "")

    manager.add(Call(stopped))
    assert world.start(manager).end() is None


@pytest.mark.rule("MG-07")
def test_a_runnable_that_returns_stops_no_other(world: World) -> None:
    manager = world.manager()
    manager.add(Call(lambda _: None))
    manager.add(world.diary.task("other"))
    running = world.start(manager)
    world.advance(60)
    assert world.diary.lines == ["other runs"]
    assert running.end() is None


@pytest.mark.rule("MG-09")
def test_the_grace_period_is_named_with_what_exceeded_it(world: World) -> None:
    manager = world.manager()
    gate = StopToken(clock=world.clock)
    manager.add(world.diary.task("slow", gate=gate), name="slow")
    running = world.start(manager)
    running.stop.stop()
    world.clock.settle()
    world.advance(29)
    assert running.error is None
    world.clock.advance(1)
    error = running.join().error
    assert isinstance(error, GracePeriodExceeded)
    assert (error.seconds, error.running) == (30.0, ("nav-lead-slow",))
    gate.stop()


class GivesUp:
    """An election that no longer waits for the work of the leader."""

    def __init__(self, group: Any) -> None:
        self._group = group

    def stop(self, reason: str) -> None:
        self._group.stop(reason)

    def join(self, timeout: float | None) -> bool:
        return True


@pytest.mark.rule("MG-09")
def test_work_that_an_election_gave_up_is_named(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = world.manager()
    gate = StopToken(clock=world.clock)
    manager.add(world.diary.task("slow", gate=gate), name="slow")
    running = world.start(manager)
    monkeypatch.setattr(manager, "_election", GivesUp(manager._leading))  # forces the moment
    running.stop.stop()
    error = running.join().error
    assert isinstance(error, GracePeriodExceeded)
    assert error.running == ("nav-lead-slow",)
    gate.stop()


@pytest.mark.rule("MG-09")
def test_a_failure_and_an_exceeded_grace_period_are_both_reported(world: World) -> None:
    manager = world.manager(graceful_shutdown_timeout=5)
    gate = StopToken(clock=world.clock)
    manager.add(world.diary.task("slow", gate=gate), name="slow")
    running = world.start(manager)
    manager.add(fail(ValueError("odd")))
    world.clock.settle()
    world.clock.advance(5)
    running.join()
    assert isinstance(running.error, ValueError)
    assert "grace period of 5 s: nav-lead-slow" in running.error.__notes__[0]
    gate.stop()


@pytest.mark.rule("MG-09")
def test_a_grace_period_of_0_does_not_wait(world: World) -> None:
    manager = world.manager(graceful_shutdown_timeout=0)
    gate = StopToken(clock=world.clock)
    manager.add(world.diary.task("slow", gate=gate))
    assert world.start(manager).end() is None
    gate.stop()


@pytest.mark.rule("MG-09")
def test_a_negative_grace_period_waits_for_ever(world: World) -> None:
    manager = world.manager(graceful_shutdown_timeout=-1)
    gate = StopToken(clock=world.clock)
    manager.add(world.diary.task("slow", gate=gate))
    running = world.start(manager)
    running.stop.stop()
    world.clock.settle()
    world.advance(1e6)
    assert world.diary.lines == ["slow runs", "slow stopped"]
    gate.stop()
    assert running.join().error is None


def test_a_cache_that_does_not_fill_is_named(world: World) -> None:
    manager = world.manager(cache_sync_timeout=10)
    manager.informer(THINGS)
    source = world.client.source(THINGS)
    source.can_stream = False
    error = ServerError(Status(code=500, reason="InternalError", message="down"))
    source.fail("list", *[error] * 100)
    running = world.start(manager)
    world.clock.advance(10)
    running.join()
    assert isinstance(running.error, SyncTimeout)
    assert running.error.unsynced == ("things.example.org",)


@pytest.mark.rule("MG-13")
@pytest.mark.rule("MG-14")
def test_readiness_says_which_cache_cannot_be_filled_and_why(world: World) -> None:
    """Such as a permission that is missing."""
    manager = world.manager()
    manager.informer(THINGS)
    source = world.client.source(THINGS)
    source.can_stream = False
    refused = Forbidden(Status(code=403, reason="Forbidden", message="cannot list things"))
    source.fail("list", *[refused] * 2)
    running = world.start(manager)
    body = manager.probes.route("/readyz/caches", {}).body.decode()
    assert body.startswith("the caches are being filled; things.example.org: ")
    assert "cannot list things" in body
    for _ in range(10):
        world.advance(5)
    assert manager.probes.route("/readyz/caches", {}).status == 200
    assert running.end() is None


def test_a_stop_while_caches_fill_is_not_a_failure(world: World) -> None:
    manager = world.manager()
    manager.informer(THINGS)
    manager.add(world.diary.task("never"))
    source = world.client.source(THINGS)
    source.can_stream = False
    error = ServerError(Status(code=500, reason="InternalError", message="down"))
    source.fail("list", *[error] * 100)
    assert world.start(manager).end() is None
    assert world.diary.lines == []


@pytest.mark.rule("OP-61")
def test_a_missing_kind_is_logged_once_and_waited_for(world: World) -> None:
    manager = world.manager(missing_kinds_hint="run: navarchos crds | kubectl apply -f -")
    manager.add(world.diary.task("other"))
    manager.informer(THINGS)
    manager.informer(PARTS)
    world.client.missing = {"parts.example.org"}
    with structlog.testing.capture_logs() as logs:
        running = world.start(manager)
        for _ in range(3):
            world.advance(5)
    (line,) = [line for line in logs if line["event"] == "kinds_missing"]
    assert line["error"] == "the server does not serve parts.example.org"
    assert line["log_level"] == "warning"
    assert line["hint"] == "run: navarchos crds | kubectl apply -f -"
    answer = manager.probes.route("/readyz/caches", {})
    assert answer.status == 500
    assert answer.body == b"the server does not serve parts.example.org\n"
    assert world.diary.lines == []
    world.client.missing = set()
    world.advance(5)
    assert world.diary.lines == ["other runs"]
    assert manager.probes.route("/readyz", {}).status == 200
    assert running.end() is None


def test_a_server_that_cannot_be_reached_is_waited_for(world: World) -> None:
    manager = world.manager()
    manager.informer(THINGS)
    world.client.discovery_fails = ServerError(Status(code=500, reason="", message="down"))
    running = world.start(manager)
    assert manager.probes.route("/readyz", {}).status == 500
    world.client.discovery_fails = None
    world.advance(5)
    assert manager.probes.route("/readyz", {}).status == 200
    assert running.end() is None


def test_an_interrupt_ends_everything_before_it_propagates(world: World) -> None:
    manager = world.manager()
    manager.informer(THINGS)
    world.client.discovery_fails = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        manager.run()


def test_an_informer_asked_for_later_starts_at_once(world: World) -> None:
    manager = world.manager()
    world.client.source(THINGS).put(make_thing("a"))
    running = world.start(manager)
    lister = manager.lister(THINGS)
    world.clock.settle()
    assert len(lister.list()) == 1
    assert manager.informer(THINGS) is manager.informer(THINGS)
    assert running.end() is None


@pytest.mark.rule("IF-12")
def test_the_projection_of_a_cached_kind_is_an_option(world: World) -> None:
    trim = msgspec.structs.replace
    kinds = {THINGS: KindOptions[Thing](transform=lambda thing: trim(thing, spec=ThingSpec()))}
    manager = world.manager(kinds=kinds)
    for resource in (THINGS, PARTS):
        world.client.source(resource).put(make_thing("a", size=7))
    listers = [manager.lister(THINGS), manager.lister(PARTS)]
    running = world.start(manager)
    assert [lister.get("a", "ns").spec.size for lister in listers] == [0, 7]
    assert running.end() is None


@pytest.mark.rule("ST-15", "MG-06")
def test_a_crash_inside_of_a_cache_ends_the_process(world: World) -> None:
    manager = world.manager()
    world.client.source(THINGS).put(make_thing("a", labels={}))
    lister = manager.lister(THINGS)
    running = world.start(manager)
    labels: Any = lister.get("a", "ns").metadata.labels
    labels["another-process"] = "was here"
    world.advance(1)
    assert isinstance(running.join().error, CacheMutated)


@pytest.mark.rule("IF-09")
def test_every_object_is_looked_at_again_after_ten_hours_or_so(world: World) -> None:
    manager = world.manager()
    world.client.source(THINGS).put(make_thing("a"))
    again: list[str] = []
    manager.informer(THINGS).add_handler(on_update=lambda old, new: again.append(key_of(new)))
    running = world.start(manager)
    world.advance(9 * 3600 - 1)
    assert again == []
    world.advance(2 * 3600 + 1)
    assert again == ["ns/a"]
    assert running.end() is None


def test_a_stop_from_a_reconcile_is_orderly(world: World) -> None:
    """A worker must not wait for itself (RT-09)."""
    manager = world.manager()
    script = Script()
    Builder(manager).for_(THINGS).build(script)
    world.client.source(THINGS).put(make_thing("a"))
    outer = StopToken(clock=world.clock)
    script.before = lambda _: outer.stop("enough")
    manager.run(outer)
    assert script.calls == [Request("ns", "a")]


@pytest.mark.rule("MG-15")
def test_an_address_in_use_is_refused_at_construction(world: World) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigError, match="cannot be bound"):
            world.manager(metrics_address="127.0.0.1:0", health_address=address)
    with pytest.raises(ConfigError, match="host:port"):
        world.manager(metrics_address="8080")


def test_servers_are_off_by_default(world: World) -> None:
    manager = world.manager()
    assert (manager.metrics_port, manager.health_port) == (0, 0)


@pytest.mark.rule("MT-10")
def test_the_process_is_measured_once_in_a_registry(world: World) -> None:
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    Manager(world.client, registry=registry)  # type: ignore[arg-type]  # a client for tests
    assert registry.get_sample_value("process_cpu_seconds_total") is not None
    assert registry.get_sample_value("workqueue_adds_total", {}) is None


@pytest.mark.rule("MT-10")
def test_metrics_of_others_are_served_too(world: World) -> None:
    instruments = Instruments()
    requests = instruments.counter("rest_client_requests_total", "Requests", ("code",))
    requests.labels("200").inc()
    manager = Manager(world.client, instruments=instruments)  # type: ignore[arg-type]  # as above
    answer = MetricsPages(manager.instruments.registry).route("/metrics", {})
    assert b'rest_client_requests_total{code="200"} 1.0' in answer.body
    with pytest.raises(ConfigError, match="instruments"):
        Manager(world.client, instruments=instruments, registry=CollectorRegistry())  # type: ignore[arg-type]  # as above


@pytest.mark.rule("MG-14")
def test_checks_come_before_the_start(world: World) -> None:
    manager = world.manager()
    manager.add_readyz_check("queue", lambda: None)
    manager.add_healthz_check("loop", lambda: None)
    assert world.start(manager).end() is None
    assert manager.probes.route("/readyz/queue", {}).status == 200
    with pytest.raises(AlreadyStarted):
        manager.add_healthz_check("late", lambda: None)
