import os
import signal
import subprocess
import sys
import textwrap

import pytest

from navarchos.errors import AlreadyStarted, ConfigError
from navarchos.runtime.signals import SignalHandling
from navarchos.stopping import StopToken
from navarchos.threads import ThreadGroup


@pytest.mark.rule("MG-18")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_sets_the_token_and_handlers_come_back(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    stop = StopToken()
    with SignalHandling(stop):
        os.kill(os.getpid(), number)
        assert stop.wait(20)
    assert stop.reason == f"received {number.name}"
    assert signal.getsignal(number) is before


@pytest.mark.rule("MG-18")
def test_other_signals_are_let_through() -> None:
    stop = StopToken()
    seen: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: seen.append(number))
    try:
        with SignalHandling(stop):
            os.kill(os.getpid(), signal.SIGUSR1)
        assert seen == [signal.SIGUSR1]
        assert not stop.is_set()
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.rule("MG-18")
def test_installing_twice_is_an_error() -> None:
    with SignalHandling(StopToken()), pytest.raises(AlreadyStarted), SignalHandling(StopToken()):
        pass


@pytest.mark.rule("MG-18")
def test_only_the_main_thread_may_install() -> None:
    errors: list[BaseException] = []

    def install() -> None:
        try:
            SignalHandling(StopToken()).__enter__()
        except ConfigError as error:
            errors.append(error)

    group = ThreadGroup("test", stop=StopToken())
    group.start("other", install)
    assert group.join(20)
    assert "only the main thread can install" in str(errors[0])


PROGRAM = textwrap.dedent(
    """
    import sys
    from navarchos.logs import configure
    from navarchos.runtime.signals import SignalHandling
    from navarchos.stopping import StopToken

    configure()
    stop = StopToken()
    {before}
    with SignalHandling(stop):
        print("ready", flush=True)
        stop.wait()
        {stopping}
        print("stopping", flush=True)
        StopToken().wait()
    """
)


def start(**parts: str) -> subprocess.Popen[str]:
    code = PROGRAM.format(**{"before": "", "stopping": "", **parts})
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.rule("MG-18")
def test_a_second_signal_exits_at_once_with_status_1() -> None:
    process = start()
    process.send_signal(signal.SIGTERM)
    assert process.stdout is not None
    assert process.stdout.readline() == "stopping\n"
    process.send_signal(signal.SIGINT)
    _, log = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "signal_repeated" in log


def test_a_first_signal_during_another_stop_does_not_cut_it_short() -> None:
    process = start(before='stop.stop("failed")')
    assert process.stdout is not None
    assert process.stdout.readline() == "stopping\n"
    process.send_signal(signal.SIGTERM)
    assert process.stderr is not None
    assert "signal_received" in process.stderr.readline()
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 1
