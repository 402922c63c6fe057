"""What a manager waits for before its controllers run: served kinds and current caches."""

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

from navarchos.client import Client, ClientError, Resource
from navarchos.clock import Clock
from navarchos.informers import CacheError, SharedInformer
from navarchos.instrument import Instruments
from navarchos.logs import get_logger
from navarchos.stopping import StopToken
from navarchos.threads import ThreadGroup

__all__ = ["Feature", "catch_up", "wait_for_kinds"]

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
    **fields: str,
) -> None:
    """Return when the server serves every kind (OP-61, CT-18).

    Logs one warning for each set of missing kinds.

    Args:
        client: Asks the server.
        wanted: Returns the kinds; called at each try, since more may be wanted by then.
        report: Called with a description of the missing kinds.
        hint: What the user can do about it, for the log.
        stop: Ends the wait.
        fields: More fields of the log line.

    Raises:
        Stopped: `stop` was set first.
    """
    warned = ""
    while problem := _problem(client, wanted()):
        report(problem)
        if problem != warned:
            _log.warning("kinds_missing", error=problem, hint=hint, **fields)
            warned = problem
        stop.wait(_RETRY_KINDS)
        stop.raise_if_set()


class Feature:
    """A part of a manager that starts when the server serves its kinds (MG-21).

    Threads: safe from any thread.

    Args:
        name: For log lines; the name of a check of `/readyz`.
        kinds: The kinds that must be served.
        add: Adds informers and runnables to the manager. Called once.
        hint: What the user can do while kinds are missing, for the log.
        instruments: Where the metric goes.
    """

    def __init__(
        self,
        name: str,
        kinds: Sequence[Resource[Any]],
        add: Callable[[], None],
        hint: str,
        instruments: Instruments,
    ) -> None:
        self.name: Final = name
        self.add: Final = add
        self._kinds = tuple(kinds)
        self._hint = hint
        self._ready = instruments.gauge(
            "navarchos_feature_ready",
            "1 if this part of the manager runs, 0 while it waits for its kinds or caches",
            ("feature",),
        ).labels(name)
        self._problem_lock = threading.Lock()
        self._problem = "the manager has not started"  # guarded by _problem_lock

    def is_served(self, client: Client, stop: StopToken) -> bool:
        """Return whether the server serves the kinds; wait for a server that does not answer.

        Raises:
            Stopped: `stop` was set first.
        """
        warned = ""
        while True:
            try:
                return not _missing(client, self._kinds)
            except ClientError as error:
                # Not the same as missing: objects of these kinds may exist.
                problem = _unknown(error)
            self.report(problem)
            if problem != warned:
                _log.warning("kinds_unknown", feature=self.name, error=problem)
                warned = problem
            stop.wait(_RETRY_KINDS)
            stop.raise_if_set()

    def wait(self, client: Client, stop: StopToken) -> None:
        """Return when the server serves the kinds; log one warning.

        Raises:
            Stopped: `stop` was set first.
        """
        wait_for_kinds(
            client,
            lambda: self._kinds,
            report=self.report,
            hint=self._hint,
            stop=stop,
            feature=self.name,
        )

    def report(self, problem: str) -> None:
        """Set why the feature is not ready; an empty text means that it is ready."""
        with self._problem_lock:
            self._problem = problem
            self._ready.set(not problem)

    def check(self) -> None:
        """Raise `CacheError` while the feature is not ready."""
        with self._problem_lock:
            problem = self._problem
        if problem:
            raise CacheError(problem)


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


def _problem(client: Client, wanted: Iterable[Resource[Any]]) -> str:
    try:
        missing = _missing(client, wanted)
    except ClientError as error:
        return _unknown(error)
    return f"the server does not serve {', '.join(missing)}" if missing else ""


def _missing(client: Client, wanted: Iterable[Resource[Any]]) -> list[str]:
    by_name = {str(resource): resource for resource in wanted}
    return [name for name, resource in by_name.items() if not client.has_kind(resource)]


def _unknown(error: ClientError) -> str:
    return f"the kinds of the server cannot be listed: {error}"


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
