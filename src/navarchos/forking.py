"""Refusing to work on in a forked child (RT-31).

A fork copies memory and one thread. In the child the threads of this library are
gone, and a lock that one of them held stays locked for ever: a cache would be
silently stale there, or hang.
"""

import os

from navarchos.errors import Forked

__all__ = ["ForkGuard"]


class _Lineage:
    """How many forks lie between the process that imported this module and this one."""

    forks = 0

    @classmethod
    def fork(cls) -> None:
        cls.forks += 1


# Cheaper to ask than the process's number, which is a system call.
os.register_at_fork(after_in_child=_Lineage.fork)


class ForkGuard:
    """Remembers in which process something was started.

    Something that is made before a fork and started after it is fine.

    Threads: safe from any thread; takes no lock, for that might be locked for ever. It
    needs none: two that start at once are in one process, so both write its number.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._started: int | None = None

    def start(self) -> None:
        """Note that it is started here; later calls do nothing."""
        if self._started is None:
            self._started = _Lineage.forks

    def check(self) -> None:
        """Refuse to go on if it was started in another process.

        Raises:
            Forked: This process is a fork of that one.
        """
        if self._started is not None and self._started != _Lineage.forks:
            raise Forked(self._what)
