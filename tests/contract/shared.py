"""Collections that the cases of a module share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.contract.exchanges import Http

__all__ = ["FUTURE", "Shared"]

FUTURE = "999999999999"
"""A version that no server has come to."""


@dataclass
class Shared:
    """Three objects a, b and c of one kind, for cases that look at them.

    A case that changes them has `renew` called at its end.

    Attributes:
        path: The collection's.
        version: One at which all three were there as they are.
    """

    http: Http
    path: str
    body: Callable[[str], dict[str, Any]]
    version: str = ""

    def fill(self) -> None:
        """Make the three, and let the server's cache have them."""
        with self.http.unrecorded():
            for name in "abc":
                self.http.create(self.path, self.body(name))
            self.http.wait_for_cache(self.path, "c")
            self.version = self.http("GET", self.path).body["metadata"]["resourceVersion"]

    def clear(self) -> None:
        """Remove what is there."""
        with self.http.unrecorded():
            assert self.http("DELETE", self.path).code == 200

    def renew(self) -> None:
        """Have the three again as they were made."""
        self.clear()
        self.fill()

    def version_as(self, which: str) -> str | None:
        """Say a version by what it is."""
        known = {"any": "0", "known": self.version, "future": FUTURE, "malformed": "abc"}
        return known.get(which)
