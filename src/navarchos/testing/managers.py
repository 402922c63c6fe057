"""Run a manager for the length of a test."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final, Protocol

from navarchos.client import Client, ClientConfig
from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.errors import NavarchosError
from navarchos.runtime import Manager, ManagerOptions
from navarchos.stopping import StopToken
from navarchos.threads import ThreadGroup

__all__ = ["SHORT_LIVED", "ManagerTimeout", "SetUp", "StartManager", "running_manager"]

SHORT_LIVED: Final = ManagerOptions(freeze_caches=False)
"""The options of a manager that runs only for a test."""

_TIMEOUT: Final = 30.0

SetUp = Callable[[Manager], object]
"""Adds controllers and runnables to a manager before it starts."""


class StartManager(Protocol):
    """The type of the fixture `manager`: starts a manager that stops with the test."""

    def __call__(
        self,
        set_up: SetUp,
        *,
        config: ClientConfig | None = None,
        options: ManagerOptions | None = None,
    ) -> Manager:
        """Start a manager; see `running_manager`. The default server is `api_server`."""
        ...


class ManagerTimeout(NavarchosError):
    """A manager did not start or stop in time.

    Attributes:
        missing: The missing step, such as `stopped`.
        seconds: The timeout.
    """

    def __init__(self, missing: str, seconds: float) -> None:
        super().__init__(missing, seconds)
        self.missing = missing
        self.seconds = seconds

    def __str__(self) -> str:
        return f"the manager has not {self.missing} after {self.seconds:g} s"


@contextmanager
def running_manager(
    set_up: SetUp,
    config: ClientConfig | Client,
    *,
    options: ManagerOptions | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Iterator[Manager]:
    """Run a manager in a thread for the length of a `with` block.

    Promises: inside the block, the caches are filled and the controllers run, unless they
    wait for election. After the block, the manager and its client have stopped in order.
    An error of the manager is raised at the end of the block, or at its beginning.

    Args:
        set_up: Adds controllers and runnables.
        config: The configuration of the server; or a client, which the caller must close
            after the block.
        options: The options of the manager; `SHORT_LIVED` by default.
        clock: The clock of the manager and its client. The timeouts for starting and
            stopping, 30 s each, are real time.

    Raises:
        ManagerTimeout: The manager did not start or stop in time.
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
                _wait_until_active(manager, stop)
            if not failures:
                yield manager
        finally:
            stop.stop("the test is over")
            ended = threads.join(_TIMEOUT)
    if failures:
        raise failures[0]
    if not ended:
        raise ManagerTimeout("stopped", _TIMEOUT)


def _client(config: ClientConfig | Client, clock: Clock) -> AbstractContextManager[Client]:
    if isinstance(config, Client):
        return nullcontext(config)
    return Client(config, clock=clock)


def _run(manager: Manager, stop: StopToken, failures: list[BaseException]) -> None:
    try:
        manager.run(stop)
    except Exception as error:  # noqa: BLE001 - raised again in the test's thread
        failures.append(error)
        stop.stop(f"the manager failed: {error}")


def _wait_until_active(manager: Manager, stop: StopToken) -> None:
    active = StopToken()
    for token in (manager.elected, stop):
        token.on_stop(active.stop)
    if not active.wait(_TIMEOUT):
        raise ManagerTimeout("become active", _TIMEOUT)
