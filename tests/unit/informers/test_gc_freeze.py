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


def test_objects_are_unfrozen_after_the_last_owner() -> None:
    collector, one, two = GcFreezer(), Holder(), Holder()
    collector.freeze(one)
    collector.freeze(two)
    collector.unfreeze(one)
    assert gc.get_freeze_count() > 0
    collector.unfreeze(two)
    assert gc.get_freeze_count() == 0


def test_an_owner_that_froze_nothing_unfreezes_nothing() -> None:
    collector, one = GcFreezer(), Holder()
    collector.freeze(one)
    collector.unfreeze(Holder())
    assert gc.get_freeze_count() > 0
    collector.unfreeze(one)
    collector.unfreeze(one)
    assert gc.get_freeze_count() == 0


def test_objects_that_other_code_froze_stay_frozen() -> None:
    gc.freeze()
    collector, one = GcFreezer(), Holder()
    collector.freeze(one)
    collector.unfreeze(one)
    assert gc.get_freeze_count() > 0


def test_the_freezer_does_not_keep_its_owners_alive() -> None:
    collector, one, two = GcFreezer(), Holder(), Holder()
    collector.freeze(one)
    gc.unfreeze()
    del one
    gc.collect()
    collector.freeze(two)
    collector.unfreeze(two)
    assert gc.get_freeze_count() == 0
