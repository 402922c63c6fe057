"""Iteration over objects, with pages fetched ahead."""

import json
import threading
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.unit.client.wire import Connect

from navarchos.client import BufferedResponse, Client, Expired, HttpRequest, Resource
from navarchos.client.options import ListOptions
from navarchos.client.pager import PAGES_AHEAD
from navarchos.errors import Stopped
from navarchos.meta import Object

LIMIT = 20.0


class Pod(Object, frozen=True):
    """A pod with only its name."""


PODS = Resource("", "v1", "pods", "Pod", namespaced=True, type=Pod)


class Pages:
    """A server with pages of two pods each, which records its requests."""

    def __init__(self, count: int, *, expired: int = -1, broken: int = -1) -> None:
        self.asked: list[dict[str, list[str]]] = []
        self.changed = threading.Condition()
        self._count = count
        self._expired = expired
        self._broken = broken

    def __call__(self, request: HttpRequest) -> BufferedResponse:
        query = parse_qs(urlsplit(request.target).query)
        with self.changed:
            self.asked.append(query)
            self.changed.notify_all()
        number = int(query.get("continue", ["0"])[0])
        if number == self._expired:
            return BufferedResponse(410, body=b'{"kind":"Status","reason":"Expired","code":410}')
        items: list[object] = [{"metadata": {"name": f"p{number * 2 + n}"}} for n in range(2)]
        if number == self._broken:
            items[1] = {"metadata": {"name": 3}}
        after = str(number + 1) if number + 1 < self._count else ""
        body = {"metadata": {"resourceVersion": "5", "continue": after}, "items": items}
        return BufferedResponse(200, body=json.dumps(body).encode())

    def wait_for(self, requests: int) -> bool:
        with self.changed:
            return self.changed.wait_for(lambda: len(self.asked) >= requests, LIMIT)


def threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("nav-pages")]


@pytest.mark.rule("RF-11")
def test_objects_come_in_order_and_later_pages_by_token_only(
    connect: Connect,
) -> None:
    pages = Pages(30)
    client: Client = connect(pages)
    with client.resource(PODS).each(
        options=ListOptions(limit=2, resource_version="4", label_selector="a=b")
    ) as found:
        assert [pod.metadata.name for pod in found] == [f"p{n}" for n in range(60)]
        assert list(found) == []
    assert threads() == []
    assert pages.asked[0] == {"limit": ["2"], "resourceVersion": ["4"], "labelSelector": ["a=b"]}
    assert pages.asked[1] == {"limit": ["2"], "continue": ["1"], "labelSelector": ["a=b"]}
    assert len(pages.asked) == 30


@pytest.mark.rule("RF-11")
def test_no_more_than_ten_pages_are_fetched_ahead_of_the_reader(connect: Connect) -> None:
    pages = Pages(40)
    client: Client = connect(pages)
    with client.resource(PODS).each() as found:
        assert pages.wait_for(PAGES_AHEAD)
        next(found)  # removes the first page
        assert pages.wait_for(PAGES_AHEAD + 1)
        for _ in range(2):
            next(found)
        assert pages.wait_for(PAGES_AHEAD + 2)
        # The fetching thread is blocked now, until a page is removed.
        with pages.changed:
            assert not pages.changed.wait_for(lambda: len(pages.asked) > PAGES_AHEAD + 2, 0.05)


@pytest.mark.rule("RF-11")
def test_a_token_that_expired_is_raised_after_the_objects_before_it_without_a_full_list(
    connect: Connect,
) -> None:
    pages = Pages(9, expired=3)
    client: Client = connect(pages)
    seen: list[str] = []
    with client.resource(PODS).each() as found, pytest.raises(Expired):
        seen.extend(pod.metadata.name for pod in found)
    assert seen == [f"p{n}" for n in range(6)]
    seen.clear()
    with client.resource(PODS).each() as found:
        seen.extend(next(found).metadata.name for _ in range(6))
        for _ in range(2):
            with pytest.raises(Expired):
                next(found)
    assert seen == [f"p{n}" for n in range(6)]
    assert len(pages.asked) == 8


@pytest.mark.rule("RF-11")
def test_a_reader_that_fails_ends_the_fetching(connect: Connect) -> None:
    pages = Pages(10_000)
    client: Client = connect(pages)
    found = client.resource(PODS).each()

    def fail_on_the_first() -> None:
        with found:
            1 / (next(found).metadata.name != "p0")

    with pytest.raises(ZeroDivisionError):
        fail_on_the_first()
    assert threads() == []
    asked = len(pages.asked)
    assert asked <= PAGES_AHEAD + 2
    with pytest.raises(Stopped):
        list(found)
    assert len(pages.asked) == asked


def test_closing_the_client_unblocks_the_reader(connect: Connect) -> None:
    reached, release = threading.Event(), threading.Event()

    def hang(request: HttpRequest) -> BufferedResponse:
        reached.set()
        assert request.stop is not None
        request.stop.on_stop(release.set)
        assert release.wait(LIMIT)
        raise Stopped("the client was closed")

    client: Client = connect(hang)
    found = client.resource(PODS).each()
    assert reached.wait(LIMIT)
    closer = threading.Thread(target=client.close)
    closer.start()
    with pytest.raises(Stopped):
        next(found)
    closer.join(LIMIT)
    found.close()
    assert threads() == []


def test_objects_that_do_not_fit_are_left_out_and_reported(connect: Connect) -> None:
    client: Client = connect(Pages(3, broken=1))
    with client.resource(PODS).each() as found:
        assert [pod.metadata.name for pod in found] == ["p0", "p1", "p2", "p4", "p5"]
        assert len(found.failures) == 1
