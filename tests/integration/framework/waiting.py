"""Waiting for what other threads and processes do."""

import threading
from collections.abc import Callable
from typing import Any, Final

from tests.cases.waiting import wait_for

from navarchos.informers import Tombstone

__all__ = ["LIMIT", "Seen", "until"]

LIMIT: Final = 30.0
"""Seconds for what should take a moment."""


def until(holds: Callable[[], object]) -> None:
    """Return once something holds; it is looked at again and again."""
    wait_for("what the test is about", holds, LIMIT)


class Seen:
    """A handler, and a way to wait until it has heard of something."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.calls: list[tuple[str, str]] = []

    def on_add(self, obj: Any, is_in_initial_list: bool) -> None:
        self._note("initial" if is_in_initial_list else "add", obj.metadata.name)

    def on_update(self, old: Any, new: Any) -> None:
        self._note("update", new.metadata.name)

    def on_delete(self, obj: Any) -> None:
        name = obj.key if isinstance(obj, Tombstone) else obj.metadata.name
        self._note("gone" if isinstance(obj, Tombstone) else "delete", name)

    def names(self, what: str) -> list[str]:
        """Return the matching events, in order."""
        with self._changed:
            return [name for call, name in self.calls if call == what]

    def _note(self, what: str, name: str) -> None:
        with self._changed:
            self.calls.append((what, name))
            self._changed.notify_all()

    def wait(self, *calls: tuple[str, str]) -> None:
        with self._changed:
            there = self._changed.wait_for(lambda: set(calls) <= set(self.calls), LIMIT)
        assert there, f"missing {set(calls) - set(self.calls)} of {self.calls}"
