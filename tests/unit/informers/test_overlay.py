from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from tests.informers import present

from navarchos.informers.overlay import OVERLAY_LIFETIME, Overlay
from navarchos.informers.store import WritableStore
from navarchos.meta import ResourceVersion, key_of
from navarchos.testing import FakeClock

Make = Callable[..., Any]

pytestmark = pytest.mark.rule("ST-17")


class World:
    """An overlay, and what the watch would bring, in short calls."""

    def __init__(self, thing: Make, clock: FakeClock) -> None:
        self.thing = thing
        self.store = WritableStore[Any]({"value": lambda obj: [str(obj.value)]})
        self.overlay = Overlay(self.store, clock=clock)

    def at(self, version: int, value: int = 0, uid: str = "u1", **metadata: Any) -> Any:
        return self.thing(
            "t", value, uid=uid, resource_version=ResourceVersion(str(version)), **metadata
        )

    def shows(self, obj: Any) -> None:
        self.overlay.put(key_of(obj), obj, obj.metadata.resource_version)

    def shows_end_of(self, obj: Any) -> None:
        self.overlay.remove(key_of(obj), obj.metadata.resource_version)

    def lists(self, version: int, *objects: Any) -> None:
        content = {key_of(obj): obj for obj in objects}
        self.overlay.replace(content, ResourceVersion(str(version)))

    @property
    def value(self) -> int | None:
        found = self.overlay.get("ns/t")
        assert self.overlay.values() == ([] if found is None else [found])
        assert self.overlay.keys() == ([] if found is None else ["ns/t"])
        assert len(self.overlay) == (found is not None)
        assert ("ns/t" in self.overlay) == (found is not None)
        return None if found is None else found.value


@pytest.fixture
def world(thing: Make, fake_clock: FakeClock) -> World:
    return World(thing, fake_clock)


def test_deleting_a_terminating_object_hides_nothing(world: World) -> None:
    ending = world.at(10, 1, deletion_timestamp=datetime(2026, 1, 2, tzinfo=UTC))
    world.lists(10, ending)
    world.overlay.observe_delete(ending)
    assert world.value == 1


@pytest.mark.rule("ST-17")
@pytest.mark.parametrize("by", ["a list", "an event"])
def test_another_object_under_the_name_ends_a_deletion_whose_end_was_missed(
    world: World, by: str
) -> None:
    world.lists(10, world.at(10, 1))
    world.overlay.observe_delete(world.at(10, 1))
    assert world.value is None
    another = world.at(13, 3, uid="u2")
    if by == "a list":
        world.lists(14, another)
    else:
        world.shows(another)
    assert world.value == 3


@pytest.mark.rule("ST-12")
def test_an_own_write_that_an_index_refuses_spoils_no_look_up(
    thing: Make, fake_clock: FakeClock
) -> None:
    overlay = Overlay(
        WritableStore[Any]({"inverse": lambda obj: [str(12 // obj.value)]}), clock=fake_clock
    )
    for name in ("a", "b"):
        overlay.put(f"ns/{name}", thing(name, 4), ResourceVersion("1"))
    overlay.observe_write(thing("a", 0, resource_version=ResourceVersion("5")))
    overlay.observe_write(thing("b", 6, resource_version=ResourceVersion("6")))
    assert [obj.metadata.name for obj in overlay.by_index("inverse", "3")] == ["a"]
    assert [obj.metadata.name for obj in overlay.by_index("inverse", "2")] == ["b"]
    assert present(overlay.get("ns/a")).value == 0, "by its key it is found"


def test_a_write_is_read_before_the_watch_brings_it(world: World) -> None:
    world.lists(10, world.at(10, 1))
    world.overlay.observe_write(world.at(12, 2))
    assert world.value == 2
    assert present(world.store.get("ns/t")).value == 1, "the store is what the watch has shown"


def test_an_own_creation_is_read_before_the_watch_brings_it(world: World) -> None:
    world.lists(10)
    world.overlay.observe_write(world.at(12, 2))
    assert world.value == 2


def test_an_older_event_does_not_uncover_an_older_state(world: World) -> None:
    world.lists(10, world.at(10, 1))
    world.overlay.observe_write(world.at(12, 2))
    world.shows(world.at(11, 7))
    assert world.value == 2


def test_a_write_vanishes_once_the_watch_has_it(world: World) -> None:
    world.lists(10, world.at(10, 1))
    world.overlay.observe_write(world.at(12, 2))
    world.shows(world.at(12, 2))
    world.shows(world.at(13, 3))
    assert world.value == 3


def test_a_bookmark_shows_that_the_watch_has_caught_up(world: World) -> None:
    """An own write that the watch never shows (out of its scope) does not stay."""
    world.lists(10)
    world.overlay.observe_write(world.at(12, 2))
    world.overlay.bookmark(ResourceVersion("11"))
    assert world.value == 2
    world.overlay.bookmark(ResourceVersion("12"))
    assert world.value is None


def test_a_later_event_of_another_object_shows_it_too(world: World) -> None:
    world.lists(10)
    world.overlay.observe_write(world.at(12, 2))
    other = world.thing("other", resource_version=ResourceVersion("13"))
    world.overlay.put("ns/other", other, ResourceVersion("13"))
    assert world.overlay.get("ns/t") is None


def test_a_list_older_than_the_write_does_not_hide_it(world: World) -> None:
    world.overlay.observe_write(world.at(12, 2))
    world.lists(11)
    assert world.value == 2
    world.lists(12, world.at(12, 2))
    assert world.value == 2
    world.lists(20)
    assert world.value is None


def test_a_late_write_does_not_bring_back_a_deleted_object(world: World) -> None:
    """The answer to a write arrives after the watch has shown the object's end."""
    world.lists(10, world.at(10, 1))
    world.shows_end_of(world.at(13))
    world.overlay.observe_write(world.at(12, 2))
    assert world.value is None


def test_a_late_write_does_not_cover_the_successor(world: World) -> None:
    world.lists(10, world.at(10, 1))
    world.shows_end_of(world.at(13))
    world.shows(world.at(14, 5, uid="u2"))
    world.overlay.observe_write(world.at(12, 2))
    assert world.value == 5


def test_our_re_creation_survives_the_deletion_of_its_predecessor(world: World) -> None:
    world.lists(10, world.at(10, 1))
    world.overlay.observe_write(world.at(14, 5, uid="u2"))
    world.shows_end_of(world.at(13))
    assert world.value == 5


def test_a_deletion_without_a_new_version_is_recognized_by_uid(world: World) -> None:
    """Old servers report a deletion in the version of the last state."""
    world.lists(10, world.at(10, 1))
    world.overlay.observe_write(world.at(12, 2))
    world.shows_end_of(world.at(10))
    assert world.value is None


def test_the_later_of_two_writes_counts_in_any_order_of_reports(world: World) -> None:
    world.overlay.observe_write(world.at(13, 3))
    world.overlay.observe_write(world.at(12, 2))
    assert world.value == 3


def test_indexes_follow_the_own_write(world: World) -> None:
    world.lists(10, world.at(10, 1))
    world.overlay.observe_write(world.at(12, 2))
    assert world.overlay.by_index("value", "1") == []
    assert [obj.value for obj in world.overlay.by_index("value", "2")] == [2]


def test_a_deleted_object_is_hidden_until_the_watch_shows_its_end(world: World) -> None:
    world.lists(10, world.at(10, 1))
    world.overlay.observe_delete(world.at(10, 1))
    assert world.value is None
    world.shows(world.at(11, 1))  # another client's update before the deletion
    assert world.value is None
    world.shows_end_of(world.at(12))
    world.shows(world.at(13, 9, uid="u2"))
    assert world.value == 9


def test_a_deletion_that_waits_for_finalizers_shows_as_terminating(world: World) -> None:
    world.lists(10, world.at(10, 1))
    world.overlay.observe_delete(world.at(10, 1))
    world.shows(world.at(11, 1, deletion_timestamp=datetime(2026, 1, 1, tzinfo=UTC)))
    assert world.value == 1


def test_a_deletion_hides_an_own_creation_that_the_watch_has_yet_to_bring(world: World) -> None:
    world.lists(10)
    world.overlay.observe_write(world.at(12, 2))
    world.overlay.observe_delete(world.at(12, 2))
    assert world.value is None
    world.lists(11)  # an older list knows nothing of it
    world.shows(world.at(12, 2))
    assert world.value is None
    world.shows_end_of(world.at(13))
    assert world.value is None


def test_a_predecessor_that_the_watch_brings_late_does_not_end_a_deletion(world: World) -> None:
    # Ours: created at 11, deleted, created again at 13, deleted again. The watch is behind.
    world.lists(10)
    world.overlay.observe_write(world.at(13, 3, uid="u2"))
    world.overlay.observe_delete(world.at(13, 3, uid="u2"))
    world.shows(world.at(11, 1))
    assert world.value is None
    world.shows(world.at(12, 1, deletion_timestamp=datetime(2026, 1, 1, tzinfo=UTC)))
    assert world.value is None
    world.shows_end_of(world.at(12, 1))
    world.shows(world.at(13, 3, uid="u2"))
    assert world.value is None
    world.shows_end_of(world.at(14, 3, uid="u2"))
    world.shows(world.at(15, 4, uid="u3"))
    assert world.value == 4


def test_a_write_reported_after_the_deletion_of_its_object_changes_nothing(world: World) -> None:
    world.lists(10, world.at(10, 1))
    world.overlay.observe_delete(world.at(10, 1))
    world.overlay.observe_write(world.at(11, 2))
    assert world.value is None
    world.overlay.observe_write(world.at(14, 5, uid="u2"))
    assert world.value == 5


def test_deleting_a_predecessor_does_not_hide_its_successor(world: World) -> None:
    world.lists(20, world.at(20, 5, uid="u2"))
    world.overlay.observe_delete(world.at(10, 1))
    assert world.value == 5


def test_a_deletion_ends_with_any_later_state_where_the_type_hides_the_timestamp(
    fake_clock: FakeClock,
) -> None:
    class Slim(msgspec.Struct, frozen=True):
        name: str
        uid: str
        resource_version: str
        namespace: str = ""

    class Named(msgspec.Struct, frozen=True):
        metadata: Slim

    store = WritableStore[Named]()
    overlay = Overlay(store, clock=fake_clock)
    first, second = Named(Slim("a", "u", "10")), Named(Slim("a", "u", "11"))
    overlay.put("a", first, ResourceVersion("10"))
    overlay.observe_delete(first)
    assert overlay.get("a") is None
    overlay.put("a", second, ResourceVersion("11"))
    assert overlay.get("a") is second


def test_untyped_objects_show_their_deletion_timestamp(fake_clock: FakeClock) -> None:
    def pod(version: str, **more: str) -> dict[str, Any]:
        return {"metadata": {"name": "a", "uid": "u", "resourceVersion": version, **more}}

    overlay = Overlay(WritableStore[dict[str, Any]](), clock=fake_clock)
    overlay.put("a", pod("10"), ResourceVersion("10"))
    overlay.observe_delete(pod("10"))
    overlay.put("a", pod("11"), ResourceVersion("11"))
    assert overlay.get("a") is None
    overlay.put("a", pod("12", deletionTimestamp="2026-01-01T00:00:00Z"), ResourceVersion("12"))
    assert overlay.get("a") is not None


def test_a_write_out_of_the_watchs_scope_hides_the_object(
    thing: Make, fake_clock: FakeClock
) -> None:
    overlay = Overlay(WritableStore[Any](), in_scope=lambda obj: obj.value < 5, clock=fake_clock)
    overlay.put("ns/t", thing("t", 1), ResourceVersion("10"))
    overlay.observe_write(thing("t", 9, resource_version=ResourceVersion("12")))
    assert overlay.get("ns/t") is None


def test_a_version_that_is_not_a_number_is_not_overlaid(world: World) -> None:
    """What cannot be compared cannot be known to be newer."""
    world.lists(10, world.at(10, 1))
    odd = world.thing("t", 2, uid="u1", resource_version=ResourceVersion("v1:abc"))
    world.overlay.observe_write(odd)
    assert world.value == 1


def test_a_write_is_shown_for_a_limited_time(world: World, fake_clock: FakeClock) -> None:
    world.lists(10, world.at(10, 1))
    world.overlay.observe_write(world.at(12, 2))
    fake_clock.advance(OVERLAY_LIFETIME)
    assert world.value == 1


def test_after_a_restore_from_backup_lower_versions_count_again(world: World) -> None:
    world.lists(1000, world.at(1000, 1))
    world.lists(10, world.at(10, 1))
    world.overlay.observe_write(world.at(12, 2))
    assert world.value == 2
