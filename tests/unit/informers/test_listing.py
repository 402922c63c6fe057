from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from navarchos.client import ApiError, Expired
from navarchos.client.errors import error_from_status
from navarchos.client.status import Status
from navarchos.errors import Stopped
from navarchos.informers.paged_list import LastVersion, PagedList
from navarchos.informers.scope import Scope, ScopedSource
from navarchos.stopping import StopToken
from navarchos.testing.source import FakeSource

Make = Callable[..., Any]


def gone() -> ApiError:
    return error_from_status(Status(code=410, reason="Expired", message="too old"))


@pytest.fixture
def stop() -> StopToken:
    return StopToken()


@pytest.fixture
def last() -> LastVersion:
    return LastVersion()


@pytest.fixture
def full_list(source: FakeSource[Any], last: LastVersion) -> PagedList[Any]:
    return PagedList(ScopedSource(source, Scope()), last)


def versions(source: FakeSource[Any]) -> list[str]:
    return [request.resource_version for request in source.requests]


def limits(source: FakeSource[Any]) -> list[int]:
    return [request.limit for request in source.requests]


@pytest.mark.rule("RF-05")
def test_the_first_list_takes_what_is_at_hand_and_later_ones_never_go_back(
    source: FakeSource[Any], full_list: PagedList[Any], last: LastVersion, stop: StopToken
) -> None:
    last.listed(full_list.fetch(stop).version)
    full_list.fetch(stop)
    assert versions(source) == ["0", "10"]


@pytest.mark.rule("RF-06")
def test_a_version_that_has_expired_is_given_up_at_once_and_once(
    source: FakeSource[Any], full_list: PagedList[Any], last: LastVersion, stop: StopToken
) -> None:
    last.listed(full_list.fetch(stop).version)
    source.fail("list", gone())
    found = full_list.fetch(stop)
    assert versions(source) == ["0", "10", ""]
    last.listed(found.version)
    full_list.fetch(stop)
    assert versions(source)[-1] == "10", "a list that succeeded makes the version good again"


@pytest.mark.rule("RF-06")
def test_a_second_refusal_is_raised_and_the_next_round_asks_for_the_latest(
    source: FakeSource[Any], full_list: PagedList[Any], last: LastVersion, stop: StopToken
) -> None:
    last.listed(full_list.fetch(stop).version)
    source.fail("list", gone(), gone())
    with pytest.raises(Expired):
        full_list.fetch(stop)
    full_list.fetch(stop)
    assert versions(source) == ["0", "10", "", ""]


@pytest.mark.rule("RF-07")
def test_a_version_from_the_servers_future_is_given_up_too(
    source: FakeSource[Any], full_list: PagedList[Any], last: LastVersion, stop: StopToken
) -> None:
    """As after a restore of etcd, or with a server whose cache is behind."""
    last.value = type(last.value)("999")
    full_list.fetch(stop)
    assert versions(source) == ["999", ""]


@pytest.mark.rule("RF-08")
def test_a_list_at_a_version_asks_for_no_pages_so_that_memory_can_answer(
    source: FakeSource[Any], full_list: PagedList[Any], last: LastVersion, stop: StopToken
) -> None:
    last.listed(full_list.fetch(stop).version)
    full_list.fetch(stop)
    assert limits(source) == [500, 0]


@pytest.mark.rule("RF-08")
def test_an_explicit_page_size_is_always_honoured(
    source: FakeSource[Any], last: LastVersion, stop: StopToken
) -> None:
    full_list = PagedList(ScopedSource(source, Scope()), last, page_size=7)
    last.listed(full_list.fetch(stop).version)
    full_list.fetch(stop)
    assert limits(source) == [7, 7]


@pytest.mark.rule("RF-09")
def test_a_cheap_list_that_came_in_pages_keeps_to_pages(
    source: FakeSource[Any],
    full_list: PagedList[Any],
    last: LastVersion,
    stop: StopToken,
    thing: Make,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for number in range(3):
        source.put(thing(f"t{number}"))
    whole = source.list_page
    pages = iter([2, 0, 0])
    monkeypatch.setattr(
        source,
        "list_page",
        lambda namespace, options, **more: whole(
            namespace, replace(options, limit=next(pages), resource_version=""), **more
        ),
    )
    found = full_list.fetch(stop)
    assert (len(found.items), found.pages) == (3, 2)
    last.listed(found.version)
    assert full_list._limit("10") == 500


@pytest.mark.rule("RF-09")
def test_pages_of_a_list_that_had_to_come_in_pages_say_nothing_of_a_cache(
    source: FakeSource[Any],
    full_list: PagedList[Any],
    last: LastVersion,
    stop: StopToken,
    thing: Make,
) -> None:
    for number in range(501):
        source.put(thing(f"t{number}"))
    last.is_unavailable = True
    found = full_list.fetch(stop)
    assert found.pages == 2
    last.listed(found.version)
    full_list.fetch(stop)
    assert limits(source) == [500, 500, 0]


@pytest.mark.rule("RF-10")
def test_pages_are_asked_for_by_token_alone_and_the_first_ones_version_counts(
    source: FakeSource[Any], last: LastVersion, stop: StopToken, thing: Make
) -> None:
    for number in range(5):
        source.put(thing(f"t{number}"))
    last.is_unavailable = True
    source.before_list = source.pass_time
    found = PagedList(ScopedSource(source, Scope()), last, page_size=2).fetch(stop)
    assert [obj.metadata.name for obj in found.items] == ["t0", "t1", "t2", "t3", "t4"]
    assert found.version == "16"
    assert versions(source) == ["", "", ""]
    assert [bool(request.continue_token) for request in source.requests] == [False, True, True]
    assert limits(source) == [2, 2, 2]


@pytest.mark.rule("RF-10")
def test_a_token_that_expired_leads_to_one_list_in_one_piece(
    source: FakeSource[Any], last: LastVersion, stop: StopToken, thing: Make
) -> None:
    for number in range(5):
        source.put(thing(f"t{number}"))
    last.listed(source.version)

    def forget_after_the_first_page() -> None:
        if source.requests:
            source.compact()

    source.before_list = forget_after_the_first_page
    found = PagedList(ScopedSource(source, Scope()), last, page_size=2).fetch(stop)
    assert len(found.items) == 5
    assert versions(source) == ["15", "", "15"]
    assert limits(source) == [2, 2, 0]


@pytest.mark.rule("RF-03")
def test_a_stop_before_or_during_a_list_brings_nothing(
    source: FakeSource[Any], full_list: PagedList[Any], stop: StopToken
) -> None:
    source.before_list = stop.stop
    with pytest.raises(Stopped):
        full_list.fetch(stop)
    with pytest.raises(Stopped):
        full_list.fetch(stop)
    assert len(source.requests) == 1
