"""Hearing that a lease was given back, or given to us, without asking again and again."""

from collections.abc import Callable

from navarchos.client import Client
from navarchos.clock import Clock
from navarchos.informers import SharedInformer
from navarchos.leaderelection.lock import LEASES
from navarchos.leaderelection.record import read_record

__all__ = ["VacancyWatch"]


class VacancyWatch:
    """Watches one Lease and tells when it names nobody, or us.

    Upstream has no such thing: there a candidate finds out at its next try, up to 4.4 s
    later by default, and a rolling update is as long without a leader. This is news and
    no proof: the candidate reads the lease as ever, and competes for it.

    Lifecycle: `start`, then `stop`. Threads: any.

    Args:
        client: Watches.
        namespace: Of the Lease.
        name: Of the Lease.
        identity: Ours: where the API server elects, that name is news.
        tell: Called on a thread of this watch; must not block.
        clock: Time and waiting.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        identity: str,
        tell: Callable[[], None],
        *,
        clock: Clock,
    ) -> None:
        self._tell = tell
        self._awaited = {"", identity}
        self._informer = SharedInformer(
            client.resource(LEASES),
            namespace=namespace,
            field_selector=f"metadata.name={name}",
            clock=clock,
            name="vacancy",
        )
        self._informer.add_handler(
            on_add=lambda lease, _: self._look(lease), on_update=lambda _, lease: self._look(lease)
        )

    def start(self) -> None:
        """Begin to watch."""
        self._informer.start()

    def stop(self, timeout: float | None) -> bool:
        """End it; return whether its threads have ended within so many seconds."""
        self._informer.stop("no longer waiting for the lease")
        return self._informer.join(timeout)

    def _look(self, lease: dict[str, object]) -> None:
        if read_record(lease.get("spec")).holder_identity in self._awaited:
            self._tell()
