"""What a manager waits for before its controllers run: kinds and caches."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from navarchos.client import Client, ClientError, Resource
from navarchos.clock import Clock
from navarchos.informers import SharedInformer
from navarchos.logs import get_logger
from navarchos.stopping import StopToken
from navarchos.threads import ThreadGroup

__all__ = ["catch_up", "wait_for_kinds"]

_log = get_logger(__name__)

_PAUSE: Final = 1.0


def catch_up(
    informers: Iterable[SharedInformer[Any]], *, timeout: float, stop: StopToken, clock: Clock
) -> None:
    """Return when each cache has all that the server had when this was called.

    However long it takes, since to act on older state would be worse: what the former
    leader wrote last would be missing. All caches at once, as each may need a second.

    Args:
        informers: They have been started.
        timeout: Seconds after which a try is logged, and repeated.
        stop: Ends the wait.
        clock: Time and waiting.

    Raises:
        Stopped: `stop` was set first.
    """
    threads = ThreadGroup("catch-up", stop=stop.child(), clock=clock)
    for informer in informers:
        threads.start(informer.name, partial(_wait, informer, timeout, stop))
    threads.join()
    threads.raise_failure()
    stop.raise_if_set()


def _wait(informer: SharedInformer[Any], timeout: float, stop: StopToken) -> None:
    # One that was removed from its factory follows the server no more, and nobody asks it.
    while not _has_caught_up(informer, timeout, stop) and not informer.has_ended():
        stop.wait(_PAUSE)
        stop.raise_if_set()


def _has_caught_up(informer: SharedInformer[Any], timeout: float, stop: StopToken) -> bool:
    try:
        caught_up = informer.catch_up(timeout, stop)
    except ClientError as error:
        _log.warning("catch_up_failed", informer=informer.name, error=str(error))
        return False
    if not caught_up and not stop.is_set():
        _log.warning("catch_up_late", informer=informer.name, seconds=timeout)
    return caught_up


_RETRY: Final = 5.0


def wait_for_kinds(
    client: Client,
    wanted: Callable[[], Iterable[Resource[Any]]],
    *,
    tell: Callable[[str], None],
    hint: str,
    stop: StopToken,
) -> None:
    """Return when the server serves every kind. One warning per set of missing ones.

    Args:
        client: Asks the server.
        wanted: Returns the kinds; asked each time, since more may be wanted by then.
        tell: Called with what is waited for.
        hint: What a person can do, for the log.
        stop: Ends the wait.

    Raises:
        Stopped: `stop` was set first.
    """
    warned = ""
    while waiting_for := _missing(client, wanted()):
        tell(waiting_for)
        if waiting_for != warned:
            _log.warning("waiting_for_kinds", why=waiting_for, hint=hint)
            warned = waiting_for
        stop.wait(_RETRY)
        stop.raise_if_set()


def _missing(client: Client, wanted: Iterable[Resource[Any]]) -> str:
    by_name = {str(resource): resource for resource in wanted}
    try:
        missing = [name for name, resource in by_name.items() if not client.has_kind(resource)]
    except ClientError as error:
        return f"the server does not say which kinds it knows: {error}"
    return f"the server does not know {', '.join(missing)}" if missing else ""
