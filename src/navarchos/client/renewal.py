"""One renewal for all requests that were refused with the same credentials."""

import threading
from collections.abc import Callable

__all__ = ["Renewal"]


class Renewal:
    """Renews credentials, once for all who were refused with the same ones.

    As client-go's plugin/pkg/client/auth/exec, whose requests remember what they were
    sent with. A renewal that failed counts: the others try with what there is, as
    a program that hangs for a minute should not be run again by each of them.

    Threads: safe from any thread; all wait for the one that renews.

    Args:
        renew: Fetches anew.
    """

    def __init__(self, renew: Callable[[], None]) -> None:
        self._renew = renew
        self._renewing_lock = threading.Lock()  # held while credentials are fetched
        self._count_lock = threading.Lock()
        self._count = 0  # guarded by _count_lock

    @property
    def count(self) -> int:
        """How many renewals there were; to be asked before a request gets its credentials."""
        with self._count_lock:
            return self._count

    def after(self, count: int) -> None:
        """Renew what a request that was begun at this count was refused with.

        Returns at once when somebody has done so since.

        Raises:
            CredentialsFailed: There are none. For the first of those who wait only.
        """
        with self._renewing_lock:
            if self.count != count:
                return
            try:
                self._renew()
            finally:
                with self._count_lock:
                    self._count += 1
