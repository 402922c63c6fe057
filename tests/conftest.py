"""What every test gets: virtual time, reproducible examples, and a thread-leak check.

Whoever changes a cached object crashes its informer, and so fails the test.
Tests that hold for every API server take `served`; `--server` says which it is.
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
from xdist.scheduler import LoadScopeScheduling

from navarchos.informers.mutation import mutation_detection
from navarchos.threads import THREAD_PREFIX

# In this order: of fixtures of one name the last one counts.
pytest_plugins = ("navarchos.testing.pytest", "tests.foreign", "tests.cases.fixtures")

hypothesis.settings.register_profile(
    "navarchos",
    database=None,  # tests leave no file behind
    deadline=None,  # the machine may be busy; promises are not about its speed
    print_blob=True,  # a failure prints how to run it again
)
hypothesis.settings.load_profile("navarchos")

# Whoever runs the tests in the background, or beyond a log-out, has these ignored, also
# for every program that a test starts; some tests are about them.
for _number, _usual in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _usual)

_LEAK_LIMIT = 5.0

# Files with servers of their own are not among them: they need not wait for the others.
_ON_THE_CLUSTER = re.compile(
    "tests/integration/operator/|tests/e2e/test_(operator_(manifests|older|webhooks)|rights|shipped)"
)


class FilesTogether(LoadScopeScheduling):
    """Gives each file to one process, and all that share a cluster to the same one."""

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
        help="keep what the real server answers as what is expected (tests/contract/recorded.py)",
    )
    parser.addoption(
        "--all-rights",
        action="store_true",
        help="fail where rights cannot be judged because only a part of the suite runs",
    )
    parser.addoption(
        "--switch-interval",
        type=float,
        default=sys.getswitchinterval(),
        help="seconds after which Python threads take turns; short ones find races",
    )


def pytest_configure(config: pytest.Config) -> None:
    sys.setswitchinterval(config.getoption("--switch-interval"))
    if named():  # whoever names a server without its certificate knows that
        ignored = "ignore::urllib3.exceptions.InsecureRequestWarning"
        config.addinivalue_line("filterwarnings", ignored)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    """Keep files that share a cluster, whose log is read last, in one process."""
    return FilesTogether(config, log) if config.option.dist == "loadfile" else None


@pytest.fixture(scope="session")
def served(pytestconfig: pytest.Config) -> Iterator[Served]:
    """The API server that `--server` names. Objects stay: use names of your own."""
    with serve(pytestconfig.getoption("--server")) as server:
        yield server


@pytest.fixture(scope="session", autouse=True)
def changes_of_cached_objects_are_found() -> Iterator[None]:
    """Let whoever changes a cached object crash its informer, in this process alone."""
    with mutation_detection(True):
        yield


@pytest.fixture
def no_detector() -> Iterator[None]:
    """For tests that count threads, deadlines or bytes: nobody looks for changed objects."""
    with mutation_detection(False):
        yield


@pytest.fixture
def new_threads() -> Callable[[], list[str]]:
    """Name the threads of the library that began since the test did and still run.

    Others are older: servers that several tests share. To be asked for first.
    """
    before = set(threading.enumerate())

    def names() -> list[str]:
        found = set(threading.enumerate()) - before
        return sorted(t.name for t in found if t.name.startswith(THREAD_PREFIX))

    return names


@pytest.fixture(autouse=True)
def nobody_configures_the_logs_of_all_tests() -> Iterator[None]:
    """Fail the test that configures logging: loggers keep that for the rest of the run.

    Commands that do so are run as processes (tests/integration/conftest.py).
    """
    yield
    assert not structlog.get_config()["cache_logger_on_first_use"]


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


@pytest.fixture
def open_descriptors() -> Callable[[], int]:
    """Count the descriptors that this process has open."""

    descriptors = Path("/proc/self/fd")
    if not descriptors.is_dir():
        pytest.skip("only Linux lists a process's descriptors")
    return lambda: len(list(descriptors.iterdir()))


@pytest.fixture
def in_child() -> Callable[[Callable[[], object]], str]:
    """Call something in a forked child; returns what it raised, or nothing, as text."""

    def run(call: Callable[[], object]) -> str:
        readable, writable = os.pipe()
        with warnings.catch_warnings():
            # Newer Pythons warn of what these tests are about.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            said = "it did not end"
            try:
                signal.alarm(30)  # a lock that is held for ever must not keep us
                call()
                said = ""
            except BaseException as error:  # noqa: BLE001 - told to the parent
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
