"""Network faults, and the points of a connection at which they strike."""

import random
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from navarchos.errors import ConfigError

__all__ = ["Direction", "TriggerPoint", "WireFault", "WireFaultKind"]


class WireFaultKind(StrEnum):
    """The effect of a fault on a connection."""

    CUT = "cut"
    """Both ends are closed in order (FIN)."""

    RESET = "reset"
    """Both ends receive a reset (RST)."""

    HALF_CLOSE = "half_close"
    """This direction is closed in order; the other direction stays open."""

    STALL = "stall"
    """All further bytes and the end of this direction are held until `heal()`."""

    DROP = "drop"
    """All further bytes and the end of this direction are lost without a reset or close."""

    DUPLICATE = "duplicate"
    """The next bytes are sent twice, as many as arrive in one read."""

    DELAY = "delay"
    """All further bytes are sent `seconds` later, in order, until `heal()`."""


class Direction(StrEnum):
    """The direction of bytes in a connection."""

    TO_CLIENT = "to_client"
    TO_SERVER = "to_server"


@dataclass(frozen=True, slots=True)
class WireFault:
    """One fault on one direction of one connection.

    The fault strikes after `after_lines` lines and then `after_bytes` bytes have passed in
    that direction. On an open connection they are counted from the moment the fault is
    armed, on a new connection from its beginning. With both 0 the fault strikes
    immediately. TLS has no lines: count bytes only.

    Attributes:
        kind: The effect.
        direction: The direction.
        after_lines: Number of newlines that pass first.
        after_bytes: Number of bytes that pass after those lines.
        seconds: The delay of a `DELAY`.
    """

    kind: WireFaultKind
    direction: Direction = Direction.TO_CLIENT
    after_lines: int = 0
    after_bytes: int = 0
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.after_lines < 0:
            raise ConfigError("after_lines", self.after_lines, "it must not be negative")
        if self.after_bytes < 0:
            raise ConfigError("after_bytes", self.after_bytes, "it must not be negative")
        if (self.kind is WireFaultKind.DELAY) != (self.seconds > 0):
            rule = "it must be positive for a delay, and 0 for other faults"
            raise ConfigError("seconds", self.seconds, rule)

    @classmethod
    def draw(cls, rand: random.Random, *, bytes_at_most: int, seconds_at_most: float) -> Self:
        """Return a random fault that depends on the generator's state only.

        Args:
            rand: A generator that the test has seeded; the test prints the seed.
            bytes_at_most: The maximum of `after_bytes`.
            seconds_at_most: The maximum of a delay.
        """
        kind = rand.choice(list(WireFaultKind))
        return cls(
            kind,
            rand.choice(list(Direction)),
            after_bytes=rand.randint(0, bytes_at_most),
            seconds=rand.uniform(0.01, 1.0) * seconds_at_most
            if kind is WireFaultKind.DELAY
            else 0.0,
        )


@dataclass(slots=True, eq=False)
class TriggerPoint:
    """An armed fault with the lines and bytes that must still pass."""

    fault: WireFault
    lines_left: int
    bytes_left: int

    def point(self, data: bytes) -> int | None:
        """Return how many of these bytes pass before the fault strikes; `None` if it does not."""
        passed = 0
        for _ in range(self.lines_left):
            passed = data.find(b"\n", passed) + 1
            if not passed:
                return None
        passed += self.bytes_left
        return passed if passed <= len(data) else None

    def advance(self, data: bytes) -> None:
        """Count passed bytes."""
        while self.lines_left and data:
            _, newline, data = data.partition(b"\n")
            self.lines_left -= bool(newline)
        self.bytes_left = max(0, self.bytes_left - len(data))
