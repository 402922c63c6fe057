"""SIGTERM and SIGINT: the first signal stops in order, the second one at once (MG-18)."""

import os
import signal
import socket
import threading
from typing import Final, Self

from navarchos.errors import AlreadyStarted, ConfigError
from navarchos.logs import get_logger
from navarchos.stopping import StopToken
from navarchos.threads import ThreadGroup

__all__ = ["SignalHandling"]

_log = get_logger(__name__)

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_installed = threading.Lock()


class SignalHandling:
    """Sets a stop token on the first signal and exits with status 1 on the second.

    A context manager, for the main thread only.

    A Python signal handler interrupts the main thread at any point, perhaps while it holds the
    lock that setting a token needs. Therefore the handler is empty; the interpreter writes the
    signal's number to a socket, and a thread reads it from there.
    """

    def __init__(self, stop: StopToken) -> None:
        self._stop = stop
        self._ends: tuple[socket.socket, socket.socket] | None = None
        self._threads = ThreadGroup("signals", stop=StopToken())
        self._previous: dict[int, object] = {}
        self._previous_fd = -1
        self._received_before = False  # of the reading thread

    def __enter__(self) -> Self:
        if threading.current_thread() is not threading.main_thread():
            raise ConfigError(
                "install_signals", True, "only the main thread can install signal handlers"
            )
        if not _installed.acquire(blocking=False):
            raise AlreadyStarted("signal handling of this process")
        reader, writer = socket.socketpair()
        writer.setblocking(False)
        self._ends = (reader, writer)
        self._previous_fd = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        for number in _SIGNALS:
            self._previous[number] = signal.signal(number, lambda *_: None)
        self._threads.start("", self._read)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            # None means that the handler was not installed from Python.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # type: ignore[arg-type]  # what signal() returned
        signal.set_wakeup_fd(self._previous_fd)
        assert self._ends is not None, "entered before"
        reader, writer = self._ends
        writer.close()
        self._threads.join()
        reader.close()
        _installed.release()

    def _read(self) -> None:
        assert self._ends is not None, "started after it is set"
        reader = self._ends[0]
        while numbers := reader.recv(16):
            for number in numbers:
                if number in _SIGNALS:
                    self._received(signal.Signals(number).name)

    def _received(self, name: str) -> None:
        # The stop token cannot tell: it may be set for another reason when the first signal
        # arrives, and that signal must not interrupt the orderly stop.
        if self._received_before:
            _log.warning("signal_repeated", signal=name)
            os._exit(1)
        self._received_before = True
        _log.info("signal_received", signal=name)
        self._stop.stop(f"received {name}")
