"""Errors about the end of leadership."""

from navarchos.errors import NavarchosError, Stopped

__all__ = ["LeaseLost", "LeaseNotRenewed", "NotLeading"]


class NotLeading(Stopped):
    """A request was not sent, because another process may be the leader by now.

    A kind of `Stopped`: the work of a leader ends with its leadership.

    Attributes:
        lease: `namespace/name` of the lease.
    """

    def __init__(self, lease: str) -> None:
        super().__init__(f"another process may hold lease {lease}")
        self.lease = lease


class LeaseLost(NavarchosError):
    """This process was the leader and lost the lease.

    The process should exit: another leader may already work on the same objects. After a
    restart it is a candidate like any other.

    Attributes:
        lease: `namespace/name` of the lease.
        identity: Of this process.
        holder: The last known holder; it may still be this process.
    """

    def __init__(self, lease: str, identity: str, holder: str) -> None:
        super().__init__(lease, identity, holder)
        self.lease = lease
        self.identity = identity
        self.holder = holder

    def __str__(self) -> str:
        cause = (
            "it could not be renewed in time"
            if self.holder == self.identity
            else f"its holder is {self.holder or 'no process'}"
        )
        return f"lost lease {self.lease}: {cause}; restart {self.identity}"


class LeaseNotRenewed(NavarchosError):
    """The health check failed: this process leads with a lease that has expired.

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
