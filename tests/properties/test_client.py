"""Properties of merge patches, of selectors, and of streams that are split anywhere."""

import itertools
import string
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.seeds import runs

from navarchos.client import Operator, Requirement, Selector, merge_apply, merge_diff
from navarchos.client.http.body_reader import ChunkDecoder
from navarchos.client.watching import LineSplitter

names = st.text(string.ascii_lowercase, min_size=1, max_size=3)
leaves = st.booleans() | st.integers(-5, 5) | st.text("ab", max_size=2)


def _deeper(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4)


json_values = st.recursive(leaves, _deeper, max_leaves=12)
json_objects = st.dictionaries(names, json_values, max_size=5)

values = st.text(string.ascii_letters + string.digits, max_size=3)
keys = st.sampled_from(["a", "b", "example.com/c", "in", "notin"])
requirements = st.one_of(
    st.builds(
        Requirement,
        keys,
        st.sampled_from([Operator.IN, Operator.NOT_IN]),
        st.lists(values, min_size=1, max_size=3).map(tuple),
    ),
    st.builds(Requirement, keys, st.sampled_from([Operator.EXISTS, Operator.DOES_NOT_EXIST])),
    st.builds(
        Requirement,
        keys,
        st.sampled_from([Operator.GREATER_THAN, Operator.LESS_THAN]),
        st.integers(-9, 9).map(lambda n: (str(n),)).filter(lambda v: not v[0].startswith("-")),
    ),
)


@given(json_objects, json_objects)
@settings(max_examples=runs(100))
def test_a_difference_applied_to_the_old_object_gives_the_new_one(
    before: dict[str, object], after: dict[str, object]
) -> None:
    applied = merge_apply(before, merge_diff(before, after))
    assert repr(_sorted(applied)) == repr(_sorted(after))


@given(json_objects)
@settings(max_examples=runs(100))
def test_no_difference_is_an_empty_patch(obj: dict[str, object]) -> None:
    assert merge_diff(obj, obj) == {}
    assert merge_apply(obj, {}) == obj


@given(
    st.lists(requirements, max_size=4).map(lambda found: Selector(tuple(found))),
    st.dictionaries(keys, values, max_size=3),
)
@settings(max_examples=runs(100))
def test_a_selector_means_the_same_after_it_was_written_and_read(
    selector: Selector, labels: dict[str, str]
) -> None:
    reread = Selector.parse(str(selector))
    assert reread == selector
    assert reread.matches(labels) is selector.matches(labels)


@given(st.lists(st.binary(max_size=9), max_size=12))
@settings(max_examples=runs(100))
def test_a_stream_in_any_pieces_has_the_lines_of_the_whole(chunks: list[bytes]) -> None:
    splitter = LineSplitter()
    found = [line for chunk in chunks for line in splitter.feed(chunk)]
    *lines, rest = b"".join(chunks).split(b"\n")
    assert found == [line.strip() for line in lines if line.strip()]
    assert splitter.rest() == rest.strip()


@given(
    st.lists(st.binary(min_size=1, max_size=20), max_size=6),
    st.sampled_from([b"", b";name=value", b" "]),
    st.sampled_from([b"", b"Trailer: 1\r\n"]),
    st.lists(st.integers(1, 30), min_size=1, max_size=40),
)
@settings(max_examples=runs(200))
def test_a_chunked_body_has_the_same_content_wherever_it_is_cut(
    chunks: list[bytes], extension: bytes, trailer: bytes, cuts: list[int]
) -> None:
    coded = b"".join(b"%X%s\r\n%s\r\n" % (len(one), extension, one) for one in chunks)
    left = bytearray(coded + b"0\r\n" + trailer + b"\r\n" + b"of another body")
    decoder, found, sizes = ChunkDecoder(), b"", itertools.cycle(cuts)
    while not decoder.ended:
        size = min(next(sizes), len(left))
        found += decoder.feed(left, size)
        del left[:size]
    assert found == b"".join(chunks)


def _sorted(value: object) -> object:
    if isinstance(value, dict):
        return {name: _sorted(value[name]) for name in sorted(value)}
    if isinstance(value, list):
        return [_sorted(item) for item in value]
    return value
