"""Collections that the cases of a module share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.contract.exchanges import Http

__all__ = ["FUTURE", "Shared"]

FUTURE = "999999999999"
"""A version that no server has reached."""


@dataclass
class Shared:
    """Three objects a, b and c of one kind, for cases that read them.

    A fixture calls `renew` after a case that changes them.

    Attributes:
        path: The path of the collection.
        version: A version at which all three existed.
    """

    http: Http
    path: str
    body: Callable[[str], dict[str, Any]]
    version: str = ""

    def fill(self) -> None:
        """Create the three objects, and wait until the server's cache has them."""
        with self.http.unrecorded():
            for name in "abc":
                self.http.create(self.path, self.body(name))
            self.http.wait_for_cache(self.path, "c")
            self.version = self.http("GET", self.path).body["metadata"]["resourceVersion"]

    def clear(self) -> None:
        """Delete the objects."""
        with self.http.unrecorded():
            assert self.http("DELETE", self.path).code == 200

    def renew(self) -> None:
        """Create the objects again."""
        self.clear()
        self.fill()

    def version_as(self, which: str) -> str | None:
        """Return a version by its name."""
        known = {"any": "0", "known": self.version, "future": FUTURE, "malformed": "abc"}
        return known.get(which)
