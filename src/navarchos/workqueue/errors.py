"""The errors of queues."""

from navarchos.errors import NavarchosError

__all__ = ["QueueTimeout", "unhashable"]


class QueueTimeout(NavarchosError):
    """No key became ready in time. The queue is unchanged.

    Attributes:
        queue: The queue's name.
        timeout: The timeout in seconds.
    """

    def __init__(self, queue: str, timeout: float) -> None:
        super().__init__(queue, timeout)
        self.queue = queue
        self.timeout = timeout

    def __str__(self) -> str:
        return f"queue {self.queue or '(unnamed)'} had no key ready within {self.timeout:g} s"


def unhashable(key: object) -> TypeError:
    """Return the error for a key that is not hashable (WQ-09)."""
    return TypeError(
        f"a queue key must be hashable, but {type(key).__name__} is not: "
        f"use a tuple of names instead of {key!r:.80}"
    )
