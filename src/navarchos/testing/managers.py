"""A manager at work, for the length of a test."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final, Protocol

from navarchos.client import Client, ClientConfig
from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.errors import NavarchosError
from navarchos.runtime import Manager, ManagerOptions
from navarchos.stopping import StopToken
from navarchos.threads import ThreadGroup

__all__ = ["SHORT_LIVED", "ManagerStuck", "SetUp", "StartManager", "running_manager"]

SHORT_LIVED: Final = ManagerOptions(freeze_caches=False)
"""The options of a manager that lives as long as a test."""

_LIMIT: Final = 30.0

SetUp = Callable[[Manager], object]
"""Adds controllers and runnables to a manager that has not started."""


class StartManager(Protocol):
    """What the fixture `manager` is: starts a manager that stops with the test."""

    def __call__(
        self,
        set_up: SetUp,
        *,
        config: ClientConfig | None = None,
        options: ManagerOptions | None = None,
    ) -> Manager:
        """Start one; see `running_manager`. Without a config it works on `api_server`."""
        ...


class ManagerStuck(NavarchosError):
    """A manager that does not begin, or does not end.

    Attributes:
        what: What it did not do.
        seconds: How long it was waited for.
    """

    def __init__(self, what: str, seconds: float) -> None:
        super().__init__(what, seconds)
        self.what = what
        self.seconds = seconds

    def __str__(self) -> str:
        return f"the manager has not {self.what} after {self.seconds:g} s"


@contextmanager
def running_manager(
    set_up: SetUp,
    config: ClientConfig | Client,
    *,
    options: ManagerOptions | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Iterator[Manager]:
    """Run a manager in a thread for the length of a `with` block.

    Promises: inside, its caches are filled and its controllers run, unless they wait to
    be elected; afterwards it has stopped in order, and so has its client. What made it
    fail is raised at the end of the block, or at its beginning.

    Args:
        set_up: Adds what it runs.
        config: The server; or a client, which stays its maker's, to be closed afterwards.
        options: Of the manager; `SHORT_LIVED` without.
        clock: Of the manager and its client. The limits of half a minute for its begin
            and its end are real time.

    Raises:
        ManagerStuck: It did not begin, or end, in time.
    """
    stop = StopToken(clock=clock)
    threads = ThreadGroup("test", stop=stop)
    with _client(config, clock) as client:
        manager = Manager(client, options=options or SHORT_LIVED, clock=clock)
        set_up(manager)
        failures: list[BaseException] = []
        threads.start("manager", lambda: _run(manager, stop, failures))
        try:
            if manager.options.leader_election is None:
                _wait_until_it_acts(manager, stop)
            if not failures:
                yield manager
        finally:
            stop.stop("the test is over")
            ended = threads.join(_LIMIT)
    if failures:
        raise failures[0]
    if not ended:
        raise ManagerStuck("ended", _LIMIT)


def _client(config: ClientConfig | Client, clock: Clock) -> AbstractContextManager[Client]:
    if isinstance(config, Client):
        return nullcontext(config)
    return Client(config, clock=clock)


def _run(manager: Manager, stop: StopToken, failures: list[BaseException]) -> None:
    try:
        manager.run(stop)
    except Exception as error:  # noqa: BLE001 - raised where the test sees it
        failures.append(error)
        stop.stop(f"the manager failed: {error}")


def _wait_until_it_acts(manager: Manager, stop: StopToken) -> None:
    begun = StopToken()
    for token in (manager.elected, stop):
        token.on_stop(begun.stop)
    if not begun.wait(_LIMIT):
        raise ManagerStuck("begun to act", _LIMIT)
