"""Marks on nodes: who holds them, and what is restored."""

import json
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.operator.conftest import Make

from navarchos.operator.cache_transforms import node_transform
from navarchos.operator.marks import (
    EXCLUDE_LABEL,
    Mark,
    MarkHolder,
    MarkKind,
    holders_of,
    read_marks,
    return_patch,
    take_patch,
)
from navarchos.operator.nodes import Node

pytestmark = pytest.mark.rule("IG-28")

RECORD = "navarchos.pusher.com/detached-for"
DETACHED = Mark(MarkKind.ANNOTATION, "node-detacher.variant.run/detached", "true")
EXCLUDED = Mark(MarkKind.LABEL, EXCLUDE_LABEL, "true")
DRAIN = MarkHolder("NodeDrain", "node-3", "y")
INGRESS = MarkHolder("IngressDaemonSet", "nginx-ingress", "x", "default")
NOW = Make.now


def node(labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None) -> Node:
    metadata = {"name": "n", "uid": "u", "labels": labels or {}, "annotations": annotations or {}}
    return msgspec.convert({"metadata": metadata}, Node)


def apply(before: Node, patch: dict[str, Any] | None) -> Node:
    """Return the node after a merge patch."""
    changes = (patch or {}).get("metadata", {})
    parts = {}
    for field in ("labels", "annotations"):
        merged = {**getattr(before.metadata, field), **changes.get(field, {})}
        parts[field] = {key: value for key, value in merged.items() if value is not None}
    return node(**parts)


def test_the_record_has_the_form_that_other_programs_read() -> None:
    marked = apply(node(), take_patch(node(), [DETACHED], INGRESS, NOW))
    marked = apply(marked, take_patch(marked, [DETACHED], DRAIN, NOW + timedelta(seconds=9)))
    assert marked.metadata.annotations[RECORD] == (
        '{"annotation:node-detacher.variant.run/detached":{"holders":['
        '"IngressDaemonSet/default/nginx-ingress/x","NodeDrain//node-3/y"],'
        '"since":"2026-01-01T12:00:00Z","was":null}}'
    )
    assert holders_of(marked) == {INGRESS, DRAIN}


def test_taking_a_mark_again_changes_nothing() -> None:
    marked = apply(node(), take_patch(node(), [DETACHED, EXCLUDED], DRAIN, NOW))
    later = NOW + timedelta(seconds=5)
    assert take_patch(marked, [DETACHED, EXCLUDED], DRAIN, later) is None
    assert return_patch(marked, [INGRESS]) is None


def test_the_last_holder_restores_the_value_from_before() -> None:
    before = node({EXCLUDE_LABEL: "false"}, {DETACHED.key: "by hand"})
    marked = before
    for holder in (DRAIN, INGRESS):
        marked = apply(marked, take_patch(marked, [DETACHED, EXCLUDED], holder, NOW))
    assert marked.metadata.labels == {EXCLUDE_LABEL: "true"}
    one_left = apply(marked, return_patch(marked, [DRAIN]))
    assert one_left.metadata.labels == {EXCLUDE_LABEL: "true"}
    assert holders_of(one_left) == {INGRESS}
    assert apply(one_left, return_patch(one_left, [INGRESS])) == before


def test_a_mark_that_another_client_removed_stays_removed() -> None:
    before = node({EXCLUDE_LABEL: "false"})
    marked = apply(before, take_patch(before, [EXCLUDED], DRAIN, NOW))
    removed = apply(marked, {"metadata": {"labels": {EXCLUDE_LABEL: None}}})
    assert apply(removed, return_patch(removed, [DRAIN])) == node()


def test_a_removed_mark_that_is_set_again_has_a_new_time() -> None:
    marked = apply(node(), take_patch(node(), [EXCLUDED], DRAIN, NOW))
    removed = apply(marked, {"metadata": {"labels": {EXCLUDE_LABEL: None}}})
    later = NOW + timedelta(seconds=60)
    again = apply(removed, take_patch(removed, [EXCLUDED], DRAIN, later))
    assert read_marks(again)[EXCLUDED.id].since == later
    assert apply(again, return_patch(again, [DRAIN])) == node()


def test_an_heir_holds_the_marks_instead() -> None:
    heir = MarkHolder("Node", "n", "u")
    marked = apply(node(), take_patch(node(), [EXCLUDED], DRAIN, NOW))
    kept = apply(marked, return_patch(marked, [DRAIN], heir))
    assert holders_of(kept) == {heir}
    assert kept.metadata.labels == {EXCLUDE_LABEL: "true"}


@pytest.mark.parametrize(
    "text",
    [
        "nonsense",
        "[]",
        '{"annotation:a":{}}',
        '{"annotation:a":{"holders":["x"],"since":"2026-01-01T12:00:00","was":null}}',
        '{"annotation:a":{"holders":["x"],"since":"2026-01-01T12:00:00Z","more":1}}',
        '{"field:a":{"holders":["x"],"since":"2026-01-01T12:00:00Z"}}',
        json.dumps({"annotation:a": {"holders": ["x" * 40_000], "since": "2026-01-01T12:00:00Z"}}),
    ],
)
def test_a_record_that_cannot_be_read_counts_as_absent(text: str) -> None:
    broken = node(annotations={RECORD: text})
    assert read_marks(broken) == {}
    rebuilt = apply(broken, take_patch(broken, [EXCLUDED], DRAIN, NOW))
    assert apply(rebuilt, return_patch(rebuilt, [DRAIN])) == node()


@given(
    st.lists(st.tuples(st.booleans(), st.sampled_from("abc"), st.sampled_from([0, 1]))),
    st.sampled_from([None, "", "false", "true"]),
)
def test_a_node_is_as_before_when_every_holder_has_ended(
    moves: list[tuple[bool, str, int]], was: str | None
) -> None:
    before = node({EXCLUDE_LABEL: was} if was is not None else {}, {"example.com/x": "1"})
    marks, held, current = (EXCLUDED, DETACHED), set[tuple[str, int]](), before
    for takes, name, which in moves:
        holder = MarkHolder("NodeDrain", name, name)
        if takes:
            current = apply(current, take_patch(current, [marks[which]], holder, NOW))
            held.add((name, which))
        else:
            current = apply(current, return_patch(current, [holder]))
            held -= {(name, 0), (name, 1)}
        for number, mark in enumerate(marks):
            if any(which == number for _, which in held):
                assert mark.value_on(current) == mark.value
    everyone = [MarkHolder("NodeDrain", name, name) for name in "abc"]
    assert apply(current, return_patch(current, everyone)) == before


@pytest.mark.rule("IG-24")
def test_the_cache_keeps_the_marks_of_a_node_and_times_of_detachers() -> None:
    times = {"a.example/at": "2026-01-01T12:00:00Z", "b.example/at": "2026-01-01T12:00:00+02:00"}
    other = {"example.com/long": "2026-01-01T" + "x" * 10_000, "example.com/x": "1"}
    detaching = {"node-detacher.variant.run/detaching": "true"}
    before = node(annotations={**times, **other, **detaching})
    marked = apply(before, take_patch(before, [DETACHED], DRAIN, NOW))
    strip = node_transform()
    kept = strip(marked).metadata.annotations
    whole = {**times, **detaching, DETACHED.key: "true", "example.com/x": "1"}
    assert whole.items() <= kept.items()
    assert kept[RECORD] == marked.metadata.annotations[RECORD]
    assert kept["example.com/long"] == "2026-01-01T" + "x" * 53 + "..."
    assert not strip(before).metadata.annotations, "a node without marks costs nothing"
