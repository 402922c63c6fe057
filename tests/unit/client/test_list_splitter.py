"""Lists that are decoded while they arrive have the same objects as complete lists."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.client.wire import Connect

from navarchos.client import BufferedResponse, ConnectFailed, HttpRequest
from navarchos.client.decoding import Codec
from navarchos.client.errors import DecodeError
from navarchos.client.list_splitter import ListSplitter
from navarchos.client.resource import Resource
from navarchos.instrument import Instruments
from navarchos.meta import Object

SMALL = 40
"""The minimum size of a split in these tests, in bytes."""

NAMES = st.sampled_from(["metadata", "items", "a", '"}],"items":[{"metadata":', "é\n\\"])
VALUES = st.recursive(
    st.none() | st.integers() | NAMES | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=12,
)
ITEMS = st.lists(st.dictionaries(NAMES, VALUES, max_size=4), max_size=12)
ENDS = st.fixed_dictionaries({}, optional={"kind": st.just("XList"), "metadata": VALUES})


class Thing(Object, frozen=True):
    """An object with only its metadata."""


THINGS = Resource("example.org", "v1", "things", "Thing", namespaced=True, type=Thing)
DICTS: Resource[Any] = Resource("example.org", "v1", "things", "Thing", namespaced=True, type=dict)


def compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def parts_of(data: bytes, lengths: list[int]) -> Iterator[bytes]:
    at = 0
    for length in lengths:
        yield data[at : at + length]
        at += length
    yield data[at:]


def items_in_pieces(parts: Iterator[bytes]) -> tuple[list[Any], Any]:
    """Return the items that were split off in a stream, and the remaining list."""
    splitter, items = ListSplitter(SMALL), []
    for part in parts:
        splitter.feed(part)
        while (guess := splitter.next_guess()) is not None:
            try:
                found = json.loads(bytes(guess))
            except ValueError:
                splitter.confirm(right=False)
            else:
                items += found
                splitter.confirm(right=True)
    return items, json.loads(splitter.remainder())


@given(head=ENDS, items=ITEMS, tail=ENDS, lengths=st.lists(st.integers(1, 60), max_size=40))
def test_a_list_in_pieces_is_the_list(
    head: dict[str, Any], items: list[Any], tail: dict[str, Any], lengths: list[int]
) -> None:
    whole = compact({**head, "items": items, **tail})
    cut, left = items_in_pieces(parts_of(whole, lengths))
    assert cut + left["items"] == items
    assert {**left, "items": items} == json.loads(whole)


def test_items_are_split_off_at_the_minimum_size() -> None:
    splitter = ListSplitter(SMALL)
    splitter.feed(b'{"kind":"XList","items":[{"a":1},{"a":2}')
    assert bytes(splitter.next_guess() or b"") == b'[{"a":1}]'
    splitter.confirm(right=True)
    assert splitter.next_guess() is None
    assert splitter.remainder() == b'{"kind":"XList","items":[{"a":2}'


def test_a_wrong_guess_is_followed_by_an_earlier_one() -> None:
    splitter = ListSplitter(SMALL)
    splitter.feed(b'{"items":[{"a":1},{"a":2},{"a":[{"a":3},{"a":4')
    assert bytes(splitter.next_guess() or b"") == b'[{"a":1},{"a":2},{"a":[{"a":3}]'
    splitter.confirm(right=False)
    assert bytes(splitter.next_guess() or b"") == b'[{"a":1},{"a":2}]'
    splitter.confirm(right=True)
    assert splitter.remainder() == b'{"items":[{"a":[{"a":3},{"a":4'


@pytest.mark.parametrize(
    "data",
    [
        b'{"kind": "XList", "items": [{"a": 1}, {"a": 2}, {"a": 3}, {"a": 4}]}',
        b'{"kind":"Table","rows":[{"object":{"items":[{"a":1},{"a":2},{"a":3}]}}]}',
        b'{"kind":"XList","metadata":{},"items":[1,2,3,4,5,6,7,8,9,10,11,12,13,14]}',
        b'{"kind":"XList","metadata":{"resourceVersion":"1"},"items":[],"more":[{}]}',
        b"<html>" + b'"items":[{"a":1},{"a":2}' * 9,
    ],
    ids=["blanks", "table", "numbers", "empty", "no JSON"],
)
def test_a_list_in_another_form_is_not_split(data: bytes) -> None:
    splitter = ListSplitter(SMALL)
    for part in parts_of(data, [30, 10, 10]):
        splitter.feed(part)
        assert splitter.next_guess() is None
    assert splitter.remainder() == data


def test_a_list_that_cannot_be_split_is_not_searched_for_each_part() -> None:
    splitter, guesses = ListSplitter(SMALL), 0
    splitter.feed(b'{"items":[{"a":[{"a":3},{"a":4')
    for _ in range(1_000):
        splitter.feed(b"x" * 9)
        while splitter.next_guess() is not None:
            splitter.confirm(right=False)
            guesses += 1
    # One search for each doubling: eight from 40 bytes to 9 KB.
    assert 1 <= guesses <= 8
    assert splitter.remainder() == b'{"items":[{"a":[{"a":3},{"a":4' + b"x" * 9_000


def thing(number: int, **more: object) -> dict[str, object]:
    meta = {"name": f"t-{number}", "namespace": "a", "uid": f"uid-{number}"}
    return {"metadata": {**meta, "resourceVersion": str(number)}, "filling": "x" * 10_000, **more}


def test_a_long_list_is_decoded_in_pieces_that_are_freed() -> None:
    body = compact({"kind": "ThingList", "items": [thing(number) for number in range(1_000)]})
    splitter, found, most = ListSplitter(), 0, 0
    for part in parts_of(body, [100_000] * 200):
        splitter.feed(part)
        most = max(most, len(splitter.remainder()))
        while (guess := splitter.next_guess()) is not None:
            found += len(json.loads(bytes(guess)))
            splitter.confirm(right=True)
    assert found + len(json.loads(splitter.remainder())["items"]) == 1_000
    assert most < 1 << 21 < len(body) // 4


@pytest.mark.parametrize("resource", [THINGS, DICTS], ids=["typed", "dicts"])
def test_a_list_in_pieces_has_the_same_objects(resource: Resource[Any]) -> None:
    about = {"resourceVersion": "77", "continue": "more", "remainingItemCount": 5}
    items = [thing(number) for number in range(500)]
    body = compact({"kind": "ThingList", "metadata": about, "items": items})
    codec = Codec(resource)
    found = codec.decode_parts(parts_of(body, [70_000] * 60))
    assert (found.resource_version, found.continue_token, found.remaining) == ("77", "more", 5)
    assert found.failures == []
    assert found.items == [codec.decode(compact(item)) for item in items]


def test_one_object_that_does_not_fit_does_not_affect_others() -> None:
    items = [thing(number) for number in range(500)]
    items[7] = thing(7, metadata={"name": "bad", "namespace": "a", "uid": 5})
    items[499] = thing(499, metadata={"name": "worse", "namespace": "a", "uid": 5})
    body = compact({"kind": "ThingList", "metadata": {"resourceVersion": "9"}, "items": items})
    found = Codec(THINGS).decode_parts(parts_of(body, [70_000] * 60))
    assert [failure.key for failure in found.failures] == ["a/bad", "a/worse"]
    names = [item.metadata.name for item in found.items]
    assert names == [f"t-{number}" for number in range(499) if number != 7]


@pytest.mark.parametrize("missing", [1, 2, 3_000_000])
def test_a_list_that_ends_early_is_a_decode_error(missing: int) -> None:
    body = compact({"kind": "ThingList", "items": [thing(number) for number in range(500)]})
    with pytest.raises(DecodeError, match="not a list"):
        Codec(THINGS).decode_parts(parts_of(body[:-missing], [70_000] * 60))


class Broken(BufferedResponse):
    """A response that breaks off after two thirds."""

    def parts(self) -> Iterator[bytes]:
        yield self.body[: len(self.body) * 2 // 3]
        raise ConnectFailed("reset", kept=True, sent=True)


def test_a_list_that_breaks_off_is_requested_again_from_its_beginning(connect: Connect) -> None:
    numbers = range(500)
    body = compact({"kind": "ThingList", "items": [thing(number) for number in numbers]})
    answers: list[BufferedResponse] = [Broken(200, {}, body), BufferedResponse(200, {}, body)]

    def send(request: HttpRequest) -> BufferedResponse:
        assert request.target.startswith("/apis/example.org/v1/things")
        return answers.pop(0)

    heard: list[Thing] = []
    found = connect(send).resource(THINGS).list_page(on_object=heard.append)
    assert [item.metadata.name for item in found.items] == [f"t-{number}" for number in numbers]
    assert heard[-500:] == found.items
    assert 600 < len(heard) < 1_000  # includes objects of the response that broke off
    assert answers == []


def test_an_undecodable_list_is_counted_by_its_status(connect: Connect) -> None:
    instruments = Instruments()
    client = connect(lambda _: BufferedResponse(200, {}, b"<html>"), instruments=instruments)
    with pytest.raises(DecodeError, match="not a list"):
        client.resource(THINGS).list("a")
    labels = {"code": "200", "method": "GET", "host": "api.test"}
    assert instruments.registry.get_sample_value("rest_client_requests_total", labels) == 1
