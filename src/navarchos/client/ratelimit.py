"""A client's own limit on its requests."""

from typing import Protocol

__all__ = ["NoLimit", "RequestLimit"]


class RequestLimit(Protocol):
    """Says how long a request has to wait. Safe from any thread."""

    def reserve(self, longest: float | None) -> float | None:
        """Take the next place.

        Args:
            longest: The longest wait in seconds that makes sense; `None` for any.

        Returns:
            Seconds to wait before sending; `None` if that would be longer than
            `longest`, and then no place is taken.
        """
        ...


class NoLimit:
    """Lets every request go at once."""

    def reserve(self, longest: float | None) -> float | None:
        """Return 0."""
        return 0.0
