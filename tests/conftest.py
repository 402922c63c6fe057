"""Fixtures of every test: virtual time, reproducible examples, and a thread-leak check.

A test that changes a cached object crashes the informer and fails.
Tests for every API server use the fixture `served`; `--server` selects the server.
"""

import os
import re
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import structlog
from tests.servers import IN_PROCESS, REAL, Served, named, serve
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from navarchos.informers.mutation import mutation_detection
from navarchos.threads import THREAD_PREFIX

# The order matters: of fixtures with one name the last one is used.
pytest_plugins = ("navarchos.testing.pytest", "tests.foreign", "tests.cases.fixtures")

hypothesis.settings.register_profile(
    "navarchos",
    database=None,  # tests leave no file behind
    deadline=None,  # the machine may be busy; promises are not about its speed
    print_blob=True,  # a failure prints how to run it again
)
hypothesis.settings.load_profile("navarchos")

# A shell ignores these signals for tests in the background or after a log-out, and all
# programs that a test starts inherit this; some tests send these signals.
for _number, _usual in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _usual)

_LEAK_LIMIT = 5.0

# Files that start their own server are not among them: they can run in parallel.
_ON_THE_CLUSTER = re.compile(
    "tests/integration/operator/|tests/e2e/test_(operator_(manifests|older|webhooks)|permissions|shipped)"
)


class FilesTogether(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Assigns each file to one process, and all files with a shared cluster to the same one."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return "the cluster" if _ON_THE_CLUSTER.match(path) else path


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
        help="record the responses of the real server as expected (tests/contract/recorded.py)",
    )
    parser.addoption(
        "--all-permissions",
        action="store_true",
        help="fail if only a part of the suite runs, so that permissions cannot be compared",
    )
    parser.addoption(
        "--switch-interval",
        type=float,
        default=sys.getswitchinterval(),
        help="seconds after which Python threads take turns; short ones find races",
    )


def pytest_configure(config: pytest.Config) -> None:
    sys.setswitchinterval(config.getoption("--switch-interval"))
    if named():  # the user has named a server without its certificate
        ignored = "ignore::urllib3.exceptions.InsecureRequestWarning"
        config.addinivalue_line("filterwarnings", ignored)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    """Run files that share a cluster in one process, because its log is read last."""
    return FilesTogether(config, log) if config.option.dist == "loadfile" else None


@pytest.fixture(scope="session")
def served(pytestconfig: pytest.Config) -> Iterator[Served]:
    """Provide the API server of `--server`. Objects stay: each test uses unique names."""
    with serve(pytestconfig.getoption("--server")) as server:
        yield server


@pytest.fixture(scope="session", autouse=True)
def changes_of_cached_objects_are_found() -> Iterator[None]:
    """Crash the informer of a changed cached object, in this process only."""
    with mutation_detection(True):
        yield


@pytest.fixture
def no_detector() -> Iterator[None]:
    """Switch off the check of cached objects, for tests that count threads or deadlines."""
    with mutation_detection(False):
        yield


@pytest.fixture
def new_threads() -> Callable[[], list[str]]:
    """Return a function that names the library's threads that this test has started.

    Older threads belong to servers that several tests share. Request this fixture first.
    """
    before = set(threading.enumerate())

    def names() -> list[str]:
        found = set(threading.enumerate()) - before
        return sorted(t.name for t in found if t.name.startswith(THREAD_PREFIX))

    return names


@pytest.fixture(autouse=True)
def nobody_configures_the_logs_of_all_tests() -> Iterator[None]:
    """Fail a test that configures logging, which would last for the rest of the run.

    Commands that configure logging run as processes (tests/integration/conftest.py).
    """
    yield
    assert not structlog.get_config()["cache_logger_on_first_use"]


@pytest.fixture(autouse=True)
def no_thread_outlives_its_test() -> Iterator[None]:
    """Fail a test that leaves a thread behind.

    Stopped threads get some seconds to end: they are joined one by one with a timeout.
    """
    before = set(threading.enumerate())
    yield
    limit = time.monotonic() + _LEAK_LIMIT
    left = [thread for thread in threading.enumerate() if thread not in before]
    for thread in left:
        thread.join(max(0.0, limit - time.monotonic()))
    alive = sorted(thread.name for thread in left if thread.is_alive())
    assert not alive, f"threads left behind: {alive}"


@pytest.fixture
def open_descriptors() -> Callable[[], int]:
    """Return the number of open file descriptors of this process."""

    descriptors = Path("/proc/self/fd")
    if not descriptors.is_dir():
        pytest.skip("only Linux lists a process's descriptors")
    return lambda: len(list(descriptors.iterdir()))


@pytest.fixture
def in_child() -> Callable[[Callable[[], object]], str]:
    """Call a function in a forked child and return the text of its error, or ""."""

    def run(call: Callable[[], object]) -> str:
        readable, writable = os.pipe()
        with warnings.catch_warnings():
            # Newer versions of Python warn about forking with threads, which these tests do.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            said = "it did not end"
            try:
                signal.alarm(30)  # a lock that is never released must not block the test
                call()
                said = ""
            except BaseException as error:  # noqa: BLE001 - reported to the parent
                said = f"{type(error).__name__}: {error}"
            finally:
                os.write(writable, said.encode())
                os._exit(0)
        os.close(writable)
        with os.fdopen(readable) as pipe:
            said = pipe.read()
        os.waitpid(child, 0)
        return said

    return run
