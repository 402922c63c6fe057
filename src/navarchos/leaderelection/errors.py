"""How leadership ends when nobody asked for it."""

from navarchos.errors import NavarchosError, Stopped

__all__ = ["LeaseLost", "LeaseNotRenewed", "NotLeading"]


class NotLeading(Stopped):
    """A write was kept here, because somebody else may be the leader.

    A kind of `Stopped`: leadership was all that the work had, and it is over.

    Attributes:
        lease: `namespace/name` of the lease.
    """

    def __init__(self, lease: str) -> None:
        super().__init__(f"lease {lease} may be somebody else's")
        self.lease = lease


class LeaseLost(NavarchosError):
    """We were the leader and could not, or may not, stay it.

    The process should end: whatever it has in hand may already be somebody
    else's. Started anew it is a candidate like any other.

    Attributes:
        lease: `namespace/name` of the lease.
        identity: Ours.
        holder: Who holds it now, as far as we know; it may still name us.
    """

    def __init__(self, lease: str, identity: str, holder: str) -> None:
        super().__init__(lease, identity, holder)
        self.lease = lease
        self.identity = identity
        self.holder = holder

    def __str__(self) -> str:
        why = (
            "it could not be renewed in time"
            if self.holder == self.identity
            else f"{self.holder or 'nobody'} holds it"
        )
        return f"lost lease {self.lease}: {why}; start {self.identity} again"


class LeaseNotRenewed(NavarchosError):
    """The health check's answer: we believe to lead with a lease that has expired.

    Attributes:
        lease: `namespace/name` of the lease.
        age: Seconds since the last renewal.
    """

    def __init__(self, lease: str, age: float) -> None:
        super().__init__(lease, age)
        self.lease = lease
        self.age = age

    def __str__(self) -> str:
        return f"lease {self.lease} has not been renewed for {self.age:.0f} s"
