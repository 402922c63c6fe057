"""What a measured program says of itself; the Go half is `peers/clientgo/report`.

One JSON line on standard output for each stage, in seconds and bytes. The program goes
on when a line comes on standard input, and ends when that is closed.
"""

import gc
import json
import resource
import sys
import time
from pathlib import Path

__all__ = ["Reporter"]


class Reporter:
    """Measures this process, stage by stage.

    Makes as little as possible: what it needs itself is in the figures.
    """

    def __init__(self) -> None:
        """Begin with the wall clock at now, and with the processor time of the process."""
        self._began = time.perf_counter()
        self._busy = 0.0

    def begin(self) -> None:
        """Start a stage."""
        self._began, self._busy = time.perf_counter(), _cpu()

    def end(self, stage: str, **more: object) -> None:
        """Report a stage, with more facts if there are any."""
        seconds, total = time.perf_counter() - self._began, _cpu()
        memory = _memory()
        line = {
            "stage": stage,
            "seconds": seconds,
            "cpu": total - self._busy,
            "cpu_process": total,
            "resident": memory["VmRSS"],
            "peak": memory["VmHWM"],
            **more,
        }
        print(json.dumps(line), flush=True)

    def settle(self) -> None:
        """Give back what can be given back, and report what is left."""
        import ctypes

        self.begin()
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        self.end("after_gc")

    def order(self) -> str | None:
        """Wait for whoever measures; `None` when there is nobody any more."""
        line = sys.stdin.readline()
        return line.strip() if line else None


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _memory() -> dict[str, int]:
    # Not ru_maxrss: that begins with what the parent had when it forked.
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    pairs = (line.split(":") for line in lines if line.endswith(" kB"))
    return {name: int(amount.split()[0]) * 1024 for name, amount in pairs}
