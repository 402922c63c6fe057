"""The limit per object."""

import pytest

from navarchos.events.series_tracker import SpamFilter


@pytest.mark.rule("EV-10")
def test_twenty_five_at_once_then_one_every_five_minutes() -> None:
    spam = SpamFilter()
    assert [spam.allow("a", 0.0) for _ in range(26)] == [True] * 25 + [False]
    assert not spam.allow("a", 299.0)
    assert spam.allow("a", 301.0)
    assert not spam.allow("a", 302.0)


@pytest.mark.rule("EV-10")
def test_each_object_has_a_separate_limit() -> None:
    spam = SpamFilter()
    assert all(spam.allow("a", 0.0) for _ in range(25))
    assert spam.allow("b", 0.0)


@pytest.mark.rule("EV-07")
def test_the_objects_used_longest_ago_are_forgotten() -> None:
    spam = SpamFilter()
    assert all(spam.allow("a", 0.0) for _ in range(25))
    for n in range(4096):
        spam.allow(n, 0.0)
    assert spam.allow("a", 0.0)
