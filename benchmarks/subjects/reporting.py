"""Let a measured program report its cost; `peers/clientgo/report` is the same in Go.

It writes one JSON line per stage to standard output, in seconds and bytes. The program
continues when a line arrives on standard input and ends when standard input is closed.
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

    It does as little as possible, because the figures include its own cost.
    """

    def __init__(self) -> None:
        """Begin at the present wall clock and at the processor time of the process."""
        self._began = time.perf_counter()
        self._busy = 0.0

    def begin(self) -> None:
        """Start a stage."""
        self._began, self._busy = time.perf_counter(), _cpu()

    def end(self, stage: str, **more: object) -> None:
        """Report a stage, with additional facts."""
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

    def collect_garbage(self) -> None:
        """Collect garbage, return free memory to the system, and report the rest as `after_gc`."""
        import ctypes

        self.begin()
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        self.end("after_gc")

    def order(self) -> str | None:
        """Return the next order of the measuring process; `None` when it has ended."""
        line = sys.stdin.readline()
        return line.strip() if line else None


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _memory() -> dict[str, int]:
    # Not ru_maxrss, which begins with the memory of the parent at the fork.
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    pairs = (line.split(":") for line in lines if line.endswith(" kB"))
    return {name: int(amount.split()[0]) * 1024 for name, amount in pairs}
