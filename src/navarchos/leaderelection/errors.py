"""How leadership ends when nobody asked for it."""

from navarchos.errors import NavarchosError

__all__ = ["LeaseLost", "LeaseNotRenewed"]


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
