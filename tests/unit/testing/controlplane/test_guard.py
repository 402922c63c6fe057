"""The guard with processes that only wait."""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from navarchos.testing.controlplane.errors import ControlPlaneError, GuardLost
from navarchos.testing.controlplane.guard import Guard

WAITS = (sys.executable, "-c", "import signal; signal.pause()")
LATE = 30.0

# A test run that starts servers, prints their process ids, and is then killed.
HOLDER = f"""
import json, sys
from navarchos.testing.controlplane.guard import Guard
guard = Guard()
pids = [guard.start(name, *{WAITS!r}) for name in ("one", "two")]
print(json.dumps([str(guard.directory), pids]), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def guard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Guard]:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    guard = Guard()
    yield guard
    guard.stop()
    assert list(tmp_path.iterdir()) == []


def wait_until_ended(pid: int) -> None:
    """Wait for the end of a process that is not a child of this one."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        ready, _, _ = select.select([handle], [], [], LATE)
    finally:
        os.close(handle)
    assert ready, f"process {pid} still runs"


def test_the_directory_is_private_and_where_temporary_files_go(
    guard: Guard, tmp_path: Path
) -> None:
    assert guard.directory.parent == tmp_path
    assert guard.directory.stat().st_mode & 0o777 == 0o700


def test_stop_ends_the_servers_and_removes_the_directory(guard: Guard) -> None:
    pids = [guard.start("one", *WAITS), guard.start("two", *WAITS)]
    assert guard.status() == {"one": None, "two": None}
    guard.stop()
    assert not guard.directory.exists()
    for pid in pids:
        wait_until_ended(pid)


def test_stop_may_be_repeated_and_requests_after_it_are_refused(guard: Guard) -> None:
    guard.stop()
    guard.stop()
    with pytest.raises(GuardLost, match="has been stopped"):
        guard.status()


def test_a_server_that_ends_by_itself_is_reported_with_its_log(guard: Guard) -> None:
    pid = guard.start("sh", "/bin/sh", "-c", "echo out; echo err >&2; exit 3")
    wait_until_ended(pid)
    assert guard.status() == {"sh": 3}
    assert guard.tail("sh").splitlines() == ["out", "err"]


def test_a_tail_is_short_however_long_the_log_is(guard: Guard) -> None:
    wait_until_ended(guard.start("sh", "/bin/sh", "-c", "seq 1 100000"))
    lines = guard.tail("sh").splitlines()
    assert lines[-1] == "100000"
    assert len(lines) == 15
    assert guard.tail("nobody") == "(no log: No such file or directory)"


def test_servers_get_nothing_of_our_environment(
    guard: Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_until_ended(guard.start("env", "/usr/bin/env"))
    assert f"HOME={guard.directory}" in guard.tail("env")
    names = {line.partition("=")[0] for line in guard.tail("env").splitlines()}
    assert names <= {"HOME", "PATH", "LC_CTYPE"}


def test_one_server_is_stopped_and_started_again(guard: Guard) -> None:
    first = guard.start("one", *WAITS)
    with pytest.raises(ControlPlaneError, match="one is already running"):
        guard.start("one", *WAITS)
    assert guard.stop_server("one") == -signal.SIGTERM
    assert guard.status() == {}
    assert guard.start("one", *WAITS) != first


def test_a_paused_server_can_be_stopped(guard: Guard) -> None:
    guard.start("one", *WAITS)
    guard.signal("one", signal.SIGSTOP)
    assert guard.stop_server("one") == -signal.SIGTERM


def test_an_impossible_request_is_reported(guard: Guard) -> None:
    with pytest.raises(ControlPlaneError, match="cannot start: FileNotFoundError"):
        guard.start("nothing", "/no/such/program")
    with pytest.raises(ControlPlaneError, match="cannot stop: KeyError"):
        guard.stop_server("nobody")
    assert guard.status() == {}


def test_nothing_is_left_when_the_test_is_killed(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    with holder:
        assert holder.stdout is not None
        directory, pids = json.loads(holder.stdout.readline())
        assert Path(directory).is_dir()
        guardian = os.getpgid(pids[0])
        holder.send_signal(signal.SIGKILL)
    for pid in (*pids, guardian):
        wait_until_ended(pid)
    assert list(tmp_path.iterdir()) == []


def test_the_guard_ends_properly_when_asked_by_a_signal(guard: Guard) -> None:
    pid = guard.start("one", *WAITS)
    os.kill(os.getpgid(pid), signal.SIGTERM)
    wait_until_ended(pid)
    with pytest.raises(GuardLost):
        guard.status()


def test_a_guard_that_was_killed_leaves_nothing_after_stop(guard: Guard) -> None:
    pid = guard.start("one", *WAITS)
    os.kill(os.getpgid(pid), signal.SIGKILL)
    with pytest.raises(GuardLost):
        guard.status()
    guard.stop()
    wait_until_ended(pid)
    assert not guard.directory.exists()
