from collections.abc import Callable
from functools import cached_property
from typing import Any

import pytest
from msgspec.structs import replace

from navarchos.client import ApiError, Expired, Resource
from navarchos.client.errors import error_from_status
from navarchos.client.options import ListOptions
from navarchos.client.status import Status
from navarchos.errors import Stopped
from navarchos.informers.paged_list import PagedList
from navarchos.informers.position import CachePosition
from navarchos.informers.scope import Scope, ScopedSource
from navarchos.meta import ResourceVersion
from navarchos.stopping import StopToken
from navarchos.testing.source import FakeSource

Make = Callable[..., Any]

DEFAULTS = ListOptions()


def gone() -> ApiError:
    return error_from_status(Status(code=410, reason="Expired", message="too old"))


@pytest.fixture
def stop() -> StopToken:
    return StopToken()


@pytest.fixture
def position() -> CachePosition:
    return CachePosition()


@pytest.fixture
def paged_list(source: FakeSource[Any], position: CachePosition) -> PagedList[Any]:
    return PagedList(ScopedSource(source, Scope()), position)


def versions(source: FakeSource[Any]) -> list[str]:
    return [request.resource_version for request in source.requests]


def limits(source: FakeSource[Any]) -> list[int]:
    return [request.limit for request in source.requests]


@pytest.mark.rule("RF-05")
def test_the_first_list_accepts_any_version_and_later_lists_never_go_back(
    source: FakeSource[Any], paged_list: PagedList[Any], position: CachePosition, stop: StopToken
) -> None:
    position.resume_from(paged_list.fetch(stop).version)
    paged_list.fetch(stop)
    assert versions(source) == ["0", "10"]


@pytest.mark.rule("RF-06")
def test_an_expired_version_is_dropped_at_once_for_one_list(
    source: FakeSource[Any], paged_list: PagedList[Any], position: CachePosition, stop: StopToken
) -> None:
    position.resume_from(paged_list.fetch(stop).version)
    source.fail("list", gone())
    found = paged_list.fetch(stop)
    assert versions(source) == ["0", "10", ""]
    position.resume_from(found.version)
    paged_list.fetch(stop)
    assert versions(source)[-1] == "10", "a list that succeeded makes the version good again"


@pytest.mark.rule("RF-06")
def test_a_second_refusal_is_raised_and_the_next_round_asks_for_the_latest(
    source: FakeSource[Any], paged_list: PagedList[Any], position: CachePosition, stop: StopToken
) -> None:
    position.resume_from(paged_list.fetch(stop).version)
    source.fail("list", gone(), gone())
    with pytest.raises(Expired):
        paged_list.fetch(stop)
    paged_list.fetch(stop)
    assert versions(source) == ["0", "10", "", ""]


@pytest.mark.rule("RF-07")
def test_a_version_from_the_servers_future_is_dropped_too(
    source: FakeSource[Any], paged_list: PagedList[Any], position: CachePosition, stop: StopToken
) -> None:
    """As after a restore of etcd, or with a server whose cache is behind."""
    position.resume_from(ResourceVersion("999"))
    paged_list.fetch(stop)
    assert versions(source) == ["999", ""]


@pytest.mark.rule("RF-08")
def test_a_list_at_a_version_asks_for_no_pages_so_that_memory_can_answer(
    source: FakeSource[Any], paged_list: PagedList[Any], position: CachePosition, stop: StopToken
) -> None:
    position.resume_from(paged_list.fetch(stop).version)
    paged_list.fetch(stop)
    assert limits(source) == [500, 0]


@pytest.mark.rule("RF-08")
def test_an_explicit_page_size_is_always_honoured(
    source: FakeSource[Any], position: CachePosition, stop: StopToken
) -> None:
    paged_list = PagedList(ScopedSource(source, Scope()), position, page_size=7)
    position.resume_from(paged_list.fetch(stop).version)
    paged_list.fetch(stop)
    assert limits(source) == [7, 7]


class WithoutWatchCache(FakeSource[Any]):
    """A server that answers every list from etcd, in pages."""

    def list_page(self, namespace: str = "", options: ListOptions = DEFAULTS, **more: Any) -> Any:
        self.limits.append(options.limit)
        return super().list_page(namespace, replace(options, resource_version=""), **more)

    @cached_property
    def limits(self) -> list[int]:
        return []


@pytest.mark.rule("RF-09")
def test_after_a_cheap_list_in_pages_later_lists_ask_for_pages(
    things: Resource[Any], position: CachePosition, stop: StopToken, thing: Make
) -> None:
    source = WithoutWatchCache(things)
    for number in range(501):
        source.put(thing(f"t{number}"))
    paged_list = PagedList(ScopedSource(source, Scope()), position)
    for _ in range(2):
        found = paged_list.fetch(stop)
        assert (len(found.items), found.pages) == (501, 2)
        position.resume_from(found.version)
    assert source.limits == [500] * 4


@pytest.mark.rule("RF-09")
def test_pages_of_a_consistent_list_do_not_mean_that_the_watch_cache_is_off(
    source: FakeSource[Any],
    paged_list: PagedList[Any],
    position: CachePosition,
    stop: StopToken,
    thing: Make,
) -> None:
    for number in range(501):
        source.put(thing(f"t{number}"))
    position.is_resume_version_refused = True
    found = paged_list.fetch(stop)
    assert found.pages == 2
    position.resume_from(found.version)
    paged_list.fetch(stop)
    assert limits(source) == [500, 500, 0]


@pytest.mark.rule("RF-10")
def test_later_pages_are_requested_by_token_and_the_first_version_counts(
    source: FakeSource[Any], position: CachePosition, stop: StopToken, thing: Make
) -> None:
    for number in range(5):
        source.put(thing(f"t{number}"))
    position.is_resume_version_refused = True
    source.before_list = source.pass_time
    found = PagedList(ScopedSource(source, Scope()), position, page_size=2).fetch(stop)
    assert [obj.metadata.name for obj in found.items] == ["t0", "t1", "t2", "t3", "t4"]
    assert found.version == "16"
    assert versions(source) == ["", "", ""]
    assert [bool(request.continue_token) for request in source.requests] == [False, True, True]
    assert limits(source) == [2, 2, 2]


@pytest.mark.rule("RF-10")
def test_an_expired_token_leads_to_one_list_in_one_piece(
    source: FakeSource[Any], position: CachePosition, stop: StopToken, thing: Make
) -> None:
    for number in range(5):
        source.put(thing(f"t{number}"))
    position.resume_from(source.version)

    def forget_after_the_first_page() -> None:
        if source.requests:
            source.compact()

    source.before_list = forget_after_the_first_page
    found = PagedList(ScopedSource(source, Scope()), position, page_size=2).fetch(stop)
    assert len(found.items) == 5
    assert versions(source) == ["15", "", "15"]
    assert limits(source) == [2, 2, 0]


@pytest.mark.rule("RF-03")
def test_a_stop_before_or_during_a_list_returns_nothing(
    source: FakeSource[Any], paged_list: PagedList[Any], stop: StopToken
) -> None:
    source.before_list = stop.stop
    with pytest.raises(Stopped):
        paged_list.fetch(stop)
    with pytest.raises(Stopped):
        paged_list.fetch(stop)
    assert len(source.requests) == 1
