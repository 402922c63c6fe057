import pytest
from tests.unit.runtime.conftest import Thing, make_thing

from navarchos.runtime import (
    Predicate,
    all_of,
    annotations_changed,
    any_of,
    changed,
    generation_changed,
    labels_changed,
    not_,
    resource_version_changed,
    when,
)

OLD = make_thing("a", version="1")


@pytest.mark.rule("CT-24")
@pytest.mark.parametrize(
    ("predicate", "new"),
    [
        (resource_version_changed, make_thing("a", version="2")),
        (generation_changed, make_thing("a", generation=2)),
        (labels_changed, make_thing("a", labels={"x": "y"})),
        (annotations_changed, make_thing("a", annotations={"x": "y"})),
        (changed(lambda thing: thing.spec.size), make_thing("a", size=7)),
    ],
)
def test_a_change_predicate_passes_updates_of_its_part_only(
    predicate: Predicate[Thing], new: Thing
) -> None:
    assert predicate.update(OLD, new)
    assert not predicate.update(OLD, OLD)  # RT-28: resyncs are dropped, too
    assert predicate.create(OLD)
    assert predicate.delete(OLD, state_unknown=False)


@pytest.mark.rule("CT-24")
def test_undecoded_objects_are_compared_as_well() -> None:
    old = {"metadata": {"name": "a", "labels": {"x": "1"}, "generation": 1}}
    new = {"metadata": {"name": "a", "labels": {"x": "2"}, "generation": 1}}
    assert labels_changed.update(old, new)
    assert not generation_changed.update(old, new)


@pytest.mark.rule("CT-24")
def test_a_function_is_asked_about_the_new_object() -> None:
    big: Predicate[Thing] = when(lambda thing: thing.spec.size > 5)
    assert big.update(OLD, make_thing("a", size=7))
    assert not big.update(make_thing("a", size=7), OLD)
    assert not big.create(OLD)
    assert not big.delete(OLD, state_unknown=False)


class Asked:
    """A predicate that says the same to everything, and counts how often."""

    def __init__(self, answer: bool) -> None:
        self.answer = answer
        self.count = 0

    def create(self, obj: object) -> bool:
        self.count += 1
        return self.answer

    def update(self, old: object, new: object) -> bool:
        return self.create(new)

    def delete(self, obj: object, *, state_unknown: bool) -> bool:
        return self.create(obj)


def answers(predicate: Predicate[Thing]) -> set[bool]:
    return {
        predicate.create(OLD),
        predicate.update(OLD, OLD),
        predicate.delete(OLD, state_unknown=False),
    }


@pytest.mark.rule("CT-24")
def test_combinations_stop_at_the_first_decisive_predicate() -> None:
    yes, no, never = Asked(True), Asked(False), Asked(True)
    assert answers(all_of(yes, no, never)) == {False}
    assert answers(any_of(no, yes, never)) == {True}
    assert answers(all_of(yes, yes)) == {True}
    assert answers(any_of(no, no)) == {False}
    assert answers(not_(yes)) == {False}
    assert answers(not_(no)) == {True}
    assert never.count == 0


def test_no_predicates_pass_everything() -> None:
    assert answers(all_of()) == {True}
