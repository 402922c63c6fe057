"""What a manager waits for before its controllers run: kinds, permissions, current caches."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import Any, Final, assert_never

from navarchos.client import (
    Client,
    ClientError,
    Forbidden,
    ListOptions,
    NotFound,
    Resource,
    WatchOptions,
)
from navarchos.clock import Clock
from navarchos.informers import CacheError, SharedInformer
from navarchos.instrument import Instruments
from navarchos.logs import get_logger
from navarchos.stopping import StopToken
from navarchos.threads import ThreadGroup

__all__ = ["Feature", "Needs", "catch_up", "wait_for_kinds"]

_log = get_logger(__name__)

_RETRY: Final = 5.0
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
    while problem := _problem(client, wanted()):
        report(problem)
        if problem != warned:
            _log.warning("kinds_missing", error=problem, hint=hint)
            warned = problem
        stop.wait(_RETRY)
        stop.raise_if_set()


@dataclass(frozen=True, slots=True)
class Needs:
    """What a feature needs before it can start.

    Attributes:
        kinds: The kinds that the server must serve.
        reads: The kinds that informers of the feature list and watch, by namespace; the key ""
            means all namespaces.
        kinds_hint: What the user can do while kinds are missing, for the log.
        reads_hint: What the user can do while permissions are missing, for the log.
    """

    kinds: Sequence[Resource[Any]]
    reads: Mapping[str, Sequence[Resource[Any]]]
    kinds_hint: str
    reads_hint: str


class _Cause(Enum):
    """Why a feature cannot start."""

    KINDS_MISSING = auto()
    KINDS_UNKNOWN = auto()
    PERMISSIONS_MISSING = auto()
    PERMISSIONS_UNKNOWN = auto()

    @property
    def is_known(self) -> bool:
        """Whether the server has answered."""
        return self in {_Cause.KINDS_MISSING, _Cause.PERMISSIONS_MISSING}


@dataclass(frozen=True, slots=True)
class _Problem:
    cause: _Cause
    text: str


class Feature:
    """A part of a manager that starts when it has its kinds and permissions (MG-21).

    Threads: safe from any thread.

    Args:
        name: For log lines; the name of a check of `/readyz`.
        needs: What it waits for.
        add: Adds informers and runnables to the manager. Called once.
        instruments: Where the metric goes.
    """

    def __init__(
        self, name: str, needs: Needs, add: Callable[[], None], instruments: Instruments
    ) -> None:
        self.name: Final = name
        self.add: Final = add
        self._needs = needs
        self._ready = instruments.gauge(
            "navarchos_feature_ready",
            "1 if this part of the manager runs, 0 while it waits for its kinds, permissions or "
            "caches",
            ("feature",),
        ).labels(name)
        self._problem_lock = threading.Lock()
        self._problem = "the manager has not started"  # guarded by _problem_lock

    def can_start(self, client: Client, stop: StopToken) -> bool:
        """Return whether kinds and permissions exist; wait for a server that does not answer.

        Raises:
            Stopped: `stop` was set first.
        """
        # An unknown answer is not the same as missing: objects of these kinds may exist.
        problem = self._wait_while(client, lambda problem: not problem.cause.is_known, stop)
        if problem is not None:
            self.report(problem.text)
        return problem is None

    def wait(self, client: Client, stop: StopToken) -> None:
        """Return when kinds and permissions exist; log one warning for each problem.

        Raises:
            Stopped: `stop` was set first.
        """
        self._wait_while(client, lambda _: True, stop)

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

    def _wait_while(
        self, client: Client, waits: Callable[[_Problem], bool], stop: StopToken
    ) -> _Problem | None:
        """Report problems until there is none, or one for which there is no wait; return it."""
        warned: _Problem | None = None
        while (problem := self._find_problem(client, stop)) is not None and waits(problem):
            self.report(problem.text)
            if problem != warned:
                self._warn(problem)
                warned = problem
            stop.wait(_RETRY)
            stop.raise_if_set()
        return problem

    def _warn(self, problem: _Problem) -> None:
        name, error, needs = self.name, problem.text, self._needs
        match problem.cause:
            case _Cause.KINDS_MISSING:
                _log.warning("kinds_missing", feature=name, error=error, hint=needs.kinds_hint)
            case _Cause.KINDS_UNKNOWN:
                _log.warning("kinds_unknown", feature=name, error=error)
            case _Cause.PERMISSIONS_MISSING:
                hint = needs.reads_hint
                _log.warning("permissions_missing", feature=name, error=error, hint=hint)
            case _Cause.PERMISSIONS_UNKNOWN:
                _log.warning("permissions_unknown", feature=name, error=error)
            case _:
                assert_never(problem.cause)

    def _find_problem(self, client: Client, stop: StopToken) -> _Problem | None:
        needs = self._needs
        try:
            if missing := _missing(client, needs.kinds):
                return _Problem(_Cause.KINDS_MISSING, _not_served(missing))
        except ClientError as error:
            return _Problem(_Cause.KINDS_UNKNOWN, _unknown(error))
        try:
            refused = "; ".join(_refused(client, needs.reads, stop))  # mutant: reads-not-tried
        except ClientError as error:
            text = f"the permissions cannot be checked: {error}"
            return _Problem(_Cause.PERMISSIONS_UNKNOWN, text)
        return _Problem(_Cause.PERMISSIONS_MISSING, refused) if refused else None


def _refused(
    client: Client, reads: Mapping[str, Sequence[Resource[Any]]], stop: StopToken
) -> Iterator[str]:
    """Yield which kinds this process may not read, by the requests of an informer.

    A review of permissions would not know whether an informer gets an answer: the requests do.
    """
    for namespace, kinds in reads.items():
        for resource in kinds:
            api, where = client.resource(resource), f" in namespace {namespace}" * bool(namespace)
            try:
                page = api.list_page(namespace, ListOptions(limit=1), stop=stop)
                options = WatchOptions(resource_version=page.resource_version, timeout_seconds=1)
                api.watch(namespace, options, stop=stop).close()
            except Forbidden as error:
                yield f"the manager may not list and watch {resource}{where}: {error.message}"
            except NotFound:
                continue  # not one of the feature's own kinds; an informer waits until it is served


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
    return _not_served(missing) if missing else ""


def _not_served(missing: Sequence[str]) -> str:
    return f"the server does not serve {', '.join(missing)}"


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
