"""What a manager waits for before its controllers run: served kinds and current caches."""

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

_RETRY_KINDS: Final = 5.0
_RETRY_CATCH_UP: Final = 1.0


def wait_for_kinds(
    client: Client,
    wanted: Callable[[], Iterable[Resource[Any]]],
    *,
    report: Callable[[str], None],
    hint: str,
    stop: StopToken,
) -> None:
    """Return when the server serves every kind (OP-61, CT-18).

    Logs one warning for each set of missing kinds.

    Args:
        client: Asks the server.
        wanted: Returns the kinds; called at each try, since more may be wanted by then.
        report: Called with a description of the missing kinds.
        hint: What the user can do about it, for the log.
        stop: Ends the wait.

    Raises:
        Stopped: `stop` was set first.
    """
    warned = ""
    while problem := _missing(client, wanted()):
        report(problem)
        if problem != warned:
            _log.warning("kinds_missing", error=problem, hint=hint)
            warned = problem
        stop.wait(_RETRY_KINDS)
        stop.raise_if_set()


def catch_up(
    informers: Iterable[SharedInformer[Any]], *, timeout: float, stop: StopToken, clock: Clock
) -> None:
    """Return when each cache has everything that the server had at the time of this call.

    A new leader calls this, so that it sees the last writes of the former leader. There is no
    limit of time: acting on older state would be worse than waiting. All caches catch up at the
    same time, since each may need a second.

    Args:
        informers: Started informers.
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


def _missing(client: Client, wanted: Iterable[Resource[Any]]) -> str:
    by_name = {str(resource): resource for resource in wanted}
    try:
        missing = [name for name, resource in by_name.items() if not client.has_kind(resource)]
    except ClientError as error:
        return f"the kinds of the server cannot be listed: {error}"
    return f"the server does not serve {', '.join(missing)}" if missing else ""


def _wait(informer: SharedInformer[Any], timeout: float, stop: StopToken) -> None:
    # An informer that was removed from its factory has ended, and no controller reads it.
    while not _has_caught_up(informer, timeout, stop) and not informer.has_ended():
        stop.wait(_RETRY_CATCH_UP)
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
