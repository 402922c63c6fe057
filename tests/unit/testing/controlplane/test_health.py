import signal
import socket
import sys
from collections.abc import Iterator

import pytest

from navarchos.errors import Stopped
from navarchos.stopping import StopToken
from navarchos.testing.controlplane.errors import PartFailed, PartNotReady
from navarchos.testing.controlplane.guard import Guard
from navarchos.testing.controlplane.health import ReadinessWaiter, http_health

WAITS = (sys.executable, "-c", "import signal; signal.pause()")


@pytest.fixture
def guard() -> Iterator[Guard]:
    guard = Guard()
    yield guard
    guard.stop()


def waiter(guard: Guard, stop: StopToken | None = None, *, timeout: float = 60) -> ReadinessWaiter:
    return ReadinessWaiter(guard, stop=StopToken() if stop is None else stop, timeout=timeout)


def test_it_looks_until_nothing_is_missing(guard: Guard) -> None:
    answers = iter(["not yet", "nearly", ""])
    waiter(guard).until("etcd", lambda: next(answers))
    assert list(answers) == []


def test_a_server_that_ends_ends_the_wait_for_any_other(guard: Guard) -> None:
    guard.start("etcd", "/bin/sh", "-c", "echo disk full; exit 2")
    with pytest.raises(PartFailed) as caught:
        waiter(guard).until("kube-apiserver", lambda: "refused")
    assert (caught.value.part, caught.value.status) == ("etcd", 2)
    assert str(caught.value) == "etcd ended with status 2; its log ends:\ndisk full"


def test_a_timeout_is_reported_with_the_last_check_and_the_log(guard: Guard) -> None:
    guard.start("etcd", *WAITS)
    with pytest.raises(PartNotReady, match=r"etcd is not ready after 0 s \(HTTP status 503"):
        waiter(guard, timeout=0).until("etcd", lambda: "HTTP status 503")


def test_a_stop_frees_who_waits(guard: Guard) -> None:
    guard.start("etcd", *WAITS)
    stop = StopToken()

    def look() -> str:
        stop.stop("enough")
        return "not yet"

    with pytest.raises(Stopped, match="enough"):
        waiter(guard, stop).until("etcd", look)


def test_a_server_killed_by_a_signal_has_a_negative_status(guard: Guard) -> None:
    guard.start("etcd", *WAITS)
    guard.signal("etcd", signal.SIGKILL)
    with pytest.raises(PartFailed) as caught:
        waiter(guard).until("etcd", lambda: "not yet")
    assert caught.value.status == -signal.SIGKILL


def test_a_port_where_nobody_listens_is_not_healthy() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        assert "refused" in http_health(unused.getsockname()[1], "/health")
