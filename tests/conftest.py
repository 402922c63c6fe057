"""What every test gets: virtual time, reproducible examples, and a thread-leak check.

Tests that hold for every API server take `served`; `--server` says which it is.
"""

import signal
import threading
import time
from collections.abc import Iterator

import hypothesis
import pytest
from tests.servers import IN_PROCESS, REAL, Served, named, serve

from navarchos.testing import FakeClock

hypothesis.settings.register_profile(
    "navarchos",
    database=None,  # tests leave no file behind
    deadline=None,  # the machine may be busy; promises are not about its speed
    print_blob=True,  # a failure prints how to run it again
)
hypothesis.settings.load_profile("navarchos")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Whoever runs the tests in the background has Ctrl-C ignored, also for every
    # program that a test starts; some tests are about Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)

_LEAK_LIMIT = 5.0


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--server",
        choices=(IN_PROCESS, REAL),
        default=REAL if named() else IN_PROCESS,
        help="the API server of the tests that hold for each (tests/servers.py)",
    )
    parser.addoption(
        "--record",
        action="store_true",
        help="keep what the real server answers as what is expected (tests/contract/answers.py)",
    )


def pytest_configure(config: pytest.Config) -> None:
    if named():  # whoever names a server without its certificate knows that
        ignored = "ignore::urllib3.exceptions.InsecureRequestWarning"
        config.addinivalue_line("filterwarnings", ignored)


@pytest.fixture(scope="session")
def served(pytestconfig: pytest.Config) -> Iterator[Served]:
    """The API server that `--server` names. Objects stay: use names of your own."""
    with serve(pytestconfig.getoption("--server")) as server:
        yield server


@pytest.fixture
def fake_clock() -> FakeClock:
    """A clock that only the test moves."""
    return FakeClock()


@pytest.fixture(autouse=True)
def no_thread_outlives_its_test() -> Iterator[None]:
    """Fail the test that leaves a thread behind.

    Threads that a test has told to stop get some seconds to end; joining them one
    by one with a limit is the wait.
    """
    before = set(threading.enumerate())
    yield
    limit = time.monotonic() + _LEAK_LIMIT
    left = [thread for thread in threading.enumerate() if thread not in before]
    for thread in left:
        thread.join(max(0.0, limit - time.monotonic()))
    alive = sorted(thread.name for thread in left if thread.is_alive())
    assert not alive, f"threads left behind: {alive}"
