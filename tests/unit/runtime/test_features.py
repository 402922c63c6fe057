"""Features: parts of a manager that wait for their own kinds."""

from typing import Any, Literal

import pytest
import structlog
from tests.unit.runtime.conftest import PARTS, THINGS, FakeClient, Feed, Script, make_thing
from tests.unit.runtime.test_manager import Call, World

from navarchos.client import Forbidden, NotFound, ServerError
from navarchos.client.status import Status
from navarchos.errors import AlreadyStarted, ConfigError
from navarchos.runtime import Builder, ControllerOptions, Manager
from navarchos.testing import FakeClock

REFUSED = Forbidden(Status(code=403, reason="Forbidden", message="cannot list parts"))
DOWN = ServerError(Status(code=500, reason="InternalError", message="down"))
MISSING = b"the server does not serve parts.example.org\n"


@pytest.fixture
def world(client: FakeClient, fake_clock: FakeClock, run: Any) -> World:
    return World(client, fake_clock, run)


def with_feature(world: World) -> tuple[Manager, Script]:
    """A manager with a controller of things, and a feature with a controller of parts."""
    manager, script = world.manager(), Script()
    Builder(manager, "things").for_(THINGS).build(Script())

    def add() -> None:
        Builder(manager, "parts").for_(PARTS).build(script)

    reads = {"": [PARTS]}
    manager.add_feature("parts", [PARTS], add, hint="kubectl create -f parts", reads=reads)
    world.client.source(PARTS).put(make_thing("a"))
    return manager, script


def names(script: Script) -> list[str]:
    return [request.name for request in script.calls]


def is_ready(manager: Manager, check: str = "") -> bool:
    return manager.probes.route(f"/readyz/{check}".rstrip("/"), {}).status == 200


def gauge(manager: Manager) -> float | None:
    registry = manager.instruments.registry
    return registry.get_sample_value("navarchos_feature_ready", {"feature": "parts"})


@pytest.mark.rule("MG-21")
def test_a_feature_whose_kinds_are_served_starts_with_the_manager(world: World) -> None:
    manager, script = with_feature(world)
    assert manager.probes.route("/readyz/parts", {}).body == b"the manager has not started\n"
    with structlog.testing.capture_logs() as logs:
        running = world.start(manager)
    assert names(script) == ["a"]
    assert is_ready(manager)
    assert gauge(manager) == 1
    assert [line for line in logs if line["log_level"] == "warning"] == []
    assert running.end() is None


@pytest.mark.rule("MG-21")
def test_a_controller_of_a_feature_warms_up_like_all_others(world: World) -> None:
    """What is added before the caches are filled takes part in the whole start."""
    manager, feed = world.manager(), Feed(synced=False)

    def add() -> None:
        warm = ControllerOptions(warm_up=True)
        Builder(manager, "parts", options=warm).watches_raw(feed).build(Script())

    manager.add_feature("parts", [PARTS], add)
    running = world.start(manager)
    assert feed.starts == 1
    assert not manager.elected.is_set()
    feed.synced.stop()
    assert manager.elected.wait(20)
    assert running.end() is None


@pytest.mark.rule("MG-21")
def test_a_feature_without_its_kinds_does_not_delay_the_others(world: World) -> None:
    manager, script = with_feature(world)
    manager.add(world.diary.task("other"))
    world.client.missing = {str(PARTS)}
    with structlog.testing.capture_logs() as logs:
        running = world.start(manager)
        for _ in range(3):
            world.advance(5)
    assert world.diary.lines == ["other runs"]
    (line,) = [line for line in logs if line["event"] == "kinds_missing"]
    assert line["error"] == "the server does not serve parts.example.org"
    assert line["feature"] == "parts"
    assert line["hint"] == "kubectl create -f parts"
    assert manager.probes.route("/readyz/parts", {}).body == MISSING
    assert is_ready(manager, "caches")
    assert not is_ready(manager)
    assert script.calls == []
    assert gauge(manager) == 0
    world.client.missing = set()
    world.advance(5)
    assert names(script) == ["a"]
    assert is_ready(manager)
    assert gauge(manager) == 1
    assert running.end() is None


@pytest.mark.rule("MG-21")
def test_what_a_late_feature_adds_starts_with_current_caches(world: World) -> None:
    """A runnable that is added before the informer must not run before it has synced."""
    manager, seen = world.manager(), list[int]()
    source = world.client.source(PARTS)
    source.put(make_thing("a"))
    source.can_stream = False
    source.fail("list", *[DOWN] * 2)
    world.client.missing = {str(PARTS)}

    def add() -> None:
        for leads in (True, False):
            look = Call(lambda _: seen.append(len(manager.lister(PARTS).list())))
            manager.add(look, needs_leader=leads)
        manager.informer(PARTS)

    manager.add_feature("parts", [PARTS], add)
    running = world.start(manager)
    world.client.missing = set()
    world.clock.advance(5)
    world.clock.settle()
    assert seen == []
    assert manager.probes.route("/readyz/parts", {}).body == b"the caches are being filled\n"
    for _ in range(10):
        world.advance(5)
    assert seen == [1, 1]
    assert is_ready(manager)
    assert running.end() is None


@pytest.mark.rule("MG-21")
def test_kinds_that_cannot_be_listed_do_not_count_as_missing(world: World) -> None:
    """Objects of these kinds may exist, and other controllers may have to respect them."""
    manager = world.manager()
    manager.add(world.diary.task("other"))
    manager.add_feature("parts", [PARTS], lambda: world.diary.lines.append("feature"))
    world.client.discovery_fails = DOWN
    with structlog.testing.capture_logs() as logs:
        running = world.start(manager)
        world.advance(5)
        world.advance(5)
    assert world.diary.lines == []
    assert [line["event"] for line in logs].count("kinds_unknown") == 1
    assert b"cannot be listed: " in manager.probes.route("/readyz/parts", {}).body
    world.client.discovery_fails = None
    world.advance(5)
    assert world.diary.lines == ["feature", "other runs"]
    assert running.end() is None


@pytest.mark.rule("MG-21")
@pytest.mark.rule("NP-50")
@pytest.mark.parametrize("verb", ["list", "watch"])
def test_a_feature_without_its_permissions_does_not_stop_the_others(
    world: World, verb: Literal["list", "watch"]
) -> None:
    """An informer that may not read its kind would never be filled."""
    manager, script = with_feature(world)
    manager.add(world.diary.task("other"))
    source = world.client.source(PARTS)
    source.fail(verb, *[REFUSED] * 5)
    with structlog.testing.capture_logs() as logs:
        running = world.start(manager)
        assert world.diary.lines == ["other runs"]
        assert manager.elected.wait(20)
        for _ in range(2):
            world.advance(5)
    (line,) = [line for line in logs if line["event"] == "permissions_missing"]
    assert line["error"] == (
        "the manager may not list and watch parts.example.org: cannot list parts"
    )
    assert line["feature"] == "parts"
    assert line["hint"] == "grant the permissions of this feature"
    assert manager.probes.route("/readyz/parts", {}).body == f"{line['error']}\n".encode()
    assert is_ready(manager, "caches")
    assert not is_ready(manager)
    assert gauge(manager) == 0
    assert script.calls == []
    for _ in range(2):
        world.advance(5)
    assert names(script) == ["a"], "it starts when the permission is granted"
    assert is_ready(manager)
    assert gauge(manager) == 1
    assert all(stream.is_closed for stream in source.streams[:-1]), "a trial is left open"
    assert running.end() is None


@pytest.mark.rule("MG-21")
def test_permissions_that_cannot_be_checked_do_not_count_as_missing(world: World) -> None:
    """Objects of these kinds may exist, and other controllers may have to respect them."""
    manager, script = with_feature(world)
    manager.add(world.diary.task("other"))
    world.client.source(PARTS).fail("list", *[DOWN] * 2)
    with structlog.testing.capture_logs() as logs:
        running = world.start(manager)
        world.advance(5)
        assert world.diary.lines == []
        assert b"cannot be checked: " in manager.probes.route("/readyz/parts", {}).body
        world.advance(5)
    assert [line["event"] for line in logs].count("permissions_unknown") == 1
    assert world.diary.lines == ["other runs"]
    assert names(script) == ["a"]
    assert running.end() is None


def test_a_kind_of_others_that_is_not_served_is_no_missing_permission(world: World) -> None:
    gone = NotFound(Status(code=404, reason="NotFound", message="not served"))
    manager, _ = with_feature(world)
    world.client.source(PARTS).fail("list", gone)
    running = world.start(manager)
    assert is_ready(manager)
    assert running.end() is None


def test_a_stop_while_a_feature_waits_is_not_a_failure(world: World) -> None:
    manager, script = with_feature(world)
    world.client.missing = {str(PARTS)}
    assert world.start(manager).end() is None
    assert script.calls == []


def test_an_error_of_a_late_feature_stops_the_manager(world: World) -> None:
    manager = world.manager()
    world.client.missing = {str(PARTS)}

    def add() -> None:
        raise ConfigError("parts", "", "wrong")

    manager.add_feature("parts", [PARTS], add)
    running = world.start(manager)
    world.client.missing = set()
    world.clock.advance(5)
    assert isinstance(running.join().error, ConfigError)


def test_features_have_different_names_and_are_added_before_the_start(world: World) -> None:
    manager, _ = with_feature(world)
    with pytest.raises(ConfigError, match="another check has this name"):
        manager.add_feature("parts", [PARTS], lambda: None)
    running = world.start(manager)
    with pytest.raises(AlreadyStarted):
        manager.add_feature("late", [PARTS], lambda: None)
    assert running.end() is None
