"""Run `navarchos_informer` and report the stacks in which its processor time was spent.

python -m benchmarks.subjects.profiled_informer drain KUBECONFIG

Every few milliseconds the processor time of each thread since the last sample is added to
its present stack. A call of C code prevents sampling until it returns, so its whole time is
added to the Python function that made the call.
"""

import sys
import threading
import time
from collections import defaultdict
from types import FrameType
from typing import Final

_PERIOD: Final = 0.002


class Profile:
    """Samples stacks on a separate thread and adds up their processor time."""

    def __init__(self) -> None:
        self._stacks: defaultdict[str, float] = defaultdict(float)
        self._spent: dict[int, float] = {}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="profile", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> dict[str, float]:
        """Stop and return the seconds of each folded stack, the outermost frame first."""
        self._end.set()
        self._thread.join()
        return dict(self._stacks)

    def _run(self) -> None:
        while not self._end.wait(_PERIOD):
            frames = sys._current_frames()  # noqa: SLF001 - as documented for profilers
            for thread in threading.enumerate():
                frame = frames.get(thread.ident or 0)
                if frame is not None and thread is not self._thread:
                    self._book(thread, frame)

    def _book(self, thread: threading.Thread, frame: FrameType) -> None:
        assert thread.ident is not None
        try:
            spent = time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
        except OSError:  # the thread has just ended
            return
        took = spent - self._spent.get(thread.ident, 0.0)
        self._spent[thread.ident] = spent
        if took > 0:
            self._stacks[";".join([thread.name, *_folded(frame)])] += took


def _folded(frame: FrameType | None) -> list[str]:
    names: list[str] = []
    while frame is not None:
        module = frame.f_globals.get("__name__", "?")
        if not module.startswith(("threading", "runpy", "importlib._bootstrap")):
            names.append(f"{module}:{frame.f_code.co_qualname}")
        frame = frame.f_back
    return names[::-1]


def main() -> None:
    """Report the stages of `navarchos_informer`, and `profiled` after `synced`."""
    profile = Profile()
    profile.start()
    from benchmarks.subjects import navarchos_informer

    navarchos_informer.main(lambda reporter: reporter.end("profiled", stacks=profile.stop()))


if __name__ == "__main__":
    main()
