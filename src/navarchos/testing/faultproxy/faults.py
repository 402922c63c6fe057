"""What can happen to a connection, and when."""

import random
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from navarchos.errors import ConfigError

__all__ = ["Direction", "Fuse", "Kind", "WireFault"]


class Kind(StrEnum):
    """What happens to a connection once a fault's point is reached."""

    CUT = "cut"
    """Both ends are closed properly."""

    RESET = "reset"
    """Both ends get a reset."""

    HALF_CLOSE = "half_close"
    """This direction is closed properly; the other one goes on."""

    STALL = "stall"
    """What follows, an end included, is held back until `heal()`."""

    DROP = "drop"
    """What follows, an end included, is lost, and nobody is told: no reset, no end."""

    DUPLICATE = "duplicate"
    """The bytes that come next, as many as arrive at once, come twice."""

    DELAY = "delay"
    """Whatever follows comes later by `seconds`, in its order, until `heal()`."""


class Direction(StrEnum):
    """Which way bytes go."""

    TO_CLIENT = "to_client"
    TO_SERVER = "to_server"


@dataclass(frozen=True, slots=True)
class WireFault:
    """One fault on one direction of one connection.

    It strikes after so many lines, and then so many bytes, have passed that way:
    counted from its arming on an open connection, from the beginning on a new one.
    With both 0 it strikes at once. In TLS there are no lines to speak of; count bytes.

    Attributes:
        kind: What happens.
        direction: Which way.
        after_lines: Newlines to let pass first.
        after_bytes: Bytes to let pass after those.
        seconds: Of a `DELAY`.
    """

    kind: Kind
    direction: Direction = Direction.TO_CLIENT
    after_lines: int = 0
    after_bytes: int = 0
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.after_lines < 0:
            raise ConfigError("after_lines", self.after_lines, "it must not be negative")
        if self.after_bytes < 0:
            raise ConfigError("after_bytes", self.after_bytes, "it must not be negative")
        if (self.kind is Kind.DELAY) != (self.seconds > 0):
            raise ConfigError("seconds", self.seconds, "only a delay has a duration")

    @classmethod
    def draw(cls, rand: random.Random, *, bytes_at_most: int, seconds_at_most: float) -> Self:
        """Return some fault, the same one for the same state of the generator.

        Args:
            rand: Seeded by the test, which prints the seed.
            bytes_at_most: Upper limit of `after_bytes`.
            seconds_at_most: Upper limit of a delay.
        """
        kind = rand.choice(list(Kind))
        return cls(
            kind,
            rand.choice(list(Direction)),
            after_bytes=rand.randint(0, bytes_at_most),
            seconds=rand.uniform(0.01, 1.0) * seconds_at_most if kind is Kind.DELAY else 0.0,
        )


@dataclass(slots=True, eq=False)
class Fuse:
    """A fault that waits for its point."""

    fault: WireFault
    lines_left: int
    bytes_left: int

    def point(self, data: bytes) -> int | None:
        """Return how many of these bytes may pass before it strikes, if it does among them."""
        passed = 0
        for _ in range(self.lines_left):
            passed = data.find(b"\n", passed) + 1
            if not passed:
                return None
        passed += self.bytes_left
        return passed if passed <= len(data) else None

    def advance(self, data: bytes) -> None:
        """Count bytes that pass."""
        while self.lines_left and data:
            _, newline, data = data.partition(b"\n")
            self.lines_left -= bool(newline)
        self.bytes_left = max(0, self.bytes_left - len(data))
