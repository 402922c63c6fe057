"""What is out of the garbage collector's reach, and for how long."""

import gc
from collections.abc import Iterator

import pytest

from navarchos.informers.gc_freeze import GcFreezer


class Holder:
    """Somebody with a filled cache."""


@pytest.fixture(autouse=True)
def nothing_frozen() -> Iterator[None]:
    gc.unfreeze()
    yield
    gc.unfreeze()


def test_what_was_frozen_is_thawed_after_the_last_holder() -> None:
    collector, one, two = GcFreezer(), Holder(), Holder()
    collector.freeze(one)
    collector.freeze(two)
    collector.unfreeze(one)
    assert gc.get_freeze_count() > 0
    collector.unfreeze(two)
    assert gc.get_freeze_count() == 0


def test_whoever_holds_nothing_thaws_nothing() -> None:
    collector, one = GcFreezer(), Holder()
    collector.freeze(one)
    collector.unfreeze(Holder())
    assert gc.get_freeze_count() > 0
    collector.unfreeze(one)
    collector.unfreeze(one)
    assert gc.get_freeze_count() == 0


def test_what_somebody_else_had_frozen_stays_so() -> None:
    gc.freeze()
    collector, one = GcFreezer(), Holder()
    collector.freeze(one)
    collector.unfreeze(one)
    assert gc.get_freeze_count() > 0


def test_a_holder_is_kept_by_nobody() -> None:
    collector, one, two = GcFreezer(), Holder(), Holder()
    collector.freeze(one)
    gc.unfreeze()
    del one
    gc.collect()
    collector.freeze(two)
    collector.unfreeze(two)
    assert gc.get_freeze_count() == 0
