"""The settings of informers: of one informer, of one kind, and of a factory."""

from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar

import msgspec

from navarchos.backoff import Backoff
from navarchos.client.resource import Resource
from navarchos.clock import uniform
from navarchos.errors import ConfigError
from navarchos.informers.indexes import IndexFunction

__all__ = [
    "DEFAULT_RESYNC",
    "IDLE_TIMEOUT",
    "REFLECTOR_BACKOFF",
    "FactoryOptions",
    "HandlerOptions",
    "InformerOptions",
    "KindOptions",
    "Transform",
    "WatchErrorHandler",
    "resync_default",
]

T = TypeVar("T")

DEFAULT_RESYNC: Final = 36_000.0
"""Default seconds between resyncs: ten hours, up to a tenth more or less (IF-09)."""

IDLE_TIMEOUT: Final = 75.0
"""Seconds of silence after which a watch counts as dead: a bookmark a minute, and a margin."""

REFLECTOR_BACKOFF: Final = Backoff(base=0.8, factor=2.0, cap=30.0, jitter=1.0, reset_after=120.0)
"""The pause after a failure (RF-02)."""

Transform = Callable[[T], T]
"""Trims an object before it is stored; keeps name, namespace, uid and resourceVersion.

If it raises, or returns an object with another name or without one, the object is skipped."""

WatchErrorHandler = Callable[[Exception], object]
"""Is called with the error that ended a list or a watch. Must be quick and must not raise."""

_SPREAD: Final = 0.1
_PERIOD: Final = "a resync period must be 0 (never) or more"


class InformerOptions(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """The settings of one informer.

    Attributes:
        name: For logs and threads; kind and scope by default.
        resync_period: Seconds between replays of the cache to handlers; 0 for never.
            Handlers may ask for another period.
        transform: Trims each object before it is stored.
        indexers: Index functions by name, besides the index `namespace`.
        streaming: Whether to ask for a streaming list first. An ordinary list follows if
            the server does not support it.
        page_size: Objects per page of ordinary lists; `None` for the default.
        idle_timeout: Seconds of silence after which a watch counts as dead, on a server
            that has sent a bookmark before; `None` for no limit.
        backoff: The pause after a failure.
        tolerate_internal_errors: Seconds for which internal errors in a watch lead to
            another watch instead of a list; 0 for never.
        on_watch_error: Called with the error of a list or a watch, instead of the log.
        on_failure: Called with the error that crashed one of the informer's threads, which
            ends the informer. Runs on that thread: must be quick and must not raise.
        rand: Source of jitter, in [0, 1).
    """

    name: str = ""
    resync_period: float = 0.0
    transform: Transform[T] | None = None
    indexers: Mapping[str, IndexFunction[T]] | None = None
    streaming: bool = True
    page_size: int | None = None
    idle_timeout: float | None = IDLE_TIMEOUT
    backoff: Backoff = REFLECTOR_BACKOFF
    tolerate_internal_errors: float = 0.0
    on_watch_error: WatchErrorHandler | None = None
    on_failure: Callable[[BaseException], object] | None = None
    rand: Callable[[], float] = uniform

    def __post_init__(self) -> None:
        if self.resync_period < 0:
            raise ConfigError("resync_period", self.resync_period, _PERIOD)


class HandlerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one handler.

    Attributes:
        name: For logs and metrics; by default the name of the code that is called.
        resync_period: Seconds between replays, 0 for never, `None` for the informer's
            period. At least 1; after the start at least the informer's (SI-16, SI-17).
        skip_unchanged: Whether to leave out updates in which only the resourceVersion
            differs. A resync is not such an update.
    """

    name: str = ""
    resync_period: float | None = None
    skip_unchanged: bool = False


class KindOptions(msgspec.Struct, Generic[T], frozen=True):
    """How the caches of one kind differ from other caches of a factory.

    A namespace or a selector in a request for an informer takes precedence over these
    settings, and these settings over the settings of the factory (IF-10).

    Attributes:
        namespace: Only this namespace; `None` for the factory's, empty for all.
        label_selector: Only objects whose labels match.
        field_selector: Only objects whose fields match.
        resync_period: Seconds between replays, 0 for never; `None` for the factory's.
        transform: Trims each object before it is stored; `None` for the factory's.
        streaming: Whether to ask for a streaming list first. An ordinary list takes two
            thirds of the time, but a server older than 1.33 first builds it in memory.
    """

    namespace: str | None = None
    label_selector: str = ""
    field_selector: str = ""
    resync_period: float | None = None
    transform: Transform[T] | None = None
    streaming: bool = True

    def __post_init__(self) -> None:
        if self.resync_period is not None and self.resync_period < 0:
            raise ConfigError("resync_period", self.resync_period, _PERIOD)


class FactoryOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of an informer factory.

    Attributes:
        namespace: Only this namespace, for namespaced kinds, unless a request for an
            informer names another one; empty for all.
        resync_period: Of each informer, in seconds; 0 for never; `None` for ten hours, up
            to a tenth more or less, drawn for each informer (IF-09).
        transform: Trims each object of each kind before it is stored.
        kinds: Settings for single kinds, each with its projection.
        freeze: Whether to move the filled caches out of the garbage collector's reach, so
            that it does not walk them again and again. They come back when the last factory
            that did so is shut down.
        on_failure: As `InformerOptions.on_failure`, for each informer.
        rand: Source of jitter, in [0, 1).
    """

    namespace: str = ""
    resync_period: float | None = 0.0
    transform: Transform[Any] | None = None
    kinds: Mapping[Resource[Any], KindOptions[Any]] = {}
    freeze: bool = True
    on_failure: Callable[[BaseException], object] | None = None
    rand: Callable[[], float] = uniform

    def of_kind(self, resource: Resource[Any]) -> KindOptions[Any]:
        """Return the settings of a kind, with the factory's values filled in.

        A `resync_period` of `None` is left for the informer to draw.
        """
        kind = self.kinds.get(resource, _NO_OPTIONS)
        namespace = self.namespace if resource.namespaced else ""
        return msgspec.structs.replace(
            kind,
            namespace=namespace if kind.namespace is None else kind.namespace,
            resync_period=(
                self.resync_period if kind.resync_period is None else kind.resync_period
            ),
            transform=kind.transform or self.transform,
        )


_NO_OPTIONS: Final = KindOptions[Any]()


def resync_default(rand: Callable[[], float]) -> float:
    """Return ten hours, up to a tenth more or less, so that kinds resync in turn (IF-09).

    Args:
        rand: Source of jitter, in [0, 1).
    """
    return DEFAULT_RESYNC * (1 - _SPREAD + 2 * _SPREAD * rand())
