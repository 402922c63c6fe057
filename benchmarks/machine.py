"""Describe the machine and the versions of all programs that took part."""

import os
import platform
import re
import sys
from importlib import metadata
from pathlib import Path

from benchmarks import clientgo
from benchmarks.interpreter import is_as_installed
from navarchos.testing.controlplane.tools import PINS

__all__ = ["Steal", "describe_machine", "versions"]


class Steal:
    """Counts, from now on, the time that a virtual machine waited for its host's processors.

    A program that sleeps and wakes up often loses more by it than others, in processor time
    too, so ratios of a row with much stolen time mean little.
    """

    def __init__(self) -> None:
        self._began = _ticks()

    def percent(self) -> float:
        """Return the stolen share of the time of all processors, in percent."""
        (stolen, all_), (stolen_before, all_before) = _ticks(), self._began
        return round(100 * (stolen - stolen_before) / max(all_ - all_before, 1), 1)


def describe_machine() -> dict[str, object]:
    """Return processor, memory, kernel and load of the machine."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": platform.release(),
        "load_before": round(os.getloadavg()[0], 1),
        "environment": "as installed" if is_as_installed() else "with development tools",
    }


def versions() -> dict[str, str]:
    """Return the versions of this package, the peers and the servers."""
    packages = ("navarchos", "msgspec", "urllib3", "kubernetes", "kopf")
    return {
        "python": sys.version.split()[0],
        **{package: metadata.version(package) for package in packages},
        **clientgo.built_with(),
        "kube-apiserver": PINS["kubernetes"],
        "etcd": PINS["etcd"],
        "kwok": PINS["kwok"],
    }


def _ticks() -> tuple[int, int]:
    first = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0]
    user, nice, system, idle, iowait, irq, softirq, steal = map(int, first.split()[1:9])
    return steal, user + nice + system + idle + iowait + irq + softirq + steal


def _processor() -> str:
    found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    return found[1] if found else platform.machine()
