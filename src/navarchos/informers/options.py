"""How one kind is cached, whoever asks for it."""

from collections.abc import Callable
from typing import Final, Generic, TypeVar

import msgspec

from navarchos.errors import ConfigError
from navarchos.informers.ingest import Transform

__all__ = ["DEFAULT_RESYNC", "KindOptions", "resync_default"]

T = TypeVar("T")

DEFAULT_RESYNC: Final = 36_000.0
"""Seconds between resyncs where nobody says otherwise: ten hours, give or take (IF-09)."""

_SPREAD: Final = 0.1


class KindOptions(msgspec.Struct, Generic[T], frozen=True):
    """What differs for one kind from what its factory does for all.

    An asker's own namespace or selector takes precedence over these, and these over
    the factory's defaults (IF-10).

    Attributes:
        namespace: Only this namespace; `None` for the factory's, empty for all.
        label_selector: Only objects whose labels match.
        field_selector: Only objects whose fields match.
        resync_period: In seconds, 0 for never; `None` for the factory's.
        transform: Trims each object before it is stored; `None` for the factory's.
        streaming: Ask for a streaming list first. An ordinary one comes in two thirds
            of the time, but a server older than 1.33 has all of it in memory first.
    """

    namespace: str | None = None
    label_selector: str = ""
    field_selector: str = ""
    resync_period: float | None = None
    transform: Transform[T] | None = None
    streaming: bool = True

    def __post_init__(self) -> None:
        if self.resync_period is not None and self.resync_period < 0:
            why = "the period must be 0 (never) or more"
            raise ConfigError("resync_period", self.resync_period, why)


def resync_default(rand: Callable[[], float]) -> float:
    """Return ten hours, up to a tenth more or less, so that kinds take turns (IF-09).

    Args:
        rand: Source of jitter, in [0, 1).
    """
    return DEFAULT_RESYNC * (1 - _SPREAD + 2 * _SPREAD * rand())
